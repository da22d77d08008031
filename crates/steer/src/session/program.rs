//! The program: started as a shell would, left alone, waited for.
//!
//! The program is a child of this process, in the same process group, with the same terminal,
//! standard input, output and error, unless its output is redirected. Before it runs, it gets what
//! this process inherited ([`Inherited`]).
//!
//! # Invariants
//! - The program's process is reaped by [`Program::ended`] alone, so its number stays its own until
//!   then.
//! - Once the program runs, this process holds neither its input nor its output, nor anything else
//!   that it inherited, but for files with locks of the caller's: the reader of a pipe sees the end
//!   when the program closes it.
//! - Where there is no room for another process, this one becomes the program.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, waitid};

use super::inherited::{self, Inherited};
use crate::aside::descriptors::{self, Closer};
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
    /// Of the shim's ring, kept until the program has its descriptor.
    pub(crate) writer: Option<RingWriter>,
}

/// A program that was started.
pub(crate) struct Program {
    child: Child,
    /// `None` where the system has no such descriptors.
    pidfd: Option<OwnedFd>,
    /// Closes the files that were handed on.
    closer: Option<Closer>,
}

impl Program {
    /// Starts the program.
    pub(crate) fn start(mut start: Start<'_>) -> Result<Self, StartError> {
        let (keeps_output, keeps_errors) = (start.output.is_some(), start.keeps_errors);
        let writer = start.writer.take();
        let name = start.words.first().map(|name| name.to_string_lossy().into_owned());
        let mut command = start.command();
        let child = command.spawn().map_err(|source| {
            let errno = source.raw_os_error().map(Errno::from_raw_os_error);
            let is_full =
                matches!(errno, Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE));
            if is_full { command.exec() } else { source }
        });
        let name = name.unwrap_or_default();
        let child = child.map_err(|source| StartError { name, source })?;
        // The command holds the redirected output until it goes.
        drop((command, writer));
        let kept = [(1, keeps_output), (2, keeps_errors)];
        let kept = kept.into_iter().filter_map(|(number, is_kept)| is_kept.then_some(number));
        let closer = descriptors::release_all_but(&kept.collect::<Vec<_>>());
        // What the program leaves can be unmounted; what that fails at is kept until the end.
        let _ = env::set_current_dir("/");
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        Ok(Self { child, pidfd, closer })
    }

    /// Its process number.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The descriptor that becomes readable at its end.
    pub(crate) fn end(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(|pidfd| pidfd.as_fd())
    }

    /// Its exit status as a shell reports it, if it has ended.
    pub(crate) fn ended(&mut self) -> io::Result<Option<u8>> {
        self.closer.take_if(Closer::has_ended);
        Ok(self.child.try_wait()?.map(|status| {
            let signal = status.signal().map(|signal| 128 + signal);
            let status = status.code().or(signal).unwrap_or(i32::from(u8::MAX));
            u8::try_from(status & 0xff).expect("masked")
        }))
    }
}

impl Program {
    /// The signal that has stopped it, told once.
    pub(super) fn stopped(&self) -> Option<libc::c_int> {
        self.change(WaitIdOptions::STOPPED)?.stopping_signal()
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
        let _writer = self.writer.take();
        let name = self.words[0].to_string_lossy().into_owned();
        StartError { name, source: self.command().exec() }
    }

    fn command(self) -> Command {
        let (name, arguments) = self.words.split_first().expect("a program is named");
        let mut command = Command::new(name);
        command.args(arguments);
        // A command with variables of its own would put all in another order.
        inherited::add(&self.variables);
        self.inherited.hand_on_in(&mut command);
        if let Some(output) = self.output {
            command.stdout(output);
        }
        command
    }
}
