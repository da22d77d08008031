//! Runs a program and reads ahead of it.
//!
//! ```text
//!   session (the loop) --> look --> drive: the core is told, the kernel asked --> how long to wait
//! ```
//! # Invariants
//! - While something is on its way, looking takes no more than one part in `BUSY_ONE_IN` of a
//!   processor, and one in `IDLE_ONE_IN` where nothing comes of it.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use forerun_core::cache::{self, SettingsError};
use forerun_core::device::Kind;
use forerun_core::pace::Rule;
use forerun_core::params::ParamError;
use forerun_core::planner::{PlannerSettings, device::DeviceEstimate};
use forerun_core::units::Nanos;

use crate::clock;
use crate::memory::Memory;
use crate::prefetch::Prefetcher;
use crate::program::StartError;
use crate::session::{self, Allowance, Observers, PAUSE_LONGEST, PAUSE_MIN, WatchError, Watcher};

/// How a program is to be run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How far a reader may be led, in bytes.
    pub limit_bytes: u64,
    /// Bytes that are asked for at a time, at most.
    pub burst_bytes: u64,
    /// Bytes that may be ahead of all readers together.
    pub budget_bytes: u64,
    /// The readahead policy, as `NAME:key=value,...`.
    pub readahead: String,
    /// Where it is seen what the program reads.
    pub observe: Observe,
}

/// Where it is seen what a program reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Observe {
    /// In `/proc`: positions of open files, pages of mapped ones.
    #[default]
    Proc,
    /// There, and by the shim that lies at this path, which the program loads: every call.
    Preload(PathBuf),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limit_bytes: 64 << 20,
            burst_bytes: 16 << 20,
            budget_bytes: 256 << 20,
            readahead: "streams:first=1M".into(),
            observe: Observe::Proc,
        }
    }
}

/// Why a program was not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A setting cannot be.
    #[error("{0}")]
    Settings(SettingsError),
    /// A bound cannot be.
    #[error("{0}")]
    Pace(ParamError),
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The system refused something.
    #[error("cannot watch a program: {0}")]
    System(#[from] io::Error),
}

impl From<WatchError> for RunError {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::Start(error) => Self::Start(error),
            WatchError::System(error) => Self::System(error),
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The program's exit status, as a shell tells it.
    pub status: u8,
    /// What was done.
    pub stats: Stats,
}

/// What was done for a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// How long it ran.
    pub ran: Nanos,
    /// Processor time of this process.
    pub processor: Nanos,
    /// Looks at where it was.
    pub looks: u64,
    /// Processes that were followed.
    pub processes: u64,
    /// Of these, those that could not be looked into.
    pub processes_skipped: u64,
    /// Files that were followed.
    pub files: u64,
    /// What the shim told and did not come through.
    pub records_lost: u64,
    /// Readers that were not followed, as there were too many.
    pub readers_refused: u64,
    /// Streams that were found.
    pub streams: u64,
    /// Bytes that it was seen to read.
    pub bytes_read: u64,
    /// Bytes that the kernel was asked for.
    pub bytes_asked: u64,
    /// Calls for that.
    pub asks: u64,
    /// Bytes that would have been asked for and were cached.
    pub bytes_cached: u64,
    /// Bytes that were not asked for after all, or did not come.
    pub bytes_given_up: u64,
    /// The farthest that was asked for beyond a reader.
    pub lead_bytes_max: u64,
    /// What the core counted, in pages of 4 KiB.
    pub core: cache::Stats,
}

/// Runs `words`, a program and its arguments.
///
/// # Errors
/// The settings cannot be, or the program did not start.
pub fn run(settings: &Settings, words: &[OsString]) -> Result<Ended, RunError> {
    let prefetcher = Prefetcher::new(settings.planner()?).map_err(RunError::Settings)?;
    let make = |observers| Steering::new(prefetcher, observers);
    let (status, steering) = session::watch(words, &settings.observe, None, make)?;
    Ok(Ended { status, stats: steering.stats() })
}

impl Settings {
    fn planner(&self) -> Result<PlannerSettings, RunError> {
        let Self { limit_bytes, burst_bytes, budget_bytes, ref readahead, observe: _ } = *self;
        let spec = format!("ours:burst={burst_bytes},limit={limit_bytes}");
        let pace = Rule::make(&spec).map_err(RunError::Pace)?;
        let readahead = readahead.clone();
        Ok(PlannerSettings { pace, budget_bytes, readahead, device: DEVICE })
    }
}

/// Who is watched, and what is done about it.
struct Steering {
    observers: Observers,
    prefetcher: Prefetcher,
    memory: Option<Memory>,
    /// When memory is looked at again.
    memory_at: Nanos,
    /// How long nothing is looked at where nothing happens.
    idle: Nanos,
    allowance: Allowance,
}

impl Watcher for Steering {
    fn observers(&self) -> &Observers {
        &self.observers
    }

    fn look(&mut self, some_ended: bool) -> Nanos {
        let (now, began) = (self.observers.clock.now(), clock::thread_time());
        self.look_at_memory(now);
        let moved = self.observers.look(now, some_ended, &mut self.prefetcher);
        self.prefetcher.advance(now);
        let cost = clock::thread_time().since(began);
        let one_in = if self.prefetcher.is_busy() { BUSY_ONE_IN } else { IDLE_ONE_IN };
        self.idle = match (moved, self.prefetcher.take_cold()) {
            (true, true) => PAUSE_MIN,
            // Whoever reads what is cached does not come to its end so soon.
            (true, false) => PAUSE_WARM,
            (false, _) if now < EARLY => PAUSE_EARLY,
            (false, _) => Nanos(self.idle.0 * 2).min(PAUSE_MAX),
        };
        self.allowance.pause(now, (self.idle, PAUSE_LONGEST), cost, one_in)
    }

    fn give_up(&mut self) {
        self.observers.tree.clear();
        self.prefetcher.clear();
    }
}

impl Steering {
    fn new(prefetcher: Prefetcher, observers: Observers) -> Self {
        let (memory_at, idle) = (Nanos(0), PAUSE_MIN);
        Self { observers, prefetcher, memory: None, memory_at, idle, allowance: Allowance::full() }
    }

    /// Looks how much may be ahead, where something wants to be.
    fn look_at_memory(&mut self, now: Nanos) {
        if now >= self.memory_at && (self.memory.is_none() || self.prefetcher.is_busy()) {
            let room = self.memory.get_or_insert_with(Memory::here).room();
            self.prefetcher.set_memory(room.bytes_to_use());
            self.memory_at = now + MEMORY_EVERY;
        }
    }

    fn stats(&self) -> Stats {
        let counts = self.prefetcher.stats();
        let (files, readers_refused) = self.prefetcher.counts();
        Stats {
            ran: self.observers.clock.now(),
            processor: clock::process_time(),
            looks: self.observers.looks,
            processes: self.observers.tree.seen,
            processes_skipped: self.observers.tree.skipped,
            files,
            records_lost: self.observers.records_lost(),
            readers_refused,
            streams: counts.streams,
            bytes_read: counts.bytes_read,
            bytes_asked: counts.bytes_requested,
            asks: counts.requests,
            bytes_cached: counts.bytes_cached,
            bytes_given_up: counts.bytes_dropped,
            lead_bytes_max: counts.distance_bytes_max,
            core: self.prefetcher.core_stats(),
        }
    }
}

/// What is known of a device before it is measured.
const DEVICE: DeviceEstimate = DeviceEstimate {
    kind: Kind::Parallel,
    latency: Nanos::from_millis(10),
    bytes_per_second: u64::MAX,
    depth: 32,
};
const PAUSE_WARM: Nanos = Nanos::from_millis(4);
/// A program that reads begins with it soon, and a short one is half over when it is seen late.
const PAUSE_EARLY: Nanos = Nanos::from_millis(2);
const EARLY: Nanos = Nanos::from_millis(50);
const PAUSE_MAX: Nanos = Nanos::from_millis(10);
const MEMORY_EVERY: Nanos = Nanos::from_millis(50);
const BUSY_ONE_IN: u64 = 10;
const IDLE_ONE_IN: u64 = 50;
