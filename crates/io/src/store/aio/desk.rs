//! Who of the background may begin what: the books of one shared context. No system calls here.
//!
//! ```text
//!   lane 1: waiting o o o --\                /-> flying  (at most `flying_max`, all lanes)
//!   lane 2: waiting o ------- ready, by turns
//!   lane 3: waiting          (its depth is used up)   \-> jobs, for threads that block
//! ```
//!
//! # Invariants
//! - A lane has at most `depth` operations under way: flying, in `jobs`, or carried by a thread.
//!   They begin in the order of submission.
//! - A lane is in `ready` once if it may begin something, and else not at all.
//! - What waits on a closed lane was cancelled; a lane that its owner dropped goes with its last
//!   operation.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use parking_lot::Condvar;

use super::transfer::Transfer;
use crate::store::{Done, Op, file::Opened};

/// One queue of the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LaneId(u64);

impl LaneId {
    /// Of transfers that need no lane.
    pub(super) const NONE: Self = Self(0);
}

/// See the module.
#[derive(Debug)]
pub(super) struct Desk {
    lanes: BTreeMap<LaneId, Lane>,
    last_id: u64,
    ready: VecDeque<LaneId>,
    flying: usize,
    flying_max: usize,
    jobs: VecDeque<Job>,
}

/// An operation that a thread is to carry out.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) op: Op,
    pub(super) opened: Arc<Opened>,
    pub(super) lane: LaneId,
}

#[derive(Debug)]
struct Lane {
    opened: Arc<Opened>,
    depth: u32,
    /// Each with whether it is for the context.
    waiting: VecDeque<(Op, bool)>,
    under_way: u32,
    done: Vec<Done>,
    closed: bool,
    /// Its owner dropped it: nobody reaps.
    orphaned: bool,
    changed: Arc<Condvar>,
}

impl Lane {
    fn may_begin(&self) -> bool {
        !self.waiting.is_empty() && self.under_way < self.depth
    }

    fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.under_way == 0
    }

    /// Tells its reapers that something is done.
    fn tell(&self) {
        if self.is_quiet() {
            self.changed.notify_all();
        } else {
            self.changed.notify_one();
        }
    }
}

impl Desk {
    pub(super) fn new(flying_max: usize) -> Self {
        assert!(flying_max > 0, "a context for nothing");
        let (lanes, ready, jobs) = (BTreeMap::new(), VecDeque::new(), VecDeque::new());
        Self { lanes, last_id: 0, ready, flying: 0, flying_max, jobs }
    }

    /// A new lane, whose reapers wait at `changed`.
    pub(super) fn open(
        &mut self,
        opened: Arc<Opened>,
        depth: u32,
        changed: Arc<Condvar>,
    ) -> LaneId {
        assert!(depth > 0, "a queue that nobody serves");
        self.last_id += 1;
        let id = LaneId(self.last_id);
        let (waiting, done) = (VecDeque::new(), Vec::new());
        let (closed, orphaned) = (false, false);
        let under_way = 0;
        let lane = Lane { opened, depth, waiting, under_way, done, closed, orphaned, changed };
        self.lanes.insert(id, lane);
        id
    }

    /// Takes `op` in.
    pub(super) fn submit(&mut self, id: LaneId, op: Op, direct: bool) {
        let lane = self.lane(id);
        if lane.closed {
            lane.done.push(op.cancelled());
            lane.tell();
            return;
        }
        let could = lane.may_begin();
        lane.waiting.push_back((op, direct));
        if !could && lane.may_begin() {
            self.ready.push_back(id);
        }
    }

    /// The lane has at most `depth` under way, as soon as no more are.
    pub(super) fn set_depth(&mut self, id: LaneId, depth: u32) {
        assert!(depth > 0, "a queue that nobody serves");
        self.ready.retain(|ready| *ready != id);
        let lane = self.lane(id);
        lane.depth = depth;
        if lane.may_begin() {
            self.ready.push_back(id);
        }
    }

    /// Begins all that may begin. What is for the context is given to the caller, who submits it.
    pub(super) fn begin(&mut self) -> Vec<Transfer> {
        let mut batch = Vec::new();
        while let Some(id) = self.ready.pop_front() {
            let room = self.flying < self.flying_max;
            let lane = self.lane(id);
            let (op, direct) = lane.waiting.pop_front().expect("a lane that is ready has one");
            if direct && !room {
                lane.waiting.push_front((op, direct));
                self.ready.push_front(id);
                break;
            }
            lane.under_way += 1;
            let opened = Arc::clone(&lane.opened);
            if lane.may_begin() {
                self.ready.push_back(id);
            }
            if direct {
                self.flying += 1;
                batch.push(Transfer::new(op, opened, id));
            } else {
                self.jobs.push_back(Job { op, opened, lane: id });
            }
        }
        batch
    }

    /// `count` operations left the context.
    pub(super) fn landed(&mut self, count: usize) {
        assert!(count <= self.flying, "more landed than flew");
        self.flying -= count;
    }

    /// An operation that is under way is to be carried out by a thread.
    pub(super) fn block(&mut self, id: LaneId, op: Op) {
        let lane = self.lane(id);
        if lane.closed {
            self.end(id, op.cancelled());
            return;
        }
        let opened = Arc::clone(&lane.opened);
        self.jobs.push_back(Job { op, opened, lane: id });
    }

    /// The next operation for a thread.
    pub(super) fn job(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    /// How many wait for a thread.
    pub(super) fn job_count(&self) -> usize {
        self.jobs.len()
    }

    /// An operation that was under way is over.
    pub(super) fn end(&mut self, id: LaneId, done: Done) {
        let lane = self.lane(id);
        let could = lane.may_begin();
        lane.under_way -= 1;
        if lane.orphaned {
            if lane.is_quiet() {
                self.lanes.remove(&id);
            }
            return;
        }
        lane.done.push(done);
        lane.tell();
        if !could && lane.may_begin() {
            self.ready.push_back(id);
        }
    }

    /// Appends what is done; whether there was any, or nothing is in flight.
    pub(super) fn take(&mut self, id: LaneId, out: &mut Vec<Done>) -> bool {
        let lane = self.lane(id);
        let any = !lane.done.is_empty();
        out.append(&mut lane.done);
        any || lane.is_quiet()
    }

    /// Cancels what waits, and what waits for a thread.
    pub(super) fn close(&mut self, id: LaneId) {
        self.ready.retain(|ready| *ready != id);
        let (ours, others) = self.jobs.drain(..).partition(|job| job.lane == id);
        self.jobs = others;
        let ours: VecDeque<Job> = ours;
        let lane = self.lane(id);
        lane.closed = true;
        lane.under_way -= u32::try_from(ours.len()).expect("at most the lane's depth");
        lane.done.extend(ours.into_iter().map(|job| job.op.cancelled()));
        lane.done.extend(lane.waiting.drain(..).map(|(op, _)| op.cancelled()));
        lane.changed.notify_all();
    }

    /// Its owner drops the lane.
    pub(super) fn forget(&mut self, id: LaneId) {
        self.close(id);
        let lane = self.lane(id);
        lane.orphaned = true;
        lane.done.clear();
        if lane.is_quiet() {
            self.lanes.remove(&id);
        }
    }

    /// Gives up on all that waits for a thread, with `errno`: there is none.
    pub(super) fn refuse_jobs(&mut self, errno: i32) {
        while let Some(Job { op, lane, .. }) = self.jobs.pop_front() {
            self.end(lane, Done { op, result: Err(errno) });
        }
    }

    fn lane(&mut self, id: LaneId) -> &mut Lane {
        self.lanes.get_mut(&id).expect("a lane stays until its last operation")
    }

    /// How many lanes there are.
    #[cfg(test)]
    pub(super) fn lane_count(&self) -> usize {
        self.lanes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ECANCELED, OpKind, file::Access};

    /// A desk with room for two in flight, and lanes of these depths.
    fn desk(depths: &[u32]) -> (Desk, Vec<LaneId>) {
        let path = std::env::current_exe().unwrap();
        let opened = Arc::new(Opened::open(path, Access::Read).unwrap());
        let mut desk = Desk::new(2);
        let open = |depth: &u32| desk.open(Arc::clone(&opened), *depth, Arc::default());
        let lanes = depths.iter().map(open).collect();
        (desk, lanes)
    }

    fn sync(token: u64) -> Op {
        Op { token, kind: OpKind::Sync, offset: 0, bytes: 0, frames: Vec::new() }
    }

    fn begun(desk: &mut Desk) -> Vec<u64> {
        desk.begin().iter().map(|transfer| transfer.op.token).collect()
    }

    fn results(desk: &mut Desk, lane: LaneId) -> Vec<(u64, Result<usize, i32>)> {
        let mut out = Vec::new();
        desk.take(lane, &mut out);
        out.iter().map(|done| (done.op.token, done.result)).collect()
    }

    /// An operation of `lane` that flew is over.
    fn land(desk: &mut Desk, lane: LaneId, token: u64) {
        desk.landed(1);
        desk.end(lane, Done { op: sync(token), result: Ok(0) });
    }

    #[test]
    fn lanes_take_turns_where_the_context_is_full() {
        let (mut desk, lanes) = desk(&[4, 4]);
        for token in 0..4 {
            desk.submit(lanes[0], sync(token), true);
        }
        desk.submit(lanes[1], sync(10), true);
        assert_eq!(begun(&mut desk), [0, 10]);
        assert_eq!(begun(&mut desk), [], "there is no room");
        land(&mut desk, lanes[0], 0);
        assert_eq!(begun(&mut desk), [1]);
        land(&mut desk, lanes[1], 10);
        assert_eq!(begun(&mut desk), [2]);
        assert_eq!(results(&mut desk, lanes[0]), [(0, Ok(0))]);
        assert_eq!(results(&mut desk, lanes[1]), [(10, Ok(0))]);
    }

    #[test]
    fn a_lane_has_no_more_under_way_than_its_depth_jobs_included() {
        let (mut desk, lanes) = desk(&[2]);
        for (token, direct) in [(0, false), (1, true), (2, true), (3, false)] {
            desk.submit(lanes[0], sync(token), direct);
        }
        assert_eq!(begun(&mut desk), [1]);
        assert_eq!(desk.job_count(), 1);
        land(&mut desk, lanes[0], 1);
        assert_eq!(begun(&mut desk), [2]);
        let job = desk.job().unwrap();
        desk.end(lanes[0], Done { op: job.op, result: Ok(0) });
        assert_eq!(begun(&mut desk), []);
        assert_eq!(desk.job().map(|job| job.op.token), Some(3));
    }

    #[test]
    fn a_lane_that_loses_depth_begins_nothing_and_one_that_gains_some_goes_on() {
        let (mut desk, lanes) = desk(&[1, 1]);
        (0..4).for_each(|token| desk.submit(lanes[0], sync(token), true));
        assert_eq!(begun(&mut desk), [0]);
        desk.set_depth(lanes[0], 3);
        desk.set_depth(lanes[0], 2);
        assert_eq!(begun(&mut desk), [1], "once, though it was told of twice");
        land(&mut desk, lanes[0], 0);
        desk.set_depth(lanes[0], 1);
        assert_eq!(begun(&mut desk), [], "it was its turn, and is no longer");
        land(&mut desk, lanes[0], 1);
        assert_eq!(begun(&mut desk), [2]);
        desk.set_depth(lanes[0], 8);
        desk.close(lanes[0]);
        assert_eq!(begun(&mut desk), []);
    }

    #[test]
    fn closing_cancels_what_waits_and_what_waits_for_a_thread() {
        let (mut desk, lanes) = desk(&[2, 2]);
        for (token, direct) in [(0, false), (1, true), (2, true)] {
            desk.submit(lanes[0], sync(token), direct);
        }
        desk.submit(lanes[1], sync(10), false);
        assert_eq!(begun(&mut desk), [1]);
        desk.close(lanes[0]);
        let cancelled = [(0, Err(ECANCELED)), (2, Err(ECANCELED))];
        assert_eq!(results(&mut desk, lanes[0]), cancelled);
        assert_eq!(desk.job().map(|job| job.op.token), Some(10), "that of another lane stays");
        desk.landed(1);
        desk.block(lanes[0], sync(1));
        assert_eq!(desk.job_count(), 0, "nothing begins on a closed lane");
        assert_eq!(results(&mut desk, lanes[0]), [(1, Err(ECANCELED))]);
    }

    #[test]
    fn a_lane_that_was_dropped_goes_with_its_last_operation() {
        let (mut desk, lanes) = desk(&[2, 2]);
        desk.submit(lanes[0], sync(1), true);
        desk.submit(lanes[0], sync(2), false);
        assert_eq!(begun(&mut desk), [1]);
        desk.forget(lanes[0]);
        assert_eq!(desk.lane_count(), 2);
        land(&mut desk, lanes[0], 1);
        assert_eq!(desk.lane_count(), 1);
        desk.forget(lanes[1]);
        assert_eq!(desk.lane_count(), 0);
    }
}
