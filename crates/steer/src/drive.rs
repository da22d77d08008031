//! What is to be read ahead: what programs were seen to read goes to the core, and what the core
//! wants ahead of them is asked of the kernel, no further than the pace allows.
//!
//! ```text
//!   observers --read(lane, from..to)--> core (streams) --Fetch--> lane: pending
//!                                                                    | pace: limit, memory
//!   core <--Arrived-- asked, in order <--- asks (threads) <----------+
//!                                 \-- kernel::absent: has it come?
//! ```
//! The core's frames are mere numbers here: there is no byte. Pages that the program read itself
//! are there, so the core is told at once; pages that were asked for are there when the kernel
//! says so, and where it does not tell, after a while.
//!
//! # Invariants
//! - Every fetch of the core is answered for each of its frames, once: as arrived or as failed.
//! - No lane has asked beyond its reader by more than the limit and a chunk; all together no more
//!   than the budget. Nothing that is cached is asked for.
//! - Tables are bounded: lanes by [`LANES_MAX`], files that are known by [`FILES_MAX`], pieces by
//!   the core's frames.

mod ahead;
mod known;
mod pending;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::ops::Range;

use forerun_core::cache::{self, Cache, SettingsError};
use forerun_core::device::{Kind, estimate};
use forerun_core::drive::{Driver, drive};
use forerun_core::event::{Actions, Error, Event, FetchKind};
use forerun_core::pace::Rule;
use forerun_core::readahead::{self, Cause, Decision, StreamId};
use forerun_core::units::{
    FileId, FrameId, HandleId, Nanos, PageId, PageIndex, PartitionId, RequestId,
};
use rustix::fs::Stat;

use crate::asks::Asks;
use crate::kernel::{self, Residency};
use crate::lanes::{Course, Lane, PAGE, Piece};
use crate::readers::{LaneId, Readers};
use known::FileRow;

/// How far to go.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) rule: Rule,
    pub(crate) limit_bytes: u64,
    pub(crate) budget_bytes: u64,
    /// The readahead policy, as `NAME:key=value,...`.
    pub(crate) readahead: String,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) files: u64,
    pub(crate) lanes: u64,
    pub(crate) lanes_refused: u64,
    pub(crate) streams: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_asked: u64,
    pub(crate) asks: u64,
    pub(crate) bytes_cached: u64,
    pub(crate) bytes_given_up: u64,
    pub(crate) lead_bytes_max: u64,
}

/// See the module.
pub(crate) struct Drive {
    bounds: Bounds,
    settings: cache::Settings,
    /// Built when the first reader comes to what is not cached: most programs have none.
    core: Option<Cache>,
    actions: Actions,
    world: World,
    files: BTreeMap<FileId, FileRow>,
    known: BTreeMap<(u64, u64), FileId>,
    lanes: Vec<Option<Lane>>,
    asked: VecDeque<Asked>,
    asks: Asks,
    /// Pages of all lanes that are pending.
    pending_pages: u64,
    /// Some reader may come to what is not cached before long.
    is_cold: bool,
    requests: u64,
    files_seen: u32,
    memory_bytes: u64,
    /// Processor time that the process has taken which is looked at just now.
    processor: Option<Nanos>,
    /// By device.
    access: BTreeMap<u64, Access>,
    counts: Counts,
}

/// Pages on their way.
struct Asked {
    file: FileId,
    piece: Piece,
    since: Nanos,
    /// None of it was there: how long it takes tells of the device.
    is_cold: bool,
}

/// How fast a device brings what it was asked for.
struct Access {
    /// The shortest time in which a piece came.
    shortest: Nanos,
    /// The time in which pieces come: the mean of the last few.
    usual: Nanos,
    /// Nothing is on its way.
    is_idle: bool,
}

impl Access {
    /// Of a first piece.
    fn of(waited: Nanos) -> Self {
        Self { shortest: waited, usual: waited, is_idle: false }
    }

    fn learn(&mut self, waited: Nanos) {
        self.shortest = self.shortest.min(waited);
        self.usual = Nanos(self.usual.0 - self.usual.0 / FEW + waited.0 / FEW);
    }

    /// How many times later than the fastest one pieces come: the rest of the time they wait for
    /// those before them.
    fn slowdown(&self) -> u64 {
        if self.is_idle { 1 } else { (self.usual.0 / self.shortest.0.max(1)).max(1) }
    }
}

/// What the core did in one event.
#[derive(Default)]
struct World {
    fetched: Vec<(FileId, Piece)>,
    done: bool,
    newest: u32,
    streams: u64,
}

impl Driver for World {
    fn fetch(&mut self, _: FetchKind, page: PageId, frames: &[FrameId]) {
        let piece = Piece { first: page.index, frames: frames.to_vec() };
        self.fetched.push((page.file, piece));
    }

    fn done(&mut self, _: RequestId) {
        self.done = true;
    }

    fn fail(&mut self, _: RequestId, _: Error) {
        self.done = true;
    }

    fn explain(&mut self, _: HandleId, _: PageIndex, decision: Decision, _: u32) {
        // Names are given in order.
        if let Some(StreamId(name)) = decision.stream
            && decision.cause != Cause::Random
            && name > self.newest
        {
            self.newest = name;
            self.streams += 1;
        }
    }
}

impl Drive {
    pub(crate) fn new(bounds: Bounds) -> Result<Self, SettingsError> {
        let settings = settings(&bounds);
        // What the core would refuse later is refused now.
        let policy = readahead::make(&settings.readahead, settings.page_bytes)?.policy;
        let (frames, window) = (settings.frames, policy.window_pages_min());
        if frames < window {
            return Err(SettingsError::Window { frames, window });
        }
        Ok(Self {
            bounds,
            settings,
            core: None,
            actions: Actions::new(),
            world: World::default(),
            files: BTreeMap::new(),
            known: BTreeMap::new(),
            lanes: Vec::new(),
            asked: VecDeque::new(),
            asks: Asks::default(),
            pending_pages: 0,
            is_cold: false,
            requests: 0,
            files_seen: 0,
            memory_bytes: u64::MAX,
            processor: None,
            access: BTreeMap::new(),
            counts: Counts::default(),
        })
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> Counts {
        Counts { streams: self.world.streams, ..self.counts }
    }

    /// What the core counted.
    pub(crate) fn core_stats(&self) -> cache::Stats {
        self.core.as_ref().map_or_else(cache::Stats::default, |core| *core.stats())
    }

    /// So many bytes may be ahead as far as memory goes.
    pub(crate) fn set_memory(&mut self, bytes: u64) {
        self.memory_bytes = bytes;
    }

    /// Lets go of all files, whatever state they are in.
    pub(crate) fn clear(&mut self) {
        self.lanes.clear();
        self.files.clear();
        self.asked.clear();
    }

    /// Whether something is on its way or waits to be.
    pub(crate) fn is_busy(&self) -> bool {
        !self.asked.is_empty() || self.pending_pages > 0
    }

    /// Whether, since the last time, anybody read who has not [`WARM_BYTES`] / 2 cached before him.
    pub(crate) fn take_cold(&mut self) -> bool {
        std::mem::take(&mut self.is_cold)
    }

    /// Builds the core for the memory that there is. Whether there is one.
    fn build(&mut self) -> bool {
        if self.core.is_none() {
            let budget_bytes = self.bounds.budget_bytes.min(self.memory_bytes / CORE_ONE_IN);
            self.settings = settings(&Bounds { budget_bytes, ..self.bounds.clone() });
            // It may be too little for a policy's window.
            self.core = Cache::new(self.settings.clone()).ok();
        }
        self.core.is_some()
    }

    fn add(&mut self, file: FileId, main: u64) -> Option<LaneId> {
        let free = self.lanes.iter().position(Option::is_none);
        let at = free.unwrap_or(self.lanes.len());
        if at >= LANES_MAX {
            return None;
        }
        self.files.get_mut(&file)?.lanes += 1;
        if free.is_none() {
            self.lanes.push(None);
        }
        self.lanes[at] = Some(Lane::new(file, main, self.bounds.rule.clone()));
        self.counts.lanes += 1;
        Some(LaneId(u32::try_from(at).expect("below LANES_MAX")))
    }

    /// Has the core know the reader of `lane`. Whether it does.
    fn introduce(&mut self, now: Nanos, lane: LaneId) -> bool {
        let Some(row) = self.lanes[lane.0 as usize].as_ref() else { return false };
        if row.is_known {
            return true;
        }
        let (file, partition) = (row.file, PartitionId(0));
        let Some(bytes) = self.files.get(&file).map(|row| row.version.bytes) else { return false };
        if !self.build() {
            return false;
        }
        let file_pages = pages(bytes).max(1);
        self.send(now, Event::Open { handle: lane.handle(), file, partition, file_pages });
        self.lanes[lane.0 as usize].as_mut().expect("it was there").is_known = true;
        true
    }

    /// One read of the core, and what follows from the pages being there.
    fn read_pages(
        &mut self,
        now: Nanos,
        lane: LaneId,
        file: FileId,
        there: &Range<u64>,
        previous_end: Option<u64>,
    ) {
        self.requests += 1;
        let (request, handle) = (RequestId(self.requests), lane.handle());
        let (first, congested) = (there.start, false);
        let count = u32::try_from(there.end - there.start).expect("fewer pages than frames");
        self.world.done = false;
        self.send(now, Event::Read { request, handle, first, count, previous_end, congested });
        self.settle(now, lane, file, there);
        if !self.world.done {
            // Some of it is pending for another, who is not there yet or stays there.
            self.take_over(lane, there);
            self.settle(now, lane, file, there);
        }
        if !self.world.done {
            // Another waits for some of it; the program does not.
            self.send(now, Event::Cancel { request });
        }
        self.refuse(now);
    }

    /// Whether all that is read next by the reader who has read `range` is cached.
    fn is_warm(&mut self, lane: LaneId, range: &Range<u64>, course: Course, bytes: u64) -> bool {
        let Some(row) = self.lanes[lane.0 as usize].as_mut() else { return false };
        let next = |far: u64| match course {
            Course::Forward => range.end..bytes.min(range.end + far),
            Course::Back => range.start.saturating_sub(far)..range.start,
            // Who reads at random is new here each time: a look far ahead of each read is dear.
            Course::Unknown => {
                let far = far.min(NEAR_BYTES);
                range.start.saturating_sub(far)..bytes.min(range.end + far)
            }
        };
        let near = next(WARM_BYTES / 2);
        if !row.pending.is_empty() || row.warm.start <= near.start && near.end <= row.warm.end {
            return row.pending.is_empty();
        }
        let next = next(WARM_BYTES);
        let source = self.files.get(&row.file).and_then(|file| file.source.as_ref());
        let cached = source.and_then(|source| kernel::cached(&source.file, &next).ok());
        let is_warm = cached == Some(Residency::Pages(kernel::pages(&next)));
        row.warm = if is_warm { next } else { 0..0 };
        is_warm
    }

    fn send(&mut self, now: Nanos, event: Event<'_>) {
        let core = self.core.as_mut().expect("it is built before anything is sent");
        drive(core, now, event, &mut self.actions, &mut self.world);
    }
}

impl Readers for Drive {
    fn process(&mut self, _pid: i32, processor: Option<Nanos>) {
        self.processor = processor;
    }

    fn open(&mut self, now: Nanos, file: File, stat: &Stat, main: u64) -> Option<LaneId> {
        if self.lanes.iter().flatten().count() >= LANES_MAX {
            self.counts.lanes_refused += 1;
            return None;
        }
        let id = self.file(now, file, stat)?;
        self.add(id, main)
    }

    fn again(&mut self, lane: LaneId, main: u64) -> Option<LaneId> {
        let file = self.lanes[lane.0 as usize].as_ref()?.file;
        self.add(file, main)
    }

    /// It is read ahead for as for any other.
    fn maps(&mut self, _lane: LaneId) {}

    fn file(&self, lane: LaneId) -> Option<&File> {
        let lane = self.lanes[lane.0 as usize].as_ref()?;
        self.files.get(&lane.file)?.source.as_ref().map(|source| &source.file)
    }

    fn seek(&mut self, now: Nanos, lane: LaneId, to: u64) {
        let Some(row) = self.lanes[lane.0 as usize].as_mut() else { return };
        // What lies beyond is still to come, unless he went back.
        let skipped = if row.main <= to { 0..to / PAGE } else { 0..u64::MAX };
        (row.main, row.warm, row.course) = (to, 0..0, Course::Unknown);
        row.pace.moved();
        self.give_up(now, lane, &skipped);
        self.refuse(now);
    }

    fn read(&mut self, now: Nanos, lane: LaneId, range: &Range<u64>, follows: bool) {
        self.resize(now, lane);
        let Some(row) = self.lanes[lane.0 as usize].as_mut() else { return };
        let file = row.file;
        let Some(bytes) = self.files.get(&file).map(|row| row.version.bytes) else { return };
        let goes_back = range.end <= row.main && range.start < row.main;
        let course = if goes_back { Course::Back } else { Course::Forward };
        row.main = if goes_back { range.start } else { range.end };
        let before = std::mem::replace(&mut row.course, course);
        // A reader that was seen after its seek and before its read goes on from nothing.
        let is_new_here = before == Course::Unknown;
        let follows = follows && !is_new_here;
        let known = if is_new_here { before } else { course };
        if before != course {
            row.pace.moved();
        }
        row.rate.read(range.end - range.start, self.processor);
        self.counts.bytes_read += range.end - range.start;
        let range = range.start..range.end.min(bytes);
        if range.is_empty() || self.is_warm(lane, &range, known, bytes) {
            return;
        }
        self.is_cold = true;
        if !self.introduce(now, lane) {
            return;
        }
        let (mut first, end) = (range.start / PAGE, pages(range.end));
        if is_new_here {
            self.take_over(lane, &(first..end));
        }
        let before = self.core_stats().late_hits;
        let mut previous_end = follows.then_some(range.start);
        while first < end {
            let piece = first..end.min(first + u64::from(self.settings.frames / 4));
            self.read_pages(now, lane, file, &piece, previous_end);
            first = piece.end;
            previous_end = Some(first * PAGE);
        }
        let is_late = self.core_stats().late_hits > before;
        let Some(row) = self.lanes[lane.0 as usize].as_mut() else { return };
        row.late |= is_late;
        row.order();
    }

    /// Nothing goes on from it.
    fn once(&mut self, _now: Nanos, _lane: LaneId, range: &Range<u64>) {
        self.counts.bytes_read += range.end - range.start;
    }

    fn close(&mut self, now: Nanos, lane: LaneId) {
        self.give_up(now, lane, &(0..u64::MAX));
        let Some(row) = self.lanes[lane.0 as usize].take() else { return };
        if row.is_known {
            self.send(now, Event::Close { handle: lane.handle() });
        }
        let Some(file) = self.files.get_mut(&row.file) else { return };
        file.lanes -= 1;
        if file.lanes > 0 {
            return;
        }
        if let Some(source) = file.source.take() {
            source.close();
        }
        // What is on its way comes, and nobody will look.
        let mut arrived = Vec::new();
        self.take_asked(row.file, &(0..u64::MAX), &mut arrived);
        for piece in arrived {
            self.arrived(now, &piece);
        }
        self.refuse(now);
    }
}

impl LaneId {
    fn handle(self) -> HandleId {
        HandleId(self.0)
    }
}

/// What the core is built from.
fn settings(bounds: &Bounds) -> cache::Settings {
    let budget = u32::try_from(bounds.budget_bytes / PAGE).unwrap_or(u32::MAX / 4);
    let ahead = budget.clamp(FRAMES_MIN, FRAMES_MAX);
    // Used pages have room beside those that are not used yet.
    let frames = ahead + ahead / 4;
    let mut settings = cache::Settings::new(frames, "2q-star", &bounds.readahead);
    settings.page_bytes = u32::try_from(PAGE).expect("a page");
    settings.request_pages_max = u32::try_from(CHUNK_BYTES_MAX / PAGE).expect("a chunk");
    settings.ahead_pages_max = ahead;
    settings.handles_max = u32::try_from(LANES_MAX).expect("a bound");
    settings.files_max = frames + u32::try_from(FILES_MAX + LANES_MAX).expect("a bound");
    settings.wait_max = Nanos(u64::MAX);
    settings.explain = true;
    settings.device = Some(facts(bounds.limit_bytes));
    settings
}

/// What the readahead policy is told of the device: so much that a lone stream wants half of the
/// limit in a window. How much of it is asked for, and when, the pace decides.
fn facts(limit_bytes: u64) -> estimate::Facts {
    let accesses_a_second = 1_000_000_000 / ACCESS.0;
    estimate::Facts {
        kind: Kind::Parallel,
        access: ACCESS,
        bytes_per_second: (limit_bytes / 2).max(PAGE).saturating_mul(accesses_a_second)
            / IN_FLIGHT_REACHES,
        depth: 32,
        request_bytes: u32::try_from(CHUNK_BYTES_MAX / 2).expect("a chunk"),
    }
}

fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE)
}

/// Of the memory that may be used, what is ahead of all readers takes one part in so many at most,
/// and the core knows of pages for one in so many, in which its own size is little.
const AHEAD_ONE_IN: u64 = 2;
const CORE_ONE_IN: u64 = 4;
/// Readers that are followed.
const LANES_MAX: usize = 1024;
/// Files of which something is remembered.
const FILES_MAX: usize = 1024;
/// The core's pages.
const FRAMES_MIN: u32 = 1 << 10;
const FRAMES_MAX: u32 = 1 << 20;
/// More than this in one go is not asked for.
const CHUNK_BYTES_MAX: u64 = 1 << 20;
/// So far ahead a reader finds all cached before it is left alone.
const WARM_BYTES: u64 = 32 << 20;
/// So far about a place where a reader has read once.
const NEAR_BYTES: u64 = 256 << 10;
/// A time to the first byte; only its product with the rate counts.
const ACCESS: Nanos = Nanos::from_millis(10);
/// Pieces over which a mean is taken, as TCP takes one of round trips.
const FEW: u64 = 8;
/// Of what arrives in the time of an access, `streams` keeps so much in flight.
const IN_FLIGHT_REACHES: u64 = 4;
const ECANCELED: i32 = 125;

#[cfg(test)]
mod tests;
