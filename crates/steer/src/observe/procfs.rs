//! The files of `/proc`: opened through the folder of a process, read as text, parsed by [`text`].
//!
//! # Invariants
//! - Of a text no more is read than [`TEXT_BYTES_MAX`].

use std::fs::File;
use std::os::fd::BorrowedFd;

use rustix::fs::{Dir, FileType, Mode, OFlags, openat};
use rustix::io::{Errno, pread};

use crate::kernel::Stat;

pub(crate) mod text;

/// The file `name` in the folder of a process.
pub(crate) fn open_in(process: BorrowedFd<'_>, name: &str) -> Option<File> {
    try_open_in(process, name).ok()
}

/// The file `name` in the folder of a process, or why it cannot be opened.
pub(crate) fn try_open_in(process: BorrowedFd<'_>, name: &str) -> Result<File, Errno> {
    openat(process, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(File::from)
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

/// Whether observers follow files such as that of `stat`.
pub(crate) fn is_followed(stat: &Stat) -> bool {
    stat.kind() == FileType::RegularFile && stat.st_size >= FOLLOWED_BYTES_MIN
}

/// The kernel's own readahead is at the end of a smaller file before a poll sees it.
pub(crate) const FOLLOWED_BYTES_MIN: u64 = 256 << 10;
/// The longest text of `/proc` that is read as a whole.
const TEXT_BYTES_MAX: usize = 1024;
