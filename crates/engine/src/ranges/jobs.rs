//! Fetches that were decided and not ended yet: those that wait for a thread, and those under way.
//!
//! ```text
//!   demand  [job][job]        somebody waits         first
//!   ahead   [job][job][job]   nobody waits yet       then these, oldest first
//!      \------ claim ----> under way ------ ended
//! ```
//!
//! # Invariants
//! - A job is claimed once and ends once.

use std::collections::{BTreeMap, VecDeque};

use forerun_core::units::FrameId;

/// A name for a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// A fetch to be made: bytes `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// The first byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
    /// Whether somebody waits for it.
    pub demand: bool,
}

/// What is known of a fetch.
pub(super) struct Row {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) demand: bool,
    /// Where its pages go; at least one.
    pub(super) frames: Vec<FrameId>,
}

impl Row {
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.frames.len()).expect("no more than there are frames")
    }
}

#[derive(Default)]
pub(super) struct Jobs {
    rows: BTreeMap<JobId, Row>,
    demand: VecDeque<JobId>,
    ahead: VecDeque<JobId>,
    named: u64,
}

impl Jobs {
    pub(super) fn add(&mut self, row: Row) {
        self.named += 1;
        let id = JobId(self.named);
        let queue = if row.demand { &mut self.demand } else { &mut self.ahead };
        queue.push_back(id);
        self.rows.insert(id, row);
    }

    /// How many wait for a thread.
    pub(super) fn waiting(&self) -> u32 {
        u32::try_from(self.demand.len() + self.ahead.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn claim(&mut self) -> Option<Job> {
        let id = self.demand.pop_front().or_else(|| self.ahead.pop_front())?;
        Some(self.job(id))
    }

    /// The first one that has bytes of `start..end`.
    pub(super) fn claim_within(&mut self, start: u64, end: u64) -> Option<Job> {
        let Self { rows, demand, ahead, .. } = self;
        let meets = |id: &JobId| rows.get(id).is_some_and(|row| row.start < end && start < row.end);
        let id = [demand, ahead].into_iter().find_map(|queue| {
            let at = queue.iter().position(meets)?;
            queue.remove(at)
        })?;
        Some(self.job(id))
    }

    /// How many bytes of `start..end` are under way, or wait for a thread.
    pub(super) fn bytes_within(&self, start: u64, end: u64) -> u64 {
        let within = |row: &Row| row.end.min(end).saturating_sub(row.start.max(start));
        self.rows.values().map(within).sum()
    }

    pub(super) fn ended(&mut self, id: JobId) -> Option<Row> {
        self.rows.remove(&id)
    }

    fn job(&self, id: JobId) -> Job {
        let Row { start, end, demand, .. } = self.rows[&id];
        Job { id, start, end, demand }
    }
}
