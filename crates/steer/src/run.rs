//! Runs a program and reads ahead of it: the loop.
//!
//! ```text
//!   start --> wait (a signal, an end, the pause) --> look --> tell the core --> ask the kernel
//!               ^                                                                  |
//!               +------------------------------------------------------------------+
//! ```
//! # Invariants
//! - The program starts before anything is looked at, and its end ends the loop at once.
//! - Looking takes no more than one part in `BUSY_ONE_IN` of a processor, and one in
//!   `IDLE_ONE_IN` where nothing comes of it: the pause follows from what the last look cost.
//! - Whatever goes wrong in looking, the program runs on and its exit status is given.

use std::env;
use std::ffi::OsString;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;

use forerun_core::cache::{self, SettingsError};
use forerun_core::pace::Rule;
use forerun_core::params::ParamError;
use forerun_core::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::clock::{self, Clock};
use crate::drive::{Bounds, Drive};
use crate::memory::Memory;
use crate::program::{Program, StartError};
use crate::shim::Ring;
use crate::signals::Signals;
use crate::told::Told;
use crate::watch::Tree;

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
    let bounds = settings.bounds()?;
    let mut signals = Signals::take()?;
    let drive = Drive::new(bounds).map_err(RunError::Settings)?;
    let (told, variables) = match &settings.observe {
        Observe::Proc => (None, Vec::new()),
        Observe::Preload(library) => {
            let (ring, lent) = Ring::create().map_err(io::Error::from)?;
            let before = env::var_os("LD_PRELOAD");
            let variables = lent.variables(library, before.as_deref()).to_vec();
            (Some((Told::new(ring), lent)), variables)
        }
    };
    let mut program = Program::start(words, &variables, &signals)?;
    // The ring's other end is the program's alone from now on.
    let told = told.map(|(told, _)| told);
    let mut steering = Steering::new(drive, Tree::new(program.pid()), told);
    let mut pause = FIRST_PAUSE;
    loop {
        let some_ended = wait(&program, &signals, &steering.tree, pause);
        while let Some(signal) = signals.next() {
            program.send(signal);
        }
        if let Some(status) = program.ended()? {
            return Ok(Ended { status, stats: steering.stats() });
        }
        // A fault of ours is told by the panic's message, and is none of the program's.
        let looked = panic::catch_unwind(AssertUnwindSafe(|| steering.look(some_ended)));
        pause = looked.unwrap_or_else(|_| steering.give_up());
    }
}

impl Settings {
    fn bounds(&self) -> Result<Bounds, RunError> {
        let Self { limit_bytes, burst_bytes, budget_bytes, ref readahead, observe: _ } = *self;
        let spec = format!("ours:burst={burst_bytes},limit={limit_bytes}");
        let rule = Rule::make(&spec).map_err(RunError::Pace)?;
        Ok(Bounds { rule, limit_bytes, budget_bytes, readahead: readahead.clone() })
    }
}

/// Who is watched, and what is done about it.
struct Steering {
    clock: Clock,
    drive: Drive,
    tree: Tree,
    told: Option<Told>,
    memory: Option<Memory>,
    /// When memory is looked at again.
    memory_at: Nanos,
    looks: u64,
    /// When new files and processes are looked for again.
    discover_at: Nanos,
    idle: Nanos,
    has_given_up: bool,
}

impl Steering {
    fn new(drive: Drive, tree: Tree, told: Option<Told>) -> Self {
        let (clock, memory) = (Clock::start(), None);
        let (memory_at, discover_at, idle) = (Nanos(0), Nanos(0), PAUSE_MIN);
        let (looks, has_given_up) = (0, false);
        Self { clock, drive, tree, told, memory, memory_at, looks, discover_at, idle, has_given_up }
    }

    /// One look at everything. How long to wait until the next.
    fn look(&mut self, some_ended: bool) -> Nanos {
        if self.has_given_up {
            return PAUSE_LONGEST;
        }
        let (now, began) = (self.clock.now(), clock::thread_time());
        self.looks += 1;
        self.look_at_memory(now);
        let discovers = now >= self.discover_at;
        if some_ended || discovers {
            self.tree.let_go(now, &mut self.drive);
        }
        if discovers {
            self.tree.discover(now, &mut self.drive);
            let cost = clock::thread_time().since(began);
            self.discover_at = now + Nanos(cost.0 * IDLE_ONE_IN).max(DISCOVER_EVERY);
        }
        let mut moved = false;
        if let Some(told) = &mut self.told {
            moved = told.look(now, &mut self.tree, &mut self.drive);
        }
        moved |= self.tree.look(now, &mut self.drive);
        self.drive.go_on(now);
        let cost = clock::thread_time().since(began);
        let is_busy = self.drive.is_busy();
        self.idle = if moved { PAUSE_MIN } else { Nanos(self.idle.0 * 2).min(PAUSE_MAX) };
        let part = if is_busy { BUSY_ONE_IN } else { IDLE_ONE_IN };
        self.idle.max(Nanos(cost.0 * part)).min(PAUSE_LONGEST)
    }

    /// From now on nothing is looked at. How long to wait until the next time.
    fn give_up(&mut self) -> Nanos {
        self.has_given_up = true;
        self.tree.clear();
        self.drive.clear();
        PAUSE_LONGEST
    }

    /// Looks how much may be ahead, where something wants to be.
    fn look_at_memory(&mut self, now: Nanos) {
        if now >= self.memory_at && (self.memory.is_none() || self.drive.is_busy()) {
            let room = self.memory.get_or_insert_with(Memory::here).room();
            self.drive.set_memory(room.bytes_to_use());
            self.memory_at = now + MEMORY_EVERY;
        }
    }

    fn stats(&self) -> Stats {
        let counts = self.drive.counts();
        Stats {
            ran: self.clock.now(),
            processor: clock::process_time(),
            looks: self.looks,
            processes: self.tree.seen,
            processes_skipped: self.tree.skipped,
            files: counts.files,
            records_lost: self.told.as_ref().map_or(0, Told::lost),
            readers_refused: counts.lanes_refused,
            streams: counts.streams,
            bytes_read: counts.bytes_read,
            bytes_asked: counts.bytes_asked,
            asks: counts.asks,
            bytes_cached: counts.bytes_cached,
            bytes_given_up: counts.bytes_given_up,
            lead_bytes_max: counts.lead_bytes_max,
            core: self.drive.core_stats(),
        }
    }
}

/// Waits for a signal, the end of a process, or until `pause` is over. Whether one has ended.
fn wait(program: &Program, signals: &Signals, tree: &Tree, pause: Nanos) -> bool {
    let mut awaited = vec![PollFd::new(signals, PollFlags::IN)];
    let ends = program.end().into_iter().chain(tree.ends().take(ENDS_MAX));
    awaited.extend(ends.map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)));
    let pause = Timespec {
        tv_sec: i64::try_from(pause.0 / SECOND).expect("a pause is short"),
        tv_nsec: i64::try_from(pause.0 % SECOND).expect("below a second"),
    };
    // Interrupted or not: it is looked at what there is.
    let _ = poll(&mut awaited, Some(&pause));
    awaited[1..].iter().any(|end| !end.revents().is_empty())
}

const FIRST_PAUSE: Nanos = Nanos::from_micros(500);
const PAUSE_MIN: Nanos = Nanos::from_millis(1);
const PAUSE_MAX: Nanos = Nanos::from_millis(10);
const PAUSE_LONGEST: Nanos = Nanos::from_millis(100);
const DISCOVER_EVERY: Nanos = Nanos::from_millis(5);
const MEMORY_EVERY: Nanos = Nanos::from_millis(50);
const BUSY_ONE_IN: u64 = 10;
const IDLE_ONE_IN: u64 = 50;
/// Processes whose end is noticed at once.
const ENDS_MAX: usize = 64;
const SECOND: u64 = 1_000_000_000;
