//! Stores around a store: what a device does to the reader, without the device.
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

/// Carries single operations out at `store`, as many at once as threads ask for.
struct Through {
    store: Arc<dyn Store>,
    lanes: Mutex<Lanes>,
}

/// The inner queues, each with at most one operation. There are as many as operations were ever
/// carried out at the same time.
#[derive(Default)]
struct Lanes {
    all: Vec<Arc<dyn Queue>>,
    idle: Vec<Arc<dyn Queue>>,
    closed: bool,
}

impl Through {
    fn new(store: Arc<dyn Store>) -> Self {
        Self { store, lanes: Mutex::default() }
    }

    /// Carries `op` out on this thread.
    fn carry(&self, op: Op) -> Completion {
        let lane = self.lane();
        let mut out = Vec::with_capacity(1);
        lane.submit(op);
        lane.reap(Wait::One, &mut out);
        let done = out.pop().expect("a queue gives back what it was given");
        assert!(out.is_empty(), "a lane carries one operation");
        self.lanes.lock().idle.push(lane);
        done
    }

    fn lane(&self) -> Arc<dyn Queue> {
        if let Some(idle) = self.lanes.lock().idle.pop() {
            return idle;
        }
        let lane = self.store.queue(QueueKind::Caller);
        let mut lanes = self.lanes.lock();
        if lanes.closed {
            lane.close();
        }
        lanes.all.push(Arc::clone(&lane));
        lane
    }

    /// Ends what is being carried out as soon as the inner store can; later operations are
    /// cancelled.
    fn close(&self) {
        let lanes = {
            let mut lanes = self.lanes.lock();
            lanes.closed = true;
            lanes.all.clone()
        };
        for lane in lanes {
            lane.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ECANCELED, memory::Memory};

    #[test]
    fn one_operation_after_another_needs_one_inner_queue() {
        let through = Through::new(Arc::new(Memory::new(Vec::new(), 0)));
        for _ in 0..10 {
            assert_eq!(through.carry(Op::sync(1)).result, Ok(0));
        }
        assert_eq!(through.lanes.lock().all.len(), 1);
    }

    #[test]
    fn once_closed_old_and_new_inner_queues_cancel() {
        for before in [0, 1] {
            let through = Through::new(Arc::new(Memory::new(Vec::new(), 0)));
            (0..before).for_each(|_| assert_eq!(through.carry(Op::sync(1)).result, Ok(0)));
            through.close();
            assert_eq!(through.carry(Op::sync(1)).result, Err(ECANCELED), "{before}");
        }
    }
}
