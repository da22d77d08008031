//! A stream cursor: one reader of a file, what is pending for it, and its pace.
//!
//! ```text
//!            position                                the core's windows end here
//!   ...read----+==== requested =====|- - - pending - - -|
//!              |<--- distance ----->|                       by the pace
//! ```
//! The core decides which pages; its windows wait here until the pace lets them through, so that a
//! reader that stops or goes elsewhere costs no more than its prefetch distance.
//!
//! # Invariants
//! - A pending run's frames are in flight in the core until the core learns their outcome.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use super::PAGE_BYTES;
use super::pace::{Pace, PaceRule};
use super::runs::{PageRun, SplitRun};
use crate::units::{FileId, Nanos, PageIndex};

/// Where a reader goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The reader is at its position without having read up to there.
    Unknown,
    Forward,
    Backward,
}

/// One reader of a file.
#[derive(Debug)]
pub(super) struct StreamCursor {
    pub(super) file: FileId,
    /// Whether its handle is open in the core.
    pub(super) is_open: bool,
    /// The end of the last read, its start if the reader goes backward, or the target of a seek.
    pub(super) position: u64,
    pub(super) direction: Direction,
    pub(super) pace: Pace,
    /// The reader met pages in flight since the last decision of the pace.
    pub(super) is_late: bool,
    /// The nearest first.
    pub(super) pending: VecDeque<PageRun>,
    /// Bytes that were found cached around the position.
    pub(super) cached: Range<u64>,
    pub(super) rate: ConsumptionRate,
}

/// How fast a program consumes what it reads, by its processor time, which stands while it waits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConsumptionRate {
    since: Option<Nanos>,
    /// Bytes read since then.
    bytes: u64,
    pub(super) bytes_per_second: u64,
}

impl ConsumptionRate {
    /// The program has read `bytes` more, and has used `processor` time so far.
    pub(super) fn read(&mut self, bytes: u64, processor: Option<Nanos>) {
        let Some(now) = processor else { return };
        let passed = now.since(*self.since.get_or_insert(now));
        self.bytes = self.bytes.saturating_add(bytes);
        if passed < RATE_INTERVAL {
            return;
        }
        let rate = u128::from(self.bytes) * SECOND / u128::from(passed.0);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        // A moving average, so that one interval does not decide.
        let before = if self.bytes_per_second == 0 { rate } else { self.bytes_per_second };
        self.bytes_per_second = before / 2 + rate / 2;
        (self.since, self.bytes) = (Some(now), 0);
    }
}

impl StreamCursor {
    pub(super) fn new(file: FileId, position: u64, rule: PaceRule) -> Self {
        Self {
            file,
            is_open: false,
            position,
            direction: if position == 0 { Direction::Forward } else { Direction::Unknown },
            pace: Pace::new(rule),
            is_late: false,
            pending: VecDeque::new(),
            cached: 0..0,
            rate: ConsumptionRate::default(),
        }
    }

    /// The direction of a read of `range`, and the position behind it.
    pub(super) fn after(&self, range: &Range<u64>) -> (Direction, u64) {
        if range.end <= self.position && range.start < self.position {
            (Direction::Backward, range.start)
        } else {
            (Direction::Forward, range.end)
        }
    }

    /// Sorts what is pending, the nearest first in either direction: the distance counts what was
    /// requested without a gap, so runs behind a reader that has turned have to wait.
    pub(super) fn sort_pending(&mut self) {
        let position = self.position;
        self.pending.make_contiguous().sort_by_key(|run| {
            let Range { start, end } = run.pages();
            let (start, end) = (start * PAGE_BYTES, end * PAGE_BYTES);
            start.saturating_sub(position).max(position.saturating_sub(end))
        });
    }

    /// Takes what is pending of `pages` out.
    pub(super) fn take(&mut self, pages: &Range<PageIndex>, out: &mut Vec<PageRun>) {
        if !self.pending.iter().any(|run| run.overlaps(pages)) {
            return;
        }
        for run in core::mem::take(&mut self.pending) {
            let SplitRun { before, within, behind } = run.split(pages);
            out.extend(within);
            self.pending.extend(before.into_iter().chain(behind));
        }
    }
}

/// Processor time over which a rate is measured.
const RATE_INTERVAL: Nanos = Nanos::from_millis(2);
const SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_processor_time() {
        let mut rate = ConsumptionRate::default();
        let at = |micros| Some(Nanos::from_micros(micros));
        rate.read(1 << 20, None);
        rate.read(100, at(5_000));
        assert_eq!(rate.bytes_per_second, 0, "nothing to compare with");
        rate.read(9_900, at(6_000));
        assert_eq!(rate.bytes_per_second, 0, "too soon");
        rate.read(10_000, at(7_000));
        assert_eq!(rate.bytes_per_second, 10_000_000, "20,000 bytes in 2 ms");
        rate.read(40_000, at(9_000));
        assert_eq!(rate.bytes_per_second, 15_000_000, "half of it is new");
    }
}
