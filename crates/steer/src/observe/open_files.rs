//! The observer of open files: the position of each descriptor of a process.
//!
//! ```text
//!   /proc/PID/fd        the descriptors, and the files that they stand for
//!   /proc/PID/fdinfo/N  position and flags: a descriptor of this file is kept
//!   /proc/PID/io        bytes read: did the process read its way to a new position, or seek there?
//! ```
//! The position comes from `fdinfo`, and not from a duplicate of the program's own descriptor: that
//! would keep the file open, and its locks held, after the program has closed it.
//!
//! # Invariants
//! - A file is opened once its position has moved, for reading alone, and closed when the poll
//!   after its end finds the descriptor gone or used for another file.
//! - At most [`FILES_MAX`] files of a process are followed: regular ones of 256 KiB and more, read
//!   through the page cache.
//! # Sources
//! proc(5); Linux `fs/proc/fd.c`.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use forerun_core::units::Nanos;
use rustix::fs::{AtFlags, OFlags, Stat, statat};
use rustix::io::Errno;

use super::access::{AccessSink, CursorId};
use super::procfs::{self, text};
use crate::kernel::{self, Residency};

/// The open files of a process.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    open: BTreeMap<i32, OpenFile>,
    io: Option<File>,
    bytes_read: u64,
    /// Of these, bytes that no position has shown yet.
    bytes_not_shown: u64,
}

#[derive(Debug)]
struct OpenFile {
    info: File,
    inode: Inode,
    position: u64,
    cursor: Option<CursorId>,
    /// Its position is not followed: it cannot be, or another observer sees its accesses.
    is_left: bool,
}

/// A file's device and inode number.
pub(crate) type Inode = (u64, u64);

/// Bytes that a process read, by all calls that the kernel counts.
#[derive(Clone, Copy, Debug)]
struct BytesRead {
    /// Since the last poll at which a position moved.
    new: u64,
    /// Of these and of older ones, bytes that no position has shown yet.
    left: u64,
}

impl OpenFiles {
    /// Finds new descriptors. An error: this process has no permission to look.
    pub(crate) fn discover(&mut self, process: BorrowedFd<'_>) -> Result<(), Errno> {
        let (folder, entries) = procfs::list_in(process, "fd")?;
        for entry in entries {
            let entry = entry?;
            let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
            let Some(number) = number else { continue };
            if self.open.contains_key(&number) || self.open.len() >= FILES_MAX {
                continue;
            }
            if let Ok(stat) = statat(&folder, entry.file_name(), AtFlags::empty()) {
                self.add(process, number, &stat);
            }
        }
        assert!(self.open.len() <= FILES_MAX, "more files than are allowed");
        Ok(())
    }

    fn add(&mut self, process: BorrowedFd<'_>, number: i32, stat: &Stat) {
        if !procfs::is_followed(stat) {
            return;
        }
        let Some(info) = procfs::open_in(process, &format!("fdinfo/{number}")) else { return };
        let inode = (stat.st_dev, stat.st_ino);
        let Some(descriptor) = descriptor(&info, inode) else { return };
        // A process that has read nothing yet has inherited the descriptor as it is.
        let io = procfs::open_in(process, "io").and_then(|io| procfs::read(&io, text::bytes_read));
        let position = if io == Some(0) { descriptor.position } else { 0 };
        let is_left = !reads_page_cache(descriptor.flags);
        let file = OpenFile { info, inode, position, cursor: None, is_left };
        self.open.insert(number, file);
    }

    /// Reports the positions that moved. Whether any did.
    pub(crate) fn poll(
        &mut self,
        process: BorrowedFd<'_>,
        now: Nanos,
        sink: &mut dyn AccessSink,
    ) -> bool {
        let mut moved = Vec::new();
        self.open.retain(|&number, file| {
            let descriptor = descriptor(&file.info, file.inode);
            match descriptor {
                Some(descriptor) if descriptor.position != file.position && !file.is_left => {
                    moved.push((number, descriptor.position));
                }
                Some(_) => {}
                None => file.close(now, sink),
            }
            descriptor.is_some()
        });
        if moved.is_empty() {
            return false;
        }
        let mut bytes_read = self.bytes_read(process);
        for (number, to) in moved {
            let file = self.open.get_mut(&number).expect("it is retained");
            assert!(!file.is_left && file.position != to, "a file that is left does not move");
            let from = std::mem::replace(&mut file.position, to);
            if file.cursor.is_none() {
                file.cursor = follow(process, number, file.inode, now, sink);
                file.is_left = file.cursor.is_none();
            }
            if let Some(cursor) = file.cursor {
                report(cursor, from..to, &mut bytes_read, now, sink);
            }
        }
        // A read that was counted after the positions were read shows at the next poll.
        self.bytes_not_shown = bytes_read.map_or(0, |read| read.left.min(NOT_SHOWN_BYTES_MAX));
        true
    }

    /// Ends following the position of the descriptor `number`, as long as that stands for the same
    /// file. Whether the descriptor is known.
    pub(crate) fn leave(&mut self, number: i32, now: Nanos, sink: &mut dyn AccessSink) -> bool {
        let Some(file) = self.open.get_mut(&number) else { return false };
        file.is_left = true;
        file.close(now, sink);
        true
    }

    /// The process is gone.
    pub(crate) fn close(&mut self, now: Nanos, sink: &mut dyn AccessSink) {
        for (_, mut file) in std::mem::take(&mut self.open) {
            file.close(now, sink);
        }
    }

    fn bytes_read(&mut self, process: BorrowedFd<'_>) -> Option<BytesRead> {
        if self.io.is_none() {
            self.io = procfs::open_in(process, "io");
        }
        let bytes = procfs::read(self.io.as_ref()?, text::bytes_read)?;
        let new = bytes.saturating_sub(std::mem::replace(&mut self.bytes_read, bytes));
        let left = new.saturating_add(self.bytes_not_shown);
        assert!(self.bytes_not_shown <= NOT_SHOWN_BYTES_MAX && new <= left);
        Some(BytesRead { new, left })
    }
}

impl OpenFile {
    fn close(&mut self, now: Nanos, sink: &mut dyn AccessSink) {
        if let Some(cursor) = self.cursor.take() {
            sink.close(now, cursor);
        }
    }
}

/// Reports a position that went from one end of `range` to the other, as a read or as a seek.
fn report(
    cursor: CursorId,
    range: Range<u64>,
    bytes_read: &mut Option<BytesRead>,
    now: Nanos,
    sink: &mut dyn AccessSink,
) {
    let bytes = range.end.saturating_sub(range.start);
    let is_counted = bytes_read.as_mut().is_none_or(|read| match read.left.checked_sub(bytes) {
        Some(left) => {
            read.left = left;
            true
        }
        // Some calls are not counted, those of io_uring and splice.
        None => read.new == 0,
    });
    if bytes > 0 && is_counted && is_cached(cursor, &range, sink) != Some(false) {
        return sink.read(now, cursor, &range, true);
    }
    sink.seek(now, cursor, range.end);
    // All that is known of a read is where it ended. But it may still come after the seek: then the
    // page before is not cached.
    let page = range.end.saturating_sub(1) / 4096 * 4096;
    let last = page..range.end;
    let has_read = bytes_read.is_none_or(|read| read.new > 0) && !last.is_empty();
    if has_read && is_cached(cursor, &last, sink) == Some(true) {
        sink.read(now, cursor, &last, false);
    }
}

/// Whether the pages of `range` are cached, as they must be right after a read; some may have been
/// evicted again. `None`: the kernel does not tell.
fn is_cached(cursor: CursorId, range: &Range<u64>, sink: &dyn AccessSink) -> Option<bool> {
    match kernel::cached(sink.file(cursor)?, range) {
        Ok(Residency::Pages(count)) => {
            let pages = kernel::pages(range);
            Some(count + pages / EVICTED_ONE_IN >= pages)
        }
        Ok(Residency::Unknown) | Err(_) => None,
    }
}

/// Opens a file of the process anew, and begins to follow a reader of it from its head.
pub(crate) fn follow(
    process: BorrowedFd<'_>,
    number: i32,
    inode: Inode,
    now: Nanos,
    sink: &mut dyn AccessSink,
) -> Option<CursorId> {
    let is_it = |stat: &Stat| (stat.st_dev, stat.st_ino) == inode;
    let (file, stat) = procfs::open_target(process, format!("fd/{number}"), is_it)?;
    sink.open(now, file, &stat, 0)
}

/// Whether a descriptor with these flags of `open(2)` reads through the page cache.
fn reads_page_cache(flags: u32) -> bool {
    let flags = OFlags::from_bits_retain(flags);
    let mode = flags & OFlags::ACCMODE;
    mode != OFlags::WRONLY && !flags.intersects(OFlags::DIRECT | OFlags::PATH)
}

/// The descriptor that `info` describes, if it still stands for the same file.
fn descriptor(info: &File, inode: Inode) -> Option<text::Descriptor> {
    let same = |found: &text::Descriptor| found.inode.is_none_or(|number| number == inode.1);
    procfs::read(info, text::descriptor).filter(same)
}

/// Files of a process that are followed.
const FILES_MAX: usize = 256;
/// More than a process reads between two polls.
const NOT_SHOWN_BYTES_MAX: u64 = 1 << 20;
/// Of pages that were just read, one in so many may have been evicted.
const EVICTED_ONE_IN: u64 = 8;
