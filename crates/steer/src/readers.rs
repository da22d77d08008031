//! What observers tell, and who listens: readers of files, by their numbers.
//!
//! ```text
//!   files, maps, told --open, read, seek, close--> drive     reads ahead of them
//!                                             \--> notes     writes down what they did
//! ```
//! # Invariants
//! - A number stands for one reader from `open` or `again` to `close`.
//! - Who listens holds the descriptor of a file from its first reader's `open` to its last one's
//!   `close`, and no longer.

use std::fs::File;
use std::ops::Range;

pub(crate) use forerun_core::planner::CursorId;
use forerun_core::units::Nanos;
use rustix::fs::Stat;

/// Who is told of readers.
pub(crate) trait Readers {
    /// What follows is of the process `pid`, which has taken so much processor time.
    fn process(&mut self, pid: i32, processor: Option<Nanos>);

    /// A program reads `file`, by a descriptor of our own, and is at `main`. `None`: it is not
    /// followed, as there are too many already, or memory is too small for one more.
    fn open(&mut self, now: Nanos, file: File, stat: &Stat, main: u64) -> Option<CursorId>;

    /// One more reader of the file of `lane`, at `main`.
    fn again(&mut self, lane: CursorId, main: u64) -> Option<CursorId>;

    /// The reader of `lane` has the file mapped.
    fn maps(&mut self, lane: CursorId);

    /// The file of `lane`.
    fn file(&self, lane: CursorId) -> Option<&File>;

    /// The reader of `lane` stands at `to` without having read up to there.
    fn seek(&mut self, now: Nanos, lane: CursorId, to: u64);

    /// The reader of `lane` has read `range`; `follows`: where it had stopped before.
    fn read(&mut self, now: Nanos, lane: CursorId, range: &Range<u64>, follows: bool);

    /// A reader of the file of `lane` has read `range`, once, and is gone.
    fn once(&mut self, now: Nanos, lane: CursorId, range: &Range<u64>) {
        if let Some(lane) = self.again(lane, range.start) {
            self.read(now, lane, range, false);
            self.close(now, lane);
        }
    }

    /// The reader of `lane` is gone.
    fn close(&mut self, now: Nanos, lane: CursorId);
}

#[cfg(test)]
pub(crate) mod heard {
    //! A listener for tests: it follows every reader and writes down what it is told.

    use super::*;

    /// What was told of.
    #[derive(Default)]
    pub(crate) struct Heard {
        pub(crate) lanes: u32,
        pub(crate) reads: Vec<(u32, Range<u64>, bool)>,
        pub(crate) closed: Vec<CursorId>,
    }

    impl Readers for Heard {
        fn process(&mut self, _pid: i32, _processor: Option<Nanos>) {}
        fn open(&mut self, _: Nanos, _: File, _: &Stat, _: u64) -> Option<CursorId> {
            None
        }
        fn again(&mut self, _lane: CursorId, _main: u64) -> Option<CursorId> {
            self.lanes += 1;
            Some(CursorId(self.lanes))
        }
        fn maps(&mut self, _lane: CursorId) {}
        fn file(&self, _lane: CursorId) -> Option<&File> {
            None
        }
        fn seek(&mut self, _now: Nanos, _lane: CursorId, _to: u64) {}
        fn read(&mut self, _now: Nanos, lane: CursorId, range: &Range<u64>, follows: bool) {
            self.reads.push((lane.0, range.clone(), follows));
        }
        fn once(&mut self, _now: Nanos, lane: CursorId, range: &Range<u64>) {
            self.reads.push((lane.0, range.clone(), false));
        }
        fn close(&mut self, _now: Nanos, lane: CursorId) {
            self.closed.push(lane);
        }
    }
}
