//! The planner of a cache of byte ranges, whose driver has a fetcher, threads and memory.
//!
//! ```text
//!   read --> strides, policy --> Fetch: queue --claim--> threads of the driver
//!     \--- Serve, Done: page, frame, extent                   |
//!                  ^------------ arrived, failed <------------+
//! ```
//! The core decides in pages; the fetcher is given bytes. A page that a demand wants in part is
//! fetched in part, so random reads cost what they want and no more: an [`Extent`] tells which
//! bytes of its page a frame has. A read that wants others drops the page and fetches it again.
//!
//! # Invariants
//! - A fetch ends once, for all of its frames: as arrived or as failed.
//! - A failed fetch fails the reads that wait for its demands; failed readahead is dropped.
//! - Fetches are bounded by the frames, strides by their tables.

mod extents;
mod fetches;
mod known;
mod settings;
mod store;

use alloc::vec::{Drain, Vec};

pub use extents::Extent;
pub use fetches::{FetchId, FetchQueue, FetchRow, RangeFetch};
pub use settings::RangesSettings;
pub use store::StoreKnowledge;

use super::model::StreamCount;
use super::strides::StrideDetector;
use crate::cache::{self, Cache, SettingsError};
use crate::drive::{Driver, drive};
use crate::event::{Actions, Error, Event, FetchKind};
use crate::readahead::{self, Decision};
use crate::units::{FileId, FrameId, HandleId, Nanos, PageId, PageIndex, PartitionId, RequestId};
use extents::Extents;
use known::KnownRanges;

/// What the driver has to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeAction {
    /// The read gets the bytes of `page` that `frame` has; nothing happens to the frame before the
    /// driver's next call.
    Serve {
        /// The read.
        request: RequestId,
        /// The page.
        page: PageIndex,
        /// Where its bytes lie.
        frame: FrameId,
        /// Those of them that are there.
        extent: Extent,
    },
    /// Bytes `start..end` wait for a thread.
    Fetch {
        /// The first byte.
        start: u64,
        /// The byte after the last.
        end: u64,
        /// Whether a reader waits for them.
        demand: bool,
    },
    /// A fetch has failed, and brings nothing to reads that counted on it.
    FetchFailed(FetchId),
    /// The read has all its bytes.
    Done(RequestId),
    /// A fetch that the read needs has failed.
    Fail(RequestId),
}

/// What a planner of byte ranges counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangesStats {
    /// What the core counted, in pages.
    pub core: cache::Stats,
    /// Reads.
    pub reads: u64,
    /// Of these, those that had to wait.
    pub stalls: u64,
    /// The time that they waited, summed.
    pub stalled: Nanos,
    /// Bytes that reads wanted.
    pub bytes_wanted: u64,
    /// Fetches that arrived.
    pub fetches: u64,
    /// Their bytes.
    pub bytes_fetched: u64,
    /// Fetches that failed.
    pub failures: u64,
    /// Streams that were found: those that got a window beyond what was read.
    pub streams: u64,
    /// The bytes of all frames.
    pub memory_bytes: u64,
}

/// See the module.
pub struct RangePlanner {
    cache: Cache,
    actions: Actions,
    state: State,
    /// None where the policy leaves strides to itself.
    strides: Option<StrideDetector>,
    /// What the caller said will be read, and is not fetched yet.
    known: KnownRanges,
    /// The largest fetch, in bytes.
    request_bytes_max: u32,
    connections: u32,
    /// The end of the last read, and of the one before the read at hand.
    end: Option<u64>,
    previous_end: Option<u64>,
    stats: RangesStats,
}

/// What actions of the core change.
struct State {
    file_bytes: u64,
    extents: Extents,
    queue: FetchQueue,
    streams: StreamCount,
    /// The read that the core handles.
    current: Option<CurrentRead>,
    out: Vec<RangeAction>,
}

struct CurrentRead {
    start: u64,
    end: u64,
    /// Whether its first and its last page are to be fetched whole.
    is_whole: (bool, bool),
}

impl RangePlanner {
    /// A planner for an object of `file_bytes`.
    ///
    /// # Errors
    /// A bound is 0 or too large, or a policy is unknown.
    pub fn new(settings: &RangesSettings, file_bytes: u64) -> Result<Self, SettingsError> {
        let core = settings.core(file_bytes)?;
        let policy = readahead::make(&core.readahead, core.page_bytes)?.policy;
        let state = State {
            file_bytes,
            extents: Extents::new(core.frames),
            queue: FetchQueue::new(settings.connections, settings.request_bytes_max),
            streams: StreamCount::default(),
            current: None,
            out: Vec::new(),
        };
        let mut planner = Self {
            cache: Cache::new(core)?,
            actions: Actions::new(),
            state,
            strides: policy.wants_byte_strides().then(StrideDetector::default),
            known: KnownRanges::default(),
            request_bytes_max: settings.request_bytes_max,
            connections: settings.connections,
            end: None,
            previous_end: None,
            stats: RangesStats::default(),
        };
        planner.cache.stop_at_runs();
        let (handle, file, partition) = (HANDLE, FILE, PartitionId(0));
        let file_pages = file_bytes.div_ceil(RANGE_PAGE_BYTES.into()).max(1);
        planner.send(Nanos(0), Event::Open { handle, file, partition, file_pages });
        Ok(planner)
    }

    /// Frames that there are.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.cache.settings().frames
    }

    /// The most bytes of one read.
    #[must_use]
    pub fn read_bytes_max(&self) -> u64 {
        u64::from(self.frames() / READS_AT_ONCE) * u64::from(RANGE_PAGE_BYTES)
    }

    /// What was counted so far; the driver counts stalls.
    #[must_use]
    pub fn stats(&self) -> RangesStats {
        let memory_bytes = u64::from(self.frames()) * u64::from(RANGE_PAGE_BYTES);
        let strides = self.strides.as_ref().map_or(0, |strides| strides.found);
        let streams = self.state.streams.count + strides;
        RangesStats { core: *self.cache.stats(), streams, memory_bytes, ..self.stats }
    }

    /// Fetches that have not ended.
    #[must_use]
    pub fn queue(&self) -> &FetchQueue {
        &self.state.queue
    }

    /// The same, to claim some.
    pub fn queue_mut(&mut self) -> &mut FetchQueue {
        &mut self.state.queue
    }

    /// What the driver has to do since the last call.
    pub fn actions(&mut self) -> Drain<'_, RangeAction> {
        self.state.out.drain(..)
    }

    /// A reader wants `start..end`, within the file, not empty, at most
    /// [`RangePlanner::read_bytes_max`] bytes. What a stride comes to next is prefetched;
    /// [`RangePlanner::prepare`] and [`RangePlanner::read`] follow.
    ///
    /// # Panics
    /// The range is none of these.
    pub fn access(&mut self, now: Nanos, start: u64, end: u64) {
        let file_bytes = self.state.file_bytes;
        assert!(start < end && end <= file_bytes, "{start}..{end} of {file_bytes}");
        assert!(end - start <= self.read_bytes_max(), "{} bytes at once", end - start);
        self.stats.reads += 1;
        self.stats.bytes_wanted += end - start;
        self.prefetch_strides(now, start, end);
        self.prefetch_known(now);
        self.previous_end = self.end.replace(end);
    }

    /// The caller will read `start..end`, within the file and not empty, after all that it said
    /// before: it is fetched ahead as far as there is room, the rest as that is read. Returns
    /// whether it was noted: a bounded number of ranges is.
    ///
    /// # Panics
    /// The range is none of these.
    pub fn will_need(&mut self, now: Nanos, start: u64, end: u64) -> bool {
        let file_bytes = self.state.file_bytes;
        assert!(start < end && end <= file_bytes, "{start}..{end} of {file_bytes}");
        let is_noted = self.known.add(start, end);
        self.prefetch_known(now);
        is_noted
    }

    /// A read of `start..end` is at hand: drops pages that lack bytes of it. Returns whether its
    /// first page has a frame still.
    pub fn prepare(&mut self, now: Nanos, start: u64, end: u64) -> bool {
        let is_whole = self.drop_partial(now, start, end);
        self.state.current = Some(CurrentRead { start, end, is_whole });
        self.is_resident(page_of(start)).is_some()
    }

    /// Reads what [`RangePlanner::prepare`] was called for. `has_head`: the driver has the bytes of
    /// its first page by itself. A read that is repeated after it shared too little is no new
    /// [`RangePlanner::access`].
    ///
    /// # Panics
    /// Nothing was prepared.
    pub fn read(&mut self, now: Nanos, request: RequestId, has_head: bool) {
        let &CurrentRead { start, end, .. } =
            self.state.current.as_ref().expect("a read is prepared");
        let first = page_of(start) + u64::from(has_head);
        let count = u32::try_from(page_of(end - 1) + 1 - first).expect("fewer pages than frames");
        let previous_end = self.previous_end.take();
        if count == 0 {
            self.state.out.push(RangeAction::Done(request));
        } else {
            let congested = self.state.queue.waiting() >= ROUNDS_WAITING * self.connections;
            let handle = HANDLE;
            self.send(now, Event::Read { request, handle, first, count, previous_end, congested });
        }
        self.state.current = None;
    }

    /// The fetch `id` gave `bytes`; another number than it was to give is a failure. Returns where
    /// they go, before the actions that follow.
    pub fn arrived(&mut self, now: Nanos, id: FetchId, bytes: u64) -> Option<FetchRow> {
        let fetch = self.state.queue.end(id)?;
        if bytes != fetch.end - fetch.start {
            self.fail(now, id, &fetch);
            return None;
        }
        self.stats.fetches += 1;
        self.stats.bytes_fetched += bytes;
        self.state.extents.fill(&fetch, self.state.file_bytes);
        for (first, count) in fetch.runs() {
            self.send(now, Event::Arrived { first, count });
        }
        self.prefetch_known(now);
        Some(fetch)
    }

    /// The fetch `id` failed.
    pub fn failed(&mut self, now: Nanos, id: FetchId) {
        if let Some(fetch) = self.state.queue.end(id) {
            self.fail(now, id, &fetch);
        }
    }

    /// The reader of `request` waits no longer.
    pub fn cancel(&mut self, now: Nanos, request: RequestId) {
        self.send(now, Event::Cancel { request });
    }

    fn fail(&mut self, now: Nanos, id: FetchId, fetch: &FetchRow) {
        self.stats.failures += 1;
        self.state.out.push(RangeAction::FetchFailed(id));
        for (first, count) in fetch.runs() {
            self.send(now, Event::Failed { first, count, errno: EIO });
        }
    }

    /// Prefetches what a reader at even distances comes to next. The read goes first, so that the
    /// policy sees no miss of it: a miss there would begin a stream.
    fn prefetch_strides(&mut self, now: Nanos, start: u64, end: u64) {
        let Some(mut strides) = self.strides.take() else { return };
        if strides.read(start, end) {
            self.prefetch(now, start, end);
            let in_flight = u64::from(self.connections) * u64::from(self.request_bytes_max);
            let most = (in_flight / (end - start)).max(1);
            while self.state.queue.waiting() < self.connections
                && let Some((start, end)) = strides.next(self.state.file_bytes, most)
            {
                self.prefetch(now, start, end);
            }
        }
        self.strides = Some(strides);
    }

    /// Prefetches what the caller said, a request for each connection at a time.
    fn prefetch_known(&mut self, now: Nanos) {
        while self.state.queue.waiting() < self.connections
            && let room = u64::from(self.cache.ahead_room()) * u64::from(RANGE_PAGE_BYTES)
            && let Some((start, end)) = self.known.next(room.min(self.request_bytes_max.into()))
        {
            self.prefetch(now, start, end);
        }
    }

    fn prefetch(&mut self, now: Nanos, start: u64, end: u64) {
        let first = page_of(start);
        let count = u32::try_from(page_of(end - 1) + 1 - first).unwrap_or(u32::MAX);
        self.send(now, Event::Prefetch { handle: HANDLE, first, count });
    }

    /// Drops resident pages that lack bytes of `start..end`. Returns whether the first and the last
    /// page are among them: a reader that goes on in such a page would come again, so it is fetched
    /// whole.
    fn drop_partial(&mut self, now: Nanos, start: u64, end: u64) -> (bool, bool) {
        let mut whole = (false, false);
        if !self.state.extents.has_partial() {
            return whole;
        }
        let (first, last) = (page_of(start), page_of(end - 1));
        for index in first..=last {
            let wanted = Extent::of(index, start, end);
            let lacks = |frame| !self.state.extents.of(frame).contains(wanted);
            if self.is_resident(index).is_some_and(lacks) {
                self.send(now, Event::Invalidate { file: FILE, first: index, count: 1 });
                whole = (whole.0 || index == first, whole.1 || index == last);
            }
        }
        whole
    }

    fn is_resident(&self, index: PageIndex) -> Option<FrameId> {
        self.cache.resident(PageId { file: FILE, index })
    }

    fn send(&mut self, now: Nanos, event: Event<'_>) {
        drive(&mut self.cache, now, event, &mut self.actions, &mut self.state);
    }
}

impl State {
    /// Bytes to be fetched for `count` pages from `first` on: where they are just what the read at
    /// hand wants, no more than that.
    fn range(&self, kind: FetchKind, first: PageIndex, count: u64) -> (u64, u64) {
        let page = u64::from(RANGE_PAGE_BYTES);
        let (start, end) = (first * page, (first + count) * page);
        let end = end.min(self.file_bytes);
        match &self.current {
            Some(read) if kind == FetchKind::Demand => {
                let starts = page_of(read.start) == first && !read.is_whole.0;
                let ends = page_of(read.end - 1) == page_of(end - 1) && !read.is_whole.1;
                (if starts { read.start } else { start }, if ends { read.end } else { end })
            }
            Some(_) | None => (start, end),
        }
    }
}

impl Driver for State {
    fn serve(&mut self, request: RequestId, page: PageIndex, frame: FrameId) {
        let extent = self.extents.of(frame);
        self.out.push(RangeAction::Serve { request, page, frame, extent });
    }

    fn fetch(&mut self, kind: FetchKind, page: PageId, frames: &[FrameId]) {
        let (start, end) = self.range(kind, page.index, frames.len() as u64);
        let pages = page_of(end - 1) + 1 - page_of(start);
        assert_eq!(pages, frames.len() as u64, "{start}..{end} has a frame for each page");
        let demand = kind == FetchKind::Demand;
        self.out.push(RangeAction::Fetch { start, end, demand });
        self.queue.add(FetchRow::new((start, end), demand, frames));
    }

    fn done(&mut self, request: RequestId) {
        self.out.push(RangeAction::Done(request));
    }

    fn fail(&mut self, request: RequestId, _error: Error) {
        self.out.push(RangeAction::Fail(request));
    }

    fn explain(&mut self, _handle: HandleId, _page: PageIndex, decision: Decision, _fresh: u32) {
        self.streams.explained(&decision);
    }
}

/// The page that the byte at `offset` lies in.
#[must_use]
pub fn page_of(offset: u64) -> PageIndex {
    offset / u64::from(RANGE_PAGE_BYTES)
}

const FILE: FileId = FileId(0);
const HANDLE: HandleId = HandleId(0);
/// Bytes of a page: few decisions a range, and little that a window of one page fetches in vain.
pub const RANGE_PAGE_BYTES: u32 = 8 << 10;
/// One read may take this part of the frames: others read meanwhile.
const READS_AT_ONCE: u32 = 4;
/// More fetches per connection than this waiting for a thread congest the store.
const ROUNDS_WAITING: u32 = 4;
const EIO: i32 = 5;
