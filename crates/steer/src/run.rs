//! Runs a program and prefetches for it.
//!
//! ```text
//!   session (the loop) --> observers --> prefetcher: the planner, the kernel --> pause
//! ```
//! # Invariants
//! - While requests are in flight, polling uses at most one part in `BUSY_ONE_IN` of a processor;
//!   else one in `IDLE_ONE_IN`.

use std::ffi::OsString;

use forerun_core::cache::{self, SettingsError};
use forerun_core::device::DeviceKind;
use forerun_core::params::ParamError;
use forerun_core::planner::pace::PaceRule;
use forerun_core::planner::{PlannerSettings, PlannerStats, device::DeviceEstimate};
use forerun_core::units::Nanos;

use crate::clock;
use crate::memory::Memory;
use crate::observe::poll::{INTERVAL_MIN, Interval, PollTimer};
use crate::observe::{ObserverKind, Observers};
use crate::prefetch::Prefetcher;
use crate::session::{self, Poller, SessionError};

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The prefetch distance of a reader, in bytes, at most.
    pub limit_bytes: u64,
    /// Bytes that are requested at a time, at most.
    pub burst_bytes: u64,
    /// The prefetch distances of all readers together, in bytes, at most.
    pub budget_bytes: u64,
    /// The readahead policy, as `NAME:key=value,...`.
    pub readahead: String,
    /// The observers of the program.
    pub observe: ObserverKind,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limit_bytes: 64 << 20,
            burst_bytes: 16 << 20,
            budget_bytes: 256 << 20,
            readahead: "streams:first=1M".into(),
            observe: ObserverKind::Proc,
        }
    }
}

/// Why a program was not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A setting is out of its bounds.
    #[error("{0}")]
    Settings(SettingsError),
    /// A parameter of the pace is out of its bounds.
    #[error("{0}")]
    Pace(ParamError),
    /// The program did not start, or could not be watched.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// The end of a run.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The program's exit status, as a shell reports it.
    pub status: u8,
    /// What the run did.
    pub stats: Stats,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The run time.
    pub ran: Nanos,
    /// Processor time of this process.
    pub processor: Nanos,
    /// Polls of the observers.
    pub polls: u64,
    /// Processes that were followed.
    pub processes: u64,
    /// Of these, those that could not be looked into.
    pub processes_skipped: u64,
    /// Files that were followed.
    pub files: u64,
    /// Records of the shim that were lost.
    pub records_lost: u64,
    /// Readers that were not followed, as there were too many.
    pub readers_skipped: u64,
    /// What the planner counted.
    pub planner: PlannerStats,
    /// What the core counted, in pages of 4 KiB.
    pub core: cache::Stats,
}

/// Runs `words`, a program and its arguments.
///
/// # Errors
/// A setting is out of its bounds, or the program did not start.
pub fn run(settings: &Settings, words: &[OsString]) -> Result<Ended, RunError> {
    let prefetcher = Prefetcher::new(settings.planner()?).map_err(RunError::Settings)?;
    let make = |observers| Runner::new(prefetcher, observers);
    let (status, runner) = session::watch(words, &settings.observe, None, make)?;
    Ok(Ended { status, stats: runner.stats() })
}

impl Settings {
    fn planner(&self) -> Result<PlannerSettings, RunError> {
        let Self { limit_bytes, burst_bytes, budget_bytes, ref readahead, observe: _ } = *self;
        let spec = format!("adaptive:burst={burst_bytes},limit={limit_bytes}");
        let pace = PaceRule::make(&spec).map_err(RunError::Pace)?;
        let readahead = readahead.clone();
        Ok(PlannerSettings { pace, budget_bytes, readahead, device: DEVICE })
    }
}

/// The poller that prefetches.
struct Runner {
    observers: Observers,
    prefetcher: Prefetcher,
    memory: Option<Memory>,
    /// When free memory is read again.
    memory_at: Nanos,
    timer: PollTimer,
}

impl Poller for Runner {
    fn observers(&self) -> &Observers {
        &self.observers
    }

    fn poll(&mut self, some_ended: bool) -> Nanos {
        let (now, began) = (self.observers.clock.now(), clock::thread_time());
        self.poll_memory(now);
        let moved = self.observers.poll(now, some_ended, &mut self.prefetcher);
        self.prefetcher.advance(now);
        let cost = clock::thread_time().since(began);
        let one_in = if self.prefetcher.is_busy() { BUSY_ONE_IN } else { IDLE_ONE_IN };
        let interval = match (moved, self.prefetcher.take_cold()) {
            (true, true) => Interval::Of(INTERVAL_MIN),
            // A reader of cached bytes does not come to their end so soon.
            (true, false) => Interval::Of(INTERVAL_WARM),
            (false, _) if now < EARLY => Interval::Of(INTERVAL_EARLY),
            (false, _) => Interval::DoubledUpTo(IDLE_MAX),
        };
        self.timer.pause(now, interval, cost, one_in)
    }

    fn give_up(&mut self) {
        self.observers.tree.clear();
        self.prefetcher.clear();
    }
}

impl Runner {
    fn new(prefetcher: Prefetcher, observers: Observers) -> Self {
        let (memory_at, timer) = (Nanos(0), PollTimer::new());
        Self { observers, prefetcher, memory: None, memory_at, timer }
    }

    /// Reads how much memory is free, where prefetching depends on it.
    fn poll_memory(&mut self, now: Nanos) {
        if now >= self.memory_at && (self.memory.is_none() || self.prefetcher.is_busy()) {
            let room = self.memory.get_or_insert_with(Memory::here).room();
            self.prefetcher.set_memory(room.bytes_to_use());
            self.memory_at = now + MEMORY_EVERY;
        }
    }

    fn stats(&self) -> Stats {
        let (files, readers_skipped) = self.prefetcher.counts();
        Stats {
            ran: self.observers.clock.now(),
            processor: clock::process_time(),
            polls: self.observers.polls(),
            processes: self.observers.tree.seen(),
            processes_skipped: self.observers.tree.skipped(),
            files,
            records_lost: self.observers.records_lost(),
            readers_skipped,
            planner: self.prefetcher.stats(),
            core: self.prefetcher.core_stats(),
        }
    }
}

/// The estimate of a device before it is measured.
const DEVICE: DeviceEstimate = DeviceEstimate {
    kind: DeviceKind::Parallel,
    latency: Nanos::from_millis(10),
    bytes_per_second: u64::MAX,
    depth: 32,
};
const INTERVAL_WARM: Nanos = Nanos::from_millis(4);
/// A program that reads begins soon, and a short one is half over when it is observed late.
const INTERVAL_EARLY: Nanos = Nanos::from_millis(2);
const EARLY: Nanos = Nanos::from_millis(50);
const IDLE_MAX: Nanos = Nanos::from_millis(10);
const MEMORY_EVERY: Nanos = Nanos::from_millis(50);
const BUSY_ONE_IN: u64 = 10;
const IDLE_ONE_IN: u64 = 50;
