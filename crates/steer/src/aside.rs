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
//! - Once [`descriptors::detach`] has returned, the other process holds nothing that a program
//!   inherits: the reader of a pipe sees its end however long the work is blocked.

#![expect(unsafe_code, reason = "fork, and signals of descriptors")]

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};

use forerun_core::units::Nanos;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

use crate::clock::{Clock, timespec};

pub(crate) mod descriptors;

/// A process that works for this one.
#[derive(Debug)]
pub(crate) struct Aside {
    socket: UnixStream,
    pid: Pid,
    /// `None` where the system has no such descriptors.
    end: Option<OwnedFd>,
    /// How long its end is waited for.
    left_after: Nanos,
    /// It was waited for: its number is another process's.
    has_ended: bool,
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
                let pid = if pid > 0 { Pid::from_raw(pid) } else { None };
                let pid = pid.ok_or_else(io::Error::last_os_error)?;
                let end = pidfd_open(pid, PidfdFlags::empty()).ok();
                Ok(Self { socket, pid, end, left_after: LEFT_AFTER, has_ended: false })
            }
        }
    }

    /// Its process number.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// It goes on, if it was stopped.
    pub(crate) fn go_on(&self) {
        let _ = kill_process(self.pid, Signal::CONT);
    }

    /// Whether it has ended. Where it has a number in a namespace of the program's, that does not
    /// end before it is waited for.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.has_ended |= !matches!(waitpid(Some(self.pid), WaitOptions::NOHANG), Ok(None));
        self.has_ended
    }

    /// Sends `bytes` to the other process.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// From now on, or no more, the end of the other process continues this one if that is stopped,
    /// as does what it writes. Whether that can be had.
    pub(crate) fn continues_at_end(&self, is_wanted: bool) -> io::Result<()> {
        let mut flags = fcntl_getfl(&self.socket)?;
        flags.set(OFlags::from_bits_retain(libc::O_ASYNC.cast_unsigned()), is_wanted);
        let fd = self.socket.as_fd().as_raw_fd();
        // SAFETY: calls on a descriptor of this process and on numbers.
        let failed = unsafe {
            libc::fcntl(fd, libc::F_SETOWN, libc::getpid()) != 0
                || libc::fcntl(fd, F_SETSIG, libc::SIGCONT) != 0
        };
        if failed {
            return Err(io::Error::last_os_error());
        }
        Ok(fcntl_setfl(&self.socket, flags)?)
    }

    /// From now on its end is waited for no longer than `time`.
    pub(crate) fn leaves_after(&mut self, time: Nanos) {
        self.left_after = time;
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
        if self.has_ended {
            return;
        }
        let _ = kill_process(self.pid, Signal::KILL);
        if let Some(end) = &self.end
            && is_readable(end.as_fd(), self.left_after)
        {
            let _ = waitpid(Some(self.pid), WaitOptions::NOHANG);
        }
    }
}

/// Whether `fd` can be read from, or its other end is closed, within `time`.
pub(crate) fn is_readable(fd: BorrowedFd<'_>, time: Nanos) -> bool {
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

/// Sets the signal that a descriptor sends: Linux `include/uapi/asm-generic/fcntl.h`.
const F_SETSIG: libc::c_int = 10;
/// Ends an answer that is whole.
const WHOLE: &[u8] = b"\0whole";
/// A process that is killed, or only closes files, is gone within this time, unless a file system
/// blocks it.
pub(crate) const LEFT_AFTER: Nanos = Nanos::from_millis(50);
