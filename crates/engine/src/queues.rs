//! A file's queues for readers: a bounded pool. One reader at a time checks out a queue.
//!
//! # Invariants
//! - A queue is returned empty: its reader reaps every operation that it submitted.
//! - A pool has at most `max` queues. A reader waits while all are checked out; a reader with a
//!   queue waits for the device alone, so one comes back.
//! # Locking
//! One lock, taken under no other; queues are created outside of it.

use std::sync::Arc;

use forerun_io::{
    store::{Queue, QueueKind, Store},
    sync::{Condvar, Mutex, MutexGuard},
};

/// See the module.
pub(crate) struct Queues {
    store: Arc<dyn Store>,
    max: u32,
    pool: Mutex<Pool>,
    back: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Arc<dyn Queue>>,
    created: u32,
}

/// A checked-out queue; dropping the lease returns it.
pub(crate) struct QueueLease<'a> {
    queues: &'a Queues,
    pub(crate) queue: Arc<dyn Queue>,
}

impl Queues {
    pub(crate) fn new(store: Arc<dyn Store>, max: u32) -> Self {
        assert!(max > 0, "a pool without queues");
        Self { store, max, pool: Mutex::default(), back: Condvar::new() }
    }

    /// Checks out a queue to submit to and reap from on this thread, if one is free.
    pub(crate) fn try_check_out(&self) -> Option<QueueLease<'_>> {
        self.take(self.pool.lock())
    }

    /// As [`Queues::try_check_out`], but waits until one is returned.
    pub(crate) fn check_out(&self) -> QueueLease<'_> {
        let mut pool = self.pool.lock();
        while pool.idle.is_empty() && pool.created == self.max {
            self.back.wait(&mut pool);
        }
        self.take(pool).expect("one is idle or may be created")
    }

    fn take(&self, mut pool: MutexGuard<'_, Pool>) -> Option<QueueLease<'_>> {
        if let Some(queue) = pool.idle.pop() {
            return Some(QueueLease { queues: self, queue });
        }
        if pool.created == self.max {
            return None;
        }
        pool.created += 1;
        drop(pool);
        Some(QueueLease { queues: self, queue: self.store.queue(QueueKind::Caller) })
    }
}

impl Drop for QueueLease<'_> {
    fn drop(&mut self) {
        self.queues.pool.lock().idle.push(Arc::clone(&self.queue));
        self.queues.back.notify_one();
    }
}
