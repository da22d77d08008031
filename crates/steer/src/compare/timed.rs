//! Timed runs: a command in a process group of its own, from its start to its end.
//!
//! # Invariants
//! - When a run is over, or given up, its process group has no process left.
//! - The wait is one call that returns at the command's end: looking out for a signal costs it
//!   nothing.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::Duration;

use forerun_core::units::Nanos;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::aside::is_readable;
use crate::clock::Clock;
use crate::session::Usage;

/// A run that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedRun {
    /// From the start to the end.
    pub time: Nanos,
    /// Processor time in user mode and in the kernel, with that of all children it waited for.
    pub user: Nanos,
    /// See `user`.
    pub system: Nanos,
    /// Bytes that it read from devices, with these children; readahead by others is not counted.
    pub device_bytes: u64,
    /// Its exit status as a shell reports it.
    pub status: u8,
}

/// Runs `command` to its end; nothing where `is_given_up` says so before that. One at a time: what
/// children of this process use meanwhile is counted as its.
///
/// # Errors
/// It does not start.
pub fn timed(
    command: &mut Command,
    is_given_up: impl Fn() -> bool,
) -> io::Result<Option<TimedRun>> {
    command.process_group(0);
    let (clock, before) = (Clock::start(), Usage::of_children());
    let mut child = command.spawn()?;
    let ended = wait(&mut child, is_given_up);
    let time = clock.now();
    let group = Pid::from_child(&child);
    let Some(status) = ended? else {
        end_group(group);
        child.wait()?;
        return Ok(None);
    };
    end_group(group);
    let Usage { processor, system, device_bytes } = Usage::of_children().since(before);
    assert!(system <= processor, "time in the kernel is a part");
    let (user, status) = (processor.since(system), shell_status(status));
    Ok(Some(TimedRun { time, user, system, device_bytes, status }))
}

fn wait(child: &mut Child, is_given_up: impl Fn() -> bool) -> io::Result<Option<ExitStatus>> {
    let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok();
    loop {
        match &end {
            Some(end) => drop(is_readable(end.as_fd(), LOOKED_EVERY)),
            None => thread::sleep(POLLED_EVERY),
        }
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if is_given_up() {
            return Ok(None);
        }
    }
}

/// Kills what is left of a process group; its first process may have been waited for.
pub(super) fn end_group(group: Pid) {
    let _ = kill_process_group(group, Signal::KILL);
}

/// The exit status as a shell reports it.
pub(super) fn shell_status(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    let status = status.code().or(signal).unwrap_or(i32::from(u8::MAX));
    u8::try_from(status & 0xff).expect("masked")
}

const LOOKED_EVERY: Nanos = Nanos::from_millis(50);
/// Where the system has no descriptors of processes.
const POLLED_EVERY: Duration = Duration::from_millis(1);
