//! Ports: what a reaper waits on. Groups of operations go out, completions come in.
//!
//! ```text
//!   port        poll without a system call   sleep that a completion ends   timer alone   blocks
//!   io_uring    yes                          yes, from Linux 5.11 on        yes           yes
//!   queue       -                            -                              -             yes
//!   model       yes                          yes                            yes           yes
//! ```
//!
//! A *queue* is that of any store, threads and `preadv` among them. A policy that needs what its
//! port lacks waits by interrupt instead ([`Port::features`], [`missing`]).
//!
//! # Invariants
//! - What was submitted comes back exactly once, from whichever call, as long as its thread polls
//!   or waits; a port that is dropped waits for what the kernel may still write to.
//! - A port is used by one thread.

use std::{sync::Arc, time::Duration};

use forerun_core::reap::Plan;

use crate::store::{Completion, Op, Queue, QueueKind, Store, Wait};

/// See the module.
pub trait Port {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// The ways to wait on it.
    fn features(&self) -> PortFeatures;

    /// Operations that it takes at once.
    fn capacity(&self) -> usize;

    /// Hands a group over. What needs no waiting may be appended to `out` at once.
    ///
    /// # Panics
    /// It is more than its [capacity](Self::capacity), or something is in flight.
    fn submit(&mut self, group: Vec<Op>, out: &mut Vec<Completion>);

    /// Operations that were submitted and did not come back.
    fn in_flight(&self) -> usize;

    /// Polls: takes what is complete, without waiting.
    fn poll(&mut self, out: &mut Vec<Completion>);

    /// Blocks until all is complete, for `time` at most, and takes what is; it may come back early.
    fn wait(&mut self, time: Option<Duration>, out: &mut Vec<Completion>);
}

/// The ways to wait on a port, beside blocking until all is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortFeatures {
    /// Completions can be polled for without a system call.
    pub poll: bool,
    /// Blocking may end at a time that is given.
    pub timed: bool,
}

/// What `plan` needs and a port with these `features` has not.
#[must_use]
pub fn missing(plan: Plan, features: PortFeatures) -> Option<&'static str> {
    let look = (!features.poll).then_some("completions that can be seen without a system call");
    match plan {
        Plan::Interrupt => None,
        Plan::Spin { .. } | Plan::SleepSpin { roused: false, .. } => look,
        Plan::SleepSpin { roused: true, .. } => {
            look.or((!features.timed).then_some("wait that ends at a time"))
        }
    }
}

/// The queue of any store as a port: it blocks.
pub struct QueuePort {
    name: &'static str,
    queue: Arc<dyn Queue>,
    depth: usize,
    in_flight: usize,
}

impl QueuePort {
    /// A port of `store`, which reports call `name`, for `depth` operations at once. A lone one is
    /// carried out by the thread that waits for it.
    ///
    /// # Panics
    /// `depth` is 0.
    #[must_use]
    pub fn new(name: &'static str, store: &dyn Store, depth: u32) -> Self {
        assert!(depth > 0, "a port for nothing");
        let mut queue = store.queue(QueueKind::Caller);
        if depth > 1 {
            let background = store.queue(QueueKind::Background { depth });
            // A queue that shares its reaper would give back the operations of other queues.
            if background.reaper().is_none() {
                queue = background;
            }
        }
        Self { name, queue, depth: depth as usize, in_flight: 0 }
    }

    fn reap(&mut self, wait: Wait, out: &mut Vec<Completion>) {
        let before = out.len();
        self.queue.reap(wait, out);
        assert!(out.len() - before <= self.in_flight, "a completion comes once");
        self.in_flight -= out.len() - before;
    }
}

impl Port for QueuePort {
    fn name(&self) -> &'static str {
        self.name
    }

    fn features(&self) -> PortFeatures {
        PortFeatures { poll: false, timed: false }
    }

    fn capacity(&self) -> usize {
        self.depth
    }

    fn submit(&mut self, group: Vec<Op>, _: &mut Vec<Completion>) {
        assert!(self.in_flight == 0 && group.len() <= self.depth, "more than its capacity");
        self.in_flight = group.len();
        for op in group {
            self.queue.submit(op);
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn poll(&mut self, out: &mut Vec<Completion>) {
        self.reap(Wait::Never, out);
    }

    fn wait(&mut self, _: Option<Duration>, out: &mut Vec<Completion>) {
        while self.in_flight > 0 {
            self.reap(Wait::One, out);
        }
    }
}

impl Drop for QueuePort {
    /// The queue may be one of many of its store, which go on.
    fn drop(&mut self) {
        self.queue.close();
    }
}

#[cfg(test)]
mod tests {
    use forerun_core::units::Nanos;

    use super::*;

    #[test]
    fn a_plan_needs_what_it_waits_by() {
        let budget = Nanos(1);
        let sleep = |roused| Plan::SleepSpin { until: Nanos(1), roused, budget };
        #[rustfmt::skip]
        let rows = [ // plan                  look    timed   is there
            (Plan::Interrupt,                 false,  false,  true),
            (Plan::Spin { budget },           true,   false,  true),
            (Plan::Spin { budget },           false,  true,   false),
            (sleep(false),                    true,   false,  true),
            (sleep(false),                    false,  true,   false),
            (sleep(true),                     true,   true,   true),
            (sleep(true),                     true,   false,  false),
            (sleep(true),                     false,  true,   false),
        ];
        for (plan, look, timed, expected) in rows {
            let found = missing(plan, PortFeatures { poll: look, timed });
            assert_eq!(found.is_none(), expected, "{plan:?}, {look}, {timed}: {found:?}");
        }
    }
}
