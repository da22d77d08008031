//! Summaries of samples: medians, ends, ratios of two sides, verdicts.
//!
//! A [`Summary`] stands for samples of one figure, such as one a round. A [`Distribution`] holds
//! every latency of a run exactly, for figures that a histogram would round: means without the
//! slowest reads, and figures equal digit by digit. Where a thousandth is enough, the engine's
//! `Histogram` takes a fixed amount of memory instead.
//!
//! # Invariants
//! - `min <= median <= max`.
//! - A target is judged by the median of the ratios, and a figure at its bound meets it.

use std::fmt;

use serde::Serialize;

use crate::quantity::float;

/// The median of some samples, and their ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The middle sample, or the mean of the two in the middle.
    pub median: f64,
    /// The lowest sample.
    pub min: f64,
    /// The highest sample.
    pub max: f64,
}

impl Summary {
    /// The summary of `samples`.
    ///
    /// # Panics
    /// There is no sample.
    #[must_use]
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1).expect("a sample at least");
        let median = f64::midpoint(sorted[last / 2], sorted[sorted.len() / 2]);
        Self { median, min: sorted[0], max: sorted[last] }
    }

    /// The summary of `ours` to `theirs`, round by round.
    ///
    /// # Panics
    /// There is no round, or the sides have not as many.
    #[must_use]
    pub fn of_ratios(ours: &[f64], theirs: &[f64]) -> Self {
        assert_eq!(ours.len(), theirs.len(), "as many rounds");
        Self::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
    }

    /// How far the samples are apart: the highest to the lowest.
    #[must_use]
    pub fn spread(&self) -> f64 {
        self.max / self.min
    }

    /// `median (min to max)`, each with `digits` decimals.
    #[must_use]
    pub fn show(&self, digits: usize) -> String {
        let Self { median, min, max } = self;
        format!("{median:.digits$} ({min:.digits$} to {max:.digits$})")
    }
}

/// The bound of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// The figure is not below this.
    AtLeast(f64),
    /// The figure is not above this.
    AtMost(f64),
}

impl Target {
    /// Whether `figure` meets the target.
    #[must_use]
    pub fn judge(self, figure: f64) -> Verdict {
        let met = match self {
            Self::AtLeast(bound) => figure >= bound,
            Self::AtMost(bound) => figure <= bound,
        };
        if met { Verdict::Met } else { Verdict::Missed }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, bound) = match self {
            Self::AtLeast(bound) => (">=", bound),
            Self::AtMost(bound) => ("<=", bound),
        };
        write!(f, "{sign} ")?;
        // A precision is that of the bound.
        bound.fmt(f)
    }
}

/// The verdict of a target on a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The figure is within the bound.
    Met,
    /// The figure is beyond the bound.
    Missed,
    /// The run was too noisy to judge its figures.
    Noisy,
}

impl Verdict {
    /// This verdict, unless the run was noisy.
    #[must_use]
    pub fn unless_noisy(self, is_noisy: bool) -> Self {
        if is_noisy { Self::Noisy } else { self }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Noisy => "no verdict, the run is noisy",
        })
    }
}

/// Every latency of a run, exactly, the shortest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    sorted: Vec<f64>,
}

impl Distribution {
    /// The distribution of `samples`, which may come in any order.
    #[must_use]
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Self { sorted }
    }

    /// The mean; not a number when there is no sample.
    #[must_use]
    pub fn mean(&self) -> f64 {
        mean(&self.sorted)
    }

    /// The mean without the slowest hundredth.
    #[must_use]
    pub fn trimmed_mean(&self) -> f64 {
        mean(&self.sorted[..self.sorted.len() - self.sorted.len() / 100])
    }

    /// The standard deviation.
    #[must_use]
    pub fn stdev(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.sorted.iter().map(|one| (one - mean).powi(2)).sum();
        (squares / float(self.sorted.len() as u64)).sqrt()
    }

    /// The sample at `permille` of the way from the first to the last.
    ///
    /// # Panics
    /// There is no sample.
    #[must_use]
    pub fn at(&self, permille: usize) -> f64 {
        self.sorted[(self.sorted.len() - 1) * permille / 1_000]
    }
}

/// The mean of `values`; not a number when there is none.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / float(values.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_middle_and_the_ends() {
        #[rustfmt::skip]
        let rows: [(&[f64], f64, f64, f64); 4] = [
            (&[7.0],                7.0, 7.0, 7.0),
            (&[9.0, 1.0],           5.0, 1.0, 9.0),
            (&[9.0, 1.0, 2.0],      2.0, 1.0, 9.0),
            (&[9.0, 1.0, 2.0, 4.0], 3.0, 1.0, 9.0),
        ];
        for (samples, median, min, max) in rows {
            assert_eq!(Summary::of(samples.iter().copied()), Summary { median, min, max });
        }
        let ratios = Summary::of_ratios(&[1.0, 9.0], &[2.0, 3.0]);
        assert_eq!(ratios, Summary { median: 1.75, min: 0.5, max: 3.0 });
        assert_eq!((ratios.spread(), ratios.show(2)), (6.0, "1.75 (0.50 to 3.00)".to_owned()));
    }

    #[test]
    fn targets_are_judged_by_the_median_at_their_bound_too() {
        #[rustfmt::skip]
        let rows = [
            (Target::AtLeast(0.95), 0.95, ">= 0.95", "met"),
            (Target::AtLeast(0.95), 0.94, ">= 0.95", "missed"),
            (Target::AtMost(1.08),  1.08, "<= 1.08", "met"),
            (Target::AtMost(1.08),  1.09, "<= 1.08", "missed"),
        ];
        for (target, ratio, text, verdict) in rows {
            assert_eq!(target.to_string(), text);
            assert_eq!(target.judge(ratio).to_string(), verdict);
            assert_eq!(target.judge(ratio).unless_noisy(true), Verdict::Noisy);
        }
        assert_eq!(format!("{:.1}", Target::AtMost(1.0)), "<= 1.0");
    }

    #[test]
    fn a_distribution_keeps_each_sample() {
        let all = Distribution::of((1_u32..=200).rev().map(f64::from));
        assert_eq!((all.mean(), all.trimmed_mean()), (100.5, 99.5));
        assert_eq!(
            (all.at(0), all.at(500), all.at(990), all.at(1_000)),
            (1.0, 100.0, 198.0, 200.0)
        );
        assert!((all.stdev() - 57.734_305).abs() < 1e-6);
        assert!(Distribution::default().mean().is_nan());
    }
}
