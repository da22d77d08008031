//! How far a prefetching thread runs ahead of the thread that it works for.
//!
//! Where a program reads a file from its head, the next bytes are certain; what is left to decide
//! is the distance. Too small, and the program meets bytes that are not there yet. Too large, and
//! they are evicted before they are used, and read twice.
//!
//! ```text
//!        main                    ahead
//!   ------+========================+- - - - - - -+---------------> file
//!         |<------ distance ------>|<-- burst -->|
//!         |<------------- lead + chunk --------------->|
//! ```
//! The paper's rule reads a burst whatever the distance, then waits while it exceeds the limit. So
//! its lead comes to `limit + burst`. Ours counts the burst before it is read, and has a lead that
//! begins small, and stays below the limit and a quarter of the free memory. It grows where the
//! program was late, or consumes more than the lead in the time that the device needs; once in the
//! time in which the program comes to what was asked for since. By how much, the device's queue
//! says: by four where next to nothing waits in it, by two where it begins to fill, and not where
//! the device has all it can do: more in its queue makes nothing faster.
//!
//! # Invariants
//! - A read lies within the file and has at least one byte; `until` lies beyond `main`.
//! - Ours: `distance + bytes <= min(limit + chunk, free / 4)`; nothing behind `main`; whole chunks
//!   but at the end of the file.
//! # Sources
//! Fukayama, Sugita, Hiruta, Yamana, "Disk Access Speed up Using Prefetching Thread", section 3.5
//! and its figure 2: `ss_distance` (our burst) of 16 MB and `limit`. Its sweep gains from a limit
//! of 256 KB on and finds no pollution up to 512 MB, in machines of 1 and 2 GB.

use alloc::string::String;
use alloc::vec::Vec;

use crate::device::estimate;
use crate::params::{self, Bytes, Param, ParamError, Params};
use crate::units::Nanos;

crate::params! {
    /// What may be set of a rule.
    pub struct Bounds {
        /// Bytes that are read from one look at the distance to the next; the paper's.
        burst: Bytes = Bytes(16 << 20),
        /// Bytes by which the prefetcher may lead; within the range where the paper saw gains.
        limit: Bytes = Bytes(64 << 20),
    }
}

/// Which rule holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The paper's loop.
    Paper(Bounds),
    /// The lead follows lateness, rate and memory.
    Ours(Bounds),
}

/// Every rule's name, in the order of reports.
pub const NAMES: &[&str] = &["paper", "ours"];

/// What is known when the prefetcher asks. Positions are bytes from the start of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The end of what the program has read.
    pub main: u64,
    /// The end of what was read ahead or is being read.
    pub ahead: u64,
    /// The end of the file, as far as it is known.
    pub end: u64,
    /// Bytes of the request that suits kernel and device; at least 1. The paper's `BUFSIZE`.
    pub chunk: u64,
    /// Bytes of memory that may hold pages read ahead, those that hold some now included.
    pub free: u64,
    /// Bytes a second that the program consumes while it need not wait; 0: not known.
    pub rate: u64,
    /// What the device can do, where that is known.
    pub device: Option<estimate::DeviceProfile>,
    /// Whether the program has met bytes that were not there since the last question.
    pub late: bool,
    /// How many times later than the fastest one requests come just now, as they wait for those
    /// before them; 1: there are none; 0: not known.
    pub slowdown: u64,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read `bytes` at `from`; the next question counts them as read ahead.
    Read {
        /// The first byte.
        from: u64,
        /// How many.
        bytes: u64,
    },
    /// Ask again when the program is at `until`; earlier if it was late, memory has changed, or it
    /// has come to what was asked for since the lead grew.
    Wait {
        /// A position beyond the program's.
        until: u64,
    },
    /// All of the file was read.
    Done,
}

/// The distance of one prefetcher from its program.
#[derive(Clone, Debug)]
pub struct Pace {
    rule: Rule,
    /// The paper's: bytes to read before the next look at the distance.
    left: u64,
    /// Ours: the lead that is wanted; 0 at the start.
    lead: u64,
    /// Ours: how far was read ahead when the lead grew last.
    grown_at: u64,
}

impl Rule {
    /// The rule that `spec` (`NAME[:key=value,...]`) describes.
    ///
    /// # Errors
    /// As [`Rule::new`], or a parameter is unknown or does not parse.
    pub fn make(spec: &str) -> Result<Self, ParamError> {
        let (name, pairs) = params::split(spec);
        let mut bounds = Bounds::default();
        params::apply(&mut bounds, pairs)?;
        Self::new(name, bounds)
    }

    /// The rule of this name within `bounds`.
    ///
    /// # Errors
    /// There is no such name, or the burst is of nothing.
    pub fn new(name: &str, bounds: Bounds) -> Result<Self, ParamError> {
        let rule = match name {
            "paper" => Self::Paper,
            "ours" => Self::Ours,
            _ => {
                return Err(ParamError::UnknownName { name: name.into(), known: NAMES.to_vec() });
            }
        };
        if bounds.burst.0 == 0 {
            let (key, value) = ("burst".into(), bounds.burst.show());
            return Err(ParamError::BadValue { key, value, form: "at least one byte".into() });
        }
        Ok(rule(bounds))
    }

    /// Its name, one of [`NAMES`].
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Paper(_) => NAMES[0],
            Self::Ours(_) => NAMES[1],
        }
    }

    /// Its bounds.
    #[must_use]
    pub fn bounds(&self) -> &Bounds {
        let (Self::Paper(bounds) | Self::Ours(bounds)) = self;
        bounds
    }

    /// Its parameters as they are in force.
    #[must_use]
    pub fn params(&self) -> Vec<(&'static str, String)> {
        self.bounds().show()
    }
}

impl Pace {
    /// A prefetcher that has read nothing yet.
    #[must_use]
    pub fn new(rule: Rule) -> Self {
        let left = rule.bounds().burst.0;
        Self { rule, left, lead: 0, grown_at: 0 }
    }

    /// The program has gone elsewhere: nothing that was asked for has to come before the lead may
    /// grow.
    pub fn moved(&mut self) {
        self.grown_at = 0;
    }

    /// The program goes on here where it was led by `other` before.
    pub fn inherit(&mut self, other: &Self) {
        self.lead = self.lead.max(other.lead);
        self.moved();
    }

    /// What to do next. O(1).
    ///
    /// # Panics
    /// `chunk` is 0.
    pub fn decide(&mut self, facts: &Facts) -> Step {
        assert!(facts.chunk > 0, "a request has bytes");
        let &Bounds { burst: Bytes(burst), limit: Bytes(limit) } = self.rule.bounds();
        match self.rule {
            Rule::Paper(_) => self.paper(facts, burst, limit),
            Rule::Ours(_) => self.ours(facts, burst, limit),
        }
    }

    /// A burst in reads of a chunk, then no more while the distance exceeds the limit.
    fn paper(&mut self, facts: &Facts, burst: u64, limit: u64) -> Step {
        if facts.ahead >= facts.end {
            return Step::Done;
        }
        if self.left == 0 {
            // The program may have overtaken the prefetcher: the distance is below 0 then.
            if facts.ahead.saturating_sub(facts.main) > limit {
                return Step::Wait { until: facts.ahead - limit };
            }
            self.left = burst;
        }
        let bytes = facts.chunk.min(facts.end - facts.ahead);
        self.left = self.left.saturating_sub(bytes);
        Step::Read { from: facts.ahead, bytes }
    }

    /// A burst at a time, as long as it fits the lead.
    fn ours(&mut self, facts: &Facts, burst: u64, limit: u64) -> Step {
        let from = facts.ahead.max(facts.main);
        if from >= facts.end {
            return Step::Done;
        }
        let chunk = facts.chunk;
        let Some(most) = (facts.free / FREE_SHARE).checked_sub(chunk) else {
            self.lead = 0;
            return Step::Wait { until: from.max(facts.main.saturating_add(chunk)) };
        };
        // What was asked for since it grew must have had the time to come.
        if facts.main >= self.grown_at {
            let wanted = if facts.late { u64::MAX } else { needed(facts) };
            let grown = self.lead.saturating_mul(growth(facts.slowdown)).min(wanted);
            if grown > self.lead {
                (self.lead, self.grown_at) = (grown, from);
            }
        }
        self.lead = self.lead.max(chunk).min(most.min(limit));
        // Four bursts to a lead: when one is asked for, three are there or under way.
        let burst = chunk.max(burst.min(self.lead / 4) / chunk * chunk);
        let top = self.lead.saturating_add(chunk);
        let distance = from - facts.main;
        if distance <= top - burst {
            Step::Read { from, bytes: burst.min(facts.end - from) }
        } else {
            Step::Wait { until: from - (top - burst) }
        }
    }
}

/// By how much a lead grows at a time.
fn growth(slowdown: u64) -> u64 {
    match slowdown {
        1 => 4,
        0 | 2..FULL => 2,
        FULL.. => 1,
    }
}

/// A chunk, and what the program consumes while the device serves [`LATENCIES`] of them, each
/// alone; 0 where that is not known.
fn needed(facts: &Facts) -> u64 {
    let Some(device) = facts.device else { return 0 };
    let transfer = u128::from(facts.chunk) * SECOND / u128::from(device.bytes_per_second.max(1));
    let latency = u128::from(device.access.0) + transfer;
    let consumed = u128::from(facts.rate).saturating_mul(LATENCIES * latency) / SECOND;
    u64::try_from(consumed).unwrap_or(u64::MAX).saturating_add(facts.chunk)
}

/// Memory is shared with what the program has read and with other programs: a lead takes at most
/// one part in so many of what is free.
const FREE_SHARE: u64 = 4;
/// Latencies that a lead covers: the slowest of some requests takes about twice as long as most,
/// and as much again goes by between questions.
const LATENCIES: u128 = 4;
/// A device has all it can do where requests come so many times later than the fastest did.
const FULL: u64 = 4;
const SECOND: u128 = Nanos::from_millis(1_000).0 as u128;

#[cfg(test)]
mod tests;
