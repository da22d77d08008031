//! The distance rules, row by row, against the paper's loop, and on random files.
//!
//! Sizes are in units of 1 KiB, so that a row is read at a glance; a chunk is 128 of them.
//!
//! # Sources
//! Figure 2 of Fukayama, Sugita, Hiruta, Yamana, with its braces where its text puts them.

use super::*;
use crate::device::DeviceKind;
use crate::prng::Prng;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const CHUNK: u64 = 128 * K;

/// A program at `main` and a prefetcher at `ahead` of a large file, memory for all of it.
fn at(main: u64, ahead: u64) -> PaceInput {
    let (end, chunk, free) = (1 << 40, CHUNK, 1 << 42);
    let (late, slowdown) = (false, 0);
    PaceInput {
        position: main,
        ahead,
        end,
        request_bytes: chunk,
        free_bytes: free,
        bytes_per_second: 0,
        device: None,
        is_late: late,
        slowdown,
        first_distance: 0,
    }
}

fn disk(access: Nanos, bytes_per_second: u64) -> DeviceEstimate {
    let (kind, latency, depth) = (DeviceKind::SeekBound, access, 1);
    DeviceEstimate { kind, latency, bytes_per_second, depth }
}

fn adaptive(burst: u64, limit: u64) -> Pace {
    Pace::new(PaceRule::Adaptive(PaceBounds { burst: Bytes(burst), limit: Bytes(limit) }))
}

fn paper(burst: u64, limit: u64) -> Pace {
    Pace::new(PaceRule::Paper(PaceBounds { burst: Bytes(burst), limit: Bytes(limit) }))
}

fn read(from: u64, bytes: u64) -> PaceStep {
    PaceStep::Read { from, bytes }
}

#[test]
fn the_papers_rule_reads_a_burst_and_then_waits_for_the_limit() {
    // A burst of three chunks, a limit of one.
    let mut pace = paper(3 * CHUNK, CHUNK);
    let wait = |until| PaceStep::Wait { until };
    #[rustfmt::skip]
    let rows = [ // why                               main       ahead      step
        ("the burst",                                 0,         0,         read(0, CHUNK)),
        ("goes on",                                   0,         CHUNK,     read(CHUNK, CHUNK)),
        ("whatever the distance",                     0,         2 * CHUNK, read(2 * CHUNK, CHUNK)),
        ("then it waits",                             0,         3 * CHUNK, wait(2 * CHUNK)),
        ("while the distance exceeds the limit",       2 * CHUNK - 1, 3 * CHUNK, wait(2 * CHUNK)),
        ("and no longer",                             2 * CHUNK, 3 * CHUNK, read(3 * CHUNK, CHUNK)),
        ("the next burst is read, though",            2 * CHUNK, 4 * CHUNK, read(4 * CHUNK, CHUNK)),
        ("the program is already there",              5 * CHUNK, 5 * CHUNK, read(5 * CHUNK, CHUNK)),
        ("one that was overtaken goes on", 9 * CHUNK, 6 * CHUNK, read(6 * CHUNK, CHUNK)),
    ];
    for (why, main, ahead, step) in rows {
        assert_eq!(pace.decide(&at(main, ahead)), step, "{why}");
    }
    let end = |end| PaceInput { end, ..at(0, 6 * CHUNK) };
    assert_eq!(pace.decide(&end(6 * CHUNK + 1)), read(6 * CHUNK, 1), "cut at the end");
    assert_eq!(pace.decide(&end(6 * CHUNK)), PaceStep::Done);
}

/// The paper's loop: where it reads, how much, and how often it had slept by then.
fn loop_of_the_paper(
    bounds: &PaceBounds,
    chunk: u64,
    end: u64,
    stride: u64,
) -> Vec<(u64, u64, u64)> {
    let (mut reads, mut prefetch_pos, mut sleeps) = (Vec::new(), 0_u64, 0_u64);
    let main_pos = |sleeps: u64| (sleeps * stride).min(end);
    loop {
        let mut ss_distance = i128::from(bounds.burst.0);
        while ss_distance > 0 {
            let size = chunk.min(end - prefetch_pos);
            if size == 0 {
                return reads;
            }
            reads.push((prefetch_pos, size, sleeps));
            prefetch_pos += size;
            ss_distance -= i128::from(size);
        }
        while i128::from(prefetch_pos) - i128::from(main_pos(sleeps)) > i128::from(bounds.limit.0) {
            sleeps += 1;
        }
    }
}

#[test]
fn the_papers_rule_is_the_papers_loop() {
    let mut prng = Prng::new(1);
    for _ in 0..2_000 {
        let bounds = PaceBounds { burst: Bytes(1 + prng.below(40)), limit: Bytes(prng.below(60)) };
        let (chunk, end, stride) = (1 + prng.below(12), prng.below(300), 1 + prng.below(30));
        let mut pace = Pace::new(PaceRule::Paper(bounds.clone()));
        let (mut reads, mut ahead, mut sleeps) = (Vec::new(), 0, 0);
        loop {
            let main = (sleeps * stride).min(end);
            match pace.decide(&PaceInput { end, request_bytes: chunk, ..at(main, ahead) }) {
                PaceStep::Read { from, bytes } => {
                    reads.push((from, bytes, sleeps));
                    ahead += bytes;
                }
                PaceStep::Wait { until } => {
                    assert!(until > main);
                    sleeps += 1;
                }
                PaceStep::Done => break,
            }
        }
        // At the end of the file the loop sleeps once more before it sees it; no read comes of it.
        assert_eq!(reads, loop_of_the_paper(&bounds, chunk, end, stride), "{bounds:?}");
    }
}

#[test]
fn our_lead_begins_small_and_follows_lateness_rate_and_memory() {
    let late = PaceInput { is_late: true, ..at(0, 0) };
    let queue = |slowdown| PaceInput { slowdown, ..late };
    // A chunk takes the device 9 + 1 ms; 100 chunks a second are one in that time.
    let device = Some(disk(Nanos::from_millis(9), 1_000 * CHUNK));
    let rate_only = PaceInput { bytes_per_second: M, ..at(0, 0) };
    let known = |rate| PaceInput { bytes_per_second: rate, device, ..at(0, 0) };
    let free = |free| PaceInput { free_bytes: free, ..late };
    #[rustfmt::skip]
    let rows = [ // why                  questions before, limit, question, chunks that it leads by
        ("two chunks at the start",              0, 64 * M, at(0, 0),                      2),
        ("more when the program was late",       1, 64 * M, late,                          3),
        ("and again",                            3, 64 * M, late,                          8),
        ("by four where nothing waits",          3, 64 * M, queue(1),                     64),
        ("by two where the queue fills",         3, 64 * M, queue(3),                      8),
        ("not where the device is busy anyway",  3, 64 * M, queue(4),                      2),
        ("up to the limit",                     40, 64 * M, late,                        512),
        ("a limit below a chunk",               40,  4 * K, late,                          1),
        ("no limit at all",                     40,      0, late,                          1),
        ("what four latencies consume, and one", 9, 64 * M, known(100 * CHUNK),            6),
        ("not beyond the limit",                 9,      M, known(9_999 * CHUNK),          8),
        ("a rate alone says nothing",            0, 64 * M, rate_only,                         2),
        ("so does a device",                     0, 64 * M, known(0),                      2),
        ("a quarter of what is free: 32",       40, 64 * M, free(16 * M),                 28),
        ("no chunk fits that quarter",          40, 64 * M, free(4 * CHUNK - 1),           0),
        ("one chunk does",                      40, 64 * M, free(4 * CHUNK),               1),
    ];
    for (why, before, limit, facts, chunks) in rows {
        let mut pace = adaptive(16 * M, limit);
        for _ in 0..before {
            pace.decide(&facts);
        }
        // The program stands still: what is read is the lead.
        let (mut ahead, mut now) = (0, facts);
        loop {
            match pace.decide(&PaceInput { ahead, ..now }) {
                PaceStep::Read { from, bytes } => {
                    assert_eq!(from, ahead, "{why}");
                    ahead += bytes;
                }
                PaceStep::Wait { until } => {
                    assert!(until > 0, "{why}");
                    break;
                }
                PaceStep::Done => unreachable!("{why}: the file is large"),
            }
            now.is_late = false;
        }
        assert_eq!(ahead, chunks * CHUNK, "{why}");
    }
}

#[test]
fn a_lead_that_grew_has_time_to_show() {
    let mut pace = adaptive(16 * M, 64 * M);
    #[rustfmt::skip]
    let rows = [ // main, ahead, lead, in chunks
        (0, 0, 1, "the first"),
        (0, 1, 2, "late"),
        (0, 3, 2, "late before what was requested since has come"),
        (1, 3, 4, "late where it was asked for"),
        (2, 7, 4, "the same again"),
        (3, 7, 8, "and again"),
    ];
    for (main, ahead, lead, why) in rows {
        pace.decide(&PaceInput { is_late: true, ..at(main * CHUNK, ahead * CHUNK) });
        assert_eq!(pace.distance, lead * CHUNK, "{why}");
    }
    let elsewhere = PaceInput { is_late: true, ..at(0, 0) };
    pace.decide(&elsewhere);
    assert_eq!(pace.distance, 8 * CHUNK, "before what was requested");
    pace.moved();
    pace.decide(&elsewhere);
    assert_eq!(pace.distance, 16 * CHUNK, "which does not hold back a program elsewhere");
    let mut next = adaptive(16 * M, 64 * M);
    next.inherit(&pace);
    next.decide(&elsewhere);
    assert_eq!(next.distance, 32 * CHUNK, "nor the one that goes on in its place");
    next.inherit(&pace);
    assert_eq!(next.distance, 32 * CHUNK, "the larger distance stays");
}

#[test]
fn adaptive_reads_in_bursts_of_whole_chunks() {
    // A lead of 8 chunks that is full, with one more on top.
    let full = |burst| {
        let mut pace = adaptive(burst, 8 * CHUNK);
        let late = PaceInput { is_late: true, ..at(9 * CHUNK, 9 * CHUNK) };
        (0..9).for_each(|_| _ = pace.decide(&late));
        pace
    };
    let wait = |chunks| PaceStep::Wait { until: chunks * CHUNK };
    let nine = |chunks| read(9 * CHUNK, chunks * CHUNK);
    #[rustfmt::skip]
    let rows = [ // why                               burst          main           step
        ("a quarter of a lead is the largest burst",  16 * M,        CHUNK,         wait(2)),
        ("it is asked for once it fits",              16 * M,        2 * CHUNK,     nine(2)),
        ("a smaller one was wanted",                  CHUNK,         CHUNK,         nine(1)),
        ("in whole chunks",                           2 * CHUNK - 1, CHUNK,         nine(1)),
        ("but at least one",                          1,             CHUNK,         nine(1)),
        ("and never less for less room",              1,             CHUNK - 1,     wait(1)),
        ("the program is there",                      16 * M,        9 * CHUNK,     nine(2)),
        ("it is farther",          16 * M,  12 * CHUNK, read(12 * CHUNK, 2 * CHUNK)),
    ];
    for (why, burst, main, step) in rows {
        assert_eq!(full(burst).decide(&at(main, 9 * CHUNK)), step, "{why}");
    }
    let end = |end| full(16 * M).decide(&PaceInput { end, ..at(4 * CHUNK, 9 * CHUNK) });
    assert_eq!(end(9 * CHUNK + 7), read(9 * CHUNK, 7), "cut at the end");
    assert_eq!(end(9 * CHUNK), PaceStep::Done);
    assert_eq!(
        full(16 * M).decide(&PaceInput { end: M, ..at(2 * M, M) }),
        PaceStep::Done,
        "past the end"
    );
}

#[test]
fn memory_that_goes_away_takes_the_lead_with_it() {
    let mut pace = adaptive(16 * M, 64 * M);
    (0..12).for_each(|_| _ = pace.decide(&PaceInput { is_late: true, ..at(64 * M, 64 * M) }));
    assert_eq!(pace.distance, 64 * M);
    let late = PaceInput { is_late: true, ..at(0, 64 * M) };
    let short = PaceInput { free_bytes: 8 * M, ..at(0, 64 * M) };
    // 16 chunks, of which a burst of 3 has to fit.
    let until = 64 * M - 13 * CHUNK;
    for (why, facts, step, lead) in [
        ("no more than a quarter", short, PaceStep::Wait { until }, 15 * CHUNK),
        (
            "memory alone does not bring it back",
            at(0, 64 * M),
            PaceStep::Wait { until },
            15 * CHUNK,
        ),
        ("lateness does", late, PaceStep::Wait { until: 64 * M - 24 * CHUNK }, 30 * CHUNK),
        (
            "no memory, no lead",
            PaceInput { free_bytes: 0, ..late },
            PaceStep::Wait { until: 64 * M },
            0,
        ),
    ] {
        // As if the program had been there since.
        pace.grown_at = 0;
        assert_eq!((pace.decide(&facts), pace.distance), (step, lead), "{why}");
    }
}

/// A program and a prefetcher on a file, by chance, with all that is promised of each answer.
#[test]
fn adaptive_keeps_its_promises_on_any_file() {
    let mut prng = Prng::new(2);
    for seed in 0..3_000 {
        let chunk = 1 + prng.below(9);
        let (burst, limit) = (1 + prng.below(60), prng.below(120));
        let end = prng.below(3_000);
        let mut pace = adaptive(burst, limit);
        let mut facts = PaceInput { end, request_bytes: chunk, ..at(0, 0) };
        while facts.position < end {
            facts.free_bytes = prng.below(8) * prng.below(200);
            facts.bytes_per_second = prng.below(3) * prng.below(1_000);
            facts.is_late = prng.chance(20);
            facts.slowdown = prng.below(6);
            let slow = disk(Nanos(prng.below(1 << 31)), prng.below(1 << 20));
            facts.device = prng.chance(50).then_some(slow);
            match pace.decide(&facts) {
                PaceStep::Read { from, bytes } => {
                    let past = from + bytes;
                    assert!(
                        from == facts.ahead.max(facts.position) && bytes > 0 && past <= end,
                        "{seed}"
                    );
                    assert!(past == end || bytes % chunk == 0, "{seed}: {bytes} by {chunk}");
                    assert!(bytes <= burst.max(chunk), "{seed}");
                    assert!(
                        past - facts.position <= (limit + chunk).min(facts.free_bytes / 4),
                        "{seed}"
                    );
                    facts.ahead = past;
                }
                PaceStep::Wait { until } => {
                    assert!(until > facts.position, "{seed}");
                    let short = facts.free_bytes / 4 < chunk;
                    assert!(facts.ahead > facts.position || short, "{seed}: it starves");
                    facts.is_late = false;
                    let lead = pace.distance;
                    let mut waits = |main| {
                        let step = pace.decide(&PaceInput { position: main, ..facts });
                        (matches!(step, PaceStep::Wait { .. }), pace.distance > lead)
                    };
                    if !short {
                        let (waited, grew) = waits(until - 1);
                        assert!(waited || grew, "{seed}: too late");
                        assert!(!waits(until).0, "{seed}: too early");
                    }
                    facts.position = until.min(end);
                }
                PaceStep::Done => {
                    assert!(facts.ahead >= end, "{seed}");
                    break;
                }
            }
            facts.position = (facts.position + prng.below(4) * prng.below(40)).min(end);
        }
    }
}

#[test]
fn the_largest_numbers_are_numbers_too() {
    let largest = PaceInput {
        position: u64::MAX - 1,
        ahead: 0,
        end: u64::MAX,
        request_bytes: u64::MAX,
        free_bytes: u64::MAX,
        bytes_per_second: u64::MAX,
        device: Some(disk(Nanos(u64::MAX), 0)),
        is_late: true,
        slowdown: u64::MAX,
        first_distance: u64::MAX,
    };
    for free in [0, u64::MAX] {
        for chunk in [1, u64::MAX / 4, u64::MAX] {
            for mut pace in
                [adaptive(u64::MAX, u64::MAX), adaptive(1, 0), paper(u64::MAX, u64::MAX)]
            {
                for ahead in [0, u64::MAX - 1] {
                    let step = pace.decide(&PaceInput {
                        ahead,
                        request_bytes: chunk,
                        free_bytes: free,
                        ..largest
                    });
                    let until = if let PaceStep::Wait { until } = step { until } else { u64::MAX };
                    assert!(until > largest.position);
                }
            }
        }
    }
}

#[test]
fn rules_are_made_from_their_text() {
    let bounds = |burst, limit| PaceBounds { burst: Bytes(burst), limit: Bytes(limit) };
    let theirs = "no `theirs`; there are: paper adaptive";
    let lead = "no parameter `lead`; there are: burst limit";
    #[rustfmt::skip]
    let rows = [
        ("paper",                 Ok(PaceRule::Paper(bounds(16 * M, 64 * M)))),
        ("adaptive:limit=4K",         Ok(PaceRule::Adaptive(bounds(16 * M, 4 * K)))),
        ("adaptive:burst=1M,limit=0", Ok(PaceRule::Adaptive(bounds(M, 0)))),
        ("theirs",                Err(theirs)),
        ("theirs:limit=1",        Err(theirs)),
        ("paper:burst=0",         Err("`burst=0`: expected at least one byte")),
        ("adaptive:lead=1M",          Err(lead)),
        ("adaptive:limit=all", Err("`limit=all`: expected a size such as 4096, 64K, 1.5M or 2GiB")),
    ];
    for (text, expected) in rows {
        let made = PaceRule::make(text).map_err(|error| std::format!("{error}"));
        assert_eq!(made, expected.map_err(String::from), "{text}");
        let Ok(rule) = made else { continue };
        assert_eq!(rule.name(), params::split(text).0);
        let shown: Vec<_> = rule.params().iter().map(|(k, v)| std::format!("{k}={v}")).collect();
        let shown = std::format!("{}:{}", rule.name(), shown.join(","));
        assert_eq!(PaceRule::make(&shown), Ok(rule), "{shown}");
    }
}

#[test]
fn a_remembered_device_gives_the_first_distance_within_all_bounds() {
    #[rustfmt::skip]
    let rows = [ // why                given  limit   free     read ahead, in whole bursts
        ("not remembered",             0,      64 * M, 1 << 42, 2 * CHUNK),
        ("an access's worth of bytes", 8 * M,  64 * M, 1 << 42, 8 * M),
        ("less than a request is one", K,      64 * M, 1 << 42, 2 * CHUNK),
        ("no farther than the limit",  99 * M, 64 * M, 1 << 42, 64 * M),
        ("nor than the memory allows", 99 * M, 64 * M, 8 * M,   15 * CHUNK),
    ];
    for (why, first_distance, limit, free_bytes, expected) in rows {
        let mut pace = adaptive(16 * M, limit);
        let mut ahead = 0;
        loop {
            let input = PaceInput { free_bytes, first_distance, ..at(0, ahead) };
            let PaceStep::Read { bytes, .. } = pace.decide(&input) else { break };
            ahead += bytes;
        }
        assert_eq!(ahead, expected, "{why}");
    }
    // One that has a distance keeps it.
    let mut pace = adaptive(16 * M, 64 * M);
    pace.decide(&at(0, 0));
    let remembered = PaceInput { first_distance: 8 * M, ..at(0, CHUNK * 2) };
    assert!(matches!(pace.decide(&remembered), PaceStep::Wait { .. }));
}
