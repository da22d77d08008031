//! A lane: one reader of a file, what is to be read ahead for it, and how far that may go.
//!
//! ```text
//!              main                                   the core's windows end here
//!   ...read----+======= asked =======|- - - pending - - -|
//!              |<------ lead ------->|                        by core's pace
//! ```
//! The core decides which pages; its windows wait here until the pace lets them through, so that a
//! reader that stops or goes elsewhere costs no more than its lead.
//!
//! # Invariants
//! - A piece has at least one page, and its frames are in flight in the core until it is told of
//!   them.

use std::collections::VecDeque;
use std::ops::Range;

use forerun_core::pace::{Pace, Rule};
use forerun_core::units::{FileId, FrameId, Nanos, PageIndex};

/// Pages of one fetch of the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) first: PageIndex,
    pub(crate) frames: Vec<FrameId>,
}

/// Where a reader goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// It came where it is without reading up to there.
    Unknown,
    Forward,
    Back,
}

/// One reader of a file.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) file: FileId,
    /// Whether the core knows of it.
    pub(crate) is_known: bool,
    /// The end of what it has read last, its start where that lay before, or where it went since.
    pub(crate) main: u64,
    pub(crate) course: Course,
    pub(crate) pace: Pace,
    /// It met pages that were not there since the pace was asked.
    pub(crate) late: bool,
    /// The nearest first.
    pub(crate) pending: VecDeque<Piece>,
    /// Found cached around where it reads: nobody needs to be told.
    pub(crate) warm: Range<u64>,
    pub(crate) rate: Rate,
}

/// How fast a program consumes what it reads, while it need not wait: by its processor time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    /// Its time when it was last looked at, and bytes read since.
    since: Option<Nanos>,
    bytes: u64,
    pub(crate) bytes_per_second: u64,
}

impl Rate {
    /// It has read `bytes` more, and has taken `processor` so far.
    pub(crate) fn read(&mut self, bytes: u64, processor: Option<Nanos>) {
        let Some(now) = processor else { return };
        let passed = now.since(*self.since.get_or_insert(now));
        self.bytes += bytes;
        if passed < RATE_OVER {
            return;
        }
        let rate = u128::from(self.bytes) * SECOND / u128::from(passed.0);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        // Half of it is what was before, so that one look does not decide.
        let before = if self.bytes_per_second == 0 { rate } else { self.bytes_per_second };
        self.bytes_per_second = before / 2 + rate / 2;
        (self.since, self.bytes) = (Some(now), 0);
    }
}

impl Piece {
    pub(crate) fn pages(&self) -> Range<PageIndex> {
        self.first..self.first + self.frames.len() as u64
    }

    /// Its part within `pages`, taken out of it; what lies before and behind that.
    pub(crate) fn cut(mut self, pages: &Range<PageIndex>) -> Cut {
        let Range { start, end } = self.pages();
        let from = pages.start.clamp(start, end);
        let to = pages.end.clamp(from, end);
        let behind = self.frames.split_off(index(to - start));
        let within = self.frames.split_off(index(from - start));
        let piece =
            |first, frames: Vec<FrameId>| (!frames.is_empty()).then_some(Self { first, frames });
        Cut {
            before: piece(start, self.frames),
            within: piece(from, within),
            behind: piece(to, behind),
        }
    }
}

/// A piece, cut.
pub(crate) struct Cut {
    pub(crate) before: Option<Piece>,
    pub(crate) within: Option<Piece>,
    pub(crate) behind: Option<Piece>,
}

impl Lane {
    pub(crate) fn new(file: FileId, main: u64, rule: Rule) -> Self {
        Self {
            file,
            is_known: false,
            main,
            course: if main == 0 { Course::Forward } else { Course::Unknown },
            pace: Pace::new(rule),
            late: false,
            pending: VecDeque::new(),
            warm: 0..0,
            rate: Rate::default(),
        }
    }

    /// What is pending, the nearest first, whichever way the reader goes: a lead is as long as what
    /// was asked for without a gap, and what lies behind one who has turned waits.
    pub(crate) fn order(&mut self) {
        let main = self.main;
        self.pending.make_contiguous().sort_by_key(|piece| {
            let Range { start, end } = piece.pages();
            (start * PAGE).saturating_sub(main).max(main.saturating_sub(end * PAGE))
        });
    }

    /// Takes what is pending of `pages` out.
    pub(crate) fn take(&mut self, pages: &Range<PageIndex>, out: &mut Vec<Piece>) {
        let apart = |piece: &Piece| {
            let has = piece.pages();
            has.end <= pages.start || pages.end <= has.start
        };
        if self.pending.iter().all(apart) {
            return;
        }
        for piece in std::mem::take(&mut self.pending) {
            let Cut { before, within, behind } = piece.cut(pages);
            out.extend(within);
            self.pending.extend(before.into_iter().chain(behind));
        }
    }
}

/// The unit of decisions.
pub(crate) const PAGE: u64 = 4096;
/// Processor time over which a rate is taken.
const RATE_OVER: Nanos = Nanos::from_millis(2);
const SECOND: u128 = 1_000_000_000;

/// Pages of a piece fit memory.
pub(crate) fn index(pages: u64) -> usize {
    usize::try_from(pages).expect("no more than the frames")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(first: PageIndex, frames: Range<u32>) -> Piece {
        Piece { first, frames: frames.map(FrameId).collect() }
    }

    #[test]
    fn a_rate_is_that_of_processor_time() {
        let mut rate = Rate::default();
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

    #[test]
    fn a_piece_is_cut_where_it_meets_pages() {
        let part = |first, frames| Some(piece(first, frames));
        #[rustfmt::skip]
        let rows = [ // why        pages    before           within           behind
            ("apart, before",      0..4,    None,            None,            part(10, 0..6)),
            ("apart, behind",      16..20,  part(10, 0..6),  None,            None),
            ("its head",           8..12,   None,            part(10, 0..2),  part(12, 2..6)),
            ("its tail",           14..99,  part(10, 0..4),  part(14, 4..6),  None),
            ("its middle",         11..13,  part(10, 0..1),  part(11, 1..3),  part(13, 3..6)),
            ("all",                10..16,  None,            part(10, 0..6),  None),
            ("nothing, inside",    12..12,  part(10, 0..2),  None,            part(12, 2..6)),
        ];
        for (why, pages, before, within, behind) in rows {
            let cut = piece(10, 0..6).cut(&pages);
            assert_eq!((cut.before, cut.within, cut.behind), (before, within, behind), "{why}");
        }
    }
}
