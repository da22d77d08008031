//! Entries of directories, below the root of a process: opened like any file of a program, without
//! a process that has them open.
//!
//! ```text
//!   root of the process --path, as the program goes--> directory --name, one step--> entry
//!                                                          `--name, one step--> directory
//! ```
//! The program has gone the path, so links and mounts on it are its own. The step to an entry
//! crosses nothing: no link is followed, and no file system is mounted or entered.
//!
//! # Invariants
//! - An entry is a handle that opens nothing, until its kind is known.
//! - Nothing lies outside of the root of the process.
//! # Sources
//! `openat2(2)`; Linux `fs/namei.c` (`follow_automount`: a handle that is not opened as a directory
//! mounts nothing).

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, openat, openat2, statx,
};
use rustix::io::Errno;

use super::rights::Rights;
use super::{HANDLE, IN_TURN, KERNELS_OWN, OwnDescriptors, READING, Refusal, file_system};
use crate::kernel::{Stat, stat};

/// The root that a process sees, and the rights that it goes by.
#[derive(Debug)]
pub(crate) struct Root {
    handle: OwnedFd,
    identity: [u64; 3],
    rights: Arc<Rights>,
    /// This process has rights that the program has not.
    is_above: bool,
}

impl Root {
    /// That of the process with this folder in `/proc`.
    ///
    /// # Errors
    /// The process has ended, or may not be looked into.
    pub(crate) fn of(process: BorrowedFd<'_>) -> Result<Self, Refusal> {
        let rights = Rights::of(process)?;
        let handle = openat(process, "root", HANDLE | OFlags::DIRECTORY, Mode::empty());
        let handle = handle.map_err(Refusal::Absent)?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let mask = StatxFlags::INO | StatxFlags::MNT_ID;
        let mount = statx(&handle, "", flags, mask).map_err(Refusal::Absent)?.stx_mnt_id;
        let stat = stat(&handle).map_err(Refusal::Absent)?;
        let identity = [mount, stat.st_dev, stat.st_ino];
        let is_above = rights.are_less_than_own()?;
        Ok(Self { handle, identity, rights: Arc::new(rights), is_above })
    }

    /// Whether processes with `self` and `other` see the same, by the same rights.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.identity == other.identity && self.rights == other.rights
    }

    /// The rights that a thread has to take on before it opens anything below this root.
    pub(crate) fn rights_to_take_on(&self) -> Option<&Arc<Rights>> {
        self.is_above.then_some(&self.rights)
    }

    /// The directory at `path`, which the program has gone.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub(crate) fn directory(&self, path: &[u8]) -> Result<(OwnedFd, Stat), Refusal> {
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let path = if path.is_empty() { b".".as_slice() } else { path };
        assert!(path[0] != b'/', "a path goes from the root");
        let path = OsStr::from_bytes(path);
        let place = openat2(&self.handle, path, HANDLE | OFlags::DIRECTORY, Mode::empty(), how);
        as_directory(place.map_err(Refusal::Absent)?)
    }
}

/// The entry `name` of `directory`.
///
/// # Errors
/// It is not there, or another file system is mounted on it.
pub(crate) fn entry(directory: impl AsFd, name: &[u8]) -> Result<(OwnedFd, Stat), Refusal> {
    assert!(!name.is_empty() && !name.contains(&b'/'), "an entry is one step");
    let how = ResolveFlags::BENEATH
        | ResolveFlags::NO_XDEV
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS;
    let flags = HANDLE | OFlags::NOFOLLOW;
    let place = openat2(directory, OsStr::from_bytes(name), flags, Mode::empty(), how);
    let place = place.map_err(Refusal::Absent)?;
    let stat = stat(&place).map_err(Refusal::Absent)?;
    Ok((place, stat))
}

/// The directory `name` of `directory`.
///
/// # Errors
/// See [`Refusal`].
pub(crate) fn subdirectory(directory: impl AsFd, name: &[u8]) -> Result<(OwnedFd, Stat), Refusal> {
    as_directory(entry(directory, name)?.0)
}

/// What lies at the full `path`, as this process and those with its root and rights see it: links
/// are followed, and what lies on a file system of the kernel's own is refused.
///
/// # Errors
/// See [`Refusal`].
pub(crate) fn on_the_way(path: &[u8]) -> Result<(OwnedFd, Stat), Refusal> {
    assert!(path.starts_with(b"/"), "a full path");
    let how = ResolveFlags::NO_MAGICLINKS;
    let place = openat2(CWD, OsStr::from_bytes(path), HANDLE, Mode::empty(), how);
    let place = place.map_err(Refusal::Absent)?;
    if KERNELS_OWN.contains(&file_system(&place)?) {
        return Err(Refusal::Kind);
    }
    let stat = stat(&place).map_err(Refusal::Absent)?;
    Ok((place, stat))
}

/// Opens the directory that `place` is a handle of, for listing it.
///
/// # Errors
/// The rights of this thread do not allow it.
pub(crate) fn listable(
    place: &OwnedFd,
    descriptors: Option<&OwnDescriptors>,
) -> Result<OwnedFd, Refusal> {
    let flags = READING | OFlags::DIRECTORY;
    let open = |flags| OwnDescriptors::open_again(descriptors, place, flags);
    let opened = match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        opened => opened,
    };
    opened.map_err(Refusal::Closed)
}

/// `place`, if it is a directory of a file system on which entries can be fetched ahead: none of
/// the kernel's own, and none that has calls in turn.
fn as_directory(place: OwnedFd) -> Result<(OwnedFd, Stat), Refusal> {
    let stat = stat(&place).map_err(Refusal::Absent)?;
    if stat.kind() != FileType::Directory {
        return Err(Refusal::Kind);
    }
    let kind = file_system(&place)?;
    if kind == IN_TURN || KERNELS_OWN.contains(&kind) {
        return Err(Refusal::Kind);
    }
    Ok((place, stat))
}
