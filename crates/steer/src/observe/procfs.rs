//! The files of `/proc`: opened through the folder of a process, read as text, parsed by [`text`].
//!
//! # Invariants
//! - A program's file is opened only after its type and size are known: opening anything else could
//!   have an effect.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::path::Path;

use rustix::fs::{Dir, FileType, Mode, OFlags, Stat, fstat, open, openat};
use rustix::io::{Errno, pread};

pub(crate) mod text;

/// The file `name` in the folder of a process.
pub(crate) fn open_in(process: BorrowedFd<'_>, name: &str) -> Option<File> {
    openat(process, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok().map(File::from)
}

/// The entries of the folder `name` in the folder of a process, with that folder.
pub(crate) fn list_in(process: BorrowedFd<'_>, name: &str) -> Result<(File, Dir), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(process, name, flags, Mode::empty())?;
    let entries = Dir::read_from(&folder)?;
    Ok((folder.into(), entries))
}

/// The numbers of at most `max` threads of a process.
pub(crate) fn threads(process: BorrowedFd<'_>, max: usize) -> impl Iterator<Item = i32> {
    let entries = list_in(process, "task").into_iter().flat_map(|(_, entries)| entries.flatten());
    entries.filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).take(max)
}

/// What `parse` makes of the text of `file`, read from its start.
pub(crate) fn read<T>(file: &File, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut bytes = [0; TEXT_BYTES_MAX];
    let count = pread(file, &mut bytes, 0).ok()?;
    assert!(count <= bytes.len(), "a read fills no more than its buffer");
    parse(&String::from_utf8_lossy(&bytes[..count]))
}

/// Opens the file that `name` in the folder of a process leads to, for reading, if observers follow
/// such files and `is_it` holds.
pub(crate) fn open_target(
    process: BorrowedFd<'_>,
    name: impl AsRef<OsStr>,
    is_it: impl FnOnce(&Stat) -> bool,
) -> Option<(File, Stat)> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let place = openat(process, name.as_ref(), flags, Mode::empty()).ok()?;
    let stat = fstat(&place).ok().filter(|stat| is_followed(stat) && is_it(stat))?;
    let path = format!("/proc/self/fd/{}", place.as_fd().as_raw_fd());
    Some((open_for_reading(&path)?, stat))
}

/// Opens `path` for reading; its access time stays where the system allows that.
pub(crate) fn open_for_reading(path: impl AsRef<Path>) -> Option<File> {
    let path = path.as_ref();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = open(path, flags | OFlags::NOATIME, Mode::empty());
    opened.or_else(|_| open(path, flags, Mode::empty())).ok().map(File::from)
}

/// Whether `stat` is of a regular file.
pub(crate) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Whether observers follow files such as that of `stat`.
pub(crate) fn is_followed(stat: &Stat) -> bool {
    is_regular(stat) && u64::try_from(stat.st_size).is_ok_and(|bytes| bytes >= FOLLOWED_BYTES_MIN)
}

/// The kernel's own readahead is at the end of a smaller file before a poll sees it.
const FOLLOWED_BYTES_MIN: u64 = 256 << 10;
/// The longest text of `/proc` that is read as a whole.
const TEXT_BYTES_MAX: usize = 1024;
