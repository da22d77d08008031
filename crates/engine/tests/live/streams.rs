//! Streams that are read in odd ways, by the default readahead: by handles in turn, by threads out
//! of order, through a file that is opened again. The tests check the bytes fetched, the requests,
//! and the misses.
//!
//! # Invariants
//! - The store completes at once and the device profile is given: no count depends on time.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use forerun_core::prng::Prng;
use forerun_engine::{Cache, DeviceKind, DeviceProfile, Handle, Nanos, Settings, Stats};
use forerun_io::store::pattern::Pattern;
use forerun_testkit::{Scratch, on_threads, until, within};

use crate::rig::{PAGE, PAGE_BYTES, pattern_file, read, settings};

/// Pages of the file, and of a request.
const PAGES: u64 = 4_000;
const REQUEST_PAGES: u64 = 8;
/// Pages of a read.
const READ_PAGES: u64 = 2;
const READS: u64 = PAGES / READ_PAGES;

/// A disk that delivers 16 pages in the time of an access, in front of a cache that holds all.
fn roomy() -> Settings {
    let access = Nanos::from_millis(8);
    let bytes_per_second = 16 * PAGE * 125;
    let request_bytes = 8 * PAGE_BYTES;
    let kind = DeviceKind::SeekBound;
    Settings {
        device: Some(DeviceProfile { kind, access, bytes_per_second, depth: 1, request_bytes }),
        ..settings(8_192, &Settings::default().readahead)
    }
}

fn open() -> (Cache, Handle) {
    let cache = Cache::new(roomy()).expect("good settings");
    let file = cache.open_store(Arc::new(Pattern::new(PAGES * PAGE))).expect("it has a length");
    (cache, file)
}

/// The `nth` read of the stream.
fn read_nth(file: &Handle, nth: u64) {
    let bytes = usize::try_from(READ_PAGES * PAGE).expect("small");
    assert_eq!(read(file, nth * READ_PAGES * PAGE, bytes), Ok(bytes));
}

/// Checks that each page was fetched once, in at most `more` requests above the ideal, and that at
/// most `misses` pages were absent when a read wanted them.
fn assert_near_ideal(why: &str, stats: &Stats, more: u64, misses: u64) {
    let core = &stats.core;
    assert_eq!(stats.store_bytes, PAGES * PAGE, "{why}: {stats:?}");
    let ideal = PAGES / REQUEST_PAGES;
    assert!(stats.store_requests <= ideal + more, "{why}: {} requests", stats.store_requests);
    assert!(core.misses <= misses, "{why}: {} misses", core.misses);
    assert_eq!((core.ahead_wasted, core.ahead_dropped), (0, 0), "{why}");
}

#[test]
fn handles_that_take_turns_at_one_stream_are_one_stream() {
    for handles in [1, 2, 4, 32] {
        let (cache, file) = open();
        let handles: Vec<_> = (0..handles).map(|_| file.try_clone().expect("a handle")).collect();
        for (nth, handle) in (0..READS).zip(handles.iter().cycle()) {
            read_nth(handle, nth);
        }
        let why = format!("{} handles", handles.len());
        assert_near_ideal(&why, &cache.stats(), 8, 4);
    }
}

#[test]
fn reads_that_overtake_each_other_are_one_stream() {
    for (seed, among) in [(1, 2), (2, 4), (3, 8), (4, 16)] {
        let (cache, file) = open();
        let mut random = Prng::new(seed);
        let mut ready: Vec<u64> = Vec::new();
        let mut rest = 0..READS;
        loop {
            ready.extend(rest.by_ref().take(among - ready.len()));
            if ready.is_empty() {
                break;
            }
            let next = random.below(ready.len() as u64);
            read_nth(&file, ready.remove(usize::try_from(next).expect("small")));
        }
        assert_near_ideal(&format!("one of {among}"), &cache.stats(), 40, 4 * among as u64);
    }
}

#[test]
fn threads_that_share_a_stream_out_fetch_it_once() {
    within(|| {
        for threads in [2, 4, 8] {
            let (cache, file) = open();
            let next = AtomicU64::new(0);
            on_threads(threads, |_| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if nth >= READS {
                        break;
                    }
                    read_nth(&file, nth);
                }
            });
            let stats = cache.stats();
            assert_eq!(stats.store_bytes, PAGES * PAGE, "{threads} threads");
            // A thread may be stopped anywhere, so the order is any: still most comes in windows.
            let most = PAGES / REQUEST_PAGES * 2;
            assert!(stats.store_requests <= most, "{threads} threads: {}", stats.store_requests);
        }
    });
}

#[test]
fn a_file_that_is_opened_again_goes_on_where_it_was() {
    within(|| {
        let scratch = Scratch::new("streams");
        let path = pattern_file(&scratch, usize::try_from(PAGES * PAGE).expect("small"));
        for openings in [1, 2, 5, 50] {
            let cache = Cache::new(roomy()).expect("good settings");
            for nth in 0..openings {
                let file = cache.open(&path).expect("it is there");
                (nth * READS / openings..(nth + 1) * READS / openings)
                    .for_each(|nth| read_nth(&file, nth));
                // The close of the last handle cancels waiting readahead.
                until(|| cache.stats().store_requests == cache.stats().core.fetches);
            }
            assert_near_ideal(&format!("opened {openings} times"), &cache.stats(), 8, 4);
        }
    });
}

#[test]
fn reads_at_random_across_two_pages_fetch_hardly_more_than_these() {
    const FILE_PAGES: u64 = 1 << 16;
    for seed in 0..4 {
        let cache = Cache::new(roomy()).expect("good settings");
        let store = Arc::new(Pattern::new(FILE_PAGES * PAGE));
        let file = cache.open_store(store).expect("it has a length");
        let mut random = Prng::new(seed);
        let mut wanted = BTreeSet::new();
        for _ in 0..2_000 {
            let first = random.below(FILE_PAGES - 1);
            let offset = first * PAGE + 1 + random.below(PAGE - 1);
            let bytes = usize::try_from(PAGE).expect("small");
            assert_eq!(read(&file, offset, bytes), Ok(bytes));
            wanted.extend([first, first + 1]);
        }
        let (fetched, wanted) = (cache.stats().store_bytes, wanted.len() as u64 * PAGE);
        assert!(fetched * 100 <= wanted * 105, "seed {seed}: {fetched} of {wanted}");
    }
}
