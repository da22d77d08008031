//! Stream cursors: where the readers of one file stand, and which of them an access continues.
//!
//! ```text
//!   ....|== cursor ==|....        an access that begins at `end` continues forward,
//!       start        end          one that ends at `start` continues backward
//! ```
//! # Invariants
//! - At most `COUNT_MAX` cursors; the one that was used longest ago gives way to a new one.
//! - Where two cursors meet, the one that goes forward continues.

use std::ops::Range;

/// The place of one reader, with what its observer keeps of it.
#[derive(Debug)]
pub(crate) struct Cursor<T> {
    /// The next access ends here if the reader goes backward.
    pub(crate) start: u64,
    /// The next access begins here if the reader goes forward.
    pub(crate) end: u64,
    /// When the reader was seen last, in a unit of the observer.
    pub(crate) used: u64,
    pub(crate) state: T,
}

/// How an access continues from a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Continuation {
    Forward,
    Backward,
}

/// The cursors of one file, or of one mapping of it.
#[derive(Debug)]
pub(crate) struct Cursors<T> {
    rows: Vec<Cursor<T>>,
}

impl<T> Cursors<T> {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Cursor<T>> {
        self.rows.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Cursor<T>> {
        self.rows.iter_mut()
    }

    /// The cursor from which an access to `range` continues.
    pub(crate) fn continued_by(
        &mut self,
        range: &Range<u64>,
    ) -> Option<(&mut Cursor<T>, Continuation)> {
        assert!(range.start <= range.end, "an access has its start before its end");
        let forward = self.rows.iter().position(|row| row.end == range.start);
        let backward = || self.rows.iter().position(|row| row.start == range.end);
        let found = forward.map(|at| (at, Continuation::Forward));
        let (at, how) = found.or_else(|| Some((backward()?, Continuation::Backward)))?;
        Some((&mut self.rows[at], how))
    }

    /// Adds `cursor`; the one that gives way to it.
    pub(crate) fn add(&mut self, cursor: Cursor<T>) -> Option<Cursor<T>> {
        assert!(cursor.start <= cursor.end, "a cursor has its start before its end");
        let gone = if self.rows.len() == COUNT_MAX { self.remove_oldest() } else { None };
        self.rows.push(cursor);
        assert!(self.rows.len() <= COUNT_MAX, "more cursors than are allowed");
        gone
    }

    /// When the cursor was used that was used longest ago.
    pub(crate) fn oldest_use(&self) -> Option<u64> {
        self.rows.iter().map(|row| row.used).min()
    }

    /// Removes the cursor that was used longest ago.
    pub(crate) fn remove_oldest(&mut self) -> Option<Cursor<T>> {
        let oldest = (0..self.rows.len()).min_by_key(|&at| self.rows[at].used)?;
        Some(self.rows.swap_remove(oldest))
    }

    /// Moves the cursors from `other` here that end within `range`, as far as there is room.
    pub(crate) fn take_from(&mut self, other: &mut Self, range: &Range<u64>) {
        let room = COUNT_MAX - self.rows.len();
        let within = other.rows.extract_if(.., |row| range.contains(&row.end));
        self.rows.extend(within.take(room));
        assert!(self.rows.len() <= COUNT_MAX, "more cursors than are allowed");
    }
}

/// Cursors of one file or mapping.
pub(crate) const COUNT_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(start: u64, end: u64, used: u64) -> Cursor<()> {
        Cursor { start, end, used, state: () }
    }

    #[test]
    fn an_access_continues_forward_before_it_continues_backward() {
        let mut cursors = Cursors::new();
        assert!(cursors.add(cursor(50, 60, 1)).is_none());
        assert!(cursors.add(cursor(30, 40, 2)).is_none());
        #[rustfmt::skip]
        let rows = [
            ("behind the first",       60..70, Some((50, Continuation::Forward))),
            ("before the second",      20..30, Some((30, Continuation::Backward))),
            ("between both",           40..50, Some((30, Continuation::Forward))),
            ("elsewhere",              41..50, Some((50, Continuation::Backward))),
            ("nowhere",                70..80, None),
        ];
        for (why, range, expected) in rows {
            let found = cursors.continued_by(&range).map(|(row, how)| (row.start, how));
            assert_eq!(found, expected, "{why}");
        }
    }

    #[test]
    fn the_cursor_that_was_used_longest_ago_gives_way() {
        let mut cursors = Cursors::new();
        for at in 0..COUNT_MAX as u64 {
            assert!(cursors.add(cursor(at * 100, at * 100 + 10, 1000 - at)).is_none());
        }
        let gone = cursors.add(cursor(7, 8, 2000)).unwrap();
        assert_eq!((gone.used, cursors.len()), (1001 - COUNT_MAX as u64, COUNT_MAX));
        assert_eq!(cursors.oldest_use(), Some(gone.used + 1));
        let mut other = Cursors::new();
        other.take_from(&mut cursors, &(0..211));
        assert_eq!((other.len(), cursors.len()), (4, COUNT_MAX - 4));
    }
}
