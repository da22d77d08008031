//! How long reads waited: a histogram whose buckets are an hundredth part wide.
//!
//! ```text
//!   0 .. 127      a bucket a nanosecond
//!   2^b .. 2^b+1  128 buckets of like width, for each b from 7 on
//! ```
//! So two percentiles can be compared to within a hundredth, and a run of a hundred million reads
//! takes a few thousand counts.
//!
//! # Invariants
//! - A percentile is at least the exact one, and less than 1/128 above it.

use forerun_core::units::Nanos;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// As many as the longest wait needs.
    buckets: Vec<u64>,
}

impl Waits {
    pub(crate) fn note(&mut self, wait: Nanos) {
        let bucket = bucket_of(wait.0);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
    }

    /// What `percent` in a hundred of the waits do not exceed; 0 where nobody read.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Nanos {
        let total: u64 = self.buckets.iter().sum();
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if *count > 0 && seen * 100 >= total * percent {
                return Nanos(largest_in(bucket));
            }
        }
        Nanos(0)
    }
}

fn bucket_of(value: u64) -> usize {
    let shift = value.checked_ilog2().unwrap_or(0).saturating_sub(LINEAR_BITS);
    // The first 2 x LINEAR values have a bucket each; from there on `shift` bits are dropped.
    let kept = usize::try_from(value >> shift).expect("below 2 x LINEAR");
    shift as usize * LINEAR + kept
}

fn largest_in(bucket: usize) -> u64 {
    let shift = (bucket / LINEAR).saturating_sub(1);
    let next = ((bucket - shift * LINEAR + 1) as u128) << shift;
    u64::try_from(next - 1).expect("the last bucket ends at the largest u64")
}

/// Buckets of like width in a power of two, as a power of two.
const LINEAR_BITS: u32 = 7;
const LINEAR: usize = 1 << LINEAR_BITS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_largest_value_and_not_the_next() {
        let last = bucket_of(u64::MAX);
        for bucket in 0..=last {
            let largest = largest_in(bucket);
            assert_eq!(bucket_of(largest), bucket);
            assert_eq!(
                largest.checked_add(1).map(bucket_of),
                (bucket < last).then_some(bucket + 1)
            );
        }
    }

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
