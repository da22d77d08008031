//! The stops of traced threads, as the kernel tells them.
//!
//! # Invariants
//! - Only children of the calling thread, and what it traces, are waited for.
//! - A thread that is gone meanwhile, killed by another, is told as gone by the next wait: failed
//!   requests are no errors.
//! # Sources
//! ptrace(2); Linux `include/uapi/linux/ptrace.h`.

#![expect(unsafe_code, reason = "ptrace and waitpid for threads have no safe wrapper")]

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use super::filter::{ARCH, FOREIGN_FROM};

/// A thread that is traced, by its number.
pub(super) type ThreadId = libc::pid_t;

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It has ended.
    Ended(ExitStatus),
    /// It is about to make a call that the filter names.
    Call,
    /// The call that it went on with by [`to_end_of_call`] is over.
    EndOfCall,
    /// It is another program.
    Program,
    /// It has started a thread or a process, or is new.
    New,
    /// A signal is to be delivered.
    Signal(libc::c_int),
}

/// What became of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// One of them stopped.
    Stopped(ThreadId, Stop),
    /// None has, of those that are left.
    Running,
    /// All have ended.
    NoneLeft,
}

/// A call that is about to be made.
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) arguments: [u64; 6],
    /// Its number is not one of this processor's.
    pub(super) is_foreign: bool,
}

/// Waits for the next stop; nothing where no thread is left.
pub(super) fn next() -> Option<(ThreadId, Stop)> {
    match wait(0) {
        Next::Stopped(tid, stop) => Some((tid, stop)),
        Next::Running | Next::NoneLeft => None,
    }
}

/// What there is without waiting.
pub(super) fn next_now() -> Next {
    wait(libc::WNOHANG)
}

fn wait(how: libc::c_int) -> Next {
    loop {
        let mut status = 0;
        let how = how | libc::__WALL | libc::__WNOTHREAD;
        // SAFETY: the status is written to where it lies.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, how) };
        if tid >= 0 {
            return if tid > 0 { Next::Stopped(tid, stop(status)) } else { Next::Running };
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return Next::NoneLeft;
        }
    }
}

fn stop(status: libc::c_int) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended(ExitStatus::from_raw(status));
    }
    match (status >> 16, libc::WSTOPSIG(status)) {
        (libc::PTRACE_EVENT_SECCOMP, _) => Stop::Call,
        (libc::PTRACE_EVENT_EXEC, _) => Stop::Program,
        // A new thread begins with a signal that none has sent.
        (1.., _) | (0, libc::SIGSTOP) => Stop::New,
        (_, CALL_STOP) => Stop::EndOfCall,
        (_, signal) => Stop::Signal(signal),
    }
}

/// Has `tid`, and all that it starts, stop where it should, and end when this thread does.
pub(super) fn set_options(tid: ThreadId) -> io::Result<()> {
    assert!(tid > 0, "a thread has a number");
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_EXITKILL;
    // SAFETY: a request on numbers.
    let failed = unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, tid, 0, options) } < 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets `tid` go on, with this signal if it is not 0.
pub(super) fn go_on(tid: ThreadId, signal: libc::c_int) {
    assert!(tid > 0 && signal >= 0, "a thread and a signal, or none, have numbers");
    // SAFETY: a request on numbers.
    unsafe { libc::ptrace(libc::PTRACE_CONT, tid, 0, signal) };
}

/// Lets `tid` go on until its call is over.
pub(super) fn to_end_of_call(tid: ThreadId) {
    assert!(tid > 0, "a thread has a number");
    // SAFETY: a request on numbers.
    unsafe { libc::ptrace(libc::PTRACE_SYSCALL, tid, 0, 0) };
}

/// The call that `tid` is about to make.
pub(super) fn call(tid: ThreadId) -> Option<Call> {
    let info = info(tid).filter(|info| info.op == libc::PTRACE_SYSCALL_INFO_SECCOMP)?;
    // SAFETY: `op` says that this part was written.
    let (number, arguments) = unsafe { (info.u.seccomp.nr, info.u.seccomp.args) };
    let is_foreign = info.arch != ARCH || number >= u64::from(FOREIGN_FROM);
    Some(Call { number, arguments, is_foreign })
}

/// What the call of `tid` has returned.
pub(super) fn result(tid: ThreadId) -> Option<i64> {
    let info = info(tid).filter(|info| info.op == libc::PTRACE_SYSCALL_INFO_EXIT)?;
    // SAFETY: `op` says that this part was written.
    Some(unsafe { info.u.exit.sval })
}

/// Whether the kernel tells calls: Linux 5.3 or later.
pub(super) fn tells_calls(tid: ThreadId) -> bool {
    info(tid).is_some()
}

fn info(tid: ThreadId) -> Option<libc::ptrace_syscall_info> {
    let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    let size = size_of::<libc::ptrace_syscall_info>();
    // SAFETY: the kernel writes at most `size` bytes, the size of the structure, which is of
    // integers alone, and all zeros before.
    unsafe {
        let written = libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, tid, size, info.as_mut_ptr());
        (written > 0).then(|| info.assume_init())
    }
}

/// The signal of a stop at a call's end, with the option that marks it.
const CALL_STOP: libc::c_int = libc::SIGTRAP | 0x80;
