//! What a program does with the entries that it meets: how deep it uses those of a kind, which
//! classes it passes over, and whether it enters directories.
//!
//! # Invariants
//! - An entry is requested no deeper than the last ones of its kind were used.
//! - A class that the program passed over three times, and has not used since, is not requested.

use alloc::collections::VecDeque;

use super::directories::{Directories, Level, Row};
use super::{EntryKind, Spot};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    files: VecDeque<Spot>,
    directories: VecDeque<Spot>,
    others: VecDeque<Spot>,
    /// Classes of which an entry was used.
    used: [u64; 4],
    /// Entries of each class that were passed over since one was used.
    passed: [u8; 256],
    /// Whether the program goes on in the directories that it meets.
    pub(super) enters: bool,
}

/// How deep entries of each kind are to be requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels {
    file: Level,
    directory: Level,
    other: Level,
}

impl Levels {
    fn of(self, kind: EntryKind) -> Level {
        match kind {
            EntryKind::File => self.file,
            EntryKind::Directory => self.directory,
            EntryKind::Other => self.other,
        }
    }
}

impl Default for Habits {
    fn default() -> Self {
        let [files, directories, others] = [const { VecDeque::new() }; 3];
        Self { files, directories, others, used: [0; 4], passed: [0; 256], enters: true }
    }
}

impl Habits {
    /// The program used the entry at `spot`.
    pub(super) fn touch(&mut self, spot: Spot, row: &Row) {
        let recent = match row.kind {
            EntryKind::File => &mut self.files,
            EntryKind::Directory => &mut self.directories,
            EntryKind::Other => &mut self.others,
        };
        if !recent.contains(&spot) {
            if recent.len() == RECENT_MAX {
                recent.pop_front();
            }
            recent.push_back(spot);
        }
        self.used[usize::from(row.class / 64)] |= 1 << (row.class % 64);
        self.passed[usize::from(row.class)] = 0;
    }

    /// The program went on without using an entry of `class`.
    pub(super) fn pass(&mut self, class: u8) {
        let count = &mut self.passed[usize::from(class)];
        *count = count.saturating_add(1);
    }

    /// Whether an entry of this class ought to have been used.
    pub(super) fn expects(&self, class: u8) -> bool {
        self.used[usize::from(class / 64)] >> (class % 64) & 1 == 1 && !self.skips(class)
    }

    fn skips(&self, class: u8) -> bool {
        self.passed[usize::from(class)] >= PASSED_MAX
    }

    /// How deep the last entries were used.
    pub(super) fn wanted(&self, directories: &Directories, sees_all: bool) -> Levels {
        // A poll does not see the reads of what was prefetched: those entries count as used as deep
        // as they were requested.
        let level = |spot: &Spot| match directories.row(*spot) {
            Some(row) if sees_all => row.used,
            Some(row) => row.used.max(row.requested),
            None => Level::Nothing,
        };
        let deepest = |recent: &VecDeque<Spot>| recent.iter().map(level).max().unwrap_or_default();
        Levels {
            file: deepest(&self.files),
            directory: deepest(&self.directories).min(Level::Head),
            other: deepest(&self.others).min(Level::Inode),
        }
    }

    /// How deep the entry of `row` is to be requested, where the last ones give `wanted`.
    pub(super) fn wants(&self, row: &Row, wanted: Levels) -> Level {
        if self.skips(row.class) { Level::Nothing } else { wanted.of(row.kind) }
    }
}

/// Entries of a kind that are looked back at.
const RECENT_MAX: usize = 8;
/// Entries of a class that are passed over until it is skipped.
const PASSED_MAX: u8 = 3;
