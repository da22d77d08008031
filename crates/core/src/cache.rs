//! The cache as a state machine: events in, actions out; no bytes, no I/O, no clock.
//!
//! ```text
//!   handle(event) -> demand.rs     reads walk their pages: hit, late hit, miss, marker; prefetch
//!                    inflight.rs   fetches, the requests that wait for them, arrivals
//!                    starved.rs    requests that wait for a frame
//!                    hits.rs       batches of uses that readers noted without a lock
//!                    rules.rs      which partition a page belongs to
//!                    partition.rs  frames: free ones, victims, retractions
//!                    shares.rs     what partitions may hold, and the pool of free frames
//!                    sizing.rs     shares that change by themselves, to where they bring more
//!                    reclaim.rs    the far end of one stream's pages, for another's window
//!                    writeback.rs  dirty pages, flush epochs, syncs
//!                    invalidate.rs truncate, invalidate
//!                    change.rs     ranges and lengths that the store changes itself
//!                    outcomes.rs   what became of each window, for reports
//!   audit()       -> audit.rs      counts, counted anew, for tests
//! ```
//!
//! # Invariants
//! - A page has at most one frame, and a frame at most one page; one fetch a page.
//! - Between events that are not `Pinned` or `Settled`, no frame is claimed.
//! - Frames held by a partition never exceed its share, except while it shrinks.
//! - The statistics balance at any time ([`Stats::balanced`]).
//! # Sources
//! Wu, Xi, Xu 2010 (triggers on pages, not requests); Meng et al. 2009 (partitions, prefetched
//! pages); Linux `mm/filemap.c` for the walk. We differ: a request is walked to its end at once,
//! where Linux waits for each page before it looks up the next.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::{boxed::Box, vec::Vec};
use hashbrown::HashMap;

use crate::device::estimate::{Estimate, Estimator, Ticket};
use crate::device::remembered::{DeviceMemory, DeviceRecord};
use crate::event::{Action, Actions, Error, Event, PrefetchOutcomes};
use crate::hash::FixedState;
use crate::queue::Links;
use crate::readahead::{Bounds, Readahead};
use crate::units::{FileId, FrameId, HandleId, Nanos, PageId, PageIndex, RequestId};

mod audit;
mod change;
mod demand;
mod frames;
mod hits;
mod inflight;
mod invalidate;
mod outcomes;
mod partition;
mod policies;
mod readaheads;
mod reclaim;
mod rules;
mod runs;
mod settings;
mod shares;
mod sizing;
mod starved;
mod stats;
mod writeback;

use change::{Change, Stage};
use frames::{Frame, Frames, NIL, State};
use inflight::{Row, Run, Waiter};
use partition::{OpenRetraction, Partition};
use readaheads::Readaheads;
use rules::Ranges;
pub use rules::{PartitionText, Rule};
use runs::ReadRuns;
pub use settings::{OpenError, PartitionSettings, REST, Settings, SettingsError};
pub use shares::PartitionView;
use sizing::Sizer;
pub use sizing::{MOVES_MAX, Move, MoveReason, Sizing};
use starved::StarvedPage;
pub use stats::{PartitionStats, Stats};
use writeback::{FileWrites, ThrottledWrite};

/// The decisions of one cache.
pub struct Cache {
    settings: Settings,
    readahead: Readaheads,
    ranges: Ranges,
    partitions: Vec<Partition>,
    /// Changes of shares so far.
    resizes: u64,
    /// What moves frames between partitions, if anything does.
    sizer: Option<Box<Sizer>>,
    frames: Frames,
    files: HashMap<FileId, File, FixedState>,
    handles: Vec<Option<Handle>>,
    /// Requests that wait, by name; `rows` holds them.
    requests: HashMap<RequestId, u32, FixedState>,
    rows: Vec<Row>,
    rows_free: Vec<u32>,
    waiters: Vec<Waiter>,
    waiters_free: Vec<u32>,
    /// Runs of claimed pages, fetched as soon as no retraction is open.
    runs: Vec<Run>,
    retracting: Vec<OpenRetraction>,
    lingering: Vec<FrameId>,
    /// Victims that readers were found to hold in this round.
    pinned_now: Vec<FrameId>,
    starved: VecDeque<StarvedPage>,
    /// Unsynced frames, in their files' queues.
    write_links: Links,
    /// Writes that wait for room, and the files that they are to.
    throttled: u32,
    throttled_files: VecDeque<FileId>,
    /// Files with a change in the store, or about to be.
    changing: Vec<FileId>,
    /// Pages dirty, being written or unsynced.
    dirty_pages: u32,
    /// Of these, those that are dirty.
    dirty_unwritten: u32,
    /// Of these, those that wait for a sync.
    unsynced: u32,
    /// Pages of writes that began and are not filled yet: they will be dirty.
    promised: u32,
    /// Flushes that wait, those of durable writes too.
    flushing: u32,
    /// Files with dirty or unsynced pages.
    dirty_files: BTreeSet<FileId>,
    /// Events that are not answers to retractions, from 1: a frame that a reader was found to hold
    /// is not named again before the next one.
    round: u64,
    victims: Vec<FrameId>,
    absent: Vec<PageIndex>,
    taken: Vec<FrameId>,
    /// What is learnt of the device, for a policy that uses it.
    estimator: Option<Estimator>,
    /// What earlier runs learnt of it.
    memory: DeviceMemory,
    /// The estimate that the readahead policy got last.
    reported: Option<Estimate>,
    /// Fetches in flight that the estimator follows, by their last frame.
    tickets: HashMap<FrameId, Ticket, FixedState>,
    /// Windows that were explained; their numbers are those before.
    windows: u32,
    /// What was read, where windows end at it.
    read_runs: Option<ReadRuns>,
    /// Outcomes that were not reported yet, by window.
    unreported: Vec<(u32, PrefetchOutcomes)>,
    now: Nanos,
    events: u64,
    /// The caller's buffer, while an event is handled.
    actions: Actions,
    stats: Stats,
}

struct Handle {
    file: FileId,
    /// The partition of its pages, where no range of offsets has them in another.
    partition: u32,
    /// Failures of the file's writeback that were reported on this handle.
    errors_seen: u64,
}

struct File {
    pages: u64,
    handles: u32,
    /// Frames that its pages hold, doomed ones too.
    frames: u32,
    writes: FileWrites,
}

impl Cache {
    /// A cache with all frames free.
    ///
    /// # Errors
    /// A bound is 0, the shares exceed the frames, a partition is smaller than one window, or a
    /// policy is unknown.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        Self::with_oracle(settings, None)
    }

    /// Refuses the settings that [`Cache::new`] refuses, but for those of replacement policies,
    /// and builds nothing.
    ///
    /// # Errors
    /// As [`Cache::new`].
    pub fn check(settings: &Settings) -> Result<(), SettingsError> {
        let readahead = Readaheads::new(settings, None)?;
        settings.check(|partition| readahead.of(partition).window_pages_min())
    }

    /// As [`Cache::new`], but `oracle`, if there is one, in place of the policy that
    /// [`Settings::readahead`] names.
    ///
    /// # Errors
    /// As [`Cache::new`].
    pub fn with_oracle(
        settings: Settings,
        oracle: Option<Box<dyn Readahead + Send>>,
    ) -> Result<Self, SettingsError> {
        let mut readahead = Readaheads::new(&settings, oracle)?;
        settings.check(|partition| readahead.of(partition).window_pages_min())?;
        let Settings { ahead_pages_max, request_pages_max, page_bytes, .. } = settings;
        let cache_pages = settings.frames;
        readahead.bounds(Bounds { ahead_pages_max, request_pages_max, cache_pages });
        let request_bytes_max = request_pages_max.saturating_mul(page_bytes);
        let estimator = readahead.any_sees_device().then(|| Estimator::new(request_bytes_max));
        let memory = DeviceMemory::new(settings.remembered);
        let partitions =
            settings.partitions.iter().map(Partition::new).collect::<Result<Vec<_>, _>>()?;
        let sizer = match settings.sizing {
            Sizing::Auto => Some(Sizer::new(&settings)?),
            Sizing::Manual => None,
        };
        let frames = settings.frames;
        Ok(Self {
            readahead,
            ranges: Ranges::new(&settings),
            partitions,
            resizes: 0,
            frames: Frames::new(frames, sizer.as_ref().map(|sizer| sizer.sample())),
            sizer,
            files: HashMap::with_hasher(FixedState),
            handles: Vec::new(),
            requests: HashMap::with_hasher(FixedState),
            rows: Vec::new(),
            rows_free: Vec::new(),
            waiters: Vec::new(),
            waiters_free: Vec::new(),
            runs: Vec::new(),
            retracting: Vec::new(),
            lingering: Vec::new(),
            pinned_now: Vec::new(),
            starved: VecDeque::new(),
            write_links: Links::new(0),
            throttled: 0,
            throttled_files: VecDeque::new(),
            changing: Vec::new(),
            dirty_pages: 0,
            dirty_unwritten: 0,
            unsynced: 0,
            promised: 0,
            flushing: 0,
            dirty_files: BTreeSet::new(),
            round: 0,
            victims: Vec::new(),
            absent: Vec::new(),
            taken: Vec::new(),
            estimator,
            memory,
            reported: None,
            tickets: HashMap::with_hasher(FixedState),
            windows: 0,
            read_runs: None,
            unreported: Vec::new(),
            now: Nanos(0),
            events: 0,
            actions: Actions::new(),
            stats: Stats::default(),
            settings,
        })
    }

    /// Takes `event`, which happened at `now`, and appends what the driver has to do.
    ///
    /// # Panics
    /// The driver broke the protocol of [`crate::event`]: time ran backwards, a handle or frame
    /// that is not in the state which the event names, or a retraction left open.
    pub fn handle(&mut self, now: Nanos, event: Event<'_>, actions: &mut Actions) {
        assert!(now >= self.now, "time ran backwards: {now:?} after {:?}", self.now);
        let settling = matches!(event, Event::Pinned { .. } | Event::Settled);
        let is_request = settling || event.is_request();
        assert!(settling || self.retracting.is_empty(), "{event:?} before Settled");
        core::mem::swap(&mut self.actions, actions);
        self.now = now;
        self.events += 1;
        if !settling {
            self.round += 1;
            self.unpin();
        }
        self.dispatch(event);
        if !matches!(event, Event::Pinned { .. }) {
            // Not between the two events of a share that a caller moves.
            if !is_request && !matches!(event, Event::Resize { .. } | Event::Settled) {
                self.size_partitions();
            }
            self.feed_starved();
            self.resume_throttled();
            self.advance_changes();
            self.relieve();
            self.shrink();
            if !is_request {
                self.keep_pool();
            }
        }
        if self.retracting.is_empty() {
            self.issue();
            if self.settings.explain {
                self.report_outcomes();
            }
        }
        core::mem::swap(&mut self.actions, actions);
        self.assert_consistent();
    }

    /// Lets the part that an event is for handle it.
    fn dispatch(&mut self, event: Event<'_>) {
        match event {
            Event::Open { handle, file, partition, file_pages } => {
                self.open(handle, file, partition.0, file_pages);
            }
            Event::Close { handle } => self.close(handle),
            Event::Read { request, handle, first, count, previous_end, congested } => {
                let reader = demand::Reader { handle, count, previous_end, congested };
                self.read(request, first, &reader);
            }
            Event::Hits { hits } => self.hits(hits),
            Event::Marker { handle, hit, count, previous_end, congested } => {
                let reader = demand::Reader { handle, count, previous_end, congested };
                self.marker(hit, &reader);
            }
            Event::Prefetch { handle, first, count } => self.prefetch(handle, first, count),
            Event::Write { request, handle, first, count, head_partial, tail_partial, durable } => {
                let partial = (head_partial, tail_partial);
                let write = ThrottledWrite { request, handle, first, count, partial, durable };
                self.write(write);
            }
            Event::Filled { request, frame } => self.filled(request, frame),
            Event::Flush { request, handle } => match self.too_many_waiters(1) {
                Some(error) => self.fail(request, error),
                None => self.flush(request, handle),
            },
            Event::Change { request, handle, first, count, keeps_first, file_pages, durable } => {
                let stage = Stage::Waiting;
                let change = Change {
                    request,
                    handle,
                    first,
                    count,
                    keeps_first,
                    file_pages,
                    durable,
                    stage,
                };
                self.change(change);
            }
            Event::Changed { request, errno } => self.changed(request, errno),
            Event::Cancel { request } => self.cancel(request),
            Event::Arrived { first, count } => self.arrived(first, count),
            Event::Failed { first, count, errno } => self.failed(first, count, errno),
            Event::Written { first, count } => self.written(first, count, None),
            Event::WriteFailed { first, count, errno } => self.written(first, count, Some(errno)),
            Event::Synced { file, errno } => self.synced(file, errno),
            Event::Truncate { file, pages } => self.truncate(file, pages),
            Event::Invalidate { file, first, count } => self.invalidate(file, first, count),
            Event::Pinned { frame } => self.pinned(frame),
            Event::Settled => self.settled(),
            Event::Resize { partition, frames } => {
                self.resize(partition.0, frames);
                self.size_anew();
            }
            Event::Policy { partition, policy } => self.change_policy(partition.0, policy),
            Event::Tick => self.tick(),
        }
    }

    /// The relations between the tables that hold after each event.
    fn assert_consistent(&self) {
        assert!(self.stats.balanced(), "{:?}", self.stats);
        let held = self.partitions.iter().map(|row| u64::from(row.used)).sum::<u64>();
        let frames = u64::from(self.free_frames()) + held;
        assert!(frames == u64::from(self.settings.frames), "{held} held, of {frames} frames");
        let dirty = u64::from(self.dirty_pages) + u64::from(self.promised);
        let bound = self.settings.dirty_pages_max;
        assert!(dirty <= u64::from(bound), "{dirty} pages are dirty or promised, of {bound}");
        assert!(self.requests.len() <= self.rows.len(), "a request that waits has a row");
        assert!(u64::from(self.frames.mapped()) <= held, "a page has a frame of its own");
    }

    /// Time passed: what was put off is tried again.
    fn tick(&mut self) {
        self.retry_lingering();
        self.write_due();
    }

    /// When `Tick` is due at the latest, if a request waits for a frame.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        let wait_max = self.settings.wait_max.0;
        self.starved.front().map(|starved| Nanos(starved.since.0.saturating_add(wait_max)))
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What the cache was built from.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the device can do, from the settings or as the readahead policy got it last; `None`
    /// before the first decision.
    #[must_use]
    pub fn device(&self) -> Option<Estimate> {
        self.settings.device.map(Estimate::given).or(self.reported)
    }

    /// What is kept of the device for the next run; `None` where nothing was learnt, or the device
    /// was given.
    #[must_use]
    pub fn device_record(&self) -> Option<DeviceRecord> {
        let own = self.estimator.as_ref().filter(|_| self.settings.device.is_none())?.estimate();
        self.memory.kept(own)
    }

    /// Whether the readahead policy has to see every read: see [`Readahead::sees_requests`].
    #[must_use]
    pub fn sees_requests(&self) -> bool {
        self.readahead.any_sees_requests()
    }

    /// Pages that are dirty, being written, or not known to be durable.
    #[must_use]
    pub fn dirty_pages(&self) -> u32 {
        self.dirty_pages
    }

    /// Frames that hold nothing.
    #[must_use]
    pub fn free_frames(&self) -> u32 {
        self.frames.free()
    }

    /// Where `page` is resident, if it is.
    #[must_use]
    pub fn resident(&self, page: PageId) -> Option<FrameId> {
        self.frames.find(page).filter(|&frame| self.frames[frame].resident())
    }

    /// Whether the cache holds bytes of `page` that are not known to be durable: an outside change
    /// of it is a conflict, and `Invalidate` keeps them.
    #[must_use]
    pub fn unwritten(&self, page: PageId) -> bool {
        let kept = |state| !matches!(state, State::Clean | State::InFlight);
        let row = self.frames.find(page).map(|frame| &self.frames[frame]);
        row.is_some_and(|row| kept(row.state) || row.fills > 0)
    }

    /// Whether the store is writing the page of `frame`: it has the frame until it answers.
    #[must_use]
    pub fn is_writing(&self, frame: FrameId) -> bool {
        self.frames[frame].state == State::Writing
    }

    /// Whether bytes of `file` are written and not known to be durable, or a flush of it waits.
    #[must_use]
    pub fn unwritten_file(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|row| !row.writes.idle())
    }

    /// Whether `handle` may be opened on `file`.
    ///
    /// # Errors
    /// The bound of handles, or that of files, is reached: a file without handles counts while it
    /// has pages.
    pub fn check_open(&self, handle: HandleId, file: FileId) -> Result<(), OpenError> {
        let Settings { handles_max, files_max, .. } = self.settings;
        if handle.0 >= handles_max {
            return Err(OpenError::Handles { bound: handles_max });
        }
        let has_room = (self.files.len() as u64) < u64::from(files_max);
        let fits = has_room || self.files.contains_key(&file);
        if fits { Ok(()) } else { Err(OpenError::Files { bound: files_max }) }
    }

    fn open(&mut self, handle: HandleId, file: FileId, partition: u32, pages: u64) {
        assert!((partition as usize) < self.partitions.len(), "no partition {partition}");
        if let Err(error) = self.check_open(handle, file) {
            panic!("Cache::check_open comes before Open: {error}");
        }
        let index = handle.0 as usize;
        if self.handles.len() <= index {
            self.handles.resize_with(index + 1, || None);
        }
        assert!(self.handles[index].is_none(), "{handle:?} is open already");
        let row = self.files.entry(file).or_insert_with(|| File {
            pages,
            handles: 0,
            frames: 0,
            writes: FileWrites::default(),
        });
        let (known, unused) = (row.pages, row.handles == 0 && row.writes.idle());
        if unused {
            row.pages = pages;
        }
        row.handles += 1;
        let errors_seen = row.writes.errors;
        self.handles[index] = Some(Handle { file, partition, errors_seen });
        if unused && pages < known {
            // What the file held beyond is not to come back when it grows.
            self.truncate(file, pages);
        }
        self.readahead.open(handle, file);
    }

    fn close(&mut self, handle: HandleId) {
        let row = self.handles.get_mut(handle.0 as usize).and_then(Option::take);
        let file = row.expect("an open handle is closed").file;
        self.readahead.close(handle);
        let row = self.file_mut(file);
        assert!(row.handles > 0, "{file:?} counts its open handles");
        row.handles -= 1;
        self.forget_idle_file(file);
    }

    /// Drops the row of a file without handles, pages and unwritten bytes.
    fn forget_idle_file(&mut self, file: FileId) {
        let Some(row) = self.files.get(&file) else { return };
        if row.handles == 0 && row.frames == 0 && row.writes.idle() {
            self.files.remove(&file);
        }
    }

    fn file_of(&self, handle: HandleId) -> FileId {
        let row = self.handles.get(handle.0 as usize).and_then(Option::as_ref);
        row.expect("requests come through open handles").file
    }

    fn file(&self, file: FileId) -> &File {
        self.files.get(&file).expect("a file with pages or handles has a row")
    }

    fn file_mut(&mut self, file: FileId) -> &mut File {
        self.files.get_mut(&file).expect("a file with pages or handles has a row")
    }

    fn fail(&mut self, request: RequestId, error: Error) {
        self.stats.failures += 1;
        self.actions.list.push(Action::Fail { request, error });
    }
}
