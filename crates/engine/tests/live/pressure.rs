//! Bounds: too few frames, queues, slots and numbers.

use std::{sync::Arc, thread, time::Duration};

use forerun_core::prng::Prng;
use forerun_engine::{BuildError, Cache, OpenError, ReadError, Settings};
use forerun_io::{
    store::pattern::Pattern,
    wrap::fault::{Fault, Faults, Rule, When},
};
use forerun_testkit::{on_threads, until, within};

use crate::rig::{Gated, PAGE, WINDOW, check_quiet, fixed, next_read, read, readaheads, settings};

/// Eight readers of a cache that holds one window.
fn crowd(settings: Settings, delayed: bool) {
    within(move || {
        let ahead_max = u64::from(settings.core().unwrap().ahead_pages_max);
        let cache = Cache::new(settings.clone()).unwrap();
        let delay = (When::Chance(100_000), std::time::Duration::from_micros(50));
        let reads = Rule { delay: delayed.then_some(delay), ..Rule::default() };
        let pattern = Arc::new(Pattern::new(200 * PAGE + 9));
        let store = Fault::new(pattern, Faults { reads, ..Faults::default() }, 5);
        let file = cache.open_store(Arc::new(store)).unwrap();
        on_threads(8, |thread| {
            let file = file.try_clone().unwrap();
            let mut random = Prng::new(thread);
            let mut at = thread * 20 * PAGE;
            for _ in 0..100 {
                let (offset, bytes) = next_read(&mut random, file.len(), &mut at);
                read(&file, offset, bytes).unwrap();
                let ahead = cache.stats().core.ahead_unread;
                assert!(ahead <= ahead_max, "{ahead} pages ahead");
            }
        });
        drop(file);
        check_quiet(&cache, &settings);
        assert_eq!(cache.frames().0, cache.frames().1, "all frames come back");
        assert_eq!(cache.stats().core.ahead_unread, 0);
    });
}

#[test]
fn eight_readers_of_a_cache_of_one_window_all_get_their_bytes() {
    for readahead in readaheads() {
        crowd(settings(WINDOW, &readahead), false);
    }
}

#[test]
fn late_bytes_and_few_frames_only_take_longer() {
    crowd(settings(WINDOW, &fixed()), true);
    crowd(settings(1, "off"), true);
    crowd(settings(2, "fixed:size=1024"), true);
}

#[test]
fn readers_beyond_the_queues_take_turns() {
    crowd(Settings { demand_queues_max: 1, ..settings(WINDOW, &fixed()) }, true);
    crowd(Settings { congested_requests: 1, background_depth: 1, ..settings(64, &fixed()) }, true);
}

#[test]
fn readers_that_wait_for_a_queue_or_the_store_keep_no_frame_from_others() {
    within(|| {
        let never = Duration::from_secs(3_600);
        let bounds = Settings { demand_queues_max: 1, wait_max: never, ..settings(4, "off") };
        let cache = Cache::new(Settings { request_bytes_max: 512, ..bounds }).unwrap();
        let (store, gate) = Gated::new(50 * PAGE);
        let file = cache.open_store(store).unwrap();
        gate.let_through(1);
        let pinned = file.pin(20 * PAGE).unwrap();
        thread::scope(|scope| {
            let demanded = |pages| until(|| cache.stats().core.demanded == pages);
            let first = scope.spawn(|| read(&file, PAGE, 2 * 512));
            until(|| gate.submitted(false) == 3);
            let second = scope.spawn(|| read(&file, 0, 2 * 512));
            demanded(5);
            let third = scope.spawn(|| read(&file, 9 * PAGE, 10));
            demanded(6);
            // Page 1 comes for two readers: of these one waits for page 2, and one for the queue.
            gate.let_through(1);
            until(|| cache.stats().core.evicted == 1);
            gate.set(true, true);
            assert_eq!(first.join().unwrap(), Ok(1_024));
            assert_eq!(second.join().unwrap(), Ok(1_024));
            assert_eq!(third.join().unwrap(), Ok(10));
        });
        drop(pinned);
    });
}

#[test]
fn a_read_larger_than_the_cache_is_served() {
    for frames in [WINDOW, WINDOW + 1, 40] {
        within(move || {
            let settings = settings(frames, &fixed());
            let cache = Cache::new(settings.clone()).unwrap();
            let file = cache.open_store(Arc::new(Pattern::new(500 * PAGE))).unwrap();
            on_threads(3, |thread| {
                read(&file, thread * 13, 300_000).unwrap();
            });
            check_quiet(&cache, &settings);
        });
    }
}

#[test]
fn a_page_in_flight_is_fetched_once_for_all_its_readers() {
    within(|| {
        let cache = Cache::new(settings(64, "off")).unwrap();
        let (store, gate) = Gated::new(50 * PAGE);
        let file = cache.open_store(store).unwrap();
        thread::scope(|scope| {
            let readers: Vec<_> = (0..5).map(|_| scope.spawn(|| read(&file, 700, 100))).collect();
            until(|| cache.stats().core.demanded == 5);
            gate.set(true, true);
            for reader in readers {
                assert_eq!(reader.join().unwrap(), Ok(100));
            }
        });
        assert_eq!(gate.log(), [(false, 512)]);
        let stats = cache.stats();
        assert_eq!((stats.core.misses, stats.core.late_hits, stats.waits), (1, 4, 5));
    });
}

#[test]
fn a_demand_does_not_wait_for_readahead_that_is_stuck() {
    within(|| {
        let cache = Cache::new(settings(64, &fixed())).unwrap();
        let (store, gate) = Gated::new(1_000 * PAGE);
        let file = cache.open_store(store).unwrap();
        gate.set(true, false);
        for stream in 0..3 {
            read(&file, stream * 100 * PAGE, 512).unwrap();
        }
        until(|| gate.submitted(true) == 3);
        assert_eq!(gate.submitted(false), 3, "the rest of each window is in the background");
        read(&file, 900 * PAGE, 512).unwrap();
        gate.set(true, true);
    });
}

#[test]
fn readahead_stops_at_a_marker_while_the_device_is_congested() {
    within(|| {
        let settings = Settings { congested_requests: 1, ..settings(64, &fixed()) };
        let cache = Cache::new(settings).unwrap();
        let (store, gate) = Gated::new(1_000 * PAGE);
        let file = cache.open_store(store).unwrap();
        gate.set(true, false);
        read(&file, 0, 512).unwrap();
        let reading = file.try_clone().unwrap();
        let reader = thread::spawn(move || read(&reading, 8 * PAGE, 512));
        until(|| cache.stats().core.markers_deferred == 1);
        assert_eq!(gate.submitted(true), 1, "the marker triggered nothing");
        gate.set(true, true);
        assert_eq!(reader.join().unwrap(), Ok(512));
    });
}

#[test]
fn where_no_frame_comes_free_the_read_fails_in_time() {
    within(|| {
        let wait_max = Duration::from_millis(5);
        let settings = Settings { wait_max, ..settings(1, "off") };
        let cache = Cache::new(settings.clone()).unwrap();
        let (store, gate) = Gated::new(50 * PAGE);
        let file = cache.open_store(store).unwrap();
        thread::scope(|scope| {
            let first = scope.spawn(|| read(&file, 0, 10));
            until(|| gate.submitted(false) == 1);
            assert_eq!(read(&file, PAGE, 10), Err(ReadError::NoFrames { capacity: 1 }));
            gate.set(true, true);
            assert_eq!(first.join().unwrap(), Ok(10));
        });
        assert_eq!(read(&file, PAGE, 10), Ok(10), "there is room again");
        let stats = cache.stats();
        assert_eq!((stats.requests, stats.failures), (3, 1));
        assert!(stats.latency.max() >= wait_max);
        check_quiet(&cache, &settings);
    });
}

#[test]
fn reads_beyond_the_bounds_are_refused_and_disturb_no_other() {
    within(|| {
        let settings = Settings { readers_max: 2, ..settings(64, "off") };
        let cache = Cache::new(settings).unwrap();
        let (store, gate) = Gated::new(50 * PAGE);
        let file = cache.open_store(store).unwrap();
        thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|at| {
                    scope.spawn({
                        let file = &file;
                        move || read(file, at * PAGE, 9)
                    })
                })
                .collect();
            until(|| cache.stats().core.demanded == 2);
            let error = read(&file, 9 * PAGE, 10).unwrap_err();
            assert_eq!(error, ReadError::Busy { what: "readers", bound: 2 });
            gate.set(true, true);
            for reader in readers {
                assert_eq!(reader.join().unwrap(), Ok(9));
            }
        });
        assert_eq!(read(&file, 9 * PAGE, 10), Ok(10));
        assert_eq!(cache.stats().core.demanded, 3, "the core does not count the refused one");
    });
}

#[test]
fn pages_waited_for_are_bounded() {
    within(|| {
        let settings = Settings { waiters_max: 3, ..settings(64, "off") };
        let cache = Cache::new(settings).unwrap();
        let (store, gate) = Gated::new(50 * PAGE);
        let file = cache.open_store(store).unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(|| read(&file, 0, 1024));
            until(|| gate.submitted(false) == 1);
            let refused = Err(ReadError::Busy { what: "pages waited for", bound: 3 });
            assert_eq!(read(&file, 9 * PAGE, 1024), refused);
            gate.set(true, true);
            assert_eq!(reader.join().unwrap(), Ok(1024));
        });
        assert_eq!(read(&file, 0, 9_000), Ok(9_000), "a long read asks for a few at a time");
    });
}

#[test]
fn numbers_of_files_and_handles_are_bounded_and_used_again() {
    let settings = Settings { files_max: 2, handles_max: 3, ..settings(64, &fixed()) };
    let cache = Cache::new(settings).unwrap();
    let open = || cache.open_store(Arc::new(Pattern::new(30 * PAGE)));
    for _ in 0..5 {
        let first = open().unwrap();
        let second = open().unwrap();
        assert_eq!(open().err(), Some(OpenError::Files { bound: 2 }));
        let third = second.try_clone().unwrap();
        assert_eq!(first.try_clone().err(), Some(OpenError::Handles { bound: 3 }));
        for file in [&first, &second, &third] {
            read(file, 100, 3_000).unwrap();
        }
    }
}

#[test]
fn more_memory_than_any_machine_has_is_an_error() {
    // More than the address space: every system refuses it.
    let page_bytes = 1 << 24;
    let (cache_bytes, request_bytes_max) = (1 << 55, page_bytes);
    let readahead = "off".into();
    let settings =
        Settings { cache_bytes, page_bytes, request_bytes_max, readahead, ..Settings::default() };
    let error = Cache::new(settings).err().expect("32 PiB");
    assert!(matches!(error, BuildError::Memory(_)), "{error}");
}
