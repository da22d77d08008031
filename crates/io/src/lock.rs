//! Locks of files that virtual machines know too: one writer, or any readers.
//!
//! ```text
//!   byte 100 + p    shared-locked by a process that uses permission p
//!   byte 200 + p    shared-locked by a process that lets no other use p
//!   p               0 read consistently, 1 write, 3 resize
//! ```
//! A process locks its bytes first and then looks for locks of others on the opposite ones, so of
//! two that begin at once at most one goes on. Locks belong to the open file: they end with it,
//! also where the process is killed.
//!
//! # Invariants
//! - Only the locks of [`claim`] are shared locks of single bytes: other programs that lock whole
//!   files are seen, and see it.
//! - A file system without locks is an error of its own, which the caller may pass over.
//! # Sources
//! QEMU, `block/file-posix.c` (`RAW_LOCK_PERM_BASE`, `RAW_LOCK_SHARED_BASE`) and
//! `include/block/block-common.h` (`BLK_PERM_*`); `fcntl(2)`, open file description locks, leases.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd},
};

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No other may write or resize it.
    Read,
    /// No other may use it so, or count on its bytes to stay.
    Write,
}

/// Why a file is not claimed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// Another process writes it, or lets no other write.
    #[error("another process uses the file: {0}")]
    Used(&'static str),
    /// The file system has no such locks, or the file is not open for reading.
    #[error("the file cannot be locked")]
    NoLocks(#[from] io::Error),
}

/// Locks `file`, which must be open for reading, until it is closed.
///
/// # Errors
/// See [`ClaimError`]. What was locked until then ends with `file`.
pub fn claim(file: &File, claim: Claim) -> Result<(), ClaimError> {
    let (used, unshared): (&[Byte], &[Byte]) = match claim {
        Claim::Read => (&[READS], &[WRITES, RESIZES]),
        Claim::Write => (&[READS, WRITES], &[WRITES, RESIZES]),
    };
    for byte in used {
        fcntl(file.as_fd(), libc::F_OFD_SETLK, USED + byte, libc::F_RDLCK)?;
    }
    for byte in unshared {
        fcntl(file.as_fd(), libc::F_OFD_SETLK, UNSHARED + byte, libc::F_RDLCK)?;
    }
    for byte in used {
        if is_locked(file, UNSHARED + byte)? {
            return Err(ClaimError::Used("it allows no writer beside it"));
        }
    }
    for byte in unshared {
        if is_locked(file, USED + byte)? {
            return Err(ClaimError::Used("it writes"));
        }
    }
    Ok(())
}

/// Whether any other open file, of this process or another, is of the same file. A loop device, a
/// file system in user space and a virtual machine have theirs open.
///
/// # Errors
/// The system does not say: the file system has no leases, or the file belongs to another user.
pub fn is_open_elsewhere(file: &File) -> io::Result<bool> {
    // A lease for writing is granted to the only one. A program that opens the file while the lease
    // is there has a signal sent, by default one that would end this process.
    lease(file, F_SETSIG, libc::SIGURG)?;
    match lease(file, libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(()) => lease(file, libc::F_SETLEASE, libc::F_UNLCK).map(|()| false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Which signal the system sends about a lease (`include/uapi/asm-generic/fcntl.h`).
const F_SETSIG: i32 = 10;

/// A call about the lease of `file`.
fn lease(file: &File, call: i32, argument: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as it is borrowed, and these calls take a number.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), call, argument) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

type Byte = libc::off_t;
const USED: Byte = 100;
const UNSHARED: Byte = 200;
const READS: Byte = 0;
const WRITES: Byte = 1;
const RESIZES: Byte = 3;

/// Whether another open file has a lock on `byte`.
fn is_locked(file: &File, byte: Byte) -> io::Result<bool> {
    let found = fcntl(file.as_fd(), libc::F_OFD_GETLK, byte, libc::F_WRLCK)?;
    Ok(found != libc::F_UNLCK)
}

/// A call about the lock of one byte; the kind of lock that the kernel answers.
fn fcntl(file: BorrowedFd<'_>, call: i32, byte: Byte, kind: i32) -> io::Result<i32> {
    let short = |number: i32| libc::c_short::try_from(number).expect("a small number");
    let mut lock = libc::flock {
        l_type: short(kind),
        l_whence: short(libc::SEEK_SET),
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open for as long as it is borrowed, and these calls read and write
    // one `flock`, which lives across the call.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), call, &raw mut lock) };
    assert!(done == 0 || done == -1, "fcntl says {done}");
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(i32::from(lock.l_type)) }
}

#[cfg(test)]
mod tests {
    use forerun_testkit::ScratchFile;

    use super::*;

    #[test]
    fn readers_go_together_and_a_writer_alone() {
        let path = ScratchFile::holding("lock", "x");
        let open = || File::open(&path).unwrap();
        #[rustfmt::skip]
        let rows = [ // first       second        both
            (Claim::Read,   Claim::Read,   true),
            (Claim::Read,   Claim::Write,  false),
            (Claim::Write,  Claim::Read,   false),
            (Claim::Write,  Claim::Write,  false),
        ];
        for (first, second, both) in rows {
            let (one, two, three) = (open(), open(), open());
            claim(&one, first).unwrap();
            let found = claim(&two, second);
            assert_eq!(found.is_ok(), both, "{first:?} {second:?}: {found:?}");
            drop((one, two));
            claim(&three, second).unwrap();
        }
    }

    #[test]
    fn a_file_that_others_have_open_is_known() {
        let path = ScratchFile::holding("lease", "x");
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let Ok(first) = is_open_elsewhere(&file) else {
            let test = "a_file_that_others_have_open_is_known";
            return forerun_testkit::skip(test, "the file system has no leases");
        };
        assert!(!first);
        let other = File::open(&path).unwrap();
        assert!(is_open_elsewhere(&file).unwrap());
        drop(other);
        assert!(!is_open_elsewhere(&file).unwrap());
    }

    #[test]
    fn a_claim_of_the_same_open_file_is_its_own() {
        let path = ScratchFile::holding("lock", "x");
        let file = File::open(&path).unwrap();
        claim(&file, Claim::Write).unwrap();
        claim(&file, Claim::Read).unwrap();
    }
}
