//! The counters of a live cache: the core's and the engine's own.
//!
//! ```text
//!   1 digit: bucket   0 1 .. 31 | 32-33 34-35 .. 62-63 | 64-67 ..
//!                     exact       16 a power of two: within an eighth of the value
//! ```
//!
//! # Invariants
//! - `latency.count() == requests - unlocked`, failed reads included: a read of hits alone does not
//!   read the clock.
//! - `core` balances at any instant ([`cache::Stats::balanced`]), and every page handed to a reader
//!   is one of its `demanded`, `stale_hits`, or of `dropped_hits`.
//! - A histogram allocates when it is made and never later.
//! # Sources
//! Buckets that are linear within powers of two: Tene, `HdrHistogram`, 2012.

use std::fmt;
use std::time::Duration;

use forerun_core::{cache, units::Nanos, windows::WindowRecord};

/// Counters since the cache was built.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// The core's counters, in pages.
    pub core: cache::Stats,
    /// Answered reads. A read longer than half the cache may count as several.
    pub requests: u64,
    /// Of these, reads that found all their pages without the lock.
    pub unlocked: u64,
    /// Of these, failed reads.
    pub failures: u64,
    /// Bytes handed to readers; a pin counts as one.
    pub bytes: u64,
    /// Hits that the hit buffer dropped for lack of room; the replacement policy misses them, and
    /// pages read ahead that had no other use count as unread in `core`.
    pub dropped_hits: u64,
    /// Bytes read from stores.
    pub store_bytes: u64,
    /// Completed requests to stores.
    pub store_requests: u64,
    /// Reads that waited for a page.
    pub waits: u64,
    /// The total time of these waits: the delay by I/O.
    pub waited: Duration,
    /// Files that were found changed.
    pub files_changed: u64,
    /// The latency of reads that were not `unlocked`.
    pub latency: Histogram,
}

impl Stats {
    /// Pages that reads asked for: the sum of [`Stats::hits`], [`Stats::late_hits`] and
    /// [`Stats::misses`].
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.hits() + self.late_hits() + self.misses()
    }

    /// Of these, pages that were in the cache: also those whose use the core did not see in time
    /// (`stale_hits`, [`Stats::dropped_hits`]).
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.core.hits + self.core.stale_hits + self.dropped_hits
    }

    /// Pages that were on their way.
    #[must_use]
    pub fn late_hits(&self) -> u64 {
        self.core.late_hits
    }

    /// Pages that were neither.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.core.misses
    }

    /// [`Stats::hits`] of [`Stats::pages`]; 0 of none.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "no run has 2^53 hits")]
    pub fn hit_ratio(&self) -> f64 {
        self.hits() as f64 / self.pages().max(1) as f64
    }
}

/// One line for people: what reads found, what stores were asked for, what readahead wasted.
impl fmt::Display for Stats {
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        write!(
            f,
            "{} reads of {:.1} MB waited {:.3} s: of {} pages {:.1} % were cached, {} were on \
             their way, {} were not; stores gave {:.1} MB in {} requests; of {} pages read ahead \
             {} left unused",
            self.requests,
            megabytes(self.bytes),
            self.waited.as_secs_f64(),
            self.pages(),
            self.hit_ratio() * 100.0,
            self.late_hits(),
            self.misses(),
            megabytes(self.store_bytes),
            self.store_requests,
            self.core.ahead_fetched,
            self.core.ahead_wasted,
        )
    }
}

/// The readahead windows of a cache, as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// The time since the cache was built, the base of the windows' times.
    pub now: Nanos,
    /// The first windows, in the order in which they were opened.
    pub rows: Vec<WindowRecord>,
    /// The number of windows opened after those.
    pub left_out: u64,
}

/// A histogram of times, in as much memory as it takes when it is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    buckets: hdrhistogram::Histogram<u64>,
    max: Duration,
}

impl Default for Histogram {
    /// Quantiles are less than an eighth above the exact ones.
    fn default() -> Self {
        Self::new(1)
    }
}

impl Histogram {
    /// An empty histogram, whose quantiles have so many significant digits, from 1 to 5.
    #[must_use]
    pub fn new(digits: u8) -> Self {
        let buckets = hdrhistogram::Histogram::new_with_max(u64::MAX, digits);
        Self { buckets: buckets.expect("at most 5 digits of any time"), max: Duration::ZERO }
    }

    /// Adds one time.
    pub fn add(&mut self, time: impl Into<Duration>) {
        let time = time.into();
        self.buckets.saturating_record(Nanos::from(time).0);
        self.max = self.max.max(time);
    }

    /// Adds all times of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.add(&other.buckets).expect("there are buckets for any time");
        self.max = self.max.max(other.max);
    }

    /// The number of times added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// The longest time.
    #[must_use]
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The mean, in whole nanoseconds; 0 when the histogram is empty.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(self.buckets.mean() / 1e9)
    }

    /// The time that `per_mille` of 1000 did not exceed, rounded up in its digits; 0 when the
    /// histogram is empty.
    ///
    /// # Panics
    /// `per_mille` is above 1000.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "half a rank is more than the rounding")]
    pub fn quantile(&self, per_mille: u32) -> Duration {
        assert!(per_mille <= 1_000, "{per_mille} of 1000");
        let rank = (self.count() * u64::from(per_mille)).div_ceil(1_000).max(1);
        // Half a rank before the end: no rounding of the share selects the next time.
        let share = (rank as f64 - 0.5) / self.count().max(1) as f64;
        Duration::from_nanos(self.buckets.value_at_quantile(share)).min(self.max)
    }

    /// The median.
    #[must_use]
    pub fn p50(&self) -> Duration {
        self.quantile(500)
    }

    /// The 99th percentile.
    #[must_use]
    pub fn p99(&self) -> Duration {
        self.quantile(990)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_that_the_core_did_not_see_in_time_are_hits() {
        let (hits, late_hits, misses, stale_hits) = (5, 2, 1, 3);
        let core = cache::Stats { hits, late_hits, misses, stale_hits, ..cache::Stats::default() };
        let stats = Stats { core, dropped_hits: 4, ..Stats::default() };
        let counts = (stats.hits(), stats.late_hits(), stats.misses(), stats.pages());
        assert_eq!(counts, (12, 2, 1, 15));
        assert!((stats.hit_ratio() - 0.8).abs() < 1e-9);
        assert!(Stats::default().hit_ratio().abs() < 1e-9, "of no page");
    }

    #[test]
    fn they_are_one_line_for_people() {
        let (hits, misses, ahead_fetched, ahead_wasted) = (3, 1, 7, 2);
        let core = cache::Stats { hits, misses, ahead_fetched, ahead_wasted, ..Default::default() };
        let (bytes, waited) = (1_500_000, Duration::from_millis(12));
        let stats =
            Stats { core, requests: 2, bytes, waited, store_bytes: 250_000, ..Stats::default() };
        let line = "2 reads of 1.5 MB waited 0.012 s: of 4 pages 75.0 % were cached, 0 were on \
                    their way, 1 were not; stores gave 0.2 MB in 0 requests; of 7 pages read \
                    ahead 2 left unused";
        assert_eq!(stats.to_string(), line);
    }

    fn times(digits: u8, all: impl IntoIterator<Item = u64>) -> Histogram {
        let mut times = Histogram::new(digits);
        all.into_iter().for_each(|time| times.add(Duration::from_nanos(time)));
        times
    }

    #[test]
    fn quantiles_of_short_times_are_times_that_were_added() {
        let short = times(3, (1..=1_000).rev());
        for (per_mille, time) in
            [(0, 1), (1, 1), (500, 500), (501, 501), (990, 990), (1_000, 1_000)]
        {
            assert_eq!(short.quantile(per_mille), Duration::from_nanos(time));
        }
        assert_eq!(short.mean(), Duration::from_nanos(501), "500.5, rounded");
        assert_eq!((times(1, []).p50(), times(1, []).count()), (Duration::from_nanos(0), 0));
        assert_eq!(times(1, [7]).p99(), Duration::from_nanos(7));
        assert_eq!(times(1, [3, 1, 2]).p50(), Duration::from_nanos(2));
    }

    #[test]
    fn quantiles_of_long_ones_are_above_by_less_than_their_digits() {
        for (digits, part) in [(1, 8), (3, 1_000)] {
            let mut long = times(digits, (1..=500).map(|time| time * 1_000_000));
            long.merge(&times(digits, (501..=1_000).map(|time| time * 1_000_000)));
            for (per_mille, exact) in [(1, 1_000_000), (500, 500_000_000), (990, 990_000_000)] {
                let found = Nanos::from(long.quantile(per_mille)).0;
                assert!(exact <= found && found < exact + exact / part, "{per_mille}: {found}");
            }
            assert_eq!((long.quantile(1_000), long.count()), (Duration::from_secs(1), 1_000));
            assert_eq!(long.max(), Duration::from_secs(1), "never above the longest");
            for time in [86_400 * 1_000_000_007, u64::MAX / 2] {
                assert_eq!(times(digits, [time]).quantile(1_000), Duration::from_nanos(time));
            }
        }
    }
}
