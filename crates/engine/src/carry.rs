//! What the thread of a request does until the answer: copies, fetches from the store, and sleep.
//!
//! ```text
//!   loop  take served pages, copies to make, and fetches where a queue is free
//!           some: unlock; submit the fetches, then readahead and writes; copy;
//!                 reap a part of the fetches; lock: Filled, Arrived, Failed
//!           none: leave with the answer, or sleep
//! ```
//!
//! # Invariants
//! - A thread that sleeps, for a page or for a queue, pins no frame and has submitted no fetch:
//!   requests never wait for each other's copies. One that waits for the store keeps what it is
//!   served until the next operation completes.
//! - While a request waits for a frame, its thread sleeps no longer than until the deadline.
//! - A store that panics fails its fetches, also for the requests of other threads.

use std::{sync::Arc, time::Duration};

use forerun_core::{
    event::Error,
    units::{FrameId, Nanos, PageIndex},
};
use forerun_io::{
    frames::OwnedPin,
    store::{Completion, Wait},
    sync::MutexGuard,
};

use crate::{
    file::{Fetch, File},
    queues::QueueLease,
    shared::Shared,
    state::State,
    waiters::{Fill, SlotId},
};

/// The thread of a request: the cache, and the file of its fetches.
#[derive(Clone, Copy)]
pub(crate) struct Carrier<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) file: &'a Arc<File>,
}

/// What a request does with pages.
pub(crate) trait Pages {
    /// Takes a served page, and the pin of its frame.
    fn serve(&mut self, page: PageIndex, pin: OwnedPin);

    /// Copies a writer's bytes into a page, and checks its frame in.
    fn fill(&mut self, fill: Fill) -> Copied;

    /// A change is about to be made in the store; under the state's lock.
    fn change_begins(&mut self) {
        unreachable!("this request changes nothing")
    }

    /// Has the store make the change; returns 0 or an errno.
    fn change(&mut self) -> i32 {
        unreachable!("this request changes nothing")
    }

    /// The store made the change, or failed with `errno`; under the state's lock.
    fn change_ends(&mut self, _state: &State, _errno: i32) {
        unreachable!("this request changes nothing")
    }
}

/// A copy whose frame is checked in.
pub(crate) struct Copied {
    pub(crate) frame: FrameId,
    /// The frame was checked out, and holds the bytes.
    pub(crate) copied: bool,
}

/// Fetches of a request, and the queue that they go to.
struct Batch<'a> {
    lease: QueueLease<'a>,
    /// Those that have not completed.
    fetches: Vec<Option<Fetch>>,
    in_flight: usize,
    is_submitted: bool,
}

impl<'a> Carrier<'a> {
    /// Copies, fetches and sleeps until the answer is there and nothing is left to do.
    pub(crate) fn carry_on(
        &self,
        mut state: MutexGuard<'a, State>,
        me: SlotId,
        pages: &mut dyn Pages,
    ) -> Result<(), Error> {
        let shared = self.shared;
        let mut batch = None;
        loop {
            let ahead = state.take_ahead();
            if batch.is_none() {
                batch = self.take_fetches(&mut state, me);
            }
            let slot = state.live.slots.of(me);
            let (served, fills) = (slot.take_served(), slot.take_fills());
            let makes_change = std::mem::take(&mut slot.changes);
            let answer = if batch.is_none() { slot.take_answer() } else { None };
            let works = makes_change || !served.is_empty() || !fills.is_empty() || batch.is_some();
            if !works && answer.is_none() && ahead.is_empty() {
                sleep(&mut state, me);
                continue;
            }
            if makes_change {
                pages.change_begins();
            }
            if answer.is_some() && state.leave(me) {
                shared.writer_left.notify_all();
            }
            drop(state);
            if let Some(batch) = &mut batch {
                batch.submit(shared, !ahead.fetches.is_empty());
            }
            let copied: Vec<Copied> = fills.into_iter().map(|fill| pages.fill(fill)).collect();
            shared.submit_ahead(ahead);
            let unpins = !served.is_empty();
            for (page, pin) in served {
                pages.serve(page, pin);
            }
            if let Some(answer) = answer {
                return answer;
            }
            if unpins {
                shared.frames_unpinned();
            }
            let changed = makes_change.then(|| pages.change());
            let reaps = copied.is_empty() && batch.is_some();
            state = if reaps { self.reap(me, &mut batch) } else { shared.state.lock() };
            let writes = !copied.is_empty() || changed.is_some();
            for Copied { frame, copied } in copied {
                state.filled(me, frame, copied);
            }
            if let Some(errno) = changed {
                pages.change_ends(&state, errno);
                state.changed_in_store(me, self.file, errno);
            }
            if writes && state.is_due_before_flusher(self.file.id) {
                shared.dirty_due.notify_all();
            }
        }
    }

    /// Takes the fetches of a request, if it has any and a queue is free; else it is woken when one
    /// is returned.
    fn take_fetches(&self, state: &mut State, me: SlotId) -> Option<Batch<'a>> {
        if state.live.slots.of(me).fetches.is_empty() {
            return None;
        }
        let lease = self.file.queues.check_out();
        state.live.slots.await_queue(me, lease.is_none());
        let fetches = std::mem::take(&mut state.live.slots.of(me).fetches);
        let Some(lease) = lease else {
            state.live.slots.of(me).fetches = fetches;
            return None;
        };
        let in_flight = fetches.len();
        let fetches = fetches.into_iter().map(Some).collect();
        Some(Batch { lease, fetches, in_flight, is_submitted: false })
    }

    /// Waits for an operation of `batch` and reports what has completed. Returns with the lock;
    /// after the last operation `batch` is `None`, and its queue is returned.
    fn reap(&self, me: SlotId, batch: &mut Option<Batch<'a>>) -> MutexGuard<'a, State> {
        let open = batch.as_mut().expect("there are fetches to reap");
        let mut done = Vec::new();
        let reaped = open.lease.call(|queue| queue.reap(Wait::One, &mut done));
        assert!(reaped.is_none() || !done.is_empty(), "a queue gives back what it was given");
        if reaped.is_none() {
            done.append(&mut open.lease.salvage());
        }
        let mut ended: Vec<(Fetch, Option<Completion>)> = Vec::new();
        for done in done {
            let token = usize::try_from(done.op.token).expect("it counts the fetches");
            let fetch = open.fetches[token].take().expect("an operation completes once");
            ended.push((fetch, Some(done)));
        }
        if reaped.is_none() {
            ended.extend(open.fetches.drain(..).flatten().map(|fetch| (fetch, None)));
        }
        open.in_flight -= ended.len();
        let last = open.in_flight == 0;
        if last {
            *batch = None;
        }
        let mut state = None;
        for (fetch, done) in ended {
            if let Some(state) = state.take() {
                self.shared.settle(state);
            }
            state = Some(self.shared.report(Some(me), &fetch, done));
        }
        let mut state = state.unwrap_or_else(|| self.shared.state.lock());
        if last {
            state.live.slots.queue_returned(self.file.id);
        }
        state
    }
}

impl Batch<'_> {
    /// Submits the fetches, once; `starts` has them started before the wait for them.
    fn submit(&mut self, shared: &Shared, starts: bool) {
        if self.is_submitted {
            return;
        }
        self.is_submitted = true;
        for (token, fetch) in (0..).zip(self.fetches.iter().flatten()) {
            let op = fetch.op(token, shared.frames());
            if self.lease.call(|queue| queue.submit(op)).is_none() {
                return; // The next reap reports all of them.
            }
        }
        if starts {
            self.lease.call(|queue| queue.start());
        }
    }
}

/// Sleeps until the slot is woken or the deadline has passed.
fn sleep(state: &mut MutexGuard<'_, State>, me: SlotId) {
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
