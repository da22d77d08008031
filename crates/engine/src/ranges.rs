//! A cache of byte ranges for a caller with its own fetcher and threads, such as an object reader
//! in another language. The cache has no thread and fetches nothing.
//!
//! ```text
//!   read ---> ReadStart::Ready --- copy_ready --------------> bytes
//!     \-----> ReadStart::Waits --- claim_for --- (fetch) ---+  ^
//!   background threads ----------- claim ------- (fetch) ---+  |
//!                                        arrived, failed <--+--> woken ---- take
//! ```
//! `core::planner::ranges` decides what is fetched, for which read and in which order. This module
//! has the bytes, and the reads that wait for them.
//!
//! # Invariants
//! - A read gets bytes of fetches that returned exactly their range, or an error.
//! - A failed readahead with a waiting read is fetched again as a demand.
//! - Each claimed fetch is one request of its store, and ends there once.
//! - Memory: the frames, a 64th of that for tails, and the results of waiting reads.
//! # Sources
//! The fetcher is fsspec's: `fsspec/caching.py`, version 2026.9.

mod memory;
mod store;
mod tails;

pub use forerun_core::planner::ranges::{
    FetchId, RANGE_PAGE_BYTES as PAGE_BYTES, RangeFetch, RangesSettings, RangesStats,
};
use forerun_core::planner::ranges::{RangePlanner, page_of};
use forerun_core::units::{Nanos, RequestId};
pub use forerun_io::frames::spare_bytes_max;

use crate::clock::Clock;
use crate::error::BuildError;
use memory::Memory;
use store::FileOfStore;
pub use store::{InFlight, Store};

/// The number of a read that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// How a read began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStart {
    /// All its bytes are cached: see [`Ranges::copy_ready`].
    Ready,
    /// Some bytes have to be fetched.
    Waits(ReadId),
}

/// How a read that waited ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// Its bytes.
    Bytes(Vec<u8>),
    /// The last fetch that the read claimed has all its bytes: they are copied nowhere else.
    Fetched,
    /// A fetch that the read needs failed.
    Failed,
    /// A fetch shared with another read has fewer bytes than this read needs: read again.
    Again,
}

/// See the module.
pub struct Ranges {
    planner: RangePlanner,
    clock: Clock,
    memory: Memory,
    /// Its fetches at the store that is learnt of, if one is.
    in_flight: InFlight,
    /// Reads that have a number.
    named: u64,
    stalls: u64,
    stalled: Nanos,
}

impl Ranges {
    /// A cache for an object of `file_bytes`.
    ///
    /// # Errors
    /// A bound is 0 or too large, a policy is unknown, or there is no memory.
    pub fn new(settings: &RangesSettings, file_bytes: u64) -> Result<Self, BuildError> {
        Self::made(settings, file_bytes, InFlight(None))
    }

    /// As [`Ranges::new`], for a file of `store`: its requests are learnt from, and what is known
    /// of it takes the place of [`RangesSettings::store`].
    ///
    /// # Errors
    /// As there.
    pub fn of_store(
        settings: &RangesSettings,
        file_bytes: u64,
        store: &Store,
    ) -> Result<Self, BuildError> {
        let settings = RangesSettings { store: Some(store.estimate()), ..settings.clone() };
        Self::made(&settings, file_bytes, InFlight(Some(FileOfStore::new(store.clone()))))
    }

    fn made(
        settings: &RangesSettings,
        file_bytes: u64,
        in_flight: InFlight,
    ) -> Result<Self, BuildError> {
        let planner = RangePlanner::new(settings, file_bytes)?;
        let memory = Memory::new(planner.frames(), file_bytes)?;
        let (clock, stalled) = (Clock::start(), Nanos(0));
        Ok(Self { planner, clock, memory, in_flight, named: 0, stalls: 0, stalled })
    }

    /// The most bytes of one read.
    #[must_use]
    pub fn read_bytes_max(&self) -> u64 {
        self.planner.read_bytes_max()
    }

    /// Reads `start..end`, within the file, not empty, at most [`Ranges::read_bytes_max`] bytes.
    ///
    /// # Panics
    /// The range is empty, past the end of the file or too long.
    pub fn read(&mut self, start: u64, end: u64) -> ReadStart {
        self.planner.access(self.clock.now(), start, end);
        let start = self.again(start, end);
        self.stalls += u64::from(start != ReadStart::Ready);
        start
    }

    /// As [`Ranges::read`], for a read that ended as [`ReadEnd::Again`]: counted as the same read.
    ///
    /// # Panics
    /// As there.
    pub fn again(&mut self, start: u64, end: u64) -> ReadStart {
        self.named += 1;
        let (read, now) = (ReadId(self.named), self.clock.now());
        let in_frame = self.planner.prepare(now, start, end);
        self.carry_out();
        self.memory.begin(read, start, end);
        let has_head = self.begins_with_tail(start, end, in_frame);
        self.planner.read(now, RequestId(read.0), has_head);
        self.carry_out();
        if self.memory.is_ready() {
            return ReadStart::Ready;
        }
        self.memory.wait(self.clock.now());
        ReadStart::Waits(read)
    }

    /// The caller will read `start..end`, within the file and not empty: it is fetched ahead as far
    /// as memory allows, the rest as that is read. Returns whether it was noted: 65,536 ranges are.
    ///
    /// # Panics
    /// The range is empty or past the end of the file.
    pub fn will_need(&mut self, start: u64, end: u64) -> bool {
        let is_noted = self.planner.will_need(self.clock.now(), start, end);
        self.carry_out();
        is_noted
    }

    /// Copies the bytes of the last read, which began as [`ReadStart::Ready`]. No other call may
    /// come between.
    ///
    /// # Panics
    /// `out` is not as long as that read.
    pub fn copy_ready(&self, out: &mut [u8]) {
        self.memory.copy_ready(out);
    }

    /// The bytes of the last read, if they are contiguous in memory.
    #[must_use]
    pub fn ready(&self) -> Option<&[u8]> {
        self.memory.ready()
    }

    /// The number of fetches that wait for a thread.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.planner.queue().waiting()
    }

    /// The next fetch for a background thread: demands first.
    pub fn claim(&mut self) -> Option<RangeFetch> {
        let fetch = self.planner.queue_mut().claim();
        self.issued(fetch)
    }

    /// A fetch for the thread in which `read` waits: one that `read` waits for and no thread has
    /// claimed. A read that waits for frames instead gets any other fetch, as an unclaimed fetch
    /// keeps its frames.
    pub fn claim_for(&mut self, read: ReadId) -> Option<RangeFetch> {
        let waiting = self.memory.reads.get_mut(&read)?;
        let queue = self.planner.queue_mut();
        let fetch = queue.claim_within(waiting.start, waiting.end);
        if fetch.is_none() && queue.bytes_within(waiting.start, waiting.end) < waiting.left {
            let other = queue.claim();
            return self.issued(other);
        }
        let all = |fetch: &RangeFetch| fetch.start <= waiting.start && waiting.end <= fetch.end;
        waiting.fetches = fetch.filter(all).map(|fetch| fetch.id);
        self.issued(fetch)
    }

    /// Completes the fetch `id` with `bytes`; a length other than its range's is a failure.
    pub fn arrived(&mut self, id: FetchId, bytes: &[u8]) {
        let fetch = self.planner.arrived(self.clock.now(), id, bytes.len() as u64);
        self.in_flight.ended(id, fetch.is_some());
        if let Some(fetch) = fetch {
            self.memory.fill(&fetch, bytes);
        }
        self.carry_out();
    }

    /// Fails the fetch `id`.
    pub fn failed(&mut self, id: FetchId) {
        self.planner.failed(self.clock.now(), id);
        self.in_flight.ended(id, false);
        self.carry_out();
    }

    /// The fetch `id` is made again: how long it takes tells nothing of the store.
    pub fn retried(&mut self, id: FetchId) {
        self.in_flight.retried(id);
    }

    /// The fetches in flight, for a cache that is dropped before they end. The store learns of no
    /// later ones.
    #[must_use]
    pub fn take_in_flight(&mut self) -> InFlight {
        std::mem::replace(&mut self.in_flight, InFlight(None))
    }

    /// Reads to be woken since the last call: they ended, or a fetch for them can be claimed.
    pub fn woken(&mut self) -> Vec<ReadId> {
        std::mem::take(&mut self.memory.woken)
    }

    /// How `read` ended, once; `None` while it waits.
    pub fn take(&mut self, read: ReadId) -> Option<ReadEnd> {
        let (end, since) = self.memory.take(read)?;
        self.stalled.0 += self.clock.now().since(since).0;
        Some(end)
    }

    /// Cancels `read`.
    pub fn cancel(&mut self, read: ReadId) {
        self.planner.cancel(self.clock.now(), RequestId(read.0));
        self.carry_out();
        self.memory.reads.remove(&read);
        self.memory.woken.retain(|&other| other != read);
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> RangesStats {
        let (stalls, stalled) = (self.stalls, self.stalled);
        RangesStats { stalls, stalled, ..self.planner.stats() }
    }

    /// Whether a read of `start..end` finds its first page among the tails alone.
    fn begins_with_tail(&mut self, start: u64, end: u64, in_frame: bool) -> bool {
        let index = page_of(start);
        // A read that continues within the page needs its tail again.
        let stays = in_frame && page_of(end) == index;
        let is_aligned = start.is_multiple_of(u64::from(PAGE_BYTES));
        !is_aligned && !stays && self.memory.begin_with_tail(index, in_frame)
    }

    /// `fetch` goes out.
    fn issued(&mut self, fetch: Option<RangeFetch>) -> Option<RangeFetch> {
        fetch.inspect(|fetch| self.in_flight.issued(*fetch))
    }

    fn carry_out(&mut self) {
        for action in self.planner.actions() {
            self.memory.carry_out(action);
        }
    }
}
