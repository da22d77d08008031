//! The table of descriptors: what the shim knows of each, by number, in memory of its own.
//!
//! ```text
//!   Unknown --first use: fstat--> Other                  pipes, sockets, empty files, written ones
//!      ^                     `--> Regular{dev, ino} --read--> unread bytes of a run are counted
//!      |                              |
//!      +---- close, dup2 over it -----+
//! ```
//!
//! The table belongs to one process. A child of `fork` starts with an empty one, as the kernel
//! wipes this memory for it. A child of `vfork` has its own descriptors and yet this very memory,
//! until it calls `exec`: it must change nothing here, and is known by its parent being the owner.
//!
//! # Invariants
//! - Entries are atomic words: threads that race on a descriptor, which is the program's mistake,
//!   get a wrong hint and nothing worse.
//! - Descriptors from `FDS` on are not recorded.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use libc::c_int;

use crate::sys::{self, File};

/// See the module.
#[repr(C)]
pub(crate) struct Table {
    /// The process whose descriptors these are; 0 in memory that is new or was wiped.
    owner: AtomicU32,
    /// Beyond the last entry that was ever in use.
    used: AtomicU32,
    entries: [Entry; FDS],
}

/// One descriptor.
#[repr(C)]
pub(crate) struct Entry {
    state: AtomicU32,
    dev: AtomicU64,
    ino: AtomicU64,
    /// Where the last run of reads that was recorded ended, or `NOWHERE`.
    pub(crate) end: AtomicU64,
    /// Bytes read since then.
    pub(crate) unrecorded: AtomicU64,
}

/// What is known of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Unknown,
    Other,
    Regular,
}

impl Table {
    /// The entry of `fd`, if it is in the table.
    #[inline]
    pub(crate) fn entry(&self, fd: c_int) -> Option<&Entry> {
        self.entries.get(usize::try_from(fd).ok()?)
    }

    /// The descriptors from `first` to `last` that may be known.
    pub(crate) fn known(&self, first: u32, last: u32) -> impl Iterator<Item = c_int> {
        let end = last.saturating_add(1).min(self.used.load(Relaxed));
        (first..end).filter_map(|fd| c_int::try_from(fd).ok())
    }

    /// The process that the table belongs to.
    pub(crate) fn owner(&self) -> u32 {
        self.owner.load(Relaxed)
    }

    /// Whether the table is that of the process that runs this, which may then change it.
    pub(crate) fn is_ours(&self) -> bool {
        let (owner, process) = (self.owner(), sys::process());
        if owner == process {
            return true;
        }
        if owner != 0 {
            if owner == sys::parent() {
                return false;
            }
            // A child of `vfork` got here first, in memory just wiped, and left its entries.
            self.entries.iter().take(self.used.load(Relaxed) as usize).for_each(Entry::forget);
        }
        self.owner.store(process, Relaxed);
        true
    }

    /// Sets what is behind `fd`, whose entry is `entry`.
    pub(crate) fn set_file(&self, fd: c_int, entry: &Entry, file: Option<File>) {
        self.used.fetch_max(u32::try_from(fd).map_or(0, |fd| fd + 1), Relaxed);
        let state = if let Some(file) = file {
            entry.dev.store(file.dev, Relaxed);
            entry.ino.store(file.ino, Relaxed);
            entry.end.store(NOWHERE, Relaxed);
            entry.unrecorded.store(0, Relaxed);
            State::Regular
        } else {
            State::Other
        };
        entry.state.store(state as u32, Release);
    }
}

impl Entry {
    #[inline]
    pub(crate) fn state(&self) -> State {
        match self.state.load(Acquire) {
            OTHER => State::Other,
            REGULAR => State::Regular,
            _ => State::Unknown,
        }
    }

    /// The file's device and number there.
    pub(crate) fn file(&self) -> (u64, u64) {
        (self.dev.load(Relaxed), self.ino.load(Relaxed))
    }

    pub(crate) fn forget(&self) {
        self.state.store(State::Unknown as u32, Relaxed);
    }
}

/// The end of no run.
pub(crate) const NOWHERE: u64 = u64::MAX;

const OTHER: u32 = State::Other as u32;
const REGULAR: u32 = State::Regular as u32;

/// Descriptors that are recorded: as many as a process may open unless it asks for more, four
/// times over.
const FDS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// A table as the shim has it: of memory that was never written.
    fn table() -> &'static Table {
        let at = sys::map(-1, size_of::<Table>()).expect("there is memory");
        // SAFETY: a mapping of this size, never unmapped; it is of atomic words.
        unsafe { &*at.cast::<Table>() }
    }

    #[test]
    fn a_table_is_changed_by_its_process_and_by_the_process_that_finds_it_left_behind() {
        let (process, parent) = (sys::process(), sys::parent());
        #[rustfmt::skip]
        let rows = [ // why, owner, is it ours, are its entries kept
            ("new, or wiped after fork", 0, true, true),
            ("of this process", process, true, true),
            ("of the parent: this is a child of vfork", parent, false, true),
            ("of a child of vfork that is gone", u32::MAX, true, false),
        ];
        for (why, owner, is_ours, is_kept) in rows {
            let table = table();
            let entry = table.entry(5).expect("a small number");
            table.set_file(5, entry, None);
            table.owner.store(owner, Relaxed);
            assert_eq!(table.is_ours(), is_ours, "{why}");
            assert_eq!(table.owner() == process, is_ours, "{why}");
            assert_eq!(entry.state() == State::Other, is_kept, "{why}");
        }
    }

    #[test]
    fn only_numbers_that_were_in_use_are_gone_through() {
        let table = table();
        let known = |first, last| table.known(first, last).collect::<Vec<_>>();
        assert_eq!(known(0, u32::MAX), []);
        for fd in [7, 2] {
            table.set_file(fd, table.entry(fd).expect("a small number"), None);
        }
        assert_eq!(known(0, u32::MAX), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(known(3, 5), [3, 4, 5]);
        assert_eq!(known(9, 3), []);
        assert!(table.entry(-1).is_none() && table.entry(c_int::MAX).is_none());
    }
}
