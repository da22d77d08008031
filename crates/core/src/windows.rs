//! The log of readahead windows: why each was opened, how large it was, and what became of it.
//!
//! A driver gives it the [`Explain`](crate::event::Action::Explain) and
//! [`Outcomes`](crate::event::Action::Outcomes) actions of a cache whose settings have `explain`
//! on.
//!
//! ```text
//!   opened at            last use
//!   |-- used, used, late ---|- - - - wasted
//!   start .. start + size: demanded, or fetched ahead, or there already
//! ```
//!
//! # Invariants
//! - The first `rows_max` windows are kept; those after them are counted.
//! - `outcomes` and `unread` of a window add up to the pages of it that were read ahead.

use alloc::vec::Vec;

use crate::cache::Cache;
use crate::event::PrefetchOutcomes;
use crate::readahead::Decision;
use crate::units::{HandleId, Nanos};

/// A window and what became of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRecord {
    /// When.
    pub at: Nanos,
    /// When a page that it had read ahead was last used; `at` before the first time. A use
    /// that a reader noted without a lock is as late as the batch that told of it.
    pub last_use: Nanos,
    /// The handle that it serves.
    pub handle: HandleId,
    /// What was decided. The file's end may have cut it.
    pub decision: Decision,
    /// Its pages that were neither resident nor in flight.
    pub fresh: u32,
    /// What became of those that were read ahead.
    pub outcomes: PrefetchOutcomes,
    /// Those without a use.
    pub unread: u32,
}

/// The first windows of a cache.
#[derive(Clone, Debug)]
pub struct WindowLog {
    rows: Vec<WindowRecord>,
    rows_max: usize,
    left_out: u64,
}

impl WindowLog {
    /// An empty log of at most `rows_max` windows.
    #[must_use]
    pub const fn new(rows_max: usize) -> Self {
        Self { rows: Vec::new(), rows_max, left_out: 0 }
    }

    /// A window was opened: an `Explain`.
    pub fn opened(&mut self, at: Nanos, handle: HandleId, decision: Decision, fresh: u32) {
        if self.rows.len() == self.rows_max {
            self.left_out += 1;
            return;
        }
        let (outcomes, unread) = (PrefetchOutcomes::default(), 0);
        self.rows.push(WindowRecord {
            at,
            last_use: at,
            handle,
            decision,
            fresh,
            outcomes,
            unread,
        });
    }

    /// Pages of `window` had these outcomes.
    pub fn count_outcomes(&mut self, now: Nanos, window: u32, outcomes: PrefetchOutcomes) {
        let Some(row) = self.rows.get_mut(window as usize) else { return };
        row.outcomes += outcomes;
        if outcomes.used + outcomes.late > 0 {
            row.last_use = now;
        }
    }

    /// Windows that were opened when the log was full.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The windows as `cache` has them now, in the order in which they were opened.
    #[must_use]
    pub fn rows(&self, cache: &Cache) -> Vec<WindowRecord> {
        let mut rows = self.rows.clone();
        for window in cache.unread() {
            if let Some(row) = rows.get_mut(window as usize) {
                row.unread += 1;
            }
        }
        rows
    }
}
