//! Faults: a failed demand is its reader's error, once; a failed readahead is no reader's error.

use std::{fs::OpenOptions, io::Write, sync::Arc, time::Duration};

use forerun_core::prng::Prng;
use forerun_engine::{Cache, ReadError};
use forerun_io::{
    store::{
        memory::Memory,
        pattern::{self, Pattern},
        threads::{Access, Threads},
    },
    wrap::fault::{Fault, Faults, Rule, When},
};
use forerun_testkit::{Scratch, on_threads, until, within};

use crate::rig::{
    Gated, PAGE, WINDOW, check_quiet, fixed, next_read, pattern_file, read, readaheads, settings,
};

const EIO: i32 = 5;
const ENXIO: i32 = 6;

fn faulty(bytes: u64, reads: Rule) -> Arc<Fault> {
    let faults = Faults { reads, ..Faults::default() };
    Arc::new(Fault::new(Arc::new(Pattern::new(bytes)), faults, 3))
}

#[test]
fn a_failed_demand_is_one_error_and_the_next_read_succeeds() {
    within(|| {
        let cache = Cache::new(settings(64, "off")).unwrap();
        let fail = Some((When::Every(2), ENXIO));
        let store = faulty(99 * PAGE, Rule { fail, ..Rule::default() });
        let file = cache.open_store(store).unwrap();
        for page in (0..60).step_by(2) {
            assert_eq!(read(&file, page * PAGE, 10), Ok(10), "{page}");
            let offset = (page + 1) * PAGE;
            let error = ReadError::Store { offset, errno: ENXIO };
            assert_eq!(read(&file, offset + 3, 10), Err(error.clone()));
            assert_eq!(error.errno(), ENXIO);
            assert_eq!(read(&file, offset + 3, 10), Ok(10), "{page}");
            assert_eq!(read(&file, offset + 600, 1).unwrap_err().errno(), ENXIO);
        }
        let stats = cache.stats();
        assert_eq!((stats.requests, stats.failures), (120, 60));
    });
}

#[test]
fn whatever_fails_or_comes_short_no_byte_is_wrong_and_no_reader_hangs() {
    for readahead in readaheads() {
        for frames in [WINDOW, 80] {
            let readahead = readahead.clone();
            within(move || {
                let settings = settings(frames, &readahead);
                let cache = Cache::new(settings.clone()).unwrap();
                let store = faulty(
                    150 * PAGE + 33,
                    Rule {
                        fail: Some((When::Every(5), EIO)),
                        delay: Some((When::Chance(50_000), Duration::from_micros(30))),
                        cut: Some(When::Every(7)),
                    },
                );
                let file = cache.open_store(store.clone()).unwrap();
                on_threads(6, |thread| {
                    let file = file.try_clone().unwrap();
                    let mut random = Prng::new(thread);
                    let mut at = thread * 20 * PAGE;
                    for _ in 0..60 {
                        let (offset, bytes) = next_read(&mut random, file.len(), &mut at);
                        match read(&file, offset, bytes) {
                            Ok(_) => {}
                            Err(ReadError::Store { errno: EIO, offset: page }) => {
                                assert!(page + PAGE > offset && page < offset + bytes as u64);
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
                assert!(store.counts().failed > 0 && store.counts().cut > 0);
                store.set(Faults::default());
                for page in 0..150 {
                    read(&file, page * PAGE, 512).unwrap();
                }
                check_quiet(&cache, &settings);
                drop(file);
                assert_eq!(cache.frames().0, cache.frames().1, "all frames come back");
            });
        }
    }
}

#[test]
fn a_failed_readahead_is_counted_and_no_readers_error() {
    within(|| {
        let cache = Cache::new(settings(64, &fixed())).unwrap();
        let (store, gate) = Gated::new(400 * PAGE);
        gate.fail_background(EIO);
        gate.set(true, true);
        let file = cache.open_store(store).unwrap();
        for page in 0..400 {
            assert_eq!(read(&file, page * PAGE, 512), Ok(512));
        }
        let stats = cache.stats();
        assert!(stats.core.ahead_failed > 0 && stats.core.failures == 0, "{stats:?}");
    });
}

#[test]
fn a_read_that_waits_for_a_failed_readahead_fetches_the_page_itself() {
    within(|| {
        let cache = Cache::new(settings(64, &fixed())).unwrap();
        let (store, gate) = Gated::new(400 * PAGE);
        gate.fail_background(EIO);
        gate.set(true, false);
        let file = cache.open_store(store).unwrap();
        read(&file, 0, 512).unwrap();
        std::thread::scope(|scope| {
            // Page 8 begins the half of the window that no read requested.
            let readers: Vec<_> =
                (0..3).map(|_| scope.spawn(|| read(&file, 9 * PAGE, 100))).collect();
            until(|| cache.stats().core.late_hits == 3);
            gate.set(true, true);
            for reader in readers {
                assert_eq!(reader.join().unwrap(), Ok(100));
            }
        });
        let demands: Vec<u64> = gate.log().iter().filter(|op| !op.0).map(|op| op.1).collect();
        assert_eq!(demands, [0, 9 * PAGE], "one of them did, for all");
    });
}

#[test]
fn nothing_is_tried_again_for_a_read_that_has_its_error() {
    within(|| {
        let cache = Cache::new(settings(64, "off")).unwrap();
        let store = faulty(50 * PAGE, Rule::default());
        let file = cache.open_store(store.clone()).unwrap();
        read(&file, 3 * PAGE, 512).unwrap();
        let fail = Some((When::Every(1), EIO));
        store.set(Faults { reads: Rule { fail, ..Rule::default() }, ..Faults::default() });
        // Page 2 alone fails for good; then pages 4 to 11, for which no read waits any more.
        let error = read(&file, 2 * PAGE, 5_120).unwrap_err();
        assert_eq!(error, ReadError::Store { offset: 2 * PAGE, errno: EIO });
        assert_eq!(store.counts().reads, 3);
        assert_eq!(cache.frames(), (64, 63), "their frames are free");
        store.set(Faults::default());
        assert_eq!(read(&file, 2 * PAGE, 5_120), Ok(5_120));
    });
}

#[test]
fn a_read_that_comes_short_for_no_reason_is_an_error_of_the_store() {
    within(|| {
        let cache = Cache::new(settings(64, "off")).unwrap();
        let store = faulty(50 * PAGE, Rule { cut: Some(When::Every(1)), ..Rule::default() });
        let file = cache.open_store(store.clone()).unwrap();
        let error = read(&file, 5 * PAGE, 512).unwrap_err();
        assert_eq!(error, ReadError::Store { offset: 5 * PAGE, errno: EIO });
        store.set(Faults::default());
        assert_eq!(read(&file, 5 * PAGE, 512), Ok(512));
    });
}

#[test]
fn memory_that_shrank_is_an_error_of_earlier_handles() {
    within(|| {
        let mut contents = vec![0; 10_000];
        pattern::fill(0, &mut contents);
        let store = Memory::new(contents, 10_000);
        let cache = Cache::new(settings(64, &fixed())).unwrap();
        let file = cache.open_store(Arc::new(store.clone())).unwrap();
        store.resize(6_000);
        for offset in [5_700, 6_000, 9_999, 0] {
            let error = read(&file, offset, 100).unwrap_err();
            assert_eq!(error, ReadError::Shrunk { file_bytes: 10_000 });
            assert_eq!(error.errno(), EIO);
        }
        assert_eq!(read(&file, 10_000, 100), Ok(0));
        let again = cache.open_store(Arc::new(store)).unwrap();
        assert_eq!(read(&again, 0, 9_000), Ok(6_000));
    });
}

#[test]
fn a_file_that_shrank_is_an_error_and_never_zeros() {
    within(|| {
        let scratch = Scratch::new("shrank");
        let path = pattern_file(&scratch, 100_000);
        let cache = Cache::new(settings(64, &fixed())).unwrap();
        let file = cache.open_store(Arc::new(Threads::open(&path, Access::Read).unwrap())).unwrap();
        assert_eq!(read(&file, 20_000, 5_000), Ok(5_000));
        let shrunk = OpenOptions::new().write(true).open(&path).unwrap();
        shrunk.set_len(50_000).unwrap();
        let mut ended = false;
        for offset in (0..100_000).step_by(1_000) {
            match read(&file, offset, 1_000) {
                Ok(_) => assert!(!ended && offset < 25_000 + 16 * PAGE, "{offset}: was cached"),
                Err(ReadError::Shrunk { file_bytes: 100_000 }) => ended = true,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(ended);
        // The file grows again: earlier handles still fail.
        let mut grown = OpenOptions::new().append(true).open(&path).unwrap();
        let mut tail = vec![0; 50_000];
        pattern::fill(50_000, &mut tail);
        grown.write_all(&tail).unwrap();
        assert_eq!(read(&file, 0, 10), Err(ReadError::Shrunk { file_bytes: 100_000 }));
        let again = Threads::open(&path, Access::Read).unwrap();
        let again = cache.open_store(Arc::new(again)).unwrap();
        assert_eq!(read(&again, 90_000, 5_000), Ok(5_000));
    });
}
