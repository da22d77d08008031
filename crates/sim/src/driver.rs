//! Virtual time: readers, the core, a device model, and a heap of what happens next.
//!
//! ```text
//!   readers --Read--> core --Fetch--> host queue --(demand first)--> device model
//!      ^                ^                                                |
//!      +---- Done ------+------------------- Arrived -------------------+
//! ```
//!
//! A reader issues one read at a time; it goes on when its bytes are there, after the time that
//! copying them takes and the time that it computes. The host queue keeps the device busy with at
//! most `depth` requests and sends those that somebody waits for before readahead.
//!
//! # Invariants
//! - Time never runs backwards; what happens at one moment happens in the order in which it was
//!   caused, completions first. The same setup gives the same run, request by request.
//! # Sources
//! Wu, Xi, Xu 2010, 4.3, for the delay: the sum over reads of the time a read took beyond that of
//! a read of cached pages, over the first 100 MB.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use forerun_core::cache::{Cache, Settings, SettingsError, Stats};
use forerun_core::device::{Completion, Device, Request};
use forerun_core::drive::{Driver, drive};
use forerun_core::event::{Action, Actions, Error, Event, FetchKind};
use forerun_core::readahead::Readahead;
use forerun_core::units::{FileId, FrameId, HandleId, Nanos, PageIndex, PartitionId, RequestId};

use crate::workload::{Access, Reader, Workload};

/// What a run is made of.
pub struct Setup {
    /// The core's settings.
    pub cache: Settings,
    /// A readahead policy that has no name on the command line: an oracle.
    pub oracle: Option<Box<dyn Readahead + Send>>,
    /// The device; without one, every fetch completes at once.
    pub device: Option<Device>,
    /// Requests that the device may have at once; more wait in the host queue.
    pub depth: u32,
    /// Requests under way from which on markers do not trigger: Linux's 7/8 of 128.
    pub congested: u32,
    /// Time to hand one resident page to a reader.
    pub page_cost: Nanos,
    /// Device requests to keep for the report; the others are counted.
    pub log_max: usize,
}

impl Setup {
    /// `cache` on `device`, with the host's part as on Linux. `page_cost` is 1 us: assumed.
    #[must_use]
    pub fn new(cache: Settings, device: Option<Device>) -> Self {
        Self {
            cache,
            oracle: None,
            device,
            depth: 32,
            congested: 113,
            page_cost: Nanos::from_micros(1),
            log_max: 0,
        }
    }
}

/// One request of the device, as it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// When, where and how long.
    pub completion: Completion,
    /// Whether somebody waited for it.
    pub kind: FetchKind,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// From the first read to the end of the last.
    pub elapsed: Nanos,
    /// Bytes that readers asked for.
    pub bytes_wanted: u64,
    /// Bytes that the device moved.
    pub bytes_read: u64,
    /// Requests of the device.
    pub requests: u64,
    /// What reads took beyond reads of cached pages, in all.
    pub delay: Nanos,
    /// The same over the first 100 MB that were read.
    pub delay_first: Nanos,
    /// Reads whose bytes came later than asked for by more than 100 ms.
    pub reads_late: u64,
    /// The time that each read waited: how many waited so long.
    pub waits: Waits,
    /// The core's counts.
    pub stats: Stats,
    /// The first requests of the device.
    pub log: Vec<Logged>,
}

impl Outcome {
    /// Megabytes (10^6) that readers wanted, a second.
    #[must_use]
    pub fn mb_per_second(&self) -> f64 {
        rate(self.bytes_wanted, self.elapsed)
    }

    /// Bytes of a device request, on average.
    #[must_use]
    pub fn mean_request_bytes(&self) -> u64 {
        self.bytes_read / self.requests.max(1)
    }
}

/// Megabytes (10^6) a second; 0 when no time passed.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn rate(bytes: u64, time: Nanos) -> f64 {
    if time.0 == 0 { 0.0 } else { bytes as f64 * 1e3 / time.0 as f64 }
}

/// How long reads waited, in buckets that double: bucket b holds waits below 2^b ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    buckets: Vec<u64>,
}

impl Waits {
    fn note(&mut self, wait: Nanos) {
        let bucket = (64 - wait.0.leading_zeros()) as usize;
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
    }

    /// A bound below which `percent` in a hundred of the waits lie, within a factor of 2.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Nanos {
        let total: u64 = self.buckets.iter().sum();
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen * 100 >= total * percent {
                return Nanos(if bucket == 0 { 0 } else { 1 << bucket.min(63) });
            }
        }
        Nanos(0)
    }
}

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The cache cannot be built.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A read failed: the cache is too small for what was asked of it at once.
    #[error("a read of {bytes} bytes at {offset} failed: {error}")]
    Read {
        /// Where it began.
        offset: u64,
        /// Its size.
        bytes: u64,
        /// What the core said.
        error: Error,
    },
    /// The files of the workload do not fit the device.
    #[error("the workload's files take {files} bytes, the device holds {device}")]
    Device {
        /// Their sum.
        files: u64,
        /// What fits.
        device: u64,
    },
}

/// Runs `workload` to its end.
///
/// # Errors
/// The settings cannot work, the files do not fit the device, or a read failed.
pub fn run(setup: Setup, workload: &mut Workload) -> Result<Outcome, RunError> {
    let page_bytes = u64::from(setup.cache.page_bytes);
    let mut bases = Vec::new();
    let mut end = 0_u64;
    for &bytes in &workload.files {
        bases.push(end);
        end += bytes.next_multiple_of(1 << 20);
    }
    if let Some(device) = setup.device.as_ref().filter(|device| device.capacity_bytes() < end) {
        return Err(RunError::Device { files: end, device: device.capacity_bytes() });
    }
    let mut cache = Cache::with_oracle(setup.cache, setup.oracle)?;
    let mut host = Host {
        page_bytes,
        bases,
        device: setup.device,
        depth: setup.depth,
        demand: VecDeque::new(),
        ahead: VecDeque::new(),
        sent: Vec::new(),
        sent_free: Vec::new(),
        answered: Vec::new(),
        log_max: setup.log_max,
        log: Vec::new(),
        requests: 0,
        bytes_read: 0,
    };
    let mut actions = Actions::new();
    for (handle, &file) in (0..).zip(&workload.handles) {
        let file_pages = workload.files[file as usize].div_ceil(page_bytes);
        let (handle, file, partition) = (HandleId(handle), FileId(file), PartitionId(0));
        let open = Event::Open { handle, file, partition, file_pages };
        drive(&mut cache, Nanos(0), open, &mut actions, &mut host);
    }
    let mut clockwork = Clockwork {
        cache,
        actions,
        previous: vec![None; workload.handles.len()],
        heap: BinaryHeap::new(),
        order: 0,
        congested: setup.congested,
        page_cost: setup.page_cost,
        page_bytes,
        waiting: Vec::new(),
        outcome: Outcome {
            elapsed: Nanos(0),
            bytes_wanted: 0,
            bytes_read: 0,
            requests: 0,
            delay: Nanos(0),
            delay_first: Nanos(0),
            reads_late: 0,
            waits: Waits::default(),
            stats: Stats::default(),
            log: Vec::new(),
        },
    };
    clockwork.run(&mut host, &mut workload.readers)?;
    let mut outcome = clockwork.outcome;
    outcome.stats = *clockwork.cache.stats();
    outcome.requests = host.requests;
    outcome.bytes_read = host.bytes_read;
    outcome.log = host.log;
    Ok(outcome)
}

/// The host's side of the device.
struct Host {
    page_bytes: u64,
    bases: Vec<u64>,
    device: Option<Device>,
    depth: u32,
    demand: VecDeque<u32>,
    ahead: VecDeque<u32>,
    /// Fetches under way, by the number that the device knows them by.
    sent: Vec<Fetch>,
    sent_free: Vec<u32>,
    answered: Vec<(RequestId, Option<Error>)>,
    log_max: usize,
    log: Vec<Logged>,
    requests: u64,
    bytes_read: u64,
}

#[derive(Clone, Copy)]
struct Fetch {
    kind: FetchKind,
    first: FrameId,
    count: u32,
    offset: u64,
}

impl Driver for Host {
    fn carry_out(&mut self, action: Action, frames: &[FrameId]) -> bool {
        match action {
            Action::Fetch { kind, page, count, .. } => {
                let offset = self.bases[page.file.0 as usize] + page.index * self.page_bytes;
                let fetch = Fetch { kind, first: frames[0], count, offset };
                let number = if let Some(number) = self.sent_free.pop() {
                    self.sent[number as usize] = fetch;
                    number
                } else {
                    self.sent.push(fetch);
                    u32::try_from(self.sent.len() - 1).expect("bounded by the frames")
                };
                match kind {
                    FetchKind::Demand => self.demand.push_back(number),
                    FetchKind::Readahead => self.ahead.push_back(number),
                }
            }
            Action::Done { request } => self.answered.push((request, None)),
            Action::Fail { request, error } => self.answered.push((request, Some(error))),
            Action::Serve { .. }
            | Action::Publish { .. }
            | Action::Retract { .. }
            | Action::Explain { .. } => {}
            Action::Fill { .. } | Action::Write { .. } | Action::Sync { .. } => {
                unreachable!("workloads only read")
            }
        }
        true
    }
}

impl Host {
    /// Requests that wait or are under way.
    fn load(&self) -> usize {
        self.sent.len() - self.sent_free.len()
    }

    /// Gives the device what it may have.
    fn pump(&mut self, now: Nanos) {
        let Some(device) = &mut self.device else { return };
        while device.in_flight() < self.depth {
            let Some(number) = self.demand.pop_front().or_else(|| self.ahead.pop_front()) else {
                return;
            };
            let fetch = self.sent[number as usize];
            let (id, bytes) = (number.into(), u64::from(fetch.count) * self.page_bytes);
            device.submit(now, Request { id, offset: fetch.offset, bytes, write: false });
        }
    }

    /// When something arrives next.
    fn next(&self, now: Nanos) -> Option<Nanos> {
        match &self.device {
            Some(device) => device.next(),
            None => (self.load() > 0).then_some(now),
        }
    }

    /// The fetch that has arrived by `now`, if one has.
    fn arrived(&mut self, now: Nanos) -> Option<Fetch> {
        let number = match &mut self.device {
            Some(device) => {
                let completion = device.complete(now)?;
                let number = u32::try_from(completion.request.id).expect("one of our numbers");
                if self.log.len() < self.log_max {
                    let kind = self.sent[number as usize].kind;
                    self.log.push(Logged { completion, kind });
                }
                number
            }
            None => self.demand.pop_front().or_else(|| self.ahead.pop_front())?,
        };
        let fetch = self.sent[number as usize];
        self.sent_free.push(number);
        self.requests += 1;
        self.bytes_read += u64::from(fetch.count) * self.page_bytes;
        Some(fetch)
    }
}

/// The readers and the core in time.
struct Clockwork {
    cache: Cache,
    actions: Actions,
    /// The byte after each handle's previous read.
    previous: Vec<Option<u64>>,
    /// Reads to come: when, in which order, whose.
    heap: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    order: u64,
    congested: u32,
    page_cost: Nanos,
    page_bytes: u64,
    /// Each reader's next read or the one that it waits for, and when that began.
    waiting: Vec<(Option<Access>, Nanos)>,
    outcome: Outcome,
}

impl Clockwork {
    fn run(&mut self, host: &mut Host, readers: &mut [Reader]) -> Result<(), RunError> {
        let mut now = Nanos(0);
        self.waiting.resize(readers.len(), (None, now));
        for (index, reader) in readers.iter_mut().enumerate() {
            self.schedule(index, reader, now);
        }
        loop {
            let read = self.heap.peek().map(|&Reverse((at, ..))| at);
            let tick = self.cache.deadline().map(|at| at.max(now));
            let arrival = host.next(now);
            let Some(next) = [read, arrival, tick].into_iter().flatten().min() else {
                return Ok(());
            };
            assert!(next >= now, "the past does not come back");
            now = next;
            if arrival == Some(now) {
                while let Some(Fetch { first, count, .. }) = host.arrived(now) {
                    self.send(now, Event::Arrived { first, count }, host);
                }
            } else if read == Some(now) {
                let Reverse((_, _, index)) = self.heap.pop().expect("peeked");
                self.read(now, index, host);
            } else {
                self.send(now, Event::Tick, host);
            }
            host.pump(now);
            self.answer(now, host, readers)?;
        }
    }

    fn send(&mut self, now: Nanos, event: Event<'_>, host: &mut Host) {
        drive(&mut self.cache, now, event, &mut self.actions, host);
    }

    /// Puts the reader's next read on the heap, at `ready` or when it is due.
    fn schedule(&mut self, index: usize, reader: &mut Reader, ready: Nanos) {
        let access = reader.next();
        self.waiting[index] = (access, ready);
        if let Some(access) = access {
            self.order += 1;
            self.heap.push(Reverse((ready.max(access.not_before), self.order, index)));
        }
    }

    fn read(&mut self, now: Nanos, index: usize, host: &mut Host) {
        let access = self.waiting[index].0.expect("a reader on the heap has a read");
        self.waiting[index].1 = now;
        let end = access.offset + u64::from(access.bytes);
        let first: PageIndex = access.offset / self.page_bytes;
        let count = u32::try_from(end.div_ceil(self.page_bytes) - first).expect("bytes is a u32");
        let previous_end = self.previous[access.handle as usize].replace(end);
        let event = Event::Read {
            request: RequestId(index as u64),
            handle: HandleId(access.handle),
            first,
            count,
            previous_end,
            congested: host.load() >= self.congested as usize,
        };
        self.send(now, event, host);
    }

    /// Readers whose reads are complete go on.
    fn answer(
        &mut self,
        now: Nanos,
        host: &mut Host,
        readers: &mut [Reader],
    ) -> Result<(), RunError> {
        while let Some((request, error)) = host.answered.pop() {
            let index = usize::try_from(request.0).expect("requests are reader numbers");
            let (access, began) = self.waiting[index];
            let access = access.expect("an answer is to a read");
            let (offset, bytes) = (access.offset, u64::from(access.bytes));
            if let Some(error) = error {
                return Err(RunError::Read { offset, bytes, error });
            }
            let wait = now.since(began);
            let outcome = &mut self.outcome;
            outcome.waits.note(wait);
            outcome.delay += wait;
            if outcome.bytes_wanted < FIRST_BYTES {
                outcome.delay_first += wait;
            }
            if access.not_before > Nanos(0) {
                let late = now.since(access.not_before) > LATE;
                outcome.reads_late += u64::from(late);
            }
            outcome.bytes_wanted += bytes;
            let pages = (offset + bytes).div_ceil(self.page_bytes) - offset / self.page_bytes;
            let served = now + Nanos(self.page_cost.0 * pages);
            outcome.elapsed = outcome.elapsed.max(served);
            self.schedule(index, &mut readers[index], served + access.think);
        }
        Ok(())
    }
}

/// The bytes over which the delay of Wu, Xi, Xu 2010, Fig. 12 is summed.
const FIRST_BYTES: u64 = 100 << 20;
/// A paced read that is later than this is counted.
const LATE: Nanos = Nanos::from_millis(100);
