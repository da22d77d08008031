//! How long a program waits for storage.
//!
//! ```text
//!   delay accounting   the kernel adds up the waits of each thread for devices; exact, where
//!                      sysctl kernel.task_delayacct is 1 and the program has one thread
//!   state              what each thread does is looked at; the time since the look before counts
//!                      as waited for storage where one waits (D) and none runs (R)
//! ```
//! The time that a lone thread did not run is known better than what it did then: looks only divide
//! it, into waits and sleep.
//!
//! D is any wait that cannot be interrupted: above all pages that are read, but also locks of file
//! systems and a parent in `vfork`. What is shorter than a look is found by chance, as often as it
//! is long.
//!
//! # Invariants
//! - At most [`TASKS_MAX`] threads of a process are looked at, and [`TASKS_ALL_MAX`] in all.
//! - No look counts more than [`STEP_MAX`]: whoever was stopped in between did not wait.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::os::fd::BorrowedFd;

use forerun_core::units::Nanos;
use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::param::clock_ticks_per_second;

use super::notes::Notes;
use crate::files::{file, text};
use crate::proc::{self, State};
use crate::watch::Tree;

/// How it was found how long a program waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// By the kernel's accounting of delays.
    DelayAccounting,
    /// By looking at the state of its threads.
    SampledState,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Waits {
    accounts: bool,
    /// By process and thread.
    tasks: BTreeMap<(i32, i32), Task>,
    /// By process: its `schedstat`, and what that told last.
    queues: BTreeMap<i32, (File, u64)>,
    queued: Option<u64>,
    looked_at: Nanos,
    sampled: Nanos,
    /// So long, as looks found it, all of it slept.
    slept: Nanos,
    /// Threads that were seen at all.
    seen: u64,
    delay_ticks: u64,
}

#[derive(Debug)]
struct Task {
    stat: File,
    delay_ticks: u64,
    is_there: bool,
}

/// What the threads of a process do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Doing {
    some_wait: bool,
    some_run: bool,
}

impl Waits {
    pub(super) fn new() -> Self {
        let told = fs::read_to_string("/proc/sys/kernel/task_delayacct").unwrap_or_default();
        Self {
            accounts: told.trim() == "1",
            tasks: BTreeMap::new(),
            queues: BTreeMap::new(),
            queued: None,
            looked_at: Nanos(0),
            sampled: Nanos(0),
            slept: Nanos(0),
            seen: 0,
            delay_ticks: 0,
        }
    }

    /// Looks at all processes, and tells `notes` which waited. Whether any does.
    pub(super) fn look(&mut self, now: Nanos, tree: &Tree, notes: &mut Notes) -> bool {
        let passed = now.since(self.looked_at).min(STEP_MAX);
        self.looked_at = now;
        for task in self.tasks.values_mut() {
            task.is_there = false;
        }
        let mut all = Doing::default();
        for (pid, folder) in tree.folders() {
            let doing = self.process(pid, folder);
            if doing.waits() {
                notes.waited(pid, passed);
            }
            all = all.and(doing);
            self.look_at_queue(pid, folder);
        }
        self.tasks.retain(|_, task| task.is_there);
        self.queues.retain(|&pid, _| tree.has(pid));
        if all.waits() {
            self.sampled += passed;
        } else if !all.some_run {
            self.slept += passed;
        }
        all.some_wait
    }

    /// How long storage was waited for, by a program that for `idle` neither ran nor wanted to, if
    /// it has one thread.
    pub(super) fn waited(&self, idle: Nanos) -> Nanos {
        match self.basis() {
            Basis::DelayAccounting => {
                Nanos(self.delay_ticks * 1_000_000_000 / clock_ticks_per_second().max(1))
            }
            Basis::SampledState if self.seen == 1 => {
                share(idle, self.sampled, self.sampled + self.slept)
            }
            Basis::SampledState => self.sampled,
        }
    }

    /// How much of that the looks found: what was told reader by reader.
    pub(super) fn sampled(&self) -> Nanos {
        self.sampled
    }

    /// How that is known. Waits of several threads may be at the same time.
    pub(super) fn basis(&self) -> Basis {
        if self.accounts && self.seen == 1 { Basis::DelayAccounting } else { Basis::SampledState }
    }

    /// How long the main threads waited for a processor.
    pub(super) fn queued(&self) -> Option<Nanos> {
        self.queued.map(Nanos)
    }

    fn process(&mut self, pid: i32, folder: BorrowedFd<'_>) -> Doing {
        let Some(first) = self.task(pid, pid, folder) else { return Doing::default() };
        let mut doing = Doing::of(first);
        if first.threads <= 1 {
            return doing;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tasks = openat(folder, "task", flags, Mode::empty());
        let Some(tasks) = tasks.ok().and_then(|tasks| Dir::new(tasks).ok()) else { return doing };
        let tasks = tasks.flatten().take(TASKS_MAX + 2);
        for tid in tasks.filter_map(|task| task.file_name().to_str().ok()?.parse().ok()) {
            if tid != pid
                && let Some(state) = self.task(pid, tid, folder)
            {
                doing = doing.and(Doing::of(state));
            }
        }
        doing
    }

    fn task(&mut self, pid: i32, tid: i32, folder: BorrowedFd<'_>) -> Option<State> {
        let is_full = self.tasks.len() >= TASKS_ALL_MAX;
        let task = match self.tasks.entry((pid, tid)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if is_full => return None,
            Entry::Vacant(entry) => {
                let stat = file(folder, &format!("task/{tid}/stat"))?;
                self.seen += 1;
                entry.insert(Task { stat, delay_ticks: 0, is_there: true })
            }
        };
        let state = text(&task.stat, proc::state)?;
        task.is_there = true;
        self.delay_ticks += state.delay_ticks.saturating_sub(task.delay_ticks);
        task.delay_ticks = state.delay_ticks.max(task.delay_ticks);
        Some(state)
    }

    fn look_at_queue(&mut self, pid: i32, folder: BorrowedFd<'_>) {
        let (told, before) = match self.queues.entry(pid) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let Some(told) = file(folder, "schedstat") else { return };
                entry.insert((told, 0))
            }
        };
        if let Some(now) = text(told, proc::queued) {
            let more = now.saturating_sub(*before);
            *before = now;
            self.queued = Some(self.queued.unwrap_or(0) + more);
        }
    }
}

impl Doing {
    fn of(state: State) -> Self {
        Self { some_wait: state.letter == b'D', some_run: state.letter == b'R' }
    }

    fn and(self, other: Self) -> Self {
        Self {
            some_wait: self.some_wait | other.some_wait,
            some_run: self.some_run | other.some_run,
        }
    }

    /// Whether storage holds all of it up.
    fn waits(self) -> bool {
        self.some_wait && !self.some_run
    }
}

/// What falls to `one` of the `whole`, of which in truth there is `all`; nothing of nothing.
pub(super) fn share(all: Nanos, one: Nanos, whole: Nanos) -> Nanos {
    let share = u128::from(all.0) * u128::from(one.0) / u128::from(whole.0.max(1));
    Nanos(u64::try_from(share).unwrap_or(u64::MAX))
}

const TASKS_MAX: usize = 64;
const TASKS_ALL_MAX: usize = 1024;
/// The longest pause between looks.
const STEP_MAX: Nanos = Nanos::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_a_lone_thread_did_not_run_is_divided() {
        #[rustfmt::skip]
        let rows = [ // idle, waited, waited or slept, of that waited
            (100, 30, 40, 75, "as looks found it"),
            (100, 30, 30, 100, "all of it"),
            (100,  0, 30, 0, "nothing of it"),
            (100,  0,  0, 0, "no look found it idle"),
            (u64::MAX, 1, 1, u64::MAX, "the largest numbers"),
        ];
        for (idle, waited, all, is, why) in rows {
            assert_eq!(share(Nanos(idle), Nanos(waited), Nanos(all)), Nanos(is), "{why}");
        }
    }

    #[test]
    fn storage_holds_a_program_up_where_one_thread_waits_and_none_runs() {
        #[rustfmt::skip]
        let rows = [
            ("D", true), ("S", false), ("R", false), ("DS", true), ("DR", false), ("RD", false),
            ("DD", true), ("SS", false), ("", false),
        ];
        for (letters, waits) in rows {
            let states = letters.bytes().map(|letter| State { letter, threads: 1, delay_ticks: 0 });
            let all = states.map(Doing::of).fold(Doing::default(), Doing::and);
            assert_eq!(all.waits(), waits, "{letters}");
        }
    }
}
