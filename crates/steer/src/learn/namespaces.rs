//! Which threads see at a path what this process sees there: those in its mount namespace and below
//! its root.
//!
//! ```text
//!   report of a poll --thread--> /proc/PID/task/TID/{ns/mnt,root}   same links as of /proc/self?
//! ```
//! A thread may leave both at any time, so an answer holds for one poll. Of a thread that has
//! ended meanwhile the answer of the poll before counts.
//!
//! # Invariants
//! - A thread of which nothing could ever be found out sees something else.
//! # Sources
//! namespaces(7), `CLONE_FS` in clone(2): threads of one process may differ in both.

use std::collections::BTreeMap;
use std::ffi::CString;

use rustix::fs::{CWD, readlinkat};

/// See the module.
#[derive(Debug)]
pub(super) struct Namespaces {
    own: Option<[CString; 2]>,
    /// Threads, and whether they saw the same when that was asked last.
    threads: BTreeMap<i32, bool>,
    /// The process that reports are of, and the thread that was asked about since they are.
    process: i32,
    asked: Option<i32>,
}

impl Namespaces {
    pub(super) fn new() -> Self {
        let own = links("/proc/self");
        Self { own, threads: BTreeMap::new(), process: 0, asked: None }
    }

    /// The reports that follow are of the process `pid`.
    pub(super) fn process(&mut self, pid: i32) {
        assert!(pid > 0, "a report is of a process");
        (self.process, self.asked) = (pid, None);
    }

    /// Whether the process that reports are of sees the same.
    pub(super) fn is_own_process(&mut self) -> bool {
        self.is_own(self.process, self.process)
    }

    /// Whether the process `pid` saw the same when that was asked last, or does now.
    pub(super) fn was_own(&mut self, pid: i32) -> bool {
        let before = self.threads.get(&pid).copied();
        before.unwrap_or_else(|| self.is_own(pid, pid))
    }

    /// Whether `thread` of the process `pid` sees the same.
    pub(super) fn is_own(&mut self, pid: i32, thread: i32) -> bool {
        let before = self.threads.get(&thread).copied();
        if let Some(before) = before.filter(|_| self.asked == Some(thread)) {
            return before;
        }
        let is_own = match links(&format!("/proc/{pid}/task/{thread}")) {
            Some(found) => self.own.as_ref() == Some(&found),
            None => before.unwrap_or(false),
        };
        if self.threads.len() >= THREADS_MAX {
            self.threads.clear();
        }
        self.threads.insert(thread, is_own);
        assert!(self.threads.len() <= THREADS_MAX, "threads have a bound");
        self.asked = Some(thread);
        is_own
    }
}

/// The mount namespace and the root of the thread whose folder is `folder`.
fn links(folder: &str) -> Option<[CString; 2]> {
    let link = |name| readlinkat(CWD, format!("{folder}/{name}"), Vec::new()).ok();
    Some([link("ns/mnt")?, link("root")?])
}

const THREADS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::{io::Write as _, process};

    use forerun_testkit::{installed, skip};

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
        let mut namespaces = Namespaces::new();
        let pid = pid(&child);
        namespaces.process(pid);
        assert!(namespaces.is_own_process() && namespaces.is_own(pid, pid));
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        if line(&mut child) != "there" {
            return skip(test, "a mount namespace");
        }
        assert!(namespaces.is_own_process(), "an answer holds for a poll");
        namespaces.process(pid);
        assert!(!namespaces.is_own_process(), "it sees something else now");
        end(child);
        namespaces.process(pid);
        assert!(!namespaces.is_own_process(), "as it was seen last");
    }

    #[test]
    fn the_last_answer_counts_of_what_has_ended_and_none_is_no() {
        let (child, said) = shell("true");
        assert_eq!(said, "ready");
        let (pid, mut namespaces) = (pid(&child), Namespaces::new());
        namespaces.process(pid);
        assert!(namespaces.is_own_process());
        end(child);
        namespaces.process(pid);
        assert!(namespaces.is_own_process(), "as it was seen last");
        let own = i32::try_from(process::id()).unwrap();
        let mut others = Namespaces::new();
        assert!(!others.is_own(own, pid), "nothing was ever known of it");
    }
}
