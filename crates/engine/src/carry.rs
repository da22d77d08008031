//! What a reader or a writer that waits does itself: fetches from the store, and sleep.
//!
//! # Invariants
//! - A thread that waits for a queue pins no frame: `before_wait` releases what it has pinned.
//! - While a request waits for a frame, its thread sleeps no longer than until the deadline.

use std::{sync::Arc, time::Duration};

use forerun_core::units::Nanos;
use forerun_io::{store::Wait, sync::MutexGuard};

use crate::{
    file::{Fetch, File},
    queues::QueueLease,
    shared::Shared,
    state::State,
    waiters::SlotId,
};

/// The thread of a request: the cache, and the file of its fetches.
#[derive(Clone, Copy)]
pub(crate) struct Carrier<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) file: &'a File,
}

/// Fetches of a request in flight, and the queue that they were submitted to.
pub(crate) struct Batch<'a> {
    pub(crate) lease: QueueLease<'a>,
    fetches: Vec<Option<Fetch>>,
}

impl<'a> Carrier<'a> {
    /// Submits fetches. Calls `before_wait` before a wait for a queue.
    pub(crate) fn submit(&self, fetches: Vec<Fetch>, before_wait: &mut dyn FnMut()) -> Batch<'a> {
        let queues = &self.file.queues;
        let lease = queues.try_check_out().unwrap_or_else(|| {
            before_wait();
            self.shared.frames_unpinned();
            queues.check_out()
        });
        for (token, fetch) in (0..).zip(&fetches) {
            lease.queue.submit(fetch.op(token, self.shared.frames()));
        }
        Batch { lease, fetches: fetches.into_iter().map(Some).collect() }
    }

    /// Waits for all submitted fetches and reports each as it completes. Returns with the lock
    /// after the last.
    pub(crate) fn reap(&self, me: SlotId, batch: Batch<'_>) -> MutexGuard<'a, State> {
        let Batch { lease, mut fetches } = batch;
        let (mut in_flight, mut out) = (fetches.len(), Vec::with_capacity(fetches.len()));
        loop {
            lease.queue.reap(Wait::One, &mut out);
            assert!(!out.is_empty(), "a queue gives back what was submitted to it");
            for done in out.drain(..) {
                in_flight -= 1;
                let token = usize::try_from(done.op.token).expect("it counts the fetches");
                let fetch = fetches[token].take().expect("an operation completes once");
                if in_flight == 0 {
                    drop(lease);
                    return self.shared.report(Some(me), &fetch, done);
                }
                let state = self.shared.report(Some(me), &fetch, done);
                self.shared.settle(state);
            }
        }
    }
}

/// Sleeps until the slot is woken or the deadline has passed.
pub(crate) fn sleep(state: &mut MutexGuard<'_, State>, me: SlotId) {
    let wake = state.live.slots.sleep(me);
    match state.deadline() {
        None => wake.wait(state),
        Some(due) => {
            let left = due.since(state.now());
            if left > Nanos(0) {
                wake.wait_for(state, Duration::from_nanos(left.0));
            }
            if state.deadline().is_some_and(|due| due <= state.now()) {
                state.expire(me);
            }
        }
    }
}
