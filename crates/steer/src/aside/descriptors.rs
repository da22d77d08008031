//! The descriptors that this process inherited and hands on to a program: they are closed here once
//! the program has them.
//!
//! ```text
//!   caller --9: a file--> this process --9--> the program
//!                           |   closed by a process that shares this one's descriptors
//!                           `-- kept where it has a POSIX lock of the caller's
//! ```
//! A lock by `flock(2)`, a program that is written before it is run, a file system that is to be
//! unmounted: each is free once the program alone has the file, and has closed it.
//!
//! # Invariants
//! - A file system may block a close, so this process closes no file itself.
//! - A file stays open where closing it would give up a lock: a POSIX lock is of the process that
//!   took it, which became this one.
//! # Sources
//! `close(2)`, `clone(2)` (`CLONE_FILES`); Linux `fs/open.c` (`filp_close`), `fs/locks.c`
//! (`show_fd_locks`: the locks of the table of descriptors).

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use forerun_core::units::Nanos;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FileType, fcntl_getfl};
use rustix::io::{FdFlags, fcntl_getfd};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};

use super::{LEFT_AFTER, is_readable};
use crate::kernel::stat;
use crate::open::writes;

/// A process that closes files of this one.
#[derive(Debug)]
pub(crate) struct Closer {
    pid: Pid,
    end: Option<OwnedFd>,
    /// How long its end is waited for.
    left_after: Nanos,
    has_ended: bool,
}

impl Closer {
    /// Starts to close `files`, descriptors of this process that nothing in it owns.
    fn start(files: &[RawFd]) -> io::Result<Self> {
        let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
        // SAFETY: as `fork`, but for the descriptors, which both processes share. The child runs
        // this program's code on with a copy of its memory, and no other thread holds a lock that
        // it takes, as of `Aside::start`.
        match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
            0 => {
                release(files.iter().copied().filter(|&number| !has_lock(number)));
                // SAFETY: ends the process, and nothing else.
                unsafe { libc::_exit(0) }
            }
            pid => {
                let pid = i32::try_from(pid).ok().filter(|&pid| pid > 0).and_then(Pid::from_raw);
                let pid = pid.ok_or_else(io::Error::last_os_error)?;
                let end = pidfd_open(pid, PidfdFlags::empty()).ok();
                Ok(Self { pid, end, left_after: LEFT_AFTER, has_ended: false })
            }
        }
    }

    /// From now on its end is waited for no longer than `time`.
    pub(crate) fn leaves_after(&mut self, time: Nanos) {
        self.left_after = time;
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.has_ended |= !matches!(waitpid(Some(self.pid), WaitOptions::NOHANG), Ok(None));
        self.has_ended
    }
}

impl Drop for Closer {
    /// Waits for its end; one that a file system blocks is left.
    fn drop(&mut self) {
        if !self.has_ended()
            && self.end.as_ref().is_some_and(|end| is_readable(end.as_fd(), self.left_after))
        {
            self.has_ended();
        }
    }
}

/// Closes all that this process inherited and hands on; what leads to a file is closed last, as a
/// file system may block that.
pub(crate) fn detach() {
    let (others, files) = inherited();
    release(others.into_iter().chain(files));
}

/// Closes all that this process inherited and hands on but what is in `kept`: it is the program's
/// alone then, and the reader of a pipe sees the end when the program closes it. Files are closed
/// by another process, which is returned; where there can be none they stay open.
pub(crate) fn release_all_but(kept: &[RawFd]) -> Option<Closer> {
    let (others, mut files) = inherited();
    release(others.into_iter().filter(|number| !kept.contains(number)));
    files.retain(|number| !kept.contains(number));
    if files.is_empty() {
        return None;
    }
    Closer::start(&files).ok()
}

/// Closes `numbers`; input, output and errors lead nowhere from now on.
fn release(numbers: impl Iterator<Item = RawFd>) {
    let nowhere = placeholder();
    for number in numbers {
        // Where the last fails they are closed with this process.
        match (number, &nowhere) {
            (0, Some(nowhere)) => drop(rustix::stdio::dup2_stdin(nowhere)),
            (1, Some(nowhere)) => drop(rustix::stdio::dup2_stdout(nowhere)),
            (2, Some(nowhere)) => drop(rustix::stdio::dup2_stderr(nowhere)),
            (0..=2, None) => {}
            // SAFETY: the descriptor came with this process: nothing in it owns the number.
            (number, _) => drop(unsafe { OwnedFd::from_raw_fd(number) }),
        }
    }
}

/// A descriptor that reads nothing and keeps nothing, where there is one.
pub(crate) fn placeholder() -> Option<OwnedFd> {
    let null = fs::File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
    null.ok().or_else(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok())
}

/// The descriptors that a program inherits from this process: those that lead to no file, and those
/// that do. All that this process opens for itself is closed by `exec`.
fn inherited() -> (Vec<RawFd>, Vec<RawFd>) {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return (vec![0, 1, 2], Vec::new()) };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let numbers: Vec<RawFd> = numbers.collect();
    let is_handed_on = |&number: &RawFd| {
        // SAFETY: the descriptor is used for this call alone, which fails where it is closed.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        number <= 2 || fcntl_getfd(fd).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
    };
    let is_file = |&number: &RawFd| {
        // SAFETY: as above.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let kind = stat(fd).map(|stat| stat.kind());
        kind.is_ok_and(|kind| matches!(kind, FileType::RegularFile | FileType::Directory))
    };
    numbers.into_iter().filter(is_handed_on).partition(|number| !is_file(number))
}

/// A descriptor beyond the standard ones through which a program that inherits it can write a file:
/// no call on a path shows that.
#[must_use]
pub fn inherited_for_writing() -> Option<RawFd> {
    let (others, files) = inherited();
    files.into_iter().chain(others).filter(|number| *number > 2).find(|&number| {
        // SAFETY: the descriptor is used for these calls alone, which fail where it is closed.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let kind = stat(fd).map(|stat| stat.kind());
        kind.is_ok_and(|kind| matches!(kind, FileType::RegularFile | FileType::BlockDevice))
            && fcntl_getfl(fd).is_ok_and(|flags| writes(flags.bits()))
    })
}

/// Whether a POSIX lock of this process would go with the descriptor `number`.
fn has_lock(number: RawFd) -> bool {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}"));
    // What cannot be seen may have one.
    info.map_or(true, |info| {
        let mut locks = info.lines().filter(|line| line.starts_with("lock:"));
        locks.any(|line| line.split_ascii_whitespace().any(|word| word == "POSIX"))
    })
}
