//! Pins: a page without a copy, whose frame serves no other page while the pin lives.

use std::{sync::Arc, thread, time::Duration};

use forerun_core::prng::Prng;
use forerun_engine::{Cache, ReadError, Settings};
use forerun_io::store::pattern::{self, Pattern};
use forerun_testkit::{on_threads, until, within};

use crate::rig::{Gated, PAGE, check_quiet, fixed, next_read, read, readaheads, settings};

#[test]
fn a_pin_gives_its_page_from_the_offset_to_the_end_of_page_or_file() {
    for readahead in readaheads() {
        let settings = settings(64, &readahead);
        let cache = Cache::new(settings.clone()).unwrap();
        let file_bytes = 40 * PAGE + 77;
        let file = cache.open_store(Arc::new(Pattern::new(file_bytes))).unwrap();
        #[rustfmt::skip]
        let rows = [ // why               offset               bytes
            ("a whole page",              3 * PAGE,            PAGE),
            ("from within",               3 * PAGE + 100,      PAGE - 100),
            ("the last byte of a page",   4 * PAGE - 1,        1),
            ("the partial one",           40 * PAGE,           77),
            ("from within that",          40 * PAGE + 70,      7),
            ("the last byte",             file_bytes - 1,      1),
            ("at the end",                file_bytes,          0),
            ("past it",                   file_bytes + 1,      0),
            ("far past it",               u64::MAX,            0),
        ];
        for round in 0..2 {
            for (why, offset, bytes) in rows {
                let pinned = file.pin(offset).unwrap();
                assert_eq!(pinned.len() as u64, bytes, "{why}, {round}");
                assert_eq!(pattern::verify(offset, &pinned), Ok(()), "{why}, {round}");
            }
        }
        let stats = cache.stats();
        assert_eq!((stats.core.demanded, stats.requests), (12, 12), "a use each");
        check_quiet(&cache, &settings);
    }
}

#[test]
fn a_pinned_page_keeps_its_bytes_under_any_pressure() {
    for readahead in readaheads() {
        within(move || {
            let settings = settings(40, &readahead);
            let cache = Cache::new(settings.clone()).unwrap();
            let file = cache.open_store(Arc::new(Pattern::new(400 * PAGE))).unwrap();
            let pinned: Vec<_> = (0..6).map(|at| (at, file.pin(at * 61 * PAGE).unwrap())).collect();
            on_threads(4, |thread| {
                let mut random = Prng::new(thread);
                let mut at = thread * 70 * PAGE;
                for _ in 0..150 {
                    let (offset, bytes) = next_read(&mut random, file.len(), &mut at);
                    read(&file, offset, bytes).unwrap();
                }
            });
            assert!(cache.stats().core.evicted > 100, "{readahead}");
            for (at, page) in &pinned {
                assert_eq!(pattern::verify(at * 61 * PAGE, page), Ok(()), "{readahead}");
            }
            let missed = cache.stats().core.misses;
            read(&file, 61 * PAGE, 512).unwrap();
            assert_eq!(cache.stats().core.misses, missed, "it is still found, too");
            drop(pinned);
            drop(file);
            check_quiet(&cache, &settings);
            assert_eq!(cache.frames(), (40, 40));
        });
    }
}

#[test]
fn threads_that_pin_and_read_the_same_few_frames_all_see_their_pages() {
    within(|| {
        let settings = settings(24, &fixed());
        let cache = Cache::new(settings.clone()).unwrap();
        let file = cache.open_store(Arc::new(Pattern::new(60 * PAGE + 5))).unwrap();
        on_threads(6, |thread| {
            let mut random = Prng::new(thread);
            for _ in 0..500 {
                let offset = random.below(61 * PAGE);
                let pinned = file.pin(offset).unwrap();
                assert_eq!(pattern::verify(offset, &pinned), Ok(()));
                thread::yield_now();
                assert_eq!(pattern::verify(offset, &pinned), Ok(()));
            }
        });
        drop(file);
        check_quiet(&cache, &settings);
        assert_eq!(cache.frames(), (24, 24));
    });
}

#[test]
fn while_all_frames_are_pinned_reads_and_pins_are_refused_in_time() {
    within(|| {
        let settings = Settings { wait_max: Duration::from_millis(3), ..settings(4, "off") };
        let cache = Cache::new(settings.clone()).unwrap();
        let file = cache.open_store(Arc::new(Pattern::new(50 * PAGE))).unwrap();
        let mut pinned: Vec<_> = (0..4).map(|page| file.pin(page * PAGE).unwrap()).collect();
        let refused = ReadError::NoFrames { capacity: 4 };
        assert_eq!(read(&file, 9 * PAGE, 10), Err(refused.clone()));
        assert_eq!(file.pin(9 * PAGE).err(), Some(refused.clone()));
        assert_eq!(read(&file, 3 * PAGE, 2 * 512), Err(refused), "one page is there, one is not");
        assert_eq!(read(&file, PAGE, 3 * 512), Ok(3 * 512), "what is there is read");
        let again = file.pin(0).unwrap();
        pinned.pop();
        assert_eq!(read(&file, 9 * PAGE, 10), Ok(10));
        drop((again, pinned));
        check_quiet(&cache, &settings);
    });
}

#[test]
fn a_read_that_waits_for_a_frame_gets_the_one_that_is_unpinned() {
    let never = Duration::from_secs(3_600);
    for round in 0..50_u64 {
        within(move || {
            let settings = Settings { wait_max: never, ..settings(4, "off") };
            let cache = Cache::new(settings.clone()).unwrap();
            let file = cache.open_store(Arc::new(Pattern::new(50 * PAGE))).unwrap();
            let mut pinned: Vec<_> = (0..4).map(|page| file.pin(page * PAGE).unwrap()).collect();
            thread::scope(|scope| {
                let readers: Vec<_> = (0..2)
                    .map(|at| {
                        scope.spawn({
                            let file = &file;
                            move || read(file, (9 + at) * PAGE, 10)
                        })
                    })
                    .collect();
                // In even rounds both wait for certain; in odd ones they may be on their way.
                until(|| round % 2 == 1 || cache.stats().core.demanded == 6);
                drop(pinned.pop());
                for reader in readers {
                    assert_eq!(reader.join().unwrap(), Ok(10), "{round}");
                }
            });
            drop(pinned);
            check_quiet(&cache, &settings);
        });
    }
}

#[test]
fn a_pin_outlives_the_end_of_its_cache() {
    within(|| {
        let cache = Cache::new(settings(64, &fixed())).unwrap();
        let (store, gate) = Gated::new(50 * PAGE + 9);
        gate.set(true, true);
        let file = cache.open_store(store).unwrap();
        let (page, tail) = (file.pin(700).unwrap(), file.pin(50 * PAGE).unwrap());
        cache.close().unwrap();
        drop(cache);
        assert_eq!((page.len() as u64, tail.len()), (2 * PAGE - 700, 9));
        assert_eq!(pattern::verify(700, &page), Ok(()));
        assert_eq!(pattern::verify(50 * PAGE, &tail), Ok(()));
        assert_eq!(file.pin(0).err(), Some(ReadError::Closed));
        assert!(file.pin(50 * PAGE + 9).unwrap().is_empty());
    });
}
