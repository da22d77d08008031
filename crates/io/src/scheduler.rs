//! Which operation a device gets next, and what came of those that it had: one scheduler for the
//! shared ring, threads and modelled devices.
//!
//! ```text
//!   demand      queue 0  waiting: a b c --\ by turns, first
//!               queue 1  waiting: d ------/              \
//!                                                         > device, in flight <= in_flight_max
//!   readahead   queue 2  waiting: e f ----\ by turns,    /        |
//!               queue 3  waiting: g ------/ after demand          +--> ready, for the reapers
//!                        each in flight <= its depth                   of the queue
//! ```
//!
//! **A reader's miss never waits behind the readahead of others** (law 7 of the design). Queues of
//! [`QueueKind::Caller`] are demand, those of [`QueueKind::Background`] readahead. While the
//! device is congested, which is while the next operation does not fit, readahead that is not in
//! flight is put off, and every demand that comes meanwhile goes before it.
//!
//! Pure: no clock, no system call, no thread. A driver starts what [`Scheduler::next`] gives it,
//! returns the room ([`Scheduler::freed`]) and says what came of the operation
//! ([`Scheduler::complete`]). The cost of an operation is the driver's: a ring and threads count
//! operations, a model counts requests.
//!
//! # Invariants
//! - No readahead starts while a demand waits. Queues of one class take turns, one operation each;
//!   the operations of a queue start in the order of submission, but for one that is taken up
//!   [again](Scheduler::again), which goes first.
//! - The costs in flight never exceed `in_flight_max`; a queue of readahead has at most `depth`
//!   operations in flight. An operation that does not fit keeps its turn, so none starves.
//! - A queue is listed once while it has something that may start; a listed queue that has not is
//!   passed over.
//! - Each operation comes back once. A closed queue has nothing waiting and starts nothing.
//! - `open` counts what was submitted and is not finished: no reaper sleeps when it is 0.
//! - A queue that was dropped goes with its last operation in flight.
//! # Locking
//! None: a driver keeps its scheduler under one lock, with which the reapers wait at `changed`.

use std::{collections::VecDeque, mem, sync::Arc};

use parking_lot::Condvar;

use crate::store::{Completion, ECANCELED, Op, QueueKind};

/// An operation as a driver hands it to its device.
pub(crate) trait Scheduled {
    /// Ends the operation, which is not at the device, with `errno`.
    fn failed(self, errno: i32) -> Completion;
}

impl Scheduled for Op {
    fn failed(self, errno: i32) -> Completion {
        Completion { op: self, result: Err(errno) }
    }
}

/// A submission queue's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueId(usize);

/// See the module. `T` is an operation, `D` what a reaper takes.
pub(crate) struct Scheduler<T, D = Completion> {
    queues: Vec<Submissions<T, D>>,
    vacant: Vec<QueueId>,
    /// The queues that may start something, demand before readahead.
    turns: [VecDeque<QueueId>; 2],
    in_flight: u32,
    in_flight_max: u32,
}

/// One submission queue.
struct Submissions<T, D> {
    /// Index into `turns`.
    class: usize,
    depth: u32,
    waiting: VecDeque<T>,
    in_flight: u32,
    is_listed: bool,
    is_closed: bool,
    is_dropped: bool,
    /// The queue whose reapers take this one's completions.
    reaped_by: QueueId,
    completions: Completions<D>,
}

/// What reapers take, and wait for.
struct Completions<D> {
    ready: Vec<D>,
    open: usize,
    changed: Arc<Condvar>,
}

impl<T: Scheduled, D: From<Completion>> Scheduler<T, D> {
    /// No queues, for a device that takes operations of `in_flight_max` costs at once.
    pub(crate) fn new(in_flight_max: u32) -> Self {
        assert!(in_flight_max > 0, "a device for nothing");
        let (queues, vacant) = (Vec::new(), Vec::new());
        Self { queues, vacant, turns: Default::default(), in_flight: 0, in_flight_max }
    }

    /// A new queue, whose reapers wait at `changed`.
    pub(crate) fn open(&mut self, kind: QueueKind, changed: Arc<Condvar>) -> QueueId {
        let id = self.vacant.last().copied().unwrap_or(QueueId(self.queues.len()));
        self.enter(kind, id, changed)
    }

    /// A new queue, whose completions the reapers of the queue `reaped_by` take.
    pub(crate) fn open_beside(&mut self, kind: QueueKind, reaped_by: QueueId) -> QueueId {
        let changed = Arc::clone(&self.queues[reaped_by.0].completions.changed);
        self.enter(kind, reaped_by, changed)
    }

    fn enter(&mut self, kind: QueueKind, reaped_by: QueueId, changed: Arc<Condvar>) -> QueueId {
        let (class, depth) = match kind {
            QueueKind::Caller => (DEMAND, u32::MAX),
            QueueKind::Background { depth } => (READAHEAD, depth),
        };
        assert!(depth > 0, "a queue of depth 0 starts nothing");
        let queue = Submissions {
            class,
            depth,
            waiting: VecDeque::new(),
            in_flight: 0,
            is_listed: false,
            is_closed: false,
            is_dropped: false,
            reaped_by,
            completions: Completions { ready: Vec::new(), open: 0, changed },
        };
        if let Some(id) = self.vacant.pop() {
            self.queues[id.0] = queue;
            return id;
        }
        self.queues.push(queue);
        QueueId(self.queues.len() - 1)
    }

    /// A queue of readahead has at most `depth` in flight, as soon as no more are.
    pub(crate) fn set_depth(&mut self, id: QueueId, depth: u32) {
        assert!(depth > 0, "a queue of depth 0 starts nothing");
        if self.queues[id.0].class == READAHEAD {
            self.queues[id.0].depth = depth;
            self.list(id);
        }
    }

    /// Takes `op` in; on a closed queue it is cancelled.
    pub(crate) fn submit(&mut self, id: QueueId, op: T) {
        assert!(!self.queues[id.0].is_dropped, "the queue was dropped");
        if self.queues[id.0].is_closed {
            self.deliver(id, op.failed(ECANCELED).into());
            return;
        }
        self.completions(id).open += 1;
        self.queues[id.0].waiting.push_back(op);
        self.list(id);
    }

    /// Takes an operation in that needs no device: it is `ready` at once, and open until it is
    /// [finished](Self::finish). The queue is not closed.
    pub(crate) fn submit_ready(&mut self, id: QueueId, ready: D) {
        assert!(!self.queues[id.0].is_closed, "nothing becomes ready on a closed queue");
        self.completions(id).open += 1;
        self.deliver(id, ready);
    }

    /// Takes an operation in that is done; on a closed queue it is cancelled.
    pub(crate) fn submit_done(&mut self, id: QueueId, done: Completion) {
        let is_closed = self.queues[id.0].is_closed;
        self.deliver(id, if is_closed { done.op.cancelled() } else { done }.into());
    }

    /// The operation that starts now, if any may; `cost` says how much of the device it takes.
    pub(crate) fn next(&mut self, cost: impl Fn(&T) -> u32) -> Option<(QueueId, T)> {
        loop {
            let turns = self.turns.iter_mut().find(|turns| !turns.is_empty())?;
            let id = turns[0];
            let queue = &mut self.queues[id.0];
            assert!(queue.is_listed, "a queue with a turn is listed");
            let startable = queue.waiting.front().filter(|_| queue.in_flight < queue.depth);
            let cost = startable.map(&cost);
            if cost.is_some_and(|cost| cost > self.in_flight_max - self.in_flight) {
                return None; // Congested: the operation keeps its turn.
            }
            turns.pop_front();
            queue.is_listed = false;
            let Some(cost) = cost else { continue };
            let op = queue.waiting.pop_front().expect("one may start");
            queue.in_flight += 1;
            self.in_flight += cost;
            assert!(queue.in_flight <= queue.depth, "a queue keeps to its depth");
            assert!(!queue.is_closed, "a closed queue starts nothing");
            self.list(id);
            return Some((id, op));
        }
    }

    /// Whether an operation that costs 1 may start; no, for certain, or perhaps.
    pub(crate) fn can_start(&self) -> bool {
        self.in_flight < self.in_flight_max && self.turns.iter().any(|turns| !turns.is_empty())
    }

    /// The device has room for `cost` more again.
    pub(crate) fn freed(&mut self, cost: u32) {
        assert!(cost <= self.in_flight, "more comes back than was in flight");
        self.in_flight -= cost;
    }

    /// An operation in flight needs another call: it starts next, unless its queue was closed.
    pub(crate) fn again(&mut self, id: QueueId, op: T) {
        let queue = &mut self.queues[id.0];
        if queue.is_closed {
            self.complete(id, op.failed(ECANCELED).into());
            return;
        }
        queue.in_flight = queue.in_flight.checked_sub(1).expect("it was in flight");
        queue.waiting.push_front(op);
        let turns = &mut self.turns[queue.class];
        if queue.is_listed {
            turns.retain(|listed| *listed != id);
        }
        queue.is_listed = true;
        turns.push_front(id);
    }

    /// An operation in flight is done and finished.
    pub(crate) fn complete(&mut self, id: QueueId, done: D) {
        self.deliver(id, done);
        self.finish(id, 1);
        self.landed(id);
    }

    /// An operation in flight is ready for a reaper, which [finishes](Self::finish) it.
    pub(crate) fn complete_ready(&mut self, id: QueueId, ready: D) {
        self.deliver(id, ready);
        self.landed(id);
    }

    /// The caller has an operation that was in flight, done, and finishes it.
    pub(crate) fn retire(&mut self, id: QueueId) {
        self.finish(id, 1);
        self.landed(id);
    }

    /// `count` operations are over.
    pub(crate) fn finish(&mut self, id: QueueId, count: usize) {
        let completions = self.completions(id);
        completions.open = completions.open.checked_sub(count).expect("as many as were submitted");
        if completions.open == 0 {
            completions.changed.notify_all();
        }
    }

    /// Appends what is ready; whether there was any.
    pub(crate) fn take(&mut self, id: QueueId, out: &mut Vec<D>) -> bool {
        let ready = &mut self.completions(id).ready;
        let any = !ready.is_empty();
        out.append(ready);
        any
    }

    /// Closes a queue, and cancels what waits in it.
    pub(crate) fn close(&mut self, id: QueueId) {
        self.queues[id.0].is_closed = true;
        self.fail_waiting_of(id, ECANCELED);
        self.completions(id).changed.notify_all();
    }

    /// The owner drops a queue: closes it; its place is free once nothing of it is in flight.
    pub(crate) fn release(&mut self, id: QueueId) {
        assert!(!self.queues[id.0].is_dropped, "a queue is dropped once");
        self.close(id);
        self.queues[id.0].is_dropped = true;
        self.vacate(id);
    }

    /// The device takes nothing more: all that waits fails with `errno`.
    pub(crate) fn fail_waiting(&mut self, errno: i32) {
        (0..self.queues.len()).for_each(|id| self.fail_waiting_of(QueueId(id), errno));
    }

    fn fail_waiting_of(&mut self, id: QueueId, errno: i32) {
        for op in mem::take(&mut self.queues[id.0].waiting) {
            self.deliver(id, op.failed(errno).into());
            self.finish(id, 1);
        }
    }

    /// Gives `ready` to a reaper.
    fn deliver(&mut self, id: QueueId, ready: D) {
        let completions = self.completions(id);
        completions.ready.push(ready);
        completions.changed.notify_one();
    }

    /// An operation of the queue is no longer in flight.
    fn landed(&mut self, id: QueueId) {
        let queue = &mut self.queues[id.0];
        queue.in_flight = queue.in_flight.checked_sub(1).expect("it was in flight");
        self.list(id);
        self.vacate(id);
    }

    fn list(&mut self, id: QueueId) {
        let queue = &mut self.queues[id.0];
        if !queue.is_listed && !queue.waiting.is_empty() && queue.in_flight < queue.depth {
            queue.is_listed = true;
            self.turns[queue.class].push_back(id);
        }
    }

    fn vacate(&mut self, id: QueueId) {
        let queue = &mut self.queues[id.0];
        if queue.is_dropped && queue.in_flight == 0 {
            assert!(queue.waiting.is_empty(), "a closed queue has nothing waiting");
            if mem::take(&mut queue.is_listed) {
                self.turns[queue.class].retain(|listed| *listed != id);
            }
            queue.completions.ready = Vec::new();
            self.vacant.push(id);
        }
    }

    fn completions(&mut self, id: QueueId) -> &mut Completions<D> {
        let reaped_by = self.queues[id.0].reaped_by;
        &mut self.queues[reaped_by.0].completions
    }

    /// Whether a queue was closed.
    pub(crate) fn is_closed(&self, id: QueueId) -> bool {
        self.queues[id.0].is_closed
    }

    /// Operations that the reapers of a queue may wait for.
    pub(crate) fn open_count(&self, id: QueueId) -> usize {
        self.queues[self.queues[id.0].reaped_by.0].completions.open
    }

    /// Whether a reaper of the queue has nothing to take and nothing to wait for.
    pub(crate) fn is_idle(&self, id: QueueId) -> bool {
        let completions = &self.queues[self.queues[id.0].reaped_by.0].completions;
        completions.open == 0 && completions.ready.is_empty()
    }

    /// Operations that wait in a queue.
    pub(crate) fn waiting_count(&self, id: QueueId) -> usize {
        self.queues[id.0].waiting.len()
    }

    /// Operations of a queue that may be in flight at once.
    pub(crate) fn depth(&self, id: QueueId) -> u32 {
        self.queues[id.0].depth
    }

    /// Costs in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The queues that there are.
    pub(crate) fn ids(&self) -> Vec<QueueId> {
        let ids = (0..self.queues.len()).map(QueueId);
        ids.filter(|id| !self.vacant.contains(id)).collect()
    }

    /// Operations of a queue in flight.
    #[cfg(test)]
    pub(crate) fn in_flight_of(&self, id: QueueId) -> u32 {
        self.queues[id.0].in_flight
    }
}

const DEMAND: usize = 0;
const READAHEAD: usize = 1;

#[cfg(test)]
mod tests;
