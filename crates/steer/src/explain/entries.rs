//! The calls on files and directories that threads were blocked in, by their paths, and for how
//! long.
//!
//! ```text
//!   observer of blocked calls --entry--> row: when, thread, path, call
//!   samples of waits ----------waited--> its times, by the call that the thread was met in
//! ```
//! # Invariants
//! - At most [`ROWS_MAX`] calls with [`PATH_BYTES_MAX`] of paths in all; what is beyond is counted.
//! - A wait counts once: for a call here, or, where it is one on a followed file, a page fault or
//!   not known, for the file that is read next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forerun_core::units::Nanos;

use super::causes::{Cause, CauseTimes};
use crate::observe::access::{EntryAccess, EntryCall};
use crate::observe::blocked::BlockedIn;
use crate::observe::procfs::FOLLOWED_BYTES_MIN;
use crate::open::entries::View;
use crate::wire::wire;

/// A thread of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ThreadId {
    pub(super) pid: i32,
    pub(super) tid: i32,
}

/// What a thread waits for, of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// The time that the program loses by it.
    pub(super) lost: Nanos,
    /// The time that the thread is blocked.
    pub(super) blocked: Nanos,
    /// What it was met in.
    pub(super) met: BlockedIn,
}

/// The calls, which another thread may read: nothing blocks while they are locked.
#[derive(Clone, Debug, Default)]
pub(super) struct EntryRecords(Arc<Mutex<EntryLog>>);

/// See the module.
#[derive(Debug, Default)]
struct EntryLog {
    entries: Entries,
    /// The call that each thread was met in last.
    current: BTreeMap<ThreadId, Current>,
    /// What this process sees, once that was asked.
    own: Option<View>,
    /// What was lost to waits for all calls in the table.
    lost: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    /// Its row, if there was room.
    row: Option<usize>,
    /// It reads a file whose waits are counted with it.
    is_followed: bool,
}

/// The calls of a program on entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    pub(super) rows: Vec<EntryRow>,
    /// The paths of all rows, one behind the other.
    paths: Vec<u8>,
    /// Calls that are not in the table.
    pub(super) left_out: u64,
    /// The time of all waits, by cause.
    pub(super) causes: CauseTimes,
    /// When the first wait for an entry began, if there was one, and when the last one ended.
    pub(super) began: Option<Nanos>,
    pub(super) ended: Nanos,
}

/// One call.
#[derive(Clone, Debug)]
pub(super) struct EntryRow {
    /// Its cause, and for one that reads whether up to the end of the file.
    pub(super) cause: Cause,
    pub(super) to_end: bool,
    /// Whether this process sees the same tree as the program, which has no fewer rights.
    pub(super) is_ours: bool,
    /// When it was first met, less what was lost to waits for entries until then.
    pub(super) ran: Nanos,
    /// The time that the program lost to waiting for it.
    pub(super) waited: Nanos,
    /// The time that its thread was blocked in it.
    pub(super) blocked: Nanos,
    /// The end of its path among all.
    path_end: u64,
}

wire! {
    Entries { rows, paths, left_out, causes, began, ended }
    EntryRow { cause, to_end, is_ours, ran, waited, blocked, path_end }
}

impl Entries {
    /// The path of the row at `at`.
    pub(super) fn path(&self, at: usize) -> &[u8] {
        let end = |row: &EntryRow| usize::try_from(row.path_end).unwrap_or(usize::MAX);
        let start = at.checked_sub(1).map_or(0, |before| end(&self.rows[before]));
        self.paths.get(start..end(&self.rows[at])).unwrap_or_default()
    }

    fn add(&mut self, ran: Nanos, access: &EntryAccess<'_>, is_ours: bool) -> Option<usize> {
        let path_end = self.paths.len() + access.path.len();
        if self.rows.len() >= ROWS_MAX || path_end > PATH_BYTES_MAX {
            self.left_out += 1;
            return None;
        }
        self.paths.extend_from_slice(access.path);
        let to_end = access.call == EntryCall::Read { to_end: true };
        let (cause, waited, blocked) = (Cause::of(access.call), Nanos(0), Nanos(0));
        let path_end = path_end as u64;
        self.rows.push(EntryRow { cause, to_end, is_ours, ran, waited, blocked, path_end });
        assert!(self.rows.len() <= ROWS_MAX, "more calls than are allowed");
        Some(self.rows.len() - 1)
    }
}

impl EntryRecords {
    /// A thread is newly met in a call on an entry.
    pub(super) fn add(&self, now: Nanos, access: &EntryAccess<'_>) {
        let mut log = self.lock();
        let is_ours = log.is_ours(access);
        let ran = now.since(log.lost);
        let row = log.entries.add(ran, access, is_ours);
        let is_read = matches!(access.call, EntryCall::Read { .. });
        let is_large = access.read.is_some_and(|read| read.file_bytes >= FOLLOWED_BYTES_MIN);
        let current = Current { row, is_followed: is_read && is_large };
        if log.current.len() >= THREADS_MAX {
            log.current.clear();
        }
        log.current.insert(ThreadId { pid: access.pid, tid: access.thread }, current);
    }

    /// Storage blocked `thread` until `now`. Whether the wait is counted with an entry.
    pub(super) fn waited(&self, now: Nanos, thread: ThreadId, wait: Wait) -> bool {
        let mut log = self.lock();
        let Wait { lost, blocked, met } = wait;
        let cause = match met {
            BlockedIn::Entry(call) => Cause::of(call),
            BlockedIn::Fault => Cause::Fault,
            BlockedIn::Other | BlockedIn::Nothing => Cause::Other,
        };
        log.entries.causes.add(cause, lost);
        let current =
            log.current.get(&thread).copied().filter(|_| matches!(met, BlockedIn::Entry(_)));
        let Some(current) = current.filter(|current| !current.is_followed) else { return false };
        let EntryLog { entries, lost: all, .. } = &mut *log;
        entries.began.get_or_insert(now.since(blocked));
        entries.ended = now;
        if let Some(row) = current.row {
            entries.rows[row].waited += lost;
            entries.rows[row].blocked += blocked;
            *all += lost;
        }
        true
    }

    /// All that was recorded so far.
    pub(super) fn entries(&self) -> Entries {
        self.lock().entries.clone()
    }

    fn lock(&self) -> MutexGuard<'_, EntryLog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EntryLog {
    /// Whether the thread of `access` sees the same tree as this process, by no fewer rights.
    fn is_ours(&mut self, access: &EntryAccess<'_>) -> bool {
        if self.own.is_none() {
            self.own = View::own().ok();
        }
        self.own.as_ref().is_some_and(|own| access.has_view(own))
    }
}

/// Calls of a program that are kept.
const ROWS_MAX: usize = 1 << 17;
/// Bytes of all their paths.
const PATH_BYTES_MAX: usize = 12 << 20;
/// Threads whose call is known.
const THREADS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::observe::access::FileRead;

    #[test]
    fn a_wait_counts_for_the_call_that_the_thread_was_met_in() {
        let own = File::open("/proc/self").expect("there is one");
        let records = EntryRecords::default();
        let add = |thread, path: &[u8], call, file_bytes: Option<u64>| {
            let (pid, process) = (thread, own.as_fd());
            let read = |file_bytes| FileRead { file_bytes, offset: 0, bytes: 0, moves: true };
            let read = file_bytes.map(read);
            records.add(Nanos(0), &EntryAccess { pid, thread, process, path, call, read });
        };
        let reads = EntryCall::Read { to_end: false };
        add(7, b"/a/x", EntryCall::Stat, None);
        add(8, b"/a/large", reads, Some(FOLLOWED_BYTES_MIN));
        add(9, b"/a/small \xff", reads, Some(FOLLOWED_BYTES_MIN - 1));
        #[rustfmt::skip]
        let rows = [ // thread, met, whether it counts with an entry
            (7, BlockedIn::Entry(EntryCall::Stat), true,  "the call"),
            (7, BlockedIn::Fault,                  false, "a page fault after it"),
            (7, BlockedIn::Other,                  false, "another call"),
            (8, BlockedIn::Entry(reads),           false, "a followed file"),
            (9, BlockedIn::Entry(reads),           true,  "a small file"),
            (6, BlockedIn::Entry(EntryCall::List), false, "a call that was not reported"),
        ];
        for (at, (tid, met, expected, why)) in (1..).zip(rows) {
            let thread = ThreadId { pid: tid, tid };
            let wait = Wait { lost: Nanos(at), blocked: Nanos(at * 2), met };
            let is = records.waited(Nanos(at * 10), thread, wait);
            assert_eq!(is, expected, "{why}");
        }
        let entries = records.entries();
        let waited: Vec<u64> = entries.rows.iter().map(|row| row.waited.0).collect();
        assert_eq!(waited, [1, 0, 5]);
        let blocked: Vec<u64> = entries.rows.iter().map(|row| row.blocked.0).collect();
        assert_eq!(blocked, [2, 0, 10]);
        let paths: Vec<&[u8]> = (0..3).map(|at| entries.path(at)).collect();
        assert_eq!(paths, [&b"/a/x"[..], b"/a/large", b"/a/small \xff"]);
        assert!(entries.rows.iter().all(|row| row.is_ours), "it is this process");
        let times =
            [Cause::Open, Cause::Stat, Cause::List, Cause::Read, Cause::Fault, Cause::Other]
                .map(|cause| entries.causes.of(cause).0);
        assert_eq!(times, [0, 1, 6, 9, 2, 3]);
        assert_eq!((entries.began, entries.ended), (Some(Nanos(8)), Nanos(50)));
        add(9, b"/a/next", EntryCall::Open, None);
        assert_eq!(records.entries().rows[3].ran, Nanos(0), "no earlier than the start");
    }

    #[test]
    fn the_table_is_bounded() {
        let own = File::open("/proc/self").expect("there is one");
        let records = EntryRecords::default();
        let path = vec![b'x'; 4000];
        let (process, call) = (own.as_fd(), EntryCall::Open);
        let count = PATH_BYTES_MAX / path.len() + 10;
        for thread in 0..i32::try_from(count).expect("a few thousand") {
            let (pid, path) = (thread, &path[..]);
            records.add(Nanos(0), &EntryAccess { pid, thread, process, path, call, read: None });
        }
        let log = records.lock();
        assert_eq!(log.entries.rows.len() as u64 + log.entries.left_out, count as u64);
        assert!(log.entries.left_out >= 10 && log.current.len() <= THREADS_MAX);
    }
}
