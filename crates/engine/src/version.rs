//! The version of an open file: other programs' writes end it, the cache's own writes move it on.
//!
//! ```text
//!   Current --+--> Changed   the store has another version
//!             +--> Shrunk    the same, and a shorter one
//!             +--> Closed    the cache was closed
//!
//!   own write:  begin ..... moves bytes, and the times ..... end: the version is adopted
//!   comparison:      stat          stat                            stat
//!                    inconclusive: the version counts as unchanged
//! ```
//!
//! # Invariants
//! - A file state never returns to `Current`.
//! - A version is adopted only after the last write in progress has ended, and none ended since it
//!   was queried: it covers them all.
//! - A comparison that overlaps an own write finds only a shorter file: times tell no more. So a
//!   change by another program in that interval goes unnoticed.
//! # Locking
//! One lock, over no call of a store; it may be taken under the state's.

use forerun_io::{
    store::Version,
    sync::{AtomicU8, Mutex, Ordering},
};

/// Whether a file may still be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileState {
    Current,
    Changed,
    Shrunk,
    Closed,
}

/// A file state that changes at most once.
#[derive(Default)]
pub(crate) struct FileStateCell(AtomicU8);

impl FileStateCell {
    pub(crate) fn get(&self) -> FileState {
        const STATES: [FileState; 4] =
            [FileState::Current, FileState::Changed, FileState::Shrunk, FileState::Closed];
        STATES[usize::from(self.0.load(Ordering::Acquire))]
    }

    /// Ends the file unless it has ended; returns whether it was current.
    pub(crate) fn end(&self, file_state: FileState) -> bool {
        let (current, new) = (FileState::Current as u8, file_state as u8);
        let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
        self.0.compare_exchange(current, new, done, seen).is_ok()
    }
}

/// See the module.
pub(crate) struct VersionCell(Mutex<State>);

struct State {
    version: Version,
    /// Own writes in progress.
    writes: u32,
    /// Counts the beginnings and ends of own writes.
    serial: u64,
}

impl VersionCell {
    pub(crate) fn new(version: Version) -> Self {
        Self(Mutex::new(State { version, writes: 0, serial: 0 }))
    }

    /// The version known last.
    pub(crate) fn get(&self) -> Version {
        self.0.lock().version
    }

    /// Compares the result of `query` with the known version.
    pub(crate) fn compare<E>(
        &self,
        query: impl FnOnce() -> Result<Version, E>,
    ) -> Result<FileState, E> {
        let (before, bytes) = {
            let known = self.0.lock();
            (known.serial, known.version.bytes)
        };
        let now = query()?;
        let known = self.0.lock();
        let overlaps = known.writes > 0 || known.serial != before;
        let same_file = (now.device, now.inode) == known.place();
        Ok(if now == known.version {
            FileState::Current
        } else if same_file && now.bytes < bytes.min(known.version.bytes) {
            FileState::Shrunk
        } else if same_file && overlaps {
            FileState::Current
        } else {
            FileState::Changed
        })
    }

    /// An own write is about to begin.
    pub(crate) fn begin_write(&self) {
        let mut known = self.0.lock();
        known.writes += 1;
        known.serial += 1;
    }

    /// As [`VersionCell::begin_write`], of a cut of the file to `bytes`: from now on a store of
    /// that length has not shrunk.
    pub(crate) fn begin_cut(&self, bytes: u64) {
        self.begin_write();
        let mut known = self.0.lock();
        known.version.bytes = known.version.bytes.min(bytes);
    }

    /// An own write has ended: the last one in progress adopts the result of `query`, unless the
    /// store fails to give one.
    pub(crate) fn end_write(&self, query: impl Fn() -> Option<Version>) {
        loop {
            let before = self.0.lock().serial;
            let now = query();
            let mut known = self.0.lock();
            if known.writes == 1 && known.serial != before {
                continue; // Another write ended since the query.
            }
            known.writes -= 1;
            known.serial += 1;
            if let Some(now) = now.filter(|_| known.writes == 0) {
                known.version = now;
            }
            return;
        }
    }
}

impl State {
    fn place(&self) -> (u64, u64) {
        (self.version.device, self.version.inode)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn version(bytes: u64, inode: u64) -> Version {
        Version { bytes, inode, ..Version::default() }
    }

    fn compare(cell: &VersionCell, now: Version) -> FileState {
        cell.compare(|| Ok::<_, ()>(now)).unwrap()
    }

    #[test]
    fn own_writes_move_the_version_and_others_end_it() {
        let cell = VersionCell::new(version(10, 1));
        assert_eq!(compare(&cell, version(10, 1)), FileState::Current);
        assert_eq!(compare(&cell, version(12, 1)), FileState::Changed);
        cell.begin_write();
        assert_eq!(compare(&cell, version(12, 1)), FileState::Current, "it may be the own write");
        assert_eq!(compare(&cell, version(12, 2)), FileState::Changed, "another file");
        assert_eq!(compare(&cell, version(9, 1)), FileState::Shrunk, "no write cuts a file");
        cell.end_write(|| Some(version(12, 1)));
        assert_eq!(compare(&cell, version(12, 1)), FileState::Current);
        assert_eq!(compare(&cell, version(13, 1)), FileState::Changed);
    }

    #[test]
    fn an_own_cut_is_no_shrunk_file_also_within_a_comparison() {
        let cell = VersionCell::new(version(10, 1));
        let compared = cell.compare(|| {
            cell.begin_cut(6);
            Ok::<_, ()>(version(6, 1))
        });
        assert_eq!(compared, Ok(FileState::Current));
        assert_eq!(compare(&cell, version(5, 1)), FileState::Shrunk, "more than was cut");
        cell.end_write(|| Some(version(6, 1)));
        assert_eq!(compare(&cell, version(6, 1)), FileState::Current);
    }

    #[test]
    fn a_write_that_begins_and_ends_within_a_comparison_makes_it_inconclusive() {
        let cell = VersionCell::new(version(10, 1));
        let compared = cell.compare(|| {
            cell.begin_write();
            cell.end_write(|| Some(version(14, 1)));
            Ok::<_, ()>(version(12, 1))
        });
        assert_eq!(compared, Ok(FileState::Current));
    }

    #[test]
    fn the_last_write_adopts_a_version_that_covers_all_of_them() {
        let cell = VersionCell::new(version(10, 1));
        cell.begin_write();
        cell.begin_write();
        let queries = Cell::new(0);
        cell.end_write(|| {
            queries.set(queries.get() + 1);
            if queries.get() == 1 {
                // The other write ends after this query, so the query does not cover it.
                cell.end_write(|| Some(version(20, 1)));
                return Some(version(15, 1));
            }
            Some(version(20, 1))
        });
        assert_eq!((queries.get(), cell.get()), (2, version(20, 1)));
    }

    #[test]
    fn a_store_without_a_version_keeps_the_known_one() {
        let cell = VersionCell::new(version(10, 1));
        cell.begin_write();
        cell.end_write(|| None);
        assert_eq!(cell.get(), version(10, 1));
    }
}
