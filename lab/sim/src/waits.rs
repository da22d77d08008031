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
    }
}
