//! The statistics of a run, as text and as JSON.
//!
//! ```text
//!   times            ran, computed, waited at most, forerun's own part
//!   fetched ahead    by streams, walks and lists, and what of it was wasted
//!   the rest         what was observed and requested, and what could not be
//! ```

use forerun_core::units::Nanos;
use forerun_report::quantity::{
    bytes, bytes_of, calls_not_observed, count, counted, counted_lines, percent, ratio, seconds,
    time, time_of,
};
use forerun_steer::learn::LearnedStats;
use forerun_steer::run::Stats;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// The statistics as lines of text.
pub(super) fn lines(stats: &Stats) -> Vec<String> {
    let planner = &stats.planner;
    let mut lines = vec![times(stats)];
    lines.extend(ahead(stats));
    lines.push(format!(
        "{}, {}, {}; {} read {}, requested {} in {}, at most {} ahead; {} were cached already",
        counted(stats.processes, "process", "processes"),
        counted(stats.files, "file", "files"),
        counted(stats.polls, "poll", "polls"),
        counted(planner.streams, "stream", "streams"),
        bytes(planner.bytes_read),
        bytes(planner.bytes_requested),
        counted(planner.requests, "call", "calls"),
        bytes(planner.distance_bytes_max),
        bytes(planner.bytes_cached)
    ));
    let entries = &stats.entries;
    if entries.requested > 0 {
        lines.push(format!(
            "{}; {} requested with {} of files, {} seen to be used, {} of them late; {} passed \
             by, {} not used with {}, {} not fetched",
            counted(entries.walks, "walk", "walks"),
            counted(entries.requested, "entry", "entries"),
            bytes(entries.bytes),
            count(entries.used),
            count(entries.late),
            count(entries.passed),
            count(entries.unused),
            bytes_of(entries.unused_bytes, entries.bytes),
            count(entries.failed)
        ));
    }
    lines.extend(learned(&stats.learned));
    lines.extend(not_observed(stats.processes_skipped, stats.records_lost));
    let refused = "not opened: not the program's to open, locked or replaced";
    lines.extend(counted_lines([(stats.files_refused, "file was", "files were", refused)]));
    lines.extend(counted_lines(calls_not_observed(stats.calls_refused, stats.calls_foreign)));
    let readers = (stats.readers_skipped, "reader was", "readers were", "too many to follow");
    lines.extend(counted_lines([readers]));
    lines.extend(given_up(stats.calls_given_up));
    lines
}

/// How long the program ran, and what of it is the program's computing and forerun's.
fn times(stats: &Stats) -> String {
    let [ran, used] = [stats.ran, stats.processor].map(seconds);
    let own = if stats.ran < SHARE_FROM { time(used) } else { percent(used / ran) };
    let waited = match waited_max(stats) {
        Some(waited) => format!(", at most {} of waiting", time_of(seconds(waited), ran)),
        None => String::new(),
    };
    let (ran, computed) = (time(ran), time(seconds(stats.computed)));
    format!("{ran}: {computed} of computing{waited}; forerun took {own} of a processor")
}

/// The time in which the program did not compute; none where it computed on several processors.
fn waited_max(stats: &Stats) -> Option<Nanos> {
    (stats.computed <= stats.ran).then(|| stats.ran.since(stats.computed))
}

/// What was fetched ahead, and what became of it; nothing where nothing was.
fn ahead(stats: &Stats) -> Option<String> {
    let fetched = bytes_ahead(stats);
    // A policy's window is requested piece by piece: what was not requested yet counts as late too.
    let late = match (stats.pages_late * PAGE_BYTES).min(fetched) {
        0 => String::new(),
        late => format!(", at most {} in flight when they were read", bytes_of(late, fetched)),
    };
    (fetched > 0).then(|| {
        let wasted = bytes_of(bytes_wasted(stats), fetched);
        format!("fetched {} ahead{late}, at most {wasted} of it not used", bytes(fetched))
    })
}

fn bytes_ahead(stats: &Stats) -> u64 {
    stats.planner.bytes_requested + stats.entries.bytes + stats.learned.bytes
}

/// Of what was fetched ahead: that of which a use would have been seen, and was not.
fn bytes_wasted(stats: &Stats) -> u64 {
    let streams = (stats.pages_unused * PAGE_BYTES).min(stats.planner.bytes_requested);
    streams + stats.entries.unused_bytes + stats.learned.unused_bytes
}

/// What became of a learned list, as lines of text.
fn learned(stats: &LearnedStats) -> Vec<String> {
    let mut lines = Vec::new();
    if stats.entries > 0 {
        lines.push(format!(
            "learned: {} of {} entries requested with {} of files, {} seen to be used, {} not \
             used with {}",
            stats.requested,
            stats.entries,
            bytes(stats.bytes),
            stats.used,
            stats.unused,
            bytes_of(stats.unused_bytes, stats.bytes)
        ));
    }
    if !stats.name.is_empty() && stats.seen > 0 && stats.trouble.is_empty() {
        let paths = counted(stats.seen, "path", "paths");
        let (name, show) = (&stats.name, "forerun learned show");
        lines.push(format!("learned: {paths} for its next start (`{show} {name}`)"));
    }
    if !stats.trouble.is_empty() {
        lines.push(format!("learned: {}", stats.trouble));
    }
    lines
}

/// The share of `part` in `all`; none of nothing.
fn share(part: u64, all: u64) -> Value {
    if all == 0 { Value::Null } else { ratio(part, all).into() }
}

/// What the observers could not see, as lines of text.
pub(crate) fn not_observed(processes_skipped: u64, records_lost: u64) -> Vec<String> {
    let mut lines = Vec::new();
    if processes_skipped > 0 {
        lines.push(format!(
            "{} could not be looked into: other user, setuid or not dumpable",
            counted(processes_skipped, "process", "processes")
        ));
    }
    if records_lost > 0 {
        let reads = counted(records_lost, "read", "reads");
        lines.push(format!("lost of what the shim recorded: {reads}"));
    }
    lines
}

/// What file systems did not answer, as a line of text.
pub(crate) fn given_up(calls: u64) -> Option<String> {
    let told = counted(calls, "call of forerun", "calls of forerun");
    (calls > 0).then(|| format!("{told} on files had not returned at the program's end"))
}

/// The statistics as JSON, in this order.
pub(super) struct Record(Vec<(&'static str, Value)>);

impl Record {
    pub(super) fn new(exit: u8, stats: &Stats) -> Self {
        let planner = &stats.planner;
        Self(vec![
            ("status", exit.into()),
            ("seconds", seconds(stats.ran).into()),
            ("processor_seconds", seconds(stats.processor).into()),
            ("computed_seconds", seconds(stats.computed).into()),
            ("waited_seconds_max", waited_max(stats).map(seconds).into()),
            ("bytes_ahead", bytes_ahead(stats).into()),
            ("bytes_wasted", bytes_wasted(stats).into()),
            ("looks", stats.polls.into()),
            ("processes", stats.processes.into()),
            ("processes_skipped", stats.processes_skipped.into()),
            ("files", stats.files.into()),
            ("files_refused", stats.files_refused.into()),
            ("records_lost", stats.records_lost.into()),
            ("calls_refused", stats.calls_refused.into()),
            ("calls_foreign", stats.calls_foreign.into()),
            ("readers_skipped", stats.readers_skipped.into()),
            ("streams", planner.streams.into()),
            ("bytes_read", planner.bytes_read.into()),
            ("bytes_asked", planner.bytes_requested.into()),
            ("asks", planner.requests.into()),
            ("bytes_cached", planner.bytes_cached.into()),
            ("bytes_dropped", planner.bytes_dropped.into()),
            ("distance_bytes_max", planner.distance_bytes_max.into()),
            ("pages_used", stats.pages_used.into()),
            ("pages_late", stats.pages_late.into()),
            ("pages_unused", stats.pages_unused.into()),
            ("calls_given_up", stats.calls_given_up.into()),
            ("walks", stats.entries.walks.into()),
            ("entries_requested", stats.entries.requested.into()),
            ("entries_used", stats.entries.used.into()),
            ("entries_late", stats.entries.late.into()),
            ("entries_passed", stats.entries.passed.into()),
            ("entries_unused", stats.entries.unused.into()),
            ("entries_failed", stats.entries.failed.into()),
            ("entries_bytes", stats.entries.bytes.into()),
            ("entries_unused_bytes", stats.entries.unused_bytes.into()),
            ("learned", learned_record(&stats.learned)),
        ])
    }
}

/// What became of a learned list.
fn learned_record(stats: &LearnedStats) -> Value {
    serde_json::json!({
        "name": stats.name,
        "entries": stats.entries,
        "requested": stats.requested,
        "seen": stats.seen,
        "used": stats.used,
        "precision": share(stats.used, stats.used + stats.unused),
        "recall": share(stats.used, stats.seen),
        "bytes": stats.bytes,
        "wasted_bytes": stats.unused_bytes,
        "trouble": stats.trouble,
    })
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// The start of forerun alone is a large share of less.
const SHARE_FROM: Nanos = Nanos::from_millis(100);
/// Of the counts of pages.
const PAGE_BYTES: u64 = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_has_no_share_of_a_processor() {
        let millis = Nanos::from_millis;
        #[rustfmt::skip]
        let rows = [ // ran      used          told
            (millis(2),     Nanos(2_880_000), "forerun took 2.88 ms of a processor"),
            (millis(99),    millis(3),        "forerun took 3.00 ms of a processor"),
            (millis(100),   millis(3),        "forerun took 3.0 % of a processor"),
            (millis(2_000), millis(5),        "forerun took 0.2 % of a processor"),
            (Nanos(0),      Nanos(0),         "forerun took 0 s of a processor"),
        ];
        for (ran, used, told) in rows {
            let text = times(&Stats { ran, processor: used, ..Stats::default() });
            assert!(text.ends_with(told), "{text}");
        }
    }

    #[test]
    fn what_a_program_did_not_compute_is_the_most_that_it_waited() {
        let millis = Nanos::from_millis;
        #[rustfmt::skip]
        let rows = [ // ran      computed        told                 waited
            (millis(2_000), millis(500),   "2.00 s: 500 ms",   "1.50 s (75 %)"),
            (millis(20),    Nanos(300_000), "20.0 ms: 300 us", "19.7 ms (98 %)"),
            (millis(2_000), millis(2_500), "2.00 s: 2.50 s",   ""),
        ];
        for (ran, computed, told, waited) in rows {
            let text = times(&Stats { ran, computed, ..Stats::default() });
            let (first, rest) = text.split_once(" of computing").expect("it computed");
            assert_eq!(first, told);
            let found = rest.strip_prefix(", at most ").and_then(|rest| rest.split_once(" of w"));
            assert_eq!(found.map_or("", |(found, _)| found), waited, "{text}");
        }
    }

    #[test]
    fn what_was_fetched_ahead_is_told_with_what_of_it_was_wasted() {
        let mut stats = Stats::default();
        assert_eq!(ahead(&stats), None);
        stats.planner.bytes_requested = 64 << 20;
        assert_eq!(
            ahead(&stats).as_deref(),
            Some("fetched 64 MiB ahead, at most 0 B of it not used")
        );
        stats.pages_unused = 256;
        stats.pages_late = 2;
        stats.entries.bytes = 1 << 20;
        stats.learned.unused_bytes = 1 << 20;
        let told = "fetched 65 MiB ahead, at most 8 KiB (0.0 %) in flight when they were read, at \
                    most 2 MiB (3.1 %) of it not used";
        assert_eq!(ahead(&stats).as_deref(), Some(told));
        stats.pages_late = 1 << 30;
        assert!(
            ahead(&stats).is_some_and(|told| told.contains("at most 65 MiB (100 %) in flight"))
        );
        // Files that shrink leave pages that were never requested.
        stats.pages_unused = u64::MAX >> 13;
        assert_eq!(bytes_wasted(&stats), 65 << 20);
    }
}
