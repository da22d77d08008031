//! Which operation goes next into the ring that all files share: a lane a queue.
//!
//! ```text
//!   lane 0  waiting: a b c    under way <= depth \
//!   lane 1  waiting: d        under way <= depth  > slots of the ring --> done
//!   again   short or interrupted ones -----------/
//! ```
//!
//! Lanes take turns, one operation each; those that need another call go first.
//!
//! # Invariants
//! - `open` counts what was submitted and is not in `done` yet: nobody sleeps when it is 0.
//! - In the ring there are never more operations than slots, of a lane never more than its depth.
//! - A lane is `listed` once, and just when it has something to start.
//! - A closed lane has nothing waiting and begins nothing again; one whose queue has gone is
//!   free for another as soon as nothing of it is under way.

use std::collections::VecDeque;

use rustix::io::Errno;

use crate::store::file::Transfer;
use crate::store::{Done, Op};

/// A lane's number.
pub(super) type LaneId = usize;

/// A slot of the ring, and how often it was used before: what completions are known by.
pub(super) type Ticket = u64;

/// See the module.
pub(super) struct Lanes {
    all: Vec<Lane>,
    vacant: Vec<LaneId>,
    ready: VecDeque<LaneId>,
    again: VecDeque<(Transfer, LaneId)>,
    slots: Vec<Slot>,
    free_slots: Vec<usize>,
    open: usize,
    done: Vec<Done>,
}

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Transfer>,
    under_way: u32,
    depth: u32,
    closed: bool,
    left: bool,
    listed: bool,
}

#[derive(Default)]
struct Slot {
    uses: u32,
    held: Option<(Transfer, LaneId)>,
}

impl Lanes {
    /// No lanes, and `slots` slots.
    pub(super) fn new(slots: usize) -> Self {
        let mut empty = Vec::new();
        empty.resize_with(slots, Slot::default);
        Self {
            all: Vec::new(),
            vacant: Vec::new(),
            ready: VecDeque::new(),
            again: VecDeque::new(),
            slots: empty,
            free_slots: (0..slots).rev().collect(),
            open: 0,
            done: Vec::new(),
        }
    }

    /// A new lane.
    pub(super) fn enter(&mut self, depth: u32) -> LaneId {
        assert!(depth > 0, "a queue that nobody serves");
        let lane = Lane { depth, ..Lane::default() };
        if let Some(id) = self.vacant.pop() {
            self.all[id] = lane;
            return id;
        }
        self.all.push(lane);
        self.all.len() - 1
    }

    /// The lane has at most `depth` in the ring, as soon as no more are.
    pub(super) fn set_depth(&mut self, id: LaneId, depth: u32) {
        assert!(depth > 0, "a queue that nobody serves");
        self.all[id].depth = depth;
        self.list(id);
    }

    /// Takes an operation in, or back at once if the lane is closed.
    pub(super) fn submit(&mut self, id: LaneId, transfer: Transfer) {
        assert!(!self.all[id].left, "the queue has gone");
        if self.all[id].closed {
            self.done.push(transfer.cancelled());
            return;
        }
        self.open += 1;
        self.all[id].waiting.push_back(transfer);
        self.list(id);
    }

    /// Takes an operation in that is done already, if the lane is open.
    pub(super) fn submit_done(&mut self, id: LaneId, done: Done) {
        let closed = self.all[id].closed;
        self.done.push(if closed { done.op.cancelled() } else { done });
    }

    /// Gives back an operation that is of no lane.
    pub(super) fn refuse(&mut self, op: Op) {
        self.done.push(op.cancelled());
    }

    /// Cancels what waits, and gives the tickets of what is in the ring.
    pub(super) fn close(&mut self, id: LaneId) -> Vec<Ticket> {
        self.all[id].closed = true;
        let waiting = std::mem::take(&mut self.all[id].waiting);
        self.open -= waiting.len();
        self.done.extend(waiting.into_iter().map(Transfer::cancelled));
        let slots = self.slots.iter().enumerate();
        let ours = slots.filter(|(_, slot)| slot.held.as_ref().is_some_and(|held| held.1 == id));
        ours.map(|(slot, held)| ticket(slot, held.uses)).collect()
    }

    /// Whether the lane was closed.
    pub(super) fn is_closed(&self, id: LaneId) -> bool {
        self.all[id].closed
    }

    /// Nobody submits to the lane any more, which is closed.
    pub(super) fn leave(&mut self, id: LaneId) {
        assert!(self.all[id].closed && !self.all[id].left, "a queue goes once");
        self.all[id].left = true;
        self.free(id);
    }

    /// Whether [`Lanes::start`] would start something.
    pub(super) fn can_start(&self) -> bool {
        !self.free_slots.is_empty() && (!self.again.is_empty() || !self.ready.is_empty())
    }

    /// Puts the next operation into a slot.
    pub(super) fn start(&mut self) -> Option<(Ticket, &mut Transfer)> {
        if !self.can_start() {
            return None;
        }
        let next = self.again.pop_front().or_else(|| self.next_waiting())?;
        let slot = self.free_slots.pop().expect("one is free");
        let Slot { uses, held } = &mut self.slots[slot];
        assert!(held.is_none(), "a slot holds one transfer");
        let (transfer, _) = held.insert(next);
        Some((ticket(slot, *uses), transfer))
    }

    /// The kernel is done with what `ticket` names.
    pub(super) fn take(&mut self, ticket: Ticket) -> (Transfer, LaneId) {
        let slot = usize::try_from(ticket & u64::from(u32::MAX)).expect("a slot's number");
        let held = self.slots[slot].held.take();
        assert_eq!(u64::from(self.slots[slot].uses), ticket >> 32, "an old ticket");
        self.slots[slot].uses = (self.slots[slot].uses + 1) % USES_MAX;
        self.free_slots.push(slot);
        held.expect("it was in the kernel")
    }

    /// An operation that was taken needs another call.
    pub(super) fn again(&mut self, transfer: Transfer, id: LaneId) {
        if self.all[id].closed {
            self.end(transfer.cancelled(), id);
            return;
        }
        self.again.push_back((transfer, id));
    }

    /// An operation that was taken is done.
    pub(super) fn end(&mut self, done: Done, id: LaneId) {
        self.open -= 1;
        self.done.push(done);
        self.all[id].under_way -= 1;
        self.list(id);
        self.free(id);
    }

    /// The ring is another process's: what it has of ours fails here.
    pub(super) fn fail_in_ring(&mut self, errno: Errno) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].held.is_some() {
                let (transfer, id) = self.take(ticket(slot, self.slots[slot].uses));
                self.end(transfer.done(Err(errno)), id);
            }
        }
    }

    /// The ring takes nothing more: all that is not in it fails.
    pub(super) fn fail_waiting(&mut self, errno: Errno) {
        while let Some((transfer, id)) = self.again.pop_front() {
            self.end(transfer.done(Err(errno)), id);
        }
        while let Some((transfer, id)) = self.next_waiting() {
            self.end(transfer.done(Err(errno)), id);
        }
    }

    /// What is done, for a reaper.
    pub(super) fn reap(&mut self, out: &mut Vec<Done>) -> bool {
        let any = !self.done.is_empty();
        out.append(&mut self.done);
        any
    }

    /// Operations that were submitted and are not done.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Operations in the ring.
    pub(super) fn in_ring(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    fn next_waiting(&mut self) -> Option<(Transfer, LaneId)> {
        let id = self.ready.pop_front()?;
        let lane = &mut self.all[id];
        lane.listed = false;
        // A lane that was closed meanwhile is still listed, with nothing to start, and one that
        // lost depth.
        let next = if lane.under_way < lane.depth { lane.waiting.pop_front() } else { None };
        let Some(transfer) = next else { return self.next_waiting() };
        lane.under_way += 1;
        self.list(id);
        Some((transfer, id))
    }

    fn list(&mut self, id: LaneId) {
        let lane = &mut self.all[id];
        if !lane.listed && !lane.waiting.is_empty() && lane.under_way < lane.depth {
            lane.listed = true;
            self.ready.push_back(id);
        }
    }

    fn free(&mut self, id: LaneId) {
        let lane = &mut self.all[id];
        if lane.left && lane.under_way == 0 {
            if lane.listed {
                self.ready.retain(|listed| *listed != id);
            }
            self.all[id] = Lane { closed: true, ..Lane::default() };
            self.vacant.push(id);
        }
    }
}

fn ticket(slot: usize, uses: u32) -> Ticket {
    (u64::from(uses) << 32) | slot as u64
}

/// Uses are counted up to here and from 0 again, so that no ticket is as high as other marks.
const USES_MAX: u32 = 1 << 31;
