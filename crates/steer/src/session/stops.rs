//! A program that is stopped: the caller waits for this process, and sees it stop as the program
//! would, by the same signal.
//!
//! ```text
//!   the caller <--stopped by TSTP-- this process <--stopped by TSTP-- the program
//!       |  CONT                        ^    |  CONT, unless it goes on already
//!       '------------------------------'    '---------------------------->
//!                                      | CONT
//!                        the observing process, once the program goes on by itself
//! ```
//! # Invariants
//! - This process stops only while another wakes it, by its end at the latest: what has the program
//!   go on need not know of this process.
//! # Sources
//! Linux `kernel/signal.c` (`prepare_signal`: a blocked CONT lets a process go on, and is pending
//! then; `do_signal_stop`: a group that is orphaned does not stop by the terminal's signals).

#![expect(unsafe_code, reason = "signal masks have no safe wrapper")]

use std::mem::MaybeUninit;
use std::thread;
use std::time::Duration;

use super::observing::{CONTINUED, STOPPED};
use super::program::Program;
use super::signals::{Forwarded, Signals};
use crate::aside::Aside;

/// Stops this process by `signal`, which has stopped the program, until one of them is to go on.
pub(super) fn follow(
    signal: libc::c_int,
    program: &Program,
    signals: &mut Signals,
    observing: &mut Aside,
) {
    if observing.continues_at_end(true).is_err() || observing.send(&[STOPPED]).is_err() {
        return;
    }
    stop(signal);
    if !has_come(libc::SIGCONT) {
        // A stop of the terminal's does not count everywhere, and may be ignored.
        stop(libc::SIGSTOP);
    }
    let _ = observing.continues_at_end(false);
    signals.continued();
    if observing.send(&[CONTINUED]).is_err() {
        // It has ended, and that is what continued this process: the program may stay stopped.
        return;
    }
    // What is sent to the group reaches the program as well, a moment later or before.
    for _ in 0..LOOKS {
        if program.has_continued() {
            return;
        }
        thread::sleep(LOOKS_EVERY);
    }
    Forwarded::plain(libc::SIGCONT).send(program.pid());
}

/// Stops this process by `signal`, where that stops it.
fn stop(signal: libc::c_int) {
    let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigemptyset` and the first `pthread_sigmask` initialise what they are given, before
    // it is used; the mask is of this thread, and becomes what it was.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), before.as_mut_ptr());
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
}

/// Whether `signal`, which is blocked, came.
fn has_come(signal: libc::c_int) -> bool {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: the call initialises the set, which all zeros are, too.
    unsafe {
        libc::sigpending(set.as_mut_ptr());
        libc::sigismember(set.as_ptr(), signal) == 1
    }
}

const LOOKS: u32 = 4;
const LOOKS_EVERY: Duration = Duration::from_micros(250);
