//! A reader's queue: the reaper carries out what waits, on its own thread, as one batch.
//!
//! ```text
//!   submit --> waiting --reap--> a batch: preadv, or a ring checked out ------------> reaped
//!                      --start-> a ring, without waiting ----------------reap------> reaped
//! ```
//!
//! # Invariants
//! - `submit` makes no system call but those that settle an operation's route.
//! - A reaper sleeps only while another carries something out. What a thread has started it reaps
//!   itself, as its ring is bound to it.
//! - Once closed, nothing waits and nothing else begins.
//! # Locking
//! One lock a queue, held over no operation.

use std::{collections::VecDeque, iter, sync::Arc};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::pool::{Lease, Pool};
use crate::{
    scheduler::{QueueId, Scheduler},
    store::{
        Completion, Op, Queue, QueueKind, Wait,
        file::{OpenFile, Transfer},
    },
};

/// See the module.
pub(super) struct CallerQueue {
    file: Arc<OpenFile>,
    pool: Arc<Pool>,
    state: Mutex<State>,
    changed: Arc<Condvar>,
}

struct State {
    scheduler: Scheduler<Transfer>,
    /// The only queue of the scheduler.
    id: QueueId,
    /// A batch in flight. The thread that began it submits and finishes it.
    started: Option<Lease>,
}

impl CallerQueue {
    /// An empty queue.
    pub(super) fn new(file: Arc<OpenFile>, pool: Arc<Pool>) -> Self {
        let changed = Arc::new(Condvar::new());
        let mut scheduler = Scheduler::new(u32::MAX);
        let id = scheduler.open(QueueKind::Caller, Arc::clone(&changed));
        let state = Mutex::new(State { scheduler, id, started: None });
        Self { file, pool, state, changed }
    }
}

impl State {
    /// What waits, to be carried out.
    fn waiting(&mut self) -> impl Iterator<Item = Transfer> {
        iter::from_fn(|| self.scheduler.next(|_| 1)).map(|(_, transfer)| transfer)
    }

    /// Has `act` carry operations out without the lock, and append them to `out`.
    fn carry(
        mut state: MutexGuard<'_, Self>,
        out: &mut Vec<Completion>,
        act: impl FnOnce(&mut Vec<Completion>),
    ) {
        let before = out.len();
        MutexGuard::unlocked(&mut state, || act(out));
        assert!(out.len() > before, "a batch gives back what it has");
        let id = state.id;
        for _ in before..out.len() {
            state.scheduler.freed(1);
            state.scheduler.retire(id);
        }
    }
}

impl Queue for CallerQueue {
    fn submit(&self, op: Op) {
        op.check();
        let begun = Transfer::begin(op, &self.file);
        let mut state = self.state.lock();
        let id = state.id;
        match begun {
            Ok(transfer) => state.scheduler.submit(id, transfer),
            Err(done) => state.scheduler.submit_done(id, done),
        }
        drop(state);
        self.changed.notify_one();
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Completion>) {
        let mut state = self.state.lock();
        let id = state.id;
        loop {
            if state.scheduler.take(id, out) {
                return;
            }
            if let Some(mut started) = state.started.take_if(|started| started.is_mine()) {
                return State::carry(state, out, |out| started.finish(out));
            }
            let batch: VecDeque<_> = state.waiting().collect();
            if !batch.is_empty() {
                return State::carry(state, out, |out| self.pool.carry(batch, out));
            }
            if wait == Wait::Never || state.scheduler.is_idle(id) {
                return;
            }
            self.changed.wait(&mut state);
        }
    }

    fn start(&self) {
        let mut state = self.state.lock();
        let id = state.id;
        if state.started.is_some() || state.scheduler.waiting_count(id) == 0 {
            return;
        }
        let begun = self.pool.begin(state.waiting());
        let Some(mut started) = begun else { return };
        MutexGuard::unlocked(&mut state, || started.submit());
        assert!(state.started.is_none(), "the thread that starts a batch reaps it first");
        state.started = Some(started);
    }

    fn close(&self) {
        let mut state = self.state.lock();
        let id = state.id;
        state.scheduler.close(id);
    }
}
