//! The sizes of readahead windows over time: the mean of each interval.
//!
//! ```text
//!   0       width                                 width * INTERVALS_MAX
//!   |-------|-------|-------| ... |-------|
//!            a window beyond the last: neighbours become one interval, twice as wide
//! ```
//! # Invariants
//! - Memory does not grow with the number of windows, nor with the length of a run.
//! - The overall mean is of windows that are opened at `from` or later.

use forerun_core::units::Nanos;

/// See the module.
#[derive(Clone, Debug)]
pub struct WindowSizes {
    from: Nanos,
    width: Nanos,
    /// Windows, and their pages, of each interval.
    intervals: Vec<(u64, u64)>,
    /// Of all since `from`.
    total: (u64, u64),
}

impl Default for WindowSizes {
    fn default() -> Self {
        Self::since(Nanos(0))
    }
}

impl WindowSizes {
    /// No windows yet.
    #[must_use]
    pub const fn since(from: Nanos) -> Self {
        Self { from, width: WIDTH_MIN, intervals: Vec::new(), total: (0, 0) }
    }

    /// Adds a window of `pages` that is opened at `at`.
    pub fn note(&mut self, at: Nanos, pages: u32) {
        if at >= self.from {
            self.total = (self.total.0 + 1, self.total.1 + u64::from(pages));
        }
        while at.0 / self.width.0 >= INTERVALS_MAX as u64 {
            let two = self.intervals.chunks(2);
            let one = |two: &[(u64, u64)]| {
                two.iter().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
            };
            self.intervals = two.map(one).collect();
            self.width = Nanos(self.width.0 * 2);
        }
        let interval = usize::try_from(at.0 / self.width.0).expect("below `INTERVALS_MAX`");
        if interval >= self.intervals.len() {
            self.intervals.resize(interval + 1, (0, 0));
        }
        let (windows, sum) = &mut self.intervals[interval];
        (*windows, *sum) = (*windows + 1, *sum + u64::from(pages));
    }

    /// Pages of a window, on average; none without a window.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        mean(self.total)
    }

    /// The middle of each interval with windows, and the mean of those.
    pub fn means(&self) -> impl Iterator<Item = (Nanos, f64)> {
        let width = self.width.0;
        let rows = (0..).zip(&self.intervals);
        rows.filter_map(move |(at, &row)| Some((Nanos(at * width + width / 2), mean(row)?)))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn mean((count, sum): (u64, u64)) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

const INTERVALS_MAX: usize = 64;
const WIDTH_MIN: Nanos = Nanos::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_grow_with_the_run_and_keep_their_means() {
        let mut sizes = WindowSizes::since(Nanos::from_millis(2));
        assert_eq!((sizes.mean(), sizes.means().count()), (None, 0));
        for (millis, pages) in [(0, 8), (1, 16), (2, 4), (2, 8)] {
            sizes.note(Nanos::from_millis(millis), pages);
        }
        let means: Vec<_> = sizes.means().collect();
        let at = |micros| Nanos::from_micros(micros);
        assert_eq!(means, [(at(500), 8.0), (at(1_500), 16.0), (at(2_500), 6.0)]);
        assert_eq!(sizes.mean(), Some(6.0), "those before are not counted");
        // Two intervals of the first three, and one of the last, 64 ms wide each.
        sizes.note(Nanos::from_millis(64 * 64 - 1), 32);
        let means: Vec<_> = sizes.means().collect();
        assert_eq!(means, [(at(32_000), 9.0), (at(63 * 64_000 + 32_000), 32.0)]);
        assert_eq!(sizes.mean(), Some(44.0 / 3.0));
    }
}
