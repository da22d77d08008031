//! The threads of `bench reap`: each has a reaper a policy, and all change policies together.
//!
//! ```text
//!   thread 1   | slice: one policy, one size | slice | ...
//!   thread 2   | slice                       | slice | ...
//!              ^ barrier                     ^
//! ```
//!
//! # Invariants
//! - No slice begins before all threads have ended the last one.
//! - A thread that failed goes on to each barrier, and reads no more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, bail};
use forerun_core::prng::Prng;
use forerun_core::reap::{CLASS_BYTES, Calibration, Latency};
use forerun_core::units::Nanos;
use forerun_io::frames::Frame;
use forerun_io::reaper::{Counts, Group, Purpose, Reaper, ReaperSettings};
use forerun_io::store::{Done, Op, OpKind};
use indicatif::ProgressBar;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::ground::Ground;
use crate::machine;

/// What runs at the same time.
pub(super) struct Load {
    pub(super) name: &'static str,
    /// Threads that read.
    pub(super) threads: u32,
    /// Threads that never rest.
    pub(super) hogs: u32,
    /// What the sizes of a read are drawn from: one after the other.
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

/// How all is measured.
pub(super) struct Course<'a> {
    pub(super) ground: &'a Ground,
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
        self.fallen = self.fallen.take().or_else(|| reaper.fallen());
    }
}

/// What all threads did in one slice.
#[derive(Clone, Debug, Default)]
pub(super) struct Slice {
    /// Of each group, in ns.
    pub(super) latencies: Vec<u64>,
    pub(super) counts: Counts,
    /// How long it took, summed over threads.
    pub(super) wall: Nanos,
    /// What a model's thread spent on wake-ups.
    pub(super) waking: Nanos,
}

impl Course<'_> {
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
        let (barrier, ended) = (Barrier::new(load.threads as usize), AtomicBool::new(false));
        let failed: Mutex<Option<anyhow::Error>> = Mutex::new(None);
        thread::scope(|scope| {
            for _ in 0..load.hogs {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let (all, barrier, failed) = (&all, &barrier, &failed);
            let hands: Vec<_> = (0..load.threads)
                .map(|number| {
                    scope.spawn(move || {
                        let hand = Hand { course: self, load, number, barrier, failed };
                        hand.run(all, if number == 0 { Some(progress) } else { None });
                    })
                })
                .collect();
            let joined: Vec<_> = hands.into_iter().map(thread::ScopedJoinHandle::join).collect();
            ended.store(true, Ordering::Relaxed);
            for hand in joined {
                hand.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        });
        drop(crowd);
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(all.into_iter().map(inner).collect()),
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn inner(cell: Mutex<Cell>) -> Cell {
    cell.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// One thread.
struct Hand<'a> {
    course: &'a Course<'a>,
    load: &'a Load,
    number: u32,
    barrier: &'a Barrier,
    failed: &'a Mutex<Option<anyhow::Error>>,
}

impl Hand<'_> {
    fn run(&self, cells: &[Mutex<Cell>], progress: Option<&ProgressBar>) {
        let mut reapers = self.reapers().unwrap_or_else(|error| {
            self.fail(error);
            Vec::new()
        });
        let seed = self.course.seed.wrapping_add(u64::from(self.number));
        let mut place = Place::new(self.course.ground, seed);
        let policies = self.course.policies.len();
        for round in 0..self.course.rounds as usize {
            for at in 0..cells.len() {
                // Each policy comes first in its turn.
                let (shape, turn) = (at / policies, at % policies);
                let cell = shape * policies + (turn + round) % policies;
                self.barrier.wait();
                if self.has_failed() {
                    continue;
                }
                let sizes = &self.load.shapes[shape];
                let reaper = &mut reapers[cell % policies];
                match self.slice(reaper, &mut place, sizes) {
                    Ok(slice) => lock(&cells[cell]).add(round, &slice, reaper),
                    Err(error) => self.fail(error),
                }
            }
            if let Some(progress) = progress {
                progress.inc(1);
            }
        }
    }

    /// One for each policy.
    fn reapers(&self) -> Result<Vec<Reaper>> {
        let policies = self.course.policies.iter();
        policies.map(|policy| self.course.ground.reaper(self.load.group, policy)).collect()
    }

    /// Reads for the time of a slice, and one group at least.
    fn slice(&self, reaper: &mut Reaper, place: &mut Place<'_>, sizes: &[u64]) -> Result<Slice> {
        let before = *reaper.counts();
        let woken = self.waking();
        let mut latencies = Vec::with_capacity(LATENCIES_FIRST);
        let begun = machine::now();
        let wall = loop {
            latencies.push(place.read_group(reaper, sizes, self.load.group)?.0);
            let passed = machine::now().since(begun);
            if passed >= self.course.each || latencies.len() >= GROUPS_MAX {
                break passed;
            }
        };
        let counts = reaper.counts().since(&before);
        Ok(Slice { latencies, counts, wall, waking: self.waking().since(woken) })
    }

    /// The model's time, told by the first thread alone, for all.
    fn waking(&self) -> Nanos {
        let model = (self.number == 0).then(|| self.course.ground.model_lateness()).flatten();
        model.map_or(Nanos(0), |model| model.waking)
    }

    fn fail(&self, error: anyhow::Error) {
        lock(self.failed).get_or_insert(error);
    }

    fn has_failed(&self) -> bool {
        lock(self.failed).is_some()
    }
}

/// Where a thread reads, and into what.
struct Place<'a> {
    ground: &'a Ground,
    prng: Prng,
    frames: Vec<Frame>,
    done: Vec<Done>,
}

impl<'a> Place<'a> {
    fn new(ground: &'a Ground, seed: u64) -> Self {
        Self { ground, prng: Prng::new(seed), frames: Vec::new(), done: Vec::new() }
    }

    /// Reads a group of `count` of `sizes` somewhere: how long that took.
    fn read_group(&mut self, reaper: &mut Reaper, sizes: &[u64], count: u32) -> Result<Nanos> {
        let mut reads = Vec::with_capacity(count as usize);
        for token in 0..u64::from(count) {
            reads.push(self.read(token, sizes)?);
        }
        let took = reaper.reap(Group::new(Purpose::Demand, reads), &mut self.done);
        for done in self.done.drain(..) {
            let (offset, bytes) = (done.op.offset, done.op.bytes);
            match done.result {
                Ok(moved) if moved == bytes => self.frames.extend(done.op.frames),
                Ok(_) => bail!("the file became shorter while it was read"),
                Err(errno) => {
                    let error = std::io::Error::from_raw_os_error(errno);
                    return Err(error)
                        .with_context(|| format!("cannot read {bytes} bytes at {offset}"));
                }
            }
        }
        Ok(took.real)
    }

    fn read(&mut self, token: u64, sizes: &[u64]) -> Result<Op> {
        let size = sizes[usize::try_from(self.prng.below(sizes.len() as u64))?];
        let offset = self.prng.below(self.ground.bytes() / size) * size;
        let bytes = usize::try_from(size)?;
        let fitting = self.frames.iter().position(|frame| frame.len() >= bytes);
        let frame = match fitting {
            Some(at) => self.frames.swap_remove(at),
            None => Frame::new(bytes.next_power_of_two())?,
        };
        Ok(Op { token, kind: OpKind::Read, offset, bytes, frames: vec![frame] })
    }
}

/// What spinning shows at each of `sizes`: what policies are told.
pub(super) fn calibrate(ground: &Ground, sizes: &[u64], seed: u64) -> Result<Calibration> {
    let mut known = Calibration::default();
    let spin = ReaperSettings { policy: "spin".to_owned(), ..ReaperSettings::default() };
    let mut reaper = ground.reaper(1, &spin)?;
    let mut place = Place::new(ground, seed);
    for (class, &most) in CLASS_BYTES.iter().enumerate() {
        let above = if class == 0 { 0 } else { CLASS_BYTES[class - 1] };
        let is_last = class + 1 == CLASS_BYTES.len();
        let fits = |&size: &u64| size > above && (size <= most || is_last);
        let Some(size) = sizes.iter().copied().find(fits) else { continue };
        let mut took = Vec::new();
        for _ in 0..CALIBRATION_READS {
            took.push(place.read_group(&mut reaper, &[size], 1)?.0);
        }
        known.reads[class] = Some(trimmed(took));
    }
    Ok(known)
}

/// Mean and standard deviation without the slowest hundredth.
fn trimmed(mut took: Vec<u64>) -> Latency {
    took.sort_unstable();
    took.truncate(took.len() - took.len() / 100);
    let count = took.len().max(1) as u64;
    let mean = took.iter().sum::<u64>() / count;
    let variance = took.iter().map(|one| one.abs_diff(mean).pow(2)).sum::<u64>() / count;
    Latency { mean: Nanos(mean), stdev: Nanos(variance.isqrt()) }
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
/// Reads of each size that calibrate.
const CALIBRATION_READS: u32 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_trimmed() {
        let mut took = vec![10; 99];
        took.push(1_000_000);
        assert_eq!(trimmed(took), Latency { mean: Nanos(10), stdev: Nanos(0) });
        assert_eq!(trimmed(vec![1, 3]), Latency { mean: Nanos(2), stdev: Nanos(1) });
    }
}
