//! What prefetching would gain: a model of times.
//!
//! ```text
//!   without   |-- computes --|== waits ==|-- computes --|== waits ==|~ other waits ~|
//!   with      |-- computes --|-- computes --|~ other waits ~|  + OVERHEAD     but never less than
//!             |-- before --|--- bytes from the device / its bytes a second ---|-- after --|
//!                the first read of what is not in memory               the last read
//! ```
//! Of the waits for storage, those before predictable reads disappear, and those for entries that a
//! walk predicts. That is the optimum, which a real run approaches where the device serves several
//! requests at a time.
//!
//! A learned list holds all that the run has read, and no wait is unpredictable to the next.
//!
//! Walks are replayed in virtual time (`timeline`), on a device as its profile says; without one
//! the device has no limit there, and what is spared is an upper bound.
//!
//! # Invariants
//! - No gain is predicted beyond the device's limit. Where the limit is only known from the run
//!   itself, which may not have used all that the device can do, the gain is a lower bound, with
//!   that limit and one lookup at a time, and has an upper bound, without any.
//! # Sources
//! Fukayama, Sugita, Hiruta, Yamana, "Disk Access Speed up Using Prefetching Thread": the time of
//! a program is the sum of computing and I/O without overlap, and the greater of both with it.

use forerun_core::units::Nanos;

use super::causes::Cause;
use super::summary::{DeviceFacts, FileSummary, InitialResidency, ProgramSummary};

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

/// What `forerun run` would gain for the program of `summary`. `profile` is that of its device,
/// where it was measured.
#[must_use]
pub fn predict(summary: &ProgramSummary, profile: Option<DeviceFacts>) -> Prediction {
    decide(&times(summary, profile))
}

/// What `forerun run` would gain at the next start, with what it has learned of a run such as that
/// of `summary`: no wait is unpredictable then, but for those of large files.
#[must_use]
pub fn predict_learned(summary: &ProgramSummary, profile: Option<DeviceFacts>) -> Prediction {
    let times = times(summary, profile);
    // What of the waits is for files of which a list has more than it may be ahead: it leaves them
    // out. Of what was not observed the largest file has most.
    let unseen = summary.device_bytes.saturating_sub(summary.bytes_read);
    let used = |file: &FileSummary| file.bytes_read.saturating_add(unseen).min(file.bytes);
    let was_cached = |file: &FileSummary| file.residency.is_some_and(InitialResidency::is_whole);
    let large = summary.files.iter().filter(|file| !was_cached(file));
    let large = large.filter(|file| used(file) > LIST_BYTES_MAX).map(used).max();
    let beyond = large.unwrap_or(0).min(summary.device_bytes);
    let part = u128::from(times.waited.0) * u128::from(beyond);
    let part = part / u128::from(summary.device_bytes.max(1));
    let spared = times.waited.since(Nanos(u64::try_from(part).unwrap_or(u64::MAX)));
    assert!(spared <= times.waited, "no more is spared than there is");
    decide(&RunTimes { known: spared.max(times.known), is_learned: true, ..times })
}

fn times(summary: &ProgramSummary, profile: Option<DeviceFacts>) -> RunTimes {
    let streams = summary.files.iter().flat_map(|file| &file.streams);
    let known = streams.filter(|stream| stream.pattern.is_predictable());
    let rate = profile.map(|facts| (facts.bytes_per_second, true));
    let rate = rate.or_else(|| Some((summary.rate?, false)));
    let limit =
        rate.map(|(bytes_per_second, is_profile)| DeviceLimit { bytes_per_second, is_profile });
    let trees = summary.trees.as_ref();
    let spared = trees.map_or(Nanos(0), |trees| trees.spared);
    let known = Nanos(known.map(|stream| stream.waited.0).sum()) + spared;
    let entries = trees.map_or(Nanos(0), |trees| trees.waited);
    let is_known = profile.is_some_and(|facts| facts.small.is_some());
    RunTimes {
        is_learned: false,
        ran: summary.ran,
        waited: summary.waited,
        before: summary.read_from,
        after: summary.ran.since(summary.read_until),
        known: known.min(summary.waited),
        entries,
        lookups: if is_known { Nanos(0) } else { entries },
        reads: reads_at_most(summary).since(entries),
        faults: summary.causes.of(Cause::Fault),
        device_bytes: summary.device_bytes,
        bytes_read: summary.bytes_read,
        limit: limit.filter(|limit| limit.bytes_per_second > 0),
    }
}

/// The time of waits in read calls: at most, where calls may not be observed.
fn reads_at_most(summary: &ProgramSummary) -> Nanos {
    let are_refused = summary.calls_refused > 0;
    let unknown = if are_refused { summary.causes.of(Cause::Other) } else { Nanos(0) };
    summary.causes.of(Cause::Read) + unknown
}

/// The times and bytes of a run, as far as they decide.
#[derive(Clone, Copy, Debug, Default)]
struct RunTimes {
    /// A list says what it reads, whether that was observed or not.
    is_learned: bool,
    ran: Nanos,
    waited: Nanos,
    /// Of that, before predictable reads.
    known: Nanos,
    /// From its start to its first read, and from its last read to its end.
    before: Nanos,
    after: Nanos,
    /// The time of waits for entries, and what the device needs for them as far as that is known.
    entries: Nanos,
    lookups: Nanos,
    /// The time of waits in read calls that are none for entries, or may be, and in page faults.
    reads: Nanos,
    faults: Nanos,
    device_bytes: u64,
    bytes_read: u64,
    limit: Option<DeviceLimit>,
}

fn decide(times: &RunTimes) -> Prediction {
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
/// What `run` may have ahead of a list, unless it is told otherwise.
const LIST_BYTES_MAX: u64 = 128 << 20;
/// With less of it observed than one byte in so many, there is no verdict at all. The kernel's own
/// readahead fetches up to 32 times what is read at random of a mapping.
const BLIND_ONE_IN: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefetch::WALKS_ONE_IN;
    use crate::run::Settings;

    #[test]
    fn the_gain_is_what_was_waited_for_as_far_as_the_device_goes() {
        let profile =
            |mb: u64| Some(DeviceLimit { bytes_per_second: mb * 1_000_000, is_profile: true });
        let seen =
            |mb: u64| Some(DeviceLimit { bytes_per_second: mb * 1_000_000, is_profile: false });
        // 100 MB are read.
        #[rustfmt::skip]
        let rows = [ // why, [ran, waited, of that known], MB, limit, run, most, the reason
            ("a fast device", [2_000, 1_000, 1_000], 100, profile(500), 1_023, 977, Why::Waits),
            ("a slower one",  [2_000, 1_000, 1_000], 100, profile(80),  1_250, 750, Why::Waits),
            ("at its limit",  [2_000, 1_000, 1_000], 100, profile(50),  2_000, 0, Why::DeviceBusy),
            ("some random",   [2_000, 1_000, 400], 100, profile(500), 1_623, 377, Why::Waits),
            ("all random",    [2_000, 1_000, 20], 100, profile(500), 2_000, 0, Why::Unpredictable),
            ("it computes",   [2_000, 30, 30], 100, profile(500), 2_000, 0, Why::Computes),
            ("in memory",     [2_000, 1_000, 1_000], 0,   profile(500), 2_000, 0, Why::InMemory),
            ("short",         [12, 11, 11], 100, None,         12,    0, Why::TooShort),
            ("fast at times", [2_000, 1_000, 1_000], 100, seen(80),     1_250, 977, Why::Waits),
            ("all the time",  [2_000, 1_000, 1_000], 100, seen(50),     2_000, 977, Why::Unknown),
            ("nothing known", [2_000, 1_000, 1_000], 100, None,         2_000, 977, Why::Unknown),
        ];
        for (reason, times, mb, limit, run, gain_max, why) in rows {
            let [ran, waited, known] = times;
            let millis = Nanos::from_millis;
            let prediction = decide(&RunTimes {
                ran: millis(ran),
                waited: millis(waited),
                known: millis(known),
                device_bytes: mb * 1_000_000,
                bytes_read: 100_000_000,
                limit,
                ..RunTimes::default()
            });
            let gain = millis(ran).since(millis(run));
            let expected =
                Prediction { run: millis(run), gain, gain_max: millis(gain_max), limit, why };
            assert_eq!(prediction, expected, "{reason}");
        }
    }

    /// Programs on emulated devices, as `explain` recorded them without a profile, and what `run`
    /// saved of a run alone.
    #[test]
    fn what_came_lies_between_the_bounds_of_recorded_runs() {
        let millis = Nanos::from_millis;
        #[rustfmt::skip]
        let rows = [ // program, [ran, of that known, in lookups], MB/s, KiB, gain at least, saved
            ("md5sum on cloud",  [694, 540, 0],      Some(104), 65_536, 48,    143),
            ("md5sum on object", [6_420, 6_222, 0],  Some(13),  65_536, 1_257, 5_916),
            ("grep -r on cloud", [1_820, 1_640, 1_690], None,    5_080, 0,     1_407),
        ];
        for (program, [ran, known, entries], mb, kib, least, saved) in rows {
            let limit = mb
                .map(|mb: u64| DeviceLimit { bytes_per_second: mb * 1_000_000, is_profile: false });
            let prediction = decide(&RunTimes {
                ran: millis(ran),
                waited: millis(known),
                known: millis(known),
                entries: millis(entries),
                lookups: millis(entries),
                device_bytes: kib << 10,
                bytes_read: kib << 10,
                limit,
                ..RunTimes::default()
            });
            assert!(prediction.is_bound(), "{program}: {prediction:?}");
            assert_eq!(prediction.gain.0 / 1_000_000, least, "{program}");
            let bounds = prediction.gain..=prediction.gain_max;
            assert!(bounds.contains(&millis(saved)), "{program}: {saved} of {bounds:?}");
        }
    }

    #[test]
    fn what_is_computed_before_the_first_read_and_after_the_last_comes_on_top() {
        let millis = Nanos::from_millis;
        let limit = Some(DeviceLimit { bytes_per_second: 100_000_000, is_profile: true });
        for [before, after, run] in [
            [0, 0, 1_023],
            [0, 100, 1_100],
            [100, 0, 1_100],
            [50, 60, 1_110],
            [400, 500, 1_900],
            [0, 1_000, 2_000],
            [1_000, 1_000, 2_000],
        ] {
            let prediction = decide(&RunTimes {
                ran: millis(2_000),
                waited: millis(1_000),
                known: millis(1_000),
                before: millis(before),
                after: millis(after),
                device_bytes: 100_000_000,
                bytes_read: 100_000_000,
                limit,
                ..RunTimes::default()
            });
            assert_eq!(prediction.run, millis(run), "{before}, {after}");
        }
    }

    #[test]
    fn a_learned_list_spares_the_waits_that_nothing_else_predicts() {
        let millis = Nanos::from_millis;
        let summary = ProgramSummary {
            ran: millis(2_000),
            waited: millis(1_000),
            read_until: millis(2_000),
            device_bytes: 10_000_000,
            bytes_read: 10_000_000,
            ..ProgramSummary::default()
        };
        let profile = Some(DeviceFacts { bytes_per_second: 100_000_000, small: None });
        assert_eq!(predict(&summary, profile).why, Why::Unpredictable);
        let learned = predict_learned(&summary, profile);
        assert_eq!((learned.why, learned.run), (Why::Waits, millis(1_023)));
    }

    #[test]
    fn a_list_spares_no_waits_for_files_that_it_does_not_fetch() {
        let millis = Nanos::from_millis;
        let mb = |mb: u64| mb << 20;
        let learned = |[bytes, read, device]: [u64; 3], is_cached: bool| {
            let residency =
                InitialResidency { pages: u64::from(is_cached), pages_all: 1, is_before: true };
            let file = |bytes, bytes_read, residency| FileSummary {
                bytes,
                bytes_read,
                residency,
                ..FileSummary::default()
            };
            let summary = ProgramSummary {
                ran: millis(2_000),
                waited: millis(1_000),
                read_until: millis(2_000),
                device_bytes: device,
                bytes_read: read + mb(100),
                rate: Some(10 << 30),
                files: vec![file(mb(100), mb(100), None), file(bytes, read, Some(residency))],
                ..ProgramSummary::default()
            };
            predict_learned(&summary, None).run
        };
        #[rustfmt::skip]
        let rows = [ // why                its bytes, read, of a device     cached  run
            ("what a list may be ahead",   [mb(128), mb(128), mb(228)],     false,  1_023),
            ("more",                       [mb(300), mb(300), mb(400)],     false,  1_773),
            ("a part of a large one",      [mb(900), mb(10), mb(110)],      false,  1_023),
            ("in memory",                  [mb(300), mb(300), mb(100)],     true,   1_023),
            ("what was not observed",      [mb(300), mb(1), mb(400)],       false,  1_773),
        ];
        for (why, bytes, is_cached, run) in rows {
            let told = learned(bytes, is_cached);
            assert!(
                told.since(millis(run)).0 < 2_000_000 && told >= millis(run - 1),
                "{why}: {told:?}"
            );
        }
        let budget = Settings::default().budget_bytes / WALKS_ONE_IN;
        assert_eq!(LIST_BYTES_MAX, budget, "what a list may have ahead");
    }

    #[test]
    fn of_what_was_hardly_observed_there_is_no_verdict() {
        let millis = Nanos::from_millis;
        let seen = RunTimes {
            ran: millis(1_000),
            waited: millis(500),
            device_bytes: 512 << 20,
            bytes_read: 512 << 20,
            ..RunTimes::default()
        };
        let blind = RunTimes { bytes_read: 2 << 20, faults: millis(500), ..seen };
        let known = RunTimes { known: millis(400), ..blind };
        let of_list = RunTimes { is_learned: true, ..known };
        let for_entries = RunTimes { entries: millis(400), ..blind };
        #[rustfmt::skip]
        let rows = [ // why              times        verdict
            ("all was seen",             seen,        Why::Unpredictable),
            ("next to nothing was",      blind,       Why::NotSeen),
            ("its waits may be others'", known,       Why::NotSeen),
            ("a list need not see it",   of_list,     Why::Unknown),
            ("it waited for entries",    for_entries, Why::Unpredictable),
        ];
        for (why, times, verdict) in rows {
            assert_eq!(decide(&times).why, verdict, "{why}");
        }
    }

    #[test]
    fn a_program_that_reads_nothing_gains_nothing() {
        let (ran, waited) = (Nanos::from_millis(900), Nanos::from_millis(800));
        let times = RunTimes { ran, waited, known: waited, device_bytes: 9, ..RunTimes::default() };
        let prediction = decide(&times);
        assert_eq!((prediction.why, prediction.gain_max), (Why::ReadsNothing, Nanos(0)));
        let entries = waited;
        let prediction = decide(&RunTimes { entries, ..times });
        assert_eq!(prediction.why, Why::Unknown, "it waited for entries");
    }

    #[test]
    fn waits_in_calls_that_may_not_be_observed_may_be_reads() {
        for (calls_refused, why) in [(0, Why::ReadsNothing), (1, Why::NotSeen)] {
            let mut summary = ProgramSummary {
                ran: Nanos::from_millis(2_000),
                waited: Nanos::from_millis(1_000),
                device_bytes: 100_000_000,
                calls_refused,
                ..ProgramSummary::default()
            };
            summary.causes.add(Cause::Other, summary.waited);
            assert_eq!(predict(&summary, None).why, why, "{calls_refused} refused");
        }
    }

    #[test]
    fn there_is_no_verdict_on_reads_that_were_not_observed() {
        let millis = Nanos::from_millis;
        let at = |known, reads, bytes_read| RunTimes {
            ran: millis(2_000),
            waited: millis(1_000),
            known: millis(known),
            reads: millis(reads),
            device_bytes: 100_000_000,
            bytes_read,
            ..RunTimes::default()
        };
        #[rustfmt::skip]
        let rows = [ // known, in reads, bytes    the reason
            (0,      1_000,  89_000_000,    Why::NotSeen),
            (0,      1_000,  0,             Why::NotSeen),
            (0,      1_000,  90_000_000,    Why::Unpredictable),
            // Pages of mappings are fetched around those that are used.
            (0,      30,     10_000_000,    Why::Unpredictable),
            (900,    1_000,  10_000_000,    Why::Unknown),
        ];
        for (known, reads, bytes_read, why) in rows {
            let prediction = decide(&at(known, reads, bytes_read));
            assert_eq!(prediction.why, why, "{known} ms, {reads} ms, {bytes_read} bytes");
            assert_eq!(prediction.gain_max == Nanos(0), why != Why::Unknown);
        }
    }
}
