//! Strides: readers that take a piece of every so many pages.
//!
//! ```text
//!   file   |==......|==......|==......|==......|      == piece
//!          |<------>| step            ^ third piece: the step came again
//! ```
//! [`Runs`] follows one reader through runs of touched pages. Once the step between two starts came
//! again (twice for what may be random reads), the next pieces are prefetched. What a stream brings
//! is noted by the stream's name. A miss that no stream expects belongs to the nearest run before
//! it: [`Recent`] keeps the last few runs of a file, so streams that take turns on one handle do
//! not mix as long as each stays in a part of the file of its own.
//!
//! Then there are two ways ([`Way`]). *Pieces*: each is a window of its own. *Through*: the gaps
//! are fetched too, and discarded as they arrive. The cheaper one by what is known of the device
//! is taken:
//!
//! ```text
//!   through              step / R
//!   pieces, seek-bound   piece / R + T_a     parallel   max(piece / R, T_a / depth)
//! ```
//!
//! # Invariants
//! - Following a touch is O(1); finding the run before a miss looks at `RECENT_MAX` rows at most.
//! # Sources
//! This project's own. Two equal steps as evidence: Baer and Chen, "An effective on-chip preloading
//! scheme to reduce data access penalty" (1991).

use alloc::vec::Vec;

use crate::device::DeviceKind;
use crate::device::estimate::DeviceProfile;
use crate::readahead::StreamId;
use crate::units::PageIndex;

/// A reader's current run of touched pages, and how it lies to the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Runs {
    pub(super) start: PageIndex,
    /// Pages of the run so far.
    count: u64,
    /// From the start of the run before; 0: there was none.
    step: u64,
    /// Pages of the longest run before, of this step.
    piece: u64,
    /// How often the step came again.
    repeats: u32,
    /// Whether it went back: threads that share a stream each take steps of their own.
    back: bool,
}

/// A confirmed stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stride {
    /// Where a piece begins.
    pub(super) origin: PageIndex,
    /// Pages from the start of a piece to that of the next.
    pub(super) step: u64,
    /// Pages of a piece; fewer than the step.
    pub(super) piece: u64,
    /// Pieces that were seen.
    pub(super) seen: u32,
}

/// How the pieces of a stride are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Each by itself.
    Pieces,
    /// With the gaps.
    Through,
}

impl Runs {
    /// A first run.
    pub(super) fn new(first: PageIndex, count: u32) -> Self {
        Self { start: first, count: count.into(), step: 0, piece: 0, repeats: 0, back: false }
    }

    /// The page after the run.
    pub(super) fn end(&self) -> PageIndex {
        self.start + self.count
    }

    /// Pages of the run so far.
    pub(super) fn pages(&self) -> u64 {
        self.count
    }

    /// `count` pages from `first` on are touched.
    pub(super) fn touch(&mut self, first: PageIndex, count: u32) {
        let end = first + u64::from(count);
        if first < self.start {
            *self = Self { back: true, ..Self::new(first, count) };
        } else if first <= self.end() || (self.repeats > 0 && first - self.start < self.step) {
            self.count = self.count.max(end - self.start);
            if self.step > 0 && self.count >= self.step {
                // There is no gap.
                let (count, back) = (self.count, self.back);
                *self = Self { count, back, ..Self::new(self.start, 0) };
            }
        } else {
            let step = first - self.start;
            let again = step == self.step;
            let piece = if again { self.piece.max(self.count) } else { self.count };
            let repeats = if again { self.repeats.saturating_add(1) } else { 0 };
            *self =
                Self { start: first, count: count.into(), step, piece, repeats, back: self.back };
        }
    }

    /// The stride, once it is sure enough for a file of `file_pages`.
    pub(super) fn stride(&self, file_pages: u64) -> Option<Stride> {
        let piece = self.piece.max(self.count);
        // Not by the run that goes on: what lies in it may have holes.
        let short = self.piece < SURE_PAGES;
        let enough = if file_pages < SURE_ODDS || short { 2 } else { 1 };
        // One of several readers of equal parts goes on where a stride's next piece begins.
        let ends = self.count <= PIECES_ALIKE * self.piece;
        (!self.back && ends && self.repeats >= enough && piece < self.step).then_some(Stride {
            origin: self.start,
            step: self.step,
            piece,
            seen: self.repeats.saturating_add(2),
        })
    }
}

impl Stride {
    /// The start of the last piece that begins at `page` or before, or of the file's first one.
    pub(super) fn piece_at(&self, page: PageIndex) -> PageIndex {
        if page >= self.origin {
            page - (page - self.origin) % self.step
        } else {
            let back = (self.origin - page).div_ceil(self.step) * self.step;
            self.origin.checked_sub(back).unwrap_or(self.origin % self.step)
        }
    }

    /// The start of the first piece of which some is at `page` or after.
    pub(super) fn piece_from(&self, page: PageIndex) -> PageIndex {
        let at = self.piece_at(page);
        if page < at + self.piece { at } else { at + self.step }
    }

    /// Whether `page` belongs to a piece.
    pub(super) fn holds(&self, page: PageIndex) -> bool {
        let at = self.piece_at(page);
        at <= page && page < at + self.piece
    }

    /// The cheaper way on a device of `facts`, whose rate is `pages_per_second` at least.
    pub(super) fn way(&self, facts: DeviceProfile, pages_per_second: u64) -> Way {
        let nanos = |pages: u64| {
            let nanos = u128::from(pages) * 1_000_000_000 / u128::from(pages_per_second.max(1));
            u64::try_from(nanos).unwrap_or(u64::MAX)
        };
        let (through, piece, access) = (nanos(self.step), nanos(self.piece), facts.access.0);
        let pieces = match facts.kind {
            DeviceKind::SeekBound => piece.saturating_add(access),
            DeviceKind::Parallel => piece.max(access / u64::from(facts.depth.max(QUEUED))),
        };
        if pieces < through { Way::Pieces } else { Way::Through }
    }
}

/// The last runs of a file that began at a miss.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    rows: Vec<Row>,
    /// The row that is given up next, once all are in use.
    oldest: usize,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    runs: Runs,
    /// The stream that goes on from there: it knows better.
    stream: Option<StreamId>,
}

/// What a miss goes on from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    at: usize,
    pub(super) runs: Runs,
    pub(super) stream: Option<StreamId>,
}

impl Recent {
    /// The run nearest before `page`.
    pub(super) fn before(&self, page: PageIndex) -> Option<Before> {
        let rows = self.rows.iter().enumerate().filter(|(_, row)| row.runs.start <= page);
        let (at, row) = rows.max_by_key(|(_, row)| row.runs.start)?;
        Some(Before { at, runs: row.runs, stream: row.stream })
    }

    /// The run of `before` is `runs` now, of `stream` if there is one.
    pub(super) fn renew(&mut self, before: Before, runs: Runs, stream: Option<StreamId>) {
        self.rows[before.at] = Row { runs, stream };
    }

    /// A run that goes on from no other.
    pub(super) fn add(&mut self, runs: Runs, stream: Option<StreamId>) {
        let row = Row { runs, stream };
        if self.rows.len() < RECENT_MAX {
            self.rows.push(row);
        } else {
            self.rows[self.oldest] = row;
            self.oldest = (self.oldest + 1) % RECENT_MAX;
        }
    }

    /// `stream` came to `runs`.
    pub(super) fn moved(&mut self, stream: StreamId, runs: Runs) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.stream == Some(stream)) {
            row.runs = runs;
        }
    }
}

/// The longest piece of a stride is at most so many times as long as those before it.
const PIECES_ALIKE: u64 = 2;
/// Small requests that a parallel device serves at a time, at least: a usual queue.
const QUEUED: u32 = 32;
/// Runs that are remembered of a file.
const RECENT_MAX: usize = 32;
/// A run of fewer pages may be a random read.
const SURE_PAGES: u64 = 8;
/// In a file of fewer pages, random reads meet the step of one of the recent runs too often.
const SURE_ODDS: u64 = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    /// Why, what is touched, the origin, step and piece that are found.
    type Case<'a> = (&'a str, &'a [(u64, u32)], Option<(u64, u64, u64)>);

    const LARGE: u64 = 1 << 20;

    fn after(touches: &[(u64, u32)]) -> Runs {
        let mut runs = Runs::new(touches[0].0, touches[0].1);
        touches[1..].iter().for_each(|&(first, count)| runs.touch(first, count));
        runs
    }

    #[test]
    fn a_stride_is_a_step_that_came_again() {
        #[rustfmt::skip]
        let rows: [Case<'_>; 10] = [
            ("one step", &[(0, 16), (64, 16)], None),
            ("two", &[(0, 16), (64, 16), (128, 1)], Some((128, 64, 16))),
            ("two, unlike", &[(0, 16), (64, 16), (129, 16)], None),
            ("two, of single pages", &[(0, 1), (64, 1), (128, 1)], None),
            ("three of them", &[(0, 1), (64, 1), (128, 1), (192, 1)], Some((192, 64, 1))),
            ("page by page", &[(0, 8), (8, 8), (64, 16), (128, 1)], Some((128, 64, 16))),
            ("the longest piece", &[(0, 8), (64, 16), (128, 1)], Some((128, 64, 16))),
            ("a step back", &[(0, 16), (64, 16), (128, 16), (32, 16)], None),
            ("no gap is left", &[(0, 16), (64, 16), (128, 64)], None),
            ("the last goes on", &[(0, 16), (64, 16), (128, 33)], None),
        ];
        for (why, touches, expected) in rows {
            let found = after(touches).stride(LARGE);
            let found = found.map(|found| (found.origin, found.step, found.piece));
            assert_eq!(found, expected, "{why}");
        }
        let small = after(&[(0, 16), (64, 16), (128, 1)]).stride(SURE_ODDS - 1);
        assert_eq!(small, None, "a small file needs three");
    }

    #[test]
    fn pieces_lie_a_step_apart_on_both_sides_of_the_origin() {
        for (step, piece) in (2..9_u64).flat_map(|step| (1..step).map(move |piece| (step, piece))) {
            let origin = 4 * step + 3;
            let stride = Stride { origin, step, piece, seen: 3 };
            for page in 3..8 * step {
                let inside = (page + step - 3) % step < piece;
                assert_eq!(stride.holds(page), inside, "{stride:?} {page}");
                let from = stride.piece_from(page);
                assert!(page < from + piece && from < page + step, "{stride:?} {page}");
                assert_eq!((from + step - 3) % step, 0, "{stride:?} {page}");
            }
            for page in 0..3 % step {
                let found = (stride.holds(page), stride.piece_from(page));
                assert_eq!(found, (false, 3 % step), "{stride:?} {page}: the first of all");
            }
        }
    }

    #[test]
    fn a_miss_belongs_to_the_nearest_run_before_it_and_old_runs_go() {
        let mut recent = Recent::default();
        assert!(recent.before(1).is_none());
        let count = RECENT_MAX as u64 + 1;
        for at in 0..count {
            recent.add(Runs::new(100 * at, 1), None);
        }
        let before = |page| recent.before(page).map(|before| before.runs.start);
        assert_eq!(
            [before(99), before(100), before(199), before(205)],
            [None, Some(100), Some(100), Some(200)]
        );
    }
}
