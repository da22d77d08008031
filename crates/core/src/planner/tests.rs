//! The planner before a page cache of numbers: what is pending for which reader, and that all ends.

use alloc::format;
use std::collections::{BTreeMap, BTreeSet};

use super::device::DeviceEstimate;
use super::pace::PaceRule;
use super::reads::PROBE_BYTES_RANDOM;
use super::*;
use crate::device::DeviceKind;
use crate::units::FrameId;

const LIMIT: u64 = 2 << 20;
const BYTES: u64 = 16 << 20;
const FILE: FileId = FileId(7);
const REQUEST_BYTES: u64 = 512 << 10;

/// A page cache that has each request's pages after a time, and its driver.
struct PageCache {
    planner: Planner,
    cached: BTreeSet<u64>,
    latency: Nanos,
    /// What its device delivers, one request after the other.
    bytes_per_milli: u64,
    /// When requests arrive, and the device is free.
    due: BTreeMap<PrefetchId, Nanos>,
    free_at: Nanos,
}

impl PageCache {
    fn new(limit_bytes: u64, budget_bytes: u64) -> Self {
        let pace = PaceRule::make(&format!("adaptive:burst=16M,limit={limit_bytes}")).unwrap();
        let (kind, latency) = (DeviceKind::Parallel, Nanos::from_millis(10));
        let device = DeviceEstimate { kind, latency, bytes_per_second: u64::MAX, depth: 32 };
        let readahead = "streams:first=1M,through=4K".into();
        let settings = PlannerSettings { pace, budget_bytes, readahead, device };
        let mut planner = Planner::new(settings).unwrap();
        planner.set_memory(1 << 30);
        let (cached, latency, due) = (BTreeSet::new(), Nanos::from_millis(2), BTreeMap::new());
        Self { planner, cached, latency, bytes_per_milli: u64::MAX, due, free_at: Nanos(0) }
    }

    fn open(&mut self, bytes: u64, position: u64) -> CursorId {
        let file = PlannedFile { file: FILE, device: 1, bytes, request_bytes: REQUEST_BYTES };
        self.planner.open(&file, position).unwrap()
    }

    fn is_cached(&self, range: &Range<u64>) -> bool {
        (range.start / PAGE_BYTES..pages(range.end)).all(|page| self.cached.contains(&page))
    }

    fn read(&mut self, now: Nanos, cursor: CursorId, range: &Range<u64>, follows: bool) {
        let access = Access { cursor, range: range.clone(), follows, processor: None };
        let is_cached = self.planner.probe(&access).is_some_and(|range| self.is_cached(&range));
        self.planner.read(now, &access, is_cached);
        self.cached.extend(range.start / PAGE_BYTES..pages(range.end));
    }

    fn advance(&mut self, now: Nanos) {
        let mut nth = 0;
        while let Some(request) = self.planner.in_flight(nth) {
            let (id, range) = (request.id, request.range());
            let due = self.due.get(&id).map_or(request.since.0, |due| due.0);
            let has_arrived = now.0 >= due && now.since(request.since) >= self.latency;
            let state = if has_arrived { RequestState::Arrived } else { RequestState::Absent };
            if self.planner.complete(now, id, state) {
                self.cached.extend(range.start / PAGE_BYTES..range.end / PAGE_BYTES);
            } else {
                nth += 1;
            }
        }
        let mut requests = Vec::new();
        self.planner.issue(now, 256, &mut requests);
        let rate = self.bytes_per_milli;
        for PrefetchRequest { id, range, .. } in requests {
            if self.is_cached(&range) {
                self.planner.complete(now, id, RequestState::Cached);
            } else {
                self.planner.submitted(id, true);
                let transfer = Nanos::from_micros((range.end - range.start) * 1_000 / rate);
                let begins = self.free_at.0.max(now.0.saturating_add(self.latency.0));
                self.free_at = Nanos(begins.saturating_add(transfer.0));
                self.due.insert(id, self.free_at);
            }
        }
    }

    /// What is pending of `cursor`.
    fn pending(&self, cursor: CursorId) -> Vec<Range<u64>> {
        let row = self.planner.cursors[cursor.index()].as_ref().unwrap();
        row.pending.iter().map(PageRun::pages).collect()
    }

    fn close(&mut self, now: Nanos, cursor: CursorId) {
        self.planner.close(now, cursor);
    }

    /// All that was fetched is answered: nothing is left, and the core's counts balance.
    fn assert_settled(&self) {
        let stats = self.planner.core_stats();
        assert!(stats.balanced(), "{stats:?}");
        assert!(self.planner.cursors.iter().all(Option::is_none));
        assert!(self.planner.files.is_empty());
        assert_eq!((self.planner.in_flight.len(), self.planner.pending_pages), (0, 0), "{stats:?}");
    }

    fn brought(&self) -> u64 {
        self.planner.counts.bytes_requested + self.planner.counts.bytes_cached
    }
}

#[test]
fn a_reader_that_goes_back_is_led_whatever_is_cached_behind_it() {
    let mut cache = PageCache::new(LIMIT, 64 << 20);
    let cursor = cache.open(BYTES, BYTES);
    let mut now = Nanos(0);
    let step = 64 << 10;
    for back in 1..=BYTES / step {
        let at = BYTES - back * step;
        now += Nanos::from_millis(1);
        cache.cached.extend(at / PAGE_BYTES..(at + step) / PAGE_BYTES);
        cache.read(now, cursor, &(at..at + step), false);
        cache.advance(now);
        assert!(cache.planner.counts.distance_bytes_max <= LIMIT + REQUEST_BYTES_MAX);
        let pending = cache.pending(cursor);
        assert!(pending.is_sorted_by(|near, far| near.start >= far.end), "{pending:?}");
    }
    assert!(cache.brought() > BYTES / 2, "{} of {BYTES}", cache.brought());
    cache.close(now, cursor);
    cache.assert_settled();
}

#[test]
fn a_reader_that_is_seen_between_seek_and_read_is_no_stream() {
    let mut cache = PageCache::new(LIMIT, 64 << 20);
    let cursor = cache.open(BYTES, 0);
    let now = Nanos::from_millis(1);
    for page in [901, 17, 3000, 44, 2222, 1500, 700] {
        cache.planner.seek(now, cursor, page * PAGE_BYTES);
        cache.read(now, cursor, &(page * PAGE_BYTES..(page + 1) * PAGE_BYTES), true);
        cache.advance(now);
    }
    assert_eq!((cache.planner.counts.requests, cache.planner.pending_pages), (0, 0));
    cache.close(now, cursor);
    cache.assert_settled();
}

#[test]
fn what_lies_beyond_a_jump_is_still_to_come() {
    let to = 2 << 20;
    #[rustfmt::skip]
    let rows = [ // why                          by a seek  to    runs that stay
        ("a seek forward",                       true,      to,   true),
        ("a seek back",                          true,      4096, false),
        ("a read at a place farther on",         false,     to,   true),
    ];
    for (why, seeks, to, stays) in rows {
        // Little may be requested at a time: the rest of a window is pending.
        let mut cache = PageCache::new(LIMIT, 64 << 20);
        let cursor = cache.open(BYTES, 0);
        let read = 1 << 20;
        for at in (0..read).step_by(64 << 10) {
            cache.read(Nanos(at), cursor, &(at..at + (64 << 10)), true);
        }
        let last = cache.pending(cursor).last().expect("a window is pending").end * PAGE_BYTES;
        assert!(last > (2 << 20) + (64 << 10), "{why}: to {last}");
        let now = Nanos(read);
        let next = if seeks {
            cache.planner.seek(now, cursor, to);
            cursor
        } else {
            cache.planner.open_again(cursor, to).unwrap()
        };
        cache.read(now, next, &(to..to + (64 << 10)), false);
        let left = cache.pending(next);
        assert!(left.iter().all(|run| run.start * PAGE_BYTES >= to), "{why}: {left:?}");
        let is_same = left.iter().any(|run| run.end * PAGE_BYTES == last);
        assert_eq!(is_same, stays, "{why}: {left:?}");
        if next != cursor {
            let left = cache.pending(cursor);
            assert!(left.iter().all(|run| run.end * PAGE_BYTES <= to), "{why}: {left:?}");
            cache.close(now, next);
        }
        cache.close(now, cursor);
        cache.assert_settled();
    }
}

#[test]
fn what_was_cached_in_part_tells_nothing_of_the_device() {
    for (is_cold, known) in [(true, 1), (false, 0)] {
        let mut cache = PageCache::new(LIMIT, 64 << 20);
        let cursor = cache.open(BYTES, 0);
        let run = PageRun { first: 0, frames: (0..256).map(FrameId).collect() };
        let (id, since, distance) = (PrefetchId(0), Nanos(0), 0);
        let (absent, used, ticket) = (since, 0..0, None);
        let row = InFlight { id, file: FILE, since, run, used, distance, is_cold, absent, ticket };
        let waited = Nanos::from_millis(1);
        cache.planner.learn(waited, &row, waited);
        assert_eq!(cache.planner.latencies.len(), known);
        cache.close(Nanos(0), cursor);
    }
}

#[test]
fn one_read_far_ahead_takes_nothing_from_a_reader_that_comes_there_in_order() {
    let bytes = 64 << 20;
    let mut cache = PageCache::new(64 << 20, 256 << 20);
    let cursor = cache.open(bytes, 0);
    let step = 256 << 10;
    let mut once = None;
    let mut now = Nanos(0);
    for at in (0..bytes / step).map(|nth| nth * step) {
        now += Nanos::from_millis(1);
        cache.read(now, cursor, &(at..at + step), true);
        if once.is_none() && !cache.pending(cursor).is_empty() && at >= 4 * step {
            let from = at + 2 * step;
            once = cache.planner.open_again(cursor, from);
            cache.read(now, once.unwrap(), &(from..from + PAGE_BYTES), false);
        }
        if once.is_some() {
            cache.advance(now);
        }
    }
    let once = once.expect("something was pending");
    assert_eq!(cache.pending(once), []);
    assert!(cache.brought() >= bytes / 2, "{} of {bytes}", cache.brought());
    cache.close(now, once);
    cache.close(now, cursor);
    cache.assert_settled();
}

#[test]
fn a_reader_that_turns_is_led_the_other_way() {
    let bytes = 256 << 20;
    let (middle, step) = (bytes / 2, 256 << 10);
    for forward in [true, false] {
        let mut cache = PageCache::new(64 << 20, 256 << 20);
        let cursor = cache.open(bytes, middle);
        let mut now = Nanos(0);
        let mut go = |cache: &mut PageCache, forward: bool, steps: u64, is_prefetched: bool| {
            for at in 0..steps {
                now += Nanos::from_millis(1);
                let at = if forward { middle + at * step } else { middle - (at + 1) * step };
                cache.read(now, cursor, &(at..at + step), forward);
                let position = cache.planner.cursors[cursor.index()].as_ref().unwrap().position;
                let main = position / PAGE_BYTES;
                let far = |run: &Range<u64>| run.start.abs_diff(main).min(run.end.abs_diff(main));
                let pending = cache.pending(cursor);
                assert!(pending.is_sorted_by_key(far), "{main}: {pending:?}");
                if is_prefetched {
                    cache.advance(now);
                }
            }
            cache.brought()
        };
        assert_eq!(go(&mut cache, forward, 64, false), 0);
        assert!(!cache.pending(cursor).is_empty(), "what is left behind");
        let led = go(&mut cache, !forward, 256, true);
        assert!(led >= 128 * step, "{led} after a turn");
        cache.close(now, cursor);
        cache.assert_settled();
    }
}

#[test]
fn around_a_first_read_residency_is_probed_closely() {
    let mut cache = PageCache::new(LIMIT, 64 << 20);
    cache.cached.extend(0..BYTES / PAGE_BYTES);
    let at = BYTES / 2;
    let cursor = cache.open(BYTES, at);
    cache.read(Nanos(1), cursor, &(at..at + PAGE_BYTES), false);
    let cached =
        |cache: &PageCache| cache.planner.cursors[cursor.index()].as_ref().unwrap().cached.clone();
    assert_eq!(cached(&cache), at - PROBE_BYTES_RANDOM..at + PAGE_BYTES + PROBE_BYTES_RANDOM);
    cache.read(Nanos(2), cursor, &(at + PAGE_BYTES..at + 2 * PAGE_BYTES), true);
    assert_eq!(cached(&cache), at + 2 * PAGE_BYTES..BYTES);
    cache.close(Nanos(3), cursor);
    cache.assert_settled();
}

#[test]
fn what_is_pending_alone_is_not_looked_at_often() {
    // No byte may be ahead, so that nothing is requested.
    let mut cache = PageCache::new(LIMIT, 0);
    let cursor = cache.open(BYTES, 0);
    let now = Nanos::from_millis(1);
    for at in [0, 4096, 8192] {
        cache.read(now, cursor, &(at..at + 4096), true);
        cache.advance(now);
    }
    assert!(cache.planner.pending_pages > 0 && cache.planner.in_flight.is_empty());
    assert!(!cache.planner.is_attentive(now));
    cache.close(now, cursor);
    cache.assert_settled();
}

#[test]
fn a_device_that_does_not_answer_is_looked_at_often_for_a_short_time() {
    // The file ends with the first window, so that nothing more waits for it.
    let mut cache = PageCache::new(LIMIT, 64 << 20);
    cache.latency = Nanos(u64::MAX);
    let cursor = cache.open(256 << 10, 0);
    let mut now = Nanos::from_millis(1);
    assert!(!cache.planner.is_attentive(now));
    for at in [0, 4096, 8192] {
        cache.read(now, cursor, &(at..at + 4096), true);
        cache.advance(now);
    }
    assert_eq!((cache.planner.in_flight.len(), cache.planner.pending_pages), (1, 0));
    assert!(cache.planner.is_attentive(now));
    now += ATTENTIVE_FOR;
    assert!(!cache.planner.is_attentive(now));
    assert!(cache.planner.is_busy(), "it may still come");
}

/// Reads `run` bytes in order at each of so many places of a file, from a store with a latency of
/// 50 ms, polled each `poll` milliseconds; what is in flight comes before the next place. Returns
/// how often the reader came to bytes that were not there, and what is kept of the store.
fn read_in_order(
    poll: u64,
    places: u64,
    run: u64,
    record: Option<DeviceRecord>,
) -> (u64, Option<DeviceRecord>) {
    let mut cache = PageCache::new(64 << 20, 256 << 20);
    cache.latency = Nanos::from_millis(50);
    cache.planner.remember(1, record);
    cache.bytes_per_milli = 100_000;
    let cursor = cache.open(places * BYTES, 0);
    let (step, mut at, mut millis, mut misses) = (256 << 10, 0, 0, 0);
    // Until when the reader computes, and until when it waits for the device, in milliseconds.
    let (mut computes, mut waits) = (0, None);
    while at < places * BYTES {
        let now = Nanos::from_millis(millis);
        let range = at..at + step;
        if millis >= computes && waits.is_none_or(|until| millis >= until) {
            if waits.is_none() && !cache.is_cached(&range) {
                (misses, waits) = (misses + 1, Some(millis + 50));
            } else {
                cache.read(now, cursor, &range, at % BYTES > 0);
                (at, waits) = (at + step, None);
                if at % BYTES == run {
                    (at, computes) = (at - run + BYTES, millis + 300);
                }
            }
        }
        if millis.is_multiple_of(poll) {
            cache.advance(now);
        }
        millis += 1;
    }
    let records: Vec<_> = cache.planner.device_records().collect();
    assert!(records.iter().all(|&(device, _)| device == 1), "{records:?}");
    (misses, records.first().map(|&(_, record)| record))
}

#[test]
fn what_a_reader_uses_where_all_ahead_is_cached_counts_as_used() {
    let mut cache = PageCache::new(64 << 20, 256 << 20);
    let cursor = cache.open(BYTES, 0);
    let step = 128 << 10;
    for nth in 0..BYTES / step {
        let now = Nanos::from_millis(10 * nth);
        cache.read(now, cursor, &(nth * step..(nth + 1) * step), nth > 0);
        cache.advance(now);
    }
    let stats = cache.planner.core_stats();
    assert!(stats.ahead_used > BYTES / PAGE_BYTES / 2, "it was read ahead of: {stats:?}");
    assert_eq!((stats.ahead_unread, stats.ahead_wasted, stats.stale_hits), (0, 0, 0), "{stats:?}");
    cache.close(Nanos::from_millis(10_000), cursor);
    cache.assert_settled();
}

/// The kernel counts as cached what is on its way.
#[test]
fn what_a_reader_uses_before_its_arrival_is_seen_counts_as_used() {
    for is_looked_at in [true, false] {
        let mut cache = PageCache::new(64 << 20, 256 << 20);
        cache.latency = Nanos::from_millis(1_000);
        let cursor = cache.open(BYTES, 0);
        let step = 256 << 10;
        for nth in 0..BYTES / step {
            let now = Nanos::from_millis(nth);
            cache.read(now, cursor, &(nth * step..(nth + 1) * step), nth > 0);
            cache.advance(now);
            let flying = (0..).map_while(|nth| cache.planner.in_flight(nth)).map(InFlight::range);
            let pages = flying.flat_map(|it| it.start / PAGE_BYTES..it.end / PAGE_BYTES);
            cache.cached.extend(pages.collect::<Vec<_>>());
        }
        let left = cache.planner.core_stats().ahead_unread;
        assert!(left > 0, "what is in flight is not used yet, as far as the core knows");
        let now = Nanos::from_millis(10_000);
        if is_looked_at {
            cache.advance(now);
            assert_eq!(cache.planner.core_stats().ahead_unread, 0, "of {left}");
        }
        cache.close(now, cursor);
        cache.assert_settled();
        let stats = cache.planner.core_stats();
        assert_eq!((stats.ahead_unread, stats.ahead_wasted), (0, 0), "{left}: {stats:?}");
    }
}

#[test]
fn a_device_remembered_is_read_ahead_of_from_the_first_window_on() {
    let record = "parallel 50000000 1000000000 16 1048576 kar 0".parse().ok();
    let (alone, _) = read_in_order(2, 1, BYTES, None);
    let (remembered, kept) = read_in_order(2, 1, BYTES, record);
    assert!(remembered < alone, "{remembered} misses, {alone} without");
    assert_eq!(kept, record, "the run has seen less than what it was told");
}

#[test]
fn a_latency_is_kept_where_polls_are_short_beside_it() {
    let (_, kept) = read_in_order(2, 40, LIMIT, None);
    let kept = kept.expect("polls of 2 ms see arrivals after 50 ms").estimate;
    let access = kept.profile.access;
    let about = Nanos::from_millis(20)..Nanos::from_millis(70);
    assert!(kept.known.access, "{kept:?}");
    assert!(about.contains(&access), "{access:?}");
    assert_eq!(read_in_order(40, 40, LIMIT, None).1, None, "an arrival may be 40 of 50 ms old");
}

#[test]
fn of_a_stride_the_pieces_are_fetched_and_not_what_lies_between() {
    const FILE_BYTES: u64 = 100 << 20;
    const PIECE: u64 = 4 << 10;
    for step in [32, 64, 100, 128, 256, 512, 1024, 1100].map(|step: u64| step << 10) {
        let mut cache = PageCache::new(32 << 20, 256 << 20);
        let cursor = cache.open(FILE_BYTES, 0);
        let (mut now, mut late) = (Nanos(0), 0);
        for at in (0..FILE_BYTES - PIECE).step_by(usize::try_from(step).unwrap()) {
            now += Nanos::from_millis(1);
            let range = at..at + PIECE;
            late += u64::from(!cache.is_cached(&range));
            cache.read(now, cursor, &range, false);
            cache.advance(now);
        }
        // The file's head may begin a stream of any kind.
        let (brought, read) = (cache.brought(), FILE_BYTES.div_ceil(step) * PIECE);
        assert!(brought <= read + read / 4 + (2 << 20), "{brought} for {read}, steps of {step}");
        assert!(late * 5 <= FILE_BYTES / step, "{late} came late of steps of {step}");
    }
}

const RUN: u64 = 1 << 20;
const BLOCK: u64 = 64 << 10;

/// Reads a run from `from` on in blocks, from a store that answers in 2 ms; returns how many of
/// them were not there.
fn read_run(cache: &mut PageCache, cursor: CursorId, from: u64, now: &mut Nanos) -> u64 {
    let mut misses = 0;
    for at in (from..from + RUN).step_by(usize::try_from(BLOCK).unwrap()) {
        let range = at..at + BLOCK;
        let is_there = cache.is_cached(&range);
        misses += u64::from(!is_there);
        *now += Nanos::from_millis(if is_there { 1 } else { 3 });
        cache.read(*now, cursor, &range, at > from);
        cache.advance(*now);
    }
    misses
}

#[test]
fn a_reader_that_goes_elsewhere_after_each_run_is_followed_to_the_ends_of_its_runs() {
    const PLACES: u64 = 40;
    // In no order, and at no even distance.
    for place in [|nth: u64| nth * 17 % PLACES * (5 << 20), |nth: u64| (nth * nth + 2 * nth) << 20]
    {
        let mut cache = PageCache::new(64 << 20, 256 << 20);
        let cursor = cache.open(4 << 30, 0);
        let (mut now, mut misses) = (Nanos(0), 0);
        for nth in 0..PLACES {
            cache.planner.seek(now, cursor, place(nth));
            misses += read_run(&mut cache, cursor, place(nth), &mut now);
        }
        let (brought, read) = (cache.brought(), PLACES * RUN);
        assert!(brought < read + read / 4 + (8 << 20), "{brought} for {read}");
        assert!(misses < 4 * PLACES, "{misses} of {} blocks", read / BLOCK);
    }
}

#[test]
fn neither_a_long_head_nor_the_end_of_the_file_tells_how_long_runs_are() {
    const CHUNKS: u64 = 40;
    const FILE_BYTES: u64 = 4 << 30;
    for (why, head, tail) in [("a head", 8, 0), ("a footer", 0, 1), ("a look at the size", 0, 0)] {
        let mut cache = PageCache::new(64 << 20, 256 << 20);
        let cursor = cache.open(FILE_BYTES, 0);
        let mut now = Nanos(0);
        for nth in 0..head {
            read_run(&mut cache, cursor, nth * RUN, &mut now);
        }
        cache.planner.seek(now, cursor, FILE_BYTES - tail * RUN);
        if tail > 0 {
            read_run(&mut cache, cursor, FILE_BYTES - RUN, &mut now);
        }
        for nth in 1..=CHUNKS {
            let at = (nth * nth + 8 * nth) << 20;
            cache.planner.seek(now, cursor, at);
            read_run(&mut cache, cursor, at, &mut now);
        }
        let (brought, read) = (cache.brought(), (head + tail + CHUNKS) * RUN);
        assert!(brought < read + read / 4 + (16 << 20), "{why}: {brought} for {read}");
    }
}

#[test]
fn a_reader_that_goes_back_by_seeks_is_led_for_as_long_as_it_goes() {
    for start in [512 << 20, 300 << 20] {
        let mut cache = PageCache::new(LIMIT, 64 << 20);
        let cursor = cache.open(512 << 20, 0);
        let (mut now, mut misses, blocks) = (Nanos(0), 0, 400);
        for nth in 1..=blocks {
            let range = start - nth * BLOCK..start - (nth - 1) * BLOCK;
            cache.planner.seek(now, cursor, range.start);
            misses += u64::from(!cache.is_cached(&range));
            now += Nanos::from_millis(3);
            cache.read(now, cursor, &range, true);
            cache.advance(now);
        }
        assert!(misses * 4 < blocks, "{misses} of {blocks} blocks from {start} on");
    }
}

#[test]
fn of_files_whose_heads_are_read_no_more_is_brought() {
    const FILES: u64 = 40;
    let mut cache = PageCache::new(64 << 20, 256 << 20);
    let (mut now, mut misses) = (Nanos(0), 0);
    for _ in 0..FILES {
        cache.cached.clear();
        cache.planner.forget(now, FILE);
        let cursor = cache.open(64 << 20, 0);
        misses += read_run(&mut cache, cursor, 0, &mut now);
        cache.close(now, cursor);
    }
    let (brought, read) = (cache.brought(), FILES * RUN);
    assert!(brought < read + read / 8 + (8 << 20), "{brought} for {read}");
    assert!(misses < 4 * FILES, "{misses} of {} blocks", read / BLOCK);
    cache.assert_settled();
}

#[test]
fn streams_that_take_turns_on_one_reader_are_no_runs_that_end() {
    let mut cache = PageCache::new(64 << 20, 256 << 20);
    let cursor = cache.open(4 << 30, 0);
    let (mut now, mut misses, streams, blocks) = (Nanos(0), 0, 4, 256);
    for nth in 0..blocks {
        for stream in 0..streams {
            let at = stream * (1 << 30) + nth * BLOCK;
            let range = at..at + BLOCK;
            misses += u64::from(!cache.is_cached(&range));
            now += Nanos::from_millis(1);
            cache.read(now, cursor, &range, false);
            cache.advance(now);
        }
    }
    let all = streams * blocks;
    assert!(misses * 10 < all, "{misses} of {all} blocks were not there");
}
