//! The processes of the program: itself, its children, theirs.
//!
//! ```text
//!   pid --> pidfd --> /proc/PID, kept open --> its parent is in the tree --> pidfd: still alive?
//! ```
//! A folder of `/proc` that is open is of one process: once that is gone, reads through the folder
//! fail, whichever process has the number then. So a number is resolved once, and a process that
//! got the number of another meanwhile has another parent or is found dead.
//!
//! # Invariants
//! - Only descendants are followed, found while their parent is; at most [`PROCESSES_MAX`].
//! - A process that this one has no permission to look into (set-uid, not dumpable, of another
//!   user) is counted as skipped, also where the system hides that it is there (`hidepid`).
//! # Sources
//! `pidfd_open(2)`, proc(5).

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use forerun_core::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::access::AccessSink;
use super::blocked::{BlockedCalls, BlockedCounts, BlockedIn, KEPT_MAX, Polled, may_attach};
use super::mappings::Mappings;
use super::open_files::{Inode, OpenFiles};
use super::poll::Allowance;
use super::procfs;
use crate::clock::time_of;

/// The processes that are followed.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    processes: BTreeMap<i32, Process>,
    /// Whether the kernel lists a thread's children (`CONFIG_PROC_CHILDREN`).
    lists_children: bool,
    seen: u64,
    skipped: u64,
    /// Processes of which the system shows nothing (`hidepid`), until they end.
    hidden: BTreeMap<i32, OwnedFd>,
    /// The process that a discovery goes on with.
    discovered: i32,
    polled: Turn,
    may_attach: bool,
    blocked: BlockedCounts,
    blocked_polled: Turn,
}

/// How far the last poll came.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// The process that the next one goes on with.
    next: i32,
    /// It had no time for all processes.
    is_cut: bool,
}

#[derive(Debug)]
struct Process {
    pidfd: OwnedFd,
    /// `/proc/PID`.
    folder: OwnedFd,
    files: OpenFiles,
    mappings: Mappings,
    blocked: BlockedCalls,
    is_permitted: bool,
    /// Processor time used until the last poll, where the kernel tells.
    processor: Option<Nanos>,
    /// The same until the last discovery that found all there was.
    discovered: Option<Nanos>,
}

impl ProcessTree {
    /// The tree below `program`, a child of `parent`.
    pub(crate) fn new(program: Pid, parent: Option<Pid>) -> Self {
        let lists_children = Path::new("/proc/thread-self/children").exists();
        let mut tree = Self {
            processes: BTreeMap::new(),
            lists_children,
            seen: 0,
            skipped: 0,
            hidden: BTreeMap::new(),
            discovered: 0,
            polled: Turn::default(),
            may_attach: may_attach(),
            blocked: BlockedCounts::default(),
            blocked_polled: Turn::default(),
        };
        if let Some(parent) = parent {
            tree.add(program.as_raw_nonzero().get(), parent.as_raw_nonzero().get());
        }
        tree
    }

    /// Processes that were followed so far.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// How often one of them could not be looked into any more.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The descriptors that become readable when a process ends.
    pub(crate) fn ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.processes.values().map(|process| process.pidfd.as_fd())
    }

    /// Those of [`Self::ends`] that are of processes whose files are open here.
    pub(crate) fn ends_of_holders(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let holds = |it: &&Process| it.files.holds_any() || it.mappings.holds_any();
        self.processes.values().filter(holds).map(|process| process.pidfd.as_fd())
    }

    /// Reports where the processes are in their files, one after the other as far as `allowance`
    /// goes; the next call goes on from there. Whether any moved.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> bool {
        let (mut moved, mut is_over) = (false, false);
        self.polled.is_cut = false;
        for pid in self.in_turn(self.polled.next) {
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            if is_over {
                self.polled = Turn { next: pid, is_cut: true };
                break;
            }
            sink.process(pid, process.processor);
            moved |= process.files.poll(process.folder.as_fd(), now, allowance, sink);
            moved |= process.mappings.poll(process.folder.as_fd(), now, allowance, sink);
            is_over = allowance.is_over();
        }
        moved
    }

    /// Reports the calls that threads are newly blocked in, of one process after the other as far
    /// as `allowance` goes; the next call goes on from there. Whether there were any.
    pub(crate) fn poll_blocked(
        &mut self,
        now: Nanos,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> bool {
        let kept = self.processes.values().map(|process| process.blocked.kept()).sum();
        let mut room = KEPT_MAX.saturating_sub(kept);
        let (mut moved, mut is_over) = (false, false);
        self.blocked_polled.is_cut = false;
        for pid in self.in_turn(self.blocked_polled.next) {
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            if is_over {
                self.blocked_polled = Turn { next: pid, is_cut: true };
                break;
            }
            let (folder, processor) = (process.folder.as_fd(), process.processor);
            let polled = Polled { pid, process: folder, processor, may_attach: self.may_attach };
            let counts = &mut self.blocked;
            sink.process(pid, processor);
            let (has_new, is_whole) =
                process.blocked.poll(now, polled, &mut room, allowance, counts, sink);
            for (descriptor, call) in process.blocked.take_moves() {
                process.files.moving(descriptor, call);
            }
            moved |= has_new;
            if !is_whole {
                self.blocked_polled = Turn { next: pid, is_cut: true };
                break;
            }
            is_over = allowance.is_over();
        }
        moved
    }

    /// What each thread of the process `pid` was met in.
    pub(crate) fn met(&self, pid: i32) -> impl Iterator<Item = (i32, BlockedIn)> {
        self.processes.get(&pid).into_iter().flat_map(|process| process.blocked.met())
    }

    /// What was met in blocked calls.
    pub(crate) fn blocked_counts(&self) -> BlockedCounts {
        self.blocked
    }

    /// All processes, from `first` on and then those before it.
    fn in_turn(&self, first: i32) -> Vec<i32> {
        let behind = self.processes.range(first..).chain(self.processes.range(..first));
        behind.map(|(&pid, _)| pid).collect()
    }

    /// Forgets all processes.
    pub(crate) fn clear(&mut self) {
        self.processes.clear();
        self.hidden.clear();
    }

    /// The processes that have ended. What they did until then can be told before they are
    /// forgotten.
    pub(crate) fn ended(&self) -> Vec<i32> {
        let ended = self.processes.iter().filter(|(_, process)| has_ended(&process.pidfd));
        ended.map(|(&pid, _)| pid).collect()
    }

    /// Forgets the processes `ended`.
    pub(crate) fn reap(&mut self, ended: &[i32], now: Nanos, sink: &mut dyn AccessSink) {
        for pid in ended {
            let Some(mut process) = self.processes.remove(pid) else { continue };
            process.files.close(now, sink);
            process.mappings.close(now, sink);
        }
    }

    /// Whether any process may have run since the last call, or has a pending scan. Updates the
    /// processor time of each.
    pub(crate) fn has_run(&mut self) -> bool {
        let mut has_run = self.polled.is_cut || self.blocked_polled.is_cut;
        for (&pid, process) in &mut self.processes {
            let before = std::mem::replace(&mut process.processor, time_of(pid));
            has_run |= process.processor.is_none() || process.processor != before;
            has_run |= process.mappings.has_pending_scan() || process.files.is_cut();
        }
        has_run
    }

    /// Finds new children, descriptors and mappings, of one process after the other as far as
    /// `allowance` goes; the next call goes on from there. Whether there may be more: a process
    /// that was just found has not been looked into.
    pub(crate) fn discover(
        &mut self,
        now: Nanos,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> bool {
        let mut children = if self.lists_children { Vec::new() } else { self.by_parent() };
        let (mut has_more, mut is_over) = (false, false);
        for pid in self.in_turn(self.discovered) {
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            if process.has_nothing_new() {
                continue;
            }
            if is_over {
                self.discovered = pid;
                has_more = true;
                break;
            }
            process.children(pid, |child| children.push((child, pid)));
            let was_permitted = process.is_permitted;
            sink.process(pid, process.processor);
            let is_cut = process.discover(now, allowance, sink);
            self.skipped += u64::from(was_permitted && !process.is_permitted);
            if is_cut {
                self.discovered = pid;
                has_more = true;
                break;
            }
            process.discovered = process.processor;
            is_over = allowance.is_over();
        }
        let seen = self.seen;
        self.hidden.retain(|_, pidfd| !has_ended(pidfd));
        for (child, parent) in children {
            if !self.processes.contains_key(&child) && self.processes.len() < PROCESSES_MAX {
                self.add(child, parent);
            }
        }
        assert!(self.processes.len() <= PROCESSES_MAX, "more processes than are allowed");
        has_more || self.seen > seen
    }

    /// The folder in `/proc` of the process `pid`, whose accesses to the file `inode` by
    /// `descriptor` another observer sees: the position of that is no longer followed. With it what
    /// that has reported last: the other observer may come to know of it, too.
    pub(crate) fn hand_over(
        &mut self,
        pid: i32,
        descriptor: i32,
        inode: Inode,
        now: Nanos,
        sink: &mut dyn AccessSink,
    ) -> Option<(BorrowedFd<'_>, [Range<u64>; 2])> {
        let process = self.processes.get_mut(&pid)?;
        let reported = process.files.leave(descriptor, inode, now, sink);
        Some((process.folder.as_fd(), reported))
    }

    /// No other observer sees the accesses by `descriptor` any more.
    pub(crate) fn take_back(&mut self, pid: i32, descriptor: i32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.files.take_back(descriptor);
        }
    }

    /// Processor time that the process `pid` had used at the last poll.
    pub(crate) fn processor(&self, pid: i32) -> Option<Nanos> {
        self.processes.get(&pid)?.processor
    }

    /// The processes and their folders in `/proc`.
    pub(crate) fn folders(&self) -> impl Iterator<Item = (i32, BorrowedFd<'_>)> {
        self.processes.iter().map(|(&pid, process)| (pid, process.folder.as_fd()))
    }

    /// The folder in `/proc` of the process `pid`, where that is followed.
    pub(crate) fn folder(&self, pid: i32) -> Option<BorrowedFd<'_>> {
        self.processes.get(&pid).map(|process| process.folder.as_fd())
    }

    /// Whether the process `pid` is followed.
    pub(crate) fn has(&self, pid: i32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// Children and their parents, found among all processes of the machine.
    fn by_parent(&self) -> Vec<(i32, i32)> {
        let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
        let pids = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let with_parent = pids.filter_map(|pid: i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, procfs::text::parent(&stat)?))
        });
        with_parent.filter(|(_, parent)| self.processes.contains_key(parent)).collect()
    }

    fn add(&mut self, pid: i32, parent: i32) {
        if let Some(process) = Process::open(pid, parent) {
            self.seen += 1;
            let before = self.processes.insert(pid, process);
            assert!(before.is_none(), "process {pid} is followed twice");
        } else if self.hidden.len() < PROCESSES_MAX
            && !self.hidden.contains_key(&pid)
            && let Some(pidfd) = hidden(pid)
        {
            self.skipped += 1;
            self.hidden.insert(pid, pidfd);
        }
    }
}

impl Process {
    fn open(pid: i32, parent: i32) -> Option<Self> {
        let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(format!("/proc/{pid}"), flags, Mode::empty()).ok()?;
        let (files, mappings) = (OpenFiles::new(pid), Mappings::default());
        let (blocked, is_permitted) = (BlockedCalls::default(), true);
        let (processor, discovered) = (None, None);
        let process =
            Self { pidfd, folder, files, mappings, blocked, is_permitted, processor, discovered };
        let stat = procfs::open_in(process.folder.as_fd(), "stat")?;
        let is_child = procfs::read(&stat, procfs::text::parent) == Some(parent);
        (is_child && !has_ended(&process.pidfd)).then_some(process)
    }

    /// Finds what it has newly opened and mapped. Whether `allowance` is too short for all.
    fn discover(&mut self, now: Nanos, allowance: Allowance, sink: &mut dyn AccessSink) -> bool {
        let folder = self.folder.as_fd();
        let found = self.files.discover(folder, self.processor, allowance);
        self.is_permitted = !matches!(found, Err(why) if self.is_denied(why));
        let Ok(is_cut) = found else { return false };
        // Where mappings cannot be read there is nothing to follow.
        let mappings = self.mappings.discover(folder, now, allowance, sink);
        is_cut || mappings == Some(false)
    }

    /// Whether `why` it could not be looked into is that it is another user's, or hidden as one. Of
    /// one that is about to end, the kernel shows less to all but root, and has no files.
    fn is_denied(&self, why: Errno) -> bool {
        match procfs::try_open_in(self.folder.as_fd(), "stat") {
            Ok(stat) => {
                let is_exiting = procfs::read(&stat, procfs::text::is_exiting) != Some(false);
                matches!(why, Errno::ACCESS | Errno::PERM) && !is_exiting
            }
            Err(why) => hides(why) && !has_ended(&self.pidfd),
        }
    }

    /// Whether it has used no processor since all was found that it had: without one it opens,
    /// maps and forks nothing.
    fn has_nothing_new(&self) -> bool {
        self.processor.is_some() && self.processor == self.discovered
    }

    /// Names the children of the threads of this process, `pid`.
    fn children(&self, pid: i32, mut child: impl FnMut(i32)) {
        let folder = self.folder.as_fd();
        let mut of = |thread| procfs::children(folder, thread).into_iter().for_each(&mut child);
        if procfs::thread_links(folder) == Ok(ONE_THREAD_LINKS) {
            return of(pid);
        }
        procfs::threads(folder, procfs::PARENTS_MAX).for_each(of);
    }
}

/// The process `pid`, if it lives and the system shows nothing of it.
fn hidden(pid: i32) -> Option<OwnedFd> {
    let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let stat = open(format!("/proc/{pid}/stat"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    // A process that has ended by now may have ended before.
    (stat.is_err_and(hides) && !has_ended(&pidfd)).then_some(pidfd)
}

/// Whether the system answers so where it shows nothing of a process.
fn hides(why: Errno) -> bool {
    matches!(why, Errno::NOENT | Errno::ACCESS | Errno::PERM)
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut ends = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
}

/// Processes that are followed at a time.
const PROCESSES_MAX: usize = 256;
/// Links of the folder of threads of a process with one.
const ONE_THREAD_LINKS: u32 = 3;
