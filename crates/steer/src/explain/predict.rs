//! What prefetching would gain: the times of a run, for core's model of them (`core::observed`).
//!
//! ```text
//!   ProgramSummary --times--> RunTimes --core--> Prediction
//! ```
//! Of the waits for storage, those before predictable reads disappear, and those for entries that a
//! walk predicts. A learned list holds all that the run has read, and no wait is unpredictable to
//! the next.
//!
//! Walks are replayed in virtual time (`timeline`), on a device as its profile says; without one
//! the device has no limit there, and what is spared is an upper bound.
//!
//! # Invariants
//! - What is known beforehand is no more than what was waited for.

use forerun_core::observed::gain::{self, DeviceLimit, Prediction, RunTimes};
use forerun_core::units::Nanos;

use super::causes::Cause;
use super::summary::{DeviceFacts, FileSummary, InitialResidency, ProgramSummary};

/// What `forerun run` would gain for the program of `summary`. `profile` is that of its device,
/// where it was measured.
#[must_use]
pub fn predict(summary: &ProgramSummary, profile: Option<DeviceFacts>) -> Prediction {
    gain::predict(&times(summary, profile))
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
    assert!(beyond <= summary.device_bytes, "a list leaves out no more than there is");
    let part = u128::from(times.waited.0) * u128::from(beyond);
    let part = part / u128::from(summary.device_bytes.max(1));
    let spared = times.waited.since(Nanos(u64::try_from(part).unwrap_or(u64::MAX)));
    assert!(spared <= times.waited, "no more is spared than there is");
    gain::predict(&RunTimes { known: spared.max(times.known), is_learned: true, ..times })
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
    let known = known.min(summary.waited);
    assert!(known <= summary.waited, "what is known beforehand is a part of all waits");
    RunTimes {
        is_learned: false,
        ran: summary.ran,
        waited: summary.waited,
        before: summary.read_from,
        after: summary.ran.since(summary.read_until),
        known,
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

/// What `run` may have ahead of a list, unless it is told otherwise.
const LIST_BYTES_MAX: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use forerun_core::observed::gain::Why;

    use super::*;
    use crate::prefetch::WALKS_ONE_IN;
    use crate::run::Settings;

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
}
