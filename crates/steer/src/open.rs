//! The files of a program, opened for reading: a process and a name go in, a checked descriptor or
//! a refusal comes out.
//!
//! ```text
//!   descriptor N    /proc/PID/fd/N               \                    kind, identity,
//!   mapping         /proc/PID/map_files/A-B       >--O_PATH handle--> locks           --> reading
//!   path            openat2 in /proc/PID/root    /                    |
//!   by the program's own rights, where this process has more          `--> Refusal
//! ```
//! The name is the program's choice, and may stand for another file at any moment. So what is
//! looked at is a handle that opens nothing (`O_PATH`), and what is opened is that handle.
//!
//! # Invariants
//! - Regular files alone are opened, of no file system of the kernel's own; no pipe, device or
//!   socket is, whatever a name stands for meanwhile.
//! - A path is resolved below the root of its process; no symbolic link is followed.
//! - A mapping is opened of a process that has all the rights of this one; callers have found that
//!   its root is no other.
//! - Nothing is opened that the program's own user, groups and capabilities could not open.
//! - A file on which the program holds a lease or a lock of an open file description is left
//!   alone, and so is a descriptor that can only be written.
//! - Opening waits for no lease and no terminal; the access time stays where that is allowed.
//! # Sources
//! `openat2(2)`, `open(2)`, proc(5); Linux `fs/locks.c` (`check_conflicting_open`: a handle that
//! opens nothing is not in the way of a lease).

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstatfs, major, makedev,
    open as open_path, openat, openat2, readlinkat, statx,
};
use rustix::io::Errno;

use crate::kernel::{Stat, open_again, stat};
pub(crate) use locks::{LeaseList, is_listing, reads_page_cache, writes};
pub(crate) use rights::Rights;

pub(crate) mod entries;
mod locks;
mod rights;
pub(crate) mod views;

/// What a file of a program is known by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Name<'a> {
    /// The number of a descriptor of the program.
    Descriptor(i32),
    /// The addresses of a mapping of the program, for which a capability is needed.
    Mapping(u64, u64),
    /// A full path, as the program sees it.
    Path(&'a OsStr),
}

/// Why a file is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The name stands for nothing that can be looked at.
    Absent(Errno),
    /// The process has the file from outside of its root.
    Outside,
    /// It stands for no regular file, or for one of the kernel's own.
    Kind,
    /// It stands for another file by now.
    Changed,
    /// The descriptor can only be written, or reads past the page cache.
    Unread,
    /// A lease or lock of the program's would notice.
    Locked,
    /// The rights of the program cannot be had.
    Rights,
    /// The system, or the program's rights, do not allow it.
    Closed(Errno),
}

/// A file that a name stands for, not opened yet.
#[derive(Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) stat: Stat,
    process: BorrowedFd<'a>,
    place: &'a OwnedFd,
}

/// Opens the file that `name` stands for in the process with this folder in `/proc`, if it is one
/// for which `is_it` holds.
///
/// # Errors
/// See [`Refusal`].
pub(crate) fn open(
    process: BorrowedFd<'_>,
    name: Name<'_>,
    is_it: impl FnOnce(&Candidate<'_>) -> bool,
) -> Result<(File, Stat), Refusal> {
    let rights = Rights::of(process)?;
    let place = match name {
        Name::Descriptor(number) => {
            openat(process, format!("fd/{number}"), HANDLE, Mode::empty()).map_err(Refusal::Absent)
        }
        // It may have been opened by rights that were given up since.
        Name::Mapping(..) if rights.are_less_than_own()? => Err(Refusal::Rights),
        Name::Mapping(start, end) => {
            openat(process, mapping(start, end), HANDLE, Mode::empty()).map_err(Refusal::Absent)
        }
        Name::Path(path) => resolve(process, path, &rights),
    }?;
    let stat = regular(&place)?;
    if !is_it(&Candidate { stat, process, place: &place }) {
        return Err(Refusal::Changed);
    }
    match name {
        Name::Descriptor(number) => locks::check_descriptor(process, number, stat.st_ino)?,
        Name::Mapping(..) | Name::Path(_) => locks::check_file(stat.st_ino)?,
    }
    let file = rights.act(|| reopen(&place))??;
    checked(file, &stat)
}

/// Opens the file at `path`, which the user of this process named.
///
/// # Errors
/// See [`Refusal`].
pub(crate) fn open_named(path: &Path) -> Result<(File, Stat), Refusal> {
    let place = open_path(path, HANDLE, Mode::empty()).map_err(Refusal::Absent)?;
    let stat = regular(&place)?;
    locks::check_file(stat.st_ino)?;
    checked(reopen(&place)?, &stat)
}

/// The link to the file that a process has mapped to these addresses, in its folder in `/proc`.
pub(crate) fn mapping(start: u64, end: u64) -> String {
    format!("map_files/{start:x}-{end:x}")
}

/// Whether `stat` is of a regular file.
pub(crate) fn is_regular(stat: &Stat) -> bool {
    stat.kind() == FileType::RegularFile
}

/// The path, as a process sees it, of what this process sees at `path`: a list of mappings has the
/// paths of its reader. None where it lies outside of the root of the process.
pub(crate) fn as_seen_by<'a>(process: BorrowedFd<'_>, path: &'a OsStr) -> Option<&'a OsStr> {
    let root = readlinkat(process, "root", Vec::new()).ok()?;
    let root = root.to_bytes();
    if root == b"/" {
        return Some(path);
    }
    let rest = path.as_bytes().strip_prefix(root)?;
    if rest.is_empty() {
        return Some(OsStr::new("/"));
    }
    rest.starts_with(b"/").then_some(OsStr::from_bytes(rest))
}

impl Candidate<'_> {
    /// Whether it lies on `device`, as lists of mappings and locks call it: on some file systems a
    /// file has a number of its own for that (Btrfs).
    pub(crate) fn is_on(&self, device: u64) -> bool {
        self.stat.st_dev == device || self.device_of_mount() == Some(device)
    }

    /// The device of the mount that it was found by.
    fn device_of_mount(&self) -> Option<u64> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let mount = statx(self.place, "", flags, StatxFlags::MNT_ID).ok()?;
        if mount.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
            return None;
        }
        let list = openat(self.process, "mountinfo", READING, Mode::empty()).ok()?;
        let mut text = String::new();
        File::from(list).take(MOUNTS_BYTES_MAX).read_to_string(&mut text).ok()?;
        let mut lines = text.lines().map(|line| line.split_ascii_whitespace());
        let found = lines.find_map(|mut words| {
            let is_it = words.next()?.parse() == Ok(mount.stx_mnt_id);
            is_it.then(|| words.nth(1)).flatten()
        })?;
        let (major, minor) = found.split_once(':')?;
        Some(makedev(major.parse().ok()?, minor.parse().ok()?))
    }
}

/// The handle of what lies at `path` in the root of a process.
fn resolve(process: BorrowedFd<'_>, path: &OsStr, rights: &Rights) -> Result<OwnedFd, Refusal> {
    let root = openat(process, "root", HANDLE | OFlags::DIRECTORY, Mode::empty());
    let root = root.map_err(Refusal::Absent)?;
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rights.act(|| openat2(&root, path, HANDLE, Mode::empty(), how))?.map_err(Refusal::Absent)
}

/// What `place` is a handle of, if that is a regular file with pages.
fn regular(place: &OwnedFd) -> Result<Stat, Refusal> {
    let stat = stat(place).map_err(Refusal::Absent)?;
    if !is_regular(&stat) {
        return Err(Refusal::Kind);
    }
    // A file system on a device is none of the kernel's own.
    if major(stat.st_dev) == 0 && KERNELS_OWN.contains(&file_system(place)?) {
        return Err(Refusal::Kind);
    }
    Ok(stat)
}

/// The kind of file system that `place` lies on, by `statfs(2)`.
fn file_system(place: impl AsFd) -> Result<u32, Refusal> {
    let kind = fstatfs(place).map_err(Refusal::Absent)?.f_type;
    // The type's width differs between machines, its numbers do not.
    #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "32 bits")]
    Ok(kind as u32)
}

/// Whether `place`, which `stat` was asked of, lies on a file system that keeps all in memory.
pub(crate) fn is_in_memory(place: impl AsFd, stat: &Stat) -> bool {
    // A file system on a device does not.
    major(stat.st_dev) == 0 && file_system(place).is_ok_and(|kind| IN_MEMORY.contains(&kind))
}

/// Opens the file that `place` is a handle of, which was found below a directory of no file system
/// of the kernel's own, unless there is a lease in `leases`.
///
/// # Errors
/// See [`Refusal`].
pub(crate) fn open_found(
    place: &OwnedFd,
    stat: &Stat,
    leases: &LeaseList,
    descriptors: Option<&OwnDescriptors>,
) -> Result<(File, Stat), Refusal> {
    if !is_regular(stat) {
        return Err(Refusal::Kind);
    }
    if leases.has(stat.st_ino) {
        return Err(Refusal::Locked);
    }
    let open = |flags| OwnDescriptors::open_again(descriptors, place, flags);
    let file = match open(OPENING | OFlags::NOATIME) {
        Err(Errno::PERM) => open(OPENING),
        opened => opened,
    };
    // The handle is this process's own, so what it was opened by is the file that was looked at.
    Ok((file.map_err(Refusal::Closed)?.into(), *stat))
}

/// The folder of this process's descriptors, for a process that opens many again.
#[derive(Debug)]
pub(crate) struct OwnDescriptors(OwnedFd);

impl OwnDescriptors {
    /// That of the process that calls this; it is of no use to another.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub(crate) fn open() -> Result<Self, Errno> {
        open_path("/proc/self/fd", HANDLE | OFlags::DIRECTORY, Mode::empty()).map(Self)
    }

    /// Opens what `place` is a handle of, by the folder or, without one, by its path.
    fn open_again(folder: Option<&Self>, place: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        match folder {
            Some(Self(folder)) => {
                let number = place.as_raw_fd().to_string();
                openat(folder, number, flags, Mode::empty())
            }
            None => open_path(own_path(place), flags, Mode::empty()),
        }
    }
}

/// The full path, without links, of what `place` is a handle of, if it has one.
pub(crate) fn path_of(place: impl AsFd) -> Option<Box<[u8]>> {
    let own = format!("/proc/self/fd/{}", place.as_fd().as_raw_fd());
    let path = readlinkat(CWD, own, Vec::new()).ok()?.into_bytes();
    let is_there = path.starts_with(b"/") && !path.ends_with(b" (deleted)");
    is_there.then(|| path.into())
}

/// The path that stands for what `place` is a handle of.
pub(crate) fn own_path(place: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", place.as_raw_fd())
}

/// Opens what `place` is a handle of, for reading.
fn reopen(place: &OwnedFd) -> Result<File, Refusal> {
    open_again(place).map_err(Refusal::Closed)
}

/// `file`, if it is the one that was looked at.
fn checked(file: File, before: &Stat) -> Result<(File, Stat), Refusal> {
    let stat = stat(&file).map_err(Refusal::Closed)?;
    let is_same = (stat.st_dev, stat.st_ino) == (before.st_dev, before.st_ino);
    if is_same && is_regular(&stat) { Ok((file, stat)) } else { Err(Refusal::Changed) }
}

pub(crate) const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const READING: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
/// Without waiting for a lease or a terminal.
const OPENING: OFlags = READING.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// A longer list of mounts is read in part.
const MOUNTS_BYTES_MAX: u64 = 1 << 20;
/// File systems of the kernel's own, by `statfs(2)`: what reads of them do is theirs to say.
const KERNELS_OWN: &[u32] = &[
    0x9fa0,      // proc
    0x0187,      // autofs
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0x6165_676c, // pstore
    0xde5e_81e4, // efivarfs
    0xf97c_ff8c, // selinuxfs
    0x4341_5d53, // smackfs
    0x9584_58f6, // hugetlbfs
    0x1980_0202, // mqueue
    0x1cd1,      // devpts
    0x4249_4e4d, // binfmt_misc
    0x6573_5543, // fusectl
    0x6759_6969, // rpc_pipefs
    0x6e66_7364, // nfsd
    0x6e73_6673, // nsfs
    0x0904_1934, // anonymous inodes
    0x5345_434d, // secretmem
    0x0765_5821, // resctrl
    0xabba_1974, // xenfs
    0x6c6f_6f70, // binder
];

/// File systems that keep all in memory, by `statfs(2)`.
const IN_MEMORY: &[u32] = &[
    0x0102_1994, // tmpfs, with devtmpfs, shared memory and memfd
    0x8584_58f6, // ramfs
];

/// FUSE: a server that does not say otherwise gets the calls on one directory in turn, and its
/// listings are not cached, so that a program would wait for those ahead of it.
const IN_TURN: u32 = 0x6573_5546;

#[cfg(test)]
mod tests;
