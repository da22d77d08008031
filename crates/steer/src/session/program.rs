//! The program: started as a shell would, left alone, waited for.
//!
//! The program is a child of this process, in the same process group, with the same terminal,
//! standard input, output and error, unless its output is redirected. Before it runs, it gets what
//! this process inherited ([`Inherited`]).
//!
//! # Invariants
//! - The program's process is reaped by [`Program::ended`] alone, so its number stays its own until
//!   then.
//! - Before the program runs this process holds nothing that it inherited but input, output and
//!   errors, files with locks of the caller's, and what a file system or a device takes longer than
//!   [`CLOSED_WITHIN`] to close; these three it closes then. The reader of a pipe sees the end when
//!   the program closes it.
//! - Where there can be no other process, this one becomes the program.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use forerun_core::units::Nanos;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, pidfd_open, waitid, waitpid,
};

use super::exec::{Answer, Exec, Refused, Started};
use super::inherited::{self, Inherited};
use super::signals::{BATCH, Forwarded, Signals, go_on};
use crate::aside::descriptors::{Closers, Descriptors};
use crate::observe::shim::RingWriter;

/// Why the program did not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {name}: {}", self.why())]
pub struct StartError {
    /// The program's name.
    name: String,
    /// The system's error.
    source: io::Error,
}

impl StartError {
    pub(crate) fn new(name: &OsStr, source: io::Error) -> Self {
        Self { name: name.to_string_lossy().into_owned(), source }
    }

    /// The system's error, in words of what was looked for where it has none.
    fn why(&self) -> String {
        let is_named = !self.name.contains('/');
        match self.source.kind() {
            io::ErrorKind::NotFound if is_named => "there is no such program in PATH".to_owned(),
            _ if self.source.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
                "it is no program; a script begins with `#!` and what runs it".to_owned()
            }
            _ => self.source.to_string(),
        }
    }

    /// The exit status that a shell gives in this case: 127 for a program that is not found, 126
    /// for one that cannot be executed.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self.source.kind() {
            io::ErrorKind::NotFound => 127,
            // The system has no room for another process.
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => 1,
            _ => 126,
        }
    }
}

/// How a program is started.
pub(crate) struct Start<'a> {
    /// A program, found as a shell finds it, and its arguments.
    pub(crate) words: &'a [OsString],
    /// Added to its environment.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// Where its output goes, if not to that of this process.
    pub(crate) output: Option<OwnedFd>,
    /// Whether this process still writes to the errors, which the program writes to.
    pub(crate) keeps_errors: bool,
    pub(crate) inherited: Inherited,
    /// The descriptors that it gets.
    pub(crate) descriptors: Descriptors,
    /// Of the shim's ring, kept until the program has its descriptor.
    pub(crate) writer: Option<RingWriter>,
}

/// A program that was started.
pub(crate) struct Program {
    pid: Pid,
    /// `None` where the system has no such descriptors.
    pidfd: Option<OwnedFd>,
    /// Close what was handed on and may block.
    closers: Closers,
    /// The signal that has ended it.
    ended_by: Option<libc::c_int>,
}

impl Program {
    /// Starts the program. Signals that come meanwhile are forwarded to it.
    pub(crate) fn start(start: Start<'_>, signals: &mut Signals) -> Result<Self, StartError> {
        let words = start.words;
        Self::of(start, signals).map_err(|source| StartError::new(&words[0], source))
    }

    fn of(mut start: Start<'_>, signals: &mut Signals) -> io::Result<Self> {
        let (keeps_output, keeps_errors) = (start.output.is_some(), start.keeps_errors);
        let writer = start.writer.take();
        let mut standard = std::mem::take(&mut start.descriptors);
        let mut others = Some(standard.take_others()).filter(|others| !others.is_empty());
        let mut exec = start.exec(signals.take_before())?;
        let began = exec.start(others.is_some());
        let began = began.map_err(|source| Refused { source, before_exec: true });
        let (mut met, mut closers) = (Vec::new(), None);
        let release = || {
            closers = others.take().map(|others| others.release_all_but(&[]));
            if let Some(closers) = &mut closers {
                closers.wait_while_they_run(CLOSED_WITHIN);
            }
        };
        let pid = match began.and_then(|started| become_one(started, signals, &mut met, release)) {
            Ok(pid) => pid,
            // Only a process that still has what is inherited can become the program.
            Err(why) if closers.is_none() && (why.is_for_want_of_room() || why.before_exec) => {
                // They have met a process that is gone, and are for the program.
                exec.add_pending(met);
                return Err(exec.replace().source);
            }
            Err(why) => return Err(why.source),
        };
        // What was to start it holds the redirected output until it goes.
        drop((exec, writer));
        let kept = [(1, keeps_output), (2, keeps_errors)];
        let kept = kept.into_iter().filter_map(|(number, is_kept)| is_kept.then_some(number));
        let mut closers = closers.unwrap_or_default();
        closers.extend(standard.release_all_but(&kept.collect::<Vec<_>>()));
        // What the program leaves can be unmounted; what that fails at is kept until the end.
        inherited::leave_shared_folder();
        let _ = env::set_current_dir("/");
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok();
        Ok(Self { pid, pidfd, closers, ended_by: None })
    }

    /// Its process number.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// The descriptor that becomes readable at its end.
    pub(crate) fn end(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(|pidfd| pidfd.as_fd())
    }

    /// Its exit status as a shell reports it, if it has ended.
    pub(crate) fn ended(&mut self) -> io::Result<Option<u8>> {
        self.closers.reap();
        let Some((_, status)) = waitpid(Some(self.pid), WaitOptions::NOHANG)? else {
            return Ok(None);
        };
        if let Some(signal) = status.stopping_signal() {
            go_on(self.pid, signal);
            return Ok(None);
        }
        self.ended_by = status.terminating_signal();
        let signal = self.ended_by.map(|signal| 128 + signal);
        let status = status.exit_status().or(signal).unwrap_or(i32::from(u8::MAX));
        Ok(Some(u8::try_from(status & 0xff).expect("masked")))
    }

    /// The signal that has ended it, if one has.
    pub(crate) fn ended_by(&self) -> Option<libc::c_int> {
        self.ended_by
    }

    /// It has ended, and what was handed on is waited for no longer than `time`.
    pub(crate) fn leaves_files_after(&mut self, time: Nanos) {
        self.closers.leave_after(time);
    }
}

impl Program {
    /// The signal that has stopped it, told once.
    pub(super) fn stopped(&self) -> Option<libc::c_int> {
        let change = self.change(WaitIdOptions::STOPPED)?;
        if let Some(signal) = change.trapping_signal() {
            go_on(self.pid, signal);
        }
        change.stopping_signal()
    }

    /// Whether it goes on after it was stopped, told once.
    pub(super) fn has_continued(&self) -> bool {
        self.change(WaitIdOptions::CONTINUED).is_some()
    }

    fn change(&self, kind: WaitIdOptions) -> Option<WaitIdStatus> {
        let pid = WaitId::Pid(self.pid());
        waitid(pid, kind | WaitIdOptions::NOHANG).ok().flatten()
    }
}

impl Start<'_> {
    /// This process becomes the program, which nothing observes. Why it did not.
    pub(crate) fn replace(mut self) -> StartError {
        let (_writer, words) = (self.writer.take(), self.words);
        let source =
            self.exec(Vec::new()).map_or_else(|source| source, |exec| exec.replace().source);
        StartError::new(&words[0], source)
    }

    fn exec(self, pending: Vec<Forwarded>) -> io::Result<Exec> {
        // A program with an environment of its own would get it in another order.
        inherited::add(&self.variables);
        Exec::new(self.words, &self.inherited, self.output, pending)
    }
}

/// Waits until `started` is the program, or why it is not; once it is ready for that, `release`
/// closes what it has inherited. Signals that come are forwarded to it; these, and those that it
/// got besides, are in `met`.
fn become_one(
    mut started: Started,
    signals: &mut Signals,
    met: &mut Vec<Forwarded>,
    mut release: impl FnMut(),
) -> Result<Pid, Refused> {
    let pid = started.pid;
    let forward = |batch: Vec<Forwarded>, met: &mut Vec<Forwarded>| {
        Forwarded::send_all(&batch, pid);
        met.extend(batch);
    };
    // It may be the program already, and have left the group.
    signals.program = Some(pid);
    let early = signals.take_early(pid, met);
    forward(early, met);
    loop {
        let mut awaited =
            [PollFd::new(&started.answer, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        // Interrupted or not, what there is is handled; where a filter of system calls refuses to
        // wait for both, the answer is waited for.
        let is_refused =
            rustix::event::poll(&mut awaited, None).is_err_and(|errno| errno != Errno::INTR);
        let is_answered = is_refused || !awaited[0].revents().is_empty();
        let batch = signals.take_noting(met);
        forward(batch, met);
        // In a storm these are enough.
        met.truncate(BATCH);
        if is_answered {
            match started.answered()? {
                Answer::Program => return Ok(pid),
                Answer::Ready => {
                    release();
                    started.go();
                }
            }
        }
    }
}

impl Refused {
    /// Whether the system had no room for another process.
    fn is_for_want_of_room(&self) -> bool {
        let errno = self.source.raw_os_error().map(Errno::from_raw_os_error);
        matches!(errno, Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE))
    }
}

/// How long a process that is about to become the program waits for [`Closers`]. A close waits for
/// a processor at most, unless a file system or a device blocks it.
const CLOSED_WITHIN: Nanos = Nanos::from_millis(100);

#[cfg(test)]
#[expect(unsafe_code, reason = "a signal for one thread has no safe wrapper")]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn signals_that_a_process_has_met_which_is_no_program_are_for_what_is_tried_next() {
        let mut child = Command::new("cat");
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).unwrap();
        let mut signals = Signals::block().unwrap();
        let (answer, mut told) = UnixStream::pair().unwrap();
        let [a, b, c, d] = Errno::PERM.raw_os_error().to_ne_bytes();
        told.write_all(&[1, a, b, c, d]).unwrap();
        drop(told);
        // SAFETY: calls on numbers.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) };
        let mut met = Vec::new();
        let refused = become_one(Started { pid, answer }, &mut signals, &mut met, || {});
        assert!(refused.is_err_and(|why| why.before_exec));
        // It was waited for.
        let _ = child.wait();
        assert_eq!(met, [Forwarded::plain(libc::SIGUSR1)]);
    }
}
