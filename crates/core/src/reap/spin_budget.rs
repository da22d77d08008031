//! Whether a thread may spin: the processor is not contended, and the share of time that may be
//! spent on spinning is not used up.
//!
//! ```text
//!   level  most |\      /-----------    refills by `share` of the time that passes
//!               | \    /
//!            0  |--\--/-------------    empty: interrupts
//!
//!   disturbed at D, closed for c, 2c, 4c, ...;  calm for as long again: c
//! ```
//!
//! # Invariants
//! - A disturbance closes at once; each further one within the calm after it doubles the time.
//! - Over any time t at most `share x t + most` is spun, plus what one wait overdraws.

use crate::params::Share;
use crate::units::Nanos;

/// See the module.
#[derive(Clone, Debug)]
pub struct SpinBudget {
    share: Share,
    /// Below zero: spun in advance.
    level: i64,
    refilled: Nanos,
    closed_until: Nanos,
    closed_for: Nanos,
}

impl SpinBudget {
    /// Room for `share` of one processor.
    #[must_use]
    pub fn new(share: Share, now: Nanos) -> Self {
        let zero = Nanos(0);
        Self { share, level: LEVEL_MAX, refilled: now, closed_until: zero, closed_for: zero }
    }

    /// Whether one may spin at `now`.
    pub fn open(&mut self, now: Nanos) -> bool {
        let passed = u128::from(now.since(self.refilled).0);
        let refill = passed * u128::from(self.share.ppm) / 1_000_000;
        // What is too short to refill anything is counted with what follows.
        if refill > 0 {
            let refill = i64::try_from(refill).unwrap_or(i64::MAX);
            self.level = self.level.saturating_add(refill).min(LEVEL_MAX);
            self.refilled = now;
        }
        self.level > 0 && now >= self.closed_until
    }

    /// So long was spun.
    pub fn spent(&mut self, spun: Nanos) {
        let spun = i64::try_from(spun.0).unwrap_or(i64::MAX);
        self.level = self.level.saturating_sub(spun);
    }

    /// The processor is contended: it was taken from a thread that spun, or more threads spin than
    /// there are idle processors.
    pub fn disturbed(&mut self, now: Nanos) {
        let calm = now >= self.closed_until + self.closed_for;
        let doubled = Nanos((self.closed_for.0 * 2).clamp(CLOSED_FOR.0, CLOSED_FOR_MAX.0));
        self.closed_for = if calm { CLOSED_FOR } else { doubled };
        self.closed_until = now + self.closed_for;
    }
}

/// What may be spun in one go after a pause, in ns: some hundred small I/Os.
const LEVEL_MAX: i64 = 20_000_000;
/// The first time of interrupts: a few time slices of a busy processor.
const CLOSED_FOR: Nanos = Nanos::from_millis(10);
/// The longest.
const CLOSED_FOR_MAX: Nanos = Nanos::from_millis(1_000);
const _: () = assert!(CLOSED_FOR.0 <= CLOSED_FOR_MAX.0 && LEVEL_MAX > 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spun_is_a_share_of_the_time() {
        for percent in [10, 25, 50] {
            let mut budget = SpinBudget::new(Share::percent(percent), Nanos(0));
            let (mut now, mut spun) = (Nanos(0), 0);
            let most = u64::try_from(LEVEL_MAX).unwrap() + 10_000;
            for _ in 0..1_000_000 {
                now += Nanos(10_000);
                if budget.open(now) {
                    budget.spent(Nanos(10_000));
                    spun += 10_000;
                }
            }
            let most = now.0 / 100 * u64::from(percent) + most;
            assert!(spun <= most && spun * 20 >= most * 19, "{percent} %: {spun} of {most}");
        }
    }

    #[test]
    fn a_disturbance_closes_and_each_further_one_for_longer() {
        let ms = Nanos::from_millis;
        let mut budget = SpinBudget::new(Share::percent(100), Nanos(0));
        #[rustfmt::skip]
        let rows = [ // disturbed at   open again at
            (ms(100),   ms(110)),
            (ms(110),   ms(130)), // At once again: twice as long.
            (ms(140),   ms(180)),
            (ms(400),   ms(410)), // It was calm for longer than it had been closed.
        ];
        for (at, again) in rows {
            assert!(budget.open(at), "{at:?}");
            budget.disturbed(at);
            assert!(!budget.open(at) && !budget.open(Nanos(again.0 - 1)), "{at:?}");
            assert!(budget.open(again), "{at:?}");
        }
    }

    #[test]
    fn closed_time_has_a_bound() {
        let mut budget = SpinBudget::new(Share::percent(100), Nanos(0));
        let mut now = Nanos(0);
        for _ in 0..100 {
            budget.disturbed(now);
            assert!(budget.open(now + CLOSED_FOR_MAX));
            now = budget.closed_until;
        }
    }
}
