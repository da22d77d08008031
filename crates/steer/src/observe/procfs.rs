//! The files of `/proc`: opened through the folder of a process, read as text, parsed by [`text`].
//!
//! # Invariants
//! - Of a text no more is read than [`TEXT_BYTES_MAX`].

use std::fs::File;
use std::io::Read as _;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, StatxFlags, openat, statx};
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

/// The entries of the folder `name` in the folder of a process.
pub(crate) fn list_in(process: BorrowedFd<'_>, name: &str) -> Result<Dir, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Dir::new(openat(process, name, flags, Mode::empty())?)
}

/// The numbers of at most `max` threads of a process.
pub(crate) fn threads(process: BorrowedFd<'_>, max: usize) -> impl Iterator<Item = i32> {
    let entries = list_in(process, "task").into_iter().flat_map(Iterator::flatten);
    entries.filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).take(max)
}

/// The children of a thread of a process, where the kernel lists them.
pub(crate) fn children(process: BorrowedFd<'_>, thread: i32) -> Vec<i32> {
    let list = open_in(process, &format!("task/{thread}/children"));
    let list = list.and_then(|list| read_whole(list, CHILDREN_BYTES_MAX).ok()).unwrap_or_default();
    let pids = str::from_utf8(&list).unwrap_or_default().split_ascii_whitespace();
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

/// Whether a process has children that it has not waited for.
pub(crate) fn has_children(process: BorrowedFd<'_>) -> bool {
    threads(process, PARENTS_MAX).any(|thread| !children(process, thread).is_empty())
}

/// Links of the folder of a process's threads: each thread is one, and the folder has two more.
pub(crate) fn thread_links(process: BorrowedFd<'_>) -> Result<u32, Errno> {
    Ok(statx(process, "task", AtFlags::empty(), StatxFlags::NLINK)?.stx_nlink)
}

/// The text of `file`, `bytes_max` of it at most, read in few calls: the kernel does not tell how
/// long it is.
pub(crate) fn read_whole(file: File, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(TEXT_BYTES);
    file.take(bytes_max).read_to_end(&mut bytes)?;
    assert!(bytes.len() as u64 <= bytes_max, "no more is read than may be");
    Ok(bytes)
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
/// Threads of a process whose children are looked for.
pub(crate) const PARENTS_MAX: usize = 64;
/// Of a longer list of children the first are found, and others once those have ended.
const CHILDREN_BYTES_MAX: u64 = 16 << 10;
/// What a longer text than most takes.
const TEXT_BYTES: usize = 4 << 10;
/// The longest text of `/proc` that is read as a whole.
const TEXT_BYTES_MAX: usize = 1024;
