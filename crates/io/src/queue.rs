//! A queue over operations that block: the reaper carries them out, or a few threads do.
//!
//! ```text
//!   submit -> scheduler -> carried out by the reaper ------------------> reaped
//!                      \-> carried out by one of `depth` threads -> ready -> reaped
//! ```
//!
//! A thread is started when an operation waits and none is idle, so a deep queue that is used
//! shallowly costs little. Where the system refuses a thread, those there are do the work; where
//! it refuses the first, what waits fails with `EAGAIN`.
//!
//! # Invariants
//! - As of `scheduler.rs`, whose only queue this is: at most `depth` operations are carried out by
//!   threads, in the order of submission.
//! - A reaper sleeps only while something is in flight: the end of the last operation wakes all.
//! - Once closed, nothing waits and no thread begins another operation.
//! # Locking
//! One lock a queue, held over no operation. `Carry::plan` and `Carry::interrupt` run outside it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use crate::{
    process::OwnerProcess,
    scheduler::{QueueId, Scheduled, Scheduler},
    store::{Completion, Op, Queue, QueueKind, Wait},
};

/// How a store carries out one operation, blocking.
pub(crate) trait Carry: Send + Sync + 'static {
    /// What is decided about an operation when it is submitted, in the order of submission.
    type Plan: Send + Default;

    /// Decides what is to be done about `op`. Called once for each, before it waits.
    fn plan(&self, op: &Op) -> Self::Plan {
        let _ = op;
        Self::Plan::default()
    }

    /// Carries `op` out on the calling thread.
    fn carry(&self, op: Op, plan: Self::Plan) -> Completion;

    /// The queue was closed: what is being carried out should end soon.
    fn interrupt(&self) {}
}

/// A queue of `kind` over `carry`.
pub(crate) fn open<C: Carry>(carry: C, kind: QueueKind) -> Arc<dyn Queue> {
    Arc::new(WorkerQueue::new(carry, kind))
}

/// The queue as its owner has it: it ends the threads when it is dropped.
struct WorkerQueue<C: Carry> {
    shared: Arc<Shared<C>>,
    home: OwnerProcess,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

struct Shared<C: Carry> {
    carry: C,
    /// Whether threads carry out; else the reaper does.
    background: bool,
    state: Mutex<State<C::Plan>>,
    /// Something waits, or the queue was closed: for the threads.
    work: Condvar,
    /// Something is done, waits, or nothing is in flight any more: for the reapers.
    changed: Arc<Condvar>,
}

struct State<P> {
    scheduler: Scheduler<(Op, P)>,
    /// The only queue of the scheduler.
    id: QueueId,
    threads: u32,
    idle: u32,
}

impl<P> Scheduled for (Op, P) {
    fn failed(self, errno: i32) -> Completion {
        self.0.failed(errno)
    }
}

impl<P> State<P> {
    /// Takes the next operation to carry out.
    fn begin(&mut self) -> Option<(Op, P)> {
        self.scheduler.next(|_| 1).map(|(_, next)| next)
    }
}

impl<C: Carry> Queue for WorkerQueue<C> {
    fn submit(&self, op: Op) {
        op.check();
        let plan = self.shared.carry.plan(&op);
        let mut state = self.shared.state.lock();
        assert!(state.idle <= state.threads, "an idle thread is one of the threads");
        let id = state.id;
        if self.shared.background && self.home.is_forked() {
            state.scheduler.submit_done(id, op.cancelled()); // The threads are the parent's.
            return;
        }
        state.scheduler.submit(id, (op, plan));
        if !self.shared.background {
            self.shared.changed.notify_one();
            return;
        }
        self.shared.work.notify_one();
        let waiting = state.scheduler.waiting_count(id);
        if state.threads < state.scheduler.depth(id) && waiting > state.idle as usize {
            state.threads += 1;
            drop(state);
            self.start_thread();
        }
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Completion>) {
        let mut state = self.shared.state.lock();
        let id = state.id;
        loop {
            if state.scheduler.take(id, out) {
                return;
            }
            if !self.shared.background
                && let Some((op, plan)) = state.begin()
            {
                out.push(MutexGuard::unlocked(&mut state, || self.shared.carry_out(op, plan)));
                state.scheduler.freed(1);
                state.scheduler.retire(id);
                return;
            }
            if wait == Wait::Never || state.scheduler.is_idle(id) {
                return;
            }
            self.shared.changed.wait(&mut state);
        }
    }

    fn set_depth(&self, depth: u32) {
        let mut state = self.shared.state.lock();
        let id = state.id;
        state.scheduler.set_depth(id, depth);
    }

    fn close(&self) {
        let mut state = self.shared.state.lock();
        let id = state.id;
        state.scheduler.close(id);
        drop(state);
        self.shared.carry.interrupt();
        self.shared.work.notify_all();
    }
}

impl<C: Carry> WorkerQueue<C> {
    fn new(carry: C, kind: QueueKind) -> Self {
        let changed = Arc::new(Condvar::new());
        let mut scheduler = Scheduler::new(u32::MAX);
        let id = scheduler.open(kind, Arc::clone(&changed));
        let shared = Arc::new(Shared {
            carry,
            background: kind != QueueKind::Caller,
            state: Mutex::new(State { scheduler, id, threads: 0, idle: 0 }),
            work: Condvar::new(),
            changed,
        });
        Self { shared, home: OwnerProcess::current(), threads: Mutex::default() }
    }

    /// Starts a thread, which is counted already.
    fn start_thread(&self) {
        let shared = Arc::clone(&self.shared);
        let started =
            thread::Builder::new().name("forerun-io".into()).spawn(move || shared.serve());
        let Ok(thread) = started else {
            self.shared.thread_refused();
            return;
        };
        self.threads.lock().push(thread);
    }
}

impl<C: Carry> Shared<C> {
    /// Carries `op` out. Where the store panics, the operation fails, and its frames are gone with
    /// what the store made of it.
    fn carry_out(&self, op: Op, plan: C::Plan) -> Completion {
        let (token, kind, offset) = (op.token, op.kind, op.offset);
        let carried = catch_unwind(AssertUnwindSafe(|| self.carry.carry(op, plan)));
        carried.unwrap_or_else(|_| {
            let op = Op { token, kind, offset, bytes: 0, frames: Vec::new() };
            op.failed(Errno::IO.raw_os_error())
        })
    }

    /// Carries operations out until the queue is closed: the body of a thread.
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            let id = state.id;
            if let Some((op, plan)) = state.begin() {
                let done = MutexGuard::unlocked(&mut state, || self.carry_out(op, plan));
                state.scheduler.freed(1);
                state.scheduler.complete(id, done);
            } else if state.scheduler.is_closed(id) {
                return;
            } else {
                state.idle += 1;
                self.work.wait(&mut state);
                state.idle -= 1;
            }
        }
    }

    /// The system refused a thread.
    fn thread_refused(&self) {
        let mut state = self.state.lock();
        assert!(state.threads > 0, "the refused thread was counted");
        state.threads -= 1;
        if state.threads == 0 {
            state.scheduler.fail_waiting(Errno::AGAIN.raw_os_error());
        }
    }
}

impl<C: Carry> Drop for WorkerQueue<C> {
    fn drop(&mut self) {
        if self.home.is_forked() {
            return; // The threads are the parent's.
        }
        self.close();
        for thread in self.threads.get_mut().drain(..) {
            thread.join().expect("a store's panic ends at its operation");
        }
    }
}

#[cfg(test)]
mod tests;
