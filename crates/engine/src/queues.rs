//! A file's queues for readers: a bounded pool, each lent to one reader at a time.
//!
//! # Invariants
//! - A queue goes back empty: whoever has it reaps all that they submitted.
//! - There are never more than `max`; who finds all lent waits for one to come back, and those
//!   who have them wait for their device alone.
//! # Locking
//! One lock, taken under no other; queues are made outside of it.

use std::sync::Arc;

use forerun_io::store::{Queue, QueueKind, Store};
use parking_lot::{Condvar, Mutex};

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
    made: u32,
}

/// A queue on loan; it goes back when this goes.
pub(crate) struct Lent<'a> {
    queues: &'a Queues,
    pub(crate) queue: Arc<dyn Queue>,
}

impl Queues {
    pub(crate) fn new(store: Arc<dyn Store>, max: u32) -> Self {
        assert!(max > 0, "a pool that lends nothing");
        Self { store, max, pool: Mutex::default(), back: Condvar::new() }
    }

    /// A queue to submit to and reap from on this thread.
    pub(crate) fn lend(&self) -> Lent<'_> {
        let mut pool = self.pool.lock();
        loop {
            if let Some(queue) = pool.idle.pop() {
                return Lent { queues: self, queue };
            }
            if pool.made < self.max {
                pool.made += 1;
                drop(pool);
                return Lent { queues: self, queue: self.store.queue(QueueKind::Caller) };
            }
            self.back.wait(&mut pool);
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.queues.pool.lock().idle.push(Arc::clone(&self.queue));
        self.queues.back.notify_one();
    }
}
