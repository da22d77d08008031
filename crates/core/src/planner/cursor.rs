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
use super::lengths::{RunLengths, WHOLE};
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
    /// Where the run begins that the reader is in.
    pub(super) run_from: u64,
    /// The lengths of its runs before.
    lengths: RunLengths,
    /// Where what was requested ends that lies next to the run: what is pending beyond, behind a
    /// gap, was predicted otherwise.
    pub(super) requested: u64,
    /// The bytes of the last read that was reported.
    last_read: u64,
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
            run_from: position,
            lengths: RunLengths::default(),
            requested: position,
            last_read: 0,
            pace: Pace::new(rule),
            is_late: false,
            pending: VecDeque::new(),
            cached: 0..0,
            rate: ConsumptionRate::default(),
        }
    }

    /// The direction of a read of `range`, and the position behind it.
    pub(super) fn after(&self, range: &Range<u64>) -> (Direction, u64) {
        if !self.is_arrival(range) && range.end <= self.position && range.start < self.position {
            (Direction::Backward, range.start)
        } else {
            (Direction::Forward, range.end)
        }
    }

    /// Whether a read of `range` is the one that tells where a seek has led.
    fn is_arrival(&self, range: &Range<u64>) -> bool {
        self.direction == Direction::Unknown && range.end == self.position
    }

    /// A read of `range` follows, in `direction`, in a file of `file_bytes`. Returns the length of
    /// the run that ends by it, if that began at the file's head and was the reader's first.
    pub(super) fn comes_to(
        &mut self,
        range: &Range<u64>,
        direction: Direction,
        file_bytes: u64,
    ) -> Option<u64> {
        self.last_read = range.end - range.start;
        let turns_back = direction == Direction::Backward && self.direction == Direction::Forward;
        if self.is_arrival(range) {
            self.run_from = self.run_from.min(range.start);
            return None;
        }
        if turns_back && range.end.abs_diff(self.run_from) <= SKIPPED_MIN {
            self.run_from = self.position;
            return None;
        }
        let from = if direction == Direction::Backward { range.end } else { range.start };
        self.goes_to(from, file_bytes)
    }

    /// The reader goes on at `at`: in its run, or in a new one. Returns as
    /// [`StreamCursor::comes_to`].
    pub(super) fn goes_to(&mut self, at: u64, file_bytes: u64) -> Option<u64> {
        let skipped = match self.direction {
            Direction::Unknown | Direction::Forward => at.checked_sub(self.position),
            Direction::Backward => self.position.checked_sub(at),
        };
        let is_requested = self.position <= at && at <= self.requested;
        let most = if is_requested { SKIPPED_MAX } else { self.skipped_max() };
        if skipped.is_some_and(|bytes| bytes <= most) {
            return None;
        }
        let (length, is_opening) = (self.run_length(file_bytes), self.is_opening());
        let end = if self.direction == Direction::Backward { u64::MAX } else { self.position };
        let before = self.lengths.resumed(at, SKIPPED_MIN).unwrap_or(0);
        (self.run_from, self.requested) = (at.saturating_sub(before), at);
        self.lengths.ended(length, end);
        is_opening.then_some(length)
    }

    /// The reader is gone. Returns as [`StreamCursor::comes_to`].
    pub(super) fn closes(&self, file_bytes: u64) -> Option<u64> {
        let (length, left) = (self.run_length(file_bytes), self.left(file_bytes));
        // Between two looks at it a reader may have come further than was seen.
        let least = self.run_bytes().max(LEFT_MIN).max(self.last_read.saturating_mul(LEFT_READS));
        let is_left = self.is_open && left >= least;
        (self.is_opening() && (length == WHOLE || is_left)).then_some(length)
    }

    /// The length of the run, if it ended now: of one that met the end of the file it is not known.
    fn run_length(&self, file_bytes: u64) -> u64 {
        let run = self.run_bytes();
        match self.left(file_bytes) <= run / 8 {
            false => run,
            true if run >= file_bytes / 2 => WHOLE,
            true => 0,
        }
    }

    fn left(&self, file_bytes: u64) -> u64 {
        match self.direction {
            Direction::Unknown | Direction::Forward => file_bytes.saturating_sub(self.position),
            Direction::Backward => self.position,
        }
    }

    /// The first run of the reader, from the head of the file.
    fn is_opening(&self) -> bool {
        self.lengths.is_empty() && self.run_from == 0
    }

    /// What the reader may skip without leaving its run: no more than it has read.
    fn skipped_max(&self) -> u64 {
        self.run_bytes().clamp(SKIPPED_MIN, SKIPPED_MAX)
    }

    fn run_bytes(&self) -> u64 {
        self.position.abs_diff(self.run_from)
    }

    /// The next pages that may be requested, and how far from its begin the run is likely to come
    /// that they are of; `None`: of no run, but a piece behind a gap, which was predicted
    /// otherwise. What the run is not likely to come to waits behind the pieces. `openings`: the
    /// runs to judge by where the reader had none; `first`: how far the first of all is followed.
    pub(super) fn next(
        &mut self,
        openings: &RunLengths,
        first: u64,
    ) -> Option<(Range<PageIndex>, Option<u64>)> {
        let known = if self.is_opening() { openings } else { &self.lengths };
        let longest = known.longest();
        let reach = known.reach(self.run_bytes(), first);
        let run_end = self.run_from.saturating_add(reach);
        let near = self.requested.max(self.position).saturating_add(self.skipped_max());
        for _ in 0..2 {
            let next = self.pending.front()?.pages();
            let (count, bytes) = self.first_pending();
            let (start, goes_back) = (bytes.start, bytes.end <= self.position);
            if goes_back {
                // A reader that goes backward by seeks is at a new place before each read.
                let is_known = self.direction == Direction::Backward;
                return Some((next, Some(if is_known { reach } else { u64::MAX })));
            }
            if start > near && start >= run_end && bytes.end - start <= longest {
                return Some((next, None));
            }
            if start < run_end {
                return Some((next, Some(reach)));
            }
            self.pending.rotate_left(count);
        }
        None
    }

    /// What is pending first, up to the first gap: how many runs, and the bytes.
    fn first_pending(&self) -> (usize, Range<u64>) {
        let mut runs = self.pending.iter().map(PageRun::pages);
        let mut all = runs.next().unwrap_or_default();
        let mut count = 1;
        while let Some(next) = runs.next()
            && next.start == all.end
        {
            (all.end, count) = (next.end, count + 1);
        }
        (count, all.start * PAGE_BYTES..all.end * PAGE_BYTES)
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

/// What any reader may skip within a run: a window of the kernel's own readahead.
const SKIPPED_MIN: u64 = 128 << 10;
/// And at most, also of what is on its way: devices deliver it in the time of an access or two.
const SKIPPED_MAX: u64 = 512 << 10;
/// A reader that closes a file of which no less is left was done with it; so many times its last
/// read, besides.
const LEFT_MIN: u64 = 2 << 20;
const LEFT_READS: u64 = 8;
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
