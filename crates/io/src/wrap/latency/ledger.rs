//! Which operations are at the device, for whom, and what became of each request.
//!
//! Pure: moments are arguments, nothing sleeps. A large operation goes to the device as several
//! requests and is due when the last of them is done.
//!
//! ```text
//!   lane 0: waiting --(depth)--> at the device --(all parts done)--> due --take--> carried
//!   lane 1: waiting --(depth)--/
//! ```
//!
//! # Invariants
//! - A lane has at most `depth` operations at the device; more wait in the order of submission.
//! - A request that the device holds is never called back: when its lane is closed, the
//!   operation is cancelled at once and the device completes a request that nobody waits for.
//! - The device never holds more than `requests_max`; while it is full, all lanes wait.
//! - The log is bounded; what did not fit is counted.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use forerun_core::{
    device::{Completion, Device, Request},
    units::Nanos,
};
use parking_lot::Condvar;
use rustix::io::Errno;

use crate::store::{Done, Op, OpKind};

/// A request that the device completed. Moments are in the device's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The token of the operation that it is a part of.
    pub token: u64,
    /// Whether it wrote.
    pub write: bool,
    /// Where it began.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// When the device got it.
    pub arrived: Nanos,
    /// When the device turned to it.
    pub started: Nanos,
    /// When the model says that it was done.
    pub done: Nanos,
    /// Of the time it took, what went into positioning.
    pub positioning: Nanos,
    /// When we said so: not before `done`.
    pub released: Nanos,
}

/// Requests in the order of their completion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The first that fit the bound.
    pub records: Vec<Record>,
    /// How many came after those.
    pub dropped: u64,
}

/// What was asked of the device since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests to read.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Requests to write.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
}

impl Counts {
    fn add(&mut self, write: bool, bytes: u64) {
        let (requests, moved) = if write {
            (&mut self.writes, &mut self.write_bytes)
        } else {
            (&mut self.reads, &mut self.read_bytes)
        };
        *requests += 1;
        *moved += bytes;
    }
}

/// A queue's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LaneId(u64);

/// See the module.
pub(super) struct Ledger {
    device: Device,
    lanes: BTreeMap<LaneId, Lane>,
    /// By number; the numbers rise.
    ops: BTreeMap<u64, AtDevice>,
    /// The operation that a request is a part of, by the request's number; the numbers rise.
    requests: BTreeMap<u64, u64>,
    numbers: u64,
    counts: Counts,
    log: Log,
    bounds: Bounds,
    /// Something waits for room at the device, in whichever lane.
    full: bool,
    ended: bool,
}

/// What may be kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Requests at the device.
    pub(super) requests_max: u32,
    /// Records until the log is taken.
    pub(super) log_records_max: usize,
}

/// What the ledger knows of one queue.
struct Lane {
    /// Operations at the device at most; no bound where the callers carry out.
    depth: Option<u32>,
    changed: Arc<Condvar>,
    waiting: VecDeque<Op>,
    at_device: u32,
    due: VecDeque<Op>,
    /// Given back without the device.
    ended: Vec<Done>,
    carrying: usize,
    closed: bool,
}

/// An operation at the device.
struct AtDevice {
    lane: LaneId,
    token: u64,
    /// None once it was cancelled.
    op: Option<Op>,
    /// Requests that are not done.
    parts: u32,
}

impl Ledger {
    pub(super) fn new(device: Device, bounds: Bounds) -> Self {
        Self {
            device,
            lanes: BTreeMap::new(),
            ops: BTreeMap::new(),
            requests: BTreeMap::new(),
            numbers: 0,
            counts: Counts::default(),
            log: Log::default(),
            bounds,
            full: false,
            ended: false,
        }
    }

    /// A lane whose reapers wait for `changed`.
    pub(super) fn open(&mut self, depth: Option<u32>, changed: Arc<Condvar>) -> LaneId {
        assert!(depth != Some(0), "a queue that nobody serves");
        let id = LaneId(self.number());
        let lane = Lane {
            depth,
            changed,
            waiting: VecDeque::new(),
            at_device: 0,
            due: VecDeque::new(),
            ended: Vec::new(),
            carrying: 0,
            closed: self.ended,
        };
        self.lanes.insert(id, lane);
        id
    }

    /// From the next submission on, at most `depth` operations of the lane are at the device.
    pub(super) fn set_depth(&mut self, id: LaneId, depth: u32) {
        assert!(depth > 0, "a queue that nobody serves");
        let lane = self.lane(id);
        lane.depth = lane.depth.map(|_| depth);
    }

    /// Releases what is due by `now`, then takes `op` for `lane`.
    pub(super) fn submit(&mut self, now: Nanos, id: LaneId, op: Op) {
        self.advance(now);
        let refusal = self.refusal(&op);
        let lane = self.lane(id);
        if lane.closed {
            lane.ended.push(op.cancelled());
            lane.changed.notify_one();
        } else if let Some(errno) = refusal {
            lane.ended.push(Done { op, result: Err(errno) });
            lane.changed.notify_one();
        } else if op.bytes == 0 || op.kind == OpKind::Sync {
            lane.due.push_back(op);
            lane.changed.notify_one();
        } else {
            lane.waiting.push_back(op);
            self.start(now, id);
        }
    }

    /// Releases what the device has done by `now`.
    pub(super) fn advance(&mut self, now: Nanos) {
        while let Some(completion) = self.device.complete(now) {
            self.release(now, completion);
        }
    }

    /// When the device will have done something, if nothing else is submitted.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.device.next()
    }

    /// Moves what is due in `lane` to `due`, to be carried out, and what ended otherwise to `out`.
    pub(super) fn take(&mut self, id: LaneId, due: &mut Vec<Op>, out: &mut Vec<Done>) {
        let lane = self.lane(id);
        lane.carrying += lane.due.len();
        due.extend(lane.due.drain(..));
        out.append(&mut lane.ended);
    }

    /// `count` of those operations were carried out.
    pub(super) fn carried(&mut self, id: LaneId, count: usize) {
        let lane = self.lane(id);
        lane.carrying -= count;
        if lane.is_quiet() {
            lane.changed.notify_all();
        }
    }

    /// Whether a reaper of `lane` has nothing to wait for.
    pub(super) fn is_quiet(&self, id: LaneId) -> bool {
        self.lanes[&id].is_quiet()
    }

    /// Cancels whatever `lane` has and will get.
    pub(super) fn close(&mut self, id: LaneId) {
        let mut cancelled = Vec::new();
        for at_device in self.ops.values_mut().filter(|at_device| at_device.lane == id) {
            cancelled.extend(at_device.op.take());
        }
        let lane = self.lane(id);
        lane.closed = true;
        lane.at_device = 0;
        cancelled.extend(lane.due.drain(..));
        cancelled.extend(lane.waiting.drain(..));
        lane.ended.extend(cancelled.into_iter().map(Op::cancelled));
        lane.changed.notify_all();
    }

    /// Nobody submits to `lane` or reaps it any more.
    pub(super) fn forget(&mut self, id: LaneId) {
        self.close(id);
        self.lanes.remove(&id);
    }

    /// The store goes: closes all lanes.
    pub(super) fn end(&mut self) {
        self.ended = true;
        let ids: Vec<_> = self.lanes.keys().copied().collect();
        for id in ids {
            self.close(id);
        }
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    #[cfg(test)]
    pub(super) fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn take_log(&mut self) -> Log {
        std::mem::take(&mut self.log)
    }

    /// Why the device cannot take `op` at all.
    fn refusal(&self, op: &Op) -> Option<i32> {
        let end = op.offset.checked_add(op.bytes as u64);
        if end.is_none_or(|end| end > self.device.capacity_bytes()) {
            return Some(Errno::NXIO.raw_os_error());
        }
        let parts = op_parts(op, self.device.request_bytes_max());
        (parts > u64::from(self.bounds.requests_max)).then_some(Errno::INVAL.raw_os_error())
    }

    /// Hands the device what waits in `lane`, as far as its depth and the device allow.
    fn start(&mut self, now: Nanos, id: LaneId) {
        while let Some(op) = self.lanes[&id].startable() {
            let parts = op_parts(op, self.device.request_bytes_max());
            let in_flight = u64::from(self.device.in_flight());
            if in_flight + parts > u64::from(self.bounds.requests_max) {
                self.full = true;
                return;
            }
            let op = self.lane(id).start();
            let number = self.number();
            let parts = self.submit_parts(now, number, &op);
            let at_device = AtDevice { lane: id, token: op.token, op: Some(op), parts };
            self.ops.insert(number, at_device);
        }
    }

    /// There is room at the device again.
    fn start_all(&mut self, now: Nanos) {
        self.full = false;
        let ids: Vec<_> = self.lanes.keys().copied().collect();
        for id in ids {
            self.start(now, id);
        }
    }

    /// Submits the requests that `op` takes; returns how many.
    fn submit_parts(&mut self, now: Nanos, number: u64, op: &Op) -> u32 {
        let bytes_max = self.device.request_bytes_max();
        let write = op.kind == OpKind::Write;
        let (mut offset, mut left, mut parts) = (op.offset, op.bytes as u64, 0);
        while left > 0 {
            let bytes = left.min(bytes_max);
            let id = self.number();
            self.requests.insert(id, number);
            self.device.submit(now, Request { id, offset, bytes, write });
            self.counts.add(write, bytes);
            offset = offset.saturating_add(bytes);
            left -= bytes;
            parts += 1;
        }
        parts
    }

    /// One request is done: perhaps its operation is due, and others may start.
    fn release(&mut self, now: Nanos, completion: Completion) {
        let number = self.requests.remove(&completion.request.id).expect("it was submitted");
        let at_device = self.ops.get_mut(&number).expect("it has parts that are not done");
        let token = at_device.token;
        at_device.parts -= 1;
        let is_last = at_device.parts == 0;
        self.note(now, token, completion);
        if is_last {
            let AtDevice { lane, op, .. } = self.ops.remove(&number).expect("found above");
            if let Some(op) = op {
                self.lane(lane).finish(op);
                self.start(now, lane);
            }
        }
        if self.full {
            self.start_all(now);
        }
    }

    fn note(&mut self, now: Nanos, token: u64, completion: Completion) {
        assert!(completion.done <= now, "released before its time");
        if self.log.records.len() == self.bounds.log_records_max {
            self.log.dropped += 1;
            return;
        }
        let Completion { request, arrived, started, done, positioning } = completion;
        let Request { write, offset, bytes, .. } = request;
        let record = Record {
            token,
            write,
            offset,
            bytes,
            arrived,
            started,
            done,
            positioning,
            released: now,
        };
        self.log.records.push(record);
    }

    fn lane(&mut self, id: LaneId) -> &mut Lane {
        self.lanes.get_mut(&id).expect("a lane that is open")
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

impl Lane {
    /// The next operation that may go to the device.
    fn startable(&self) -> Option<&Op> {
        let deep = self.depth.is_some_and(|depth| self.at_device >= depth);
        self.waiting.front().filter(|_| !deep)
    }

    /// Takes that operation.
    fn start(&mut self) -> Op {
        self.at_device += 1;
        self.waiting.pop_front().expect("it was looked at")
    }

    /// The device is done with `op`.
    fn finish(&mut self, op: Op) {
        self.at_device -= 1;
        self.due.push_back(op);
        self.changed.notify_one();
    }

    fn is_quiet(&self) -> bool {
        let Self { waiting, at_device, due, ended, carrying, .. } = self;
        let left = waiting.len() + due.len() + ended.len() + carrying;
        left == 0 && *at_device == 0
    }
}

/// Requests that `op` takes.
fn op_parts(op: &Op, request_bytes_max: u64) -> u64 {
    (op.bytes as u64).div_ceil(request_bytes_max)
}

#[cfg(test)]
mod tests {
    use forerun_core::device;

    use super::*;
    use crate::{frames::Frame, store::ECANCELED};

    const BOUNDS: Bounds = Bounds { requests_max: 64, log_records_max: 1_000 };

    fn ledger(spec: &str, bounds: Bounds) -> Ledger {
        Ledger::new(device::make(spec, 1).unwrap(), bounds)
    }

    fn lane(ledger: &mut Ledger, depth: Option<u32>) -> LaneId {
        ledger.open(depth, Arc::new(Condvar::new()))
    }

    fn op(kind: OpKind, token: u64, offset: u64, bytes: usize) -> Op {
        Op {
            token,
            kind,
            offset,
            bytes,
            frames: vec![Frame::new(bytes.next_power_of_two()).unwrap()],
        }
    }

    fn read(token: u64, offset: u64, bytes: usize) -> Op {
        op(OpKind::Read, token, offset, bytes)
    }

    fn take(ledger: &mut Ledger, id: LaneId) -> (Vec<u64>, Vec<Result<usize, i32>>) {
        let (mut due, mut ended) = (Vec::new(), Vec::new());
        ledger.take(id, &mut due, &mut ended);
        ledger.carried(id, due.len());
        let tokens = due.iter().map(|op| op.token).collect();
        (tokens, ended.iter().map(|done| done.result).collect())
    }

    /// Goes to the next moment; the tokens that it made due in `id`.
    fn step(ledger: &mut Ledger, id: LaneId) -> Vec<u64> {
        let next = ledger.next().expect("something is at the device");
        ledger.advance(Nanos(next.0 - 1));
        assert_eq!(take(ledger, id).0, [0; 0], "not before its moment");
        ledger.advance(next);
        take(ledger, id).0
    }

    /// Every device of the list.
    fn devices() -> &'static [&'static str] {
        device::NAMES
    }

    #[test]
    fn moments_are_those_of_the_bare_device() {
        for spec in devices() {
            let mut ledger = ledger(spec, BOUNDS);
            let mut bare = device::make(spec, 1).unwrap();
            let id = lane(&mut ledger, None);
            let offsets = [0, 4_096, 90 << 30, 8_192, 5 << 30, 12_288];
            for (at, offset) in offsets.into_iter().enumerate() {
                let now = Nanos(at as u64 * 1_000);
                ledger.advance(now);
                ledger.submit(now, id, read(at as u64, offset, 4_096));
            }
            let mut due = take(&mut ledger, id).0;
            for (at, offset) in offsets.into_iter().enumerate() {
                let request = Request { id: at as u64, offset, bytes: 4_096, write: false };
                bare.submit(Nanos(at as u64 * 1_000), request);
            }
            assert!(!ledger.is_quiet(id));
            while ledger.next().is_some() {
                due.extend(step(&mut ledger, id));
            }
            let mut expected = Vec::new();
            while let Some(next) = bare.next() {
                expected.extend(bare.complete(next));
            }
            let records = ledger.take_log().records;
            assert_eq!(records.len(), offsets.len(), "{spec}");
            for (record, completion) in records.iter().zip(&expected) {
                assert_eq!(record.token, completion.request.id, "{spec}");
                assert_eq!(record.offset, completion.request.offset, "{spec}");
                assert_eq!(record.arrived, completion.arrived, "{spec}");
                assert_eq!(record.started, completion.started, "{spec}");
                assert_eq!(record.done, completion.done, "{spec}");
                assert_eq!(record.positioning, completion.positioning, "{spec}");
                assert!(record.released >= record.done, "{spec}");
            }
            let tokens: Vec<_> = records.iter().map(|record| record.token).collect();
            assert_eq!(due, tokens, "{spec}");
            assert!(ledger.is_quiet(id));
        }
    }

    #[test]
    fn a_lane_has_its_depth_at_the_device_and_goes_on_in_order() {
        for depth in 1..4_u32 {
            let mut ledger = ledger("t7k250", BOUNDS);
            let id = lane(&mut ledger, Some(depth));
            let other = lane(&mut ledger, None);
            for token in 0..8 {
                ledger.submit(Nanos(0), id, read(token, token << 30, 4_096));
                let expected = depth.min(u32::try_from(token).unwrap() + 1);
                assert_eq!(ledger.device.in_flight(), expected);
            }
            ledger.submit(Nanos(0), other, read(100, 0, 4_096));
            assert_eq!(ledger.device.in_flight(), depth + 1, "each lane has its own depth");
            let mut tokens = Vec::new();
            while ledger.next().is_some() {
                tokens.extend(step(&mut ledger, id));
                let left = 8 - u32::try_from(tokens.len()).unwrap();
                let others = ledger.lanes[&other].at_device;
                assert_eq!(ledger.device.in_flight(), left.min(depth) + others);
            }
            tokens.sort_unstable();
            assert_eq!(tokens, (0..8).collect::<Vec<_>>());
            assert_eq!(take(&mut ledger, other).0, [100]);
        }
    }

    #[test]
    fn a_depth_holds_from_the_next_submission_on() {
        let mut ledger = ledger("t7k250", BOUNDS);
        let id = lane(&mut ledger, Some(1));
        for (token, depth, at_device) in [(0, 1, 1), (1, 1, 1), (2, 4, 3), (3, 2, 3), (4, 4, 4)] {
            ledger.set_depth(id, depth);
            ledger.submit(Nanos(0), id, read(token, token << 30, 4_096));
            assert_eq!(ledger.device.in_flight(), at_device, "{token}");
        }
    }

    #[test]
    fn a_large_operation_is_due_with_its_last_part() {
        for spec in devices() {
            let mut ledger = ledger(spec, BOUNDS);
            let max = usize::try_from(ledger.device.request_bytes_max()).unwrap();
            let id = lane(&mut ledger, Some(1));
            ledger.submit(Nanos(0), id, read(7, 4_096, 2 * max + 100));
            ledger.submit(Nanos(0), id, op(OpKind::Write, 8, 0, max));
            assert_eq!(ledger.device.in_flight(), 3);
            let mut tokens = Vec::new();
            while ledger.next().is_some() {
                tokens.push(step(&mut ledger, id));
            }
            let (last, before) = tokens.split_last().unwrap();
            assert_eq!(*last, [8], "{spec}");
            assert_eq!(*before.last().unwrap(), [7], "{spec}");
            assert!(before[..before.len() - 1].iter().all(Vec::is_empty), "{spec}");
            let records = ledger.take_log().records;
            let mut runs: Vec<_> =
                records.iter().map(|r| (r.token, r.write, r.offset, r.bytes)).collect();
            runs.sort_unstable();
            let max = max as u64;
            let expected = [
                (7, false, 4_096, max),
                (7, false, 4_096 + max, max),
                (7, false, 4_096 + 2 * max, 100),
                (8, true, 0, max),
            ];
            assert_eq!(runs, expected, "{spec}");
            let counts =
                Counts { reads: 3, read_bytes: 2 * max + 100, writes: 1, write_bytes: max };
            assert_eq!(ledger.counts(), counts, "{spec}");
        }
    }

    #[test]
    fn what_the_device_has_no_part_in_is_due_at_once() {
        let mut ledger = ledger("hdd", BOUNDS);
        let id = lane(&mut ledger, Some(1));
        ledger.submit(Nanos(0), id, read(1, 0, 4_096));
        ledger.submit(Nanos(0), id, op(OpKind::Sync, 2, 0, 0));
        ledger.submit(Nanos(0), id, read(3, 0, 0));
        assert!(!ledger.is_quiet(id));
        assert_eq!(take(&mut ledger, id).0, [2, 3]);
        assert_eq!(ledger.device.in_flight(), 1);
        assert_eq!(step(&mut ledger, id), [1]);
        assert!(ledger.is_quiet(id));
    }

    #[test]
    fn what_the_device_cannot_take_is_refused() {
        let bounds = Bounds { requests_max: 3, ..BOUNDS };
        let mut ledger = ledger("t7k250", bounds);
        let (end, max) = (ledger.device.capacity_bytes(), ledger.device.request_bytes_max());
        let max = usize::try_from(max).unwrap();
        let id = lane(&mut ledger, None);
        let nxio = Some(Errno::NXIO.raw_os_error());
        let inval = Some(Errno::INVAL.raw_os_error());
        #[rustfmt::skip]
        let rows = [ // why                            offset        bytes        errno
            ("up to the device's end",             end - 4_096,       4_096,       None),
            ("one byte past it",                   end - 4_095,       4_096,       nxio),
            ("offsets wrap",                      u64::MAX - 10,      4_096,       nxio),
            ("as many parts as the device holds",            0,     3 * max,       None),
            ("more parts than it holds",                     0, 3 * max + 1,      inval),
        ];
        for (at, (why, offset, bytes, errno)) in (1..).zip(rows) {
            let now = Nanos::from_millis(1_000 * at);
            ledger.submit(now, id, read(1, offset, bytes));
            let expected: Vec<Result<usize, i32>> = errno.into_iter().map(Err).collect();
            assert_eq!(take(&mut ledger, id).1, expected, "{why}");
            while ledger.next().is_some() {
                step(&mut ledger, id);
            }
            assert!(ledger.is_quiet(id), "{why}");
        }
    }

    #[test]
    fn a_full_device_makes_all_lanes_wait_and_none_for_ever() {
        let mut ledger = ledger("ssd", Bounds { requests_max: 4, ..BOUNDS });
        let lanes = [lane(&mut ledger, None), lane(&mut ledger, None)];
        for token in 0..10 {
            for id in lanes {
                ledger.submit(Nanos(0), id, read(token, token * 4_096, 4_096));
                assert!(ledger.device.in_flight() <= 4);
            }
        }
        assert_eq!(ledger.device.in_flight(), 4);
        let mut due = [Vec::new(), Vec::new()];
        while let Some(next) = ledger.next() {
            ledger.advance(next);
            let left = 20 - u32::try_from(due[0].len() + due[1].len()).unwrap();
            assert!(ledger.device.in_flight() <= 4.min(left));
            for (due, id) in due.iter_mut().zip(lanes) {
                due.extend(take(&mut ledger, id).0);
            }
        }
        for mut tokens in due {
            tokens.sort_unstable();
            assert_eq!(tokens, (0..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_lane_with_nothing_at_the_full_device_gets_its_turn() {
        let mut ledger = ledger("ssd", Bounds { requests_max: 4, ..BOUNDS });
        let (first, second) = (lane(&mut ledger, None), lane(&mut ledger, None));
        (0..4).for_each(|token| ledger.submit(Nanos(0), first, read(token, 0, 4_096)));
        ledger.submit(Nanos(0), second, read(9, 0, 4_096));
        while let Some(next) = ledger.next() {
            ledger.advance(next);
        }
        assert_eq!(take(&mut ledger, first).0, [0, 1, 2, 3]);
        assert_eq!(take(&mut ledger, second).0, [9]);
    }

    #[test]
    fn a_submission_releases_what_is_due_and_starts_what_waited_for_it() {
        let mut ledger = ledger("hdd", BOUNDS);
        let (deep, other) = (lane(&mut ledger, Some(1)), lane(&mut ledger, None));
        (0..2).for_each(|token| ledger.submit(Nanos(0), deep, read(token, 0, 4_096)));
        ledger.submit(Nanos::from_millis(1_000), other, read(9, 0, 4_096));
        assert_eq!(take(&mut ledger, deep).0, [0]);
        assert_eq!(ledger.device.in_flight(), 2);
    }

    #[test]
    fn a_closed_lane_is_cancelled_and_the_device_goes_on() {
        let mut ledger = ledger("hdd", BOUNDS);
        let (id, other) = (lane(&mut ledger, Some(2)), lane(&mut ledger, None));
        (0..4).for_each(|token| ledger.submit(Nanos(0), id, read(token, token << 30, 4_096)));
        ledger.submit(Nanos(0), id, op(OpKind::Sync, 4, 0, 0));
        ledger.submit(Nanos(0), other, read(9, 0, 4_096));
        ledger.close(id);
        assert!(!ledger.is_quiet(id), "five are to be taken");
        assert_eq!(take(&mut ledger, id), (vec![], vec![Err(ECANCELED); 5]));
        assert!(ledger.is_quiet(id));
        ledger.submit(Nanos(0), id, read(5, 0, 4_096));
        assert_eq!(take(&mut ledger, id), (vec![], vec![Err(ECANCELED)]));
        ledger.forget(id);
        assert_eq!(ledger.device.in_flight(), 3, "the device has them still");
        let mut tokens = Vec::new();
        while ledger.next().is_some() {
            tokens.extend(step(&mut ledger, other));
        }
        assert_eq!(tokens, [9]);
        assert_eq!(ledger.take_log().records.len(), 3);
        assert_eq!((ledger.ops.len(), ledger.requests.len(), ledger.lanes.len()), (0, 0, 1));
    }

    #[test]
    fn the_end_closes_all_lanes_and_later_ones() {
        let mut ledger = ledger("hdd", BOUNDS);
        let before = lane(&mut ledger, None);
        ledger.submit(Nanos(0), before, read(1, 0, 4_096));
        assert!(!ledger.is_ended());
        ledger.end();
        assert!(ledger.is_ended());
        assert_eq!(take(&mut ledger, before).1, [Err(ECANCELED)]);
        let after = lane(&mut ledger, None);
        ledger.submit(Nanos(0), after, read(2, 0, 4_096));
        assert_eq!(take(&mut ledger, after).1, [Err(ECANCELED)]);
    }

    #[test]
    fn what_is_being_carried_out_is_in_flight() {
        let mut ledger = ledger("optane", BOUNDS);
        let id = lane(&mut ledger, None);
        (0..2).for_each(|token| ledger.submit(Nanos(0), id, read(token, 0, 0)));
        let (mut due, mut ended) = (Vec::new(), Vec::new());
        ledger.take(id, &mut due, &mut ended);
        assert_eq!((due.len(), ended.len()), (2, 0));
        assert!(!ledger.is_quiet(id));
        ledger.carried(id, 1);
        assert!(!ledger.is_quiet(id));
        ledger.carried(id, 1);
        assert!(ledger.is_quiet(id));
    }

    #[test]
    fn the_log_is_bounded_and_counts_what_it_dropped() {
        let mut ledger = ledger("optane", Bounds { log_records_max: 2, ..BOUNDS });
        let id = lane(&mut ledger, None);
        let mut now = Nanos(0);
        let mut run = |count: u64| {
            for token in 0..count {
                now += Nanos::from_millis(1);
                ledger.submit(now, id, read(token, 0, 512));
                while let Some(next) = ledger.next() {
                    ledger.advance(next);
                }
            }
            let log = ledger.take_log();
            (log.records.iter().map(|record| record.token).collect::<Vec<_>>(), log.dropped)
        };
        assert_eq!(run(2), (vec![0, 1], 0));
        assert_eq!(run(0), (vec![], 0), "it was taken");
        assert_eq!(run(5), (vec![0, 1], 3));
    }
}
