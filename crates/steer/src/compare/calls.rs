//! The calls at which a traced program stops: those that open entries of file systems, and those
//! that change them.
//!
//! # Invariants
//! - Every call that takes a path and can change the file that it names is in the table; `bind`,
//!   which makes a socket, is not. What is changed by a descriptor was opened for that before,
//!   unless it is in the table as [`Does::ChangesOpen`]; `ioctl` is not.
//! # Sources
//! syscalls(2); Linux `include/uapi/asm-generic/unistd.h`,
//! `arch/x86/entry/syscalls/syscall_64.tbl`.

/// What a call does, and which of its arguments say to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Opens what `at` names, with flags as this says.
    Opens(At, Flags),
    /// Opens what no path names.
    OpensHandle(Flags),
    /// Makes an entry, where there is none.
    Makes(At),
    /// Changes or removes the entry that is there.
    Changes(At),
    /// Changes the file of the descriptor in the first argument.
    ChangesOpen,
    /// Changes what is mounted.
    Mounts,
    /// Has the kernel write to a file, or stop that.
    System,
}

/// A path: the arguments with the directory's descriptor, if there is one, and the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) directory: Option<usize>,
    pub(super) path: usize,
}

/// Where the flags of an opening are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flags {
    Argument(usize),
    /// The first word of a structure, whose address this argument is.
    Structure(usize),
    /// Those of `creat`.
    Create,
}

/// What the call of this number does; nothing where the program does not stop.
pub(super) fn does(number: u64) -> Option<Does> {
    let found = CALLS.iter().find(|(known, _)| u64::try_from(*known) == Ok(number));
    found.map(|(_, does)| *does)
}

const fn at(directory: usize, path: usize) -> At {
    At { directory: Some(directory), path }
}

#[cfg(target_arch = "x86_64")]
const fn plain(path: usize) -> At {
    At { directory: None, path }
}

/// The calls of every processor, and those that older ones have besides.
pub(super) const CALLS: &[(libc::c_long, Does)] = &[
    (libc::SYS_openat, Does::Opens(at(0, 1), Flags::Argument(2))),
    (libc::SYS_openat2, Does::Opens(at(0, 1), Flags::Structure(2))),
    (libc::SYS_open_by_handle_at, Does::OpensHandle(Flags::Argument(2))),
    (libc::SYS_mkdirat, Does::Makes(at(0, 1))),
    (libc::SYS_mknodat, Does::Makes(at(0, 1))),
    (libc::SYS_symlinkat, Does::Makes(at(1, 2))),
    (libc::SYS_linkat, Does::Makes(at(2, 3))),
    (libc::SYS_unlinkat, Does::Changes(at(0, 1))),
    (libc::SYS_renameat2, Does::Changes(at(0, 1))),
    (libc::SYS_fchmodat, Does::Changes(at(0, 1))),
    (libc::SYS_fchmodat2, Does::Changes(at(0, 1))),
    (libc::SYS_fchownat, Does::Changes(at(0, 1))),
    (libc::SYS_utimensat, Does::Changes(at(0, 1))),
    (libc::SYS_truncate, Does::Changes(At { directory: None, path: 0 })),
    (libc::SYS_setxattr, Does::Changes(At { directory: None, path: 0 })),
    (libc::SYS_lsetxattr, Does::Changes(At { directory: None, path: 0 })),
    (libc::SYS_removexattr, Does::Changes(At { directory: None, path: 0 })),
    (libc::SYS_lremovexattr, Does::Changes(At { directory: None, path: 0 })),
    (SETXATTRAT, Does::Changes(at(0, 1))),
    (REMOVEXATTRAT, Does::Changes(at(0, 1))),
    (FILE_SETATTR, Does::Changes(at(0, 1))),
    (libc::SYS_fchmod, Does::ChangesOpen),
    (libc::SYS_fchown, Does::ChangesOpen),
    (libc::SYS_fsetxattr, Does::ChangesOpen),
    (libc::SYS_fremovexattr, Does::ChangesOpen),
    (libc::SYS_mount, Does::Mounts),
    (libc::SYS_umount2, Does::Mounts),
    (libc::SYS_move_mount, Does::Mounts),
    (libc::SYS_mount_setattr, Does::Mounts),
    (libc::SYS_pivot_root, Does::Mounts),
    (libc::SYS_acct, Does::System),
    (libc::SYS_swapon, Does::System),
    (libc::SYS_swapoff, Does::System),
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    (libc::SYS_renameat, Does::Changes(at(0, 1))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, Does::Opens(plain(0), Flags::Argument(1))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, Does::Opens(plain(0), Flags::Create)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, Does::Makes(plain(0))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, Does::Makes(plain(0))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, Does::Makes(plain(1))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, Does::Makes(plain(1))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, Does::Changes(plain(0))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, Does::Changes(plain(0))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, Does::Changes(plain(0))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, Does::Changes(plain(0))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chown, Does::Changes(plain(0))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_lchown, Does::Changes(plain(0))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_utime, Does::Changes(plain(0))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_utimes, Does::Changes(plain(0))),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_futimesat, Does::Changes(at(0, 1))),
];

/// Calls that libraries do not name yet; these numbers are those of every processor.
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const FILE_SETATTR: libc::c_long = 469;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_there_once_and_reads_are_not() {
        for (at, (number, does)) in CALLS.iter().enumerate() {
            assert!(CALLS[..at].iter().all(|(other, _)| other != number), "{number}");
            assert_eq!(super::does(u64::try_from(*number).unwrap()), Some(*does));
        }
        for number in [libc::SYS_read, libc::SYS_close, libc::SYS_mmap, libc::SYS_execve] {
            assert_eq!(does(u64::try_from(number).unwrap()), None);
        }
    }
}
