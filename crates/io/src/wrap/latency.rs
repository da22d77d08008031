//! A store behind a model of a device, in real time: what the model says takes 8 ms takes 8 ms.
//!
//! One device serves all queues of the store. A thread of its own hands an operation back once
//! the model's moment has come; only then the reaper moves the bytes, from the inner store. Each
//! moment is absolute, so a late wake-up delays one operation and not those behind it.
//!
//! ```text
//!   submit -> at the device ................. -> due -> reap: inner store moves the bytes
//!             thread:  sleep ------------> spin ^
//!                                          60 us
//! ```
//!
//! # Invariants
//! - No operation comes back before the model says so.
//! - An operation past the device's end fails with `ENXIO`, whatever the inner store holds there.
//! - Syncs and operations of no bytes are due at once: the models know no flush.
//! - A write is in the inner store when it comes back, not earlier.
//! - This file and `reaper/clock.rs` alone read a clock. The rest of the wrapper computes with
//!   moments that are its arguments (`latency/scheduler.rs`).
//! # Locking
//! One lock, the scheduler's, for the device and all queues; never held over a move of bytes, a
//! sleep or a spin.

#![expect(clippy::disallowed_types, reason = "the clock of this wrapper")]

mod scheduler;

use std::{
    mem,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use forerun_core::{
    device::{Device, IN_FLIGHT_MAX},
    units::Nanos,
};
use parking_lot::{Condvar, Mutex, MutexGuard};

use scheduler::{Bounds, DeviceScheduler};
pub use scheduler::{DeviceCounts, DeviceLog, DeviceRecord};

use super::InnerStore;
use crate::scheduler::QueueId;
use crate::store::{Completion, Op, Queue, QueueKind, Store, StoreError, Wait};

/// See the module. Its queues are closed when it goes.
pub struct Latency {
    inner: Arc<dyn Store>,
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Latency {
    /// `inner` behind `device`, whose time begins now.
    ///
    /// # Panics
    /// The system has no thread for the device.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, device: Device) -> Self {
        let shared = Arc::new(Shared {
            scheduler: Mutex::new(DeviceScheduler::new(device, BOUNDS)),
            wake: Condvar::new(),
            due: AtomicU64::new(u64::MAX),
            begun: Instant::now(),
        });
        let served = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("forerun-device".into())
            .spawn(move || served.serve())
            .expect("a thread for the device");
        Self { inner, shared, thread: Some(thread) }
    }

    /// Takes the log: every request that the device completed since the log was last taken, as
    /// far as it fits the bound.
    #[must_use]
    pub fn log(&self) -> DeviceLog {
        mem::take(&mut self.shared.scheduler.lock().log)
    }

    /// The requests that the device got since it began.
    #[must_use]
    pub fn counts(&self) -> DeviceCounts {
        self.shared.scheduler.lock().counts
    }

    /// The time of the device: what the log's moments are to be compared with.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.shared.now()
    }
}

impl Store for Latency {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.inner.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        let changed = Arc::new(Condvar::new());
        let id = self.shared.scheduler.lock().open(kind, Arc::clone(&changed));
        let store = InnerStore::new(Arc::clone(&self.inner));
        Arc::new(DeviceQueue { shared: Arc::clone(&self.shared), id, changed, store })
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }
}

impl Drop for Latency {
    fn drop(&mut self) {
        self.shared.scheduler.lock().end();
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the device's thread does not panic");
        }
    }
}

struct Shared {
    scheduler: Mutex<DeviceScheduler>,
    /// For the device's thread: there is something earlier to do, or nothing any more.
    wake: Condvar,
    /// The next completion, for the thread while it spins without the lock; a hint, which the
    /// thread checks under the lock.
    due: AtomicU64,
    begun: Instant,
}

impl Shared {
    fn now(&self) -> Nanos {
        let since = self.begun.elapsed().as_nanos();
        Nanos(u64::try_from(since).expect("a run of less than 500 years"))
    }

    /// Hands `op` to the device, and wakes its thread if that brings the next moment forward.
    fn submit(&self, id: QueueId, op: Op) {
        let mut scheduler = self.scheduler.lock();
        let now = self.now();
        scheduler.submit(now, id, op);
        let due = scheduler.device.next().map_or(u64::MAX, |due| due.0);
        let before = self.due.swap(due, Ordering::Relaxed);
        drop(scheduler);
        if due < before {
            self.wake.notify_one();
        }
    }

    /// The device's thread.
    fn serve(&self) {
        // Without it the kernel may wake the thread 50 us late, and the thread spins a little less.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut scheduler = self.scheduler.lock();
        while !scheduler.ended {
            let now = self.now();
            scheduler.advance(now);
            let next = scheduler.device.next();
            self.due.store(next.map_or(u64::MAX, |due| due.0), Ordering::Relaxed);
            match next.map(|due| due.since(now).0) {
                None => self.wake.wait(&mut scheduler),
                Some(left) if left > SPIN_NS => {
                    let sleep = Duration::from_nanos(left - SPIN_NS);
                    self.wake.wait_for(&mut scheduler, sleep);
                }
                Some(_) => MutexGuard::unlocked(&mut scheduler, || self.spin()),
            }
        }
    }

    /// Waits for the next moment as long as that is near.
    fn spin(&self) {
        loop {
            let left = self.due.load(Ordering::Relaxed).saturating_sub(self.now().0);
            if left == 0 || left > SPIN_NS {
                return;
            }
            std::hint::spin_loop();
        }
    }
}

/// One queue of the store.
struct DeviceQueue {
    shared: Arc<Shared>,
    id: QueueId,
    /// For its reapers, with the scheduler's lock.
    changed: Arc<Condvar>,
    store: InnerStore,
}

impl Queue for DeviceQueue {
    fn submit(&self, op: Op) {
        op.check();
        self.shared.submit(self.id, op);
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Completion>) {
        let mut due = Vec::new();
        let mut scheduler = self.shared.scheduler.lock();
        loop {
            let cancelled_before = out.len();
            scheduler.take(self.id, &mut due, out);
            if !due.is_empty() {
                let count = due.len();
                MutexGuard::unlocked(&mut scheduler, || {
                    out.extend(due.drain(..).map(|op| self.store.carry(op)));
                });
                scheduler.scheduler.finish(self.id, count);
                return;
            }
            if out.len() > cancelled_before
                || wait == Wait::Never
                || scheduler.scheduler.is_idle(self.id)
            {
                return;
            }
            self.changed.wait(&mut scheduler);
        }
    }

    fn set_depth(&self, depth: u32) {
        self.shared.scheduler.lock().scheduler.set_depth(self.id, depth);
    }

    fn close(&self) {
        self.shared.scheduler.lock().close(self.id);
        self.store.close();
    }
}

impl Drop for DeviceQueue {
    fn drop(&mut self) {
        self.shared.scheduler.lock().forget(self.id);
    }
}

/// How long before its moment the thread stops sleeping: more than a wake-up takes on most
/// virtual machines.
const SPIN_NS: u64 = 60_000;

/// The device's own bound on its queue, and a log of some hundred megabytes at worst.
const BOUNDS: Bounds = Bounds { requests_max: IN_FLIGHT_MAX, log_records_max: 1 << 20 };

#[cfg(test)]
mod tests {
    use forerun_core::device;

    use super::*;
    use crate::store::pattern::Pattern;

    #[test]
    fn a_queue_that_is_dropped_is_forgotten() {
        let device = device::make("optane", 1).unwrap();
        let store = Latency::new(Arc::new(Pattern::new(1)), device);
        let kept = store.queue(QueueKind::Caller);
        for _ in 0..10 {
            drop(store.queue(QueueKind::Background { depth: 1 }));
        }
        assert_eq!(store.shared.scheduler.lock().queue_count(), 1);
        drop(kept);
        assert_eq!(store.shared.scheduler.lock().queue_count(), 0);
    }
}
