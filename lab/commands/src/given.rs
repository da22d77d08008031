//! What a caller of the commands gives: traces that are no names alone, and the control of a call.
//!
//! # Invariants
//! - Columns of one trace are of one length ([`Columns::check`]).

use std::fmt;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use forerun_console::failure::usage;
use forerun_core::units::Nanos;
use forerun_sim::trace::{Addresses, Facts, Op, Request};
use indicatif::{ProgressBar, ProgressDrawTarget};

/// Stops a call, and tells how far it is. Clones are the same control.
#[derive(Clone, Default)]
pub struct Control(Arc<State>);

#[derive(Default)]
struct State {
    stops: AtomicBool,
    bar: Mutex<Option<ProgressBar>>,
}

/// How far a call is with what it does now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it does now.
    pub what: String,
    /// So much is done, of `all`.
    pub done: u64,
    /// None where the end is unknown.
    pub all: Option<u64>,
}

impl Control {
    /// Ends the call early, with an error.
    pub fn stop(&self) {
        self.0.stops.store(true, Ordering::Relaxed);
    }

    /// How far the call is; none before it has begun to read.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        let bar = self.0.bar.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let all = bar.length().filter(|&all| all > 0);
        let done = all.map_or(bar.position(), |all| bar.position().min(all));
        Some(Progress { what: bar.message(), done, all })
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stops.load(Ordering::Relaxed)
    }

    /// Shows `bar` to the caller in place of the terminal.
    pub(crate) fn follow(&self, bar: ProgressBar) -> ProgressBar {
        bar.set_draw_target(ProgressDrawTarget::hidden());
        *self.0.bar.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        bar
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Control")
    }
}

/// A trace of the caller's.
#[derive(Clone)]
pub enum Input {
    /// As on the command line: a path, or `workload:NAME,key=value,...`.
    Named(String),
    /// Bytes that the caller reads.
    Opened {
        /// Its name in reports; its end tells of the format, as that of a path.
        name: String,
        /// Opens it at its first byte, once for each reading.
        open: Opener,
    },
    /// Accesses in memory.
    Columns {
        /// Its name in reports.
        name: String,
        /// The accesses.
        columns: Arc<Columns>,
    },
}

impl Input {
    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Named(name) | Self::Opened { name, .. } | Self::Columns { name, .. } => name,
        }
    }
}

/// Opens bytes.
pub type Opener = Arc<dyn Fn() -> io::Result<Box<dyn Read + Send>> + Send + Sync>;

/// Accesses by column, one page each: of a column that is not empty a value for each page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The keys of the pages.
    pub pages: Vec<u64>,
    /// The bytes requested of each.
    pub bytes: Vec<u64>,
    /// When, in nanoseconds.
    pub times: Vec<u64>,
    /// Whether it writes: 0 or 1.
    pub writes: Vec<u8>,
}

impl Columns {
    /// Refuses columns of which one is shorter than another.
    pub(crate) fn check(&self, name: &str) -> Result<()> {
        let count = self.pages.len();
        let lengths = [self.bytes.len(), self.times.len(), self.writes.len()];
        if lengths.iter().any(|&length| length != 0 && length != count) {
            return Err(usage(format!("{name}: columns of one trace are of one length")));
        }
        Ok(())
    }

    pub(crate) fn facts(&self) -> Facts {
        Facts {
            addresses: Addresses::Blocks,
            times: !self.times.is_empty(),
            ops: !self.writes.is_empty(),
            sizes: !self.bytes.is_empty(),
        }
    }

    pub(crate) fn request(&self, at: usize) -> Option<Request> {
        let op = match self.writes.get(at) {
            Some(0) => Op::Read,
            Some(_) => Op::Write,
            None => Op::Unknown,
        };
        let (bytes, time) = (self.bytes.get(at).copied(), self.times.get(at).copied());
        let first = *self.pages.get(at)?;
        let (bytes, time) = (bytes.unwrap_or(0), Nanos(time.unwrap_or(0)));
        Some(Request { first, time, bytes, count: 1, skew: 0, op })
    }
}
