//! Work that may block on a file system, in a process of its own.
//!
//! ```text
//!   this process --fork--> aside: the work, on threads of its own
//!        | <---- bytes of its answer ---- |
//!        +---- KILL at the end, and at most LEFT_AFTER until it is gone
//! ```
//! A thread that a file system blocks cannot always be killed, and a process does not end while it
//! has such a thread. So it is another process that calls file systems: this one, which others wait
//! for, reads from a socket, and leaves the other where it does not end.
//!
//! # Invariants
//! - The process that starts the work never waits for it longer than it says.
//! - Once [`detach`] has returned, the other process holds nothing that a program inherits: the
//!   reader of a pipe sees its end however long the work is blocked.

#![expect(unsafe_code, reason = "fork, and descriptors that this process did not open")]

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};

use forerun_core::units::Nanos;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::FileType;
use rustix::io::{FdFlags, fcntl_getfd};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

use crate::clock::{Clock, timespec};
use crate::kernel::stat;

/// A process that works for this one.
#[derive(Debug)]
pub(crate) struct Aside {
    socket: UnixStream,
    pid: Pid,
    /// `None` where the system has no such descriptors.
    end: Option<OwnedFd>,
    /// How long its end is waited for.
    left_after: Nanos,
}

/// What `work` returns, if that is within `time`: it may block on a file system, and is done in a
/// process of its own. `None` as well where there can be no such process, or `work` fails.
pub fn within(time: Nanos, work: impl FnOnce() -> Vec<u8>) -> Option<Vec<u8>> {
    let mut aside = Aside::start(|mut socket| {
        let answer = work();
        // Where nothing reads it any more it is of no use.
        let _ = socket.write_all(&answer);
        let _ = socket.write_all(WHOLE);
    })
    .ok()?;
    let mut answer = aside.answer(time)?;
    let bytes = answer.len().checked_sub(WHOLE.len())?;
    (answer.split_off(bytes) == WHOLE).then_some(answer)
}

impl Aside {
    /// Starts `work`, with the other end of the socket, in a process of its own, which ends with
    /// it.
    ///
    /// # Errors
    /// There is no room for a process or for descriptors.
    pub(crate) fn start(work: impl FnOnce(UnixStream)) -> io::Result<Self> {
        let (socket, other) = UnixStream::pair()?;
        // SAFETY: the child runs this program's code on with a copy of its memory. No thread of
        // this process holds a lock that `work` takes: the commands start none before, and of a
        // process that has other threads the C library makes its own locks, the allocator's among
        // them, usable in the child.
        match unsafe { libc::fork() } {
            0 => {
                drop(socket);
                // A panic has told its message, and the other process finds no answer.
                let _ = panic::catch_unwind(AssertUnwindSafe(|| work(other)));
                // SAFETY: ends the process, with all its threads and nothing else: what is
                // buffered for stdout is the other process's.
                unsafe { libc::_exit(0) }
            }
            pid => {
                let pid = Pid::from_raw(pid).filter(|_| pid > 0);
                let pid = pid.ok_or_else(io::Error::last_os_error)?;
                let end = pidfd_open(pid, PidfdFlags::empty()).ok();
                Ok(Self { socket, pid, end, left_after: LEFT_AFTER })
            }
        }
    }

    /// Sends `bytes` to the other process.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// A file system is known to block the other process: its end is not waited for.
    pub(crate) fn is_blocked(&mut self) {
        self.left_after = Nanos(0);
    }

    /// All that the other process writes until it closes its end of the socket; `None` where that
    /// is not within `time`.
    pub(crate) fn answer(&mut self, time: Nanos) -> Option<Vec<u8>> {
        let (clock, mut bytes, mut piece) = (Clock::start(), Vec::new(), [0; 16 << 10]);
        loop {
            if !is_readable(self.socket.as_fd(), time.since(clock.now())) {
                return None;
            }
            match self.socket.read(&mut piece).ok()? {
                0 => return Some(bytes),
                count => bytes.extend_from_slice(&piece[..count]),
            }
        }
    }
}

impl Drop for Aside {
    /// Ends the other process. One that a file system blocks is left: it ends when it can.
    fn drop(&mut self) {
        let _ = kill_process(self.pid, Signal::KILL);
        if let Some(end) = &self.end
            && is_readable(end.as_fd(), self.left_after)
        {
            let _ = waitpid(Some(self.pid), WaitOptions::NOHANG);
        }
    }
}

/// Closes all that this process inherited and hands on; what leads to a file is closed last, as a
/// file system may block that.
pub(crate) fn detach() {
    let (others, files) = inherited();
    release(others.into_iter().chain(files));
}

/// Closes all that this process inherited and hands on but files and what is in `kept`. It is the
/// program's alone then: the reader of a pipe sees the end when the program closes it. A file
/// stays, since closing it would give up locks, and a file system may block that.
pub(crate) fn release_all_but_files(kept: &[RawFd]) {
    release(inherited().0.into_iter().filter(|number| !kept.contains(number)));
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

/// Whether `fd` can be read from, or its other end is closed, within `time`.
fn is_readable(fd: BorrowedFd<'_>, time: Nanos) -> bool {
    let clock = Clock::start();
    loop {
        let left = timespec(time.since(clock.now()));
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
            Ok(count) => return count > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Ends an answer that is whole.
const WHOLE: &[u8] = b"\0whole";
/// A process that is killed is gone within this time, unless a file system blocks it.
const LEFT_AFTER: Nanos = Nanos::from_millis(50);
