//! A reader's queue: the reaper carries out what waits, on its own thread, as one batch.
//!
//! ```text
//!   submit --> waiting --reap--> a batch: preadv, or a ring or context checked out --> reaped
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

use std::{collections::VecDeque, mem, sync::Arc};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{Opened, Transfer};
use crate::{
    scheduler::Scheduled,
    store::{Done, ECANCELED, Op, Queue, Wait},
};

/// What carries out the batches of readers.
pub(crate) trait Batches: Send + Sync + 'static {
    /// A batch that was started.
    type Started: Started;

    /// Carries `batch` out on this thread.
    fn carry(self: &Arc<Self>, batch: VecDeque<Transfer>, out: &mut Vec<Done>);

    /// Takes some of `waiting` to be started, if it can.
    fn begin(self: &Arc<Self>, waiting: &mut VecDeque<Transfer>) -> Option<Self::Started>;
}

/// A batch in flight. The thread that began it submits and finishes it.
pub(crate) trait Started: Send {
    /// Hands the batch to the kernel.
    fn submit(&mut self);

    /// Whether this thread began it.
    fn is_mine(&self) -> bool;

    /// Waits for all of it.
    fn finish(self, out: &mut Vec<Done>);
}

/// See the module.
pub(crate) struct CallerQueue<B: Batches> {
    file: Arc<Opened>,
    batches: Arc<B>,
    state: Mutex<State<B::Started>>,
    changed: Condvar,
}

struct State<S> {
    waiting: VecDeque<Transfer>,
    done: Vec<Done>,
    started: Option<S>,
    /// Reapers that carry something out.
    carrying: u32,
    closed: bool,
}

impl<B: Batches> CallerQueue<B> {
    /// An empty queue.
    pub(crate) fn new(file: Arc<Opened>, batches: Arc<B>) -> Self {
        let (waiting, done) = (VecDeque::new(), Vec::new());
        let state = State { waiting, done, started: None, carrying: 0, closed: false };
        Self { file, batches, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Has `act` carry something out without the lock.
    fn carry(&self, state: &mut MutexGuard<'_, State<B::Started>>, act: impl FnOnce()) {
        state.carrying += 1;
        MutexGuard::unlocked(state, act);
        state.carrying -= 1;
        if state.carrying == 0 {
            self.changed.notify_all();
        }
    }
}

impl<B: Batches> Queue for CallerQueue<B> {
    fn submit(&self, op: Op) {
        op.check();
        let begun = Transfer::begin(op, &self.file);
        let mut state = self.state.lock();
        match begun {
            Ok(transfer) if state.closed => state.done.push(transfer.failed(ECANCELED)),
            Err(done) if state.closed => state.done.push(done.op.cancelled()),
            Ok(transfer) => state.waiting.push_back(transfer),
            Err(done) => state.done.push(done),
        }
        drop(state);
        self.changed.notify_one();
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Done>) {
        let mut state = self.state.lock();
        loop {
            if !state.done.is_empty() {
                out.append(&mut state.done);
                return;
            }
            if let Some(started) = state.started.take_if(|started| started.is_mine()) {
                return self.carry(&mut state, || started.finish(out));
            }
            if !state.waiting.is_empty() {
                let batch = mem::take(&mut state.waiting);
                return self.carry(&mut state, || self.batches.carry(batch, out));
            }
            if wait == Wait::Never || (state.carrying == 0 && state.started.is_none()) {
                return;
            }
            self.changed.wait(&mut state);
        }
    }

    fn start(&self) {
        let mut state = self.state.lock();
        if state.started.is_some() || state.waiting.is_empty() {
            return;
        }
        let Some(mut started) = self.batches.begin(&mut state.waiting) else { return };
        MutexGuard::unlocked(&mut state, || started.submit());
        state.started = Some(started);
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let waiting = mem::take(&mut state.waiting);
        state.done.extend(waiting.into_iter().map(|transfer| transfer.failed(ECANCELED)));
        drop(state);
        self.changed.notify_all();
    }
}
