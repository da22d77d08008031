//! A file's queues for readers: a bounded pool. One reader at a time checks out a queue.
//!
//! # Invariants
//! - A queue is returned empty: its reader reaps every operation that it submitted. One whose store
//!   has panicked is not returned.
//! - A pool has at most `max` queues. A reader that finds none waits in its slot (`carry.rs`), and
//!   takes what is served to it meanwhile; a reader with a queue waits for the device alone, so one
//!   comes back.
//! # Locking
//! One lock, which may be taken under the state's; queues are created outside of both.

use std::sync::Arc;

use forerun_io::{
    store::{Completion, Queue, QueueKind, Store},
    sync::Mutex,
};

use crate::guard::{salvage, unless_panics};

/// See the module.
pub(crate) struct Queues {
    store: Arc<dyn Store>,
    max: u32,
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Arc<dyn Queue>>,
    /// Queues that are checked out or idle.
    count: u32,
}

/// A checked-out queue; dropping the lease returns it.
pub(crate) struct QueueLease<'a> {
    queues: &'a Queues,
    /// `None` before the first use of a new queue, and after a panic of its store.
    queue: Option<Arc<dyn Queue>>,
    broken: bool,
}

impl Queues {
    pub(crate) fn new(store: Arc<dyn Store>, max: u32) -> Self {
        assert!(max > 0, "a pool without queues");
        Self { store, max, pool: Mutex::default() }
    }

    /// Checks out a queue to submit to and reap from on this thread, if one is free.
    pub(crate) fn check_out(&self) -> Option<QueueLease<'_>> {
        let mut pool = self.pool.lock();
        let queue = pool.idle.pop();
        if queue.is_none() {
            if pool.count == self.max {
                return None;
            }
            pool.count += 1;
        }
        Some(QueueLease { queues: self, queue, broken: false })
    }
}

impl QueueLease<'_> {
    /// The result of `call` with the queue; `None` where its store panicked, now or before.
    pub(crate) fn call<T>(&mut self, call: impl FnOnce(&dyn Queue) -> T) -> Option<T> {
        if self.broken {
            return None;
        }
        let store = &self.queues.store;
        let result = unless_panics(|| {
            let queue = self.queue.get_or_insert_with(|| store.queue(QueueKind::Caller));
            call(&**queue)
        });
        self.broken = result.is_none();
        result
    }

    /// The operations that a queue whose store has panicked still gives back.
    pub(crate) fn salvage(&mut self) -> Vec<Completion> {
        assert!(self.broken, "a queue in order is reaped");
        self.queue.take().map_or_else(Vec::new, |queue| salvage(&*queue))
    }
}

impl Drop for QueueLease<'_> {
    fn drop(&mut self) {
        let mut pool = self.queues.pool.lock();
        match self.queue.take() {
            Some(queue) if !self.broken => pool.idle.push(queue),
            Some(_) | None => pool.count -= 1,
        }
    }
}
