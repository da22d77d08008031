//! Virtual time: readers, the core, a device model, and a heap of what happens next.
//!
//! ```text
//!   readers --Read--> core --Fetch--> host queue --(at most depth)--> device model
//!      ^                ^                                                |
//!      +---- Done ------+------------------- Arrived -------------------+
//! ```
//!
//! A reader issues one read at a time; it goes on when its bytes are there, after the time that
//! copying them takes and the time that it computes. A prefetching thread ([`crate::prefetch`]) is
//! one more reader, with a handle of its own, that looks at where the program is. The host queue
//! ([`crate::host`]) keeps the device busy with at most `depth` requests.
//!
//! # Invariants
//! - Time never runs backwards; what happens at one moment happens in the order in which it was
//!   caused, completions first. The same setup gives the same run, request by request.
//! # Sources
//! Wu, Xi, Xu 2010, 4.3, for the delay: the sum over reads of the time a read took beyond that of
//! a read of cached pages, over the first 100 MB.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forerun_core::cache::{Cache, Settings, SettingsError, Stats};
use forerun_core::device::{Completion, Device, Request};
use forerun_core::drive::{Driver, drive};
use forerun_core::event::{Actions, Error, Event, FetchKind, PrefetchOutcomes};
use forerun_core::readahead::{Decision, Readahead};
use forerun_core::units::{
    FileId, FrameId, HandleId, Nanos, PageId, PageIndex, PartitionId, RequestId,
};
use forerun_core::windows::{Opened, WindowLog};

use crate::host::{HostQueue, Order};
use crate::prefetch::{Next, Prefetch, Prefetcher};
use crate::waits::Waits;
use crate::workload::{Access, Reader, Workload};

/// What a run is made of.
pub struct Setup {
    /// The core's settings.
    pub cache: Settings,
    /// A readahead policy that has no name on the command line: an oracle.
    pub oracle: Option<Box<dyn Readahead + Send>>,
    /// A thread that reads ahead for a program: one reader of one whole file.
    pub prefetch: Option<Prefetch>,
    /// The device; without one, every fetch completes at once.
    pub device: Option<Device>,
    /// Requests that the device may have at once; more wait in the host queue.
    pub depth: u32,
    /// Which of those goes next.
    pub order: Order,
    /// Requests in flight from which on markers do not trigger: Linux's 7/8 of 128.
    pub congested: u32,
    /// Time to hand one resident page to a reader.
    pub page_cost: Nanos,
    /// Device requests to keep for the report; the others are counted.
    pub log_max: usize,
    /// Readahead windows to keep for the report; the others are counted. 0: none is explained.
    pub windows_max: usize,
}

impl Setup {
    /// `cache` on `device`, with the host's part as on Linux. `page_cost` is 1 us: assumed.
    #[must_use]
    pub fn new(cache: Settings, device: Option<Device>) -> Self {
        Self {
            cache,
            oracle: None,
            prefetch: None,
            device,
            depth: 32,
            order: Order::DemandFirst,
            congested: 113,
            page_cost: Nanos::from_micros(1),
            log_max: 0,
            windows_max: 0,
        }
    }
}

/// One request of the device, as it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// When, where and how long.
    pub completion: Completion,
    /// Whether a request waited for it.
    pub kind: FetchKind,
}

/// One readahead window, as it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedWindow {
    /// Where its file begins on the device, in bytes.
    pub base: u64,
    /// When, why and what became of it.
    pub opened: Opened,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
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
    /// The most that the bytes of a paced read came after it was due.
    pub late_max: Nanos,
    /// When the last paced read was due whose bytes came more than a second later.
    pub late_until: Nanos,
    /// The time that each read waited: how many waited so long.
    pub waits: Waits,
    /// The core's counts.
    pub stats: Stats,
    /// The first requests of the device.
    pub log: Vec<Logged>,
    /// The first windows, where they are explained.
    pub windows: Vec<LoggedWindow>,
    /// Windows that were opened after those.
    pub windows_left_out: u64,
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
    /// A prefetching thread has no program to read ahead for.
    #[error("a prefetching thread needs one reader that reads one file from its head to its end")]
    Prefetch,
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
/// The settings cannot work, the files do not fit the device, a read failed, or there is to be a
/// prefetching thread where none can be.
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
    if setup.prefetch.is_some() && !Prefetch::suits(workload) {
        return Err(RunError::Prefetch);
    }
    let request_bytes_max = setup.device.as_ref().map_or(0, Device::request_bytes_max);
    let explain = setup.cache.explain || setup.windows_max > 0;
    let mut handles = workload.handles.clone();
    let prefetcher = setup.prefetch.map(|prefetch| {
        let handle = u32::try_from(handles.len()).expect("bounded by the settings");
        handles.push(0);
        let free = u64::from(setup.cache.frames) * page_bytes;
        let (file, device) = (workload.files[0], setup.cache.device);
        Prefetcher::new(prefetch, handle, file, page_bytes, free, device)
    });
    let mut cache = Cache::with_oracle(Settings { explain, ..setup.cache }, setup.oracle)?;
    let mut host = Host {
        page_bytes,
        bases,
        device: setup.device,
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
    };
    let mut actions = Actions::new();
    for (handle, &file) in (0..).zip(&handles) {
        let file_pages = workload.files[file as usize].div_ceil(page_bytes);
        let (handle, file, partition) = (HandleId(handle), FileId(file), PartitionId(0));
        let open = Event::Open { handle, file, partition, file_pages };
        drive(&mut cache, Nanos(0), open, &mut actions, &mut host);
    }
    let mut clockwork = Clockwork {
        cache,
        actions,
        previous: vec![None; handles.len()],
        prefetcher,
        heap: BinaryHeap::new(),
        order: 0,
        congested: setup.congested,
        page_cost: setup.page_cost,
        page_bytes,
        waiting: Vec::new(),
        outcome: Outcome::default(),
    };
    clockwork.run(&mut host, &mut workload.readers)?;
    let mut outcome = clockwork.outcome;
    outcome.stats = *clockwork.cache.stats();
    outcome.requests = host.requests;
    outcome.bytes_read = host.bytes_read;
    outcome.log = host.log;
    outcome.windows_left_out = host.windows.left_out();
    let rows = host.windows.rows(&clockwork.cache).into_iter();
    let base = |handle: HandleId| host.bases[handles[handle.0 as usize] as usize];
    outcome.windows =
        rows.map(|opened| LoggedWindow { base: base(opened.handle), opened }).collect();
    Ok(outcome)
}

/// The host's side of the device.
struct Host {
    page_bytes: u64,
    bases: Vec<u64>,
    device: Option<Device>,
    depth: u32,
    queue: HostQueue,
    /// Fetches that the core waits for.
    fetches: Slots<Fetch>,
    /// Requests that the device has: the fetches that each is made of.
    sent: Slots<(FetchKind, Vec<u32>)>,
    /// Fetches that have arrived and were not reported yet, the last one first.
    arrived: Vec<u32>,
    answered: Vec<(RequestId, Option<Error>)>,
    log_max: usize,
    log: Vec<Logged>,
    windows: WindowLog,
    /// When the last event was sent.
    now: Nanos,
    requests: u64,
    bytes_read: u64,
}

#[derive(Clone, Copy)]
struct Fetch {
    first: FrameId,
    count: u32,
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

impl Driver for Host {
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

impl Host {
    /// Requests that wait or are in flight.
    fn load(&self) -> usize {
        self.queue.len() + self.sent.len()
    }

    /// Gives the device what it may have.
    fn pump(&mut self, now: Nanos) {
        let Some(device) = &mut self.device else { return };
        while device.in_flight() < self.depth {
            let Some(next) = self.queue.pop() else { return };
            let id = self.sent.put((next.kind, next.fetches)).into();
            let (offset, bytes) = (next.offset, next.bytes);
            device.submit(now, Request { id, offset, bytes, write: false });
        }
    }

    /// When something arrives next.
    fn next(&self, now: Nanos) -> Option<Nanos> {
        if self.arrived.is_empty() { self.device.as_ref()?.next() } else { Some(now) }
    }

    /// The fetch that has arrived by `now`, if one has.
    fn arrived(&mut self, now: Nanos) -> Option<Fetch> {
        if self.arrived.is_empty() {
            let completion = self.device.as_mut()?.complete(now)?;
            let number = u32::try_from(completion.request.id).expect("one of our numbers");
            let (kind, mut fetches) = self.sent.take(number);
            if self.log.len() < self.log_max {
                self.log.push(Logged { completion, kind });
            }
            self.requests += 1;
            self.bytes_read += completion.request.bytes;
            fetches.reverse();
            self.arrived = fetches;
        }
        self.arrived.pop().map(|number| self.fetches.take(number))
    }
}

/// The readers and the core in time.
struct Clockwork {
    cache: Cache,
    actions: Actions,
    /// The byte after each handle's previous read.
    previous: Vec<Option<u64>>,
    /// The thread that reads ahead, while its program runs. Its number is that of a reader after
    /// the last one.
    prefetcher: Option<Prefetcher>,
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
        let thread = readers.len();
        self.waiting.resize(thread + 1, (None, now));
        for (index, reader) in readers.iter_mut().enumerate() {
            self.schedule(index, reader, now);
        }
        if self.prefetcher.is_some() {
            self.wake(thread, now);
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
                if index == thread {
                    self.prefetch(now, thread, host);
                } else {
                    self.read(now, index, host);
                }
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
        match access {
            Some(access) => self.wake(index, ready.max(access.not_before)),
            // Its program has ended.
            None => self.prefetcher = None,
        }
    }

    /// Puts the reader on the heap.
    fn wake(&mut self, index: usize, at: Nanos) {
        self.order += 1;
        self.heap.push(Reverse((at, self.order, index)));
    }

    /// The prefetching thread goes on until it waits for bytes, naps or ends.
    fn prefetch(&mut self, now: Nanos, thread: usize, host: &mut Host) {
        while let Some(prefetcher) = &mut self.prefetcher {
            let handle = HandleId(prefetcher.handle());
            match prefetcher.next() {
                Next::Read(access) => {
                    self.waiting[thread].0 = Some(access);
                    return self.read(now, thread, host);
                }
                Next::Ask { first, count } => {
                    self.send(now, Event::Prefetch { handle, first, count }, host);
                }
                Next::Nap(time) => return self.wake(thread, now + time),
                Next::End => self.prefetcher = None,
            }
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
            let pages = (offset + bytes).div_ceil(self.page_bytes) - offset / self.page_bytes;
            let served = now + Nanos(self.page_cost.0 * pages);
            let Some(reader) = readers.get_mut(index) else {
                self.wake(index, served);
                continue;
            };
            let wait = now.since(began);
            if let Some(prefetcher) = &mut self.prefetcher {
                let busy = served.since(now) + access.think;
                prefetcher.program_read(offset + bytes, wait > Nanos(0), busy);
            }
            let outcome = &mut self.outcome;
            outcome.waits.note(wait);
            outcome.delay += wait;
            if outcome.bytes_wanted < FIRST_BYTES {
                outcome.delay_first += wait;
            }
            if access.not_before > Nanos(0) {
                let late = now.since(access.not_before);
                outcome.reads_late += u64::from(late > LATE);
                if late > STALLED {
                    outcome.late_until = outcome.late_until.max(access.not_before);
                }
                outcome.late_max = outcome.late_max.max(late);
            }
            outcome.bytes_wanted += bytes;
            outcome.elapsed = outcome.elapsed.max(served);
            self.schedule(index, reader, served + access.think);
        }
        Ok(())
    }
}

/// The bytes over which the delay of Wu, Xi, Xu 2010, Fig. 12 is summed.
const FIRST_BYTES: u64 = 100 << 20;
/// A paced read that is later than this is counted.
const LATE: Nanos = Nanos::from_millis(100);
/// So is one that a player would have stopped for.
const STALLED: Nanos = Nanos::from_millis(1_000);
