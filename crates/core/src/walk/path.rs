//! The way from one entry to another in one order, and how far it was followed in vain.
//!
//! ```text
//!   from --used--used--passed by--used--| not used: the horizon
//!                                       |  to: beyond it, not looked for again
//! ```
//! # Invariants
//! - A horizon holds for its order until its entry is used, the walk goes on, or a listing goes.

use super::directories::{Directories, Level};
use super::habits::Habits;
use super::tree::Chain;
use super::{EntryKind, Spot};

/// The entries between two, in one order.
pub(super) struct Path {
    pub(super) from: Spot,
    pub(super) to: Spot,
    /// What was used as deep as this does not count.
    pub(super) level: Level,
    pub(super) order: usize,
    /// With those in directories.
    pub(super) enters: bool,
    pub(super) reach: Reach,
    /// Entries that are looked at, at most.
    pub(super) examined_max: usize,
}

/// What may lie between two entries, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// Entries that ought to have been used.
    pub(super) unused: usize,
    /// Files of classes that are never used.
    pub(super) passed: usize,
}

impl Reach {
    /// Of two that follow each other.
    pub(super) const NEXT: Self = Self::near(0);

    /// As of two that follow each other, but for so many `unused` entries.
    pub(super) const fn near(unused: usize) -> Self {
        Self { unused, passed: PASSED_FILES_MAX }
    }
}

/// The entry at which paths from a position end, wherever they lead.
#[derive(Debug)]
pub(super) struct Horizon {
    end: Spot,
    /// Whether its use opens the way.
    is_unused: bool,
    order: usize,
    level: Level,
    reach: Reach,
    /// Of the listings in which it was met.
    version: u64,
}

impl Path {
    /// Whether it is there, and within its reach; where not, the entry that it ended at. Adds the
    /// entries that it looks at to `examined`.
    pub(super) fn follow(
        &self,
        directories: &Directories,
        habits: &Habits,
        examined: &mut u64,
    ) -> (bool, Option<Horizon>) {
        let (mut at, mut unused, mut passed) = (self.from, 0, 0);
        for _ in 0..self.examined_max {
            *examined += 1;
            let Some(next) = directories.next(self.order, at, self.enters, None) else {
                return (false, None);
            };
            at = next;
            if at == self.to {
                return (true, None);
            }
            let Some(row) = directories.row(at) else { return (false, None) };
            if row.used >= self.level {
                continue;
            }
            if habits.expects(row.class) {
                unused += 1;
            } else if row.kind == EntryKind::File {
                passed += 1;
            }
            if unused > self.reach.unused || passed > self.reach.passed {
                return (false, Some(self.horizon(directories, at, true)));
            }
        }
        (false, Some(self.horizon(directories, at, false)))
    }

    fn horizon(&self, directories: &Directories, end: Spot, is_unused: bool) -> Horizon {
        let &Self { order, level, reach, .. } = self;
        Horizon { end, is_unused, order, level, reach, version: directories.version() }
    }
}

impl Horizon {
    /// Whether `path`, from the same position, leads beyond it.
    pub(super) fn is_beyond(&self, directories: &Directories, path: &Path) -> bool {
        let is_of = self.order == path.order
            && self.reach == path.reach
            && self.level <= path.level
            && self.version == directories.version();
        let is_open = || {
            let used = directories.row(self.end).map_or(path.level, |row| row.used);
            self.is_unused && used >= path.level
        };
        is_of
            && self.end != path.to
            && !is_open()
            && !directories.is_before(path.order, path.to, &Chain::new(directories, self.end))
    }
}

/// Files of a class that is never used which may lie between two that are.
const PASSED_FILES_MAX: usize = 16;
