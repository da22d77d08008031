//! The recorder: what observers report of a program, as calls with their times.
//!
//! ```text
//!   poll 3        poll 4        poll 5        poll 6
//!     |  open a --- met ---------- met           |          begin at poll 3, took until poll 5
//!     |             |  position moved |          |          a read between polls 4 and 5
//! ```
//! # Invariants
//! - A call begins no earlier than the poll before it was met, and no earlier than the end of its
//!   thread's last one.
//! - A thread is in one call at a time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forerun_core::units::Nanos;

use crate::kernel::Stat;
use crate::observe::access::{AccessSink, CursorId, EntryAccess, EntryCall};
use crate::observe::blocked::BlockedIn;
use crate::observe::procfs::FOLLOWED_BYTES_MIN;
use crate::open::views::Views;
use crate::wire::{Wire, wire};

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// When it began, to the nearest poll.
    pub begin: Nanos,
    /// When it was last met, or had ended.
    pub end: Nanos,
    /// The thread, or the process where that is all that is known.
    pub thread: u64,
    /// What it does.
    pub kind: RecordedKind,
    /// The full path, as the program sees it.
    pub path: Vec<u8>,
    /// The first byte.
    pub offset: u64,
    /// Bytes that are read; none where that is not known.
    pub bytes: u64,
    /// Whether this process sees the same tree as the thread, which has no fewer rights.
    pub is_ours: bool,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedKind {
    /// Asks for facts of an inode.
    Stat,
    /// Opens a file or directory.
    Open,
    /// Lists a directory.
    List,
    /// Reads bytes of a file.
    Read,
    /// Reads bytes through a mapping.
    Map,
    /// Starts a program.
    Exec,
}

/// All calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    rows: Vec<RecordedCall>,
    path_bytes: u64,
    pub(super) left_out: u64,
}

wire! {
    RecordedCall { begin, end, thread, kind, path, offset, bytes, is_ours }
    Calls { rows, path_bytes, left_out }
}

impl Wire for RecordedKind {
    fn put(&self, bytes: &mut Vec<u8>) {
        (*self as u8).put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let all = [Self::Stat, Self::Open, Self::List, Self::Read, Self::Map, Self::Exec];
        all.get(usize::from(u8::take(bytes)?)).copied()
    }
}

impl Calls {
    /// The calls in the order of their begin.
    pub(super) fn in_order(mut self) -> Vec<RecordedCall> {
        self.rows.sort_by_key(|call| (call.begin, call.end));
        self.rows
    }

    fn add(&mut self, call: RecordedCall) -> Option<usize> {
        let path_bytes = self.path_bytes + call.path.len() as u64;
        if self.rows.len() >= CALLS_MAX || path_bytes > PATH_BYTES_MAX {
            self.left_out += 1;
            return None;
        }
        assert!(call.begin <= call.end, "a call ends after it began");
        self.path_bytes = path_bytes;
        self.rows.push(call);
        Some(self.rows.len() - 1)
    }
}

/// Receives accesses.
#[derive(Debug)]
pub(super) struct CallRecorder {
    /// Another thread may take them: nothing blocks while they are locked.
    calls: Arc<Mutex<Calls>>,
    /// The last poll, and this one.
    polled: (Nanos, Nanos),
    process: i32,
    views: Views,
    threads: BTreeMap<(i32, i32), LastCall>,
    cursors: Vec<Option<usize>>,
    files: BTreeMap<usize, OpenFile>,
    opened: usize,
}

#[derive(Clone, Copy, Debug)]
struct LastCall {
    row: Option<usize>,
    end: Nanos,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    path: Vec<u8>,
    readers: usize,
    is_mapped: bool,
}

impl CallRecorder {
    /// A recorder that adds to `calls`.
    pub(super) fn new(calls: Arc<Mutex<Calls>>) -> Self {
        Self {
            calls,
            polled: (Nanos(0), Nanos(0)),
            process: 0,
            views: Views::new(),
            threads: BTreeMap::new(),
            cursors: Vec::new(),
            files: BTreeMap::new(),
            opened: 0,
        }
    }

    /// What is reported from now on was met by a poll at `now`.
    pub(super) fn begin_poll(&mut self, now: Nanos) {
        self.polled = (self.polled.1, now);
    }

    /// The last poll of a thread met it in `met`: a call on an entry goes on until now.
    pub(super) fn met(&mut self, pid: i32, tid: i32, met: BlockedIn) {
        let Some(last) = self.threads.get_mut(&(pid, tid)) else { return };
        if !matches!(met, BlockedIn::Entry(_)) {
            last.row = None;
            return;
        }
        last.end = self.polled.1;
        let (row, end) = (last.row, last.end);
        if let Some(row) = row
            && let Some(call) = self.lock().rows.get_mut(row)
        {
            call.end = end;
        }
    }

    /// Closes all files.
    pub(super) fn clear(&mut self) {
        self.files.clear();
        self.cursors.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_file(&self, cursor: CursorId) -> Option<&OpenFile> {
        self.files.get(&(*self.cursors.get(cursor.0 as usize)?)?)
    }

    fn add_cursor(&mut self, file: usize) -> Option<CursorId> {
        let free = self.cursors.iter().position(Option::is_none);
        let at = free.unwrap_or(self.cursors.len());
        if at >= CURSORS_MAX {
            return None;
        }
        if free.is_none() {
            self.cursors.push(None);
        }
        self.cursors[at] = Some(file);
        self.files.get_mut(&file).expect("a cursor has a file").readers += 1;
        Some(CursorId(u32::try_from(at).expect("below CURSORS_MAX")))
    }
}

impl AccessSink for CallRecorder {
    fn process(&mut self, pid: i32, _processor: Option<Nanos>) {
        self.process = pid;
        self.views.process(pid);
    }

    fn open(&mut self, _now: Nanos, file: File, _stat: &Stat, _position: u64) -> Option<CursorId> {
        let link = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        let path = link.as_os_str().as_bytes().to_vec();
        self.opened += 1;
        let number = self.opened;
        self.files.insert(number, OpenFile { file, path, readers: 0, is_mapped: false });
        let cursor = self.add_cursor(number);
        if cursor.is_none() {
            self.files.remove(&number);
        }
        cursor
    }

    fn open_again(&mut self, cursor: CursorId, _position: u64) -> Option<CursorId> {
        let file = (*self.cursors.get(cursor.0 as usize)?)?;
        self.add_cursor(file)
    }

    fn mapped(&mut self, cursor: CursorId) {
        if let Some(&Some(file)) = self.cursors.get(cursor.0 as usize)
            && let Some(file) = self.files.get_mut(&file)
        {
            file.is_mapped = true;
        }
    }

    fn file(&self, cursor: CursorId) -> Option<&File> {
        Some(&self.open_file(cursor)?.file)
    }

    fn seek(&mut self, _now: Nanos, _cursor: CursorId, _position: u64) {}

    fn read(&mut self, _now: Nanos, cursor: CursorId, range: &Range<u64>, _follows: bool) {
        let is_ours = self.views.is_own_process();
        let Some(file) = self.open_file(cursor) else { return };
        let (begin, end) = self.polled;
        let call = RecordedCall {
            begin,
            end,
            thread: u64::from(self.process.unsigned_abs()),
            kind: if file.is_mapped { RecordedKind::Map } else { RecordedKind::Read },
            path: file.path.clone(),
            offset: range.start,
            bytes: range.end - range.start,
            is_ours,
        };
        self.lock().add(call);
    }

    fn close(&mut self, _now: Nanos, cursor: CursorId) {
        let gone = self.cursors.get_mut(cursor.0 as usize).and_then(Option::take);
        let Some(number) = gone else { return };
        let file = self.files.get_mut(&number).expect("a cursor has a file");
        assert!(file.readers > 0, "a cursor is a reader of its file");
        file.readers -= 1;
        if file.readers == 0 {
            self.files.remove(&number);
        }
    }

    fn entry(&mut self, _now: Nanos, access: &EntryAccess<'_>) {
        let kind = match (access.call, access.read) {
            (EntryCall::Stat, _) => RecordedKind::Stat,
            (EntryCall::Open, _) => RecordedKind::Open,
            (EntryCall::List, _) => RecordedKind::List,
            (EntryCall::Read { .. }, None) => RecordedKind::Exec,
            // Its position tells more.
            (EntryCall::Read { .. }, Some(read)) if read.is_followed() => return,
            (EntryCall::Read { .. }, Some(_)) => RecordedKind::Read,
        };
        let key = (access.pid, access.thread);
        let last = self.threads.get(&key).map_or(Nanos(0), |last| last.end);
        let (before, end) = self.polled;
        let (offset, bytes) = access.read.map_or((0, 0), |read| (read.offset, read.bytes));
        let is_ours = self.views.own().is_some_and(|own| access.has_view(own));
        let row = self.lock().add(RecordedCall {
            begin: before.max(last).min(end),
            end,
            thread: u64::from(access.thread.unsigned_abs()),
            kind,
            path: access.path.to_vec(),
            offset,
            bytes,
            is_ours,
        });
        if self.threads.len() >= THREADS_MAX {
            self.threads.clear();
        }
        self.threads.insert(key, LastCall { row, end });
    }
}

impl crate::observe::access::FileRead {
    /// Whether the observer of positions reports it.
    fn is_followed(self) -> bool {
        self.moves && self.file_bytes >= FOLLOWED_BYTES_MIN
    }
}

/// Calls that are kept.
pub(super) const CALLS_MAX: usize = 1 << 20;
/// Bytes of all their paths.
pub(super) const PATH_BYTES_MAX: u64 = 128 << 20;
const CURSORS_MAX: usize = 1024;
/// Threads whose last call is known.
const THREADS_MAX: usize = 4096;

#[cfg(test)]
mod tests;
