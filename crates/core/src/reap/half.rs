//! Sleeps for half of the mean of its kind, then spins: the kernel's hybrid polling as it was.
//!
//! The mean is of what was reaped, so a late wake-up lengthens the next sleeps; as only half of it
//! is slept, that ends.
//!
//! # Invariants
//! - The first I/O of a kind is spun for.
//! # Sources
//! Linux block layer, `blk_mq_poll_nsecs`, 4.10 to 6.3: half the mean of the last window, by
//! direction and size. Ours is a mean that forgets.

use super::{Calibration, KEYS, Key, Outcome, Plan, Reap};
use crate::units::Nanos;

/// See the module.
pub struct Half {
    means: [Mean; KEYS],
}

#[derive(Clone, Copy, Default)]
struct Mean {
    nanos: u64,
    count: u64,
}

impl Reap for Half {
    const NAME: &'static str = "half";
    type Params = ();

    fn new((): (), _: &Calibration) -> Self {
        Self { means: [Mean::default(); KEYS] }
    }

    fn plan(&self, key: Key, now: Nanos, _: bool) -> Plan {
        let mean = self.means[key.index()];
        let budget = Nanos(u64::MAX);
        if mean.count == 0 {
            return Plan::Spin { budget };
        }
        Plan::SleepSpin { until: now + Nanos(mean.nanos / 2), roused: false, budget }
    }

    fn learn(&mut self, key: Key, outcome: &Outcome) {
        let mean = &mut self.means[key.index()];
        mean.count = (mean.count + 1).min(REMEMBERED);
        let kept = u128::from(mean.nanos) * u128::from(mean.count - 1);
        let sum = kept + u128::from(outcome.real.0);
        mean.nanos = u64::try_from(sum / u128::from(mean.count)).expect("a mean of 64-bit values");
    }
}

/// I/Os that the mean remembers: as many as NIO takes for its own.
const REMEMBERED: u64 = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reap::{Op, Way};

    #[test]
    fn sleeps_for_half_of_the_mean_of_its_kind() {
        let mut half = Half::new((), &Calibration::default());
        let (small, large) = (Key::new(Op::Read, 4_096, 1), Key::new(Op::Read, 65_536, 1));
        assert!(matches!(half.plan(small, Nanos(7), true), Plan::Spin { .. }));
        for real in [10, 20, 30] {
            let outcome = Outcome { way: Way::Spin, real: Nanos(real), late: false, cpu: None };
            half.learn(small, &outcome);
        }
        let budget = Nanos(u64::MAX);
        let plan = half.plan(small, Nanos(7), true);
        assert_eq!(plan, Plan::SleepSpin { until: Nanos(7 + 10), roused: false, budget });
        assert!(matches!(half.plan(large, Nanos(7), true), Plan::Spin { .. }), "of its own kind");
    }
}
