//! The modelled device behind the crate's scheduler: the requests that it has, the operations that
//! they are parts of, and what became of each.
//!
//! Pure: moments are arguments, nothing sleeps. A large operation goes to the device as several
//! requests, which are its cost, and is due when the last of them is done.
//!
//! ```text
//!   queue 0: waiting --\
//!                       scheduler --> device --(all parts done)--> due --take--> carried
//!   queue 1: waiting --/
//! ```
//!
//! # Invariants
//! - The device's requests are the scheduler's costs in flight: never more than `requests_max`.
//! - A request that the device holds is never called back: when its queue is closed, the
//!   operation is cancelled at once and the device completes a request of no operation.
//! - The log is bounded; what did not fit is counted.

use std::{collections::BTreeMap, sync::Arc};

use forerun_core::{
    device::{Completion as DeviceCompletion, Device, Request},
    units::Nanos,
};
use parking_lot::Condvar;
use rustix::io::Errno;

use crate::{
    scheduler::{QueueId, Scheduler},
    store::{Completion, Op, OpKind, QueueKind},
};

/// A request that the device completed. Moments are in the device's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRecord {
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
    /// When its operation was released for it: not before `done`.
    pub released: Nanos,
}

/// Requests in the order of their completion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceLog {
    /// The first that fit the bound.
    pub records: Vec<DeviceRecord>,
    /// How many came after those.
    pub dropped: u64,
}

/// The requests that the device got since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Requests to read.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Requests to write.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
}

impl DeviceCounts {
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

/// See the module.
pub(super) struct DeviceScheduler {
    pub(super) device: Device,
    pub(super) scheduler: Scheduler<Op, Release>,
    /// By number; the numbers rise.
    ops: BTreeMap<u64, AtDevice>,
    /// The operation that a request is a part of, by the request's number; the numbers rise.
    requests: BTreeMap<u64, u64>,
    numbers: u64,
    pub(super) counts: DeviceCounts,
    pub(super) log: DeviceLog,
    bounds: Bounds,
    /// The store went.
    pub(super) ended: bool,
}

/// The bounds of a modelled device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Requests at the device.
    pub(super) requests_max: u32,
    /// Records until the log is taken.
    pub(super) log_records_max: usize,
}

/// What a reaper takes.
pub(super) enum Release {
    /// An operation to carry out: its time is over.
    Due(Op),
    /// An operation that ended without the device.
    Ended(Completion),
}

impl From<Completion> for Release {
    fn from(done: Completion) -> Self {
        Self::Ended(done)
    }
}

/// An operation at the device.
struct AtDevice {
    queue: QueueId,
    token: u64,
    /// None once it was cancelled.
    op: Option<Op>,
    /// Requests that are not done.
    parts: u32,
}

impl DeviceScheduler {
    pub(super) fn new(device: Device, bounds: Bounds) -> Self {
        Self {
            device,
            scheduler: Scheduler::new(bounds.requests_max),
            ops: BTreeMap::new(),
            requests: BTreeMap::new(),
            numbers: 0,
            counts: DeviceCounts::default(),
            log: DeviceLog::default(),
            bounds,
            ended: false,
        }
    }

    /// A queue whose reapers wait for `changed`.
    pub(super) fn open(&mut self, kind: QueueKind, changed: Arc<Condvar>) -> QueueId {
        let id = self.scheduler.open(kind, changed);
        if self.ended {
            self.scheduler.close(id);
        }
        id
    }

    /// Releases what is due by `now`, then takes `op` in.
    pub(super) fn submit(&mut self, now: Nanos, id: QueueId, op: Op) {
        self.advance(now);
        if let Some(errno) = self.refusal(&op) {
            self.scheduler.submit_done(id, Completion { op, result: Err(errno) });
        } else if self.scheduler.is_closed(id) || (op.bytes > 0 && op.kind != OpKind::Sync) {
            self.scheduler.submit(id, op);
            self.start(now);
        } else {
            self.scheduler.submit_ready(id, Release::Due(op));
        }
    }

    /// Releases what the device has done by `now`.
    pub(super) fn advance(&mut self, now: Nanos) {
        while let Some(completion) = self.device.complete(now) {
            self.release(now, completion);
        }
    }

    /// Moves what is due to `due`, to be carried out, and what ended otherwise to `out`.
    pub(super) fn take(&mut self, id: QueueId, due: &mut Vec<Op>, out: &mut Vec<Completion>) {
        let mut ready = Vec::new();
        self.scheduler.take(id, &mut ready);
        for release in ready {
            match release {
                Release::Due(op) => due.push(op),
                Release::Ended(done) => out.push(done),
            }
        }
    }

    /// Cancels whatever the queue has and will get.
    pub(super) fn close(&mut self, id: QueueId) {
        let ours = self.ops.values_mut().filter(|at_device| at_device.queue == id);
        let at_device: Vec<_> = ours.filter_map(|at_device| at_device.op.take()).collect();
        for op in at_device {
            self.scheduler.complete(id, op.cancelled().into());
        }
        let (mut due, mut ended) = (Vec::new(), Vec::new());
        self.take(id, &mut due, &mut ended);
        self.scheduler.finish(id, due.len());
        let cancelled = due.into_iter().map(Op::cancelled);
        ended.into_iter().chain(cancelled).for_each(|done| self.scheduler.submit_done(id, done));
        self.scheduler.close(id);
    }

    /// The owner drops the queue.
    pub(super) fn forget(&mut self, id: QueueId) {
        self.close(id);
        self.scheduler.release(id);
    }

    /// The store goes: closes all queues.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.scheduler.ids().into_iter().for_each(|id| self.close(id));
    }

    #[cfg(test)]
    pub(super) fn queue_count(&self) -> usize {
        self.scheduler.ids().len()
    }

    /// Why the device cannot take `op` at all.
    fn refusal(&self, op: &Op) -> Option<i32> {
        let end = op.offset.checked_add(op.bytes as u64);
        if end.is_none_or(|end| end > self.device.capacity_bytes()) {
            return Some(Errno::NXIO.raw_os_error());
        }
        let fits = op_parts(op, self.device.request_bytes_max())
            .is_some_and(|parts| parts <= self.bounds.requests_max);
        (!fits).then_some(Errno::INVAL.raw_os_error())
    }

    /// Hands the device what the scheduler starts.
    fn start(&mut self, now: Nanos) {
        let bytes_max = self.device.request_bytes_max();
        let cost = |op: &Op| op_parts(op, bytes_max).expect("others are refused");
        while let Some((queue, op)) = self.scheduler.next(cost) {
            let number = self.number();
            let parts = self.submit_parts(now, number, &op);
            assert_eq!(parts, cost(&op), "each part is a request");
            let at_device = AtDevice { queue, token: op.token, op: Some(op), parts };
            self.ops.insert(number, at_device);
        }
        assert_eq!(self.device.in_flight(), self.scheduler.in_flight(), "two counts of one thing");
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
    fn release(&mut self, now: Nanos, completion: DeviceCompletion) {
        let number = self.requests.remove(&completion.request.id).expect("it was submitted");
        let at_device = self.ops.get_mut(&number).expect("it has parts that are not done");
        let token = at_device.token;
        assert!(at_device.parts > 0, "each part is done once");
        at_device.parts -= 1;
        let is_last = at_device.parts == 0;
        self.record(now, token, completion);
        self.scheduler.freed(1);
        if is_last {
            let AtDevice { queue, op, .. } = self.ops.remove(&number).expect("found above");
            if let Some(op) = op {
                self.scheduler.complete_ready(queue, Release::Due(op));
            }
        }
        self.start(now);
    }

    fn record(&mut self, now: Nanos, token: u64, completion: DeviceCompletion) {
        assert!(completion.done <= now, "released before its time");
        if self.log.records.len() == self.bounds.log_records_max {
            self.log.dropped += 1;
            return;
        }
        let DeviceCompletion { request, arrived, started, done, positioning } = completion;
        let Request { write, offset, bytes, .. } = request;
        let record = DeviceRecord {
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

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

/// Requests that `op` takes.
fn op_parts(op: &Op, request_bytes_max: u64) -> Option<u32> {
    u32::try_from((op.bytes as u64).div_ceil(request_bytes_max)).ok()
}

#[cfg(test)]
mod tests;
