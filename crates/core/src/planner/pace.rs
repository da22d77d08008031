//! The pace: how far a prefetcher runs ahead of the program that it works for.
//!
//! Where a program reads a file from its head, the next bytes are certain; what is left to decide
//! is the prefetch distance. Too small, and the program meets bytes that are not there yet. Too
//! large, and they are evicted before they are used, and read twice.
//!
//! ```text
//!      position                  ahead
//!   ------+========================+- - - - - - -+---------------> file
//!         |<------ distance ------>|<-- burst -->|
//!         |<------ wanted distance + request --------->|
//! ```
//! The paper's rule reads a burst whatever the distance, then waits while it exceeds the limit. So
//! its distance comes to `limit + burst`. The adaptive rule counts the burst before it is read.
//! Its distance begins small, and stays below the limit and a quarter of the free memory. It grows
//! where the program was late, or consumes more than the distance in the time that the device
//! needs; once in the time in which the program comes to what was requested since. By how much, the
//! device's queue says: by four where next to nothing waits in it, by two where it begins to fill,
//! and not where the device has all it can do: more in its queue makes nothing faster.
//!
//! # Invariants
//! - A read lies within the file and has at least one byte; `until` lies beyond the position.
//! - Adaptive: `distance + bytes <= min(limit + request, free / 4)`; nothing behind the position;
//!   whole requests but at the end of the file.
//! # Sources
//! Fukayama, Sugita, Hiruta, Yamana, "Disk Access Speed up Using Prefetching Thread", section 3.5
//! and its figure 2: `ss_distance` (our burst) of 16 MB and `limit`. Its sweep gains from a limit
//! of 256 KB on and finds no pollution up to 512 MB, in machines of 1 and 2 GB.

use alloc::string::String;
use alloc::vec::Vec;

use super::device::{DeviceEstimate, FULL};
use crate::params::{self, Bytes, Param, ParamError, Params};
use crate::units::Nanos;

crate::params! {
    /// What may be set of a rule.
    pub struct PaceBounds {
        /// Bytes that are read between two looks at the distance; the paper's.
        burst: Bytes = Bytes(16 << 20),
        /// The largest distance; within the range where the paper saw gains.
        limit: Bytes = Bytes(64 << 20),
    }
}

/// A rule for the distance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaceRule {
    /// The paper's loop.
    Paper(PaceBounds),
    /// The distance follows lateness, rate and memory.
    Adaptive(PaceBounds),
}

/// Every rule's name, in the order of reports.
pub const NAMES: &[&str] = &["paper", "adaptive"];

/// What a pace decides from. Positions are bytes from the start of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceInput {
    /// The end of what the program has read.
    pub position: u64,
    /// The end of what was read ahead or is being read.
    pub ahead: u64,
    /// The end of the file, as far as it is known, or of what the program is likely to read.
    pub end: u64,
    /// The size of a request that suits kernel and device; at least 1. The paper's `BUFSIZE`.
    pub request_bytes: u64,
    /// Bytes of memory that may hold pages read ahead, those that hold some now included.
    pub free_bytes: u64,
    /// What the program consumes while it need not wait, in bytes a second; 0: not known.
    pub bytes_per_second: u64,
    /// What the device can do, where that is known.
    pub device: Option<DeviceEstimate>,
    /// Whether the program has met bytes in flight since the last decision.
    pub is_late: bool,
    /// The latency of requests as a multiple of the shortest: the rest is time in the device's
    /// queue. 1: the queue is empty; 0: not known.
    pub slowdown: u64,
    /// The distance of a program of which nothing is known yet, in bytes; 0: as small as can be.
    /// What the device delivers in the time of one access: where it is wanted it saves one, where
    /// it is not it costs one.
    pub first_distance: u64,
}

/// What a prefetcher does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceStep {
    /// Read `bytes` at `from`; the next input counts them as read ahead.
    Read {
        /// The first byte.
        from: u64,
        /// How many.
        bytes: u64,
    },
    /// Decide again when the program is at `until`; earlier if it was late, memory has changed, or
    /// it has come to what was requested since the distance grew.
    Wait {
        /// A position beyond the program's.
        until: u64,
    },
    /// All up to the end was read.
    Done,
}

/// The state of one prefetcher's distance.
#[derive(Clone, Debug)]
pub struct Pace {
    rule: PaceRule,
    /// The paper's: bytes to read before the next look at the distance.
    left: u64,
    /// Adaptive: the distance that is wanted; 0 at the start.
    distance: u64,
    /// Adaptive: how far was read ahead when the distance grew last.
    grown_at: u64,
}

impl PaceRule {
    /// The rule that `spec` (`NAME[:key=value,...]`) describes.
    ///
    /// # Errors
    /// As [`PaceRule::new`], or a parameter is unknown or does not parse.
    pub fn make(spec: &str) -> Result<Self, ParamError> {
        let (name, pairs) = params::split(spec);
        let mut bounds = PaceBounds::default();
        params::apply(&mut bounds, pairs)?;
        Self::new(name, bounds)
    }

    /// The rule of this name within `bounds`.
    ///
    /// # Errors
    /// There is no such name, or the burst is of nothing.
    pub fn new(name: &str, bounds: PaceBounds) -> Result<Self, ParamError> {
        let rule = match name {
            "paper" => Self::Paper,
            "adaptive" => Self::Adaptive,
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
            Self::Adaptive(_) => NAMES[1],
        }
    }

    /// Its bounds.
    #[must_use]
    pub fn bounds(&self) -> &PaceBounds {
        let (Self::Paper(bounds) | Self::Adaptive(bounds)) = self;
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
    pub fn new(rule: PaceRule) -> Self {
        let left = rule.bounds().burst.0;
        Self { rule, left, distance: 0, grown_at: 0 }
    }

    /// The program has gone elsewhere: nothing that was requested has to come before the distance
    /// may grow.
    pub fn moved(&mut self) {
        self.grown_at = 0;
    }

    /// The program goes on here with the distance that it had by `other`.
    pub fn inherit(&mut self, other: &Self) {
        self.distance = self.distance.max(other.distance);
        self.moved();
    }

    /// What to do next. O(1).
    ///
    /// # Panics
    /// A request has no bytes.
    pub fn decide(&mut self, input: &PaceInput) -> PaceStep {
        assert!(input.request_bytes > 0, "a request has bytes");
        let &PaceBounds { burst: Bytes(burst), limit: Bytes(limit) } = self.rule.bounds();
        match self.rule {
            PaceRule::Paper(_) => self.paper(input, burst, limit),
            PaceRule::Adaptive(_) => self.adaptive(input, burst, limit),
        }
    }

    /// A burst in single requests, then no more while the distance exceeds the limit.
    fn paper(&mut self, input: &PaceInput, burst: u64, limit: u64) -> PaceStep {
        if input.ahead >= input.end {
            return PaceStep::Done;
        }
        if self.left == 0 {
            // The program may have overtaken the prefetcher: the distance is below 0 then.
            if input.ahead.saturating_sub(input.position) > limit {
                return PaceStep::Wait { until: input.ahead - limit };
            }
            self.left = burst;
        }
        let bytes = input.request_bytes.min(input.end - input.ahead);
        self.left = self.left.saturating_sub(bytes);
        PaceStep::Read { from: input.ahead, bytes }
    }

    /// A burst at a time, as long as it fits the distance.
    fn adaptive(&mut self, input: &PaceInput, burst: u64, limit: u64) -> PaceStep {
        let from = input.ahead.max(input.position);
        if from >= input.end {
            return PaceStep::Done;
        }
        let request = input.request_bytes;
        let Some(most) = (input.free_bytes / FREE_SHARE).checked_sub(request) else {
            self.distance = 0;
            return PaceStep::Wait { until: from.max(input.position.saturating_add(request)) };
        };
        if self.distance == 0 {
            self.distance = input.first_distance;
        }
        // What was requested since it grew must have had the time to come.
        if input.position >= self.grown_at {
            let wanted = if input.is_late { u64::MAX } else { needed(input) };
            let grown = self.distance.saturating_mul(growth(input.slowdown)).min(wanted);
            if grown > self.distance {
                (self.distance, self.grown_at) = (grown, from);
            }
        }
        self.distance = self.distance.max(request).min(most.min(limit));
        // Four bursts to a distance: when one is requested, three are there or in flight.
        let burst = request.max(burst.min(self.distance / 4) / request * request);
        let top = self.distance.saturating_add(request);
        assert!(burst <= top, "a burst of {burst} fits a distance of {top}");
        if from - input.position <= top - burst {
            PaceStep::Read { from, bytes: burst.min(input.end - from) }
        } else {
            PaceStep::Wait { until: from - (top - burst) }
        }
    }
}

/// By how much a distance grows at a time.
fn growth(slowdown: u64) -> u64 {
    match slowdown {
        1 => 4,
        0 | 2..FULL => 2,
        FULL.. => 1,
    }
}

/// A request, and what the program consumes while the device serves [`LATENCIES`] of them, each
/// alone; 0 where that is not known.
fn needed(input: &PaceInput) -> u64 {
    let Some(device) = input.device else { return 0 };
    let transfer =
        u128::from(input.request_bytes) * SECOND / u128::from(device.bytes_per_second.max(1));
    let latency = u128::from(device.latency.0) + transfer;
    let consumed = u128::from(input.bytes_per_second).saturating_mul(LATENCIES * latency) / SECOND;
    u64::try_from(consumed).unwrap_or(u64::MAX).saturating_add(input.request_bytes)
}

/// Memory is shared with what the program has read and with other programs: a distance takes at
/// most one part in so many of what is free.
const FREE_SHARE: u64 = 4;
/// Latencies that a distance covers: the slowest of some requests takes about twice as long as
/// most, and as much again goes by between decisions.
const LATENCIES: u128 = 4;
const SECOND: u128 = Nanos::from_millis(1_000).0 as u128;

#[cfg(test)]
mod tests;
