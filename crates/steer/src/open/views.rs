//! Which processes see at a path what this process sees there, and may open all that it may: those
//! with its root and its rights.
//!
//! ```text
//!   report of a poll --process--> /proc/PID: root, rights      as of this process?
//! ```
//! What others use would be looked up, listed, and at the next start fetched, by rights that they
//! do not have. A process may change its view at any time, so an answer holds for one turn, as a
//! poll. Of one that has ended meanwhile the answer before counts, for files that it had open and
//! reads that watches tell; a path of a thread's memory counts while the thread is there
//! ([`crate::observe::access::EntryAccess::has_view`]).
//!
//! # Invariants
//! - A process of which nothing could ever be found out sees something else.
//! # Sources
//! credentials(7), `mount_namespaces(7)`: no two mounts have one number.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::entries::View;
use super::{HANDLE, Refusal};

/// See the module.
#[derive(Debug)]
pub(crate) struct Views {
    own: Option<View>,
    /// Processes: whether they saw the same when that was asked last, and in which turn.
    processes: BTreeMap<i32, (bool, u64)>,
    /// Answers of another turn are asked for again.
    turn: u64,
    /// The process that reports are of.
    process: i32,
}

impl Views {
    pub(crate) fn new() -> Self {
        Self { own: View::own().ok(), processes: BTreeMap::new(), turn: 0, process: 0 }
    }

    /// What was answered until now may have changed.
    pub(crate) fn turn(&mut self) {
        self.turn += 1;
    }

    /// The reports that follow are of the process `pid`.
    pub(crate) fn process(&mut self, pid: i32) {
        assert!(pid > 0, "a report is of a process");
        self.process = pid;
        self.turn();
    }

    /// Whether the process that reports are of sees the same.
    pub(crate) fn is_own_process(&mut self) -> bool {
        self.is_own(self.process)
    }

    /// Whether the process `pid` sees the same, or has ended and did.
    pub(crate) fn is_own(&mut self, pid: i32) -> bool {
        let before = self.processes.get(&pid).copied();
        if let Some((before, _)) = before.filter(|(_, turn)| *turn == self.turn) {
            return before;
        }
        let is_own = self.ask(pid).unwrap_or(before.is_some_and(|(before, _)| before));
        if self.processes.len() >= PROCESSES_MAX {
            self.processes.clear();
        }
        self.processes.insert(pid, (is_own, self.turn));
        assert!(self.processes.len() <= PROCESSES_MAX, "processes have a bound");
        is_own
    }

    /// What this process sees.
    pub(crate) fn own(&self) -> Option<&View> {
        self.own.as_ref()
    }

    /// Forgets what was answered: numbers of processes that have ended may be those of others.
    pub(crate) fn forget(&mut self) {
        self.processes.clear();
    }

    /// None where the process has ended.
    fn ask(&self, pid: i32) -> Option<bool> {
        assert!(pid > 0, "a process is asked about");
        let folder = openat(CWD, format!("/proc/{pid}"), HANDLE | OFlags::DIRECTORY, Mode::empty());
        let found = folder.map_err(Refusal::Absent).and_then(|folder| View::of(folder.as_fd()));
        match (&self.own, found) {
            (Some(own), Ok(found)) => Some(found.covers(own)),
            (Some(_), Err(Refusal::Absent(Errno::NOENT | Errno::SRCH))) => None,
            _ => Some(false),
        }
    }
}

const PROCESSES_MAX: usize = 1_024;

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write as _;
    use std::process::{Child, Command, Stdio};

    use forerun_testkit::{Scratch, installed, skip};

    use super::*;

    /// A shell that says when it has done `first`, and ends with its input.
    fn shell(first: &str) -> (Child, String) {
        let script = format!("{first} && echo ready && exec cat");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let said = line(&mut child);
        (child, said)
    }

    fn line(child: &mut Child) -> String {
        let mut text = String::new();
        let mut byte = [0];
        let from = child.stdout.as_mut().unwrap();
        while io_read(from, &mut byte) && byte[0] != b'\n' {
            text.push(char::from(byte[0]));
        }
        text
    }

    fn io_read(from: &mut impl std::io::Read, byte: &mut [u8; 1]) -> bool {
        from.read(byte).unwrap() == 1
    }

    /// A process of another user, that waits; none, and `test` is skipped by name, where this user
    /// can have none.
    pub(crate) fn with_fewer_rights(test: &str) -> Option<Child> {
        if !installed(test, "setpriv") {
            return None;
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1234", "--clear-groups", "sh", "-c", "echo ready; exec cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        if line(&mut child) == "ready" {
            return Some(child);
        }
        end(child);
        skip(test, "root");
        None
    }

    fn end(mut child: Child) {
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    fn pid(child: &Child) -> i32 {
        i32::try_from(child.id()).unwrap()
    }

    #[test]
    fn a_process_is_asked_again_with_each_poll() {
        let test = "a_process_is_asked_again_with_each_poll";
        if !installed(test, "unshare") {
            return;
        }
        let mut child = Command::new("sh");
        // The same process, before and after it has left for a namespace of its own.
        let script = "echo ready && read go && exec unshare -m sh -c 'echo there && exec cat'";
        let child = child.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.stderr(Stdio::null()).spawn().unwrap();
        assert_eq!(line(&mut child), "ready");
        let mut views = Views::new();
        let pid = pid(&child);
        views.process(pid);
        assert!(views.is_own_process() && views.is_own(pid));
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        if line(&mut child) != "there" {
            return skip(test, "a mount namespace");
        }
        assert!(views.is_own_process(), "an answer holds for a poll");
        views.process(pid);
        assert!(!views.is_own_process(), "it sees something else now");
        end(child);
        views.process(pid);
        assert!(!views.is_own_process(), "as it was seen last");
    }

    #[test]
    fn the_last_answer_counts_of_what_has_ended_and_none_is_no() {
        let (child, said) = shell("true");
        assert_eq!(said, "ready");
        let (pid, mut views) = (pid(&child), Views::new());
        views.process(pid);
        assert!(views.is_own_process());
        end(child);
        views.process(pid);
        assert!(views.is_own_process(), "as it was seen last");
        views.forget();
        assert!(!views.is_own_process());
        let mut others = Views::new();
        assert!(!others.is_own(pid), "nothing was ever known of it");
    }

    #[test]
    fn fewer_rights_are_another_view() {
        let Some(child) = with_fewer_rights("fewer_rights_are_another_view") else { return };
        let mut views = Views::new();
        views.process(pid(&child));
        assert!(!views.is_own_process());
        end(child);
    }

    #[test]
    fn a_root_that_is_no_part_of_the_tree_is_another_view() {
        let test = "a_root_that_is_no_part_of_the_tree_is_another_view";
        if !installed(test, "python3") {
            return;
        }
        // It is called `/`, as the own one is.
        let scratch = Scratch::new("views");
        let mut command = Command::new("python3");
        command.args(["-c", DETACHED]).arg(&*scratch).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        if line(&mut child) != "ready" {
            end(child);
            return skip(test, "root");
        }
        let mut views = Views::new();
        views.process(pid(&child));
        assert!(!views.is_own_process());
        end(child);
    }

    const DETACHED: &str = "
import os, subprocess, sys
place = sys.argv[1]
subprocess.run(['mount', '-t', 'tmpfs', 'none', place], check=True)
os.chdir(place)
subprocess.run(['umount', '-l', place], check=True)
os.chroot('.')
print('ready', flush=True)
sys.stdin.read()
";
}
