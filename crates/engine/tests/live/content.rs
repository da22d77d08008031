//! The bytes: every read by any thread gives the bytes of the store.

use std::sync::Arc;

use forerun_core::{device, prng::Prng};
use forerun_engine::Cache;
use forerun_io::{
    store::{
        memory::Memory,
        pattern::{self, Pattern},
    },
    wrap::latency::Latency,
};
use forerun_testkit::{on_threads, within};

use crate::rig::{PAGE, check_quiet, fixed, next_read, read, readaheads, settings};

#[test]
fn any_offset_and_length_gives_the_files_bytes_cut_at_its_end() {
    for readahead in readaheads() {
        let settings = settings(64, &readahead);
        let cache = Cache::new(settings.clone()).unwrap();
        let file_bytes = 100 * PAGE + 77;
        let file = cache.open_store(Arc::new(Pattern::new(file_bytes))).unwrap();
        let edges = [0, 1, PAGE - 1, PAGE, PAGE + 1, 7 * PAGE + 3, 31 * PAGE, 32 * PAGE];
        for from_end in [false, true] {
            for edge in edges {
                let offset = if from_end { file_bytes - edge } else { edge };
                for bytes in [0, 1, 2, 511, 512, 513, 1024, 5000, 40_000, 60_000] {
                    read(&file, offset, bytes).unwrap();
                }
            }
        }
        check_quiet(&cache, &settings);
    }
}

#[test]
fn at_and_past_the_end_there_is_nothing_to_read() {
    let cache = Cache::new(settings(64, &fixed())).unwrap();
    let file = cache.open_store(Arc::new(Pattern::new(1000))).unwrap();
    for offset in [1000, 1001, 1 << 40, u64::MAX] {
        assert_eq!(read(&file, offset, 100), Ok(0), "{offset}");
    }
    assert_eq!(read(&file, 999, 100), Ok(1));
    assert_eq!(read(&file, 0, 0), Ok(0));
    let empty = cache.open_store(Arc::new(Pattern::new(0))).unwrap();
    assert_eq!((empty.len(), read(&empty, 0, 10)), (0, Ok(0)));
    assert_eq!(cache.stats().requests, 1, "a read of no page is no request");
}

#[test]
fn a_read_of_cached_bytes_gives_all_or_nothing() {
    let cache = Cache::new(settings(64, "off")).unwrap();
    let file_bytes = 9 * PAGE + 100;
    let file = cache.open_store(Arc::new(Pattern::new(file_bytes))).unwrap();
    let mut buf = vec![7; 40_000];
    assert_eq!(file.read_at_cached(&mut buf[..100], 0), Ok(None));
    read(&file, 0, 100).unwrap();
    assert_eq!(file.read_at_cached(&mut buf[..100], PAGE - 50), Ok(None), "a part is cached");
    assert_eq!(buf[..100], [7; 100], "nothing is copied");
    read(&file, PAGE, at(file_bytes - PAGE)).unwrap();
    let unlocked = cache.stats().unlocked;
    for (offset, bytes) in [(0, 1), (PAGE - 1, 2), (3, 30_000), (file_bytes - 3, 9)] {
        let count = bytes.min(at(file_bytes - offset));
        assert_eq!(file.read_at_cached(&mut buf[..bytes], offset), Ok(Some(count)));
        assert_eq!(pattern::verify(offset, &buf[..count]), Ok(()));
    }
    assert_eq!(cache.stats().unlocked, unlocked + 4, "without the lock");
    assert_eq!(file.read_at_cached(&mut buf, file_bytes), Ok(Some(0)), "at the end");
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

#[test]
fn files_near_the_largest_offset_are_read() {
    let cache = Cache::new(settings(64, &fixed())).unwrap();
    let file = cache.open_store(Arc::new(Pattern::new(u64::MAX))).unwrap();
    assert_eq!(read(&file, u64::MAX - 700, 2_000), Ok(700));
}

#[test]
fn threads_that_read_interleaved_streams_all_get_their_bytes() {
    for readahead in readaheads() {
        within(move || {
            let settings = settings(96, &readahead);
            let cache = Cache::new(settings.clone()).unwrap();
            let files: Vec<_> = (0..2)
                .map(|_| cache.open_store(Arc::new(Pattern::new(300 * PAGE + 5))).unwrap())
                .collect();
            on_threads(4, |thread| {
                let file = files[usize::try_from(thread).unwrap() % 2].try_clone().unwrap();
                let mut random = Prng::new(thread);
                let mut at = thread * 70 * PAGE;
                for _ in 0..200 {
                    let (offset, bytes) = next_read(&mut random, file.len(), &mut at);
                    read(&file, offset, bytes).unwrap();
                }
            });
            check_quiet(&cache, &settings);
            assert!(cache.stats().core.hits > 0);
        });
    }
}

#[test]
fn a_second_handle_finds_the_pages_of_the_first() {
    let cache = Cache::new(settings(64, "off")).unwrap();
    let first = cache.open_store(Arc::new(Pattern::new(20 * PAGE))).unwrap();
    read(&first, 0, 4_000).unwrap();
    let fetched = cache.stats().store_requests;
    let second = first.try_clone().unwrap();
    drop(first);
    read(&second, 0, 4_000).unwrap();
    let stats = cache.stats();
    assert_eq!(stats.store_requests, fetched, "the pages stay while a handle is open");
    assert_eq!((stats.core.hits, stats.core.misses), (8, 8));
}

#[test]
fn the_pages_of_a_file_go_with_its_last_handle() {
    let cache = Cache::new(settings(64, "off")).unwrap();
    let store = Memory::new(vec![1; 2_000], 4_000);
    let mut buf = [0; 2_000];
    let file = cache.open_store(Arc::new(store.clone())).unwrap();
    assert_eq!((file.read_at(&mut buf, 0), buf), (Ok(2_000), [1; 2_000]));
    assert_eq!(cache.frames(), (64, 60));
    drop(file);
    assert_eq!(cache.frames(), (64, 64));
    store.resize(100);
    store.resize(3_000);
    let file = cache.open_store(Arc::new(store)).unwrap();
    assert_eq!((file.len(), file.read_at(&mut buf, 50)), (3_000, Ok(2_000)));
    assert_eq!((&buf[..50], &buf[50..]), (&[1; 50][..], &[0; 1_950][..]), "nothing old is seen");
}

#[test]
fn a_sequential_reader_of_a_device_finds_most_pages_there_and_each_is_read_once() {
    within(|| {
        for readahead in readaheads() {
            let settings = settings(128, &readahead);
            let cache = Cache::new(settings.clone()).unwrap();
            let device = device::make("optane", 1).unwrap();
            let store = Latency::new(Arc::new(Pattern::new(600 * PAGE)), device);
            let file = cache.open_store(Arc::new(store)).unwrap();
            for page in 0..600 {
                read(&file, page * PAGE, 512).unwrap();
            }
            let stats = cache.stats();
            assert_eq!((stats.requests, stats.bytes), (600, 600 * PAGE));
            assert_eq!(stats.core.demanded, 600);
            assert_eq!(stats.store_bytes, 600 * PAGE, "{readahead}");
            if readahead == "off" {
                assert_eq!((stats.core.misses, stats.waits), (600, 600));
            } else {
                let seen = (stats.core.misses, stats.store_requests);
                // Where each read advances the window, each read makes a request.
                let requests_max = if readahead.starts_with("zfs") { 600 } else { 200 };
                assert!(seen.0 <= 8 && seen.1 < requests_max, "{readahead}: {stats:?}");
            }
            assert!(!stats.waited.is_zero() && stats.latency.p50() <= stats.latency.p99());
            check_quiet(&cache, &settings);
        }
    });
}
