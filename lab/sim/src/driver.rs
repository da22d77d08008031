//! Virtual time: readers, the core, a device model, and a heap of pending events.
//!
//! ```text
//!   readers --Read--> core --Fetch--> host queue --(at most depth)--> device model
//!      ^                ^                                                |
//!      +---- Done ------+------------------- Arrived -------------------+
//! ```
//!
//! A reader issues one read at a time; it continues after the arrival of the bytes, the time of
//! their copy and its own computation. A prefetching thread ([`crate::prefetch`]) is one more
//! reader, with a handle of its own, that polls the program's position. The host queue
//! ([`crate::host`]) keeps the device busy with at most `depth` requests.
//!
//! # Invariants
//! - Time never runs backwards; events of one moment run in the order in which they were
//!   caused, completions first. The same setup gives the same run, request by request.
//! # Sources
//! Wu, Xi, Xu 2010, 4.3, for the delay: the sum over reads of the time a read took beyond that of
//! a read of cached pages, over the first 100 MB.

mod device_server;
mod outcome;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forerun_core::cache::{Cache, Settings, SettingsError};
use forerun_core::device::Device;
use forerun_core::drive::drive;
use forerun_core::event::{Actions, Error, Event};
use forerun_core::readahead::Readahead;
use forerun_core::units::{FileId, HandleId, Nanos, PageIndex, PartitionId, RequestId};

use crate::host::RequestOrder;
use crate::prefetch::{Next, Prefetch, Prefetcher};
use crate::striped::Striped;
use crate::trace::Op;
use crate::workload::{Access, Reader, Workload};
use device_server::DeviceServer;
pub use outcome::{
    LoggedRequest, LoggedWindow, PartitionCounts, Responses, RunOutcome, Warm, rate,
};

/// The setup of a run.
pub struct Setup {
    /// The core's settings.
    pub cache: Settings,
    /// A readahead policy that has no name on the command line: an oracle.
    pub oracle: Option<Box<dyn Readahead + Send>>,
    /// A thread that reads ahead for a program: one reader of one whole file.
    pub prefetch: Option<Prefetch>,
    /// The device, or several side by side; without one, every fetch completes at once.
    pub device: Option<Striped>,
    /// Whether writes of the workload are writes: their pages become dirty, and go to the device
    /// as the core says. Otherwise a write fetches its pages as a read does.
    pub writes: bool,
    /// Responses to what is due before this are not counted, nor how busy devices are until then.
    pub warm_up: Nanos,
    /// Requests that each device may have at once; more wait in its host queue.
    pub depth: u32,
    /// Writes of a file that are handed to the devices at once; more wait in the cache's own queue,
    /// in the order of the core.
    pub writes_max: usize,
    /// The order of waiting requests.
    pub order: RequestOrder,
    /// Markers do not trigger at this number of requests in flight or more: Linux's 7/8 of 128.
    pub congested: u32,
    /// Time to copy one resident page to a reader.
    pub page_cost: Nanos,
    /// Device requests to keep for the report; the others are counted.
    pub log_max: usize,
    /// Readahead windows to keep for the report; the others are counted. 0: none is explained,
    /// unless the settings of the cache say so.
    pub windows_max: usize,
    /// The partition of each handle, by its number; those without one have the first.
    pub partitions: Vec<PartitionId>,
}

impl Setup {
    /// `cache` on `device`, with the host's part as on Linux. `page_cost` is 1 us: assumed.
    #[must_use]
    pub fn new(cache: Settings, device: Option<Device>) -> Self {
        Self {
            cache,
            oracle: None,
            prefetch: None,
            device: device.map(Striped::from),
            writes: false,
            warm_up: Nanos(0),
            depth: 32,
            writes_max: usize::MAX,
            order: RequestOrder::DemandFirst,
            congested: 113,
            page_cost: Nanos::from_micros(1),
            log_max: 0,
            windows_max: 0,
            partitions: Vec::new(),
        }
    }
}

/// The reason why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The cache cannot be built.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A read failed: the cache is too small for the requests at that moment.
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
pub fn run(mut setup: Setup, workload: &mut Workload) -> Result<RunOutcome, RunError> {
    let mut end = 0_u64;
    let base = |&bytes: &u64| {
        let base = end;
        end += bytes.next_multiple_of(1 << 20);
        base
    };
    let bases = workload.files.iter().map(base).collect();
    if let Some(device) = setup.device.as_ref().filter(|set| set.capacity_bytes() < end) {
        return Err(RunError::Device { files: end, device: device.capacity_bytes() });
    }
    if setup.prefetch.is_some() && !Prefetch::suits(workload) {
        return Err(RunError::Prefetch);
    }
    let mut server = DeviceServer::new(&mut setup, bases);
    let mut handles = workload.handles.clone();
    // The bounds of a live cache: a workload is given whole, with its files and handles.
    let number = |count: usize| u32::try_from(count).expect("files and handles are u32 numbers");
    let Settings { files_max, handles_max, .. } = &mut setup.cache;
    *files_max = number(workload.files.len()).max(*files_max);
    *handles_max = number(handles.len() + 1).max(*handles_max);
    let partitions = std::mem::take(&mut setup.partitions);
    let mut events = EventLoop::new(setup, workload, &mut handles)?;
    events.open(&workload.files, &handles, &partitions, &mut server);
    events.run(&mut server, &mut workload.readers)?;
    let rows = server.windows.rows(&events.cache).into_iter();
    let base = |handle: HandleId| server.bases[handles[handle.0 as usize] as usize];
    let windows = rows.map(|opened| LoggedWindow { base: base(opened.handle), opened });
    Ok(RunOutcome {
        stats: *events.cache.stats(),
        requests: server.requests,
        bytes_read: server.bytes_read,
        bytes_written: server.bytes_written,
        windows_left_out: server.windows.left_out(),
        windows: windows.collect(),
        window_sizes: server.window_sizes,
        partitions: events.cache.partitions().map(PartitionCounts::from).collect(),
        device_record: events.cache.device_record(),
        log: server.log,
        ..events.outcome
    })
}

/// The readers and the core in virtual time.
struct EventLoop {
    cache: Cache,
    actions: Actions,
    /// The byte after each handle's previous read.
    previous: Vec<Option<u64>>,
    /// The thread that reads ahead, while its program runs. Its number is that of a reader after
    /// the last one.
    prefetcher: Option<Prefetcher>,
    /// The heap of reads: time, order, reader.
    heap: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    order: u64,
    congested: u32,
    page_cost: Nanos,
    page_bytes: u64,
    writes: bool,
    warm_up: Nanos,
    /// Each reader's next or pending read, and the start time of that read.
    waiting: Vec<(Option<Access>, Nanos)>,
    outcome: RunOutcome,
}

impl EventLoop {
    /// The loop of `setup`; the handle of a prefetching thread is added to `handles`.
    fn new(setup: Setup, workload: &Workload, handles: &mut Vec<u32>) -> Result<Self, RunError> {
        let page_bytes = u64::from(setup.cache.page_bytes);
        let explain = setup.cache.explain || setup.windows_max > 0;
        let prefetcher = setup.prefetch.map(|prefetch| {
            let handle = u32::try_from(handles.len()).expect("bounded by the settings");
            handles.push(0);
            let free = u64::from(setup.cache.frames) * page_bytes;
            let (file, device) = (workload.files[0], setup.cache.device);
            Prefetcher::new(prefetch, handle, file, page_bytes, free, device)
        });
        Ok(Self {
            cache: Cache::with_oracle(Settings { explain, ..setup.cache }, setup.oracle)?,
            actions: Actions::new(),
            previous: vec![None; handles.len()],
            prefetcher,
            heap: BinaryHeap::new(),
            order: 0,
            congested: setup.congested,
            page_cost: setup.page_cost,
            page_bytes,
            writes: setup.writes,
            warm_up: setup.warm_up,
            waiting: Vec::new(),
            outcome: RunOutcome::default(),
        })
    }

    /// Opens each handle on its file.
    fn open(
        &mut self,
        files: &[u64],
        handles: &[u32],
        partitions: &[PartitionId],
        server: &mut DeviceServer,
    ) {
        for (handle, &file) in (0..).zip(handles) {
            let file_pages = files[file as usize].div_ceil(self.page_bytes);
            let partition = partitions.get(handle as usize).copied().unwrap_or(PartitionId(0));
            let (handle, file) = (HandleId(handle), FileId(file));
            let open = Event::Open { handle, file, partition, file_pages };
            self.send(Nanos(0), open, server);
        }
    }

    fn run(&mut self, server: &mut DeviceServer, readers: &mut [Reader]) -> Result<(), RunError> {
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
            let due = [self.cache.deadline(), self.cache.writeback_due()];
            let tick = due.into_iter().flatten().min().map(|at| at.max(now));
            let arrival = server.next(now);
            let Some(next) = [read, arrival, tick].into_iter().flatten().min() else {
                return Ok(());
            };
            assert!(next >= now, "the past does not come back");
            now = next;
            if arrival == Some(now) {
                while let Some(event) = server.finished(now) {
                    self.send(now, event, server);
                }
            } else if read == Some(now) {
                let Reverse((_, _, index)) = self.heap.pop().expect("peeked");
                if index == thread {
                    self.prefetch(now, thread, server);
                } else {
                    self.read(now, index, server);
                }
            } else {
                self.send(now, Event::Tick, server);
            }
            server.pump(now);
            self.answer(now, server, readers)?;
        }
    }

    fn send(&mut self, now: Nanos, event: Event<'_>, server: &mut DeviceServer) {
        drive(&mut self.cache, now, event, &mut self.actions, server);
        // A writer copies at once, and a sync ends at once: the device has no cache of its own.
        loop {
            let event = if let Some((request, frame)) = server.filled.pop() {
                Event::Filled { request, frame }
            } else if let Some(file) = server.synced.pop() {
                Event::Synced { file, errno: 0 }
            } else {
                return;
            };
            drive(&mut self.cache, now, event, &mut self.actions, server);
        }
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

    /// Runs the prefetching thread until it waits for bytes, naps or ends.
    fn prefetch(&mut self, now: Nanos, thread: usize, server: &mut DeviceServer) {
        while let Some(prefetcher) = &mut self.prefetcher {
            let handle = HandleId(prefetcher.handle());
            match prefetcher.next() {
                Next::Read(access) => {
                    self.waiting[thread].0 = Some(access);
                    return self.read(now, thread, server);
                }
                Next::Ask { first, count } => {
                    self.send(now, Event::Prefetch { handle, first, count }, server);
                }
                Next::Nap(time) => return self.wake(thread, now + time),
                Next::End => self.prefetcher = None,
            }
        }
    }

    fn read(&mut self, now: Nanos, index: usize, server: &mut DeviceServer) {
        let access = self.waiting[index].0.expect("a reader on the heap has a read");
        self.waiting[index].1 = now;
        let end = access.offset + u64::from(access.bytes);
        let first: PageIndex = access.offset / self.page_bytes;
        let count = u32::try_from(end.div_ceil(self.page_bytes) - first).expect("bytes is a u32");
        let (request, handle) = (RequestId(index as u64), HandleId(access.handle));
        if self.writes && access.op == Op::Write {
            let head_partial = !access.offset.is_multiple_of(self.page_bytes);
            let tail_partial = !end.is_multiple_of(self.page_bytes);
            let durable = false;
            let event =
                Event::Write { request, handle, first, count, head_partial, tail_partial, durable };
            return self.send(now, event, server);
        }
        let previous_end = self.previous[access.handle as usize].replace(end);
        let congested = server.load() >= self.congested as usize;
        let event = Event::Read { request, handle, first, count, previous_end, congested };
        self.send(now, event, server);
    }

    /// Resumes the readers whose reads are complete.
    fn answer(
        &mut self,
        now: Nanos,
        server: &mut DeviceServer,
        readers: &mut [Reader],
    ) -> Result<(), RunError> {
        while let Some((request, error)) = server.answered.pop() {
            let index = usize::try_from(request.0).expect("requests are reader numbers");
            let (access, began) = self.waiting[index];
            let access = access.expect("an answer is to a read");
            let (offset, bytes) = (access.offset, u64::from(access.bytes));
            if let Some(error) = error {
                return Err(RunError::Read { offset, bytes, error });
            }
            let pages = (offset + bytes).div_ceil(self.page_bytes) - offset / self.page_bytes;
            let answered_at = now + Nanos(self.page_cost.0 * pages);
            let Some(reader) = readers.get_mut(index) else {
                self.wake(index, answered_at);
                continue;
            };
            let wait = now.since(began);
            if let Some(prefetcher) = &mut self.prefetcher {
                let busy = answered_at.since(now) + access.think;
                prefetcher.program_read(offset + bytes, wait > Nanos(0), busy);
            }
            let outcome = &mut self.outcome;
            outcome.waits.note(wait);
            outcome.delay += wait;
            let due = if access.not_before > Nanos(0) { access.not_before } else { began };
            if due >= self.warm_up {
                outcome.responses.note(answered_at.since(due), access.op);
            } else {
                outcome.warm = Warm {
                    elapsed: outcome.elapsed.max(answered_at),
                    busy: server.busy(now),
                    stats: *self.cache.stats(),
                };
            }
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
            outcome.elapsed = outcome.elapsed.max(answered_at);
            outcome.busy = server.busy(now);
            self.schedule(index, reader, answered_at + access.think);
        }
        Ok(())
    }
}

/// The bytes over which the delay of Wu, Xi, Xu 2010, Fig. 12 is summed.
const FIRST_BYTES: u64 = 100 << 20;
/// A paced read that is later than this is counted.
const LATE: Nanos = Nanos::from_millis(100);
/// A paced read that is later than this stops a player; it is counted too.
const STALLED: Nanos = Nanos::from_millis(1_000);
