//! The host's side of the device: it queues, joins and submits fetches, and reports arrivals.
//!
//! # Invariants
//! - The device has at most `depth` requests; a fetch arrives once.
//! - Fetches that arrive together are reported in the order in which they were joined.

use forerun_core::device::{Device, Request};
use forerun_core::drive::Driver;
use forerun_core::event::{Error, Event, FetchKind, PrefetchOutcomes};
use forerun_core::readahead::Decision;
use forerun_core::units::{FrameId, HandleId, Nanos, PageId, PageIndex, RequestId};
use forerun_core::windows::WindowLog;

use super::{LoggedRequest, Setup};
use crate::host::HostQueue;

/// The host's side of the device.
pub(super) struct DeviceServer {
    page_bytes: u64,
    pub(super) bases: Vec<u64>,
    device: Option<Device>,
    depth: u32,
    queue: HostQueue,
    /// Fetches that the core waits for.
    fetches: Slots<Fetch>,
    /// Requests in the device, each with its fetches.
    sent: Slots<(FetchKind, Vec<u32>)>,
    /// Fetches that have arrived and were not reported yet, the last one first.
    arrived: Vec<u32>,
    pub(super) answered: Vec<(RequestId, Option<Error>)>,
    log_max: usize,
    pub(super) log: Vec<LoggedRequest>,
    pub(super) windows: WindowLog,
    /// When the last event was sent.
    now: Nanos,
    pub(super) requests: u64,
    pub(super) bytes_read: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Fetch {
    pub(super) first: FrameId,
    pub(super) count: u32,
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

    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Driver for DeviceServer {
    fn fetch(&mut self, kind: FetchKind, page: PageId, frames: &[FrameId]) {
        let count = u32::try_from(frames.len()).expect("a fetch counts its frames in 32 bits");
        let offset = self.bases[page.file.0 as usize] + page.index * self.page_bytes;
        let number = self.fetches.put(Fetch { first: frames[0], count });
        let bytes = u64::from(count) * self.page_bytes;
        if self.device.is_some() {
            self.queue.push(number, kind, offset, bytes);
        } else {
            self.requests += 1;
            self.bytes_read += bytes;
            self.arrived.push(number);
        }
    }

    fn done(&mut self, request: RequestId) {
        self.answered.push((request, None));
    }

    fn fail(&mut self, request: RequestId, error: Error) {
        self.answered.push((request, Some(error)));
    }

    fn explain(&mut self, handle: HandleId, _: PageIndex, decision: Decision, fresh: u32) {
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
    /// The server of `setup`'s device, with files that begin at `bases`.
    pub(super) fn new(setup: &mut Setup, bases: Vec<u64>) -> Self {
        let device = setup.device.take();
        let request_bytes_max = device.as_ref().map_or(0, Device::request_bytes_max);
        Self {
            page_bytes: setup.cache.page_bytes.into(),
            bases,
            device,
            depth: setup.depth,
            queue: HostQueue::new(setup.order, request_bytes_max),
            fetches: Slots::new(),
            sent: Slots::new(),
            arrived: Vec::new(),
            answered: Vec::new(),
            log_max: setup.log_max,
            log: Vec::new(),
            windows: WindowLog::new(setup.windows_max),
            now: Nanos(0),
            requests: 0,
            bytes_read: 0,
        }
    }

    /// Requests that wait or are in flight.
    pub(super) fn load(&self) -> usize {
        self.queue.len() + self.sent.len()
    }

    /// Submits waiting requests up to the device's depth.
    pub(super) fn pump(&mut self, now: Nanos) {
        let Some(device) = &mut self.device else { return };
        while device.in_flight() < self.depth {
            let Some(next) = self.queue.pop() else { return };
            let id = self.sent.put((next.kind, next.fetches)).into();
            let (offset, bytes) = (next.offset, next.bytes);
            device.submit(now, Request { id, offset, bytes, write: false });
        }
    }

    /// The time of the next arrival.
    pub(super) fn next(&self, now: Nanos) -> Option<Nanos> {
        if self.arrived.is_empty() { self.device.as_ref()?.next() } else { Some(now) }
    }

    /// The fetch that has arrived by `now`, if one has.
    pub(super) fn arrived(&mut self, now: Nanos) -> Option<Fetch> {
        if self.arrived.is_empty() {
            let completion = self.device.as_mut()?.complete(now)?;
            let number = u32::try_from(completion.request.id).expect("one of our numbers");
            let (kind, mut fetches) = self.sent.take(number);
            if self.log.len() < self.log_max {
                self.log.push(LoggedRequest { completion, kind });
            }
            self.requests += 1;
            self.bytes_read += completion.request.bytes;
            fetches.reverse();
            self.arrived = fetches;
        }
        self.arrived.pop().map(|number| self.fetches.take(number))
    }
}
