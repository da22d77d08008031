//! The planner: what to prefetch into a page cache that is not ours, for which reader, how far.
//!
//! A driver tells it of accesses and answers its requests. The core's cache stands behind it with
//! frames that are mere numbers, so streams, windows and strides are found by the same policies
//! that serve a cache of our own.
//!
//! ```text
//!   driver --open, seek, read--> cursor --> core (streams) --Fetch--> cursor: pending
//!                                                                        | pace, budget
//!   core <--Arrived, Failed-- in flight <--submitted-- driver <--request-+
//!                                 \--complete-- driver: has it come?
//! ```
//! Pages that the program has read are cached, so the core learns so at once. Pages that were
//! requested have arrived when the driver says so.
//!
//! # Invariants
//! - Every fetch of the core is answered for each of its frames, once: as arrived or as failed.
//! - No cursor has requests beyond its position by more than the pace's limit and a request; all
//!   together no more than the budget.
//! - Tables are bounded: cursors by [`CURSORS_MAX`], files by the cursors, latencies by
//!   [`FILES_MAX`], pending runs by the core's frames.
//! - The same calls give the same requests.

pub mod device;

mod cursor;
mod issue;
mod lengths;
mod model;
pub mod pace;
mod pending;
pub mod ranges;
mod reads;
mod runs;
mod settings;
mod strides;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use crate::cache::{Cache, SettingsError, Stats};
use crate::device::estimate::Ticket;
use crate::device::remembered::DeviceRecord;
use crate::event::Event;
use crate::units::{FileId, HandleId, Nanos};
use cursor::{Direction, StreamCursor};
use device::{DeviceKnowledge, LatencyTracker};
use lengths::RunLengths;
use model::Model;
use runs::PageRun;
pub use settings::PlannerSettings;

/// A reader of a file: dense from 0, and used again once it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CursorId(pub u32);

/// The name of a prefetch request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrefetchId(pub u64);

/// A file as the driver knows it when a reader opens it.
#[derive(Clone, Copy, Debug)]
pub struct PlannedFile {
    /// Its number.
    pub file: FileId,
    /// The device that it lies on.
    pub device: u64,
    /// Its size.
    pub bytes: u64,
    /// The size of a request that suits kernel and device; at least 1.
    pub request_bytes: u64,
}

/// One read that a program has made.
#[derive(Clone, Debug)]
pub struct Access {
    /// The reader.
    pub cursor: CursorId,
    /// The bytes.
    pub range: Range<u64>,
    /// Whether the range begins where the reader's last read ended.
    pub follows: bool,
    /// Processor time that the program has used so far, where that is known.
    pub processor: Option<Nanos>,
}

/// Bytes to be brought into the page cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefetchRequest {
    /// Its name.
    pub id: PrefetchId,
    /// The reader that it is for.
    pub cursor: CursorId,
    /// The file.
    pub file: FileId,
    /// The bytes, in whole pages; the last page may lie across the end of the file.
    pub range: Range<u64>,
}

/// What the driver has found out of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// All of it was cached before: it need not be submitted.
    Cached,
    /// Its bytes have come.
    Arrived,
    /// It was submitted, and no more than `bytes` of it were fetched: the others were cached, or
    /// need no device. These have come.
    Shortened {
        /// The bytes that were fetched.
        bytes: u64,
    },
    /// They have not come yet.
    Absent,
}

/// A request in flight.
#[derive(Debug)]
pub struct InFlight {
    /// Its name.
    pub id: PrefetchId,
    /// The file.
    pub file: FileId,
    /// When it was issued.
    pub since: Nanos,
    run: PageRun,
    /// Its pages, from the first to the last, that a program has used as cached ones: the kernel
    /// counts what is on its way.
    used: Range<u64>,
    /// From the reader to its far end, in bytes.
    distance: u64,
    /// None of it was cached.
    is_cold: bool,
    /// When it was looked at last and had not arrived.
    absent: Nanos,
    /// Its device, whose estimator follows it by the ticket.
    ticket: Option<(u64, Ticket)>,
}

impl InFlight {
    /// Its bytes, in whole pages.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        let Range { start, end } = self.run.pages();
        start * PAGE_BYTES..end * PAGE_BYTES
    }
}

/// What a planner counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlannerStats {
    /// Streams that were found.
    pub streams: u64,
    /// Bytes that readers have read.
    pub bytes_read: u64,
    /// Requests that were submitted.
    pub requests: u64,
    /// Their bytes.
    pub bytes_requested: u64,
    /// Bytes of requests that were cached already.
    pub bytes_cached: u64,
    /// Bytes that were dropped before they were requested, or did not come.
    pub bytes_dropped: u64,
    /// The largest distance of a request from its reader.
    pub distance_bytes_max: u64,
}

/// See the module.
pub struct Planner {
    settings: PlannerSettings,
    /// Built with the first access that is not cached: most programs have none.
    model: Option<Model>,
    /// Pages of the largest read that the core sees at once.
    read_pages_max: u64,
    files: BTreeMap<FileId, FileRow>,
    cursors: Vec<Option<StreamCursor>>,
    /// The first runs of readers, from the heads of files.
    openings: RunLengths,
    in_flight: VecDeque<InFlight>,
    /// Pages that are pending, of all cursors.
    pending_pages: u64,
    /// When the last request was made that was not cached.
    requested: Option<Nanos>,
    latencies: BTreeMap<u64, LatencyTracker>,
    devices: BTreeMap<u64, DeviceKnowledge>,
    memory_bytes: u64,
    reads: u64,
    requests: u64,
    counts: PlannerStats,
}

/// A file with readers.
struct FileRow {
    device: u64,
    bytes: u64,
    request_bytes: u64,
    cursors: u32,
    /// Of these, those that are open in the core: one at least, once one was, as the core forgets
    /// with the last one how reads of the file turned out.
    open: u32,
}

impl Planner {
    /// A planner without readers.
    ///
    /// # Errors
    /// The policy is unknown, or its windows do not fit the budget.
    pub fn new(settings: PlannerSettings) -> Result<Self, SettingsError> {
        let core = settings.core(settings.budget_bytes);
        Cache::check(&core)?;
        Ok(Self {
            settings,
            model: None,
            read_pages_max: 0,
            files: BTreeMap::new(),
            cursors: Vec::new(),
            openings: RunLengths::default(),
            in_flight: VecDeque::new(),
            pending_pages: 0,
            requested: None,
            latencies: BTreeMap::new(),
            devices: BTreeMap::new(),
            memory_bytes: u64::MAX,
            reads: 0,
            requests: 0,
            counts: PlannerStats::default(),
        })
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> PlannerStats {
        let streams = self.model.as_ref().map_or(0, |model| model.effects.streams.count);
        PlannerStats { streams, ..self.counts }
    }

    /// What the core counted, in pages.
    #[must_use]
    pub fn core_stats(&self) -> Stats {
        self.model.as_ref().map_or_else(Stats::default, |model| *model.stats())
    }

    /// Sets the memory that may hold prefetched pages, those that hold some now included.
    pub fn set_memory(&mut self, bytes: u64) {
        self.memory_bytes = bytes;
    }

    /// Whether something is in flight or waits to be requested.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.in_flight.is_empty() || self.pending_pages > 0
    }

    /// Whether it pays to look often: something was requested of a device a short time ago. What
    /// is pending does not count: a reader that does not come nearer gains nothing by it.
    #[must_use]
    pub fn is_attentive(&self, now: Nanos) -> bool {
        self.requested.is_some_and(|at| now.since(at) < ATTENTIVE_FOR)
    }

    /// Bytes that were requested and are not read yet.
    #[must_use]
    pub fn ahead_bytes(&self) -> u64 {
        // A read of the core may settle a pending page before it leaves the table.
        self.core_stats().ahead_unread.saturating_sub(self.pending_pages) * PAGE_BYTES
    }

    /// Whether one more reader may be followed.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.cursors.len() < CURSORS_MAX || self.cursors.iter().any(Option::is_none)
    }

    /// Forgets all readers and files at once; nothing that was requested is answered.
    pub fn clear(&mut self) {
        self.cursors.clear();
        self.files.clear();
        while let Some(row) = self.in_flight.pop_front() {
            self.forget_ticket(&row);
        }
        self.requested = None;
    }

    /// Whether [`Planner::remember`] is to be told of `device`.
    #[must_use]
    pub fn wants_device(&self, device: u64) -> bool {
        self.devices.len() < FILES_MAX && !self.devices.contains_key(&device)
    }

    /// What earlier runs have learnt of `device`, before its first request.
    pub fn remember(&mut self, device: u64, record: Option<DeviceRecord>) {
        assert!(self.wants_device(device), "{device}: told once, of a bounded number");
        self.devices.insert(device, DeviceKnowledge::new(record));
    }

    /// What is kept of each device for the next run.
    pub fn device_records(&self) -> impl Iterator<Item = (u64, DeviceRecord)> {
        self.devices.iter().filter_map(|(&device, known)| Some((device, known.record()?)))
    }

    /// A reader of `file` is at `position`. `None` if there are too many readers.
    pub fn open(&mut self, file: &PlannedFile, position: u64) -> Option<CursorId> {
        assert!(file.request_bytes > 0, "a request has bytes");
        let free = self.cursors.iter().position(Option::is_none);
        let at = free.unwrap_or(self.cursors.len());
        if at >= CURSORS_MAX {
            return None;
        }
        if free.is_none() {
            self.cursors.push(None);
        }
        let &PlannedFile { file, device, bytes, request_bytes } = file;
        let row = FileRow { device, bytes, request_bytes, cursors: 0, open: 0 };
        self.files.entry(file).or_insert(row).cursors += 1;
        self.cursors[at] = Some(StreamCursor::new(file, position, self.settings.pace.clone()));
        Some(CursorId(u32::try_from(at).expect("below CURSORS_MAX")))
    }

    /// One more reader of the file of `cursor`, at `position`. `None` if there are too many.
    pub fn open_again(&mut self, cursor: CursorId, position: u64) -> Option<CursorId> {
        let file = self.file(cursor)?;
        let &FileRow { device, bytes, request_bytes, .. } = self.files.get(&file)?;
        self.open(&PlannedFile { file, device, bytes, request_bytes }, position)
    }

    /// The file of `cursor`, while it is open.
    #[must_use]
    pub fn file(&self, cursor: CursorId) -> Option<FileId> {
        Some(self.cursors.get(cursor.index())?.as_ref()?.file)
    }

    /// The file has `bytes` now.
    pub fn resize(&mut self, now: Nanos, file: FileId, bytes: u64) {
        let Some(row) = self.files.get_mut(&file) else { return };
        let before = core::mem::replace(&mut row.bytes, bytes);
        if before != bytes && self.model.is_some() {
            self.send(now, Event::Truncate { file, pages: pages(bytes).max(1) });
        }
    }

    /// What the core knows of `file` is of another version.
    pub fn forget(&mut self, now: Nanos, file: FileId) {
        if self.model.is_some() {
            self.send(now, Event::Invalidate { file, first: 0, count: u64::MAX });
        }
    }

    /// The reader went to `position` without reading up to there.
    pub fn seek(&mut self, now: Nanos, cursor: CursorId, position: u64) {
        self.goes_to(cursor, position);
        let Some(row) = self.cursors[cursor.index()].as_mut() else { return };
        // What lies beyond is still to come, unless the reader went back.
        let skipped = if row.position <= position { 0..position / PAGE_BYTES } else { 0..u64::MAX };
        (row.position, row.cached, row.direction) = (position, 0..0, Direction::Unknown);
        row.pace.moved();
        self.drop_pending(now, cursor, &skipped);
        self.drop_fetched(now);
    }

    /// Counts a read that nothing goes on from.
    pub fn read_once(&mut self, range: &Range<u64>) {
        self.counts.bytes_read += range.end - range.start;
    }

    /// The reader is gone. Returns the file if it was the file's last one.
    pub fn close(&mut self, now: Nanos, cursor: CursorId) -> Option<FileId> {
        self.drop_pending(now, cursor, &(0..u64::MAX));
        let row = self.cursors[cursor.index()].take()?;
        let bytes = self.files.get(&row.file).map_or(0, |file| file.bytes);
        self.openings.left(row.closes(bytes));
        if self.files.get(&row.file).is_some_and(|file| file.cursors == 1) {
            // What is in flight comes, and is not looked at any more.
            while let Some(at) = self.in_flight.iter().position(|it| it.file == row.file) {
                let come = self.in_flight.remove(at).expect("it was there");
                self.forget_ticket(&come);
                self.came(now, come);
            }
        }
        if row.is_open {
            self.keep_open(now, row.file);
            self.send(now, Event::Close { handle: cursor.handle() });
        }
        let file = self.files.get_mut(&row.file)?;
        file.open -= u32::from(row.is_open);
        assert!(file.cursors > 0, "a cursor is open on a file with cursors");
        file.cursors -= 1;
        if file.cursors > 0 {
            return None;
        }
        self.files.remove(&row.file);
        self.drop_fetched(now);
        Some(row.file)
    }

    /// The reader goes on at `position`, which may end its run.
    fn goes_to(&mut self, cursor: CursorId, position: u64) {
        let Some(row) = self.cursors[cursor.index()].as_mut() else { return };
        let bytes = self.files.get(&row.file).map_or(0, |file| file.bytes);
        self.openings.left(row.goes_to(position, bytes));
    }

    /// The last cursor of `file` that is open in the core is about to be closed: opens another.
    fn keep_open(&mut self, now: Nanos, file: FileId) {
        if self.files.get(&file).is_none_or(|row| row.open > 1 || row.cursors == 1) {
            return;
        }
        let is_of_it = |row: &Option<StreamCursor>| row.as_ref().is_some_and(|it| it.file == file);
        if let Some(at) = self.cursors.iter().position(is_of_it) {
            let at = u32::try_from(at).expect("below CURSORS_MAX");
            self.open_handle(now, CursorId(at));
        }
    }

    fn next_prefetch_id(&mut self) -> PrefetchId {
        self.requests += 1;
        PrefetchId(self.requests)
    }

    fn model(&mut self) -> &mut Model {
        self.model.as_mut().expect("the core is built before the first event")
    }

    fn send(&mut self, now: Nanos, event: Event<'_>) {
        self.model().send(now, event);
    }
}

impl CursorId {
    fn index(self) -> usize {
        self.0 as usize
    }

    fn handle(self) -> HandleId {
        HandleId(self.0)
    }
}

fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES)
}

/// The unit of decisions, in bytes.
pub const PAGE_BYTES: u64 = 4096;
/// Readers that are followed.
pub const CURSORS_MAX: usize = 1024;
/// Files of which the driver may remember something.
pub const FILES_MAX: usize = 1024;
/// The largest request.
pub const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// What is ahead of all readers takes one part in so many of the memory, at most.
const AHEAD_ONE_IN: u64 = 2;

/// Longer than devices take for a request that is not queued behind many.
const ATTENTIVE_FOR: Nanos = Nanos::from_millis(250);

#[cfg(test)]
mod tests;
