//! Signals that would end this process, as messages: they are meant for the program.
//!
//! ```text
//!   INT, QUIT              dropped: the terminal sent them to the program as well
//!   TERM, HUP, USR1, USR2  forwarded
//!   all others             as ever: a stop stops both, as both are in one process group
//! ```
//! # Invariants
//! - The signals are blocked from before the program's start to its end, so none is lost and none
//!   ends this process while the program runs on. The program gets the mask of before.

#![expect(unsafe_code, reason = "signal masks and signalfd have no safe wrapper")]

use std::fs::File;
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::Signal;

/// The blocked signals, as messages.
pub(crate) struct Signals {
    messages: File,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals for this thread and all that it starts.
    pub(crate) fn block() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the set that it is given, `sigaddset` and
        // `pthread_sigmask` get initialised ones, and the last writes the old mask to `before`.
        let (failed, before) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in DROPPED.iter().chain(FORWARDED) {
                libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
            }
            libc::sigemptyset(before.as_mut_ptr());
            let failed = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            (failed, before.assume_init())
        };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and this is its only owner.
        let messages = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { messages: messages.into(), before })
    }

    /// Makes `command` start with the mask of before.
    pub(crate) fn restore_in(&self, command: &mut Command) {
        let before = self.before;
        let restore = move || {
            // SAFETY: the mask is initialised, and the old one is not written.
            let failed = unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut())
            };
            if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
        };
        // SAFETY: the closure makes one call that may be made between fork and exec, and takes no
        // memory.
        unsafe { command.pre_exec(restore) };
    }

    /// The next signal to forward, if one came.
    pub(crate) fn next(&mut self) -> Option<Signal> {
        let mut message = [0; size_of::<libc::signalfd_siginfo>()];
        loop {
            if self.messages.read(&mut message).ok()? != message.len() {
                return None;
            }
            // The number is its first field.
            let number = u32::from_ne_bytes([message[0], message[1], message[2], message[3]]);
            let came = |signal: &&Signal| u32::try_from(signal.as_raw()) == Ok(number);
            if let Some(&signal) = FORWARDED.iter().find(came) {
                return Some(signal);
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.messages.as_fd()
    }
}

const DROPPED: &[Signal] = &[Signal::INT, Signal::QUIT];
const FORWARDED: &[Signal] = &[Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2];
