//! The files that a process has open, and where it is in each.
//!
//! ```text
//!   /proc/PID/fd        which descriptors there are, what they stand for
//!   /proc/PID/fdinfo/N  its position, its flags: a descriptor of this one is kept
//!   /proc/PID/io        how much it read: did it read its way to a new position, or seek there?
//! ```
//! A position is read from `fdinfo`, and not from a duplicate of the program's own descriptor: that
//! would keep the file open, and its locks held, after the program has closed it.
//!
//! # Invariants
//! - A file is opened once its position has moved, for reading alone, and closed when the look
//!   after its end finds the descriptor gone or used for another file.
//! - Regular files of [`BYTES_MIN`] and more, read through the page cache; at most [`OPEN_MAX`] of
//!   a process.
//! # Sources
//! proc(5); Linux `fs/proc/fd.c`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::path::Path;

use forerun_core::units::Nanos;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, open, openat, statat};
use rustix::io::{Errno, pread};

use crate::kernel::{self, Residency};
use crate::proc;
use crate::readers::{CursorId, Readers};

/// The open files of a process.
#[derive(Debug, Default)]
pub(crate) struct Files {
    open: BTreeMap<i32, OpenFile>,
    io: Option<File>,
    bytes_read: u64,
    /// Of that, bytes that no position has shown yet.
    not_shown: u64,
}

#[derive(Debug)]
struct OpenFile {
    info: File,
    key: (u64, u64),
    position: u64,
    lane: Option<CursorId>,
    /// It cannot be followed, or need not be.
    refused: bool,
}

/// What a process read since somebody asked, by all calls that the kernel counts, and what of it
/// and of before may show in positions.
#[derive(Clone, Copy, Debug)]
struct Grown {
    all: u64,
    left: u64,
}

impl Files {
    /// Takes in descriptors that are new. An error: this process may not look.
    pub(crate) fn discover(&mut self, process: BorrowedFd<'_>) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let list = openat(process, "fd", flags, Mode::empty())?;
        for entry in Dir::read_from(&list)? {
            let entry = entry?;
            let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
            let Some(number) = number else { continue };
            if self.open.contains_key(&number) || self.open.len() >= OPEN_MAX {
                continue;
            }
            if let Ok(stat) = statat(&list, entry.file_name(), AtFlags::empty()) {
                self.add(process, number, &stat);
            }
        }
        Ok(())
    }

    fn add(&mut self, process: BorrowedFd<'_>, number: i32, stat: &Stat) {
        if !is_worth_it(stat) {
            return;
        }
        let Some(info) = file(process, &format!("fdinfo/{number}")) else { return };
        let key = (stat.st_dev, stat.st_ino);
        let Some(descriptor) = told(&info, key) else { return };
        // Who has read nothing yet has come by the descriptor as it is, from a parent.
        let io = file(process, "io").and_then(|io| text(&io, proc::bytes_read));
        let position = if io == Some(0) { descriptor.position } else { 0 };
        let refused = !is_read(descriptor.flags);
        let open = OpenFile { info, key, position, lane: None, refused };
        self.open.insert(number, open);
    }

    /// Looks where the process is in its files, and tells `readers`. Whether it is elsewhere.
    pub(crate) fn look(
        &mut self,
        process: BorrowedFd<'_>,
        now: Nanos,
        readers: &mut dyn Readers,
    ) -> bool {
        let mut moved = Vec::new();
        self.open.retain(|&number, file| {
            let descriptor = told(&file.info, file.key);
            match (descriptor, file.lane) {
                (Some(descriptor), _) => {
                    if descriptor.position != file.position && !file.refused {
                        moved.push((number, descriptor.position));
                    }
                }
                (None, Some(lane)) => readers.close(now, lane),
                (None, None) => {}
            }
            descriptor.is_some()
        });
        if moved.is_empty() {
            return false;
        }
        let mut grown = self.grown(process);
        for (number, to) in moved {
            let Some(file) = self.open.get_mut(&number) else { continue };
            let from = std::mem::replace(&mut file.position, to);
            if file.lane.is_none() {
                file.lane = follow(process, number, file.key, now, readers);
                file.refused = file.lane.is_none();
            }
            if let Some(lane) = file.lane {
                tell(lane, from..to, &mut grown, now, readers);
            }
        }
        // A read that was counted after the positions were looked at shows at the next look.
        self.not_shown = grown.map_or(0, |grown| grown.left.min(NOT_SHOWN_MAX));
        true
    }

    /// It is known by other means what is read by the descriptor `number`, as long as that stands
    /// for the same file. Whether it was known.
    pub(crate) fn leave(&mut self, number: i32, now: Nanos, readers: &mut dyn Readers) -> bool {
        let Some(file) = self.open.get_mut(&number) else { return false };
        file.refused = true;
        if let Some(lane) = file.lane.take() {
            readers.close(now, lane);
        }
        true
    }

    /// The process is gone.
    pub(crate) fn close(&mut self, now: Nanos, readers: &mut dyn Readers) {
        for (_, file) in std::mem::take(&mut self.open) {
            if let Some(lane) = file.lane {
                readers.close(now, lane);
            }
        }
    }

    fn grown(&mut self, process: BorrowedFd<'_>) -> Option<Grown> {
        if self.io.is_none() {
            self.io = file(process, "io");
        }
        let bytes = text(self.io.as_ref()?, proc::bytes_read)?;
        let before = std::mem::replace(&mut self.bytes_read, bytes);
        let all = bytes.saturating_sub(before);
        Some(Grown { all, left: all + self.not_shown })
    }
}

/// The position went from one end of `range` to the other: was that read?
fn tell(
    lane: CursorId,
    range: Range<u64>,
    grown: &mut Option<Grown>,
    now: Nanos,
    readers: &mut dyn Readers,
) {
    let bytes = range.end.saturating_sub(range.start);
    let is_counted = grown.as_mut().is_none_or(|grown| match grown.left.checked_sub(bytes) {
        Some(left) => {
            grown.left = left;
            true
        }
        // There are calls that are not counted, io_uring's and splice.
        None => grown.all == 0,
    });
    if bytes > 0 && is_counted && are_there(lane, &range, readers) != Some(false) {
        return readers.read(now, lane, &range, true);
    }
    readers.seek(now, lane, range.end);
    // All that is known of a read is where it ended. But it may have to come yet, after the seek:
    // then the page before is not there.
    let page = range.end.saturating_sub(1) / 4096 * 4096;
    let last = page..range.end;
    let has_read = grown.is_none_or(|grown| grown.all > 0) && !last.is_empty();
    if has_read && are_there(lane, &last, readers) == Some(true) {
        readers.read(now, lane, &last, false);
    }
}

/// Whether the pages of `range` are cached, as they must be if somebody has just read them; some
/// may have gone again. `None`: the kernel does not tell.
fn are_there(lane: CursorId, range: &Range<u64>, readers: &dyn Readers) -> Option<bool> {
    match kernel::cached(readers.file(lane)?, range) {
        Ok(Residency::Pages(count)) => {
            let pages = kernel::pages(range);
            Some(count + pages / GONE_ONE_IN >= pages)
        }
        Ok(Residency::Unknown) | Err(_) => None,
    }
}

/// Opens a file of the process anew and has it followed from its head.
pub(crate) fn follow(
    process: BorrowedFd<'_>,
    number: i32,
    key: (u64, u64),
    now: Nanos,
    readers: &mut dyn Readers,
) -> Option<CursorId> {
    let is_it = |stat: &Stat| (stat.st_dev, stat.st_ino) == key;
    let (file, stat) = open_of(process, format!("fd/{number}"), is_it)?;
    readers.open(now, file, &stat, 0)
}

/// Opens what the folder of a process has at `name` for reading, if it is worth it and `is_it`.
pub(crate) fn open_of(
    process: BorrowedFd<'_>,
    name: impl AsRef<OsStr>,
    is_it: impl FnOnce(&Stat) -> bool,
) -> Option<(File, Stat)> {
    // Looked at before it is opened: opening something else could do something.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let place = openat(process, name.as_ref(), flags, Mode::empty()).ok()?;
    let stat = fstat(&place).ok().filter(|stat| is_worth_it(stat) && is_it(stat))?;
    let path = format!("/proc/self/fd/{}", place.as_fd().as_raw_fd());
    Some((open_for_reading(&path)?, stat))
}

/// Opens `path` for reading; its access time stays where that may be asked for.
pub(crate) fn open_for_reading(path: impl AsRef<Path>) -> Option<File> {
    let path = path.as_ref();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = open(path, flags | OFlags::NOATIME, Mode::empty());
    opened.or_else(|_| open(path, flags, Mode::empty())).ok().map(File::from)
}

pub(crate) fn is_worth_it(stat: &Stat) -> bool {
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_regular && u64::try_from(stat.st_size).is_ok_and(|bytes| bytes >= BYTES_MIN)
}

/// Whether flags of `open(2)` let the page cache be read.
fn is_read(flags: u32) -> bool {
    let flags = OFlags::from_bits_retain(flags);
    let mode = flags & OFlags::ACCMODE;
    mode != OFlags::WRONLY && !flags.intersects(OFlags::DIRECT | OFlags::PATH)
}

/// What is told of a descriptor, if it still stands for the same file.
fn told(info: &File, key: (u64, u64)) -> Option<proc::Descriptor> {
    text(info, proc::descriptor).filter(|file| file.inode.is_none_or(|inode| inode == key.1))
}

/// The file `name` of the folder of a process in `/proc`.
pub(crate) fn file(process: BorrowedFd<'_>, name: &str) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat(process, name, flags, Mode::empty()).ok().map(File::from)
}

/// What `parse` makes of the text of a file in `/proc`, which is read from its start.
pub(crate) fn text<T>(file: &File, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut bytes = [0; 1024];
    let count = pread(file, &mut bytes, 0).ok()?;
    parse(&String::from_utf8_lossy(&bytes[..count]))
}

/// The kernel's own readahead is at the end of a smaller file before anybody has seen it.
pub(crate) const BYTES_MIN: u64 = 256 << 10;
/// Files that are followed in a process.
const OPEN_MAX: usize = 256;
/// More than is read between two looks at one process.
const NOT_SHOWN_MAX: u64 = 1 << 20;
/// Of what was just read, one page in so many may have left the cache.
const GONE_ONE_IN: u64 = 8;
