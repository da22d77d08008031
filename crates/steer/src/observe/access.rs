//! Accesses: what observers report of the readers in a program, and the trait that receives it.
//!
//! ```text
//!   open_files, mappings, calls --open, seek, read, close--> prefetch      prefetches for them
//!   blocked                     --entry------------------/
//!                                                       \--> explain       records them
//! ```
//! # Invariants
//! - A cursor id stands for one reader from `open` or `open_again` to `close`.
//! - The sink holds the descriptor of a file from its first reader's `open` on, no longer than to
//!   its last reader's `close`.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};

use crate::kernel::{self, Residency, Stat};
use crate::open::entries::View;
use crate::open::{HANDLE, Refusal};
pub(crate) use forerun_core::planner::CursorId;
use forerun_core::units::Nanos;
use rustix::fs::{Mode, OFlags, openat};

/// Receives the accesses of readers.
pub(crate) trait AccessSink {
    /// A poll begins.
    fn polled(&mut self, _now: Nanos) {}

    /// The reports that follow are of the process `pid`, which has used so much processor time.
    fn process(&mut self, pid: i32, processor: Option<Nanos>);

    /// A program reads `file`, a descriptor of our own, from `position` on. `None` where the reader
    /// is not followed: there are too many, or memory is too small for one more.
    fn open(&mut self, now: Nanos, file: File, stat: &Stat, position: u64) -> Option<CursorId>;

    /// One more reader of the file of `cursor`, at `position`.
    fn open_again(&mut self, cursor: CursorId, position: u64) -> Option<CursorId>;

    /// The reader of `cursor` has the file mapped.
    fn mapped(&mut self, cursor: CursorId);

    /// The file of `cursor`.
    fn file(&self, cursor: CursorId) -> Option<&File>;

    /// The reader of `cursor` is at `position` and did not read up to there.
    fn seek(&mut self, now: Nanos, cursor: CursorId, position: u64);

    /// The reader of `cursor` has read `range`; `follows` if that begins where it stood before.
    fn read(&mut self, now: Nanos, cursor: CursorId, range: &Range<u64>, follows: bool);

    /// A reader of the file of `cursor` has read `range`, once, and does not go on.
    fn read_once(&mut self, now: Nanos, cursor: CursorId, range: &Range<u64>) {
        if let Some(cursor) = self.open_again(cursor, range.start) {
            self.read(now, cursor, range, false);
            self.close(now, cursor);
        }
    }

    /// A file that a program reads is not opened.
    fn refused(&mut self, _why: Refusal) {}

    /// The reader of `cursor` is gone.
    fn close(&mut self, now: Nanos, cursor: CursorId);

    /// A program uses an entry of a directory tree.
    fn entry(&mut self, _now: Nanos, _access: &EntryAccess<'_>) {}
}

/// The use of an entry by a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryAccess<'a> {
    pub(crate) pid: i32,
    pub(crate) thread: i32,
    /// The folder of the process in `/proc`.
    pub(crate) process: BorrowedFd<'a>,
    /// The full path in the root of the process, without `.`, `..` and repeated slashes. A hint:
    /// links on the way are not resolved, and it may stand for another entry by now.
    pub(crate) path: &'a [u8],
    pub(crate) call: EntryCall,
    /// The file, where it is read; not of a program that is started.
    pub(crate) read: Option<FileRead>,
}

impl EntryAccess<'_> {
    /// Whether the thread is there and sees all that `own` sees, by no fewer rights. Threads that
    /// share its memory may have written the path, so it is asked now, after the path was read.
    pub(crate) fn has_view(&self, own: &View) -> bool {
        let found = self.with_thread(View::of).and_then(Result::ok);
        found.is_some_and(|found| found.covers(own))
    }

    /// What `act` returns for the folder of the thread in `/proc`, which may have another root or
    /// other rights than the first thread; none where it has ended.
    pub(crate) fn with_thread<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        if self.thread == self.pid {
            return Some(act(self.process));
        }
        let folder = format!("task/{}", self.thread);
        let thread = openat(self.process, folder, HANDLE | OFlags::DIRECTORY, Mode::empty());
        Some(act(thread.ok()?.as_fd()))
    }
}

/// A read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileRead {
    /// The size of the file.
    pub(crate) file_bytes: u64,
    /// Where it begins, and how many bytes there are from there on, of those that were asked for:
    /// none where that is not known.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Whether it moves the position of its descriptor.
    pub(crate) moves: bool,
}

/// What a program does with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryCall {
    /// Asks for the inode's facts.
    Stat,
    /// Opens it.
    Open,
    /// Lists the directory.
    List,
    /// Reads or maps bytes.
    Read {
        /// Whether up to the end of the file.
        to_end: bool,
    },
}

/// Whether the pages of `range` are cached, as they must be right after a read; some may have been
/// evicted again. `None`: the kernel does not tell.
pub(crate) fn is_cached(
    cursor: CursorId,
    range: &Range<u64>,
    sink: &dyn AccessSink,
) -> Option<bool> {
    match kernel::cached(sink.file(cursor)?, range) {
        Ok(Residency::Pages(count)) => {
            let pages = kernel::pages(range);
            Some(count + pages / EVICTED_ONE_IN >= pages)
        }
        Ok(Residency::Unknown) | Err(_) => None,
    }
}

/// Whether many pages of `range` were written lately, as they are right after a write has moved a
/// position there; not where the kernel does not tell.
pub(crate) fn is_written(cursor: CursorId, range: &Range<u64>, sink: &dyn AccessSink) -> bool {
    let written = sink.file(cursor).and_then(|file| kernel::written(file, range)).unwrap_or(0);
    written > kernel::pages(range) / SYNCED_ONE_IN
}

/// Of pages that were just written, all but one in so many may be on the device.
const SYNCED_ONE_IN: u64 = 4;
/// Of pages that were just read, one in so many may have been evicted.
const EVICTED_ONE_IN: u64 = 8;

#[cfg(test)]
pub(crate) mod recording {
    //! A sink for tests: it follows readers, of every file or of one, and records what is reported.

    use super::*;

    /// The reports so far.
    #[derive(Default)]
    pub(crate) struct RecordingSink {
        /// The inode of the only file that is followed: other tests of this process read others.
        pub(crate) only: Option<u64>,
        pub(crate) cursors: u32,
        /// The processes that reports were of, in order.
        pub(crate) processes: Vec<i32>,
        pub(crate) reads: Vec<(u32, Range<u64>, bool)>,
        pub(crate) closed: Vec<CursorId>,
        pub(crate) entries: Vec<(Vec<u8>, EntryCall)>,
    }

    impl AccessSink for RecordingSink {
        fn process(&mut self, pid: i32, _processor: Option<Nanos>) {
            self.processes.push(pid);
        }
        fn open(&mut self, _: Nanos, _: File, stat: &Stat, _: u64) -> Option<CursorId> {
            if self.only.is_some_and(|inode| inode != stat.st_ino) {
                return None;
            }
            self.cursors += 1;
            Some(CursorId(self.cursors))
        }
        fn open_again(&mut self, _cursor: CursorId, _position: u64) -> Option<CursorId> {
            self.cursors += 1;
            Some(CursorId(self.cursors))
        }
        fn mapped(&mut self, _cursor: CursorId) {}
        fn file(&self, _cursor: CursorId) -> Option<&File> {
            None
        }
        fn seek(&mut self, _now: Nanos, _cursor: CursorId, _position: u64) {}
        fn read(&mut self, _now: Nanos, cursor: CursorId, range: &Range<u64>, follows: bool) {
            self.reads.push((cursor.0, range.clone(), follows));
        }
        fn read_once(&mut self, _now: Nanos, cursor: CursorId, range: &Range<u64>) {
            self.reads.push((cursor.0, range.clone(), false));
        }
        fn close(&mut self, _now: Nanos, cursor: CursorId) {
            self.closed.push(cursor);
        }
        fn entry(&mut self, _now: Nanos, access: &EntryAccess<'_>) {
            self.entries.push((access.path.to_vec(), access.call));
        }
    }
}
