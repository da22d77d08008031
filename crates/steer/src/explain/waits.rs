//! The time that storage blocks a program.
//!
//! ```text
//!   delay accounting   the kernel sums the time that devices block each thread; exact where
//!                      sysctl kernel.task_delayacct is 1 and the program has one thread
//!   sampled state      the state of each thread at each poll; the time since the poll before is
//!                      blocked by storage where a thread is blocked (D) and none runs (R)
//! ```
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
//! - No sample counts for more than [`PAUSE_MAX`]: a program that was stopped meanwhile did not
//!   wait.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::os::fd::BorrowedFd;

use forerun_core::units::Nanos;
use rustix::param::clock_ticks_per_second;

use super::entries::ThreadId;
use super::summary::WaitBasis;
use super::sums::share;
use crate::observe::access::EntryCall;
use crate::observe::blocked::Met;
use crate::observe::poll::PAUSE_MAX;
use crate::observe::processes::ProcessTree;
use crate::observe::procfs::{self, text, text::ThreadState};
use crate::wire::wire;

/// The times that were sampled so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WaitSums {
    has_delay_accounting: bool,
    queued: Option<u64>,
    /// The time of samples in which storage blocked the program.
    sampled: Nanos,
    /// The time of samples in which all of it slept.
    slept: Nanos,
    /// Threads that were sampled at all.
    seen: u64,
    delay_ticks: u64,
}

wire! { WaitSums { has_delay_accounting, queued, sampled, slept, seen, delay_ticks } }

/// Samples the state of all threads.
#[derive(Debug)]
pub(super) struct WaitSampler {
    pub(super) sums: WaitSums,
    /// By process and thread.
    threads: BTreeMap<(i32, i32), Thread>,
    /// By process: its `schedstat`, and the time queued at the last poll.
    queues: BTreeMap<i32, (File, u64)>,
    polled_at: Nanos,
}

#[derive(Debug)]
struct Thread {
    stat: File,
    delay_ticks: u64,
    is_alive: bool,
}

/// The states of several threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct States {
    some_blocked: bool,
    some_run: bool,
}

impl WaitSampler {
    pub(super) fn new() -> Self {
        let setting = fs::read_to_string("/proc/sys/kernel/task_delayacct").unwrap_or_default();
        Self {
            sums: WaitSums { has_delay_accounting: setting.trim() == "1", ..WaitSums::default() },
            threads: BTreeMap::new(),
            queues: BTreeMap::new(),
            polled_at: Nanos(0),
        }
    }

    /// Samples all processes, after the observers have polled them. Where storage blocks the
    /// program, `waited` is called with each thread that it blocks, a share of the time, and what
    /// the thread was met in. Whether it blocks any thread.
    pub(super) fn poll(
        &mut self,
        now: Nanos,
        tree: &ProcessTree,
        mut waited: impl FnMut(ThreadId, Nanos, Met),
    ) -> bool {
        assert!(self.polled_at <= now, "time does not go back");
        let passed = now.since(self.polled_at).min(PAUSE_MAX);
        self.polled_at = now;
        for thread in self.threads.values_mut() {
            thread.is_alive = false;
        }
        let (mut all, mut blocked) = (States::default(), Vec::new());
        for (pid, folder) in tree.folders() {
            let met: BTreeMap<i32, Met> = tree.met(pid).collect();
            all = all.and(self.process(pid, folder, &met, &mut blocked));
            self.poll_queue(pid, folder);
        }
        self.threads.retain(|_, thread| thread.is_alive);
        self.queues.retain(|&pid, _| tree.has(pid));
        if all.are_blocked() {
            self.sums.sampled += passed;
            let count = blocked.len() as u64;
            assert!(count > 0, "some threads are blocked");
            // What does not divide goes to the first.
            let mut rest = passed.0 % count;
            for (thread, met) in blocked {
                waited(thread, Nanos(passed.0 / count + std::mem::take(&mut rest)), met);
            }
        } else if !all.some_run {
            self.sums.slept += passed;
        }
        assert!(self.sums.sampled.0 + self.sums.slept.0 <= now.0, "each sample counts once");
        all.some_blocked
    }

    /// The states of the threads of a process, which were met in `met`. Those that storage blocks
    /// are appended to `blocked`.
    fn process(
        &mut self,
        pid: i32,
        folder: BorrowedFd<'_>,
        met: &BTreeMap<i32, Met>,
        blocked: &mut Vec<(ThreadId, Met)>,
    ) -> States {
        let mut add = |tid, state| {
            let met = met.get(&tid).copied().unwrap_or_default();
            let states = States::of(state, met);
            if states.some_blocked {
                blocked.push((ThreadId { pid, tid }, met));
            }
            states
        };
        let Some(first) = self.thread(pid, pid, folder) else { return States::default() };
        let mut states = add(pid, first);
        if first.threads <= 1 {
            return states;
        }
        for tid in procfs::threads(folder, THREADS_MAX) {
            if tid != pid
                && let Some(state) = self.thread(pid, tid, folder)
            {
                states = states.and(add(tid, state));
            }
        }
        states
    }

    fn thread(&mut self, pid: i32, tid: i32, folder: BorrowedFd<'_>) -> Option<ThreadState> {
        let is_full = self.threads.len() >= THREADS_ALL_MAX;
        let thread = match self.threads.entry((pid, tid)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if is_full => return None,
            Entry::Vacant(entry) => {
                let stat = procfs::open_in(folder, &format!("task/{tid}/stat"))?;
                self.sums.seen += 1;
                entry.insert(Thread { stat, delay_ticks: 0, is_alive: true })
            }
        };
        let state = procfs::read(&thread.stat, text::state)?;
        thread.is_alive = true;
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
    /// The time that storage blocked the program, which for `idle` neither ran nor was runnable if
    /// it has one thread.
    pub(super) fn waited(&self, idle: Nanos) -> Nanos {
        match self.basis() {
            WaitBasis::DelayAccounting => {
                let nanos = self.delay_ticks.saturating_mul(1_000_000_000);
                Nanos(nanos / clock_ticks_per_second().max(1))
            }
            WaitBasis::SampledState if self.seen == 1 => {
                share(idle, self.sampled, self.sampled + self.slept)
            }
            WaitBasis::SampledState => self.sampled,
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
    fn of(state: ThreadState, met: Met) -> Self {
        // An open may wait for the other end of a pipe.
        let is_entry =
            matches!(met, Met::Entry(EntryCall::Stat | EntryCall::List | EntryCall::Read { .. }));
        let some_blocked = state.letter == b'D' || state.letter == b'S' && is_entry;
        Self { some_blocked, some_run: state.letter == b'R' }
    }

    fn and(self, other: Self) -> Self {
        Self {
            some_blocked: self.some_blocked | other.some_blocked,
            some_run: self.some_run | other.some_run,
        }
    }

    /// Whether storage blocks all of them.
    fn are_blocked(self) -> bool {
        self.some_blocked && !self.some_run
    }
}

/// Threads of a process that are sampled.
const THREADS_MAX: usize = 64;
/// Threads of all processes that are sampled.
const THREADS_ALL_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_a_lone_thread_did_not_run_is_divided() {
        #[rustfmt::skip]
        let rows = [ // idle, waited, waited or slept, of that waited
            (100, 30, 40, 75, "as samples found it"),
            (100, 30, 30, 100, "all of it"),
            (100,  0, 30, 0, "nothing of it"),
            (100,  0,  0, 0, "no sample found it idle"),
            (u64::MAX, 1, 1, u64::MAX, "the largest numbers"),
        ];
        for (idle, waited, all, is, why) in rows {
            assert_eq!(share(Nanos(idle), Nanos(waited), Nanos(all)), Nanos(is), "{why}");
        }
    }

    #[test]
    fn storage_blocks_a_program_where_one_thread_waits_and_none_runs() {
        #[rustfmt::skip]
        let rows = [
            ("D", Met::Nothing, true), ("S", Met::Nothing, false), ("R", Met::Nothing, false),
            ("DS", Met::Other, true), ("DR", Met::Other, false), ("RD", Met::Fault, false),
            ("DD", Met::Fault, true), ("SS", Met::Other, false), ("", Met::Nothing, false),
            ("S", Met::Entry(EntryCall::Stat), true), ("S", Met::Entry(EntryCall::Open), false),
            ("D", Met::Entry(EntryCall::Open), true), ("SR", Met::Entry(EntryCall::List), false),
        ];
        for (letters, met, waits) in rows {
            let state = |letter| ThreadState { letter, threads: 1, delay_ticks: 0 };
            let all = letters.bytes().map(state).map(|state| States::of(state, met));
            assert_eq!(all.fold(States::default(), States::and).are_blocked(), waits, "{letters}");
        }
    }
}
