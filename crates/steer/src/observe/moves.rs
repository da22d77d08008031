//! Moves: calls that move the bytes of a file to another (`copy_file_range`, `sendfile`), while
//! they last.
//!
//! ```text
//!   source        from.start          at              from.end
//!                     |== moved ======|.................|     the position moves at the end alone
//!   destination     to.1 ============ its end                 it grows as the call goes on
//! ```
//! One call may take a whole file, and until it returns neither positions nor counts tell of it.
//! What shows is the destination: the kernel appends to it piece by piece.
//!
//! # Invariants
//! - Progress never goes back, nor beyond what the call was asked for, and is taken in by at most
//!   [`LOOKED_AT_MAX`] at a time: what is cached of it is counted page by page.
//! - A destination that does not grow (a pipe, one that was allocated before, a server that copies
//!   by itself) tells nothing; what is told has to be cached, which the observers check.
//! # Sources
//! Linux `fs/splice.c` (`splice_direct_to_actor`), `fs/read_write.c` (`vfs_copy_file_range`,
//! `do_sendfile`): both update positions and counts at their end.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, StatxFlags, statx};

use super::access::{AccessSink, CursorId, is_cached};
use crate::kernel::Stat;

/// A call that has not returned, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// What the call was asked for.
    from: Range<u64>,
    /// The descriptor that the bytes go to, and where in its file.
    to: (i32, u64),
    /// How far the call is known to be.
    at: u64,
}

impl Move {
    /// `None` for a call of no bytes.
    pub(crate) fn new(start: u64, bytes: u64, to: i32, to_offset: u64) -> Option<Self> {
        let from = start..start.saturating_add(bytes.min(MOVE_BYTES_MAX));
        (!from.is_empty()).then_some(Self { at: start, from, to: (to, to_offset) })
    }

    /// The same call, after `before`: what that has moved and was not known to have is counted in.
    pub(crate) fn after(mut self, before: &Self) -> Self {
        if before.from.start < self.from.start && self.from.start <= before.from.end {
            self.at = before.at.min(self.from.start);
        }
        self
    }

    /// The same call, known by another observer to be at `to`.
    pub(crate) fn known_to(mut self, to: u64) -> Self {
        self.at = to.clamp(self.at, self.from.end);
        self
    }

    /// Where the call began.
    pub(crate) fn start(&self) -> u64 {
        self.from.start
    }

    /// How far it is known to be.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// How far it is by now, by the size of its destination, as far as one poll takes that in.
    pub(crate) fn reached(&self, process: BorrowedFd<'_>) -> u64 {
        let (number, offset) = self.to;
        // What is known of it here: a file system that would have to be asked may not answer.
        let how = AtFlags::STATX_DONT_SYNC;
        let stat = statx(process, format!("fd/{number}"), how, StatxFlags::BASIC_STATS);
        let Ok(stat) = stat.map(Stat::from) else { return self.at };
        if stat.kind() != FileType::RegularFile {
            return self.at;
        }
        self.reached_by(stat.st_size, offset)
    }

    fn reached_by(&self, to_bytes: u64, to_offset: u64) -> u64 {
        let moved = to_bytes.saturating_sub(to_offset);
        let most = self.at.saturating_add(LOOKED_AT_MAX).min(self.from.end);
        self.from.start.saturating_add(moved).clamp(self.at, most)
    }

    /// It is said to be at `to`, with the reader of `cursor`: so it is if what it has moved on the
    /// way is cached. These bytes.
    pub(crate) fn advance(
        &mut self,
        to: u64,
        cursor: CursorId,
        sink: &dyn AccessSink,
    ) -> Option<Range<u64>> {
        let moved = self.at..to;
        if moved.is_empty() || is_cached(cursor, &moved, sink) == Some(false) {
            return None;
        }
        assert!(to <= self.from.end, "a move goes on to its end at most");
        assert!(moved.end - moved.start <= LOOKED_AT_MAX, "a poll takes in a part of a long move");
        self.at = to;
        Some(moved)
    }

    /// What of `range`, which was read by the time that the call returned, was not known yet.
    pub(crate) fn beyond(&self, range: &Range<u64>) -> [Range<u64>; 2] {
        let known = self.from.start..self.at;
        if known.is_empty() || known.start < range.start || known.end > range.end {
            return [range.clone(), 0..0];
        }
        [range.start..known.start, known.end..range.end]
    }
}

/// The kernel moves whole pages in one call, of 64 KiB at most, and so many or little more.
const MOVE_BYTES_MAX: u64 = i32::MAX as u64 & !0xffff;
/// What a poll takes in of one call. A copy within memory that is faster than this in a poll
/// interval is known to be where it is some polls later.
const LOOKED_AT_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::access::recording::RecordingSink;

    /// Nothing is known of what is cached.
    fn advance(it: &mut Move, to: u64) {
        let from = it.at();
        let moved = it.advance(to, CursorId(0), &RecordingSink::default());
        assert_eq!(moved, (from < to).then_some(from..to));
    }

    #[test]
    fn a_move_is_as_far_as_its_destination_has_grown() {
        #[rustfmt::skip]
        let rows = [ // why, bytes, to offset, known at, size of the destination, reached
            ("nothing yet",                       1000,   0, 100,     0,  100),
            ("a part",                            1000,   0, 100,   300,  400),
            ("behind what was there",             1000, 200, 100,   300,  200),
            ("all of it",                         1000,   0, 100,  1000, 1100),
            ("the destination was larger before", 1000,   0, 100,  5000, 1100),
            ("it was cut meanwhile",              1000,   0, 400,   100,  400),
            ("it ends before the place",          1000, 500, 100,   300,  100),
            ("as much as there is",           u64::MAX,   0, 100,   300,  400),
        ];
        for (why, bytes, to_offset, at, size, expected) in rows {
            let mut it = Move::new(100, bytes, 5, to_offset).expect("it has bytes");
            advance(&mut it, at);
            assert_eq!(it.reached_by(size, to_offset), expected, "{why}");
        }
        assert_eq!(Move::new(100, 0, 5, 0), None, "a call of no bytes");
    }

    #[test]
    fn a_poll_takes_in_a_part_of_a_long_move() {
        let mut it = Move::new(100, u64::MAX, 5, 0).expect("it has bytes");
        let mut polls = 0;
        while it.at() < it.from.end {
            let to = it.reached_by(u64::MAX, 0);
            assert!((1..=LOOKED_AT_MAX).contains(&(to - it.at())), "{to}");
            advance(&mut it, to);
            polls += 1;
        }
        assert_eq!(polls, MOVE_BYTES_MAX.div_ceil(LOOKED_AT_MAX), "all of it in the end");
    }

    #[test]
    fn a_call_after_another_has_what_was_not_known_of_that() {
        let call = |start| Move::new(start, 100, 5, start).expect("it has bytes");
        let mut before = call(100);
        advance(&mut before, 150);
        #[rustfmt::skip]
        let rows = [ // why, where it begins, known at
            ("it goes on",         200, 150),
            ("after a part of it", 170, 150),
            ("elsewhere",          300, 300),
            ("before it",           50,  50),
        ];
        for (why, start, expected) in rows {
            let next = call(start).after(&before);
            assert_eq!((next.at(), next.reached_by(start, start)), (expected, start), "{why}");
        }
    }

    #[test]
    fn what_a_call_has_read_at_its_end_is_told_once() {
        let mut it = Move::new(100, 1000, 5, 0).expect("it has bytes");
        assert_eq!(it.beyond(&(100..1100)), [100..1100, 0..0], "nothing was known");
        advance(&mut it, 400);
        assert_eq!(it.beyond(&(100..1100)), [100..100, 400..1100], "the rest");
        assert_eq!(it.beyond(&(40..1100)), [40..100, 400..1100], "and what was read before");
        assert_eq!(it.beyond(&(100..300)), [100..300, 0..0], "less than was known: other reads");
    }
}
