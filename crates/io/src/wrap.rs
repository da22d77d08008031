//! Stores around a store: they add what a device does to a reader, without the device.
//!
//! A wrapper is a [`Store`] itself, so wrappers nest in any order and no
//! store has a test mode of its own.
//!
//! ```text
//!   engine -> fault -> latency -> memory
//! ```
//!
//! # Invariants
//! - The bytes are the inner store's; a wrapper changes when they come and whether they come. Only
//!   `volatile` holds bytes of its own: those that were written and not synced.
//! - An operation reaches the inner store when it is carried out, on a queue of
//!   [`QueueKind::Caller`](crate::store::QueueKind) that no other operation uses at that moment.

pub mod fault;
pub mod latency;
pub mod record;
pub mod volatile;

use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::{Completion, Op, Queue, QueueKind, Store, Wait};

/// A way to `store` that carries out single operations, one on each thread that calls.
struct InnerStore {
    store: Arc<dyn Store>,
    queues: Mutex<InnerQueues>,
}

/// The queues of the inner store, each with at most one operation in flight. There are as many as
/// operations were ever carried out at the same time.
#[derive(Default)]
struct InnerQueues {
    all: Vec<Arc<dyn Queue>>,
    idle: Vec<Arc<dyn Queue>>,
    closed: bool,
}

impl InnerStore {
    fn new(store: Arc<dyn Store>) -> Self {
        Self { store, queues: Mutex::default() }
    }

    /// Carries `op` out on this thread.
    fn carry(&self, op: Op) -> Completion {
        let queue = self.queue();
        let mut out = Vec::with_capacity(1);
        queue.submit(op);
        queue.reap(Wait::One, &mut out);
        let done = out.pop().expect("a queue gives back what it was given");
        assert!(out.is_empty(), "an inner queue carries one operation");
        let mut queues = self.queues.lock();
        queues.idle.push(queue);
        assert!(queues.idle.len() <= queues.all.len(), "an inner queue is idle once");
        drop(queues);
        done
    }

    fn queue(&self) -> Arc<dyn Queue> {
        if let Some(idle) = self.queues.lock().idle.pop() {
            return idle;
        }
        let queue = self.store.queue(QueueKind::Caller);
        let mut queues = self.queues.lock();
        if queues.closed {
            queue.close();
        }
        queues.all.push(Arc::clone(&queue));
        queue
    }

    /// Ends what is being carried out as soon as the inner store can; later operations are
    /// cancelled.
    fn close(&self) {
        let queues = {
            let mut queues = self.queues.lock();
            queues.closed = true;
            queues.all.clone()
        };
        for queue in queues {
            queue.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ECANCELED, memory::Memory};

    #[test]
    fn one_operation_after_another_needs_one_inner_queue() {
        let inner = InnerStore::new(Arc::new(Memory::new(Vec::new(), 0)));
        for _ in 0..10 {
            assert_eq!(inner.carry(Op::sync(1)).result, Ok(0));
        }
        assert_eq!(inner.queues.lock().all.len(), 1);
    }

    #[test]
    fn once_closed_old_and_new_inner_queues_cancel() {
        for before in [0, 1] {
            let inner = InnerStore::new(Arc::new(Memory::new(Vec::new(), 0)));
            (0..before).for_each(|_| assert_eq!(inner.carry(Op::sync(1)).result, Ok(0)));
            inner.close();
            assert_eq!(inner.carry(Op::sync(1)).result, Err(ECANCELED), "{before}");
        }
    }
}
