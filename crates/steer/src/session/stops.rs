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
//! - A CONT that comes once the program has stopped is not lost: one that comes before a stop of
//!   the terminal's undoes that. Between a last look and a stop by STOP it is: nothing undoes that
//!   stop beforehand.
//! - This process stops only while another wakes it, by its end at the latest: what has the program
//!   go on need not know of this process. Where there is no room for another, it stops by what a
//!   terminal sends alone: a shell continues the whole group.
//! # Sources
//! Linux `kernel/signal.c` (`prepare_signal`: a blocked CONT lets a process go on, and is pending
//! then, until a stop that is sent removes it, as CONT removes stops; `do_signal_stop`: a group
//! that is orphaned does not stop by the terminal's signals).

#![expect(unsafe_code, reason = "signal masks and handlers have no safe wrapper")]

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::observing::{self, CONTINUED, STOPPED};
use super::program::Program;
use super::signals::{Signals, set_of};
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
    signals: &Signals,
    mut waker: Option<&mut Aside>,
) {
    let was_continued = {
        let _continuing = Continuing::begin();
        stop(signal);
        if waker.is_some() {
            // A stop of the terminal's does not count everywhere, and may be ignored.
            stop(libc::SIGSTOP);
        }
        has_come()
    };
    if !was_continued && waker.is_none() {
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
    signals.of_terminal(libc::SIGCONT).send(program.pid());
}

/// Stops this process by `signal`, where that stops it and no CONT has come.
fn stop(signal: libc::c_int) {
    if has_come() {
        return;
    }
    let set = set_of(&[signal]);
    // SAFETY: the set is initialised; null asks for no facts of a signal and for no old mask. The
    // signal is blocked before and after, but for STOP, which stops at once.
    unsafe {
        // From here on it is pending, and a CONT that comes removes it.
        libc::raise(signal);
        if has_come() {
            let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const none);
            return;
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
    }
}

/// While it lives a CONT that comes is noted, also one that was pending; before and after, it is a
/// message.
struct Continuing {
    action: libc::sigaction,
}

impl Continuing {
    fn begin() -> Self {
        extern "C" fn note(_signal: libc::c_int) {
            HAS_CONTINUED.store(true, Ordering::Relaxed);
        }
        HAS_CONTINUED.store(false, Ordering::Relaxed);
        let (set, note): (_, extern "C" fn(libc::c_int)) = (set_of(&[libc::SIGCONT]), note);
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the actions live until the calls return, and all zeros are valid for each; the
        // handler stores to an atomic, which it may at any time. The set is initialised.
        unsafe {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            (action.sa_sigaction, action.sa_flags) = (note as usize, libc::SA_RESTART);
            libc::sigaction(libc::SIGCONT, &raw const action, before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
            Self { action: before.assume_init() }
        }
    }
}

impl Drop for Continuing {
    fn drop(&mut self) {
        let set = set_of(&[libc::SIGCONT]);
        // SAFETY: the set is initialised, and the action is what the system gave.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
            libc::sigaction(libc::SIGCONT, &raw const self.action, ptr::null_mut());
        }
    }
}

/// Whether a CONT has come since the last [`Continuing::begin`].
fn has_come() -> bool {
    HAS_CONTINUED.load(Ordering::Relaxed)
}

/// What the handler of [`Continuing`] has noted.
static HAS_CONTINUED: AtomicBool = AtomicBool::new(false);
/// Stops by a terminal.
const TERMINAL: &[libc::c_int] = &[libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
const LOOKS: u32 = 4;
const LOOKS_EVERY: Duration = Duration::from_micros(250);
