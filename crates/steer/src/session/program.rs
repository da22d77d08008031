//! The program: started as a shell would, left alone, waited for.
//!
//! The program is a child of this process, in the same process group, with the same terminal,
//! standard input, output and error, unless its output is redirected. Before it runs only signals
//! are blocked ([`Signals`]).
//!
//! # Invariants
//! - The program's process is reaped by [`Program::ended`] alone, so its number stays its own until
//!   then.
//! - Once the program runs, this process holds neither its input nor its output: the reader of a
//!   pipe sees the end when the program closes it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::signals::Signals;

/// Why the program did not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {name}: {source}")]
pub struct StartError {
    /// The program's name.
    name: String,
    /// The system's error.
    source: io::Error,
}

impl StartError {
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

/// A program that was started.
pub(crate) struct Program {
    child: Child,
    /// `None` where the system has no such descriptors: then nothing is watched.
    pidfd: Option<OwnedFd>,
}

impl Program {
    /// Starts `words`: a program, found as a shell finds it, and its arguments. `variables` are
    /// added to its environment; its output goes to `output`, else to that of this process.
    pub(crate) fn start(
        words: &[OsString],
        variables: &[(OsString, OsString)],
        output: Option<OwnedFd>,
        signals: &Signals,
    ) -> Result<Self, StartError> {
        let (name, arguments) = words.split_first().expect("a program is named");
        let mut command = Command::new(name);
        command.args(arguments).envs(variables.iter().cloned());
        signals.restore_in(&mut command);
        let keeps_output = output.is_some();
        if let Some(output) = output {
            command.stdout(output);
        }
        let child = command.spawn().map_err(|source| {
            let name = name.to_string_lossy().into_owned();
            StartError { name, source }
        })?;
        // The command holds the redirected output until it goes.
        drop(command);
        release_pipes(keeps_output);
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        Ok(Self { child, pidfd })
    }

    /// Its process number.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Forwards a signal.
    pub(crate) fn send(&self, signal: Signal) {
        // The program may have ended meanwhile, or be of another user.
        let _ = kill_process(self.pid(), signal);
    }

    /// The descriptor that becomes readable at its end.
    pub(crate) fn end(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(|pidfd| pidfd.as_fd())
    }

    /// Its exit status as a shell reports it, if it has ended.
    pub(crate) fn ended(&mut self) -> io::Result<Option<u8>> {
        Ok(self.child.try_wait()?.map(|status| {
            let signal = status.signal().map(|signal| 128 + signal);
            let status = status.code().or(signal).unwrap_or(i32::from(u8::MAX));
            u8::try_from(status & 0xff).expect("masked")
        }))
    }
}

/// Leaves input and output to the program alone, but for an output that it does not have.
fn release_pipes(keeps_output: bool) {
    let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") else {
        return;
    };
    // Where that fails they are closed with this process.
    let _ = rustix::stdio::dup2_stdin(&null);
    if !keeps_output {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}
