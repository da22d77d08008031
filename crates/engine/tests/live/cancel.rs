//! Cancelling: a read that waits for another thread ends at once, and no page or frame is lost.

use std::{sync::Arc, thread};

use forerun_engine::{Cache, Cancel, Handle, ReadError};
use forerun_io::store::pattern::{self, Pattern};
use forerun_testkit::{until, within};

use crate::rig::{Gated, PAGE, check_quiet, fixed, read, settings};

/// Reads and checks, until cancelled.
fn read_until(
    file: &Handle,
    offset: u64,
    bytes: usize,
    cancel: &Cancel,
) -> Result<usize, ReadError> {
    let mut buf = vec![0; bytes];
    let count = file.read_at_cancellable(&mut buf, offset, cancel)?;
    assert_eq!(pattern::verify(offset, &buf[..count]), Ok(()));
    Ok(count)
}

#[test]
fn a_read_that_waits_for_anothers_fetch_is_cancelled_while_it_is_stuck() {
    within(|| {
        let cache = Cache::new(settings(64, "off")).unwrap();
        let (store, gate) = Gated::new(50 * PAGE);
        let (file, cancel) = (cache.open_store(store).unwrap(), Cancel::new());
        thread::scope(|scope| {
            let first = scope.spawn(|| read(&file, 0, 1_000));
            until(|| gate.submitted(false) == 1);
            let others: Vec<_> =
                (0..4).map(|_| scope.spawn(|| read_until(&file, 3, 700, &cancel))).collect();
            until(|| cache.stats().core.late_hits == 8);
            cancel.cancel();
            for other in others {
                assert_eq!(other.join().unwrap(), Err(ReadError::Cancelled));
            }
            gate.set(true, true);
            assert_eq!(first.join().unwrap(), Ok(1_000), "the one that was not cancelled");
        });
        assert_eq!(read(&file, 0, 1_000), Ok(1_000));
        assert_eq!(gate.log().len(), 1);
        drop(file);
        assert_eq!(cache.frames(), (64, 64));
    });
}

#[test]
fn a_read_that_waits_for_readahead_is_cancelled_while_it_is_stuck() {
    within(|| {
        let cache = Cache::new(settings(64, &fixed())).unwrap();
        let (store, gate) = Gated::new(100 * PAGE);
        gate.set(true, false);
        let (file, cancel) = (cache.open_store(store).unwrap(), Cancel::new());
        read(&file, 0, 512).unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(|| read_until(&file, 9 * PAGE, 100, &cancel));
            until(|| cache.stats().core.late_hits == 1);
            cancel.cancel();
            assert_eq!(reader.join().unwrap(), Err(ReadError::Cancelled));
        });
        gate.set(true, true);
        assert_eq!(read(&file, 9 * PAGE, 100), Ok(100), "it still arrives");
        assert_eq!(gate.submitted(false), 1);
    });
}

#[test]
fn a_read_that_fetches_is_cancelled_when_the_fetch_completes_and_its_page_stays() {
    within(|| {
        let cache = Cache::new(settings(64, "off")).unwrap();
        let (store, gate) = Gated::new(50 * PAGE);
        let (file, cancel) = (cache.open_store(store).unwrap(), Cancel::new());
        thread::scope(|scope| {
            let reader = scope.spawn(|| read_until(&file, 0, 10, &cancel));
            until(|| gate.submitted(false) == 1);
            cancel.cancel();
            gate.set(true, true);
            assert_eq!(reader.join().unwrap(), Err(ReadError::Cancelled));
        });
        assert_eq!((read(&file, 0, 10), gate.log().len()), (Ok(10), 1));
        let stats = cache.stats();
        assert_eq!((stats.requests, stats.failures, stats.bytes), (2, 1, 10));
    });
}

#[test]
fn a_read_that_waits_for_a_frame_is_cancelled() {
    within(|| {
        let cache = Cache::new(settings(1, "off")).unwrap();
        let file = cache.open_store(Arc::new(Pattern::new(50 * PAGE))).unwrap();
        let (pinned, cancel) = (file.pin(0).unwrap(), Cancel::new());
        thread::scope(|scope| {
            let reader = scope.spawn(|| read_until(&file, PAGE, 10, &cancel));
            until(|| cache.stats().core.demanded == 2);
            cancel.cancel();
            assert_eq!(reader.join().unwrap(), Err(ReadError::Cancelled));
        });
        drop(pinned);
        assert_eq!(read(&file, PAGE, 10), Ok(10));
    });
}

#[test]
fn a_token_that_was_cancelled_refuses_reads_at_once_and_no_others() {
    let cache = Cache::new(settings(64, "off")).unwrap();
    let file = cache.open_store(Arc::new(Pattern::new(50 * PAGE))).unwrap();
    let (cancel, fresh) = (Cancel::new(), Cancel::new());
    assert_eq!(read_until(&file, 0, 100, &cancel), Ok(100));
    assert!(!cancel.is_cancelled());
    cancel.clone().cancel();
    cancel.cancel();
    assert!(cancel.is_cancelled(), "clones are the same token");
    for offset in [0, 20 * PAGE, 50 * PAGE] {
        assert_eq!(read_until(&file, offset, 100, &cancel), Err(ReadError::Cancelled));
    }
    assert_eq!(cache.stats().requests, 1, "the cache counts none of them");
    assert_eq!(read_until(&file, 20 * PAGE, 100, &fresh), Ok(100));
}

#[test]
fn one_token_cancels_reads_of_several_caches() {
    within(|| {
        let cancel = Cancel::new();
        let rigs: Vec<_> = (0..3)
            .map(|_| {
                let cache = Cache::new(settings(64, "off")).unwrap();
                let (store, gate) = Gated::new(50 * PAGE);
                (cache.open_store(store).unwrap(), cache, gate)
            })
            .collect();
        thread::scope(|scope| {
            let mut waiting = Vec::new();
            for (file, cache, gate) in &rigs {
                scope.spawn(|| read(file, 0, 10).unwrap());
                until(|| gate.submitted(false) == 1);
                waiting.push(scope.spawn(|| read_until(file, 0, 10, &cancel)));
                until(|| cache.stats().core.late_hits == 1);
            }
            cancel.cancel();
            for reader in waiting {
                assert_eq!(reader.join().unwrap(), Err(ReadError::Cancelled));
            }
            for (_, _, gate) in &rigs {
                gate.set(true, true);
            }
        });
        drop(rigs);
        cancel.cancel();
    });
}

#[test]
fn a_cancel_that_races_with_the_bytes_gives_these_or_cancelled_and_nothing_leaks() {
    within(|| {
        let settings = settings(40, &fixed());
        let cache = Cache::new(settings.clone()).unwrap();
        let file = cache.open_store(Arc::new(Pattern::new(999 * PAGE + 9))).unwrap();
        let mut ends = [0; 2];
        for round in 0..1_000 {
            let (cancel, offset) = (Cancel::new(), round * 7_919 % 900 * PAGE);
            thread::scope(|scope| {
                let read = || read_until(&file, offset, 5 * 512 + 3, &cancel);
                let readers = [scope.spawn(read), scope.spawn(read)];
                let canceller = scope.spawn(|| {
                    // No yield: on a busy machine a yield takes as long as all other threads run.
                    for _ in 0..round % 50 * 50 {
                        std::hint::spin_loop();
                    }
                    cancel.cancel();
                });
                canceller.join().unwrap();
                for reader in readers {
                    match reader.join().unwrap() {
                        Ok(bytes) => assert_eq!(bytes, 5 * 512 + 3),
                        Err(error) => assert_eq!(error, ReadError::Cancelled),
                    }
                }
            });
            ends[usize::from(cache.stats().core.balanced())] += 1;
        }
        assert_eq!(ends, [0, 1_000], "the counts balance after each");
        assert_eq!(read(&file, 0, 30_000), Ok(30_000));
        drop(file);
        check_quiet(&cache, &settings);
        assert_eq!(cache.frames(), (40, 40), "all frames come back");
        assert_eq!(cache.stats().core.ahead_unread, 0);
    });
}
