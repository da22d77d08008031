//! The threads of `bench reap`: each has a reaper a policy, and all change policies together.
//!
//! ```text
//!   thread 1   | slice: one policy, one size | slice | ...
//!   thread 2   | slice                       | slice | ...
//!              ^ all begin together          ^
//! ```
//!
//! # Invariants
//! - No slice begins before all threads have ended the last one.
//! - A thread that fails, for any reason, ends all threads with an error ([`Steps`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};

use anyhow::{Context as _, Result};
use forerun_console::machine;
use forerun_console::reap_reads::Reads;
use forerun_console::reap_target::ReapTarget;
use forerun_core::units::Nanos;
use forerun_io::reaper::{ReapCounts, Reaper, ReaperSettings};
use forerun_measure::steps::Steps;
use indicatif::ProgressBar;
use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The threads that run at the same time.
pub(super) struct Load {
    pub(super) name: &'static str,
    /// Threads that read.
    pub(super) threads: u32,
    /// Threads that never rest.
    pub(super) hogs: u32,
    /// The sizes that reads draw from, one shape after the other.
    pub(super) shapes: Vec<Vec<u64>>,
    /// Reads of a group.
    pub(super) group: u32,
}

impl Load {
    /// Whether the processors are ours.
    pub(super) fn is_quiet(&self) -> bool {
        self.threads == 1 && self.hogs == 0
    }
}

/// The settings of the measurement.
pub(super) struct Schedule<'a> {
    pub(super) target: &'a ReapTarget,
    pub(super) policies: Vec<ReaperSettings>,
    pub(super) rounds: u32,
    pub(super) each: Nanos,
    pub(super) seed: u64,
}

/// One policy with one shape: a slice a round, the first round left out.
pub(super) struct Cell {
    /// An index of the load's shapes, and one of the policies.
    pub(super) shape: usize,
    pub(super) policy: usize,
    pub(super) slices: Vec<Slice>,
    pub(super) fallen: Option<String>,
}

impl Cell {
    /// A thread's slice of one round; the first round is warm-up.
    fn add(&mut self, round: usize, slice: &Slice, reaper: &Reaper) {
        let Some(place) = round.checked_sub(1) else { return };
        if self.slices.len() <= place {
            self.slices.resize_with(place + 1, Slice::default);
        }
        let all = &mut self.slices[place];
        all.latencies.extend(&slice.latencies);
        all.counts.add(&slice.counts);
        all.wall += slice.wall;
        all.waking += slice.waking;
        self.fallen = self.fallen.take().or_else(|| reaper.fallback());
    }
}

/// The results of all threads in one slice.
#[derive(Clone, Debug, Default)]
pub(super) struct Slice {
    /// Of each group, in ns.
    pub(super) latencies: Vec<u64>,
    pub(super) counts: ReapCounts,
    /// How long it took, summed over threads.
    pub(super) wall: Nanos,
    /// The time that a model's thread spent on wake-ups.
    pub(super) waking: Nanos,
}

impl Schedule<'_> {
    /// Runs `load`, in rounds.
    pub(super) fn run(&self, load: &Load, progress: &ProgressBar) -> Result<Vec<Cell>> {
        let crowd = if load.is_quiet() { None } else { Some(Crowd::new()) };
        let cells =
            || (0..load.shapes.len()).flat_map(|s| (0..self.policies.len()).map(move |p| (s, p)));
        let all: Vec<Mutex<Cell>> = cells()
            .map(|(shape, policy)| {
                Mutex::new(Cell { shape, policy, slices: Vec::new(), fallen: None })
            })
            .collect();
        let (steps, ended) = (Steps::new(load.threads), AtomicBool::new(false));
        thread::scope(|scope| {
            let (all, steps, ended) = (&all, &steps, &ended);
            for _ in 0..load.hogs {
                let hog = || {
                    while !ended.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                };
                start(scope, steps, "forerun-hog", hog);
            }
            let workers = (0..load.threads).map_while(|number| {
                let worker = Worker { schedule: self, load, number, steps };
                let progress = (number == 0).then_some(progress);
                let work = move || steps.carry_out(|| worker.run(all, progress));
                start(scope, steps, "forerun-reap", work)
            });
            for worker in workers.collect::<Vec<_>>() {
                // The steps keep the panic's message.
                let _ = worker.join();
            }
            ended.store(true, Ordering::Relaxed);
        });
        drop(crowd);
        let ended = steps.ended();
        ended.with_context(|| format!("cannot measure {}", self.target.name()))?;
        Ok(all.into_iter().map(Mutex::into_inner).collect())
    }
}

/// Starts a thread; where the system has none, all end.
fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    steps: &Steps,
    name: &str,
    work: impl FnOnce() + Send + 'scope,
) -> Option<ScopedJoinHandle<'scope, ()>> {
    let started = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work);
    started.context("cannot start a thread").map_err(|error| steps.fail(error)).ok()
}

/// One thread.
struct Worker<'a> {
    schedule: &'a Schedule<'a>,
    load: &'a Load,
    number: u32,
    steps: &'a Steps,
}

impl Worker<'_> {
    fn run(&self, cells: &[Mutex<Cell>], progress: Option<&ProgressBar>) -> Result<()> {
        let mut reapers = self.reapers()?;
        let seed = self.schedule.seed.wrapping_add(u64::from(self.number));
        let mut reads = Reads::new(self.schedule.target, seed);
        let policies = self.schedule.policies.len();
        for round in 0..self.schedule.rounds as usize {
            for at in 0..cells.len() {
                // Each policy comes first in its turn.
                let (shape, turn) = (at / policies, at % policies);
                let cell = shape * policies + (turn + round) % policies;
                if !self.steps.next() {
                    return Ok(());
                }
                let reaper = &mut reapers[cell % policies];
                let slice = self.slice(reaper, &mut reads, &self.load.shapes[shape])?;
                cells[cell].lock().add(round, &slice, reaper);
            }
            if let Some(progress) = progress {
                progress.inc(1);
            }
        }
        Ok(())
    }

    /// One for each policy.
    fn reapers(&self) -> Result<Vec<Reaper>> {
        let policies = self.schedule.policies.iter();
        policies.map(|policy| self.schedule.target.reaper(self.load.group, policy)).collect()
    }

    /// Reads for the time of a slice, and one group at least.
    fn slice(&self, reaper: &mut Reaper, reads: &mut Reads<'_>, sizes: &[u64]) -> Result<Slice> {
        let before = *reaper.counts();
        let woken = self.waking();
        let mut latencies = Vec::with_capacity(LATENCIES_FIRST);
        let begun = machine::now();
        let wall = loop {
            latencies.push(reads.group(reaper, sizes, self.load.group)?.real.0);
            let passed = machine::now().since(begun);
            if passed >= self.schedule.each || latencies.len() >= GROUPS_MAX {
                break passed;
            }
        };
        let counts = reaper.counts().since(&before);
        Ok(Slice { latencies, counts, wall, waking: self.waking().since(woken) })
    }

    /// The model's wake-up time; the first worker alone counts it, for all.
    fn waking(&self) -> Nanos {
        let model = (self.number == 0).then(|| self.schedule.target.model_lateness()).flatten();
        model.map_or(Nanos(0), |model| model.waking)
    }
}

/// Two processors for this thread and those it starts, as long as it lives.
struct Crowd(Option<CpuSet>);

impl Crowd {
    /// Where the system refuses, there are as many as there are.
    fn new() -> Self {
        let Ok(before) = sched_getaffinity(None) else { return Self(None) };
        let mut two = CpuSet::new();
        (0..CpuSet::MAX_CPU).filter(|&cpu| before.is_set(cpu)).take(2).for_each(|cpu| two.set(cpu));
        Self(sched_setaffinity(None, &two).is_ok().then_some(before))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // It was this before.
            let _ = sched_setaffinity(None, before);
        }
    }
}

/// Of a slice: a bound of memory, and what is had at first.
const GROUPS_MAX: usize = 1 << 20;
const LATENCIES_FIRST: usize = 1 << 14;
#[cfg(test)]
mod tests {
    use forerun_io::reaper::model::{Model, ModelCompletion};

    use super::*;

    #[test]
    fn a_read_that_fails_ends_all_threads() {
        let mut served = 0;
        let model = Model::new(Box::new(move |now, _| {
            served += 1;
            ModelCompletion { at: now, fails: (served == 100).then_some(5) }
        }));
        let target = ReapTarget::of_model("broken", model);
        let policy = |name: &str| ReaperSettings { policy: name.to_owned(), ..Default::default() };
        let schedule = Schedule {
            target: &target,
            policies: vec![policy("interrupt"), policy("nio")],
            rounds: 3,
            each: Nanos::from_millis(1),
            seed: 1,
        };
        // 3 threads of 2 policies, a read a slice at least.
        let shapes = vec![vec![4_096]; 20];
        let load = Load { name: "threads", threads: 3, hogs: 1, shapes, group: 1 };
        let ran = schedule.run(&load, &ProgressBar::hidden());
        let error = format!("{:#}", ran.err().expect("a read failed"));
        assert!(error.starts_with("cannot measure broken: cannot read 4096 bytes at "), "{error}");
    }
}
