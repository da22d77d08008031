//! Stores that panic: their operations fail, every request that waits for one gets its answer, and
//! the cache goes on.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};

use forerun_engine::{Access, Cache, ReadError, WriteError};
use forerun_io::{
    store::{Completion, Op, Queue, QueueKind, Store, StoreError, Wait, memory::Memory, pattern},
    wrap::fault::{Fault, Faults},
};
use forerun_testkit::{until, within};
use parking_lot::{Condvar, Mutex};

use crate::rig::{PAGE, check_quiet, fixed, read, settings};

const EIO: i32 = 5;

/// Where a store panics, and what becomes of the operations that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In `submit`, with the operation.
    Submit,
    /// In `reap`: they stay in the queue.
    Reap,
    /// In `reap`, which drops them.
    ReapLoses,
    /// In `reap`: the store keeps them for good.
    ReapKeeps,
}

/// A store whose queues of one kind stop at a place until they are to go on or to panic.
struct Trapped {
    inner: Memory,
    trap: Arc<Trap>,
}

struct Trap {
    place: Place,
    background: bool,
    state: Mutex<TrapState>,
    changed: Condvar,
    kept: Mutex<Vec<Completion>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrapState {
    Open,
    Shut,
    Panics,
}

struct TrappedQueue {
    inner: Arc<dyn Queue>,
    trap: Arc<Trap>,
    is_trapped: bool,
}

impl Trap {
    fn set(&self, state: TrapState) {
        *self.state.lock() = state;
        self.changed.notify_all();
    }

    /// Waits while it is shut; returns whether the caller is to panic, which one is.
    fn pass(&self) -> bool {
        let mut state = self.state.lock();
        while *state == TrapState::Shut {
            self.changed.wait(&mut state);
        }
        let panics = *state == TrapState::Panics;
        *state = TrapState::Open;
        panics
    }
}

fn trapped(place: Place, background: bool) -> (Arc<Trapped>, Arc<Trap>) {
    let mut contents = vec![0; 200 * 512];
    pattern::fill(0, &mut contents);
    let trap = Arc::new(Trap {
        place,
        background,
        state: Mutex::new(TrapState::Open),
        changed: Condvar::new(),
        kept: Mutex::default(),
    });
    let store = Trapped { inner: Memory::new(contents, 1 << 20), trap: Arc::clone(&trap) };
    (Arc::new(store), trap)
}

impl Store for Trapped {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.inner.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        let is_trapped = (kind != QueueKind::Caller) == self.trap.background;
        let (inner, trap) = (self.inner.queue(kind), Arc::clone(&self.trap));
        Arc::new(TrappedQueue { inner, trap, is_trapped })
    }
}

impl Queue for TrappedQueue {
    fn submit(&self, op: Op) {
        if self.is_trapped && self.trap.place == Place::Submit {
            assert!(!self.trap.pass(), "a panic in submit");
        }
        self.inner.submit(op);
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Completion>) {
        if !self.is_trapped || wait == Wait::Never || self.trap.place == Place::Submit {
            return self.inner.reap(wait, out);
        }
        let panics = self.trap.pass();
        if panics && self.trap.place != Place::Reap {
            let mut taken = Vec::new();
            self.inner.reap(wait, &mut taken);
            if self.trap.place == Place::ReapKeeps {
                self.trap.kept.lock().append(&mut taken);
            }
        }
        assert!(!panics, "a panic in reap");
        self.inner.reap(wait, out);
    }

    fn close(&self) {
        self.inner.close();
    }
}

#[test]
fn readers_of_a_demand_whose_store_panics_get_an_error_and_the_next_read_succeeds() {
    for place in [Place::Submit, Place::Reap, Place::ReapLoses, Place::ReapKeeps] {
        within(move || {
            let settings = settings(64, "off");
            let cache = Cache::new(settings.clone()).unwrap();
            let (store, trap) = trapped(place, false);
            let file = cache.open_store(store).unwrap();
            trap.set(TrapState::Shut);
            let expected = match place {
                Place::ReapKeeps => ReadError::Changed,
                _ => ReadError::Store { offset: 5 * PAGE, errno: EIO },
            };
            thread::scope(|scope| {
                let readers: Vec<_> =
                    (0..3).map(|_| scope.spawn(|| read(&file, 5 * PAGE, 10))).collect();
                until(|| cache.stats().core.demanded == 3);
                trap.set(TrapState::Panics);
                for reader in readers {
                    assert_eq!(reader.join().unwrap(), Err(expected.clone()), "{place:?}");
                }
            });
            assert_eq!(read(&file, 5 * PAGE, 10), Ok(10), "{place:?}");
            drop(file);
            check_quiet(&cache, &settings);
            let lost = u32::from(place == Place::ReapKeeps);
            assert_eq!(cache.frames(), (64, 64 - lost), "{place:?}");
        });
    }
}

#[test]
fn readahead_whose_store_panics_is_dropped_and_its_readers_fetch_themselves() {
    for place in [Place::Submit, Place::Reap, Place::ReapLoses] {
        within(move || {
            let settings = settings(64, &fixed());
            let cache = Cache::new(settings.clone()).unwrap();
            let (store, trap) = trapped(place, true);
            let file = cache.open_store(store).unwrap();
            trap.set(TrapState::Shut);
            thread::scope(|scope| {
                let first = scope.spawn(|| read(&file, 0, 512));
                until(|| cache.stats().core.ahead_unread > 0);
                let late = scope.spawn(|| read(&file, 9 * PAGE, 100));
                until(|| cache.stats().core.late_hits == 1);
                trap.set(TrapState::Panics);
                assert_eq!(first.join().unwrap(), Ok(512), "{place:?}");
                assert_eq!(late.join().unwrap(), Ok(100), "{place:?}");
            });
            for page in 0..200 {
                assert_eq!(read(&file, page * PAGE, 512), Ok(512), "{place:?}");
            }
            let stats = cache.stats().core;
            assert!(stats.ahead_failed > 0 && stats.failures == 0, "{place:?}: {stats:?}");
            drop(file);
            check_quiet(&cache, &settings);
            assert_eq!(cache.frames(), (64, 64), "{place:?}");
        });
    }
}

#[test]
fn a_flush_whose_store_panics_fails_and_the_bytes_stay() {
    for place in [Place::Submit, Place::Reap, Place::ReapLoses] {
        within(move || {
            let cache = Cache::new(settings(64, "off")).unwrap();
            let (store, trap) = trapped(place, true);
            let memory = store.inner.clone();
            let file = cache.open_store_with(store, Access::ReadWrite).unwrap();
            file.write_at(&[7; 700], 100).unwrap();
            trap.set(TrapState::Panics);
            let flushed = file.flush().expect_err("the store has not written");
            assert!(matches!(flushed, WriteError::Writeback { .. }), "{place:?}: {flushed}");
            let mut buf = [0; 700];
            assert_eq!((file.read_at(&mut buf, 100), buf), (Ok(700), [7; 700]), "{place:?}");
            if place == Place::Submit {
                file.flush().unwrap();
                assert_eq!(memory.contents()[100..800], [7; 700]);
            } else {
                file.flush().expect_err("its queue is used no more");
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(file)));
                dropped.expect_err("the last handle says that bytes are not durable");
                cache.close().unwrap_err();
            }
        });
    }
}

#[test]
fn a_panic_below_a_wrapper_is_an_error_of_its_operation() {
    within(|| {
        let settings = settings(64, "off");
        let cache = Cache::new(settings.clone()).unwrap();
        let (store, trap) = trapped(Place::ReapLoses, false);
        let fault = Fault::new(store, Faults::default(), 1);
        let file = cache.open_store(Arc::new(fault)).unwrap();
        trap.set(TrapState::Panics);
        let error = ReadError::Store { offset: 0, errno: EIO };
        assert_eq!(read(&file, 0, 1_000), Err(error));
        assert_eq!(read(&file, 0, 1_000), Ok(1_000));
        drop(file);
        check_quiet(&cache, &settings);
        assert_eq!(cache.frames(), (64, 64));
    });
}
