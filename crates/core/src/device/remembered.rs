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
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    fn estimate(millis: u64, mb_per_second: u64, [kind, access, rate]: [bool; 3]) -> Estimate {
        Estimate {
            profile: DeviceProfile {
                kind: DeviceKind::Parallel,
                access: Nanos::from_millis(millis),
                bytes_per_second: mb_per_second * 1_000_000,
                depth: 30,
                request_bytes: 1 << 20,
            },
            known: Evidence { kind, access, rate },
        }
    }

    /// Why, contradictions before, evidence and the run's estimate, contradictions left.
    type Case<'a> = (&'a str, u32, &'a [(u64, Estimate)], Option<u32>);

    /// The same of which the kind was not seen.
    fn assumed(own: Estimate) -> Estimate {
        Estimate { known: Evidence { kind: false, ..own.known }, ..own }
    }

    /// The same, taken for a disk.
    fn disk(own: Estimate) -> Estimate {
        Estimate { profile: DeviceProfile { kind: DeviceKind::SeekBound, ..own.profile }, ..own }
    }

    const ALL: [bool; 3] = [true; 3];
    const NONE: [bool; 3] = [false; 3];
    const ACCESS: [bool; 3] = [false, true, false];
    const RATE: [bool; 3] = [false, false, true];

    fn record(contradictions: u32) -> DeviceRecord {
        DeviceRecord { estimate: estimate(50, 500, ALL), contradictions }
    }

    #[test]
    fn a_record_is_used_until_the_run_has_seen_what_it_says() {
        let then = record(0).estimate;
        let (other, access, rate) =
            (estimate(40, 400, ALL), estimate(40, 100, ACCESS), estimate(8, 400, RATE));
        #[rustfmt::skip]
        let rows = [ // why              own                     used
            ("nothing was seen",         estimate(8, 100, NONE), then),
            ("the rate is not known",    access,                 then),
            ("the access is not known",  rate,                   then),
            ("all was seen",             other,                  other),
            ("but not the kind",         assumed(other),         assumed(other)),
            ("another one is assumed",   disk(assumed(other)),   assumed(other)),
            ("another one was seen",     disk(other),            disk(other)),
        ];
        for (why, own, used) in rows {
            let known = Evidence { kind: own.known.kind, ..then.known };
            let then = Estimate { known, ..then };
            let memory = DeviceMemory::new(Some(DeviceRecord { estimate: then, ..record(0) }));
            let used = if used.profile == then.profile { then } else { used };
            assert_eq!(memory.estimate(own), used, "{why}");
            assert_eq!(DeviceMemory::default().estimate(own), own, "{why}: there is no record");
        }
    }

    #[test]
    fn a_record_goes_when_it_proves_wrong_twice_in_a_row() {
        let (same, other) = (estimate(60, 400, ALL), estimate(8, 100, ALL));
        let kind = disk(same);
        let (none, slow) = (estimate(8, 100, NONE), estimate(101, 500, ACCESS));
        let (half, double) = (estimate(25, 1_000, ALL), estimate(100, 250, ALL));
        let rate = estimate(50, 249, RATE);
        #[rustfmt::skip]
        let rows: [Case<'_>; 12] = [
            // why                         before evidence, own                       left
            ("nothing is seen",            0, &[(9, none)],                           Some(0)),
            ("half or double is the same", 0, &[(4, half), (8, double)],              Some(0)),
            ("once",                       0, &[(4, other)],                          Some(1)),
            ("the same evidence",          0, &[(4, other), (7, other)],              Some(1)),
            ("too little evidence",        0, &[(3, other)],                          Some(0)),
            ("twice",                      0, &[(4, other), (8, other)],              None),
            ("once a run, in two runs",    1, &[(4, other)],                          None),
            ("not in a row",               0, &[(4, other), (8, same), (12, other)],  Some(1)),
            ("another kind",               1, &[(4, kind)],                           None),
            ("the latency alone",          1, &[(4, slow)],                           None),
            ("the rate alone",             1, &[(4, rate)],                           None),
            ("dropped before",             2, &[],                                    None),
        ];
        for (why, before, judged, left) in rows {
            let mut memory = DeviceMemory::new(Some(record(before)));
            for &(evidence, own) in judged {
                memory.learn(evidence, &own);
            }
            assert_eq!(memory.record.map(|record| record.contradictions), left, "{why}");
            // What was dropped stays so, whatever is seen later.
            memory.learn(100, &same);
            assert_eq!(memory.record.is_some(), left.is_some(), "{why}");
        }
    }

    #[test]
    fn what_is_kept_is_the_last_that_was_seen_in_full_and_not_in_doubt() {
        let own = estimate(40, 400, ALL);
        let of = |own| Some(DeviceRecord { estimate: own, contradictions: 0 });
        let (some, rate) = (estimate(40, 9, ACCESS), estimate(8, 400, RATE));
        let none = estimate(8, 100, NONE);
        #[rustfmt::skip]
        let rows = [ // why                 record           own   kept
            ("nothing was seen",            None,            none, None),
            ("a first run",                 None,            own,  of(own)),
            ("it saw latencies",            None,            some, of(some)),
            ("it saw a rate alone",         None,            rate, None),
            ("seen anew",                   Some(record(0)), own,  of(own)),
            ("what was known stays",        Some(record(0)), some, Some(record(0))),
            ("in doubt",                    Some(record(1)), own,  Some(record(1))),
            ("dropped",                     Some(record(2)), own,  of(own)),
        ];
        for (why, record, own, kept) in rows {
            assert_eq!(DeviceMemory::new(record).kept(own), kept, "{why}");
        }
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written_and_nothing_else_is() {
        for known in [ALL, NONE, ACCESS, RATE] {
            let mut record = DeviceRecord { estimate: estimate(50, 500, known), contradictions: 1 };
            assert_eq!(record.to_string().parse(), Ok(record));
            record.estimate.profile.kind = DeviceKind::SeekBound;
            assert_eq!(record.to_string().parse(), Ok(record));
        }
        let text = record(1).to_string();
        assert_eq!(text, "parallel 50000000 500000000 30 1048576 kar 1");
        for (from, to) in [
            ("parallel", "disk"),
            ("50000000 ", "0 "),
            ("500000000", "-1"),
            ("500000000", "9000000000000"),
            (" 30 ", " 0 "),
            ("1048576", "4294967295"),
            ("kar", "x"),
            ("kar ", ""),
            (" kar", " "),
            (" 1", " 1 "),
        ] {
            assert!(text.contains(from), "{from}");
            let wrong = text.replacen(from, to, 1);
            assert_eq!(wrong.parse::<DeviceRecord>(), Err(RecordError), "{wrong}");
        }
    }
}
