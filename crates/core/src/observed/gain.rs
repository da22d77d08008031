//! What prefetching would gain in a run that was observed: a model of times.
//!
//! ```text
//!   without   |-- computes --|== waits ==|-- computes --|== waits ==|~ other waits ~|
//!   with      |-- computes --|-- computes --|~ other waits ~|  + OVERHEAD     but never less than
//!             |-- before --|--- bytes from the device / its bytes a second ---|-- after --|
//!                the first read of what is not in memory               the last read
//! ```
//! Of the waits for storage those that are known beforehand disappear. That is the optimum, which a
//! real run approaches where the device serves several requests at a time.
//!
//! # Invariants
//! - No gain is predicted beyond the device's limit. Where the limit is only known from the run
//!   itself, which may not have used all that the device can do, the gain is a lower bound, with
//!   that limit and one lookup at a time, and has an upper bound, without any.
//! # Sources
//! Fukayama, Sugita, Hiruta, Yamana, "Disk Access Speed up Using Prefetching Thread": the time of
//! a program is the sum of computing and I/O without overlap, and the greater of both with it.

use crate::units::Nanos;

/// The rate of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimit {
    /// Bytes a second.
    pub bytes_per_second: u64,
    /// Whether it comes from a device profile; else it is the best rate of the run, a lower bound.
    pub is_profile: bool,
}

/// A prediction of the same run with prefetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The run time.
    pub run: Nanos,
    /// The run time that is saved; at least, where [`Prediction::is_bound`].
    pub gain: Nanos,
    /// The same if the device had no limit.
    pub gain_max: Nanos,
    /// The device's rate, where known.
    pub limit: Option<DeviceLimit>,
    /// The reason for a gain or for none.
    pub why: Why,
}

/// Why there is something to gain, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No access to a file of 256 KiB or more was observed, and no wait for an entry.
    ReadsNothing,
    /// All that was read was in memory.
    InMemory,
    /// The program hardly waits for storage.
    Computes,
    /// The program waits for reads that cannot be predicted.
    Unpredictable,
    /// The program waits for reads of which too few were observed for a verdict.
    NotSeen,
    /// The waits are about as long as the cost of prefetching.
    TooShort,
    /// The device is at its limit.
    DeviceBusy,
    /// The program waits for predictable reads, and the device can do more.
    Waits,
    /// The same, but whether the device can do more is not known.
    Unknown,
}

impl Prediction {
    /// Whether the gain is known by its bounds alone: it lies between `gain` and `gain_max`.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.gain < self.gain_max
    }
}

impl Why {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadsNothing => "reads-nothing",
            Self::InMemory => "in-memory",
            Self::Computes => "computes",
            Self::Unpredictable => "unpredictable",
            Self::NotSeen => "not-seen",
            Self::TooShort => "too-short",
            Self::DeviceBusy => "device-busy",
            Self::Waits => "waits",
            Self::Unknown => "unknown",
        }
    }

    /// Whether there is a gain; `None` where that is not known.
    #[must_use]
    pub fn gains(self) -> Option<bool> {
        match self {
            Self::ReadsNothing
            | Self::InMemory
            | Self::Computes
            | Self::Unpredictable
            | Self::TooShort
            | Self::DeviceBusy => Some(false),
            Self::Waits => Some(true),
            Self::NotSeen | Self::Unknown => None,
        }
    }
}

/// The times and bytes of a run, as far as they decide.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunTimes {
    /// A list says what it reads, whether that was observed or not.
    pub is_learned: bool,
    /// The run time.
    pub ran: Nanos,
    /// Of that, waits for storage.
    pub waited: Nanos,
    /// Of these, waits that are known beforehand: before predictable reads, and for entries of
    /// walks.
    pub known: Nanos,
    /// From its start to its first read.
    pub before: Nanos,
    /// From its last read to its end.
    pub after: Nanos,
    /// The time of waits for entries.
    pub entries: Nanos,
    /// What the device needs for entries at least, as far as that is known.
    pub lookups: Nanos,
    /// The time of waits in read calls that are none for entries, or may be.
    pub reads: Nanos,
    /// The time of waits in page faults.
    pub faults: Nanos,
    /// Bytes that came from devices.
    pub device_bytes: u64,
    /// Bytes of all accesses that were observed.
    pub bytes_read: u64,
    /// The device's rate, where known.
    pub limit: Option<DeviceLimit>,
}

/// What prefetching would gain in a run of these times.
///
/// # Panics
/// More waits are known beforehand than there are.
#[must_use]
pub fn predict(times: &RunTimes) -> Prediction {
    let RunTimes { ran, limit, entries, .. } = *times;
    assert!(times.known <= times.waited, "waits before predictable reads are a part of all");
    let overhead = OVERHEAD + Nanos(ran.0 / OVERHEAD_ONE_IN);
    let fastest = (ran.since(times.known) + overhead).min(ran);
    let run = match limit {
        Some(limit) => {
            let reading = limit.time(times.device_bytes).max(times.lookups);
            fastest.max(times.before + reading + times.after).min(ran)
        }
        None => ran,
    };
    let worth = Nanos(ran.0 / WORTH_ONE_IN).max(WORTH_MIN);
    let (gain, gain_max) = (ran.since(run), ran.since(fastest));
    assert!(run <= ran && fastest <= ran, "a prediction is no slower than the run");
    let unseen = times.device_bytes.saturating_sub(times.bytes_read);
    let is_unseen = unseen > times.device_bytes / UNSEEN_ONE_IN && times.reads >= worth;
    // Of next to nothing that was observed no wait is known to be of what.
    let is_blind = times.bytes_read < times.device_bytes / BLIND_ONE_IN && entries < worth;
    let is_blind = is_blind && !times.is_learned && times.reads + times.faults >= worth;
    let why = if is_blind || (is_unseen && times.known < worth) {
        Why::NotSeen
    } else if times.bytes_read == 0 && entries == Nanos(0) {
        Why::ReadsNothing
    } else if times.device_bytes < times.bytes_read / IN_MEMORY_ONE_IN && entries < worth {
        Why::InMemory
    } else if times.waited < worth {
        Why::Computes
    } else if times.known < worth {
        Why::Unpredictable
    } else if gain_max < worth {
        Why::TooShort
    } else if gain >= worth {
        Why::Waits
    } else if limit.is_some_and(|limit| limit.is_profile) {
        Why::DeviceBusy
    } else {
        Why::Unknown
    };
    let nothing = Prediction { run: ran, gain: Nanos(0), gain_max: Nanos(0), limit, why };
    match why.gains() {
        Some(false) => nothing,
        Some(true) => {
            let is_profile = limit.is_some_and(|limit| limit.is_profile);
            let gain_max = if is_profile { gain } else { gain_max };
            assert!(gain <= gain_max, "bounds do not cross");
            Prediction { run, gain, gain_max, limit, why }
        }
        None if why == Why::NotSeen => nothing,
        None => Prediction { gain_max, ..nothing },
    }
}

impl DeviceLimit {
    /// The time that so many bytes take.
    fn time(self, bytes: u64) -> Nanos {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.max(1));
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The cost of `run` itself: to start, and one part in so many of the time.
const OVERHEAD: Nanos = Nanos::from_millis(3);
const OVERHEAD_ONE_IN: u64 = 100;
/// A shorter part of the run time, or a shorter time, counts as no gain.
const WORTH_ONE_IN: u64 = 50;
const WORTH_MIN: Nanos = Nanos::from_millis(10);
/// If less than one byte in so many came from a device, all counts as in memory.
const IN_MEMORY_ONE_IN: u64 = 100;
/// More of what came from devices has to be observed for a verdict on waits for reads.
const UNSEEN_ONE_IN: u64 = 10;
/// With less of it observed than one byte in so many, there is no verdict at all. The kernel's own
/// readahead fetches up to 32 times what is read at random of a mapping.
const BLIND_ONE_IN: u64 = 64;

#[cfg(test)]
mod tests;
