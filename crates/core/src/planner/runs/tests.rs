//! How runs are split.

use super::*;

fn run(first: PageIndex, frames: Range<u32>) -> PageRun {
    PageRun { first, frames: frames.map(FrameId).collect() }
}

#[test]
fn a_run_is_split_where_it_meets_pages() {
    let part = |first, frames| Some(run(first, frames));
    #[rustfmt::skip]
    let rows = [ // why        pages    before           within           behind
        ("apart, before",      0..4,    None,            None,            part(10, 0..6)),
        ("apart, behind",      16..20,  part(10, 0..6),  None,            None),
        ("its head",           8..12,   None,            part(10, 0..2),  part(12, 2..6)),
        ("its tail",           14..99,  part(10, 0..4),  part(14, 4..6),  None),
        ("its middle",         11..13,  part(10, 0..1),  part(11, 1..3),  part(13, 3..6)),
        ("all",                10..16,  None,            part(10, 0..6),  None),
        ("nothing, inside",    12..12,  part(10, 0..2),  None,            part(12, 2..6)),
    ];
    for (why, pages, before, within, behind) in rows {
        let split = run(10, 0..6).split(&pages);
        assert_eq!(split, SplitRun { before, within, behind }, "{why}");
    }
}
