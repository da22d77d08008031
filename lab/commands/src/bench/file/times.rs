//! How long each read took: all of them, so that a percentile is exact.
//!
//! # Invariants
//! - A quantile is a time that was seen, not one between two.

/// Times in nanoseconds, sorted.
pub(super) struct Times(Vec<u32>);

impl Times {
    /// Of `times`, in any order.
    pub(super) fn new(mut times: Vec<u32>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub(super) fn count_float(&self) -> f64 {
        self.0.len() as f64
    }

    pub(super) fn mean(&self) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        self.0.iter().map(|&time| f64::from(time)).sum::<f64>() / self.count_float()
    }

    /// The smallest time that `per_mille` of 1000 did not exceed; 0 when there is none.
    pub(super) fn quantile(&self, per_mille: usize) -> u32 {
        assert!(per_mille <= 1_000, "{per_mille} of 1000");
        let rank = (self.0.len() * per_mille).div_ceil(1_000);
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::Times;

    #[test]
    fn quantiles_are_times_that_were_seen() {
        let times = Times::new((1..=1_000).rev().collect());
        #[rustfmt::skip]
        let rows = [(0, 1), (1, 1), (500, 500), (501, 501), (990, 990), (1_000, 1_000)];
        for (per_mille, time) in rows {
            assert_eq!(times.quantile(per_mille), time);
        }
        assert!((times.mean() - 500.5).abs() < 1e-9);
        assert_eq!((Times::new(vec![]).quantile(500), Times::new(vec![7]).quantile(990)), (0, 7));
        assert_eq!(Times::new(vec![3, 1, 2]).quantile(500), 2);
    }
}
