//! The replay by itself: order, distance, judgement, budget, and counts under any calls.

use super::*;
use core::ops::Range;
use std::vec;

/// Entries of the first window.
const FIRST: u32 = 32;
const _: () = assert!(FIRST as usize == AHEAD_MIN);

fn entries(count: usize) -> Vec<ReplayEntry> {
    let entry = |at| ReplayEntry {
        first: millis(at),
        bytes: 4096,
        bytes_max: 4096,
        ranges: 1,
        place: at,
        is_judged: true,
    };
    (0..count as u64).map(entry).collect()
}

fn issue(replay: &mut Replay) -> Vec<u32> {
    let mut out = Vec::new();
    replay.issue(1_000, 1 << 30, Some(false), &mut out);
    out
}

/// The request for `index` has fetched all that it may.
fn complete(replay: &mut Replay, index: u32, took: Option<Nanos>, is_seen: bool) {
    replay.complete(index, took, replay.allowed_bytes(index), is_seen);
}

fn millis(count: u64) -> Nanos {
    Nanos::from_millis(count)
}

/// Completes and uses what is requested of `replay`, in order, one entry each millisecond.
fn follow(replay: &mut Replay, is_used: impl Fn(u32) -> bool, took: Nanos) -> usize {
    let (mut requested, mut furthest) = (issue(replay), 0);
    let mut at = 0;
    while at < requested.len() {
        let index = requested[at];
        at += 1;
        complete(replay, index, Some(took), true);
        if is_used(index) {
            replay.used(millis(at as u64), index);
        }
        furthest = furthest.max(replay.distance());
        requested.extend(issue(replay));
    }
    furthest
}

#[test]
fn a_list_that_is_right_is_fetched_whole_in_order_each_entry_once() {
    let mut replay = Replay::new(entries(1_000));
    assert_eq!(issue(&mut replay), (0..FIRST).collect::<Vec<_>>());
    assert_eq!(issue(&mut replay), [], "nothing more before the program uses something");
    let mut all = (0..FIRST).collect::<Vec<_>>();
    for index in 0..1_000 {
        complete(&mut replay, index, Some(millis(1)), true);
        replay.used(millis(u64::from(index)), index);
        all.extend(issue(&mut replay));
    }
    assert_eq!(all, (0..1_000).collect::<Vec<_>>());
    assert!(replay.is_over());
    replay.finish();
    let ReplayStats { requested, used, used_requested, unused, .. } = replay.stats();
    assert_eq!((requested, used, used_requested, unused), (1_000, 1_000, 1_000, 0));
    assert_eq!(replay.ahead_bytes(), 0);
}

#[test]
fn a_list_that_is_wrong_is_left_soon() {
    let mut nothing = Replay::new(entries(10_000));
    follow(&mut nothing, |_| false, millis(1));
    assert_eq!(nothing.stats().requested, AHEAD_MIN as u64);
    let mut few = Replay::new(entries(10_000));
    follow(&mut few, |index| index.is_multiple_of(3), millis(1));
    assert!(few.stats().requested < 200, "a third is used: {:?}", few.stats());
    let mut most = Replay::new(entries(10_000));
    let furthest = follow(&mut most, |index| !index.is_multiple_of(3), millis(100));
    assert!(furthest > AHEAD_MIN, "before it is judged");
    assert!(!most.is_over() || most.stats().requested == 10_000);
    assert_eq!(most.distance().min(AHEAD_MAX / 2), most.distance(), "halved");
}

#[test]
fn what_cannot_be_judged_stops_nothing() {
    let all = entries(1_000).into_iter().map(|it| ReplayEntry { is_judged: false, ..it });
    let mut replay = Replay::new(all);
    follow(&mut replay, |index| index.is_multiple_of(4), millis(1));
    replay.finish();
    assert!(replay.stats().requested > 990, "{:?}", replay.stats());
    assert_eq!(replay.stats().unused, 0);
}

#[test]
fn the_budget_holds_and_what_exceeds_it_is_left_out() {
    let mut all = entries(100);
    all[3].bytes = 1 << 20;
    let mut replay = Replay::new(all);
    let mut out = Vec::new();
    replay.issue(1_000, 5 * 4096, Some(false), &mut out);
    assert_eq!(out, [0, 1, 2, 4, 5]);
    assert_eq!(replay.ahead_bytes(), 5 * 4096);
    out.clear();
    replay.used(millis(1), 0);
    replay.issue(1_000, 5 * 4096, Some(false), &mut out);
    assert_eq!(out, [6]);
    out.clear();
    replay.issue(1_000, 1 << 30, Some(false), &mut out);
    assert!(!out.contains(&3), "it was passed");
}

#[test]
fn seek_bound_devices_get_batches_by_place_large_ones_once_the_list_proved_right() {
    let mut all = entries(500);
    for (entry, place) in all.iter_mut().zip((0..500).rev()) {
        entry.place = place;
    }
    let mut replay = Replay::new(all);
    let issue = |replay: &mut Replay| {
        let mut out = Vec::new();
        replay.issue(1_000, 1 << 30, Some(true), &mut out);
        out
    };
    let first = issue(&mut replay);
    assert_eq!(first, [31, 30, 29, 28], "of the first batch, until something is used");
    for index in first {
        complete(&mut replay, index, Some(millis(1)), true);
    }
    (0..FIRST).for_each(|index| replay.used(millis(1), index));
    (0..9).for_each(|_| replay.missed());
    let second = issue(&mut replay);
    assert_eq!(second, (FIRST..2 * FIRST).rev().collect::<Vec<_>>(), "as much as was used");
    for index in second {
        complete(&mut replay, index, Some(millis(1)), true);
    }
    (FIRST..2 * FIRST).for_each(|index| replay.used(millis(1), index));
    assert_eq!(issue(&mut replay), (2 * FIRST..500).rev().collect::<Vec<_>>());
    assert!(replay.is_over());
    assert_eq!(replay.in_flight(), 500 - 2 * FIRST as usize);
}

#[test]
fn a_large_entry_waits_until_the_program_uses_it_or_the_list_has_proved_right() {
    let mut all = entries(100);
    (all[2].bytes, all[3].ranges) = (9 << 20, 40);
    let prepared = || {
        let mut replay = Replay::new(all.clone());
        let first = issue(&mut replay);
        assert!(!first.contains(&2) && !first.contains(&3) && first.contains(&4), "{first:?}");
        (replay, first)
    };
    let (mut replay, _) = prepared();
    replay.used(millis(1), 3);
    assert_eq!(issue(&mut replay)[0], 3, "it is read now");
    let stats = replay.stats();
    assert_eq!((stats.used, stats.used_requested), (1, 1));
    replay.used(millis(2), 3);
    assert_eq!(issue(&mut replay), [], "once");
    let (mut replay, first) = prepared();
    for &index in &first[..JUDGED_MIN as usize] {
        complete(&mut replay, index, Some(millis(1)), true);
        replay.used(millis(1), index);
    }
    assert_eq!(issue(&mut replay)[..2], [2, 3], "as what comes before it was used");
}

/// What is issued of `replay` for a device that seeks, with these bytes in all ahead.
fn issue_by_place(replay: &mut Replay, budget_bytes: u64) -> Vec<u32> {
    let mut out = Vec::new();
    replay.issue(1_000, budget_bytes, Some(true), &mut out);
    out
}

/// Entries of a file each, of 4 KiB, but for those in `large`.
fn entries_but(count: usize, large: &[(Range<usize>, u64)]) -> Vec<ReplayEntry> {
    let mut all: Vec<_> =
        entries(count).into_iter().map(|it| ReplayEntry { place: 0, ..it }).collect();
    for (range, bytes) in large {
        for entry in &mut all[range.clone()] {
            (entry.bytes, entry.bytes_max) = (*bytes, *bytes);
        }
    }
    all
}

#[test]
fn what_is_beyond_the_budget_is_not_ahead_on_a_device_that_seeks() {
    let (mebibyte, budget) = (1 << 20, 32 << 20);
    let mut replay = Replay::new(entries_but(500, &[(70..71, 40 * mebibyte), (71..500, mebibyte)]));
    let mut requested = issue_by_place(&mut replay, budget);
    for index in 0..70 {
        if requested.contains(&index) {
            complete(&mut replay, index, Some(millis(1)), true);
        }
        replay.used(millis(u64::from(index)), index);
        let more = issue_by_place(&mut replay, budget);
        requested.extend(more);
    }
    assert!(!requested.contains(&70), "it is left out");
    assert_eq!(replay.ahead_bytes(), budget, "what follows is fetched beyond one batch");
}

#[test]
fn what_is_held_is_not_ahead_and_follows_by_half_a_batch_on_a_device_that_seeks() {
    let budget = 1 << 30;
    let mut replay = Replay::new(entries_but(100, &[(32..34, 40 << 20)]));
    let mut requested = issue_by_place(&mut replay, budget);
    (0..8).for_each(|index| replay.used(millis(1), index));
    requested.extend(issue_by_place(&mut replay, budget));
    let large = |requested: &[u32]| [32, 33].map(|index| requested.contains(&index));
    assert_eq!(large(&requested), [false; 2], "the list is followed, and not proved right");
    assert!(requested.contains(&34), "those behind them do not wait: {requested:?}");
    // Some were used before they were requested.
    for &index in requested.iter().filter(|index| **index < 32) {
        complete(&mut replay, index, Some(millis(1)), true);
    }
    (8..32).for_each(|index| replay.used(millis(2), index));
    let next = issue_by_place(&mut replay, budget);
    assert_eq!((large(&next), replay.is_over()), ([true, false], false), "a half, and more");
    complete(&mut replay, 32, Some(millis(1)), true);
    replay.used(millis(3), 32);
    assert_eq!(large(&issue_by_place(&mut replay, budget)), [false, true]);
    assert!(replay.is_over());
}

#[test]
fn a_program_was_saved_the_fetch_of_each_entry_that_was_there() {
    let mut replay = Replay::new(entries(32));
    let first = issue(&mut replay);
    for (&index, took) in first.iter().zip([8, 8, 1, 800]) {
        complete(&mut replay, index, Some(millis(took)), true);
    }
    first[..3].iter().for_each(|&index| replay.used(millis(20), index));
    assert_eq!(replay.take_gained(), millis(8 + 8 + 1));
    first[3..5].iter().for_each(|&index| replay.used(millis(21), index));
    let mean = replay.take_gained();
    assert!(mean < millis(200), "the mean at most, and the fifth was not there: {mean:?}");
}

#[test]
fn nothing_is_left_out_while_nothing_is_paid_for() {
    let mut replay = Replay::new(entries(20));
    let mut out = Vec::new();
    replay.issue(1_000, 0, Some(false), &mut out);
    assert_eq!(out, []);
    assert_eq!(issue(&mut replay).len(), 20);
}

#[test]
fn a_list_that_goes_by_place_is_left_to_its_program_on_a_device_that_seeks() {
    let first = FIRST as usize;
    let by = |place: fn(u64) -> u64, count: u64| (1..=count).map(place).collect::<Vec<_>>();
    let (all, few, none) = (first, 4, 0);
    #[rustfmt::skip]
    let rows = [ // places, issued where it is not known, where it seeks, where not; why
        (by(|at| at, 100),                      1,   none, all, "in order"),
        (by(|at| at % 5 * 3 + at / 5 * 6, 100), 1,   none, all, "four of five steps"),
        (by(|at| at % 3 * 3 + at / 3 * 4, 100), few, few,  all, "two of three"),
        (by(|at| at * 37 % 101, 100),           few, few,  all, "in no order"),
        (by(|at| 200 - at, 100),                few, few,  all, "backward"),
        (by(|_| 0, 100),                        few, few,  all, "not known"),
        (by(|at| at, 7),                        few, few,  7,   "too few"),
    ];
    for (places, unknown, seeking, parallel, why) in rows {
        for (seeks, expected) in [(None, unknown), (Some(true), seeking), (Some(false), parallel)] {
            let of = |(&place, at)| ReplayEntry { place, ..entries(at + 1)[at] };
            let mut replay = Replay::new(places.iter().zip(0..).map(of));
            let mut out = Vec::new();
            replay.issue(1_000, 1 << 30, seeks, &mut out);
            replay.issue(1_000, 1 << 30, seeks, &mut out);
            assert_eq!(out.len(), expected, "{why}, {seeks:?}");
            assert_eq!(replay.is_over(), expected == 0 || out.len() == places.len(), "{why}");
            // What one request has told.
            for &index in &out {
                complete(&mut replay, index, Some(millis(1)), true);
            }
            replay.issue(1_000, 1 << 30, Some(false), &mut out);
            let is_left = expected == 0;
            assert_eq!(out.is_empty(), is_left, "{why}: what is left stays so");
        }
    }
}

#[test]
fn what_was_seen_at_the_same_time_has_no_order() {
    // Groups of ten are in order, and each begins before the one that comes before it.
    let of = |(entry, at): (ReplayEntry, u64)| ReplayEntry {
        first: millis(at / 10),
        place: 2_000 - at / 10 * 20 + at % 10,
        ..entry
    };
    for (are_apart, expected) in [(false, 4), (true, 0)] {
        let first = |at: u64| if are_apart { millis(at) } else { millis(at / 10) };
        let all = entries(100).into_iter().zip(0..).map(of).zip(0..);
        let mut replay =
            Replay::new(all.map(|(entry, at)| ReplayEntry { first: first(at), ..entry }));
        let mut out = Vec::new();
        replay.issue(1_000, 1 << 30, Some(true), &mut out);
        assert_eq!(out.len(), expected, "{are_apart}");
    }
}

#[test]
fn entries_without_bytes_are_ahead_in_larger_numbers() {
    let all = entries(1_000).into_iter().map(|it| ReplayEntry { bytes: 0, bytes_max: 0, ..it });
    let mut replay = Replay::new(all.collect::<Vec<_>>());
    assert_eq!(issue(&mut replay).len(), AHEAD_MAX);
    assert_eq!(issue(&mut replay), []);
}

/// What is issued of `replay` for a device that seeks.
fn issue_seeking(replay: &mut Replay) -> usize {
    let mut out = Vec::new();
    replay.issue(1_000, 1 << 30, Some(true), &mut out);
    out.len()
}

/// `entry` as a look-up of its path alone.
fn look(entry: ReplayEntry) -> ReplayEntry {
    ReplayEntry { bytes: 0, bytes_max: 0, ranges: 0, place: 0, is_judged: false, ..entry }
}

#[test]
fn on_a_device_that_seeks_entries_without_bytes_are_bets_as_well() {
    let prepared = || Replay::new(entries(1_000).into_iter().map(look));
    let mut replay = prepared();
    assert_eq!(issue_seeking(&mut replay), 4);
    // What was there has cost nothing, what was waited for has, though no use of it is seen.
    complete(&mut replay, 0, None, false);
    complete(&mut replay, 1, Some(millis(10)), false);
    assert_eq!(issue_seeking(&mut replay), 1);
    replay.used(millis(1), 500);
    replay.used(millis(1), 2);
    assert_eq!(issue_seeking(&mut replay), 3, "one for each use, and one that is proved");
    let mut foreign = prepared();
    let mut requested = 0;
    for _ in 0..100 {
        foreign.missed();
        requested += issue_seeking(&mut foreign);
    }
    assert_eq!(requested, 4, "a list of another program");
}

#[test]
fn a_list_is_followed_once_a_half_of_what_was_last_seen_is_listed() {
    let file = |it: ReplayEntry| ReplayEntry { place: 0, ..it };
    #[rustfmt::skip]
    let rows = [ // seen, newest last requested of files, of look-ups; why
        ("",                          4,            4,         "nothing is seen"),
        ("HHHHHHH",                   4 + 7,        4 + 7,     "few are seen"),
        ("HHHHHHHH",                  4 + 8 * 8,    1_000 - 8, "eight"),
        ("........HHHHHHHH",          4 + 8 * 8,    1_000 - 8, "a half"),
        ("HHHHHHHH.........",         4 + 8,        4 + 8,     "no more by now"),
        (".H.H.H.H.H.H.H.H",          4 + 8 * 8,    1_000 - 8, "a list that one run has taught"),
        ("..H....H.H......H..H..",    4 + 5,        4 + 5,     "libraries of all programs"),
    ];
    for (seen, files, facts, why) in rows {
        let of = |entry: fn(ReplayEntry) -> ReplayEntry| {
            let mut replay = Replay::new(entries(1_000).into_iter().map(entry));
            let mut listed = 0..;
            for seen in seen.bytes() {
                if seen == b'H' {
                    replay.used(millis(1), listed.next().unwrap_or_default());
                } else {
                    replay.missed();
                }
            }
            issue_seeking(&mut replay)
        };
        assert_eq!((of(file), of(look)), (files, facts), "{why}");
    }
}

#[test]
fn what_was_judged_counts_more_than_what_was_seen() {
    let mut replay =
        Replay::new(entries(1_000).into_iter().map(|it| ReplayEntry { place: 0, ..it }));
    for index in 0..8 {
        replay.used(millis(1), index);
    }
    let mut requested = Vec::new();
    replay.issue(32, 1 << 30, Some(true), &mut requested);
    assert_eq!(requested.len(), 32);
    for &index in &requested {
        complete(&mut replay, index, Some(millis(1)), true);
    }
    // It uses what is listed, and passes by what was requested.
    for index in 100..200 {
        replay.used(millis(2), index);
    }
    assert!(replay.is_wrong() && replay.is_over());
    assert_eq!(issue_seeking(&mut replay), 0);
}

#[test]
fn any_calls_keep_the_counts_in_balance() {
    let mut random = crate::prng::Prng::new(7);
    for round in 0..200 {
        let count = 1 + usize::try_from(random.below(300)).unwrap();
        let mut all = entries(count);
        if round % 5 == 0 {
            for entry in &mut all {
                entry.ranges = 1 + random.below(50);
            }
        }
        if round % 4 > 0 {
            for entry in &mut all {
                entry.place = random.below(1 << 20);
            }
        }
        let mut replay = Replay::new(all);
        let seeks = [None, Some(true), Some(false)][round % 3];
        let mut seen = vec![false; count];
        for now in 0..400 {
            let index = u32::try_from(random.below(count as u64 + 5)).unwrap();
            match random.below(4) {
                2 => replay.missed(),
                0 => replay.used(millis(now), index),
                1 => {
                    let took = (random.below(4) > 0).then(|| Nanos(random.below(1 << 20)));
                    complete(&mut replay, index, took, random.below(4) > 0);
                }
                _ => {
                    let mut out = Vec::new();
                    let room = usize::try_from(random.below(40)).unwrap();
                    replay.issue(room, random.below(1 << 20), seeks, &mut out);
                    for index in out {
                        assert!(!std::mem::replace(&mut seen[index as usize], true), "once");
                    }
                }
            }
        }
        replay.finish();
        let stats = replay.stats();
        let requested = seen.iter().filter(|is| **is).count() as u64;
        assert_eq!(stats.requested, requested);
        assert!(stats.used_requested + stats.unused <= requested);
        assert_eq!(replay.ahead_bytes(), 4096 * (requested - stats.used_requested));
        assert_eq!(stats.unused_bytes, 4096 * stats.unused);
    }
}

/// Entries that say they are of a byte each, of files that have grown.
fn claims(count: u64) -> Vec<ReplayEntry> {
    let of = |entry: ReplayEntry| ReplayEntry { bytes_max: 256 << 10, place: 0, ..entry };
    entries(usize::try_from(count).unwrap()).into_iter().map(of).collect()
}

#[test]
fn a_list_that_claims_little_fetches_no_more_than_it_is_charged() {
    let budget = 3 << 20;
    let mut replay = Replay::new(claims(10_000));
    let (mut fetched, mut used, mut now) = (0, 0, 0);
    let mut due = VecDeque::new();
    let mut furthest = 0;
    loop {
        let mut out = Vec::new();
        replay.issue(1_000, budget, Some(false), &mut out);
        for index in out {
            // All that a file which has grown may take of the device.
            fetched += replay.allowed_bytes(index);
            complete(&mut replay, index, Some(millis(1)), true);
            due.push_back(index);
        }
        furthest = furthest.max(fetched - used);
        assert_eq!(replay.ahead_bytes(), fetched - used);
        assert!(fetched - used <= budget, "{} ahead of the program", fetched - used);
        if !replay.is_right() {
            assert!(fetched <= u64::from(FIRST + now) * 4096, "a bet is what the list says");
        }
        let Some(index) = due.pop_front() else { break };
        now += 1;
        replay.used(millis(u64::from(now)), index);
        used += replay.allowed_bytes(index);
    }
    assert_eq!(replay.stats().requested, 10_000);
    assert_eq!(furthest, budget, "it is believed in the end");
}

#[test]
fn what_was_fetched_is_charged_in_place_of_what_might_have_been() {
    let mut replay = Replay::new(claims(100));
    (0..16).for_each(|index| replay.used(millis(1), index));
    let first = issue(&mut replay);
    for &index in &first[..16] {
        complete(&mut replay, index, Some(millis(1)), true);
        replay.used(millis(2), index);
    }
    let next = issue(&mut replay);
    let believed = next[next.len() - 1];
    assert_eq!(replay.allowed_bytes(believed), 256 << 10);
    let before = replay.ahead_bytes();
    replay.complete(believed, Some(millis(1)), 8192, true);
    assert_eq!(before - replay.ahead_bytes(), (256 << 10) - 8192);
    replay.used(millis(3), believed);
    assert_eq!(before - replay.ahead_bytes(), 256 << 10);
    // One that is used before it has arrived is charged nothing when it does.
    let early = next[next.len() - 2];
    replay.used(millis(3), early);
    let before = replay.ahead_bytes();
    replay.complete(early, Some(millis(1)), 4096, true);
    assert_eq!(replay.ahead_bytes(), before);
}

#[test]
fn a_list_of_a_run_that_read_much_costs_one_that_reads_little_a_bounded_share() {
    let mebibyte = 1 << 20;
    let large = |(at, entry): (usize, ReplayEntry)| {
        let bytes = if at < 20 { entry.bytes } else { mebibyte };
        ReplayEntry { bytes, bytes_max: bytes, place: 0, ..entry }
    };
    let all: Vec<_> = entries(220).into_iter().enumerate().map(large).collect();
    #[rustfmt::skip]
    let rows = [ // the device seeks, files that the program uses of the start, of the rest, bytes
        (Some(false), 20, 1,   32 * mebibyte, "the window of a list that has proved right"),
        (Some(false), 0,  1,   9 * mebibyte,  "what was used, and a little"),
        (Some(true),  20, 1,   96 * mebibyte, "a batch and a half of it"),
        (Some(true),  0,  1,   2 * mebibyte,  "what was used, and a little"),
        (Some(false), 20, 200, 0,             "all is used"),
        (Some(true),  20, 200, 0,             "all is used"),
    ];
    for (seeks, start, rest, wasted_max, why) in rows {
        let mut replay = Replay::new(all.clone());
        let (mut requested, mut now) = (Vec::new(), 0);
        let uses = (0..start).chain(20..20 + rest);
        let mut uses = uses.chain(std::iter::repeat_n(u32::MAX, 50));
        loop {
            let from = requested.len();
            replay.issue(1_000, 1 << 30, seeks, &mut requested);
            for &index in &requested[from..] {
                complete(&mut replay, index, Some(millis(1)), true);
            }
            let Some(index) = uses.next() else { break };
            now += 1;
            replay.used(millis(now), index);
            if index == u32::MAX {
                replay.missed();
            }
        }
        replay.finish();
        let stats = replay.stats();
        assert!(stats.unused_bytes <= wasted_max, "{why}: {stats:?}");
        assert!(rest < 200 || requested.len() > 200 && stats.used == 220, "{why}: {stats:?}");
        assert!(rest == 200 || requested.len() < 110, "{why}: {stats:?}");
    }
}

#[test]
fn a_run_is_judged_by_enough_of_what_it_requested() {
    #[rustfmt::skip]
    let rows = [ // used, unused, percent
        (15, 0,  None),
        (16, 0,  Some(100)),
        (12, 4,  Some(75)),
        (0,  16, Some(0)),
    ];
    for (used_requested, unused, expected) in rows {
        let stats = ReplayStats { used_requested, unused, ..ReplayStats::default() };
        assert_eq!(stats.precision(), expected);
    }
}

mod position;
