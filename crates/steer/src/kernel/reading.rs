//! Descriptors that read, opened without an effect of their own.
//!
//! # Invariants
//! - Opening waits for no lease, pipe or terminal; the access time stays where that is allowed.
//! # Sources
//! open(2): `O_NOATIME` is for the owner of a file.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::path::Arg;

/// Opens what `path` stands for; `how` holds besides.
pub(crate) fn open_for_reading(path: impl Arg + Copy, how: OFlags) -> Result<File, Errno> {
    let how = how | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = match open(path, how | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => open(path, how, Mode::empty()),
        opened => opened,
    };
    opened.map(File::from)
}

/// Opens the file of `fd` once more, whatever its name stands for by now.
pub(crate) fn open_again(fd: impl AsFd) -> Result<File, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    open_for_reading(&path, OFlags::empty())
}
