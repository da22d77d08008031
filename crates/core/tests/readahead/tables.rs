//! Decisions worked out by hand, one row a decision.

use std::vec::Vec;

use forerun_core::readahead::{self, Demand, NAMES, Probes, Trigger, Window};
use forerun_core::units::{FileId, HandleId, Nanos};

use crate::walk::{AHEAD_PAGES_MAX, FACTS, Op, PAGE_BYTES, Walk};

/// Operation, cause, page that triggered, start, size, tail.
pub(crate) type Expected = (usize, &'static str, u64, u64, u32, u32);

pub(crate) fn check(
    why: &str,
    spec: &str,
    file_pages: u64,
    ops: &[Op],
    expected: &[Expected],
) -> Walk {
    let walk = Walk::run(spec, file_pages, ops);
    let seen: Vec<Expected> = walk
        .rows
        .iter()
        .map(|row| (row.op, row.cause, row.page, row.start, row.size, row.async_size))
        .collect();
    assert_eq!(seen, expected, "{why}: {spec}, {file_pages} pages");
    walk
}

/// Reads of one page each.
pub(crate) fn pages(pages: impl IntoIterator<Item = u64>) -> Vec<Op> {
    pages.into_iter().map(|page| Op::Read(0, page, 1)).collect()
}

pub(crate) const FAR: u64 = 10_000;

/// A request's first page, of a handle that has not read before.
pub(crate) fn demand(trigger: Trigger, first: u64, count: u32) -> Demand {
    Demand {
        handle: HandleId(0),
        file: FileId(0),
        trigger,
        first,
        count,
        opens_request: true,
        previous_end: None,
        cached_before: 0,
        cached_after: 0,
        file_pages: FAR,
        all_pages: FAR,
        congested: false,
        stream: None,
        follows_cached: false,
        in_flight: 0,
        ahead_room: AHEAD_PAGES_MAX,
        device: FACTS,
        rate_known: true,
        now: Nanos(0),
    }
}

#[test]
fn a_copy_ramps_up_to_the_largest_window() {
    let ops = pages(0..=14);
    for spec in ["ondemand-2007:max=64K", "linux-2.6.24:max=64K"] {
        #[rustfmt::skip]
        check("copy", spec, FAR, &ops, &[
            (0, "sync", 0, 0, 2, 1), (1, "async", 1, 2, 4, 4), (2, "async", 2, 6, 8, 8),
            (6, "async", 6, 14, 16, 16), (14, "async", 14, 30, 16, 16),
        ]);
    }
    #[rustfmt::skip]
    check("copy", "linux-2.6.22:max=64K", FAR, &ops, &[
        (0, "initial", 0, 0, 2, 0), (1, "ahead", 1, 2, 4, 0), (2, "ahead", 2, 6, 8, 0),
        (6, "ahead", 6, 14, 16, 0), (14, "ahead", 14, 30, 16, 0),
    ]);
    #[rustfmt::skip]
    check("copy, ends on multiples of 4", "linux-6:max=64K", FAR, &ops, &[
        (0, "sync", 0, 0, 2, 1), (1, "async", 1, 2, 2, 2), (2, "async", 2, 4, 4, 4),
        (4, "async", 4, 8, 8, 8), (8, "async", 8, 16, 16, 16),
    ]);
    #[rustfmt::skip]
    check("a copy of the middle", "fixed:size=16K", FAR, &pages(10..=14), &[
        (0, "sync", 10, 10, 4, 2), (2, "async", 12, 14, 4, 2),
    ]);
}

#[test]
fn two_streams_that_alternate_strictly_need_the_cache_to_be_found() {
    let ops = pages([100, 500, 101, 501, 102, 502, 103, 503, 104, 504]);
    for spec in ["linux-2.6.22:max=64K", "ondemand-2007:max=64K", "linux-2.6.24:max=64K"] {
        let walk = Walk::run(spec, FAR, &ops);
        assert_eq!(walk.rows.len(), 10, "{spec}");
        assert!(walk.rows.iter().all(|row| row.cause == "random" && row.fresh.len() == 1));
    }
    #[rustfmt::skip]
    check("history", "linux-6:max=64K", FAR, &ops, &[
        (0, "random", 100, 100, 1, 0), (1, "random", 500, 500, 1, 0),
        (2, "random", 101, 101, 1, 0), (3, "random", 501, 501, 1, 0),
        (4, "sync", 102, 102, 3, 1), (5, "sync", 502, 502, 3, 1),
        (8, "async", 104, 105, 3, 3), (9, "async", 504, 505, 3, 3),
    ]);
}

#[test]
fn streams_on_one_handle_lose_and_recover_their_windows() {
    let ops = pages([10, 60, 61, 62, 11, 12, 63, 13]);
    #[rustfmt::skip]
    check("nothing is recovered", "linux-2.6.22:max=64K", FAR, &ops, &[
        (0, "random", 10, 10, 1, 0), (1, "random", 60, 60, 1, 0), (2, "initial", 61, 61, 2, 0),
        (3, "ahead", 62, 63, 4, 0), (4, "random", 11, 11, 1, 0), (5, "initial", 12, 12, 2, 0),
        (6, "random", 63, 63, 1, 0), (7, "random", 13, 13, 1, 0),
    ]);
    #[rustfmt::skip]
    let walk = check("a guess", "ondemand-2007:max=64K", FAR, &ops, &[
        (0, "random", 10, 10, 1, 0), (1, "random", 60, 60, 1, 0), (2, "sync", 61, 61, 2, 1),
        (3, "async", 62, 63, 4, 4), (4, "random", 11, 11, 1, 0), (5, "sync", 12, 12, 2, 1),
        (6, "async", 63, 64, 8, 1), (7, "async", 13, 14, 8, 1),
    ]);
    assert_eq!(walk.rows[6].fresh, [67, 68, 69, 70, 71]);
    #[rustfmt::skip]
    check("from the hole", "linux-2.6.24:max=64K", FAR, &ops, &[
        (0, "random", 10, 10, 1, 0), (1, "random", 60, 60, 1, 0), (2, "sync", 61, 61, 2, 1),
        (3, "async", 62, 63, 4, 4), (4, "random", 11, 11, 1, 0), (5, "sync", 12, 12, 2, 1),
        (6, "async-recovered", 63, 67, 8, 8), (7, "async-recovered", 13, 14, 2, 2),
    ]);
    #[rustfmt::skip]
    check("from the hole, with the request", "linux-6:max=64K", FAR, &ops, &[
        (0, "random", 10, 10, 1, 0), (1, "random", 60, 60, 1, 0), (2, "sync", 61, 61, 2, 1),
        (3, "async", 62, 63, 1, 1), (4, "random", 11, 11, 1, 0), (5, "sync", 12, 12, 2, 1),
        (6, "async", 63, 64, 4, 4), (7, "async", 13, 14, 2, 2),
    ]);
}

#[test]
fn a_lone_read_elsewhere_stops_only_the_legacy_policy() {
    let ops = pages([0, 1, 2, 900, 3, 4, 5, 6]);
    for spec in ["ondemand-2007:max=64K", "linux-2.6.24:max=64K"] {
        #[rustfmt::skip]
        check("state is kept", spec, FAR, &ops, &[
            (0, "sync", 0, 0, 2, 1), (1, "async", 1, 2, 4, 4), (2, "async", 2, 6, 8, 8),
            (3, "random", 900, 900, 1, 0), (7, "async", 6, 14, 16, 16),
        ]);
    }
    #[rustfmt::skip]
    check("state is kept", "linux-6:max=64K", FAR, &ops, &[
        (0, "sync", 0, 0, 2, 1), (1, "async", 1, 2, 2, 2), (2, "async", 2, 4, 4, 4),
        (3, "random", 900, 900, 1, 0), (5, "async", 4, 8, 8, 8),
    ]);
    #[rustfmt::skip]
    let walk = check("starts again on cached pages", "linux-2.6.22:max=64K", FAR, &ops, &[
        (0, "initial", 0, 0, 2, 0), (1, "ahead", 1, 2, 4, 0), (2, "ahead", 2, 6, 8, 0),
        (3, "random", 900, 900, 1, 0), (4, "random", 3, 3, 1, 0), (5, "initial", 4, 4, 2, 0),
        (6, "ahead", 5, 6, 4, 0), (7, "ahead", 6, 10, 8, 0),
    ]);
    let fresh: Vec<usize> = walk.rows.iter().map(|row| row.fresh.len()).collect();
    assert_eq!(fresh, [2, 4, 8, 1, 0, 0, 0, 4]);
}

#[test]
fn windows_end_with_the_file() {
    let ops = pages(0..7);
    for (spec, open, next) in [
        ("linux-2.6.22:max=64K", "initial", "ahead"),
        ("ondemand-2007:max=64K", "sync", "async"),
        ("linux-2.6.24:max=64K", "sync", "async"),
    ] {
        let tails = if open == "sync" { [1, 4, 8, 16] } else { [0; 4] };
        #[rustfmt::skip]
        let walk = check("past the end", spec, 7, &ops, &[
            (0, open, 0, 0, 2, tails[0]), (1, next, 1, 2, 4, tails[1]),
            (2, next, 2, 6, 8, tails[2]), (6, next, 6, 14, 16, tails[3]),
        ]);
        assert_eq!((walk.rows[2].fresh.len(), walk.rows[3].fresh.len()), (1, 0), "{spec}");
    }
    #[rustfmt::skip]
    let rows: [(&str, u64, &[Expected]); 3] = [
        ("the tail no longer fits: no marker", 7, &[
            (0, "sync", 0, 0, 2, 1), (1, "async", 1, 2, 2, 2), (2, "async", 2, 4, 4, 4)]),
        ("the tail just fits", 8, &[
            (0, "sync", 0, 0, 2, 1), (1, "async", 1, 2, 2, 2), (2, "async", 2, 4, 4, 4),
            (4, "async", 4, 8, 8, 8)]),
        ("the marker moves to the first page", 1, &[
            (0, "sync", 0, 0, 2, 1), (0, "async", 0, 1, 3, 3)]),
    ];
    for (why, file_pages, expected) in rows {
        check(why, "linux-6:max=64K", file_pages, &ops, expected);
    }
    #[rustfmt::skip]
    check("nothing is left", "fixed:size=16K", 4, &pages(0..4), &[(0, "sync", 0, 0, 4, 2)]);
}

#[test]
fn a_request_beyond_the_largest_window_is_cut_by_each_age_in_its_way() {
    let ops = [Op::Read(0, 0, 40)];
    #[rustfmt::skip]
    check("two windows at once", "linux-2.6.22:max=64K", FAR, &ops, &[
        (0, "initial", 0, 0, 16, 0), (0, "ahead", 0, 16, 16, 0), (0, "ahead", 16, 32, 16, 0),
        (0, "ahead", 32, 48, 16, 0),
    ]);
    #[rustfmt::skip]
    check("one page late", "ondemand-2007:max=64K", FAR, &ops, &[
        (0, "sync", 0, 0, 16, 16), (0, "async", 0, 1, 16, 16), (0, "sync", 17, 17, 16, 16),
        (0, "async", 17, 33, 16, 16), (0, "async", 33, 49, 16, 16),
    ]);
    #[rustfmt::skip]
    check("its own marker", "linux-2.6.24:max=64K", FAR, &ops, &[
        (0, "sync", 0, 0, 16, 16), (0, "async-recovered", 0, 16, 16, 16),
        (0, "async", 16, 32, 16, 16), (0, "async", 32, 48, 16, 16),
    ]);
    #[rustfmt::skip]
    check("half a window ahead", "linux-6:max=64K,io=64K", FAR, &ops, &[
        (0, "sync", 0, 0, 16, 8), (0, "async", 8, 16, 16, 16), (0, "async", 16, 32, 16, 16),
        (0, "async", 32, 48, 16, 16),
    ]);
    #[rustfmt::skip]
    check("as large as the device takes", "linux-6:max=64K", FAR, &ops, &[
        (0, "sync", 0, 0, 40, 20), (0, "async", 20, 40, 40, 40),
    ]);
    #[rustfmt::skip]
    check("elsewhere, as asked", "linux-6:max=64K", FAR, &[Op::Read(0, 70, 40)], &[
        (0, "random", 70, 70, 40, 0),
    ]);
    #[rustfmt::skip]
    check("elsewhere, larger than the device takes", "linux-6:max=64K,io=64K", FAR,
        &[Op::Read(0, 70, 17)], &[(0, "sync", 70, 70, 16, 8), (0, "async", 78, 86, 14, 14),
        (0, "async", 86, 100, 16, 16)]);
    for spec in ["ondemand-2007:max=64K", "linux-2.6.24:max=64K"] {
        #[rustfmt::skip]
        check("elsewhere, at the limit", spec, FAR, &[Op::Read(0, 70, 16)],
            &[(0, "random", 70, 70, 16, 0)]);
        #[rustfmt::skip]
        check("elsewhere, beyond it", spec, FAR, &[Op::Read(0, 70, 17)], &[
            (0, "sync", 70, 70, 16, 16), (0, "async", 70, 86, 16, 16),
            (0, "async", 86, 102, 16, 16),
        ]);
    }
}

#[test]
fn pages_evicted_before_use_are_read_ahead_again_or_one_by_one() {
    let mut ops = pages([0, 1, 2]);
    ops.push(Op::Drop(4, 13));
    ops.extend(pages(3..=6));
    for spec in ["ondemand-2007:max=64K", "linux-2.6.24:max=64K"] {
        #[rustfmt::skip]
        check("a new window at the hole", spec, FAR, &ops, &[
            (0, "sync", 0, 0, 2, 1), (1, "async", 1, 2, 4, 4), (2, "async", 2, 6, 8, 8),
            (5, "sync", 4, 4, 2, 1), (6, "async", 5, 6, 4, 4), (7, "async", 6, 10, 8, 8),
        ]);
    }
    #[rustfmt::skip]
    check("page by page, and the next window shrinks", "linux-2.6.22:max=64K", FAR, &ops, &[
        (0, "initial", 0, 0, 2, 0), (1, "ahead", 1, 2, 4, 0), (2, "ahead", 2, 6, 8, 0),
        (5, "readpage", 4, 4, 1, 0), (6, "readpage", 5, 5, 1, 0), (7, "ahead", 6, 14, 6, 0),
        (7, "readpage", 6, 6, 1, 0),
    ]);
    let mut ops = pages([0, 1, 2]);
    ops.push(Op::Drop(6, 6));
    ops.extend(pages(3..=7));
    for spec in ["ondemand-2007:max=64K", "linux-2.6.24:max=64K"] {
        #[rustfmt::skip]
        let walk = check("the marker itself is gone: its page alone, and on", spec, FAR, &ops, &[
            (0, "sync", 0, 0, 2, 1), (1, "async", 1, 2, 4, 4), (2, "async", 2, 6, 8, 8),
            (7, "sync", 6, 14, 16, 16),
        ]);
        assert!(walk.cached.contains(&6));
    }
}

#[test]
fn a_reopened_handle_knows_nothing_but_marks_stay() {
    let mut ops = pages([0, 1]);
    ops.push(Op::Reopen(0));
    ops.extend(pages([2]));
    #[rustfmt::skip]
    let rows: [(&str, &str, Expected); 4] = [
        ("closed windows", "linux-2.6.22:max=64K", (3, "random", 2, 2, 1, 0)),
        ("guessed", "ondemand-2007:max=64K", (3, "async", 2, 3, 8, 1)),
        ("recovered", "linux-2.6.24:max=64K", (3, "async-recovered", 2, 6, 8, 8)),
        ("recovered", "linux-6:max=64K", (3, "async", 2, 4, 4, 4)),
    ];
    for (why, spec, last) in rows {
        let walk = Walk::run(spec, FAR, &ops);
        let row = &walk.rows[2];
        let seen = (row.op, row.cause, row.page, row.start, row.size, row.async_size);
        assert_eq!((walk.rows.len(), seen), (3, last), "{why}: {spec}");
    }
}

#[test]
fn a_marker_with_a_full_window_behind_it_is_somebody_elses() {
    #[rustfmt::skip]
    let rows = [ // spec, pages cached after the marker, the window from there
        ("linux-2.6.24:max=16K", 3, Some(("async-recovered", 5, 4, 4))),
        ("linux-2.6.24:max=16K", 4, None),
        ("linux-6:max=16K", 3, Some(("async", 5, 3, 3))),
        ("linux-6:max=16K", 4, None),
    ];
    for (spec, others, expected) in rows {
        let ops = [Op::Read(0, 0, 1), Op::Read(1, 2, others), Op::Read(2, 1, 1)];
        let walk = Walk::run(spec, FAR, &ops);
        let found = walk.rows.iter().find(|row| row.op == 2);
        let seen = found.map(|row| (row.cause, row.start, row.size, row.async_size));
        assert_eq!(seen, expected, "{spec}, {others} pages");
    }
}

#[test]
fn a_busy_device_loses_the_marker() {
    let ops = [Op::Read(0, 0, 1), Op::Busy(0, 1, 1), Op::Read(0, 1, 1), Op::Read(0, 2, 1)];
    for spec in ["ondemand-2007:max=64K", "linux-2.6.24:max=64K"] {
        #[rustfmt::skip]
        check("goes on at the window's end, and at its own marker", spec, FAR, &ops, &[
            (0, "sync", 0, 0, 2, 1), (3, "sync", 2, 2, 4, 4), (3, "async", 2, 6, 8, 8),
        ]);
    }
    #[rustfmt::skip]
    check("starts again", "linux-6:max=64K", FAR, &ops, &[
        (0, "sync", 0, 0, 2, 1), (3, "sync", 2, 2, 2, 1),
    ]);
}

#[test]
fn the_legacy_policy_does_not_run_ahead_of_a_busy_device() {
    #[rustfmt::skip]
    check("put off, and taken up again", "linux-2.6.22:max=64K", FAR,
        &[Op::Read(0, 0, 1), Op::Busy(0, 1, 1), Op::Read(0, 2, 1)], &[
        (0, "initial", 0, 0, 2, 0), (2, "ahead", 2, 2, 4, 0), (2, "ahead", 2, 6, 8, 0),
    ]);
    #[rustfmt::skip]
    check("but serves the request", "linux-2.6.22:max=64K", FAR,
        &[Op::Read(0, 0, 1), Op::Busy(0, 1, 4), Op::Busy(0, 5, 20)], &[
        (0, "initial", 0, 0, 2, 0), (1, "ahead", 1, 2, 4, 0),
        (2, "ahead", 5, 6, 8, 0), (2, "ahead", 5, 14, 16, 0),
    ]);
}

#[test]
fn the_legacy_policy_rests_on_a_cached_file_until_a_page_is_missing() {
    let mut ops = Vec::from([Op::Read(1, 0, 600)]);
    ops.extend(pages(0..=300));
    ops.push(Op::Drop(301, 302));
    ops.extend(pages([301, 302]));
    let rows = Walk::run("linux-2.6.22:max=128K", FAR, &ops).rows;
    let seen: Vec<_> = rows
        .iter()
        .filter(|row| row.op > 0)
        .map(|row| (row.cause, row.page, row.start, row.size))
        .collect();
    #[rustfmt::skip]
    assert_eq!(seen, [
        ("initial", 0, 0, 4), ("ahead", 1, 4, 8), ("ahead", 4, 12, 16), ("ahead", 12, 28, 32),
        ("ahead", 28, 60, 32), ("ahead", 60, 92, 32), ("ahead", 92, 124, 32),
        ("ahead", 124, 156, 32), ("ahead", 156, 188, 32), ("ahead", 188, 220, 32),
        ("ahead", 220, 252, 32), ("readpage", 301, 301, 1), ("initial", 302, 302, 4),
    ]);
}

#[test]
fn a_large_request_for_cached_pages_puts_the_legacy_policy_to_rest_at_once() {
    let ops = [Op::Read(1, 0, 900), Op::Read(0, 0, 600)];
    let rows = Walk::run("linux-2.6.22:max=1M", FAR, &ops).rows;
    let seen: Vec<_> = rows.iter().filter(|row| row.op == 1).map(|row| row.cause).collect();
    assert_eq!(seen, ["initial"]);
}

#[test]
fn a_gap_of_one_page_counts_as_sequential() {
    let ops = pages([10, 12, 14, 17]);
    #[rustfmt::skip]
    check("every other page", "linux-6:max=64K", FAR, &ops, &[
        (0, "random", 10, 10, 1, 0), (1, "sync", 12, 12, 2, 1), (2, "sync", 14, 14, 2, 1),
        (3, "random", 17, 17, 1, 0),
    ]);
    let walk = Walk::run("linux-2.6.24:max=64K", FAR, &ops);
    assert!(walk.rows.iter().all(|row| row.cause == "random"));
}

#[test]
fn history_is_counted_to_one_below_the_largest_window() {
    #[rustfmt::skip]
    let rows: [(&str, &[Op], Expected); 5] = [
        ("as much as is asked: as asked", &[Op::Read(0, 100, 16), Op::Read(1, 116, 15)],
            (1, "random", 116, 116, 15, 0)),
        ("more than is asked", &[Op::Read(0, 100, 16), Op::Read(1, 116, 14)],
            (1, "sync", 116, 116, 16, 1)),
        ("with what is asked", &[Op::Read(0, 100, 5), Op::Read(1, 105, 2)],
            (1, "sync", 105, 105, 7, 1)),
        ("from the head of the file: twice", &[Op::Read(0, 0, 2), Op::Read(1, 4, 1)],
            (1, "sync", 4, 4, 9, 1)),
        ("from the page after it: once", &[Op::Read(0, 1, 4), Op::Read(1, 5, 1)],
            (1, "sync", 5, 5, 5, 1)),
    ];
    for (why, ops, expected) in rows {
        let rows = Walk::run("linux-6:max=64K", FAR, ops).rows;
        let row = rows.iter().find(|row| row.op == 1).expect("a decision");
        let seen = (row.op, row.cause, row.page, row.start, row.size, row.async_size);
        assert_eq!(seen, expected, "{why}");
    }
}

#[test]
fn window_ends_are_rounded_by_what_divides_the_largest_window() {
    // (max in pages, the window at the marker after a first read of page 3 and page 4)
    for (max, expected) in [(16, (6, 2, 2)), (18, (6, 4, 4)), (17, (6, 4, 4)), (20, (6, 2, 2))] {
        let spec = format!("linux-6:max={}", max * PAGE_BYTES);
        let rows = Walk::run(&spec, FAR, &pages([3, 4, 5])).rows;
        let last = rows.last().map(|row| (row.start, row.size, row.async_size));
        assert_eq!(last, Some(expected), "max {max}");
    }
}

#[test]
fn without_readahead_a_request_is_read_as_asked() {
    let mut policy = readahead::make("off", PAGE_BYTES).expect("a good spec").policy;
    let missed = policy.decide(&demand(Trigger::Miss, 7, 3)).expect("the request");
    assert_eq!((missed.cause.name(), missed.window.start, missed.window.size), ("random", 7, 3));
    assert_eq!(missed.window.async_size, 0);
    assert_eq!(policy.decide(&demand(Trigger::Marker, 7, 3)), None);
}

#[test]
fn a_window_without_a_tail_has_no_marker() {
    for (async_size, marker) in [(0, None), (1, Some(13)), (4, Some(10))] {
        let window = Window { start: 10, size: 4, async_size };
        assert_eq!((window.end(), window.marker()), (14, marker));
    }
}

#[test]
fn policies_ask_for_what_they_need_and_no_more() {
    let none = Probes::default();
    #[rustfmt::skip]
    let rows = [ // spec, probes, largest window, sees requests
        ("off", none, 1, false),
        ("fixed", none, 32, false),
        ("fixed:size=4K", none, 1, false),
        ("linux-2.6.22", none, 256, true),
        ("ondemand-2007", none, 256, false),
        ("linux-2.6.24", Probes { before: 0, after: 256 }, 256, false),
        ("linux-2.6.24:max=128K", Probes { before: 0, after: 32 }, 32, false),
        ("linux-6", Probes { before: 320, after: 320 }, 320, false),
        ("linux-6:max=2M", Probes { before: 512, after: 512 }, 512, false),
        ("linux-6:max=0,io=1", Probes { before: 1, after: 1 }, 1, false),
        ("zfs", none, 16_384, true),
        ("zfs:max=1M", none, 256, true),
        ("amp", Probes { before: 1, after: 0 }, 16_384, false),
        ("amp:max=0", Probes { before: 1, after: 0 }, 1, false),
    ];
    for (spec, probes, largest, sees_requests) in rows {
        let policy = readahead::make(spec, PAGE_BYTES).expect("a good spec").policy;
        assert_eq!(policy.probes(), probes, "{spec}");
        assert_eq!(policy.window_pages_max(), largest, "{spec}");
        assert_eq!(policy.sees_requests(), sees_requests, "{spec}");
    }
}

#[test]
fn the_list_names_every_policy_and_shows_its_parameters() {
    #[rustfmt::skip]
    let rows = [
        ("off", ""), ("fixed", "size=128K"), ("linux-2.6.22", "max=1M"),
        ("ondemand-2007", "max=1M"), ("linux-2.6.24", "max=1M"), ("linux-6", "max=1M io=1280K"),
        ("zfs", "min=4M max=64M streams=8"), ("amp", "max=64M streams=4096"),
    ];
    for (name, shown) in rows {
        assert!(NAMES.contains(&name));
        let made = readahead::make(name, PAGE_BYTES).expect("a good spec");
        let params: Vec<String> =
            made.params.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!((made.name, params.join(" ").as_str()), (name, shown));
    }
    assert!(readahead::make("linux-6:size=1M", PAGE_BYTES).is_err());
    assert!(readahead::make("linux-7", PAGE_BYTES).is_err());
}

#[test]
fn the_smallest_legacy_window_is_16_kib_of_any_page() {
    // A window of 8 pages loses a page: 6 follow, or what 16 KiB hold where that is more.
    let mut policy = readahead::make("linux-2.6.22:max=32K", 2048).expect("a good spec").policy;
    let mut demand = demand(Trigger::Request, 0, 4);
    let initial = policy.decide(&demand).expect("a first window");
    assert_eq!((initial.window.size, policy.submitted(&demand, initial, 8)), (8, None));
    demand.trigger = Trigger::Miss;
    let alone = policy.decide(&demand).expect("the page");
    assert_eq!(policy.submitted(&demand, alone, 1), None);
    demand.trigger = Trigger::Request;
    demand.first = 4;
    demand.count = 1;
    let ahead = policy.decide(&demand).expect("the next window");
    assert_eq!((ahead.window.start, ahead.window.size), (8, 8));
}
