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
mod model;
pub mod pace;
mod pending;
pub mod ranges;
mod runs;
mod strides;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use crate::cache::{self, Cache, SettingsError, Stats};
use crate::event::Event;
use crate::eviction;
use crate::units::{FileId, HandleId, Nanos, PartitionId, RequestId};
use cursor::{Direction, StreamCursor};
use device::{DeviceEstimate, LatencyTracker};
use model::Model;
use pace::PaceRule;
use runs::PageRun;

/// The values that a planner is built from.
#[derive(Clone, Debug)]
pub struct PlannerSettings {
    /// How far one reader may be led.
    pub pace: PaceRule,
    /// Bytes that may be ahead of all readers together.
    pub budget_bytes: u64,
    /// The readahead policy, as `NAME:key=value,...`.
    pub readahead: String,
    /// What is known of the devices before they are measured.
    pub device: DeviceEstimate,
}

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
    /// From the reader to its far end, in bytes.
    distance: u64,
    /// None of it was cached.
    is_cold: bool,
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
    in_flight: VecDeque<InFlight>,
    /// Pages that are pending, of all cursors.
    pending_pages: u64,
    latencies: BTreeMap<u64, LatencyTracker>,
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
            in_flight: VecDeque::new(),
            pending_pages: 0,
            latencies: BTreeMap::new(),
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
        self.in_flight.clear();
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
        let row = FileRow { device, bytes, request_bytes, cursors: 0 };
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
        let Some(row) = self.cursors[cursor.index()].as_mut() else { return };
        // What lies beyond is still to come, unless the reader went back.
        let skipped = if row.position <= position { 0..position / PAGE_BYTES } else { 0..u64::MAX };
        (row.position, row.cached, row.direction) = (position, 0..0, Direction::Unknown);
        row.pace.moved();
        self.drop_pending(now, cursor, &skipped);
        self.drop_fetched(now);
    }

    /// The bytes around `access` whose residency [`Planner::read`] has to know; `None` if it has
    /// none to know.
    #[must_use]
    pub fn probe(&self, access: &Access) -> Option<Range<u64>> {
        let row = self.cursors[access.cursor.index()].as_ref()?;
        let bytes = self.files.get(&row.file)?.bytes;
        let range = access.range.start..access.range.end.min(bytes);
        if range.is_empty() || !row.pending.is_empty() {
            return None;
        }
        let direction = match row.direction {
            Direction::Unknown => Direction::Unknown,
            Direction::Forward | Direction::Backward => row.after(&access.range).0,
        };
        let ahead = |far: u64| match direction {
            Direction::Forward => range.end..bytes.min(range.end + far),
            Direction::Backward => range.start.saturating_sub(far)..range.start,
            // A random reader is new at each place: to look far ahead of each read costs too much.
            Direction::Unknown => {
                let far = far.min(PROBE_BYTES_RANDOM);
                range.start.saturating_sub(far)..bytes.min(range.end + far)
            }
        };
        let near = ahead(PROBE_BYTES / 2);
        let is_known = row.cached.start <= near.start && near.end <= row.cached.end;
        (!is_known).then(|| ahead(PROBE_BYTES))
    }

    /// A program has read. `is_cached`: whether all of the range that [`Planner::probe`] named is.
    /// Returns whether the reader comes to bytes that are not cached before long.
    pub fn read(&mut self, now: Nanos, access: &Access, is_cached: bool) -> bool {
        let probe = self.probe(access);
        let &Access { cursor, ref range, follows, processor } = access;
        let Some(row) = self.cursors[cursor.index()].as_mut() else { return false };
        let file = row.file;
        let Some(bytes) = self.files.get(&file).map(|row| row.bytes) else { return false };
        let (direction, position) = row.after(range);
        row.position = position;
        let before = core::mem::replace(&mut row.direction, direction);
        // The reader goes on from nothing where its seek was seen before its read.
        let is_new_here = before == Direction::Unknown;
        if before != direction {
            row.pace.moved();
        }
        row.rate.read(range.end - range.start, processor);
        self.counts.bytes_read += range.end - range.start;
        let range = range.start..range.end.min(bytes);
        if range.is_empty() {
            return false;
        }
        let is_cached = match probe {
            Some(probe) => {
                row.cached = if is_cached { probe } else { 0..0 };
                is_cached
            }
            None => row.pending.is_empty(),
        };
        if is_cached {
            return false;
        }
        if self.open_handle(now, cursor) {
            let pages = range.start / PAGE_BYTES..pages(range.end);
            let follows = follows && !is_new_here;
            self.read_pages(
                now,
                access.cursor,
                file,
                &pages,
                is_new_here,
                follows.then_some(range.start),
            );
        }
        true
    }

    /// Counts a read that nothing goes on from.
    pub fn read_once(&mut self, range: &Range<u64>) {
        self.counts.bytes_read += range.end - range.start;
    }

    /// The reader is gone. Returns the file if it was the file's last one.
    pub fn close(&mut self, now: Nanos, cursor: CursorId) -> Option<FileId> {
        self.drop_pending(now, cursor, &(0..u64::MAX));
        let row = self.cursors[cursor.index()].take()?;
        if row.is_open {
            self.send(now, Event::Close { handle: cursor.handle() });
        }
        let file = self.files.get_mut(&row.file)?;
        file.cursors -= 1;
        if file.cursors > 0 {
            return None;
        }
        self.files.remove(&row.file);
        // What is in flight comes, and is not looked at any more.
        let mut arrived = Vec::new();
        self.take_in_flight(row.file, &(0..u64::MAX), &mut arrived);
        for run in arrived {
            self.arrived(now, &run);
        }
        self.drop_fetched(now);
        Some(row.file)
    }

    /// Builds the core for the memory that there is. Returns whether it is built.
    fn build(&mut self) -> bool {
        if self.model.is_none() {
            let budget = self.settings.budget_bytes.min(self.memory_bytes / CORE_ONE_IN);
            let settings = self.settings.core(budget);
            self.read_pages_max = u64::from(settings.frames / READS_AT_ONCE);
            // The memory may be too little for a policy's window.
            self.model = Model::new(settings).ok();
        }
        self.model.is_some()
    }

    /// Opens the cursor's handle in the core. Returns whether it is open.
    fn open_handle(&mut self, now: Nanos, cursor: CursorId) -> bool {
        let Some(row) = self.cursors[cursor.index()].as_ref() else { return false };
        if row.is_open {
            return true;
        }
        let (file, partition) = (row.file, PartitionId(0));
        let file_pages = pages(self.files[&file].bytes).max(1);
        if !self.build() {
            return false;
        }
        self.send(now, Event::Open { handle: cursor.handle(), file, partition, file_pages });
        self.cursors[cursor.index()].as_mut().expect("it was there").is_open = true;
        true
    }

    /// Shows a read of `range` to the core, in parts that fit it.
    fn read_pages(
        &mut self,
        now: Nanos,
        cursor: CursorId,
        file: FileId,
        range: &Range<u64>,
        is_new_here: bool,
        mut previous_end: Option<u64>,
    ) {
        if is_new_here {
            self.take_over(cursor, range);
        }
        let late_hits = self.core_stats().late_hits;
        let mut first = range.start;
        while first < range.end {
            let part = first..range.end.min(first + self.read_pages_max);
            self.read_part(now, cursor, file, &part, previous_end);
            first = part.end;
            previous_end = Some(first * PAGE_BYTES);
        }
        let is_late = self.core_stats().late_hits > late_hits;
        let Some(row) = self.cursors[cursor.index()].as_mut() else { return };
        row.is_late |= is_late;
        row.sort_pending();
    }

    fn read_part(
        &mut self,
        now: Nanos,
        cursor: CursorId,
        file: FileId,
        pages: &Range<u64>,
        previous_end: Option<u64>,
    ) {
        self.reads += 1;
        let (request, handle) = (RequestId(self.reads), cursor.handle());
        let (first, congested) = (pages.start, false);
        let count = u32::try_from(pages.end - first).expect("fewer pages than frames");
        self.model().effects.is_done = false;
        self.send(now, Event::Read { request, handle, first, count, previous_end, congested });
        self.settle(now, cursor, file, pages);
        if !self.model().effects.is_done {
            // Some of it is pending of a cursor whose reader has not come there yet.
            self.take_over(cursor, pages);
            self.settle(now, cursor, file, pages);
        }
        if !self.model().effects.is_done {
            // Another waits for some of it; the program does not.
            self.send(now, Event::Cancel { request });
        }
        self.drop_fetched(now);
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

impl PlannerSettings {
    /// What the core is built from, with room for `budget_bytes` ahead.
    fn core(&self, budget_bytes: u64) -> cache::Settings {
        let budget = u32::try_from(budget_bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        let ahead = budget.clamp(FRAMES_MIN, FRAMES_MAX);
        // Used pages have room beside those that are not used yet.
        let frames = ahead + ahead / 4;
        let mut core = cache::Settings::new(frames, eviction::DEFAULT, &self.readahead);
        core.page_bytes = u32::try_from(PAGE_BYTES).expect("a page");
        core.request_pages_max = u32::try_from(REQUEST_BYTES_MAX / PAGE_BYTES).expect("a request");
        core.ahead_pages_max = ahead;
        core.handles_max = u32::try_from(CURSORS_MAX).expect("a bound");
        core.files_max = frames + u32::try_from(FILES_MAX + CURSORS_MAX).expect("a bound");
        core.wait_max = Nanos(u64::MAX);
        core.explain = true;
        // A lone stream wants half of the limit in a window. How much of it is requested, and
        // when, the pace decides.
        let window = (self.pace.bounds().limit.0 / 2).max(PAGE_BYTES);
        let request = u32::try_from(REQUEST_BYTES_MAX / 2).expect("a request");
        core.device = Some(self.device.profile(window, request));
        core
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
/// A request is no longer.
pub const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// What is ahead of all readers takes one part in so many of the memory, at most.
const AHEAD_ONE_IN: u64 = 2;
/// The core knows of pages for one part in so many, in which its own size is little.
const CORE_ONE_IN: u64 = 4;
/// A read that the core sees takes one part in so many of its frames, at most.
const READS_AT_ONCE: u32 = 4;
/// The core's pages.
const FRAMES_MIN: u32 = 1 << 10;
const FRAMES_MAX: u32 = 1 << 20;
/// A reader that finds so much cached ahead is left alone.
const PROBE_BYTES: u64 = 32 << 20;
/// The same about a place where a reader has read once.
const PROBE_BYTES_RANDOM: u64 = 256 << 10;

#[cfg(test)]
mod tests;
