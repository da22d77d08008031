//! `streams`: decisions worked out by hand on devices that are given, and every short sequence of
//! reads of a small file.
//!
//! ```text
//!   arm(10):  10 pages in the time of one access, so first windows of 10 and then up to 150
//!   many(10): the same of a device that serves many at a time: 40 in flight over all streams
//! ```

use std::vec::Vec;

use forerun_core::device::DeviceKind;
use forerun_core::device::estimate::DeviceProfile;
use forerun_core::readahead::Bounds;
use forerun_core::units::Nanos;

use crate::tables::{Expected, pages};
use crate::walk::{Op, PAGE_BYTES, Surroundings, Walk};

/// A device that delivers `reach` pages in the time of one access.
pub(crate) fn facts(kind: DeviceKind, reach: u64) -> DeviceProfile {
    let bytes_per_second = reach * u64::from(PAGE_BYTES) * 1_000;
    let access = Nanos::from_millis(1);
    DeviceProfile { kind, access, bytes_per_second, depth: 32, request_bytes: 16 * PAGE_BYTES }
}

pub(crate) fn arm(reach: u64) -> DeviceProfile {
    facts(DeviceKind::SeekBound, reach)
}

pub(crate) fn many(reach: u64) -> DeviceProfile {
    let DeviceProfile { bytes_per_second, depth, request_bytes, .. } =
        facts(DeviceKind::Parallel, reach);
    let (access, bytes_per_second) = (Nanos::from_millis(2), bytes_per_second / 2);
    DeviceProfile { kind: DeviceKind::Parallel, access, bytes_per_second, depth, request_bytes }
}

/// Many at a time, a page in the time of an access, and `pages` in six milliseconds.
fn quick(pages: u64) -> DeviceProfile {
    let bytes_per_second = pages * u64::from(PAGE_BYTES) * 1_000 / 6;
    DeviceProfile { access: Nanos(6_000_000 / pages), bytes_per_second, ..many(1) }
}

pub(crate) const AMPLE: Bounds =
    Bounds { ahead_pages_max: 1 << 16, request_pages_max: 16, cache_pages: 1 << 16 };
const FAR: u64 = 10_000;

pub(crate) fn walk(facts: DeviceProfile, file_pages: u64, ops: &[Op]) -> Vec<Expected> {
    let mut walk = Walk::on(Surroundings { facts, bounds: AMPLE }, "streams", file_pages);
    walk.steps(ops);
    let rows = walk.rows.iter();
    rows.map(|row| (row.op, row.cause, row.page, row.start, row.size, row.async_size)).collect()
}

/// Why, the device, pages of the file, what is read, what is decided.
type Case<'a> = (&'a str, DeviceProfile, u64, Vec<Op>, &'a [Expected]);

fn check(rows: &[Case<'_>]) {
    for (why, facts, file_pages, ops, expected) in rows {
        assert_eq!(walk(*facts, *file_pages, ops), *expected, "{why}");
    }
}

#[test]
fn a_stream_begins_where_evidence_outweighs_chance() {
    let touches = |count| pages((0..count).map(|at| 1_000 + 10 * at + at * at));
    let beside = |count: u64, other: Op| [touches(count), Vec::from([other])].concat();
    let last = |rows: Vec<Expected>| *rows.last().expect("a decision");
    #[rustfmt::skip]
    let rows: [Case; 8] = [
        ("a file's head", arm(10), FAR, pages([0]), &[(0, "sync", 0, 0, 10, 9)]),
        ("a first touch elsewhere does not", arm(10), FAR, pages([100]),
            &[(0, "random", 100, 100, 1, 0)]),
        ("after the handle's previous read, though that has left", arm(10), FAR,
            Vec::from([Op::Read(0, 100, 1), Op::Drop(100, 100), Op::Read(0, 101, 1)]),
            &[(0, "random", 100, 100, 1, 0), (2, "sync", 101, 101, 10, 9)]),
        ("but not after another handle's", arm(10), FAR,
            Vec::from([Op::Read(0, 100, 1), Op::Drop(100, 100), Op::Read(1, 101, 1)]),
            &[(0, "random", 100, 100, 1, 0), (2, "random", 101, 101, 1, 0)]),
        ("after cached pages, whoever read them", arm(10), FAR,
            Vec::from([Op::Read(0, 100, 1), Op::Read(1, 101, 1)]),
            &[(0, "random", 100, 100, 1, 0), (1, "sync", 101, 101, 10, 9)]),
        ("eight times as much as is cached", arm(10), FAR,
            Vec::from([Op::Read(0, 100, 5), Op::Read(1, 105, 1)]),
            &[(0, "random", 100, 100, 5, 0), (1, "sync", 105, 105, 32, 31)]),
        ("up to the device's window", arm(10), FAR,
            Vec::from([Op::Read(0, 100, 60), Op::Read(1, 160, 1)]),
            &[(0, "random", 100, 100, 60, 0), (1, "sync", 160, 160, 144, 143)]),
        ("where a stream's windows end, with its size", arm(10), FAR,
            Vec::from([Op::Read(0, 0, 1), Op::Drop(0, 7), Op::Read(1, 10, 1)]),
            &[(0, "sync", 0, 0, 10, 9), (2, "sync", 10, 10, 80, 79)]),
    ];
    check(&rows);
    // 10,000 pages / (odds * touches) must be 4 at least; few touches are no chance.
    for (other, most) in [(Op::Read(1, 1_012, 1), 62), (Op::Read(1, 1_010, 1), 19)] {
        for (count, size) in [(15, 10), (most, 4), (most + 1, 1)] {
            let cause = if size > 1 { "sync" } else { "random" };
            let row = last(walk(arm(10), FAR, &beside(count, other)));
            let at = usize::try_from(count).expect("few");
            assert_eq!((row.0, row.1, row.4), (at, cause, size), "{other:?}, {count} touches");
        }
    }
}

#[test]
fn first_windows_are_what_the_device_delivers_in_one_access() {
    #[rustfmt::skip]
    let rows = [ // why, the device, pages
        ("eight times the page that was read",        arm(1),          8),
        ("as far as the device reaches",              arm(10),         10),
        ("in whole requests",                         arm(100),        96),
        ("and no more than a quarter of the room",    arm(1_000_000),  16_384),
        ("many at a time: a request at least",        many(1),         16),
        ("many at a time",                            many(100),       96),
    ];
    for (why, facts, size) in rows {
        let expected = [(0, "sync", 0, 0, size, size - 1)];
        assert_eq!(walk(facts, 1 << 40, &pages([0])), expected, "{why}");
    }
}

#[test]
fn windows_grow_eightfold_up_to_the_devices() {
    #[rustfmt::skip]
    let rows: [Case; 5] = [
        ("an arm: 15 times its reach; asked for when a quarter is left", arm(10), FAR,
            pages(0..=340), &[
            (0, "sync", 0, 0, 10, 9), (8, "async", 8, 10, 80, 80), (70, "async", 70, 90, 144, 144),
            (198, "async", 198, 234, 144, 144),
        ]),
        ("many at a time: four times the reach ahead", many(100), FAR, pages(0..=500), &[
            (0, "sync", 0, 0, 96, 95), (1, "async", 1, 96, 400, 400), (96, "async", 96, 496, 400,
                400),
            (496, "async", 496, 896, 400, 400),
        ]),
        ("many at a time, quick: six milliseconds' worth", quick(600), FAR, pages(0..=150), &[
            (0, "sync", 0, 0, 16, 15), (1, "async", 1, 16, 128, 128), (16, "async", 16, 144, 592,
                592),
            (144, "async", 144, 736, 592, 592),
        ]),
        ("many at a time: two requests at least", many(1), FAR, pages(0..=40), &[
            (0, "sync", 0, 0, 16, 15), (12, "async", 12, 16, 32, 32), (40, "async", 40, 48, 32, 32),
        ]),
        ("many at a time: shared among streams", many(100), FAR,
            Vec::from([Op::Read(0, 0, 1), Op::Read(1, 5_000, 1), Op::Read(1, 5_001, 2),
                Op::Read(1, 5_003, 1)]), &[
            (0, "sync", 0, 0, 96, 95), (1, "random", 5_000, 5_000, 1, 0),
            (2, "sync", 5_001, 5_001, 48, 46), (3, "async", 5_003, 5_049, 192, 192),
        ]),
    ];
    check(&rows);
}

#[test]
fn backward_streams_are_read_from_their_frontier_down() {
    let down = |from: u64, to: u64| pages((to..=from).rev());
    #[rustfmt::skip]
    let rows: [Case; 5] = [
        ("an arm: up to half of its window", arm(10), FAR, down(500, 480), &[
            (0, "random", 500, 500, 1, 0), (1, "sync", 499, 490, 10, 9),
            (2, "async", 498, 426, 64, 64), (11, "async", 489, 362, 64, 64),
        ]),
        ("many at a time: up to all of it", many(100), FAR, down(5_000, 4_899), &[
            (0, "random", 5_000, 5_000, 1, 0), (1, "sync", 4_999, 4_904, 96, 95),
            (2, "async", 4_998, 4_504, 400, 400), (97, "async", 4_903, 4_104, 400, 400),
        ]),
        ("down to the file's head", arm(10), FAR, down(20, 0), &[
            (0, "random", 20, 20, 1, 0), (1, "sync", 19, 10, 10, 9), (2, "async", 18, 0, 10, 10),
        ]),
        ("the first window is cut there too", arm(10), FAR, down(5, 0),
            &[(0, "random", 5, 5, 1, 0), (1, "sync", 4, 0, 5, 4)]),
        ("nothing is before the file", arm(10), FAR, down(1, 0),
            &[(0, "random", 1, 1, 1, 0), (1, "sync", 0, 0, 10, 9)]),
    ];
    check(&rows);
}

#[test]
fn windows_end_with_the_file() {
    #[rustfmt::skip]
    let rows: [Case; 6] = [
        ("the first", arm(10), 6, pages(0..6), &[(0, "sync", 0, 0, 6, 5)]),
        ("the next", arm(10), 12, pages(0..12),
            &[(0, "sync", 0, 0, 10, 9), (8, "async", 8, 10, 2, 2)]),
        ("nothing is left", arm(10), 10, pages(0..10), &[(0, "sync", 0, 0, 10, 9)]),
        ("a file of a page", arm(10), 1, pages(0..1), &[(0, "random", 0, 0, 1, 0)]),
        ("all of it is asked for", arm(10), 5, Vec::from([Op::Read(0, 0, 5)]),
            &[(0, "random", 0, 0, 5, 0)]),
        ("a request beyond the device's window", arm(10), FAR, Vec::from([Op::Read(0, 0, 300)]),
            &[(0, "sync", 0, 0, 600, 300)]),
    ];
    check(&rows);
}

/// Places without a constant step.
fn scattered(at: u64) -> u64 {
    1_000 * at + 7 * at * at
}

/// Four streams of two pages, far apart, then single touches.
pub(crate) fn four_and(touches: u64) -> Vec<Op> {
    let begun = (1..=4).flat_map(|at| [1_000 * at * at, 1_000 * at * at + 1]);
    pages(begun.chain((0..touches).map(|at| 20_000 + scattered(at))))
}

#[test]
fn first_touches_are_taken_for_streams_where_one_in_three_became_one() {
    let far = 1 << 20;
    let causes =
        |ops: &[Op]| -> Vec<&str> { walk(arm(10), far, ops).iter().map(|row| row.1).collect() };
    // Four touches began four streams: up to 12 touches, one in three did.
    let mut expected = ["random", "sync"].repeat(4);
    expected.extend(["sync"; 8]);
    expected.extend(["random"; 2]);
    assert_eq!(causes(&four_and(10)), expected);
    // A guess is no evidence until its marker is met: then three more may be taken for streams.
    let mut ops = four_and(8);
    ops.push(Op::Read(1, 20_008, 1));
    ops.extend(pages((0..4).map(|at| 40_000 + scattered(at))));
    expected.truncate(16);
    expected.extend(["async", "sync", "sync", "sync", "random"]);
    assert_eq!(causes(&ops), expected);
    // Three are too few.
    assert_eq!(
        causes(&four_and(2)[2..]),
        [["random", "sync"].repeat(3), ["random"; 2].into()].concat()
    );
    let guess = walk(arm(10), far, &four_and(1));
    assert_eq!(guess.last(), Some(&(8, "sync", 20_000, 20_000, 10, 9)));
    assert_eq!(walk(arm(1), far, &four_and(1)).last(), Some(&(8, "sync", 20_000, 20_000, 4, 3)));
}
