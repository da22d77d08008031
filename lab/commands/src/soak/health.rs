//! The process from outside: memory, descriptors, threads, and whether they grow.
//!
//! ```text
//!   samples   |  first  | second  |  third  |  last   |
//!              warming up   ^-------- compared ---^
//! ```
//!
//! # Invariants
//! - Growth is judged by medians of quarters: a single odd sample decides nothing.
//! - Descriptors and threads come and go with files, so they are judged where the quarters have
//!   enough samples to know how far they swing; fewer say nothing.
//! # Sources
//! Linux `proc(5)`: `/proc/self/status` has memory in KiB and the threads, `/proc/self/fd` an
//! entry a descriptor.

use std::fs;

use anyhow::{Context as _, Result};
use forerun_report::Summary;
use forerun_report::quantity::float;

use crate::process::field;

/// One sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessUsage {
    pub(super) rss_bytes: u64,
    pub(super) fds: u64,
    pub(super) threads: u64,
}

impl ProcessUsage {
    /// This process now.
    pub(super) fn take() -> Result<Self> {
        let text = fs::read_to_string("/proc/self/status").context("soak needs Linux's /proc")?;
        let rss = field(&text, "VmRSS:").context("/proc/self/status has no VmRSS")?;
        let threads = field(&text, "Threads:").context("/proc/self/status has no Threads")?;
        // The folder that is being listed is one of them.
        let fds = fs::read_dir("/proc/self/fd").context("soak needs Linux's /proc")?.count() - 1;
        Ok(Self { rss_bytes: rss << 10, fds: fds as u64, threads })
    }
}

/// The growing quantities, a sentence each.
pub(super) fn grown(samples: &[ProcessUsage]) -> Vec<String> {
    let mut grown = Vec::new();
    if let Some((early, late)) = rss(samples).filter(|_| samples.len() >= RSS_SAMPLES_MIN)
        && late > early + early / 50.0 + RSS_SLACK_MIB
    {
        grown.push(format!("memory grew from {early:.1} MiB to {late:.1} MiB"));
    }
    if samples.len() < COUNT_SAMPLES_MIN {
        return grown;
    }
    let (second, last) = quarters(samples);
    let mut judge = |what: &str, of: &dyn Fn(&ProcessUsage) -> u64| {
        let (most, late) = (summary(second, of).max, summary(last, of).median.ceil());
        if late > most {
            grown.push(format!("{what} grew from {most:.0} at most to {late:.0} at most times"));
        }
    };
    judge("descriptors", &|usage| usage.fds);
    judge("threads", &|usage| usage.threads);
    grown
}

/// MiB of memory in the second and in the last quarter, where there are any samples in them.
pub(super) fn rss(samples: &[ProcessUsage]) -> Option<(f64, f64)> {
    let (second, last) = quarters(samples);
    let median = |quarter| summary(quarter, |usage| usage.rss_bytes).median / MIB;
    (!second.is_empty()).then(|| (median(second), median(last)))
}

/// The second quarter and the last.
fn quarters(samples: &[ProcessUsage]) -> (&[ProcessUsage], &[ProcessUsage]) {
    let quarter = samples.len() / 4;
    (&samples[quarter..2 * quarter], &samples[samples.len() - quarter..])
}

fn summary(samples: &[ProcessUsage], of: impl Fn(&ProcessUsage) -> u64) -> Summary {
    Summary::of(samples.iter().map(|usage| float(of(usage))))
}

const MIB: f64 = (1 << 20) as f64;
/// Two a quarter.
const RSS_SAMPLES_MIN: usize = 8;
/// Twelve a quarter: that a median passes the most of another dozen by chance is one in a hundred.
const COUNT_SAMPLES_MIN: usize = 48;
const RSS_SLACK_MIB: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn series(count: u64, of: impl Fn(u64) -> ProcessUsage) -> Vec<ProcessUsage> {
        (0..count).map(of).collect()
    }

    #[test]
    fn what_grows_is_told_and_what_swings_is_not() {
        let flat = ProcessUsage { rss_bytes: 100 << 20, fds: 10, threads: 20 };
        let memory = |mib: u64| ProcessUsage { rss_bytes: mib << 20, ..flat };
        let no_more: &[&str] = &[];
        #[rustfmt::skip]
        let rows = [ // why, samples, found
            ("nothing grows", series(400, |_| flat), no_more),
            ("no samples", series(0, |_| flat), no_more),
            ("too few to judge", series(7, |n| memory(1_000 * n)), no_more),
            ("warming up is no growth", series(400, |n| memory(n.min(100))), no_more),
            ("within 2 % and 8 MiB", series(400, |n| memory(100 + n / 300 * 10)), no_more),
            ("beyond", series(400, |n| memory(100 + n / 300 * 11)),
                &["memory grew from 100.0 MiB to 111.0 MiB"]),
            ("counts that swing",
                series(400, |n| ProcessUsage { fds: n % 7, threads: 3 + n % 13, ..flat }), no_more),
            ("one descriptor in ten samples",
                series(400, |n| ProcessUsage { fds: n % 7 + n / 10, ..flat }),
                &["descriptors grew from 25 at most to 38 at most times"]),
            ("one thread in ten samples",
                series(400, |n| ProcessUsage { threads: n / 10, ..flat }),
                &["threads grew from 19 at most to 35 at most times"]),
        ];
        for (why, samples, found) in rows {
            assert_eq!(grown(&samples), found, "{why}");
        }
    }

    #[test]
    fn this_process_has_memory_descriptors_and_threads() {
        let now = ProcessUsage::take().unwrap();
        assert!(now.rss_bytes > 1 << 16 && now.fds >= 1 && now.threads >= 1, "{now:?}");
    }
}
