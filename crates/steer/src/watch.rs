//! The program's processes: itself, its children, theirs.
//!
//! ```text
//!   pid --> pidfd --> /proc/PID, kept open --> its parent is one of ours --> pidfd: still alive?
//! ```
//! The directory of `/proc` that is kept open tells of that process alone: once it is gone, reads
//! through it fail, whoever has the number then. So a number is looked at once, and a process that
//! got it from another in between has another parent or is found dead.
//!
//! # Invariants
//! - Only descendants are followed, found while their parent was; at most [`PROCESSES_MAX`].
//! - A process that this one may not look into (setuid, not dumpable, of another user) is counted
//!   and left alone.
//! # Sources
//! `pidfd_open(2)`, proc(5).

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use forerun_core::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Dir, Mode, OFlags, open, openat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use crate::clock::time_of;
use crate::files::{Files, file, text};
use crate::maps::Maps;
use crate::proc;
use crate::readers::Readers;

/// The processes that are followed.
#[derive(Debug)]
pub(crate) struct Tree {
    processes: BTreeMap<i32, Process>,
    /// Whether the kernel lists a thread's children (`CONFIG_PROC_CHILDREN`).
    tells_children: bool,
    pub(crate) seen: u64,
    pub(crate) skipped: u64,
}

#[derive(Debug)]
struct Process {
    pidfd: OwnedFd,
    /// `/proc/PID`.
    folder: OwnedFd,
    files: Files,
    maps: Maps,
    may_look: bool,
    /// Processor time that it had taken at the last look, where the kernel tells.
    processor: Option<Nanos>,
}

impl Tree {
    /// The tree below `program`, a child of this process.
    pub(crate) fn new(program: Pid) -> Self {
        let tells_children = Path::new("/proc/thread-self/children").exists();
        let mut tree = Self { processes: BTreeMap::new(), tells_children, seen: 0, skipped: 0 };
        tree.add(program.as_raw_nonzero().get(), getpid().as_raw_nonzero().get());
        tree
    }

    /// What becomes readable when a process ends.
    pub(crate) fn ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.processes.values().map(|process| process.pidfd.as_fd())
    }

    /// Looks where the processes are in their files. Whether any is elsewhere than before.
    pub(crate) fn look(&mut self, now: Nanos, readers: &mut dyn Readers) -> bool {
        let mut moved = false;
        for (&pid, process) in &mut self.processes {
            readers.process(pid, process.processor);
            moved |= process.files.look(process.folder.as_fd(), now, readers);
            moved |= process.maps.look(process.folder.as_fd(), now, readers);
        }
        moved
    }

    /// Lets go of all.
    pub(crate) fn clear(&mut self) {
        self.processes.clear();
    }

    /// Lets go of what has ended.
    pub(crate) fn let_go(&mut self, now: Nanos, readers: &mut dyn Readers) {
        self.processes.retain(|_, process| {
            let alive = !has_ended(&process.pidfd);
            if !alive {
                process.files.close(now, readers);
                process.maps.close(now, readers);
            }
            alive
        });
    }

    /// Whether any process may have run since the last time, or is owed a look; it is kept how long
    /// each has run.
    pub(crate) fn has_run(&mut self) -> bool {
        let mut has_run = false;
        for (&pid, process) in &mut self.processes {
            let before = std::mem::replace(&mut process.processor, time_of(pid));
            has_run |= process.processor.is_none() || process.processor != before;
            has_run |= process.maps.owes();
        }
        has_run
    }

    /// Takes in what is new: children, descriptors. Whether there may be more: who was just found
    /// has not been looked into.
    pub(crate) fn discover(&mut self, now: Nanos, readers: &mut dyn Readers) -> bool {
        let mut children = if self.tells_children { Vec::new() } else { self.by_parent() };
        for (&pid, process) in &mut self.processes {
            process.children(|child| children.push((child, pid)));
            let before = process.may_look;
            process.discover(now, readers);
            self.skipped += u64::from(before && !process.may_look);
        }
        let seen = self.seen;
        for (child, parent) in children {
            if !self.processes.contains_key(&child) && self.processes.len() < PROCESSES_MAX {
                self.add(child, parent);
            }
        }
        self.seen > seen
    }

    /// The folder in `/proc` of the process `pid`, which tells by itself what it reads by
    /// `descriptor`: its position is not looked at any more.
    pub(crate) fn tells(
        &mut self,
        pid: i32,
        descriptor: i32,
        now: Nanos,
        readers: &mut dyn Readers,
    ) -> Option<BorrowedFd<'_>> {
        let process = self.processes.get_mut(&pid)?;
        let folder = process.folder.as_fd();
        if !process.files.leave(descriptor, now, readers) {
            process.files.discover(folder).ok()?;
            process.files.leave(descriptor, now, readers);
        }
        Some(folder)
    }

    /// Processor time that the process `pid` had taken at the last look.
    pub(crate) fn processor(&self, pid: i32) -> Option<Nanos> {
        self.processes.get(&pid)?.processor
    }

    /// The processes and their folders in `/proc`.
    pub(crate) fn folders(&self) -> impl Iterator<Item = (i32, BorrowedFd<'_>)> {
        self.processes.iter().map(|(&pid, process)| (pid, process.folder.as_fd()))
    }

    /// Whether the process `pid` is followed.
    pub(crate) fn has(&self, pid: i32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// Children and their parents, found among all processes there are.
    fn by_parent(&self) -> Vec<(i32, i32)> {
        let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
        let pids = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let with_parent = pids.filter_map(|pid: i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, proc::parent(&stat)?))
        });
        with_parent.filter(|(_, parent)| self.processes.contains_key(parent)).collect()
    }

    fn add(&mut self, pid: i32, parent: i32) {
        if let Some(process) = Process::open(pid, parent) {
            self.seen += 1;
            self.processes.insert(pid, process);
        }
    }
}

impl Process {
    fn open(pid: i32, parent: i32) -> Option<Self> {
        let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(format!("/proc/{pid}"), flags, Mode::empty()).ok()?;
        let (files, maps) = (Files::default(), Maps::default());
        let process = Self { pidfd, folder, files, maps, may_look: true, processor: None };
        let is_ours = text(&process.file("stat")?, proc::parent) == Some(parent);
        (is_ours && !has_ended(&process.pidfd)).then_some(process)
    }

    /// Takes in what it has newly opened and mapped.
    fn discover(&mut self, now: Nanos, readers: &mut dyn Readers) {
        let folder = self.folder.as_fd();
        let found = self.files.discover(folder);
        // One that has just ended cannot be looked into either, and is let go of.
        self.may_look = !matches!(found, Err(Errno::ACCESS | Errno::PERM));
        if found.is_ok() {
            // Where that cannot be read, there is nothing to follow.
            let _ = self.maps.discover(folder, now, readers);
        }
    }

    fn file(&self, name: &str) -> Option<File> {
        file(self.folder.as_fd(), name)
    }

    /// Names the children that its threads have.
    fn children(&self, mut child: impl FnMut(i32)) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tasks = openat(&self.folder, "task", flags, Mode::empty());
        let Some(tasks) = tasks.ok().and_then(|tasks| Dir::new(tasks).ok()) else { return };
        for task in tasks.flatten().take(THREADS_MAX + 2) {
            let Ok(name) = task.file_name().to_str() else { continue };
            if name.starts_with('.') {
                continue;
            }
            let list = self.file(&format!("task/{name}/children"));
            let Some(list) = list.and_then(|file| std::io::read_to_string(file).ok()) else {
                continue;
            };
            list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).for_each(&mut child);
        }
    }
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut ends = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
}

/// Processes that are followed.
const PROCESSES_MAX: usize = 256;
/// Threads of a process whose children are looked for.
const THREADS_MAX: usize = 64;
