//! The waiting times of reads: a histogram with buckets a hundredth part wide.
//!
//! # Invariants
//! - A percentile is at least the exact one, and less than 1/128 above it.
//! # Sources
//! Tene, `HdrHistogram`, 2012: buckets that are linear within powers of two.

use forerun_core::units::Nanos;
use hdrhistogram::Histogram;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Waits(Histogram<u64>);

impl Default for Waits {
    fn default() -> Self {
        Self(Histogram::new(SIGNIFICANT_DIGITS).expect("a constant within 0 to 5"))
    }
}

impl Waits {
    /// Adds one.
    pub fn note(&mut self, wait: Nanos) {
        self.0.record(wait.0).expect("the buckets grow to any value");
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the buckets grow to any value");
    }

    /// The share of waits that are at most `wait`, give or take a bucket; 0 without a read.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "fewer reads than 2^52")]
    pub fn share_within(&self, wait: Nanos) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        self.0.count_between(0, wait.0) as f64 / self.0.len() as f64
    }

    /// The shortest and the longest wait, give or take a bucket; none without a read.
    #[must_use]
    pub fn ends(&self) -> Option<(Nanos, Nanos)> {
        (!self.0.is_empty()).then(|| (Nanos(self.0.min()), Nanos(self.0.max())))
    }

    /// The wait that `percent` in a hundred do not exceed; 0 without a read.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "fewer reads than 2^52")]
    pub fn percentile(&self, percent: u64) -> Nanos {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        // Half a rank before the end: no rounding of the share selects the next wait.
        let share = (rank as f64 - 0.5) / self.0.len().max(1) as f64;
        Nanos(self.0.value_at_quantile(share))
    }
}

/// Buckets of 1/128 of their value, of a nanosecond up to 255.
const SIGNIFICANT_DIGITS: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_less_than_a_128th_above() {
        let mut waits = Waits::default();
        assert_eq!(waits.percentile(50), Nanos(0));
        for value in 1..=1_000 {
            waits.note(Nanos(value * 1_000));
        }
        for (percent, exact) in [(0, 1_000), (1, 10_000), (50, 500_000), (99, 990_000)] {
            let told = waits.percentile(percent).0;
            assert!(told >= exact && told < exact + exact / 128 + 1, "{percent}: {told}");
        }
        let share = waits.share_within(Nanos(250_000));
        assert!((0.25..0.26).contains(&share), "{share}");
        assert!(
            waits.share_within(Nanos(999)) < 0.001 && waits.share_within(Nanos(2_000_000)) > 0.999
        );
    }
}
