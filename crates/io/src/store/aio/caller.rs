//! A queue whose reaper carries the operations out, several at once.
//!
//! ```text
//!   reap:  all that waits --direct--> a lent context --+
//!                         --else----> blocking --------+--> done, all of them
//! ```
//!
//! # Invariants
//! - A context is lent for one batch and goes back empty: a batch comes back as a whole.
//! - A reaper sleeps only while another carries something out.
//! # Locking
//! One lock, held over no operation.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{
    carry,
    contexts::Contexts,
    desk::LaneId,
    is_direct,
    transfer::{Step, Transfer},
};
use crate::store::{Done, Op, Queue, Wait, file::Opened};

/// See the module.
pub(super) struct Lane {
    opened: Arc<Opened>,
    contexts: Arc<Contexts>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Op>,
    done: Vec<Done>,
    /// Reapers that carry something out.
    carrying: u32,
    closed: bool,
}

impl Lane {
    pub(super) fn new(opened: Arc<Opened>, contexts: Arc<Contexts>) -> Self {
        Self { opened, contexts, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Carries `batch` out on this thread.
    fn carry(&self, batch: VecDeque<Op>, out: &mut Vec<Done>) {
        let (direct, mut blocking): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|op| is_direct(&self.opened, op));
        if !direct.is_empty()
            && let Some(context) = self.contexts.lend()
        {
            let mut batch = direct.into_iter();
            while batch.len() > 0 {
                let transfers = batch
                    .by_ref()
                    .take(context.events())
                    .map(|op| Transfer::new(op, Arc::clone(&self.opened), LaneId::NONE))
                    .collect();
                self.fly(&context, transfers, &mut blocking, out);
            }
            self.contexts.give_back(context);
        } else {
            blocking.extend(direct);
        }
        out.extend(blocking.into_iter().map(|op| carry(&self.opened, op)));
    }

    /// Has `transfers` done by the context; what it cannot do is added to `blocking`.
    fn fly(
        &self,
        context: &super::sys::Context,
        transfers: Vec<Transfer>,
        blocking: &mut Vec<Op>,
        out: &mut Vec<Done>,
    ) {
        let submit = |transfers: Vec<Transfer>, blocking: &mut Vec<Op>| {
            let count = transfers.len();
            let refused = context.submit(transfers);
            let taken = count - refused.len();
            blocking.extend(refused.into_iter().map(|transfer| transfer.op));
            taken
        };
        let mut in_flight = submit(transfers, blocking);
        // What blocks anyway may as well do so while the device works.
        out.extend(blocking.drain(..).map(|op| carry(&self.opened, op)));
        while in_flight > 0 {
            let mut landed = Vec::new();
            context.wait(&mut landed);
            in_flight -= landed.len();
            let mut again = Vec::new();
            for (transfer, result) in landed {
                match transfer.answered(result) {
                    Step::Done(done) => out.push(done),
                    Step::Again(transfer) => again.push(transfer),
                    Step::Block(op) => blocking.push(op),
                }
            }
            if !again.is_empty() {
                in_flight += submit(again, blocking);
            }
        }
    }
}

impl Queue for Lane {
    fn submit(&self, op: Op) {
        op.check();
        let mut state = self.state.lock();
        if state.closed {
            state.done.push(op.cancelled());
        } else {
            state.waiting.push_back(op);
        }
        self.changed.notify_one();
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Done>) {
        let mut state = self.state.lock();
        loop {
            if !state.done.is_empty() {
                out.append(&mut state.done);
                return;
            }
            if !state.waiting.is_empty() {
                let batch = std::mem::take(&mut state.waiting);
                state.carrying += 1;
                MutexGuard::unlocked(&mut state, || self.carry(batch, out));
                state.carrying -= 1;
                if state.carrying == 0 {
                    self.changed.notify_all();
                }
                return;
            }
            if wait == Wait::Never || state.carrying == 0 {
                return;
            }
            self.changed.wait(&mut state);
        }
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let State { waiting, done, .. } = &mut *state;
        done.extend(waiting.drain(..).map(Op::cancelled));
        drop(state);
        self.changed.notify_all();
    }
}
