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
//! A root is known by what it is; a handle of it, which holds its mount, is kept while its owner
//! says, and had anew from a process that sees it.
//!
//! A path that was learned some time ago is gone by root's links and the user's own alone.
//!
//! # Invariants
//! - An entry is a handle that opens nothing, until its kind is known.
//! - Nothing lies outside of the root of the process, whichever handle of it is used: each is
//!   compared with what the root is.
//! - A root is opened by rights that a process had while it saw that root.
//! # Sources
//! `openat2(2)`; Linux `fs/namei.c` (`follow_automount`: a handle that is not opened as a directory
//! mounts nothing).

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, makedev, openat, openat2,
    readlinkat, statx,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::rights::Rights;
use super::{HANDLE, IN_TURN, KERNELS_OWN, OwnDescriptors, READING, Refusal, file_system};
use crate::kernel::{Stat, stat};

/// The root that a process sees, and the rights that it goes by.
#[derive(Debug)]
pub(crate) struct View {
    /// Its mount, device and inode.
    root: Identity,
    rights: Arc<Rights>,
}

impl View {
    /// That of the process with this folder in `/proc`, now.
    ///
    /// # Errors
    /// The process has ended, or may not be looked into.
    pub(crate) fn of(process: BorrowedFd<'_>) -> Result<Self, Refusal> {
        let rights = Arc::new(Rights::of(process)?);
        Ok(Self { root: identity(process, "root")?, rights })
    }

    /// That of this thread.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub(crate) fn own() -> Result<Self, Refusal> {
        let folder = openat(CWD, "/proc/thread-self", HANDLE | OFlags::DIRECTORY, Mode::empty());
        Self::of(folder.map_err(Refusal::Absent)?.as_fd())
    }

    /// Whether each path stands for what it stands for in `other`, and all that may be opened there
    /// may be opened by these rights, too.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.root == other.root && other.rights.is_within(&self.rights)
    }
}

/// The root of a [`View`], to be opened by its rights.
#[derive(Debug)]
pub(crate) struct Root {
    /// Its mount, device and inode.
    identity: Identity,
    rights: Arc<Rights>,
    /// This process has rights that the program has not.
    is_above: bool,
    /// It is the root of this process, too, which has no other rights.
    is_own: bool,
    sight: Mutex<Sight>,
}

type Identity = [u64; 3];

/// Where a handle of a root is had from.
#[derive(Debug)]
struct Sight {
    /// None while the root is not used: it would hold the mount.
    handle: Option<Arc<OwnedFd>>,
    /// The folder in `/proc` of the process that was met last.
    process: OwnedFd,
}

impl Root {
    /// That of the process with this folder in `/proc`, with a handle.
    ///
    /// # Errors
    /// See [`View::of`].
    pub(crate) fn of(process: BorrowedFd<'_>) -> Result<Self, Refusal> {
        Self::seen(process, View::of(process)?)
    }

    /// That of `view`, of the process with this folder in `/proc`, with a handle.
    ///
    /// # Errors
    /// The process has ended, or has another view by now.
    pub(crate) fn seen(process: BorrowedFd<'_>, view: View) -> Result<Self, Refusal> {
        let View { root, rights } = view;
        let (handle, now) = seen_by(process)?;
        if now != root || Rights::of(process)? != *rights {
            return Err(Refusal::Changed);
        }
        let is_above = rights.are_less_than_own()?;
        let is_own = !is_above && identity(CWD, "/").is_ok_and(|own| own == root);
        let sight = Mutex::new(Sight { handle: Some(Arc::new(handle)), process: copy(process)? });
        Ok(Self { identity: root, rights, is_above, is_own, sight })
    }

    /// Whether it is the root of this process, seen by all of its rights.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Whether it is what a process with `view` sees, by the same rights.
    pub(crate) fn is_of(&self, view: &View) -> bool {
        self.identity == view.root && self.rights == view.rights
    }

    /// Has handles from `process` from now on, which sees it.
    ///
    /// # Errors
    /// There is no descriptor for it.
    pub(crate) fn renew(&self, process: BorrowedFd<'_>) -> Result<(), Refusal> {
        let process = copy(process)?;
        let before = std::mem::replace(&mut self.lock().process, process);
        drop(before);
        Ok(())
    }

    /// Keeps a handle, if one can be had, until [`Root::release`].
    pub(crate) fn keep(&self) {
        if self.lock().handle.is_none()
            && let Ok(handle) = self.handle()
        {
            self.lock().handle = Some(handle);
        }
    }

    /// Gives the handle up, if one is kept: calls that have it go on with it.
    pub(crate) fn release(&self) {
        let handle = self.lock().handle.take();
        drop(handle);
    }

    /// A handle: the kept one, that of this process's own root, or one from a process that sees it.
    fn handle(&self) -> Result<Arc<OwnedFd>, Refusal> {
        let sight = self.lock();
        if let Some(handle) = &sight.handle {
            return Ok(Arc::clone(handle));
        }
        let process = sight.process.try_clone();
        drop(sight);
        let own = openat(CWD, "/", HANDLE | OFlags::DIRECTORY, Mode::empty());
        if let Ok(own) = own
            && identity(own.as_fd(), "")? == self.identity
        {
            return Ok(Arc::new(own));
        }
        let process = process.map_err(|why| Refusal::Closed(errno(&why)))?;
        let (handle, now) = seen_by(process.as_fd())?;
        if now == self.identity { Ok(Arc::new(handle)) } else { Err(Refusal::Changed) }
    }

    fn lock(&self) -> MutexGuard<'_, Sight> {
        self.sight.lock().unwrap_or_else(PoisonError::into_inner)
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
        let place = openat2(self.handle()?, path, HANDLE | OFlags::DIRECTORY, Mode::empty(), how);
        as_directory(place.map_err(Refusal::Absent)?)
    }
}

/// A handle of the root of the process with this folder in `/proc`.
fn seen_by(process: BorrowedFd<'_>) -> Result<(OwnedFd, Identity), Refusal> {
    let handle = openat(process, "root", HANDLE | OFlags::DIRECTORY, Mode::empty());
    let handle = handle.map_err(Refusal::Absent)?;
    let identity = identity(handle.as_fd(), "")?;
    Ok((handle, identity))
}

/// The mount, device and inode of what `path` leads to from `place`, or of that. Linux before 6.8
/// numbers a mount as one that is gone.
fn identity(place: BorrowedFd<'_>, path: &str) -> Result<Identity, Refusal> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let mask = StatxFlags::INO | StatxFlags::MNT_ID | MNT_ID_UNIQUE;
    let stat = statx(place, path, flags, mask).map_err(Refusal::Absent)?;
    Ok([stat.stx_mnt_id, makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino])
}

fn copy(process: BorrowedFd<'_>) -> Result<OwnedFd, Refusal> {
    process.try_clone_to_owned().map_err(|why| Refusal::Closed(errno(&why)))
}

fn errno(why: &std::io::Error) -> Errno {
    Errno::from_io_error(why).unwrap_or(Errno::IO)
}

/// Links of a path, as the kernel has it, and steps that are left.
const LINKS_MAX: u32 = 40;
const STEPS_MAX: usize = 4_096;
/// `STATX_MNT_ID_UNIQUE`, Linux 6.8.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

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
    not_the_kernels_own(go(path, ResolveFlags::NO_MAGICLINKS).map_err(Refusal::Absent)?)
}

/// What lies at the full `path`, which the program has used some time ago: as [`on_the_way`], but
/// no link is followed that is neither root's nor this user's. Another user may have put it there
/// since, to have something opened that only this user may open.
///
/// # Errors
/// See [`Refusal`]; [`Refusal::Rights`] for such a link.
pub(crate) fn on_a_safe_way(path: &[u8]) -> Result<(OwnedFd, Stat), Refusal> {
    let place = match go(path, ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS) {
        Err(Errno::LOOP) => go_by_safe_links(path)?,
        gone => gone.map_err(Refusal::Absent)?,
    };
    not_the_kernels_own(place)
}

fn go(path: &[u8], how: ResolveFlags) -> Result<OwnedFd, Errno> {
    assert!(path.starts_with(b"/"), "a full path");
    openat2(CWD, OsStr::from_bytes(path), HANDLE, Mode::empty(), how)
}

/// Goes the full `path` step by step, and looks at each link before it is followed.
fn go_by_safe_links(path: &[u8]) -> Result<OwnedFd, Refusal> {
    let (flags, user) = (HANDLE | OFlags::NOFOLLOW, geteuid().as_raw());
    let root = || openat(CWD, "/", HANDLE | OFlags::DIRECTORY, Mode::empty());
    let (mut at, mut links) = (root().map_err(Refusal::Absent)?, 0);
    // The steps that are left, the next one last.
    let mut steps: Vec<Vec<u8>> = path.rsplit(|&byte| byte == b'/').map(<[u8]>::to_vec).collect();
    while let Some(step) = steps.pop() {
        if step.is_empty() {
            continue;
        }
        let step = OsStr::from_bytes(&step);
        let next = openat2(&at, step, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
        let next = next.map_err(Refusal::Absent)?;
        let stat = stat(&next).map_err(Refusal::Absent)?;
        if stat.kind() != FileType::Symlink {
            at = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Refusal::Absent(Errno::LOOP));
        }
        let system = file_system(&next)?;
        if KERNELS_OWN.contains(&system) {
            return Err(Refusal::Kind);
        }
        // Whose a link is a server of a user's says as it likes.
        if ![0, user].contains(&stat.st_uid) || user == 0 && system == IN_TURN {
            return Err(Refusal::Rights);
        }
        let target = readlinkat(&next, "", Vec::new()).map_err(Refusal::Absent)?.into_bytes();
        if target.starts_with(b"/") {
            at = root().map_err(Refusal::Absent)?;
        }
        steps.extend(target.rsplit(|&byte| byte == b'/').map(<[u8]>::to_vec));
        if steps.len() > STEPS_MAX {
            return Err(Refusal::Absent(Errno::NAMETOOLONG));
        }
    }
    Ok(at)
}

/// `place`, if it lies on no file system of the kernel's own.
fn not_the_kernels_own(place: OwnedFd) -> Result<(OwnedFd, Stat), Refusal> {
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
