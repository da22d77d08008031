//! What a program reads and where it waits, and what reading ahead of it would gain.
//!
//! ```text
//!   session --> waits (state of its threads) -----+
//!           \-> observers --> notes (files, streams) --> Explained --> predict (a model)
//! ```
//! The program is run as `run` would, and is seen by the same observers. Nothing is asked of the
//! kernel's page cache, so that what is seen is the program as it is.
//!
//! # Invariants
//! - Nothing is prefetched; no byte of the program's files is read.
//! - All is bounded: files, streams and moments that are told, as `notes` says.
//! - What could not be seen is counted, and what is inferred says from what.

mod before;
mod notes;
mod patterns;
mod predict;
mod rate;
mod waits;

use std::ffi::OsString;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use forerun_core::units::Nanos;

use crate::clock;
use crate::run::{Observe, RunError};
use crate::session::{self, Allowance, Observers, PAUSE_LONGEST, PAUSE_MIN, Watcher};
use crate::usage::Usage;
use notes::Notes;
pub use predict::{Limit, Prediction, Why, predict};
use rate::Rate;
pub use waits::Basis;
use waits::Waits;

/// What a program did.
#[derive(Clone, Debug)]
pub struct Explained {
    /// Its exit status, as a shell tells it.
    pub status: u8,
    /// How long it ran.
    pub ran: Nanos,
    /// Processor time of it and of its children that it waited for.
    pub processor: Nanos,
    /// For so long some of its threads waited for storage and none ran.
    pub waited: Nanos,
    /// How that was found.
    pub basis: Basis,
    /// For so long its main threads could have run and had no processor, where the kernel tells.
    pub queued: Option<Nanos>,
    /// Bytes that came from devices on its behalf, as the kernel counts them.
    pub device_bytes: u64,
    /// Bytes that it was seen to read.
    pub bytes_read: u64,
    /// When it began to read what was not all in memory, and when it was seen to read last.
    pub read_from: Nanos,
    /// See `read_from`.
    pub read_until: Nanos,
    /// The most that came and was read in a quarter of a second, as bytes a second.
    pub rate: Option<u64>,
    /// Processes that were followed, and of these, those that could not be looked into.
    pub processes: u64,
    /// See `processes`.
    pub processes_skipped: u64,
    /// What the shim told and did not come through.
    pub records_lost: u64,
    /// Looks at where it was.
    pub looks: u64,
    /// Processor time of looking.
    pub looking: Nanos,
    /// Its files, those first that it waited for most, then those that it read most of.
    pub files: Vec<FileTold>,
    /// More files than are told.
    pub files_left_out: u64,
}

/// A file that it read.
#[derive(Clone, Debug)]
pub struct FileTold {
    /// Its name when it was first seen.
    pub path: PathBuf,
    /// The device that it lies on (`st_dev`).
    pub device: u64,
    /// Its size.
    pub bytes: u64,
    /// Bytes that were seen to be read.
    pub bytes_read: u64,
    /// Whether it was read by page faults.
    pub is_mapped: bool,
    /// For so long the program waited for storage before it went on here.
    pub waited: Nanos,
    /// How much of it was in memory at first, where the kernel tells.
    pub start: Option<Start>,
    /// Its streams, as they began.
    pub streams: Vec<StreamTold>,
    /// More streams than are told.
    pub streams_left_out: u64,
    /// When what was read.
    pub moments: Vec<Moment>,
    /// More moments than are told.
    pub moments_left_out: u64,
}

/// How much of a file was in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Pages in memory.
    pub pages: u64,
    /// Pages that it has.
    pub pages_all: u64,
    /// Before the program began, as its arguments and its input are; else at the look after its
    /// opening, when some may have been read.
    pub is_before: bool,
}

/// Reads that go on from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamTold {
    /// How they go on.
    pub pattern: Pattern,
    /// Bytes that were read.
    pub bytes: u64,
    /// From the lowest byte to the highest.
    pub range: Range<u64>,
    /// When it was seen first and last.
    pub from: Nanos,
    /// See `from`.
    pub to: Nanos,
    /// For so long the program waited for storage before it went on here.
    pub waited: Nanos,
}

/// How reads go on from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// Each begins where one has ended, or a little beyond.
    Sequential,
    /// Each ends where the one before began.
    Backward,
    /// All are equally far apart.
    Strided,
    /// They do not.
    #[default]
    Random,
}

/// Something was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// At the look before, nothing of it was read.
    pub from: Nanos,
    /// All of it was.
    pub to: Nanos,
    /// Where.
    pub offset: u64,
    /// How much.
    pub bytes: u64,
    /// Whether the program waited for storage meanwhile.
    pub waited: bool,
}

impl Pattern {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Backward => "backward",
            Self::Strided => "stride",
            Self::Random => "random",
        }
    }

    /// Whether what comes next is known.
    #[must_use]
    pub fn is_predictable(self) -> bool {
        self != Self::Random
    }
}

impl FileTold {
    /// The pattern of most of its bytes.
    #[must_use]
    pub fn pattern(&self) -> Pattern {
        let mut all = [Pattern::Sequential, Pattern::Backward, Pattern::Strided, Pattern::Random];
        all.sort_by_key(|&pattern| std::cmp::Reverse(self.bytes_of(pattern)));
        all[0]
    }

    /// Bytes of streams of `pattern`.
    #[must_use]
    pub fn bytes_of(&self, pattern: Pattern) -> u64 {
        self.of(pattern).map(|stream| stream.bytes).sum()
    }

    /// The streams of `pattern`.
    fn of(&self, pattern: Pattern) -> impl Iterator<Item = &StreamTold> {
        self.streams.iter().filter(move |stream| stream.pattern == pattern)
    }
}

/// Runs `words`, a program and its arguments, and looks what it reads. Its output goes to `output`,
/// if there is one.
///
/// # Errors
/// The program did not start.
pub fn explain(
    observe: &Observe,
    words: &[OsString],
    output: Option<OwnedFd>,
) -> Result<Explained, RunError> {
    let starts = before::look(words);
    let before = Usage::of_children();
    let make = |observers| Explaining {
        observers,
        notes: Notes::new(starts),
        waits: Waits::new(),
        rate: Rate::default(),
        idle: PAUSE_MIN,
        allowance: Allowance::full(),
    };
    let (status, mut seen) = session::watch(words, observe, output, make)?;
    let ran = seen.observers.clock.now();
    // What the shim told before the end.
    seen.observers.look_at_told(ran, &mut seen.notes);
    let used = Usage::of_children().since(before);
    let queued = seen.waits.queued();
    let idle = ran.since(used.processor).since(queued.unwrap_or_default());
    let (waited, noted) = (seen.waits.waited(idle).min(ran), seen.waits.sampled());
    let (bytes_read, [read_from, read_until]) = (seen.notes.bytes_read(), seen.notes.reading());
    let readers_left_out = seen.notes.files_left_out();
    Ok(Explained {
        status,
        ran,
        processor: used.processor,
        waited,
        basis: seen.waits.basis(),
        queued,
        device_bytes: used.device_bytes,
        bytes_read,
        read_from,
        read_until,
        rate: seen.rate.best(),
        processes: seen.observers.tree.seen,
        processes_skipped: seen.observers.tree.skipped,
        records_lost: seen.observers.records_lost(),
        looks: seen.observers.looks,
        looking: clock::process_time(),
        files: seen.notes.end(waited, noted),
        files_left_out: readers_left_out,
    })
}

/// Who watches, and what was seen.
struct Explaining {
    observers: Observers,
    notes: Notes,
    waits: Waits,
    rate: Rate,
    idle: Nanos,
    allowance: Allowance,
}

impl Watcher for Explaining {
    fn observers(&self) -> &Observers {
        &self.observers
    }

    fn look(&mut self, some_ended: bool) -> Nanos {
        let (now, began) = (self.observers.clock.now(), clock::thread_time());
        let waits = self.waits.look(now, &self.observers.tree, &mut self.notes);
        let moved = self.observers.look(now, some_ended, &mut self.notes);
        self.rate.look(now, &self.observers.tree, self.notes.bytes_read());
        let cost = clock::thread_time().since(began);
        let is_busy = moved || waits;
        self.idle = if is_busy { PAUSE_MIN } else { Nanos(self.idle.0 * 2).min(PAUSE_MAX) };
        self.allowance.pause(now, (self.idle, PAUSE_LONGEST), cost, ONE_IN)
    }

    fn give_up(&mut self) {
        self.observers.tree.clear();
    }
}

const PAUSE_MAX: Nanos = Nanos::from_millis(4);
/// Looking takes at most one part in so many of a processor.
const ONE_IN: u64 = 20;
