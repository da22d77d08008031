//! The figures of a comparison: means with their spread, ratios with theirs, outliers.
//!
//! # Invariants
//! - Nothing is left out for being far off: an outlier is said.
//! # Sources
//! - Spread of a ratio: the propagation of independent errors, to the first order.
//! - Outliers: B. Iglewicz and D. Hoaglin, *How to Detect and Handle Outliers*, 1993: the distance
//!   from the median in median absolute deviations. hyperfine's threshold, of ten deviations.

use forerun_report::quantity::float;
use forerun_report::{Summary, mean};
use serde::Serialize;

/// The times of a way, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Times {
    pub(super) mean: f64,
    /// The standard deviation of the sample; none of a single run.
    pub(super) stddev: Option<f64>,
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// How many times as fast a way is, by the means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Ratio {
    pub(super) ratio: f64,
    /// None of single runs.
    pub(super) spread: Option<f64>,
}

impl Times {
    /// Of `seconds`, at least one.
    pub(super) fn of(seconds: &[f64]) -> Self {
        let Summary { median, min, max } = Summary::of(seconds.iter().copied());
        let mean = mean(seconds);
        let squares: f64 = seconds.iter().map(|one| (one - mean).powi(2)).sum();
        let freedom = float(seconds.len() as u64) - 1.0;
        let stddev = (seconds.len() > 1).then(|| (squares / freedom).sqrt());
        Self { mean, stddev, median, min, max }
    }

    /// How many times as fast this is as `other`.
    pub(super) fn ratio_to(&self, other: &Self) -> Ratio {
        let ratio = other.mean / self.mean;
        let part = |times: &Self| Some((times.stddev? / times.mean).powi(2));
        let spread = part(self).zip(part(other)).map(|(own, others)| ratio * (own + others).sqrt());
        Ratio { ratio, spread }
    }
}

impl Ratio {
    /// Whether the spread leaves open which is faster.
    pub(super) fn is_open(&self) -> bool {
        self.spread.is_none_or(|spread| (self.ratio - 1.0).abs() <= spread)
    }
}

/// How many of `seconds` are far off; none of a few, whose usual distance is not known.
pub(super) fn outliers(seconds: &[f64]) -> usize {
    let median = Summary::of(seconds.iter().copied()).median;
    let distances: Vec<f64> = seconds.iter().map(|one| (one - median).abs()).collect();
    let usual = Summary::of(distances.iter().copied()).median * DEVIATION_OF_MEDIAN;
    let is_known = usual > 0.0 && seconds.len() >= RUNS_MIN;
    let is_far = |distance: &&f64| is_known && **distance > usual * FAR;
    distances.iter().filter(is_far).count()
}

/// A standard deviation of a normal distribution is so many median absolute deviations.
const DEVIATION_OF_MEDIAN: f64 = 1.4826;
const FAR: f64 = 10.0;
/// Two runs that are equal by chance leave a third one far off.
const RUNS_MIN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_have_the_spread_of_a_sample() {
        let times = Times::of(&[1.0, 2.0, 3.0, 6.0]);
        assert_eq!((times.mean, times.median, times.min, times.max), (3.0, 2.5, 1.0, 6.0));
        assert!((times.stddev.unwrap() - (14.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Times::of(&[2.0]).stddev, None);
    }

    #[test]
    fn a_ratio_is_open_where_its_spread_reaches_one() {
        let times = |mean, stddev| Times { mean, stddev, median: mean, min: mean, max: mean };
        #[rustfmt::skip]
        let rows = [ // mean and deviation, of the other, ratio, spread, open
            (1.0, Some(0.1),  3.0, Some(0.3),  3.0, Some(3.0 * 0.02_f64.sqrt()), false),
            (1.0, Some(0.1),  1.0, Some(0.1),  1.0, Some(0.02_f64.sqrt()), true),
            (2.0, Some(0.0),  1.0, Some(0.0),  0.5, Some(0.0), false),
            (1.0, None,       3.0, None,       3.0, None, true),
        ];
        for (mean, stddev, other, others, ratio, spread, is_open) in rows {
            let found = times(mean, stddev).ratio_to(&times(other, others));
            assert!((found.ratio - ratio).abs() < 1e-12, "{found:?}");
            assert_eq!(found.spread.is_some(), spread.is_some(), "{found:?}");
            let apart = found.spread.unwrap_or(0.0) - spread.unwrap_or(0.0);
            assert!(apart.abs() < 1e-12, "{found:?}");
            assert_eq!(found.is_open(), is_open, "{found:?}");
        }
    }

    #[test]
    fn what_is_ten_deviations_off_is_an_outlier() {
        #[rustfmt::skip]
        let rows: [(&[f64], usize); 5] = [
            (&[1.0, 1.1, 0.9, 1.0, 1.05],  0),
            (&[1.0, 1.1, 0.9, 1.05, 9.0],  1),
            (&[1.0, 1.0, 1.0, 5.0],        0),
            (&[1.0, 1.001, 1.1],           0),
            (&[1.0],                       0),
        ];
        for (seconds, expected) in rows {
            assert_eq!(outliers(seconds), expected, "{seconds:?}");
        }
    }
}
