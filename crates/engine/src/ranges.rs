//! A cache of byte ranges for a reader that has a fetcher and threads of its own: an object's
//! reader in another language. No thread is here and nothing is fetched.
//!
//! ```text
//!   read ---> Begun::Ready --- copy_ready ------------------> bytes
//!     \-----> Begun::Waits --- claim_for --- (fetch) ---+      ^
//!   background threads ------- claim ------- (fetch) ---+      |
//!                                    arrived, failed <--+--> woken ---- take
//! ```
//! The core decides in pages; the fetcher is asked for bytes. A page that a demand wants in part
//! is fetched in part, so random reads cost what they want and no more: a frame knows which bytes
//! of its page it has. Who needs others has the page dropped and fetches again.
//!
//! # Invariants
//! - A read gets bytes of fetches that gave exactly what they were asked for, or an error.
//! - A failed fetch fails the reads that wait for its demands; failed readahead is dropped, and
//!   who waits for some of it fetches that again as a demand.
//! - Memory: the frames, a 64th of that for tails, and the results of reads that wait.
//! # Sources
//! The fetcher is fsspec's: `fsspec/caching.py`, version 2026.9.

mod jobs;
mod steps;
mod tails;
mod world;

use forerun_core::cache::{self, Cache};
use forerun_core::device::{Kind, estimate::Facts};
use forerun_core::drive::drive;
use forerun_core::event::{Actions, Event};
use forerun_core::units::{FileId, FrameId, HandleId, Nanos, PageId, PartitionId, RequestId};

use crate::clock::Clock;
use crate::settings::SettingsError;
pub use forerun_io::frames::spare_bytes_max;
pub use jobs::{Job, JobId};
use steps::Steps;
use world::World;

/// The values that such a cache is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangesSettings {
    /// Memory for pages, in bytes; a file that is smaller takes less.
    pub memory_bytes: u64,
    /// The largest fetch, in bytes.
    pub request_bytes_max: u32,
    /// Fetches ahead of need that wait for a thread from which on there are enough.
    pub connections: u32,
    /// The readahead policy, as `NAME:key=value,...`.
    pub readahead: String,
    /// The replacement policy, as `NAME:key=value,...`.
    pub policy: String,
}

impl Default for RangesSettings {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            request_bytes_max: 9 << 18,
            connections: 16,
            readahead: "streams:first=1M".into(),
            policy: "2q-star".into(),
        }
    }
}

impl RangesSettings {
    /// What the readahead policy is told of the store. It is not measured, as what is seen of it
    /// depends on who else asks and on what fetchers and their language take: so much is in flight
    /// that each connection has a request.
    fn device(&self) -> Facts {
        let in_flight = u64::from(self.connections) * u64::from(self.request_bytes_max);
        let accesses_a_second = 1_000_000_000 / ACCESS.0;
        Facts {
            kind: Kind::Parallel,
            access: ACCESS,
            bytes_per_second: in_flight * accesses_a_second / IN_FLIGHT_REACHES,
            depth: self.connections,
            request_bytes: self.request_bytes_max / 2,
        }
    }
}

/// A name for a read that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// How a read began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// All its bytes are here: see [`Ranges::copy_ready`].
    Ready,
    /// Some have to be fetched.
    Waits(ReadId),
}

/// How a read ended that had to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its bytes.
    Bytes(Vec<u8>),
    /// The last fetch that it claimed brought all of them: they are copied nowhere else.
    Fetched,
    /// A fetch that it needed failed.
    Failed,
    /// What it shared with another read was less than it needs: it is to be read again.
    Again,
}

/// What such a cache counted.
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
    /// Bytes that were asked for.
    pub bytes_wanted: u64,
    /// Fetches that came back, and their bytes.
    pub fetches: u64,
    /// Bytes that came.
    pub bytes_fetched: u64,
    /// Fetches that failed.
    pub failures: u64,
    /// Streams that were found: those that got a window beyond what was asked.
    pub streams: u64,
    /// The bytes of all frames.
    pub memory_bytes: u64,
}

/// See the module.
pub struct Ranges {
    core: Cache,
    actions: Actions,
    clock: Clock,
    world: World,
    /// None where the policy is another: those are there to be compared.
    steps: Option<Steps>,
    file_bytes: u64,
    /// The largest fetch, in bytes.
    request_bytes_max: u32,
    previous_end: Option<u64>,
    /// Reads that were given a name.
    named: u64,
    stats: RangesStats,
}

impl Ranges {
    /// A cache for an object of `file_bytes`.
    ///
    /// # Errors
    /// A bound is 0 or too large, or a policy is unknown.
    pub fn new(settings: &RangesSettings, file_bytes: u64) -> Result<Self, SettingsError> {
        let page = u64::from(PAGE_BYTES);
        let pages = file_bytes.div_ceil(page).max(1);
        let bytes = settings.memory_bytes;
        let frames = (bytes / page).min(pages.max(FRAMES_ENOUGH));
        let frames = u32::try_from(frames)
            .ok()
            .filter(|&frames| u64::from(frames) >= FRAMES_MIN && frames < u32::MAX)
            .ok_or(SettingsError::CacheBytes { bytes, page_bytes: PAGE_BYTES })?;
        if settings.request_bytes_max < PAGE_BYTES {
            let (bytes, page_bytes) = (settings.request_bytes_max, PAGE_BYTES);
            return Err(SettingsError::RequestBytes { bytes, page_bytes });
        }
        if settings.connections == 0 {
            return Err(cache::SettingsError::Zero("connections").into());
        }
        let mut core = cache::Settings::new(frames, &settings.policy, &settings.readahead);
        core.page_bytes = PAGE_BYTES;
        core.request_pages_max = settings.request_bytes_max / PAGE_BYTES;
        core.handles_max = 1;
        core.files_max = 1;
        core.explain = true;
        core.ahead_pages_max = frames - frames / USED_ONE_IN;
        core.device = Some(settings.device());
        // Who waits for a frame waits for fetches that will end.
        core.wait_max = Nanos(u64::MAX);
        let mut ranges = Self {
            core: Cache::new(core)?,
            actions: Actions::new(),
            clock: Clock::start(),
            world: World::new(frames, file_bytes, settings.connections)?,
            steps: settings.readahead.starts_with("streams").then(Steps::default),
            file_bytes,
            request_bytes_max: settings.request_bytes_max,
            previous_end: None,
            named: 0,
            stats: RangesStats::default(),
        };
        let (handle, file, partition) = (HANDLE, FILE, PartitionId(0));
        ranges.send(Event::Open { handle, file, partition, file_pages: pages });
        Ok(ranges)
    }

    /// The most bytes that one read may ask for.
    #[must_use]
    pub fn read_bytes_max(&self) -> u64 {
        u64::from(self.core.settings().frames / READS_AT_ONCE) * u64::from(PAGE_BYTES)
    }

    /// Somebody wants `start..end`, within the file, not empty, at most
    /// [`Ranges::read_bytes_max`] bytes.
    ///
    /// # Panics
    /// The range is none of these.
    pub fn read(&mut self, start: u64, end: u64) -> Begun {
        assert!(start < end && end <= self.file_bytes, "{start}..{end} of {}", self.file_bytes);
        assert!(end - start <= self.read_bytes_max(), "{} bytes at once", end - start);
        self.stats.reads += 1;
        self.stats.bytes_wanted += end - start;
        self.foresee(start, end);
        let previous_end = self.previous_end.replace(end);
        let begun = self.begin(start, end, previous_end);
        self.stats.stalls += u64::from(begun != Begun::Ready);
        begun
    }

    /// As [`Ranges::read`], for a read that ended as [`Ended::Again`]: it is the same one still.
    ///
    /// # Panics
    /// As there.
    pub fn again(&mut self, start: u64, end: u64) -> Begun {
        self.begin(start, end, None)
    }

    fn begin(&mut self, start: u64, end: u64, previous_end: Option<u64>) -> Begun {
        self.named += 1;
        let read = ReadId(self.named);
        let whole = self.drop_lacking(start, end);
        self.world.begin(read, start, end, whole);
        let first = page_of(start) + u64::from(self.begins_with_tail(start, end));
        let count = u32::try_from(page_of(end - 1) + 1 - first).expect("fewer pages than frames");
        if count == 0 {
            self.world.only_tail();
        } else {
            let congested = self.world.jobs.waiting() >= ROUNDS_WAITING * self.world.connections;
            let (request, handle) = (RequestId(read.0), HANDLE);
            self.send(Event::Read { request, handle, first, count, previous_end, congested });
        }
        if self.world.begun() {
            return Begun::Ready;
        }
        self.world.wait(self.clock.now());
        Begun::Waits(read)
    }

    /// Copies the bytes of the last read, which was [`Begun::Ready`], and nothing was done since.
    ///
    /// # Panics
    /// `out` is not as long as that read.
    pub fn copy_ready(&self, out: &mut [u8]) {
        self.world.copy_ready(out);
    }

    /// The bytes of that read, where they lie one behind the other.
    #[must_use]
    pub fn ready(&self) -> Option<&[u8]> {
        self.world.ready()
    }

    /// Whether fetches wait for a thread.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.world.jobs.waiting()
    }

    /// The next fetch for a background thread: demands first.
    pub fn claim(&mut self) -> Option<Job> {
        self.world.jobs.claim()
    }

    /// A fetch for the thread in which `read` waits: one that it waits for and nobody has begun.
    /// Where it waits for room instead, any other, as what nobody fetches would keep its room.
    pub fn claim_for(&mut self, read: ReadId) -> Option<Job> {
        let World { reads, jobs, .. } = &mut self.world;
        let waiting = reads.get_mut(&read)?;
        let job = jobs.claim_within(waiting.start, waiting.end);
        if job.is_none() && jobs.bytes_within(waiting.start, waiting.end) < waiting.left {
            return jobs.claim();
        }
        let all = |job: &Job| job.start <= waiting.start && waiting.end <= job.end;
        waiting.fetches = job.filter(all).map(|job| job.id);
        job
    }

    /// The fetch of `job` gave `bytes`; another number of them than it was asked for is a failure.
    pub fn arrived(&mut self, job: JobId, bytes: &[u8]) {
        let Some(row) = self.world.jobs.ended(job) else { return };
        if bytes.len() as u64 != row.end - row.start {
            return self.fail(job, &row);
        }
        self.stats.fetches += 1;
        self.stats.bytes_fetched += row.end - row.start;
        self.world.fill(&row, bytes);
        let count = row.count();
        self.send(Event::Arrived { first: row.frames[0], count });
    }

    /// The fetch of `job` failed.
    pub fn failed(&mut self, job: JobId) {
        if let Some(row) = self.world.jobs.ended(job) {
            self.fail(job, &row);
        }
    }

    fn fail(&mut self, job: JobId, row: &jobs::Row) {
        self.stats.failures += 1;
        self.world.brings_nothing(job);
        self.send(Event::Failed { first: row.frames[0], count: row.count(), errno: EIO });
    }

    /// Reads whose waiters are to be woken since this was asked last: they ended, or there is
    /// something to be fetched for them.
    pub fn woken(&mut self) -> Vec<ReadId> {
        std::mem::take(&mut self.world.woken)
    }

    /// How `read` ended; `None` while it waits. It is told once.
    pub fn take(&mut self, read: ReadId) -> Option<Ended> {
        let ended = self.world.take(read)?;
        self.stats.stalled.0 += self.clock.now().since(ended.1).0;
        Some(ended.0)
    }

    /// Whoever waits for `read` gave up.
    pub fn cancel(&mut self, read: ReadId) {
        self.send(Event::Cancel { request: RequestId(read.0) });
        self.world.reads.remove(&read);
        self.world.woken.retain(|&other| other != read);
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> RangesStats {
        let memory_bytes = u64::from(self.core.settings().frames) * u64::from(PAGE_BYTES);
        let streams = self.world.streams + self.steps.as_ref().map_or(0, |steps| steps.found);
        RangesStats { core: *self.core.stats(), streams, memory_bytes, ..self.stats }
    }

    /// Has fetched what a reader at even steps comes to next. What it reads now goes first, and
    /// core sees nobody who misses it: there it would begin a stream.
    fn foresee(&mut self, start: u64, end: u64) {
        let Some(mut steps) = self.steps.take() else { return };
        if steps.read(start, end) {
            self.prefetch(start, end);
            let in_flight = u64::from(self.world.connections) * u64::from(self.request_bytes_max);
            let most = (in_flight / (end - start)).max(1);
            while self.world.jobs.waiting() < self.world.connections
                && let Some((start, end)) = steps.next(self.file_bytes, most)
            {
                self.prefetch(start, end);
            }
        }
        self.steps = Some(steps);
    }

    fn prefetch(&mut self, start: u64, end: u64) {
        let first = page_of(start);
        let count = u32::try_from(page_of(end - 1) + 1 - first).unwrap_or(u32::MAX);
        self.send(Event::Prefetch { handle: HANDLE, first, count });
    }

    /// Whether a read of `start..end` finds its first page among the tails alone.
    fn begins_with_tail(&mut self, start: u64, end: u64) -> bool {
        if start.is_multiple_of(u64::from(PAGE_BYTES)) {
            return false;
        }
        let index = page_of(start);
        let in_frame = self.core.resident(PageId { file: FILE, index }).is_some();
        // Who goes on within the page needs its tail again.
        let stays = in_frame && page_of(end) == index;
        !stays && self.world.begin_with_tail(index, in_frame)
    }

    /// Pages of `start..end` that are here without all of the bytes that it wants are dropped.
    /// Whether its first and its last page are among them: who reads on in such a page would come
    /// again, so it is to be fetched whole.
    fn drop_lacking(&mut self, start: u64, end: u64) -> (bool, bool) {
        let mut whole = (false, false);
        if !self.world.has_partial() {
            return whole;
        }
        let (first, last) = (page_of(start), page_of(end - 1));
        for index in first..=last {
            let frame = self.core.resident(PageId { file: FILE, index });
            if frame.is_some_and(|frame| !self.world.holds(frame, index, start, end)) {
                self.send(Event::Invalidate { file: FILE, first: index, count: 1 });
                whole = (whole.0 || index == first, whole.1 || index == last);
            }
        }
        whole
    }

    fn send(&mut self, event: Event<'_>) {
        drive(&mut self.core, self.clock.now(), event, &mut self.actions, &mut self.world);
    }
}

/// The page that the byte at `offset` lies in.
fn page_of(offset: u64) -> u64 {
    offset / u64::from(PAGE_BYTES)
}

/// Where a frame lies in the memory of all.
fn place(frame: FrameId) -> usize {
    frame.0 as usize * PAGE_BYTES as usize
}

const FILE: FileId = FileId(0);
const HANDLE: HandleId = HandleId(0);
/// Bytes of a page: few decisions a range, and little that a window of one page fetches in vain.
pub const PAGE_BYTES: u32 = 8 << 10;
/// A smaller cache is refused.
const FRAMES_MIN: u64 = 64;
/// A file that is smaller has so many all the same: a readahead window fits, whatever its file.
const FRAMES_ENOUGH: u64 = 512;
/// One read may take this part of the frames: others read meanwhile.
const READS_AT_ONCE: u32 = 4;
/// A store's usual time to the first byte.
const ACCESS: Nanos = Nanos::from_millis(30);
/// Of what arrives in the time of an access, `streams` keeps so much in flight.
const IN_FLIGHT_REACHES: u64 = 4;
/// More rounds of fetches than this waiting for a thread: then there are enough.
const ROUNDS_WAITING: u32 = 4;
/// Used pages have this part of the frames, which replacement does not take for unread ones.
const USED_ONE_IN: u32 = 16;
const EIO: i32 = 5;
