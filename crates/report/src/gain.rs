//! What a program gains: its time on a slow store with today's kernel, and with forerun.
//!
//! # Invariants
//! - Both runs of a [`Gain`] read the same bytes; neither found any of them in memory.
//! - Spans of waiting are ascending, do not overlap, and lie within their run.

use serde::Serialize;

/// One program, with and without forerun.
#[derive(Clone, Debug, Serialize)]
pub struct Gain {
    /// What it does, in a person's words.
    pub what: String,
    /// Its command line; empty where an emulation stands for it.
    pub program: Vec<String>,
    /// What was done to gain.
    pub with: String,
    /// With today's kernel alone.
    pub kernel: ProgramRun,
    /// With forerun.
    pub forerun: ProgramRun,
}

/// A run of a program.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProgramRun {
    /// From its start to its end.
    pub seconds: f64,
    /// When it waited, in seconds since its start: from, to.
    pub waits: Vec<(f64, f64)>,
}

/// Several programs on one store.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Gains {
    /// The store, and how a run was made.
    pub place: String,
    /// A row each, in order.
    pub rows: Vec<Gain>,
    /// What was left out, and why; a sentence each.
    pub left_out: Vec<String>,
}

impl Gain {
    /// How many times as fast it is with forerun.
    #[must_use]
    pub fn times(&self) -> f64 {
        self.kernel.seconds / self.forerun.seconds.max(f64::MIN_POSITIVE)
    }
}

impl ProgramRun {
    /// How long it waited.
    #[must_use]
    pub fn waited_seconds(&self) -> f64 {
        self.waits.iter().map(|(from, to)| to - from).sum()
    }
}
