//! Ends: handles and caches are dropped while other threads read and readahead is in flight.

use std::{sync::Arc, thread};

use forerun_engine::{Cache, OpenError, ReadError};
use forerun_io::store::pattern::Pattern;
use forerun_testkit::{until, within};

use crate::rig::{Gated, PAGE, check_quiet, fixed, read, settings};

#[test]
fn a_handle_goes_while_its_readahead_is_in_flight() {
    within(|| {
        let settings = settings(64, &fixed());
        let cache = Cache::new(settings.clone()).unwrap();
        let (store, gate) = Gated::new(100 * PAGE);
        gate.set(true, false);
        for _ in 0..3 {
            let file = cache.open_store(store.clone()).unwrap();
            read(&file, 0, 512).unwrap();
            assert!(cache.stats().core.ahead_unread > 0);
            drop(file);
            assert_eq!(cache.frames(), (64, 64), "what was in flight came back");
            assert_eq!(cache.stats().core.ahead_unread, 0);
            check_quiet(&cache, &settings);
        }
    });
}

#[test]
fn a_cache_goes_while_readahead_is_in_flight_and_handles_are_open() {
    within(|| {
        let cache = Cache::new(settings(64, &fixed())).unwrap();
        let (store, gate) = Gated::new(100 * PAGE);
        gate.set(true, false);
        let file = cache.open_store(store).unwrap();
        read(&file, 0, 512).unwrap();
        cache.close().unwrap();
        cache.close().unwrap();
        let stats = cache.stats().core;
        assert_eq!((stats.ahead_failed, stats.ahead_unread), (8, 7), "the first half had come");
        assert!(cache.stats().core.balanced());
        let another = cache.open_store(Arc::new(Pattern::new(10)));
        assert_eq!(another.err(), Some(OpenError::Closed));
        assert_eq!(file.try_clone().err(), Some(OpenError::Closed));
        drop(cache);
        assert_eq!(read(&file, 0, 10), Err(ReadError::Closed));
        assert_eq!(read(&file, 1 << 20, 10), Ok(0));
    });
}

#[test]
fn a_read_that_waits_for_readahead_when_the_cache_is_closed_gets_its_bytes() {
    within(|| {
        let cache = Cache::new(settings(64, &fixed())).unwrap();
        let (store, gate) = Gated::new(100 * PAGE);
        gate.set(true, false);
        let file = cache.open_store(store).unwrap();
        read(&file, 0, 512).unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(|| read(&file, 10 * PAGE, 1_000));
            until(|| cache.stats().core.late_hits == 2);
            cache.close().unwrap();
            assert_eq!(reader.join().unwrap(), Ok(1_000));
        });
    });
}

#[test]
fn a_cache_without_a_file_just_goes_and_one_with_a_handle_stays() {
    within(|| {
        let cache = Cache::new(settings(64, &fixed())).unwrap();
        drop(cache.open_store(Arc::new(Pattern::new(1 << 20))).unwrap());
        let file = cache.open_store(Arc::new(Pattern::new(1 << 20))).unwrap();
        drop(cache);
        assert_eq!(read(&file, 0, 10), Ok(10), "a handle keeps its cache");
        drop(file);
    });
}

#[test]
fn one_file_goes_while_another_is_read() {
    within(|| {
        let settings = settings(48, &fixed());
        let cache = Cache::new(settings.clone()).unwrap();
        let steady = cache.open_store(Arc::new(Pattern::new(300 * PAGE))).unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for page in 0..300 {
                    read(&steady, page * PAGE, 512).unwrap();
                }
            });
            for _ in 0..20 {
                let file = cache.open_store(Arc::new(Pattern::new(40 * PAGE))).unwrap();
                read(&file, 0, 4_000).unwrap();
            }
            reader.join().unwrap();
        });
        check_quiet(&cache, &settings);
    });
}
