//! The recorder: which record, if any, a call puts into the ring.
//!
//! Sequential reads are recorded in runs. The position of a descriptor costs a system call, as
//! expensive as a small read from the page cache, so the recorder asks for it at the first read,
//! and then each time `RUN_BYTES` were read:
//!
//! ```text
//!   read 4K   4K 4K 4K ... 4K   4K 4K ...   close
//!      |                    |                 |
//!      Read 0+4K            Read 4K+64K       Read of what is left, Close
//! ```
//!
//! # Invariants
//! - Safe in signal handlers, in threads, after `fork` and in a child of `vfork`: no lock, no
//!   memory, no waiting; `errno` stays.
//! - Without a ring nothing is done, and nothing is done about descriptors that are known to be no
//!   regular files.

use core::{
    ffi::c_char,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use libc::{c_int, off_t, ssize_t};

use crate::{
    ring::{Kind, RUN_BYTES, Record, Ring},
    sys,
    table::{Entry, NOWHERE, State, Table},
};

/// The mapped ring, and the table; both null until the constructor ran, or the shim is off.
static RING: AtomicPtr<Ring> = AtomicPtr::new(ptr::null_mut());
static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// Begins to record into the ring behind descriptor `fd`, if it is one.
pub(crate) fn start(fd: c_int) {
    if !sys::is_sealed(fd, size_of::<Ring>()) {
        return;
    }
    let Some(ring) = sys::map(fd, size_of::<Ring>()) else { return };
    let Some(table) = sys::map(-1, size_of::<Table>()) else { return };
    // SAFETY: the mapping has the ring's size, can shrink no more, is never unmapped, and consists
    // of atomic words, for which any value will do.
    let is_ring = unsafe { &*ring.cast::<Ring>() }.is_sound();
    // SAFETY: the table's own memory, which nothing refers to yet.
    let is_wiped = unsafe { sys::advise(table, size_of::<Table>(), libc::MADV_WIPEONFORK) };
    if is_ring && is_wiped {
        RING.store(ring.cast(), Ordering::Relaxed);
        TABLE.store(table.cast(), Ordering::Release);
    }
}

/// Records no more: this process is about to give up system calls that the shim makes.
pub(crate) fn stop() {
    sys::keeping_errno(|| {
        if Shim::here().is_some_and(|shim| shim.table.is_ours()) {
            TABLE.store(ptr::null_mut(), Ordering::Relaxed);
        }
    });
}

/// `fd` was opened; `is_read`: to be read through the page cache.
pub(crate) fn opened(fd: c_int, is_read: bool) {
    let Some((shim, entry)) = Shim::of(fd) else { return };
    sys::keeping_errno(|| {
        if is_read {
            shim.learn(fd, entry);
        } else if shim.table.is_ours() {
            shim.table.set_file(fd, entry, None);
        }
    });
}

/// `got` bytes were read from where `fd` stood.
pub(crate) fn read(fd: c_int, got: ssize_t) {
    let Some((shim, entry, got)) = Shim::of_read(fd, got) else { return };
    let unrecorded = entry.unrecorded.fetch_add(got, Ordering::Relaxed).wrapping_add(got);
    if unrecorded >= RUN_BYTES || entry.end.load(Ordering::Relaxed) == NOWHERE {
        sys::keeping_errno(|| shim.record_run(fd, entry));
    }
}

/// `got` bytes were read from `offset`; from where `fd` stood, if that is -1.
pub(crate) fn read_at(fd: c_int, offset: off_t, got: ssize_t) {
    let Ok(offset) = u64::try_from(offset) else { return read(fd, got) };
    let Some((shim, entry, got)) = Shim::of_read(fd, got) else { return };
    shim.record(Kind::Read, fd, entry, offset, got);
}

/// A descriptor, and how to find where in it a call begins.
pub(crate) struct Place<F> {
    pub(crate) fd: c_int,
    pub(crate) offset: F,
}

/// At most `count` bytes of `from` are about to be moved to `to`.
pub(crate) fn moving(
    from: Place<impl FnOnce() -> Option<u64>>,
    to: Place<impl FnOnce() -> Option<u64>>,
    count: usize,
) {
    let Some((shim, entry)) = Shim::of_move(from.fd, count) else { return };
    let Ok(to_fd) = u32::try_from(to.fd) else { return };
    sys::keeping_errno(|| {
        // A pipe or a socket, which does not tell how far the call is, has no position.
        let (Some(offset), Some(to_offset)) = ((from.offset)(), (to.offset)()) else { return };
        let length = (count as u64).min(i64::MAX as u64 - offset.min(i64::MAX as u64));
        shim.record_to(Kind::Move, from.fd, entry, (offset, length), (to_fd, to_offset));
    });
}

/// The call that [`moving`] has announced has returned.
pub(crate) fn moved(fd: c_int, count: usize) {
    if let Some((shim, entry)) = Shim::of_move(fd, count) {
        shim.record(Kind::Moved, fd, entry, 0, 0);
    }
}

/// `length` bytes from `offset` were mapped.
pub(crate) fn mapped(fd: c_int, offset: off_t, length: usize) {
    let Some((shim, entry)) = Shim::of(fd) else { return };
    if shim.is_regular(fd, entry) {
        let offset = u64::try_from(offset).unwrap_or(0);
        shim.record(Kind::Map, fd, entry, offset, length as u64);
    }
}

/// Records what was read of `fd`, which is about to move in its file, or to share its position.
pub(crate) fn flush(fd: c_int) {
    let Some((shim, entry)) = Shim::of(fd) else { return };
    if entry.state() == State::Regular && entry.end.load(Ordering::Relaxed) != NOWHERE {
        sys::keeping_errno(|| shim.record_run(fd, entry));
        entry.end.store(NOWHERE, Ordering::Relaxed);
    }
}

/// `fd` is about to be closed, or replaced.
pub(crate) fn closing(fd: c_int) {
    let Some((shim, entry)) = Shim::of(fd) else { return };
    let state = entry.state();
    sys::keeping_errno(|| {
        if state == State::Unknown || !shim.table.is_ours() {
            return;
        }
        if state == State::Regular {
            shim.record_run(fd, entry);
            shim.record(Kind::Close, fd, entry, 0, 0);
        }
        entry.forget();
    });
}

/// `fd` is a copy of another. What was known of the number is of a file that is closed by now.
pub(crate) fn copied(fd: c_int) {
    let Some((shim, entry)) = Shim::of(fd) else { return };
    if entry.state() != State::Unknown && sys::keeping_errno(|| shim.table.is_ours()) {
        entry.forget();
    }
}

/// The descriptors from `first` to `last` are about to be closed, or the program is about to end.
pub(crate) fn closing_all(first: u32, last: u32) {
    if let Some(shim) = Shim::here() {
        shim.table.known(first, last).for_each(closing);
    }
}

/// Whether a descriptor opened with `flags` can be read, and that by way of the page cache.
pub(crate) fn is_read(flags: c_int) -> bool {
    flags & libc::O_ACCMODE != libc::O_WRONLY && flags & (libc::O_DIRECT | libc::O_PATH) == 0
}

/// Whether a stream opened with `mode` can be read.
///
/// # Safety
/// `mode` is a C string.
pub(crate) unsafe fn is_read_stream(mode: *const c_char) -> bool {
    // SAFETY: the caller's.
    let mode = unsafe { core::ffi::CStr::from_ptr(mode) }.to_bytes();
    mode.first() == Some(&b'r') || mode.contains(&b'+')
}

/// The ring and the table of a process whose calls are recorded.
#[derive(Clone, Copy)]
struct Shim {
    ring: &'static Ring,
    table: &'static Table,
}

impl Shim {
    #[inline]
    fn here() -> Option<Self> {
        let table = TABLE.load(Ordering::Acquire);
        let ring = RING.load(Ordering::Relaxed);
        if table.is_null() || ring.is_null() {
            return None;
        }
        // SAFETY: `start` mapped both, in their sizes and for good; they are atomic words.
        Some(unsafe { Self { ring: &*ring, table: &*table } })
    }

    #[inline]
    fn of(fd: c_int) -> Option<(Self, &'static Entry)> {
        let shim = Self::here()?;
        Some((shim, shim.table.entry(fd)?))
    }

    /// For a read that got bytes, of a regular file.
    #[inline]
    fn of_read(fd: c_int, got: ssize_t) -> Option<(Self, &'static Entry, u64)> {
        let got = u64::try_from(got).ok().filter(|got| *got > 0)?;
        let (shim, entry) = Self::of(fd)?;
        shim.is_regular(fd, entry).then_some((shim, entry, got))
    }

    /// For a move that is long enough to be announced, of a regular file.
    fn of_move(fd: c_int, count: usize) -> Option<(Self, &'static Entry)> {
        let (shim, entry) = Self::of(fd).filter(|_| count >= MOVE_BYTES_MIN)?;
        shim.is_regular(fd, entry).then_some((shim, entry))
    }

    #[inline]
    fn is_regular(self, fd: c_int, entry: &Entry) -> bool {
        match entry.state() {
            State::Regular => true,
            State::Other => false,
            State::Unknown => sys::keeping_errno(|| self.learn(fd, entry)),
        }
    }

    /// Asks what is behind `fd`; returns whether it is a regular file, which it then records.
    #[cold]
    fn learn(self, fd: c_int, entry: &Entry) -> bool {
        if !self.table.is_ours() {
            return false;
        }
        let file = sys::file(fd);
        self.table.set_file(fd, entry, file);
        if let Some(file) = file {
            self.record(Kind::Open, fd, entry, 0, file.bytes);
        }
        file.is_some()
    }

    /// Records what was read from `fd` since the last time.
    fn record_run(self, fd: c_int, entry: &Entry) {
        let unrecorded = entry.unrecorded.swap(0, Ordering::Relaxed);
        if unrecorded == 0 {
            return;
        }
        let Some(end) = sys::position(fd) else { return entry.forget() };
        // Another process may move this position too, and a child of `vfork` counts here too: what
        // lies in both bounds was read through this position, by one of them.
        let before = entry.end.swap(end, Ordering::Relaxed);
        let recorded = if before <= end { before } else { 0 };
        let start = end.saturating_sub(unrecorded).max(recorded);
        if start < end {
            self.record(Kind::Read, fd, entry, start, end - start);
        }
    }

    fn record(self, kind: Kind, fd: c_int, entry: &Entry, offset: u64, length: u64) {
        self.record_to(kind, fd, entry, (offset, length), (0, 0));
    }

    fn record_to(
        self,
        kind: Kind,
        fd: c_int,
        entry: &Entry,
        (offset, length): (u64, u64),
        to: (u32, u64),
    ) {
        let (dev, ino) = entry.file();
        let (pid, fd) = (self.table.owner(), u32::try_from(fd).unwrap_or(0));
        self.ring.push(&Record { kind, pid, fd, dev, ino, offset, length, to });
    }
}

/// A call that moves so many bytes is announced; one that moves fewer is soon over.
const MOVE_BYTES_MIN: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_read_through_the_cache_is_known_by_how_it_was_opened() {
        for (flags, expected) in [
            (libc::O_RDONLY | libc::O_CLOEXEC, true),
            (libc::O_RDWR | libc::O_CREAT, true),
            (libc::O_WRONLY | libc::O_CREAT, false),
            (libc::O_RDONLY | libc::O_DIRECT, false),
            (libc::O_PATH, false),
        ] {
            assert_eq!(is_read(flags), expected, "{flags:#x}");
        }
        for (mode, expected) in [
            (c"r", true),
            (c"rbe", true),
            (c"w+", true),
            (c"ab+", true),
            (c"w", false),
            (c"a", false),
            (c"", false),
        ] {
            // SAFETY: a C string.
            assert_eq!(unsafe { is_read_stream(mode.as_ptr()) }, expected, "{mode:?}");
        }
    }
}
