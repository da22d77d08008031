//! A device remembered: what an earlier run learnt of it, for how long it is believed, and what is
//! kept for the next run.
//!
//! ```text
//!   record of the run before --> used until the run's own evidence covers it --> own estimate
//!             |    ^                                                                |
//!   evidence  |    | agrees: contradictions = 0                                     v
//!   against it v   |                                          record for the next run
//!   contradictions = 1 --> 2: dropped, in the middle of the run
//! ```
//! One contradiction may be a moment in which others used the device, so the record stays and the
//! count goes with it into the next run. A second one in a row, on evidence of its own, ends it.
//!
//! # Invariants
//! - What rests on no evidence is not compared; a record without an access time is not kept.
//! - Evidence is compared once: a judgement needs `EVIDENCE_MIN` figures since the one before.
//! - A record that was dropped does not come back within the run.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use super::DeviceKind;
use super::estimate::{DeviceProfile, Estimate, Evidence};
use crate::units::Nanos;

/// What was learnt of a device in earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRecord {
    /// What it could do, and which of it was seen.
    pub estimate: Estimate,
    /// How often in a row it proved wrong since; below [`CONTRADICTIONS_MAX`].
    pub contradictions: u32,
}

impl DeviceRecord {
    /// What a run that has learnt `own` keeps; `None` if it has seen too little.
    fn new(own: Estimate) -> Option<Self> {
        // The kind, too, follows from the access time where nothing else was seen of it.
        own.known.access.then_some(Self { estimate: own, contradictions: 0 })
    }

    /// Whether `own` says something else of what both have seen.
    fn is_contradicted(&self, own: &Estimate) -> Option<bool> {
        let (then, now) = (&self.estimate.profile, &own.profile);
        let both = |fact: fn(&Evidence) -> bool| fact(&self.estimate.known) && fact(&own.known);
        let compared = [
            both(|known| known.kind).then(|| then.kind != now.kind),
            both(|known| known.access).then(|| is_far(then.access.0, now.access.0)),
            both(|known| known.rate).then(|| is_far(then.bytes_per_second, now.bytes_per_second)),
        ];
        compared.into_iter().flatten().reduce(|any, one| any || one)
    }
}

impl fmt::Display for DeviceRecord {
    /// Kind, access time in ns, bytes a second, depth, bytes of a request; what of kind, access
    /// and rate was seen, or `-`; contradictions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Estimate { profile, known } = self.estimate;
        let DeviceProfile { kind, access, bytes_per_second, depth, request_bytes } = profile;
        let kind = match kind {
            DeviceKind::SeekBound => POSITIONAL,
            DeviceKind::Parallel => PARALLEL,
        };
        write!(f, "{kind} {} {bytes_per_second} {depth} {request_bytes} ", access.0)?;
        let seen = [(known.kind, "k"), (known.access, "a"), (known.rate, "r")];
        let is_empty = seen.iter().all(|(is_known, _)| !is_known);
        for (_, letter) in seen.into_iter().filter(|(is_known, _)| *is_known) {
            f.write_str(letter)?;
        }
        write!(f, "{} {}", if is_empty { "-" } else { "" }, self.contradictions)
    }
}

impl FromStr for DeviceRecord {
    type Err = RecordError;

    /// Reads what [`Display`](fmt::Display) writes, and nothing that no device can be.
    fn from_str(text: &str) -> Result<Self, RecordError> {
        let &[kind, access, rate, depth, request, known, contradictions] =
            text.split(' ').collect::<Vec<_>>().as_slice()
        else {
            return Err(RecordError);
        };
        let kind = match kind {
            POSITIONAL => DeviceKind::SeekBound,
            PARALLEL => DeviceKind::Parallel,
            _ => return Err(RecordError),
        };
        let long = |text: &str| text.parse::<u64>().ok().filter(|&it| 0 < it && it <= FACT_MAX);
        let short = |text: &str| text.parse::<u32>().ok().filter(|&it| 0 < it && it <= COUNT_MAX);
        let contradictions = contradictions.parse().map_err(|_| RecordError)?;
        if known != "-" && (known.is_empty() || !known.chars().all(|one| "kar".contains(one))) {
            return Err(RecordError);
        }
        let has = |letter| known.contains(letter);
        let profile = DeviceProfile {
            kind,
            access: Nanos(long(access).ok_or(RecordError)?),
            bytes_per_second: long(rate).ok_or(RecordError)?,
            depth: short(depth).ok_or(RecordError)?,
            request_bytes: short(request).ok_or(RecordError)?,
        };
        let known = Evidence { kind: has('k'), access: has('a'), rate: has('r') };
        Ok(Self { estimate: Estimate { profile, known }, contradictions })
    }
}

/// A text that is no record of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordError;

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no record of a device")
    }
}

impl core::error::Error for RecordError {}

/// What is remembered of a device within one run.
#[derive(Clone, Debug, Default)]
pub struct DeviceMemory {
    record: Option<DeviceRecord>,
    /// The evidence that has been compared.
    judged: u64,
}

impl DeviceMemory {
    /// A run that begins with `record`.
    #[must_use]
    pub fn new(record: Option<DeviceRecord>) -> Self {
        let record = record.filter(|record| record.contradictions < CONTRADICTIONS_MAX);
        Self { record, judged: 0 }
    }

    /// Whether there is a record that is believed.
    #[must_use]
    pub fn has_record(&self) -> bool {
        self.record.is_some()
    }

    /// Compares the record with `own`, the run's estimate after so many pieces of `evidence`.
    pub fn learn(&mut self, evidence: u64, own: &Estimate) {
        assert!(evidence >= self.judged, "evidence is not lost: {evidence} < {}", self.judged);
        let Some(record) = &mut self.record else { return };
        if evidence - self.judged < EVIDENCE_MIN {
            return;
        }
        let Some(is_contradicted) = record.is_contradicted(own) else { return };
        self.judged = evidence;
        record.contradictions = if is_contradicted { record.contradictions + 1 } else { 0 };
        if record.contradictions >= CONTRADICTIONS_MAX {
            self.record = None;
        }
    }

    /// What the device can do: the record, as long as the run has not seen all that it says; and
    /// its kind until that is seen, as the few requests of a run's begin mislead about it.
    #[must_use]
    pub fn estimate(&self, own: Estimate) -> Estimate {
        let Some(DeviceRecord { estimate: then, .. }) = self.record else { return own };
        if !covers(own, then) {
            return then;
        }
        let DeviceProfile { access, bytes_per_second, .. } = own.profile;
        let is_other = !own.known.kind && own.profile.kind != then.profile.kind;
        let profile = DeviceProfile { access, bytes_per_second, ..then.profile };
        if is_other { Estimate { profile, ..own } } else { own }
    }

    /// What is kept for the next run.
    #[must_use]
    pub fn kept(&self, own: Estimate) -> Option<DeviceRecord> {
        let Some(record) = self.record else { return DeviceRecord::new(own) };
        let is_renewed = record.contradictions == 0 && covers(own, record.estimate);
        if is_renewed { DeviceRecord::new(self.estimate(own)) } else { Some(record) }
    }
}

/// Whether `own` has seen all that `then` has.
fn covers(own: Estimate, then: Estimate) -> bool {
    let (own, then) = (own.known, then.known);
    (own.kind || !then.kind) && (own.access || !then.access) && (own.rate || !then.rate)
}

/// Whether one is more than [`FAR`] times the other.
fn is_far(one: u64, other: u64) -> bool {
    one.max(other) > one.min(other).saturating_mul(FAR)
}

/// A record that proved wrong so often in a row is dropped.
pub const CONTRADICTIONS_MAX: u32 = 2;
/// Figures since the last judgement: as many as make a latency known at all.
const EVIDENCE_MIN: u64 = 4;
/// Half or double: windows that are sized by a figure off by less cost a few per cent, and other
/// users of a device, or another part of a disk, change its figures by as much.
const FAR: u64 = 2;
const POSITIONAL: &str = "positional";
const PARALLEL: &str = "parallel";
/// No device takes longer for an access, in ns, or delivers more bytes a second: 16 minutes, 1 TB.
const FACT_MAX: u64 = 1_000_000_000_000;
/// No device has more in flight, or takes larger requests.
const COUNT_MAX: u32 = 1 << 30;

#[cfg(test)]
mod tests;
