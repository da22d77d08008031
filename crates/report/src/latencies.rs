//! Latencies counted in buckets: any number of reads in a fixed amount of memory.
//!
//! # Invariants
//! - A quantile is at least the exact one, less than a thousandth above it, and never above the
//!   longest latency.
//! # Sources
//! Tene, `HdrHistogram`, 2012: buckets that are linear within powers of two.

use forerun_core::units::Nanos;
use hdrhistogram::Histogram;

use crate::quantity::float;

/// A histogram of latencies.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    buckets: Histogram<u64>,
    max: Nanos,
}

impl Default for Latencies {
    fn default() -> Self {
        let buckets = Histogram::new(SIGNIFICANT_DIGITS).expect("a constant within 0 to 5");
        Self { buckets, max: Nanos(0) }
    }
}

impl Latencies {
    /// Counts one latency.
    pub fn record(&mut self, latency: Nanos) {
        self.buckets.record(latency.0).expect("the buckets grow to any value");
        self.max = self.max.max(latency);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.add(&other.buckets).expect("the buckets grow to any value");
        self.max = self.max.max(other.max);
    }

    /// How many latencies were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// The mean in nanoseconds; 0 when nothing was counted.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.buckets.mean()
    }

    /// The latency that `permille` of 1000 did not exceed; 0 when nothing was counted.
    ///
    /// # Panics
    /// `permille` is above 1000.
    #[must_use]
    pub fn quantile(&self, permille: u32) -> Nanos {
        assert!(permille <= 1_000, "{permille} of 1000");
        let rank = (self.count() * u64::from(permille)).div_ceil(1_000).max(1);
        // Half a rank before the end: no rounding of the share selects the next latency.
        let share = (float(rank) - 0.5) / float(self.count().max(1));
        Nanos(self.buckets.value_at_quantile(share)).min(self.max)
    }
}

const SIGNIFICANT_DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(all: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        all.into_iter().for_each(|one| latencies.record(Nanos(one)));
        latencies
    }

    #[test]
    fn quantiles_of_short_latencies_are_times_that_were_seen() {
        let times = latencies((1..=1_000).rev());
        #[rustfmt::skip]
        let rows = [(0, 1), (1, 1), (500, 500), (501, 501), (990, 990), (1_000, 1_000)];
        for (permille, time) in rows {
            assert_eq!(times.quantile(permille), Nanos(time));
        }
        assert!((times.mean_ns() - 500.5).abs() < 1e-9);
        assert_eq!((latencies([]).quantile(500), latencies([]).count()), (Nanos(0), 0));
        assert_eq!(latencies([7]).quantile(990), Nanos(7));
        assert_eq!(latencies([3, 1, 2]).quantile(500), Nanos(2));
    }

    #[test]
    fn quantiles_of_long_ones_are_less_than_a_thousandth_above() {
        let mut times = latencies((1..=500).map(|time| time * 1_000_000));
        times.merge(&latencies((501..=1_000).map(|time| time * 1_000_000)));
        for (permille, exact) in [(1, 1_000_000), (500, 500_000_000), (990, 990_000_000)] {
            let found = times.quantile(permille).0;
            assert!(exact <= found && found < exact + exact / 1_000, "{permille}: {found}");
        }
        assert_eq!((times.quantile(1_000), times.count()), (Nanos(1_000_000_000), 1_000));
        assert_eq!(latencies([86_400 * 1_000_000_007]).quantile(1_000).0, 86_400 * 1_000_000_007);
    }
}
