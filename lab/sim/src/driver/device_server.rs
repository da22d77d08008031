//! The host's side of the devices: it queues, joins and submits fetches and writes, and reports
//! what has arrived or is written.
//!
//! ```text
//!   write --(so many of a file)--\
//!   fetch -----------------parts---> a queue a member --(at most depth)--> member --> Arrived,
//!                                                                                     Written
//! ```
//! # Invariants
//! - A member has at most `depth` requests; a fetch or write is reported once, when all of its
//!   parts are done.
//! - What is done together is reported in the order in which it was joined.

use std::collections::VecDeque;

use forerun_core::device::{Completion, Device, Request};
use forerun_core::drive::Driver;
use forerun_core::event::{Error, Event, FetchKind, PrefetchOutcomes};
use forerun_core::readahead::Decision;
use forerun_core::units::{FileId, FrameId, HandleId, Nanos, PageId, PageIndex, RequestId};
use forerun_core::windows::WindowLog;

use super::{LoggedRequest, Setup};
use crate::host::{HostQueue, RequestOrder};
use crate::striped::{Part, Striped};
use crate::window_sizes::WindowSizes;

/// The host's side of the devices.
pub(super) struct DeviceServer {
    page_bytes: u64,
    pub(super) bases: Vec<u64>,
    striped: Option<Striped>,
    /// The members of `striped`, each behind its queue.
    members: Vec<Member>,
    /// What each file has written, by its number.
    writes: Vec<FileWrites>,
    writes_max: usize,
    /// Fetches and writes that the core waits for.
    operations: Slots<Operation>,
    /// What is done and was not reported yet, the last one first.
    finished: Vec<u32>,
    pub(super) answered: Vec<(RequestId, Option<Error>)>,
    /// Frames whose bytes a writer has filled in.
    pub(super) filled: Vec<(RequestId, FrameId)>,
    /// Files whose sync has ended.
    pub(super) synced: Vec<FileId>,
    log_max: usize,
    pub(super) log: Vec<LoggedRequest>,
    pub(super) windows: WindowLog,
    pub(super) window_sizes: WindowSizes,
    /// When the last event was sent.
    now: Nanos,
    pub(super) requests: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
}

/// A fetch or a write of the core.
#[derive(Clone, Copy)]
struct Operation {
    file: FileId,
    first: FrameId,
    count: u32,
    write: bool,
    /// Parts that are not done.
    parts: u32,
}

/// The writes of a file.
#[derive(Default)]
struct FileWrites {
    /// Those that the devices have.
    handed: usize,
    /// Those that wait: number, offset on the devices, and bytes.
    waiting: VecDeque<(u32, u64, u64)>,
}

/// A device behind its queue.
struct Member {
    device: Device,
    depth: u32,
    queue: HostQueue,
    /// Requests in the device, each with its operations.
    sent: Slots<(FetchKind, Vec<u32>)>,
    /// When it was given the first of the requests that it has.
    busy_since: Nanos,
    /// How long it has had requests before that.
    busy: Nanos,
}

impl Member {
    fn new(device: Device, depth: u32, order: RequestOrder) -> Self {
        let queue = HostQueue::new(order, device.request_bytes_max());
        let (busy_since, busy) = (Nanos(0), Nanos(0));
        Self { device, depth, queue, sent: Slots::new(), busy_since, busy }
    }

    /// Submits waiting requests up to the depth.
    fn pump(&mut self, now: Nanos) {
        while self.device.in_flight() < self.depth {
            let Some(next) = self.queue.pop() else { return };
            if self.device.in_flight() == 0 {
                self.busy_since = now;
            }
            let id = self.sent.put((next.kind, next.fetches)).into();
            let (offset, bytes, write) = (next.offset, next.bytes, next.write);
            self.device.submit(now, Request { id, offset, bytes, write });
        }
    }

    /// How long it has had requests until `now`.
    fn busy_until(&self, now: Nanos) -> Nanos {
        let under_way = self.device.in_flight() > 0;
        self.busy + if under_way { now.since(self.busy_since) } else { Nanos(0) }
    }

    /// The request that is done by `now`, if one is, and its operations.
    fn complete(&mut self, now: Nanos) -> Option<(Completion, FetchKind, Vec<u32>)> {
        let completion = self.device.complete(now)?;
        if self.device.in_flight() == 0 {
            self.busy += now.since(self.busy_since);
        }
        let number = u32::try_from(completion.request.id).expect("one of our numbers");
        let (kind, operations) = self.sent.take(number);
        Some((completion, kind, operations))
    }
}

/// Operations in flight, by small numbers that are used again.
struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    fn put(&mut self, thing: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.slots[number as usize] = Some(thing);
            return number;
        }
        self.slots.push(Some(thing));
        u32::try_from(self.slots.len() - 1).expect("bounded by the frames")
    }

    fn take(&mut self, number: u32) -> T {
        self.free.push(number);
        self.slots[number as usize].take().expect("a number is taken once")
    }

    fn get_mut(&mut self, number: u32) -> &mut T {
        self.slots[number as usize].as_mut().expect("a number is used while it is taken")
    }

    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Driver for DeviceServer {
    fn fetch(&mut self, kind: FetchKind, page: PageId, frames: &[FrameId]) {
        self.put(page, frames, Some(kind));
    }

    fn write(&mut self, page: PageId, frames: &[FrameId]) {
        self.put(page, frames, None);
    }

    fn fill(&mut self, request: RequestId, _: PageIndex, frame: FrameId, _: bool) {
        self.filled.push((request, frame));
    }

    fn sync(&mut self, file: FileId) {
        self.synced.push(file);
    }

    fn done(&mut self, request: RequestId) {
        self.answered.push((request, None));
    }

    fn fail(&mut self, request: RequestId, error: Error) {
        self.answered.push((request, Some(error)));
    }

    fn explain(&mut self, handle: HandleId, _: PageIndex, decision: Decision, fresh: u32) {
        self.window_sizes.note(self.now, decision.window.size);
        self.windows.opened(self.now, handle, decision, fresh);
    }

    fn outcomes(&mut self, window: u32, outcomes: PrefetchOutcomes) {
        self.windows.count_outcomes(self.now, window, outcomes);
    }

    fn sent(&mut self, now: Nanos, _: &Event<'_>) {
        self.now = now;
    }
}

impl DeviceServer {
    /// The server of `setup`'s devices, with files that begin at `bases`.
    pub(super) fn new(setup: &mut Setup, bases: Vec<u64>) -> Self {
        let striped = setup.device.take();
        let devices = striped.as_ref().map_or_else(Vec::new, |set| set.members().to_vec());
        let member = |device| Member::new(device, setup.depth, setup.order);
        Self {
            page_bytes: setup.cache.page_bytes.into(),
            writes: bases.iter().map(|_| FileWrites::default()).collect(),
            bases,
            striped,
            members: devices.into_iter().map(member).collect(),
            writes_max: setup.writes_max,
            operations: Slots::new(),
            finished: Vec::new(),
            answered: Vec::new(),
            filled: Vec::new(),
            synced: Vec::new(),
            log_max: setup.log_max,
            log: Vec::new(),
            windows: WindowLog::new(setup.windows_max),
            window_sizes: WindowSizes::since(setup.warm_up),
            now: Nanos(0),
            requests: 0,
            bytes_read: 0,
            bytes_written: 0,
        }
    }

    /// Queues a fetch, of `kind`, or a write.
    fn put(&mut self, page: PageId, frames: &[FrameId], kind: Option<FetchKind>) {
        let count = u32::try_from(frames.len()).expect("an operation counts frames in 32 bits");
        let file = page.file;
        let offset = self.bases[file.0 as usize] + page.index * self.page_bytes;
        let bytes = u64::from(count) * self.page_bytes;
        let write = kind.is_none();
        let operation = Operation { file, first: frames[0], count, write, parts: 0 };
        let number = self.operations.put(operation);
        if self.striped.is_none() {
            self.count(bytes, write);
            self.finished.push(number);
        } else if write {
            self.writes[file.0 as usize].waiting.push_back((number, offset, bytes));
            self.hand_writes(file);
        } else {
            self.hand(number, kind, offset, bytes);
        }
    }

    /// Hands waiting writes of `file` to the devices, as far as it may have more there.
    fn hand_writes(&mut self, file: FileId) {
        loop {
            let writes = &mut self.writes[file.0 as usize];
            if writes.handed >= self.writes_max {
                return;
            }
            let Some((number, offset, bytes)) = writes.waiting.pop_front() else { return };
            writes.handed += 1;
            self.hand(number, None, offset, bytes);
        }
    }

    /// Hands the parts of an operation to the queues of their members.
    fn hand(&mut self, number: u32, kind: Option<FetchKind>, offset: u64, bytes: u64) {
        let striped = self.striped.as_ref().expect("there are devices");
        let mut parts = 0;
        for Part { member, offset, bytes } in striped.parts(offset, bytes) {
            let queue = &mut self.members[member].queue;
            match kind {
                Some(kind) => queue.push(number, kind, offset, bytes),
                None => queue.push_write(number, offset, bytes),
            }
            parts += 1;
        }
        self.operations.get_mut(number).parts = parts;
    }

    fn count(&mut self, bytes: u64, write: bool) {
        self.requests += 1;
        if write {
            self.bytes_written += bytes;
        } else {
            self.bytes_read += bytes;
        }
    }

    /// Requests that wait or are in flight.
    pub(super) fn load(&self) -> usize {
        self.members.iter().map(|member| member.queue.len() + member.sent.len()).sum()
    }

    /// The time for which each member had requests until `now`, on average.
    pub(super) fn busy(&self, now: Nanos) -> Nanos {
        let sum: u64 = self.members.iter().map(|member| member.busy_until(now).0).sum();
        Nanos(sum / self.members.len().max(1) as u64)
    }

    /// Submits waiting requests up to the depth of each member.
    pub(super) fn pump(&mut self, now: Nanos) {
        for member in &mut self.members {
            member.pump(now);
        }
    }

    /// The time of the next completion.
    pub(super) fn next(&self, now: Nanos) -> Option<Nanos> {
        if self.finished.is_empty() {
            self.members.iter().filter_map(|member| member.device.next()).min()
        } else {
            Some(now)
        }
    }

    /// The event of the next fetch or write that is done by `now`, if one is.
    pub(super) fn finished(&mut self, now: Nanos) -> Option<Event<'static>> {
        while self.finished.is_empty() {
            let mut members = self.members.iter_mut();
            let (completion, kind, operations) = members.find_map(|member| member.complete(now))?;
            if self.log.len() < self.log_max {
                self.log.push(LoggedRequest { completion, kind });
            }
            self.count(completion.request.bytes, completion.request.write);
            for number in operations.into_iter().rev() {
                let operation = self.operations.get_mut(number);
                operation.parts -= 1;
                if operation.parts == 0 {
                    self.finished.push(number);
                }
            }
        }
        let number = self.finished.pop()?;
        let Operation { file, first, count, write, .. } = self.operations.take(number);
        if write && self.striped.is_some() {
            self.writes[file.0 as usize].handed -= 1;
            self.hand_writes(file);
        }
        Some(if write { Event::Written { first, count } } else { Event::Arrived { first, count } })
    }
}
