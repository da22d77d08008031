//! The median and the ends of a few samples.
//!
//! # Invariants
//! - `min <= median <= max`, and the samples stay in the order in which they were taken.

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The middle one.
    pub median: f64,
    /// The least one.
    pub min: f64,
    /// The largest one.
    pub max: f64,
    /// In the order in which they were taken.
    pub samples: Vec<f64>,
}

impl Summary {
    /// Of `samples`, of which there is at least one.
    pub fn of(samples: impl Iterator<Item = f64>) -> Self {
        let samples: Vec<f64> = samples.collect();
        assert!(!samples.is_empty(), "no sample");
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let (middle, last) = (sorted.len() / 2, sorted.len() - 1);
        let median = f64::midpoint(sorted[last / 2], sorted[middle]);
        Self { median, min: sorted[0], max: sorted[last], samples }
    }

    /// The samples as a list.
    #[must_use]
    pub fn listed(&self) -> String {
        let texts: Vec<String> = self.samples.iter().map(|sample| format!("{sample:.2}")).collect();
        texts.join(",")
    }
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
            let summary = Summary::of(samples.iter().copied());
            assert_eq!((summary.median, summary.min, summary.max), (median, min, max));
            assert_eq!(summary.samples, samples);
        }
        assert_eq!(Summary::of([1.25, 3.0].into_iter()).listed(), "1.25,3.00");
    }
}
