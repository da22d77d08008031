//! The counters of a live cache: the core's and the engine's own.
//!
//! ```text
//!   bucket   0 1 .. 7 | 8 9 .. 15 | 16-17 18-19 .. 30-31 | 32-35 ..
//!            exact      exact       8 a power of two: within an eighth of the value
//! ```
//!
//! # Invariants
//! - `latency.count() == requests - unlocked`, failed reads included: a read of hits alone does not
//!   read the clock.
//! - `core` balances at any instant ([`cache::Stats::balanced`]), and every page handed to a reader
//!   is one of its `demanded`, `stale_hits`, or of `dropped_hits`.
//! # Sources
//! Buckets that are linear within powers of two: Tene, `HdrHistogram`, 2012.

use forerun_core::{cache, units::Nanos, windows::Opened};

/// Counters since the cache was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Hits that the hit buffer dropped for lack of room; the replacement policy misses them.
    pub dropped_hits: u64,
    /// Bytes read from stores.
    pub store_bytes: u64,
    /// Completed requests to stores.
    pub store_requests: u64,
    /// Reads that waited for a page.
    pub waits: u64,
    /// The total time of these waits: the delay by I/O.
    pub waited: Nanos,
    /// Files that were found changed.
    pub files_changed: u64,
    /// The latency of reads that were not `unlocked`.
    pub latency: Histogram,
}

/// The readahead windows of a cache, as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// The time since the cache was built, the base of the windows' times.
    pub now: Nanos,
    /// The first windows, in the order in which they were opened.
    pub rows: Vec<Opened>,
    /// The number of windows opened after those.
    pub left_out: u64,
}

/// A histogram of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    max: Nanos,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS].into(), count: 0, max: Nanos(0) }
    }
}

impl Histogram {
    /// Adds one time.
    pub fn add(&mut self, time: Nanos) {
        self.buckets[bucket_of(time.0)] += 1;
        self.count += 1;
        self.max = self.max.max(time);
    }

    /// Adds all times of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += count;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// The number of times added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest time.
    #[must_use]
    pub fn max(&self) -> Nanos {
        self.max
    }

    /// The time that `per_mille` of 1000 did not exceed, rounded up by less than an eighth; 0
    /// when the histogram is empty.
    ///
    /// # Panics
    /// `per_mille` is above 1000.
    #[must_use]
    pub fn quantile(&self, per_mille: u32) -> Nanos {
        assert!(per_mille <= 1_000, "{per_mille} of 1000");
        let rank = (u128::from(self.count) * u128::from(per_mille)).div_ceil(1_000).max(1);
        let mut seen = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            seen += u128::from(count);
            if seen >= rank {
                return self.max.min(Nanos(largest_in(bucket)));
            }
        }
        self.max
    }

    /// The median.
    #[must_use]
    pub fn p50(&self) -> Nanos {
        self.quantile(500)
    }

    /// The 99th percentile.
    #[must_use]
    pub fn p99(&self) -> Nanos {
        self.quantile(990)
    }
}

/// Linear buckets in a power of two, as a power of two.
const LINEAR_BITS: usize = 3;
const LINEAR: usize = 1 << LINEAR_BITS;
const BUCKETS: usize = (64 - LINEAR_BITS + 1) * LINEAR;

fn bucket_of(value: u64) -> usize {
    let bits = value.checked_ilog2().unwrap_or(0) as usize;
    if bits < LINEAR_BITS {
        return usize::try_from(value).expect("below LINEAR");
    }
    let shift = bits - LINEAR_BITS;
    let linear = usize::try_from(value >> shift).expect("below 2 * LINEAR") - LINEAR;
    (shift + 1) * LINEAR + linear
}

fn largest_in(bucket: usize) -> u64 {
    if bucket < LINEAR {
        return bucket as u64;
    }
    let (shift, linear) = (bucket / LINEAR - 1, bucket % LINEAR);
    let next = ((LINEAR + linear + 1) as u128) << shift;
    u64::try_from(next - 1).expect("the last bucket ends at the largest u64")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_largest_value_and_not_the_next() {
        for bucket in 0..BUCKETS {
            let largest = largest_in(bucket);
            assert_eq!(bucket_of(largest), bucket);
            if let Some(next) = largest.checked_add(1) {
                assert_eq!(bucket_of(next), bucket + 1);
            }
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_an_eighth_above() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.p50(), Nanos(0));
        for value in 1..=1_000 {
            histogram.add(Nanos(value * 1_000));
        }
        for (per_mille, exact) in [(0, 1_000), (1, 1_000), (500, 500_000), (990, 990_000)] {
            let found = histogram.quantile(per_mille).0;
            assert!(exact <= found && found < exact + exact / 8, "{per_mille}: {found}");
        }
        assert_eq!(histogram.quantile(1_000), Nanos(1_000_000), "never above the longest");
        assert_eq!((histogram.count(), histogram.max()), (1_000, Nanos(1_000_000)));
    }
}
