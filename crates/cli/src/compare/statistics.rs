//! The figures of a comparison: medians and ends, ratios round by round, outliers.
//!
//! # Invariants
//! - Nothing is left out for being far off: an outlier is said.
//! - A ratio is of two runs of one round, which had the same neighbours on the machine.
//! # Sources
//! - Outliers: B. Iglewicz and D. Hoaglin, *How to Detect and Handle Outliers*, 1993: the distance
//!   from the median in median absolute deviations. hyperfine's threshold, of ten deviations.

use forerun_report::Summary;

/// How many times as fast a way is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    /// Of the rounds.
    pub(super) times: Summary,
    pub(super) rounds: usize,
}

impl Ratio {
    /// How many times as fast as `alone` a way of `seconds` is; both have a time for each round.
    pub(super) fn of(alone: &[f64], seconds: &[f64]) -> Self {
        Self { times: Summary::of_ratios(alone, seconds), rounds: seconds.len() }
    }

    /// Whether the rounds leave open which is faster.
    pub(super) fn is_open(&self) -> bool {
        self.rounds == 1 || (self.times.min <= 1.0 && 1.0 <= self.times.max)
    }
}

/// The median of `samples`, at least one.
pub(super) fn median(samples: impl IntoIterator<Item = f64>) -> f64 {
    Summary::of(samples).median
}

/// How many of `seconds` are far off; none of a few, whose usual distance is not known.
pub(super) fn outliers(seconds: &[f64]) -> usize {
    let middle = median(seconds.iter().copied());
    let distances: Vec<f64> = seconds.iter().map(|one| (one - middle).abs()).collect();
    let usual = median(distances.iter().copied()) * DEVIATION_OF_MEDIAN;
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
    fn a_ratio_is_of_rounds_and_open_where_they_disagree() {
        #[rustfmt::skip]
        let rows = [ // alone, the way, median and ends, open
            (&[3.0, 3.0, 3.0][..], &[1.0, 1.5, 1.0][..], [3.0, 2.0, 3.0], false),
            // A slow hour is slow for both, and their ratio stays.
            (&[2.0, 20.0], &[1.0, 10.0], [2.0, 2.0, 2.0], false),
            (&[1.0, 1.0, 1.0], &[2.0, 4.0, 2.0], [0.5, 0.25, 0.5], false),
            (&[1.0, 3.0], &[1.0, 2.0], [1.25, 1.0, 1.5], true),
            (&[3.0], &[1.0], [3.0, 3.0, 3.0], true),
        ];
        for (alone, seconds, [median, min, max], is_open) in rows {
            let found = Ratio::of(alone, seconds);
            assert_eq!(found.times, Summary { median, min, max });
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
