//! Signals that would end this process, as messages: they are meant for the program.
//!
//! ```text
//!   sent by a process             forwarded, with their value where they have one
//!   INT, QUIT, WINCH of a         dropped: the terminal sent them to the program as well
//!   terminal, timers of our own
//!   HUP of a terminal             forwarded by the leader of the session, which alone gets it, and
//!                                 dropped by others: the kernel sent it to all of the group
//!   stops of a terminal           dropped likewise: this process stops as the program does
//!   these, but TTIN and TTOU,     forwarded to the program's group: alone it would lead the group
//!   for the leader of a group     that the terminal sent them to, which a leader does not leave
//!   that the program has left
//!   CONT of the observing process dropped: the program goes on already
//!   sent by the program itself    dropped: for its parent, or all of its group and itself besides
//!   what the kernel sent before   forwarded: there was no program yet that got it as well
//!   the program was forked
//!   IO, URG, those of real time   forwarded: the kernel sends them for a descriptor whose owner
//!                                 this process is
//!   STOP, KILL                    as ever
//! ```
//! A program that a key of the terminal ends (INT, QUIT) has this process end by the same signal.
//!
//! Many signals are taken at a time, and of those of one number that are pending the first is
//! forwarded, as the kernel keeps one. Where they never cease they gather for a while before they
//! are taken, as far as a budget asks for it: else this process would do nothing else, and have no
//! processor at the program's end.
//!
//! # Invariants
//! - The signals are blocked from before the program's start to its end, so none is lost and none
//!   ends this process while the program runs on. After its end, one that comes while results are
//!   written ends this process only where that takes longer than it should.
//! - What the kernel sends to a process group reaches the program once, and where that has made a
//!   group of its own, all of it. Of what another process sends nothing tells whether the group got
//!   it or this process alone, so it is always forwarded: a signal twice is noticed, one that is
//!   lost has a program run on for ever.
//! - Stops and CONT undo each other, and those of real time are a queue: each is forwarded, in
//!   order.
//! # Sources
//! signal(7), signalfd(2); Linux `drivers/tty/tty_jobctrl.c`, for what a hangup signals: the leader
//! of the session alone, and the group in the foreground once that leader has ended.

#![expect(unsafe_code, reason = "signal masks, signalfd and sigqueue have no safe wrapper")]

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::Duration;
use std::{process, thread};

use rustix::process::{Pid, getpgid, getpgrp, getpid, getsid};

/// The blocked signals, as messages.
pub(crate) struct Signals {
    messages: File,
    /// The process that has this one go on, and that the program does not hear of.
    pub(crate) waker: Option<Pid>,
    /// The program, once its process is there.
    pub(crate) program: Option<Pid>,
    /// Those of [`KEYS`] that a terminal has sent, each once.
    keys: Vec<libc::c_int>,
}

/// A signal to forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forwarded {
    number: libc::c_int,
    /// What `sigqueue(3)` sent with it.
    value: Option<u64>,
    /// Whether it is for the group that the program leads.
    to_group: bool,
    /// Whether the kernel has sent it.
    from_kernel: bool,
}

impl Signals {
    /// Blocks the signals for this thread and all that it starts.
    pub(crate) fn block() -> io::Result<Self> {
        let all = BLOCKED.iter().copied().chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
        let set = set_of(&all.collect::<Vec<_>>());
        // SAFETY: the set is initialised; null asks for no old mask.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and this is its only owner.
        let messages = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { messages: messages.into(), waker: None, program: None, keys: Vec::new() })
    }

    /// The signals to forward, of those that came up to [`BATCH`].
    pub(crate) fn take(&mut self) -> Vec<Forwarded> {
        self.take_and(|_| None)
    }

    /// The same, before the program's process is forked: also what the kernel sent, which met this
    /// process alone.
    pub(crate) fn take_before(&mut self) -> Vec<Forwarded> {
        self.take_and(came_before)
    }

    /// The same, as `child` was just forked: what the kernel sent before met this process alone,
    /// and is forwarded, unless `child` has it pending as well: it is in `both` then.
    pub(crate) fn take_early(&mut self, child: Pid, both: &mut Vec<Forwarded>) -> Vec<Forwarded> {
        let mut pending = None;
        self.take_and(|info| {
            let number = came_before(info)?;
            assert!((1..=64).contains(&number), "the kernel numbers signals from 1 on");
            let pending = *pending.get_or_insert_with(|| pending_of(child));
            let is_forwarded = pending >> (number - 1) & 1 == 0;
            both.extend((!is_forwarded).then(|| Forwarded::plain(number)));
            is_forwarded.then_some(number)
        })
    }

    /// The same as [`Self::take`]; what the kernel sent to the program as well is in `both`.
    pub(crate) fn take_noting(&mut self, both: &mut Vec<Forwarded>) -> Vec<Forwarded> {
        self.take_and(|info| {
            both.extend(came_before(info).map(Forwarded::plain));
            None
        })
    }

    /// The same, and the number that `others` gives for a signal that is not forwarded otherwise.
    fn take_and(
        &mut self,
        mut others: impl FnMut(&libc::signalfd_siginfo) -> Option<libc::c_int>,
    ) -> Vec<Forwarded> {
        let mut batch = Vec::new();
        for info in self.read() {
            let signal = self.forwarded(&info);
            let signal = signal.or_else(|| others(&info).map(Forwarded::plain));
            batch.extend(signal.filter(|signal| !signal.is_pending(&batch)));
        }
        batch
    }

    /// Those that came, up to [`BATCH`].
    fn read(&mut self) -> Vec<libc::signalfd_siginfo> {
        let mut bytes = [0; BATCH * MESSAGE_BYTES];
        let count = self.messages.read(&mut bytes).unwrap_or(0);
        let message = |message: &[u8]| {
            // SAFETY: the message has the size of the structure, which is of integers alone; it is
            // read from where it lies, whatever its alignment.
            unsafe { std::ptr::read_unaligned(message.as_ptr().cast()) }
        };
        bytes[..count].chunks_exact(MESSAGE_BYTES).map(message).collect()
    }

    /// What is forwarded of a signal that came, if anything.
    fn forwarded(&mut self, info: &libc::signalfd_siginfo) -> Option<Forwarded> {
        let number = libc::c_int::try_from(info.ssi_signo).ok()?;
        let from_kernel = info.ssi_code > 0;
        if from_kernel && KEYS.contains(&number) && !self.keys.contains(&number) {
            self.keys.push(number);
        }
        if from_kernel && OF_TERMINAL.contains(&number) && self.program_has_left() {
            return Some(Forwarded { to_group: true, from_kernel, ..Forwarded::plain(number) });
        }
        if from_kernel && !is_for_one(number) {
            return None;
        }
        let sender = i32::try_from(info.ssi_pid).ok().and_then(Pid::from_raw);
        if number == libc::SIGCONT && sender.is_some() && sender == self.waker {
            return None;
        }
        if !from_kernel && sender.is_some() && sender == self.program {
            // It is for the caller, or for the whole group: alone it does not come back.
            return None;
        }
        let value = (info.ssi_code == libc::SI_QUEUE).then_some(info.ssi_ptr);
        Some(Forwarded { value, from_kernel, ..Forwarded::plain(number) })
    }

    /// The key by whose signal the program has ended, if this process got that as well.
    pub(super) fn key_of(&mut self, ended_by: Option<libc::c_int>) -> Option<libc::c_int> {
        // It may not have been read yet, and there is no program for the others any more.
        drop(self.take());
        ended_by.filter(|signal| self.keys.contains(signal))
    }

    /// A signal for the program, and for its group where that is what a terminal would signal, were
    /// the program alone.
    pub(super) fn of_terminal(&self, number: libc::c_int) -> Forwarded {
        Forwarded { to_group: self.program_has_left(), ..Forwarded::plain(number) }
    }

    /// Whether this process leads its group, and the program leads another.
    fn program_has_left(&self) -> bool {
        let Some(program) = self.program else { return false };
        getpgrp() == getpid() && getpgid(Some(program)).is_ok_and(|group| group == program)
    }
}

/// The number of a signal of the kernel's, where it is none that this process had it send.
fn came_before(info: &libc::signalfd_siginfo) -> Option<libc::c_int> {
    let number = libc::c_int::try_from(info.ssi_signo).ok()?;
    (info.ssi_code > 0 && !OWN.contains(&number)).then_some(number)
}

/// The signals that the process `pid` has pending, a bit each from the first number on.
fn pending_of(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    let status = status.unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether a signal of the kernel's is for this process alone, and not for its group as well.
fn is_for_one(number: libc::c_int) -> bool {
    match number {
        libc::SIGHUP => leads_session(),
        libc::SIGIO | libc::SIGURG => true,
        _ => number >= libc::SIGRTMIN(),
    }
}

/// The program has ended, and this process has results to write. Where that takes longer than a
/// second, the signals of a terminal, and TERM, end this process again, after `clean_up`; what came
/// until now was meant for the program.
pub fn end_late(clean_up: impl FnOnce() + Send + 'static) {
    while ending(true).is_some() {}
    let ends = move || {
        thread::sleep(LATE);
        while let Some(signal) = ending(false) {
            if !is_ignored(signal) {
                clean_up();
                end_by(signal);
            }
        }
    };
    // Without room for a thread, they are blocked until the end.
    let _ = thread::Builder::new().name("forerun-late".into()).spawn(ends);
}

/// The exit status of this process, whose program ended with `status`. Where a terminal's `key`
/// ended the program, whose signal this process got as well, it ends this process too: a shell that
/// waits for it breaks off what it is at then, as it does for the program alone.
#[must_use]
pub fn end_as(status: u8, key: Option<i32>) -> u8 {
    if let Some(signal) = key {
        let _ = io::stdout().flush();
        // The program has left what there is of a core.
        // SAFETY: a call on numbers.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
        end_by(signal);
    }
    status
}

/// The first of [`ENDING`] that is pending; unless only what `is_there` counts, it is waited for.
/// None, too, where the wait fails.
fn ending(is_there: bool) -> Option<libc::c_int> {
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let time = if is_there { &raw const none } else { std::ptr::null() };
    let set = set_of(ENDING);
    loop {
        // SAFETY: the set is initialised; null asks for no facts of a signal, and for no end.
        let signal = unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), time) };
        if signal > 0 {
            return Some(signal);
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

/// Whether this process was started with `signal` ignored.
fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: null sets no action; zeros are an action, if the call fails.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Has the process `pid` go on, with the `signal` that has stopped it: it has asked to be traced by
/// this process, which follows nothing of it. The TRAP of an exec is the kernel's; a stop of the
/// whole process is left as one, and is followed as any other.
pub(super) fn go_on(pid: Pid, signal: libc::c_int) {
    let pid = pid.as_raw_nonzero().get();
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: calls on numbers, and on facts that live until the call returns; zeros are valid.
    unsafe {
        let is_signal = libc::ptrace(libc::PTRACE_GETSIGINFO, pid, 0, info.as_mut_ptr()) == 0;
        let is_of_exec = signal == libc::SIGTRAP && info.assume_init().si_code == libc::SI_USER;
        if is_signal {
            libc::ptrace(libc::PTRACE_CONT, pid, 0, if is_of_exec { 0 } else { signal });
        } else {
            libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0);
        }
    }
}

/// Ends this process by `signal`.
fn end_by(signal: libc::c_int) -> ! {
    let set = set_of(&[signal]);
    // SAFETY: the set is initialised; null asks for no old mask. The default action of `signal`
    // ends the process in this thread, the only one that does not block it.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
    }
    process::exit(128 + signal)
}

/// A mask of `signals`.
pub(super) fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set that it is given, and the others get an
    // initialised one.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Whether this process is the leader of its session.
fn leads_session() -> bool {
    getsid(None).is_ok_and(|session| session == getpid())
}

impl Forwarded {
    /// One without a value.
    pub(crate) fn plain(number: libc::c_int) -> Self {
        Self { number, value: None, to_group: false, from_kernel: false }
    }

    /// Whether the kernel would drop it, were those of `batch` pending.
    fn is_pending(self, batch: &[Self]) -> bool {
        let is_each_forwarded = self.number >= libc::SIGRTMIN() || UNDOING.contains(&self.number);
        !is_each_forwarded
            && batch
                .iter()
                .any(|signal| (signal.number, signal.to_group) == (self.number, self.to_group))
    }

    /// Whether processes that are stopped go on by it.
    pub(super) fn continues(self) -> bool {
        self.number == libc::SIGCONT
    }

    /// Sends it to the process `pid`, which may have ended meanwhile, or be of another user. False
    /// where it is to be tried again: a queue that is full has room once some are taken.
    pub(crate) fn send(self, pid: Pid) -> bool {
        let pid = pid.as_raw_nonzero().get();
        assert!(pid > 1, "no signal is for every process");
        let pid = if self.to_group { -pid } else { pid };
        // SAFETY: calls on numbers; the value is an address that nothing here follows.
        let sent = unsafe {
            match self.value.and_then(|value| usize::try_from(value).ok()) {
                Some(value) => {
                    let sival_ptr = std::ptr::without_provenance_mut(value);
                    libc::sigqueue(pid, self.number, libc::sigval { sival_ptr })
                }
                None => libc::kill(pid, self.number),
            }
        };
        let why = (sent < 0).then(|| io::Error::last_os_error().raw_os_error()).flatten();
        let is_hangup = self.number == libc::SIGHUP && self.from_kernel;
        if why == Some(libc::EPERM) && is_hangup && leads_session() {
            // The end of a terminal's leader has the kernel send it to the whole group.
            end_by(libc::SIGHUP);
        }
        why != Some(libc::EAGAIN)
    }

    /// Sends `batch` to the process `pid`, in order. A full queue is waited for, for a while.
    pub(crate) fn send_all(batch: &[Self], pid: Pid) {
        let mut patience = SENT_AGAIN_MAX;
        for signal in batch {
            while !signal.send(pid) && patience > 0 {
                patience -= 1;
                thread::sleep(SENT_AGAIN_AFTER);
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.messages.as_fd()
    }
}

/// How often in a batch a full queue is waited for, and for how long.
const SENT_AGAIN_MAX: u32 = 80;
const SENT_AGAIN_AFTER: Duration = Duration::from_micros(500);
/// All signals but KILL and STOP; those of real time come besides. A fault of this process ends it
/// though they are blocked.
const BLOCKED: &[libc::c_int] = &[
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGABRT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGSTKFLT,
    libc::SIGURG,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGWINCH,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGCHLD,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Signals by which a terminal, or its end, reaches a whole group.
const OF_TERMINAL: &[libc::c_int] =
    &[libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGWINCH, libc::SIGTSTP];

/// Signals of the keys of a terminal that end a program.
const KEYS: &[libc::c_int] = &[libc::SIGINT, libc::SIGQUIT];
/// Signals that end a process which has results to write.
const ENDING: &[libc::c_int] = &[libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
/// What writing them takes at most, but for a reader or a server that keeps it waiting.
const LATE: Duration = Duration::from_secs(1);
/// Signals that the kernel sends to a process for what it and its children do.
const OWN: &[libc::c_int] = &[
    libc::SIGCHLD,
    libc::SIGPIPE,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Signals that undo others of these which are pending.
const UNDOING: &[libc::c_int] = &[libc::SIGCONT, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
const MESSAGE_BYTES: usize = size_of::<libc::signalfd_siginfo>();
/// Signals that are taken at a time, at most: more than there are numbers of which one is pending.
pub(super) const BATCH: usize = 64;

#[cfg(test)]
mod tests;
