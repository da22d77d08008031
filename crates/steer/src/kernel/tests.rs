//! The arithmetic of pages and chunks; the calls themselves are tested in `tests/kernel.rs`.
//!
//! # Invariants
//! - A piece that is requested by one call has no more pages than one call reads.
//! - Pieces touch no page twice.

use super::*;

#[test]
fn a_range_touches_whole_pages() {
    let page = page_size() as u64;
    #[rustfmt::skip]
    let rows = [ // why                     range                       pages
        ("nothing",                         0..0,                       0),
        ("nothing, within a page",          7..7,                       0),
        ("a byte",                          0..1,                       1),
        ("a page",                          0..page,                    1),
        ("two halves",                      page - 1..page + 1,         2),
        ("a byte into the third",           0..2 * page + 1,            3),
        ("far out",                         u64::MAX - page..u64::MAX,  2),
    ];
    for (why, range, expected) in rows {
        assert_eq!(pages(&range), expected, "{why}");
    }
}

#[test]
fn pieces_cover_a_range_and_touch_no_more_pages_than_a_call_reads() {
    let page = page_size() as u64;
    for chunk in [0, 1, page, page + 1, 4 * page - 1, 4 * page, 1 << 40] {
        let most = (chunk / page).max(1);
        for start in [0, 1, page - 1, page, 5 * page + 3] {
            for bytes in [0, 1, page, 4 * page, 9 * page + 5] {
                let range = start..start + bytes;
                let all: Vec<_> = pieces(&range, chunk).collect();
                let touched: u64 = all.iter().map(pages).sum();
                assert_eq!(touched, pages(&range), "{range:?} by {chunk}: no page twice");
                assert!(all.iter().all(|piece| pages(piece) <= most), "{range:?} by {chunk}");
                assert!(all.windows(2).all(|two| two[0].end == two[1].start), "{range:?}");
                assert_eq!(all.last().map(|last| last.end), (bytes > 0).then_some(range.end));
            }
        }
    }
}
