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
//!   go on need not know of this process. Where there is no room for another, it stops by what a
//!   terminal sends alone: a shell continues the whole group.
//! # Sources
//! Linux `kernel/signal.c` (`prepare_signal`: a blocked CONT lets a process go on, and is pending
//! then; `do_signal_stop`: a group that is orphaned does not stop by the terminal's signals).

#![expect(unsafe_code, reason = "signal masks have no safe wrapper")]

use std::mem::MaybeUninit;
use std::thread;
use std::time::Duration;

use super::inherited::is_pending;
use super::observing::{self, CONTINUED, STOPPED};
use super::program::Program;
use super::signals::{Forwarded, Signals, set_of};
use crate::aside::Aside;

/// Stops this process by `signal`, which has stopped the program, until one of them is to go on.
/// Where no process observes, another one is begun for that time.
pub(super) fn follow(
    signal: libc::c_int,
    program: &Program,
    signals: &mut Signals,
    observing: &mut Option<Aside>,
) {
    assert!(signal > 0, "the kernel tells which signal has stopped a process");
    let is_woken = observing.as_mut().is_some_and(wakes);
    if is_woken {
        stop_with(signal, program, signals, observing.as_mut());
        return;
    }
    let pid = program.pid();
    let waker = Aside::start(|socket| observing::wake(socket, pid)).ok();
    let mut waker = waker.and_then(|mut waker| wakes(&mut waker).then_some(waker));
    if waker.is_some() || TERMINAL.contains(&signal) {
        let before = signals.waker;
        signals.waker = waker.as_ref().map(Aside::pid).or(before);
        stop_with(signal, program, signals, waker.as_mut());
        signals.waker = before;
    }
}

/// Whether `aside` has this process go on, from now on.
fn wakes(aside: &mut Aside) -> bool {
    aside.continues_at_end(true).is_ok() && aside.send(&[STOPPED]).is_ok()
}

fn stop_with(
    signal: libc::c_int,
    program: &Program,
    signals: &mut Signals,
    mut waker: Option<&mut Aside>,
) {
    stop(signal);
    if waker.is_some() && !is_pending(libc::SIGCONT) {
        // A stop of the terminal's does not count everywhere, and may be ignored.
        stop(libc::SIGSTOP);
    }
    if is_pending(libc::SIGCONT) {
        signals.continued();
    } else if waker.is_none() {
        // Nothing has stopped it.
        return;
    }
    if let Some(waker) = &mut waker {
        let _ = waker.continues_at_end(false);
        if waker.send(&[CONTINUED]).is_err() {
            // It has ended, and that is what continued this process: the program may stay stopped.
            return;
        }
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
    let (set, mut before) = (set_of(&[signal]), MaybeUninit::uninit());
    // SAFETY: the set is initialised, and the first `pthread_sigmask` initialises the mask before,
    // which the second one uses; the mask is of this thread, and becomes what it was.
    unsafe {
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, before.as_mut_ptr());
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
}

/// Stops by a terminal.
const TERMINAL: &[libc::c_int] = &[libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
const LOOKS: u32 = 4;
const LOOKS_EVERY: Duration = Duration::from_micros(250);
