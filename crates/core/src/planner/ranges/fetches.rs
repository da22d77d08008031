//! Fetches that were decided and have not ended: those that wait for a thread, and those in flight.
//!
//! ```text
//!   demand     [fetch][fetch]         a reader waits          first
//!   readahead  [fetch][fetch][fetch]  no reader waits yet     then these, oldest first
//!      \------ claim ----> in flight ------ end
//! ```
//! # Invariants
//! - A fetch is claimed once and ends once.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::units::FrameId;

/// The name of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FetchId(pub u64);

/// A fetch to be made: the bytes `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeFetch {
    /// Its name.
    pub id: FetchId,
    /// The first byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
    /// Whether a reader waits for it.
    pub demand: bool,
}

/// A fetch that has not ended.
#[derive(Debug)]
pub struct FetchRow {
    /// The first byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
    /// Whether a reader waits for it.
    pub demand: bool,
    /// The frames of its pages, in their order; at least one.
    pub frames: Vec<FrameId>,
}

/// See the module.
#[derive(Default)]
pub struct FetchQueue {
    rows: BTreeMap<FetchId, FetchRow>,
    demand: VecDeque<FetchId>,
    readahead: VecDeque<FetchId>,
    named: u64,
}

impl FetchRow {
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.frames.len()).expect("no more than there are frames")
    }
}

impl FetchQueue {
    pub(super) fn add(&mut self, row: FetchRow) {
        assert!(row.start < row.end && !row.frames.is_empty(), "{row:?} has bytes");
        self.named += 1;
        let id = FetchId(self.named);
        let queue = if row.demand { &mut self.demand } else { &mut self.readahead };
        queue.push_back(id);
        self.rows.insert(id, row);
    }

    /// How many wait for a thread.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        u32::try_from(self.demand.len() + self.readahead.len()).unwrap_or(u32::MAX)
    }

    /// The next fetch for a thread: demands first.
    pub fn claim(&mut self) -> Option<RangeFetch> {
        let id = self.demand.pop_front().or_else(|| self.readahead.pop_front())?;
        Some(self.fetch(id))
    }

    /// The first fetch that waits for a thread and has bytes of `start..end`.
    pub fn claim_within(&mut self, start: u64, end: u64) -> Option<RangeFetch> {
        let Self { rows, demand, readahead, .. } = self;
        let meets =
            |id: &FetchId| rows.get(id).is_some_and(|row| row.start < end && start < row.end);
        let id = [demand, readahead].into_iter().find_map(|queue| {
            let at = queue.iter().position(meets)?;
            queue.remove(at)
        })?;
        Some(self.fetch(id))
    }

    /// How many bytes of `start..end` are in flight, or wait for a thread.
    #[must_use]
    pub fn bytes_within(&self, start: u64, end: u64) -> u64 {
        let within = |row: &FetchRow| row.end.min(end).saturating_sub(row.start.max(start));
        self.rows.values().map(within).sum()
    }

    pub(super) fn end(&mut self, id: FetchId) -> Option<FetchRow> {
        self.rows.remove(&id)
    }

    fn fetch(&self, id: FetchId) -> RangeFetch {
        let &FetchRow { start, end, demand, .. } = &self.rows[&id];
        RangeFetch { id, start, end, demand }
    }
}
