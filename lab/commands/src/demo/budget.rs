//! The time of each live run: as much as it needs, up to a bound, so that a slow policy leaves
//! the others their time.
//!
//! ```text
//!   |== run ==|== run =====|= run =|== stopped at its bound ==| ... |<- kept for the rest ->|
//!   0                                                                            4/3 seconds
//! ```
//!
//! # Invariants
//! - All runs together end within 4/3 of the requested seconds, and each gets its minimum.

use forerun_core::units::Nanos;

/// See the module.
pub(super) struct Budget {
    /// The most that a run may take.
    pub(super) run_max: Nanos,
    run_min: Nanos,
    end: Nanos,
    runs_left: u64,
}

impl Budget {
    /// `runs` runs in about `seconds` from `now` on.
    pub(super) fn new(now: Nanos, seconds: u32, runs: u64) -> Self {
        assert!(runs > 0);
        let whole = u64::from(seconds) * 1_000_000_000;
        Self {
            run_max: Nanos(whole / 5),
            run_min: Nanos(whole / (2 * runs)),
            end: now + Nanos(whole / 3 * 4),
            runs_left: runs,
        }
    }

    /// The bound of a run that begins `now`.
    pub(super) fn next(&mut self, now: Nanos) -> Nanos {
        assert!(self.runs_left > 0, "no more runs than were asked for");
        self.runs_left -= 1;
        let kept = Nanos(self.run_min.0 * self.runs_left);
        let left = Nanos(self.end.since(now).0.saturating_sub(kept.0));
        left.min(self.run_max).max(Nanos(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_take_all_they_may_end_in_time_and_each_gets_its_minimum() {
        for (seconds, runs) in [(30, 12), (3, 12), (1, 1), (3_600, 40)] {
            let mut now = Nanos(77);
            let mut budget = Budget::new(now, seconds, runs);
            let second = 1_000_000_000 * u64::from(seconds);
            for _ in 0..runs {
                let may = budget.next(now);
                assert!(may.0 >= second / (2 * runs) / 2 || runs == 1, "{may:?}");
                assert!(may.0 <= second / 5);
                now += may;
            }
            assert!(now.0 <= 77 + second / 3 * 4);
        }
    }

    #[test]
    fn a_late_start_leaves_a_moment() {
        let mut budget = Budget::new(Nanos(0), 1, 2);
        assert_eq!(budget.next(Nanos(1 << 60)), Nanos(1));
    }
}
