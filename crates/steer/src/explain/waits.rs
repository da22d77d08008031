//! The time that a program loses to waits for storage.
//!
//! ```text
//!   delay accounting   the kernel sums the time that devices block each thread; exact where
//!                      sysctl kernel.task_delayacct is 1 and the program has one thread
//!   sampled state      the state of each thread at each poll: r run (R), b are blocked (D).
//!                      Without waits r + b would run, on P processors: of the time since the poll
//!                      before 1 - min(r, P) / min(r + b, P) is lost
//! ```
//! Where none runs, all of the time is lost; where one of two compilers waits while the other uses
//! the second of two processors, half of it, as the work that is left would have been done by both;
//! where all processors are used, nothing. Beside threads that run, threads count as blocked that
//! were met in a call on an entry or in a page fault: others may wait for a lock, or for a child
//! (`vfork`). A program is no faster than the thread that ran longest, which bounds what is lost.
//!
//! The time that a lone thread did not run is known better than its states: samples only divide it
//! into waits and sleep.
//!
//! D is any wait that cannot be interrupted: above all for pages that are read, but also for locks
//! of file systems and of a parent in `vfork`. Some file systems (FUSE) wait in S: there a thread
//! counts as blocked that was met in a call on a file or directory. A wait shorter than the poll
//! interval is sampled by chance, in proportion to its length.
//!
//! # Invariants
//! - At most [`THREADS_MAX`] threads of a process are sampled, and [`THREADS_ALL_MAX`] in all.
//! - No sample counts for more than [`SCAN_PAUSE_MAX`]: a program that was stopped meanwhile did
//!   not wait.
//! # Sources
//! Graham, "Bounds for certain multiprocessing anomalies", 1966: time is bounded from below by the
//! work divided by processors, and by the longest chain.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::os::fd::BorrowedFd;
use std::thread::available_parallelism;

use forerun_core::units::Nanos;
use rustix::param::clock_ticks_per_second;

use super::entries::{ThreadId, Wait};
use super::summary::WaitBasis;
use super::sums::share;
use crate::observe::access::EntryCall;
use crate::observe::blocked::BlockedIn;
use crate::observe::poll::SCAN_PAUSE_MAX;
use crate::observe::processes::ProcessTree;
use crate::observe::procfs::{self, text, text::ThreadState};
use crate::wire::wire;

/// The times that were sampled so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WaitSums {
    has_delay_accounting: bool,
    queued: Option<u64>,
    /// The time of samples that was lost to waits for storage.
    sampled: Nanos,
    /// The time of samples in which all of it slept.
    slept: Nanos,
    /// The time of samples in which the thread ran that ran longest.
    busiest: Nanos,
    /// Threads that were sampled at all.
    seen: u64,
    delay_ticks: u64,
}

wire! { WaitSums { has_delay_accounting, queued, sampled, slept, busiest, seen, delay_ticks } }

/// Samples the state of all threads.
#[derive(Debug)]
pub(super) struct WaitSampler {
    pub(super) sums: WaitSums,
    /// By process and thread.
    threads: BTreeMap<(i32, i32), Thread>,
    /// By process: its `schedstat`, and the time queued at the last poll.
    queues: BTreeMap<i32, (File, u64)>,
    polled_at: Nanos,
    /// Threads that can run at a time.
    processors: u64,
}

#[derive(Debug)]
struct Thread {
    stat: File,
    delay_ticks: u64,
    /// The time of samples in which it ran.
    ran: Nanos,
    is_alive: bool,
}

/// The states of threads, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct States {
    /// Blocked by storage, or by something else that cannot be interrupted.
    blocked: u64,
    /// Of these, those that were met in what waits for storage.
    by_storage: u64,
    running: u64,
}

impl WaitSampler {
    pub(super) fn new() -> Self {
        let setting = fs::read_to_string("/proc/sys/kernel/task_delayacct").unwrap_or_default();
        Self {
            sums: WaitSums { has_delay_accounting: setting.trim() == "1", ..WaitSums::default() },
            threads: BTreeMap::new(),
            queues: BTreeMap::new(),
            polled_at: Nanos(0),
            processors: available_parallelism().map_or(1, |count| count.get() as u64),
        }
    }

    /// Samples all processes, after the observers have polled them. Where the program loses time to
    /// waits for storage, `waited` is called with each thread that waits, and its wait. Whether any
    /// thread is blocked.
    pub(super) fn poll(
        &mut self,
        now: Nanos,
        tree: &ProcessTree,
        mut waited: impl FnMut(ThreadId, Wait),
    ) -> bool {
        assert!(self.polled_at <= now, "time does not go back");
        let passed = now.since(self.polled_at).min(SCAN_PAUSE_MAX);
        self.polled_at = now;
        for thread in self.threads.values_mut() {
            thread.is_alive = false;
        }
        let (mut all, mut waits) = (States::default(), Vec::new());
        for (pid, folder) in tree.folders() {
            let met: BTreeMap<i32, BlockedIn> = tree.met(pid).collect();
            all = all.and(self.process(pid, folder, passed, &met, &mut waits));
            self.poll_queue(pid, folder);
        }
        self.threads.retain(|_, thread| thread.is_alive);
        self.queues.retain(|&pid, _| tree.has(pid));
        let lost = all.lost(passed, self.processors);
        if all.running > 0 {
            waits.retain(|&(_, met)| waits_for_storage(met));
        }
        if lost > Nanos(0) {
            self.sums.sampled += lost;
            let count = waits.len() as u64;
            assert!(count > 0, "some threads are blocked");
            // What does not divide goes to the first.
            let mut rest = lost.0 % count;
            for (thread, met) in waits {
                let lost = Nanos(lost.0 / count + std::mem::take(&mut rest));
                waited(thread, Wait { lost, blocked: passed, met });
            }
        } else if all == States::default() {
            self.sums.slept += passed;
        }
        assert!(self.sums.sampled.0 + self.sums.slept.0 <= now.0, "each sample counts once");
        all.blocked > 0
    }

    /// The states of the threads of a process for the time that has `passed`, which were met in
    /// `met`. Those that are blocked are appended to `waits`.
    fn process(
        &mut self,
        pid: i32,
        folder: BorrowedFd<'_>,
        passed: Nanos,
        met: &BTreeMap<i32, BlockedIn>,
        waits: &mut Vec<(ThreadId, BlockedIn)>,
    ) -> States {
        let mut add = |tid, state| {
            let met = met.get(&tid).copied().unwrap_or_default();
            let states = States::of(state, met);
            if states.blocked > 0 {
                waits.push((ThreadId { pid, tid }, met));
            }
            states
        };
        let Some(first) = self.thread(pid, pid, folder, passed) else { return States::default() };
        let mut states = add(pid, first);
        if first.threads <= 1 {
            return states;
        }
        for tid in procfs::threads(folder, THREADS_MAX) {
            if tid != pid
                && let Some(state) = self.thread(pid, tid, folder, passed)
            {
                states = states.and(add(tid, state));
            }
        }
        states
    }

    fn thread(
        &mut self,
        pid: i32,
        tid: i32,
        folder: BorrowedFd<'_>,
        passed: Nanos,
    ) -> Option<ThreadState> {
        let is_full = self.threads.len() >= THREADS_ALL_MAX;
        let thread = match self.threads.entry((pid, tid)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if is_full => return None,
            Entry::Vacant(entry) => {
                let stat = procfs::open_in(folder, &format!("task/{tid}/stat"))?;
                self.sums.seen += 1;
                entry.insert(Thread { stat, delay_ticks: 0, ran: Nanos(0), is_alive: true })
            }
        };
        let state = procfs::read(&thread.stat, text::state)?;
        thread.is_alive = true;
        if state.letter == b'R' {
            thread.ran += passed;
            self.sums.busiest = self.sums.busiest.max(thread.ran);
        }
        self.sums.delay_ticks += state.delay_ticks.saturating_sub(thread.delay_ticks);
        thread.delay_ticks = state.delay_ticks.max(thread.delay_ticks);
        assert!(self.threads.len() <= THREADS_ALL_MAX, "more threads than are allowed");
        Some(state)
    }

    fn poll_queue(&mut self, pid: i32, folder: BorrowedFd<'_>) {
        let (schedstat, before) = match self.queues.entry(pid) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let Some(schedstat) = procfs::open_in(folder, "schedstat") else { return };
                entry.insert((schedstat, 0))
            }
        };
        if let Some(now) = procfs::read(schedstat, text::queued) {
            let more = now.saturating_sub(*before);
            *before = now;
            self.sums.queued = Some(self.sums.queued.unwrap_or(0) + more);
        }
    }
}

impl WaitSums {
    /// The time that the program, which has `ran` so long, lost to waits for storage. For `idle` it
    /// neither ran nor was runnable, if it has one thread.
    pub(super) fn waited(&self, ran: Nanos, idle: Nanos) -> Nanos {
        match self.basis() {
            WaitBasis::DelayAccounting => {
                let nanos = self.delay_ticks.saturating_mul(1_000_000_000);
                Nanos(nanos / clock_ticks_per_second().max(1)).min(ran)
            }
            WaitBasis::SampledState if self.seen == 1 => {
                share(idle, self.sampled, self.sampled + self.slept).min(ran)
            }
            WaitBasis::SampledState => self.sampled.min(ran.since(self.busiest)),
        }
    }

    /// The part of that which samples found.
    pub(super) fn sampled(&self) -> Nanos {
        self.sampled
    }

    /// How the time is measured. Waits of several threads may overlap.
    pub(super) fn basis(&self) -> WaitBasis {
        if self.has_delay_accounting && self.seen == 1 {
            WaitBasis::DelayAccounting
        } else {
            WaitBasis::SampledState
        }
    }

    /// The time that the main threads waited for a processor.
    pub(super) fn queued(&self) -> Option<Nanos> {
        self.queued.map(Nanos)
    }
}

impl States {
    fn of(state: ThreadState, met: BlockedIn) -> Self {
        // An open may wait for the other end of a pipe.
        let is_entry = matches!(
            met,
            BlockedIn::Entry(EntryCall::Stat | EntryCall::List | EntryCall::Read { .. })
        );
        let blocked = state.letter == b'D' || state.letter == b'S' && is_entry;
        Self {
            blocked: u64::from(blocked),
            by_storage: u64::from(blocked && waits_for_storage(met)),
            running: u64::from(state.letter == b'R'),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            blocked: self.blocked + other.blocked,
            by_storage: self.by_storage + other.by_storage,
            running: self.running + other.running,
        }
    }

    /// What is lost of the time that has `passed`, with so many processors.
    fn lost(self, passed: Nanos, processors: u64) -> Nanos {
        assert!(processors > 0 && self.by_storage <= self.blocked, "a program runs somewhere");
        if self.running == 0 {
            return if self.blocked > 0 { passed } else { Nanos(0) };
        }
        let could_run = (self.running + self.by_storage).min(processors);
        share(passed, Nanos(could_run - self.running.min(could_run)), Nanos(could_run))
    }
}

/// Whether a thread that is blocked in it waits for storage beyond doubt.
fn waits_for_storage(met: BlockedIn) -> bool {
    matches!(met, BlockedIn::Entry(_) | BlockedIn::Fault)
}

/// Threads of a process that are sampled.
const THREADS_MAX: usize = 64;
/// Threads of all processes that are sampled.
const THREADS_ALL_MAX: usize = 1024;

#[cfg(test)]
mod tests;
