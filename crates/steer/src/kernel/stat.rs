//! What the kernel knows of a file, without a question to its file system.
//!
//! An answer of a server would also change what the program sees: the kernel takes a new size for
//! every reader of the file.
//!
//! # Invariants
//! - No file system is asked, so none can block the call.
//! # Sources
//! statx(2), `AT_STATX_DONT_SYNC`; Linux `fs/fuse/dir.c` (`fuse_update_get_attr`).

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, makedev, statx};
use rustix::io::Errno;

/// The fields of `stat(2)` that are of use, by their names there.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "the names of stat(2)")]
pub(crate) struct Stat {
    pub(crate) st_dev: u64,
    pub(crate) st_ino: u64,
    pub(crate) st_mode: u32,
    pub(crate) st_nlink: u32,
    pub(crate) st_uid: u32,
    pub(crate) st_size: u64,
    /// Of a device.
    pub(crate) st_rdev: u64,
    /// Seconds and nanoseconds.
    pub(crate) st_mtime: (i64, u32),
    /// See `st_mtime`.
    pub(crate) st_ctime: (i64, u32),
}

/// What is known of the file of `fd`.
pub(crate) fn stat(fd: impl AsFd) -> Result<Stat, Errno> {
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(Stat::from(statx(fd, c"", how, StatxFlags::BASIC_STATS)?))
}

impl From<Statx> for Stat {
    fn from(stat: Statx) -> Self {
        Self {
            st_dev: makedev(stat.stx_dev_major, stat.stx_dev_minor),
            st_ino: stat.stx_ino,
            st_mode: u32::from(stat.stx_mode),
            st_nlink: stat.stx_nlink,
            st_uid: stat.stx_uid,
            st_size: stat.stx_size,
            st_rdev: makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
            st_mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            st_ctime: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        }
    }
}

impl Stat {
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.st_mode)
    }
}
