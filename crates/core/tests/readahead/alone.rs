//! `streams` alone: windows, markers and what is reclaimed, where a test says what the cache tells.
//!
//! ```text
//!   test -- room, evictions, lost markers --> Policy -- Placed: window, marker --> test
//! ```

use std::vec::Vec;

use forerun_core::device::DeviceKind;
use forerun_core::device::estimate::DeviceProfile;
use forerun_core::readahead::{
    self, Bounds, Decision, Demand, NamedReadahead, ReclaimRange, StreamFeedback, StreamId,
    Trigger, Window,
};
use forerun_core::units::HandleId;

use crate::streams::{AMPLE, arm, facts, four_and, many, walk};
use crate::tables::demand;
use crate::walk::{Op, PAGE_BYTES};

/// A policy alone: what it is told of the cache is up to the test.
struct Policy {
    made: NamedReadahead,
}

/// A window with the marker that the policy wants on it.
#[derive(Clone, Copy, Debug)]
struct Placed {
    stream: StreamId,
    start: u64,
    size: u32,
    marker: u64,
}

fn marker() -> Demand {
    Demand { file_pages: 1 << 40, all_pages: 1 << 40, ..demand(Trigger::Marker, 0, 1) }
}

impl Policy {
    fn new(bounds: Bounds) -> Self {
        Self::named("streams", bounds)
    }

    fn named(spec: &str, bounds: Bounds) -> Self {
        let mut made = readahead::make(spec, PAGE_BYTES).expect("a good spec");
        made.policy.bounds(bounds);
        made.policy.open(HandleId(0), marker().file);
        Self { made }
    }

    fn placed(&self, decision: Decision) -> Placed {
        let marker = self.made.policy.marker(decision, u64::MAX).expect("it goes on");
        let Window { start, size, .. } = decision.window;
        Placed { stream: decision.stream.expect("a stream"), start, size, marker }
    }

    /// The window of a stream that begins at a file's head.
    fn opens(&mut self, facts: DeviceProfile) -> Placed {
        self.opens_in(facts, u32::MAX)
    }

    fn opens_in(&mut self, facts: DeviceProfile, ahead_room: u32) -> Placed {
        let miss = Demand { trigger: Trigger::Miss, device: facts, ahead_room, ..marker() };
        let decision = self.made.policy.decide(&miss).expect("a window");
        self.placed(decision)
    }

    /// The window that follows when the marker of `window` is met.
    fn meets(&mut self, window: &Placed, demand: Demand) -> Placed {
        let demand = Demand { first: window.marker, stream: Some(window.stream), ..demand };
        let decision = self.made.policy.decide(&demand).expect("a window");
        self.placed(decision)
    }

    fn loses(&mut self, window: &Placed) {
        self.made.policy.note(window.stream, window.marker, StreamFeedback::MarkerLost);
    }

    /// `fetched` pages were fetched, and `wasted` of `stream` left unread since the last time.
    fn fetches(&mut self, stream: StreamId, fetched: u32, wasted: u32) {
        for page in 0..wasted {
            self.made.policy.note(stream, page.into(), StreamFeedback::Wasted);
        }
        let window = Window { start: 0, size: fetched, async_size: 0 };
        let decision = Decision::new(readahead::Cause::Random, window);
        assert_eq!(self.made.policy.submitted(&marker(), decision, fetched), None);
    }
}

#[test]
fn first_windows_are_four_fifths_of_an_equal_share_of_memory() {
    let bounds = Bounds { ahead_pages_max: 960, request_pages_max: 16, cache_pages: 1_024 };
    #[rustfmt::skip]
    let rows = [ // streams, pages: 960 / streams * 4 / 5, in whole requests
        (1, 768), (2, 384), (3, 256), (4, 192), (8, 96), (16, 48), (32, 16), (96, 8), (480, 2),
            (2_000, 2),
    ];
    for (streams, size) in rows {
        let mut policy = Policy::new(bounds);
        let mut last = policy.opens(arm(100_000));
        for _ in 1..streams {
            last = policy.opens(arm(100_000));
        }
        assert_eq!(last.size, size, "{streams} streams");
    }
    // As a stream ends, the others get its share.
    let mut policy = Policy::new(bounds);
    let (one, other) = (policy.opens(arm(100_000)), policy.opens(arm(100_000)));
    policy.loses(&one);
    let next = Demand { device: arm(100_000), ahead_room: u32::MAX, ..marker() };
    assert_eq!(policy.meets(&other, next).size, 768);
}

/// Why, the device, the room, whether it is busy, and windows with their markers.
type Step<'a> = (&'a str, DeviceProfile, u32, bool, &'a [(u64, u32, u64)]);

#[test]
fn without_room_or_on_a_busy_parallel_device_the_marker_moves_on() {
    // A second window 96..864 with its marker at 672.
    let begun = |facts: DeviceProfile| {
        let mut policy = Policy::new(AMPLE);
        let first = policy.opens(facts);
        let ample = Demand { device: facts, ahead_room: u32::MAX, ..marker() };
        let second = policy.meets(&first, ample);
        (policy, second)
    };
    let steps = |facts: DeviceProfile, ahead_room, congested, count| {
        let (mut policy, mut window) = begun(facts);
        let demand = Demand { device: facts, ahead_room, congested, ..marker() };
        let mut seen = Vec::new();
        for _ in 0..count {
            window = policy.meets(&window, demand);
            seen.push((window.start, window.size, window.marker));
        }
        seen
    };
    #[rustfmt::skip]
    let rows: [Step; 7] = [ // room, busy, windows
        ("just room enough", arm(100), 1_500, false, &[(864, 1_488, 1_980)]),
        ("a page less", arm(100), 1_499, false, &[(768, 1, 768)]),
        ("no room: half of what is left, until little is; then what room there is",
            arm(100), 1_000, false,
            &[(768, 1, 768), (816, 1, 816), (840, 1, 840), (864, 992, 1_608)]),
        ("in whole requests", arm(100), 40, false,
            &[(768, 1, 768), (816, 1, 816), (840, 1, 840), (864, 32, 888)]),
        ("an arm that is busy", arm(100), u32::MAX, true, &[(864, 1_488, 1_980)]),
        ("a parallel device that is not", many(100), u32::MAX, false, &[(496, 400, 496)]),
        ("a parallel device that is", many(100), u32::MAX, true,
            &[(296, 1, 296), (396, 1, 396), (446, 1, 446), (471, 1, 471), (496, 400, 496)]),
    ];
    for (why, facts, room, congested, expected) in rows {
        assert_eq!(steps(facts, room, congested, expected.len()), expected, "{why}");
    }
}

#[test]
fn windows_halve_while_pages_leave_unread_and_come_back() {
    let bounds = Bounds { ahead_pages_max: 960, request_pages_max: 1, cache_pages: 960 };
    let mut policy = Policy::new(bounds);
    let small = policy.opens(arm(1)).stream;
    #[rustfmt::skip]
    let rows: [(&str, u32, u32, u32); 17] = [ // why, fetched, wasted, pages of a window
        ("at first",                            0,   0,   384),
        ("half the bound is not fetched yet",   479, 400, 384),
        ("more than an eighth left unread",     1,   0,   192),
        ("an eighth",                           480, 60,  192),
        ("more than an eighth",                 480, 61,  96),
        ("a little more than a 64th",           640, 11,  96),
        ("a 64th",                              640, 10,  96),
        ("less than a 64th",                    640, 9,   192),
        ("nothing",                             480, 0,   384),
        ("nothing more to come back",           480, 0,   384),
        ("again",                               480, 480, 192),
        ("again",                               480, 480, 96),
        ("again",                               480, 480, 48),
        ("again",                               480, 480, 24),
        ("again",                               480, 480, 12),
        ("again",                               480, 480, 6),
        ("not below a 64th",                    480, 480, 6),
    ];
    for (why, fetched, wasted, size) in rows {
        policy.fetches(small, fetched, wasted);
        let window = policy.opens(arm(100_000));
        policy.loses(&window);
        assert_eq!(window.size, size, "{why}: {fetched} fetched, {wasted} wasted");
    }
}

#[test]
fn pages_that_nobody_would_have_used_are_no_sign_of_windows_that_are_too_large() {
    let bounds = Bounds { ahead_pages_max: 960, request_pages_max: 1, cache_pages: 960 };
    let mut policy = Policy::new(bounds);
    // The budget is used twice over while a stream has used one page of its 100.
    let stopped = policy.opens(arm(100)).stream;
    for page in 0..20 {
        policy.made.policy.note(StreamId(u32::MAX), page, StreamFeedback::Used { late: false });
    }
    for stream in [stopped, StreamId(u32::MAX)] {
        policy.fetches(stream, 960, 960);
        let window = policy.opens(arm(100_000));
        policy.loses(&window);
        assert_eq!(window.size, 384, "{stream:?}");
    }
}

/// The range that a new stream that wants `window` pages of `room` reclaims.
fn taken(policy: &mut Policy, room: u32) -> Option<ReclaimRange> {
    let first = 1 << 30;
    let previous_end = Some(first * u64::from(PAGE_BYTES));
    let facts = arm(100);
    let demand = Demand { trigger: Trigger::Miss, device: facts, first, previous_end, ..marker() };
    policy.made.policy.reclaim(&Demand { ahead_room: room, ..demand })
}

#[test]
fn the_stream_whose_pages_last_longest_gives_what_lasts_longer() {
    // Two streams of 100 pages; all have used 100 pages since, the second one 50 of them.
    let bounds = Bounds { ahead_pages_max: 300, request_pages_max: 1, cache_pages: 300 };
    let mut policy = Policy::new(bounds);
    let (slow, fast) = (policy.opens(arm(100)), policy.opens(arm(100)));
    assert_eq!((slow.size, fast.size), (100, 100));
    let stream = slow.stream;
    for page in 0..98 {
        let user = if page < 50 { fast.stream } else { StreamId(u32::MAX) };
        policy.made.policy.note(user, page, StreamFeedback::Used { late: false });
    }
    // A newcomer takes the least that a first window has.
    let (file, backward) = (marker().file, false);
    let some = |count: u32| {
        let first = 100 - u64::from(count);
        Some(ReclaimRange { stream, file, first, count, backward })
    };
    assert_eq!(taken(&mut policy, 4), None, "there is room");
    assert_eq!(taken(&mut policy, 3), some(1), "no more than is missing");
    assert_eq!(taken(&mut policy, 0), some(4));
    // The fast one has 50 pages ahead and wants 300 * 76 / 101 * 4 / 5 = 180 more. They last
    // 230 * 101 / 50 = 464 uses; the 99 of the slow one 99 * 102 / 1. So it keeps 4.
    let met = Demand { first: fast.marker, stream: Some(fast.stream), ..marker() };
    let met = Demand { device: arm(100), ahead_room: 0, ..met };
    assert_eq!(policy.made.policy.reclaim(&met), some(95));
    for page in (5..100).rev() {
        policy.made.policy.note(stream, page, StreamFeedback::Wasted);
    }
    let next = policy.made.policy.reclaim(&met);
    assert_eq!(next, None, "its frontier came back");
}

#[test]
fn a_lone_read_takes_nothing_back() {
    let mut policy =
        Policy::new(Bounds { ahead_pages_max: 300, request_pages_max: 1, cache_pages: 300 });
    policy.opens(arm(100));
    for page in 0..100 {
        policy.made.policy.note(StreamId(u32::MAX), page, StreamFeedback::Used { late: false });
    }
    assert!(taken(&mut policy, 0).is_some());
    let lone = Demand { trigger: Trigger::Miss, device: arm(100), first: 1 << 30, ..marker() };
    assert_eq!(policy.made.policy.reclaim(&Demand { ahead_room: 0, ..lone }), None);
}

#[test]
fn no_window_is_larger_than_what_is_set_or_than_the_room() {
    #[rustfmt::skip]
    let rows = [ // why, policy, pages asked, room, cause, pages
        ("what is set",                  "streams:max=32K", 1, 1 << 16, "sync",   8),
        ("almost all of it is asked",    "streams:max=32K", 7, 1 << 16, "sync",   8),
        ("all of it is asked",           "streams:max=32K", 8, 1 << 16, "random", 8),
        ("more is asked",                "streams:max=32K", 9, 1 << 16, "random", 9),
        ("room for one page more",       "streams",         3, 1,       "sync",   4),
        ("no room",                      "streams",         3, 0,       "random", 3),
    ];
    for (why, spec, count, ahead_room, cause, size) in rows {
        let mut policy = Policy::named(spec, AMPLE);
        let miss =
            Demand { trigger: Trigger::Miss, device: arm(10), count, ahead_room, ..marker() };
        let decision = policy.made.policy.decide(&miss).expect("a miss is answered");
        assert_eq!((decision.cause.name(), decision.window.size), (cause, size), "{why}");
    }
    let mut policy = Policy::new(AMPLE);
    let window = policy.opens(arm(10));
    let first = window.marker;
    let full = Demand { device: arm(10), first, stream: Some(window.stream), ..marker() };
    assert_eq!(policy.made.policy.decide(&Demand { ahead_room: 0, ..full }), None, "no room");
}

#[test]
fn a_stream_whose_file_was_cut_ends_with_it() {
    for kind in [DeviceKind::SeekBound, DeviceKind::Parallel] {
        let mut policy = Policy::new(AMPLE);
        let facts = facts(kind, 100);
        let first = policy.opens(facts);
        let ample = Demand { device: facts, ahead_room: u32::MAX, ..marker() };
        let second = policy.meets(&first, ample);
        let stream = Some(second.stream);
        let file_pages = second.marker + 1;
        let cut = Demand { first: second.marker, file_pages, stream, congested: true, ..ample };
        assert_eq!(policy.made.policy.decide(&cut), None, "{kind:?}");
        let again = Demand { file_pages: 1 << 40, ..cut };
        assert_eq!(policy.made.policy.decide(&again), None, "{kind:?}: it is forgotten");
    }
}

#[test]
fn a_marker_that_cannot_move_on_is_not_put_beyond_what_was_read() {
    // Backward down to the file's head, with windows of less than four pages.
    let bounds = Bounds { ahead_pages_max: 6, request_pages_max: 4, cache_pages: 6 };
    let mut policy = Policy::new(bounds);
    let back = Demand { trigger: Trigger::Miss, first: 2, follows_cached: true, ..marker() };
    let back = Demand { device: many(100), ahead_room: 6, ..back };
    let decision = policy.made.policy.decide(&back).expect("a miss is answered");
    assert_eq!(decision.window, Window { start: 0, size: 3, async_size: 2 });
    let met = Demand { trigger: Trigger::Marker, first: 1, stream: decision.stream, ..back };
    assert_eq!(policy.made.policy.decide(&Demand { congested: true, ..met }), None);
    // Forward, with a page left.
    let window = policy.opens_in(many(100), 6);
    let met = Demand { device: many(100), ahead_room: 6, congested: true, ..marker() };
    let next = policy.meets(&window, met);
    assert_eq!((window.start + u64::from(window.size), next.size), (next.start, 3));
}

#[test]
fn what_was_known_of_a_file_is_forgotten_with_its_last_handle() {
    let far = 1 << 20;
    let closed = |handles: u32| {
        let mut ops = four_and(0);
        ops.extend((0..handles).map(Op::Reopen));
        ops.push(Op::Read(3, 500_000, 1));
        *walk(arm(10), far, &ops).last().expect("a decision")
    };
    // A walk has four handles on its file; each is opened again at once, so the row stays.
    assert_eq!(closed(4), (12, "sync", 500_000, 500_000, 10, 9));
    let mut policy = Policy::new(AMPLE);
    let miss = Demand { trigger: Trigger::Miss, device: arm(10), ..marker() };
    for _ in 0..4 {
        policy.opens(arm(10));
    }
    let touch = Demand { first: 500_000, ..miss };
    let mut guesses = || policy.made.policy.decide(&touch).map(|decision| decision.cause.name());
    assert_eq!(guesses(), Some("sync"));
    policy.made.policy.close(HandleId(0));
    policy.made.policy.open(HandleId(0), touch.file);
    let decision = policy.made.policy.decide(&touch).map(|decision| decision.cause.name());
    assert_eq!(decision, Some("random"));
}

/// A stream of pieces of 16 pages, 100 apart, and the last window with its marker.
fn strided(demand: Demand) -> (Policy, Placed) {
    let mut policy = Policy::new(AMPLE);
    let mut placed = None;
    for first in [9, 109, 209] {
        let opens_request = true;
        let miss = Demand { trigger: Trigger::Miss, first, count: 16, opens_request, ..demand };
        let mut next = policy.made.policy.decide(&miss);
        while let Some(decision) = next {
            if policy.made.policy.marker(decision, u64::MAX).is_some() {
                placed = Some(policy.placed(decision));
            }
            next = policy.made.policy.submitted(&miss, decision, decision.window.size);
        }
    }
    (policy, placed.expect("a stride"))
}

#[test]
fn a_reader_beyond_what_a_stride_lost_goes_on_from_there() {
    let demand = Demand { device: many(100), ahead_room: AMPLE.ahead_pages_max, ..marker() };
    for ahead_room in [0, 1, AMPLE.ahead_pages_max] {
        let (mut policy, Placed { stream, marker: first, .. }) = strided(demand);
        assert!(first > 3 * 309, "far behind the hole: {first}");
        // It goes back, so it has no stride any more.
        let used = StreamFeedback::Used { late: false };
        for (page, feedback) in [(309, StreamFeedback::Wasted), (first, used), (first - 100, used)]
        {
            policy.made.policy.note(stream, page, feedback);
        }
        let met = Demand { ahead_room, first, stream: Some(stream), ..demand };
        let decision = policy.made.policy.decide(&met);
        let start = decision.map(|decision| decision.window.start);
        assert_eq!(start, (ahead_room > 0).then_some(first + 1), "{ahead_room}: {decision:?}");
    }
}

#[test]
fn what_the_device_delivers_is_found_out_by_asking_for_more() {
    #[rustfmt::skip]
    let rows = [ // why, known, room, pages
        ("it is known",                  true,  1 << 16,       144),
        ("it is not: a disk's at least",  false, 1 << 16,       352),
        ("memory is half full",          false, 1 << 15,       352),
        ("memory is not quite so full",  false, (1 << 15) + 1, 352),
    ];
    for (why, rate_known, ahead_room, size) in rows {
        let mut policy = Policy::new(AMPLE);
        let mut window = policy.opens(arm(10));
        let ample = Demand { device: arm(10), ..marker() };
        for _ in 0..2 {
            window = policy.meets(&window, ample);
        }
        assert_eq!(window.size, 144, "{why}");
        let next = Demand { rate_known, ahead_room, ..ample };
        assert_eq!(policy.meets(&window, next).size, size, "{why}");
    }
}

#[test]
fn a_parallel_device_alone_is_asked_for_more_than_it_was_seen_to_deliver() {
    for (why, facts, times) in [("an arm", arm(100), 1), ("many at a time", many(100), 2)] {
        let mut policy = Policy::new(AMPLE);
        let mut window = policy.opens(facts);
        let ample = Demand { device: facts, ..marker() };
        for _ in 0..3 {
            window = policy.meets(&window, ample);
        }
        let next = policy.meets(&window, Demand { rate_known: false, ..ample });
        assert_eq!(next.size, times * window.size, "{why}");
    }
}
