//! NIO as it was published, for comparison.
//!
//! ```text
//!   T_static  = T_avg - T_stdev - T_sleep                            (1)
//!   T_overall = T_static + T_dynamic                                 (2)
//!   T_dynamic = mean of the last N of max(0, T_real - T_expect)      (3, 4)
//!             += (newest - oldest) / N                               (5)
//! ```
//!
//! Known fault, kept: `T_real` is taken when the I/O is reaped. A sleeper that wakes after the
//! completion takes its own wake-up for queueing and sleeps longer next time. Where the timer's
//! overshoot exceeds `T_stdev + T_sleep`, each such round adds the difference, and nothing ends
//! it but `most`, or `roused=1`: then it becomes an interrupt with a timer set for
//! nothing. In the kernel, where it was measured, a timer is as exact as a sleep costs.
//!
//! # Invariants
//! - A sum of the last N is kept, so learning takes constant time.
//! # Sources
//! Liao et al. 2022, equations 1 to 5, tables 3 and 4. Sizes up to the threshold count as small:
//! they name five classes, of which 64 KiB is the largest, and measure it among the small ones.

use alloc::vec::Vec;

use super::{CLASS_BYTES, Calibration, KEYS, Key, Latency, Outcome, Plan, Reap};
use crate::params::Bytes;
use crate::units::Nanos;

crate::params! {
    /// NIO's parameters.
    pub struct NioPaperParams {
        /// What sleeping costs, in nanoseconds: `T_sleep`. Section 2.1.
        sleep: u64 = 1_000,
        /// I/Os whose queueing is averaged: N. Section 2.3.
        remembered: u32 = 1_024,
        /// The largest size that is not left to interrupts. Section 2.1, for their device.
        threshold: Bytes = Bytes(64 << 10),
        /// 1: a completion ends the sleep, by the interrupt that they keep (section 6).
        /// Algorithm 1 sleeps for its interval.
        roused: u32 = 0,
        /// The longest sleep, in nanoseconds: ours, so that a run away ends.
        most: u64 = 10_000_000,
    }
}

/// See the module.
pub struct NioPaper {
    params: NioPaperParams,
    known: Calibration,
    queueing: Vec<Queueing>,
}

/// The last N queueing times of one kind.
#[derive(Clone, Default)]
struct Queueing {
    last: Vec<u64>,
    sum: u64,
    oldest: usize,
}

impl NioPaper {
    /// The kind's latency, if it is small and was measured.
    fn small(&self, key: Key) -> Option<Latency> {
        let small = CLASS_BYTES[key.class()] <= self.params.threshold.0;
        self.known.of(key).filter(|_| small)
    }
}

impl Reap for NioPaper {
    const NAME: &'static str = "nio-paper";
    type Params = NioPaperParams;

    fn new(mut params: NioPaperParams, known: &Calibration) -> Self {
        params.remembered = params.remembered.clamp(1, REMEMBERED_MAX);
        let last = alloc::vec![0; params.remembered as usize];
        let queueing = alloc::vec![Queueing { last, sum: 0, oldest: 0 }; KEYS];
        Self { params, known: *known, queueing }
    }

    fn plan(&self, key: Key, now: Nanos, _: bool) -> Plan {
        let Some(latency) = self.small(key) else { return Plan::Interrupt };
        let fixed = latency.mean.since(latency.stdev + Nanos(self.params.sleep));
        let dynamic = self.queueing[key.index()].sum / u64::from(self.params.remembered);
        let sleep = (fixed.0 + dynamic).min(self.params.most);
        let (until, roused) = (now + Nanos(sleep), self.params.roused > 0);
        Plan::SleepSpin { until, roused, budget: Nanos(u64::MAX) }
    }

    fn learn(&mut self, key: Key, outcome: &Outcome) {
        let Some(latency) = self.small(key) else { return };
        let queueing = &mut self.queueing[key.index()];
        let newest = outcome.real.since(latency.mean).0.min(QUEUEING_MAX);
        let oldest = core::mem::replace(&mut queueing.last[queueing.oldest], newest);
        queueing.sum = queueing.sum + newest - oldest;
        queueing.oldest = (queueing.oldest + 1) % queueing.last.len();
    }
}

/// A bound for N: memory.
const REMEMBERED_MAX: u32 = 65_536;
/// A bound for one queueing time, so that no sum overflows: an hour.
const QUEUEING_MAX: u64 = 3_600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reap::{Op, Way};

    fn known() -> Calibration {
        let latency = Latency { mean: Nanos(10_000), stdev: Nanos(2_000) };
        Calibration { reads: [Some(latency); CLASS_BYTES.len()], ..Calibration::default() }
    }

    fn sleep(nio: &NioPaper, key: Key) -> u64 {
        match nio.plan(key, Nanos(0), true) {
            Plan::SleepSpin { until, .. } => until.0,
            plan @ (Plan::Interrupt | Plan::Spin { .. }) => panic!("{plan:?}"),
        }
    }

    #[test]
    fn sleeps_as_the_equations_say() {
        let params = NioPaperParams { remembered: 4, ..NioPaperParams::default() };
        let mut nio = NioPaper::new(params, &known());
        let key = Key::new(Op::Read, 4_096, 1);
        #[rustfmt::skip]
        let rows = [ // reaped after   then sleeps
            (10_000,    7_000),
            ( 9_000,    7_000), // Earlier than expected is no queueing.
            (14_000,    8_000), // 4 us of queueing in one of four.
            (18_000,   10_000),
            (10_000,   10_000), // The first one is forgotten: it was none.
            (10_000,   10_000),
            (10_000,    9_000), // The 4 us are forgotten.
            (10_000,    7_000),
        ];
        assert_eq!(sleep(&nio, key), 7_000);
        for (real, then) in rows {
            let (way, real_time) = (Way::SleepSpin, Nanos(real));
            let outcome = Outcome { way, real: real_time, late: false, cpu: None };
            nio.learn(key, &outcome);
            assert_eq!(sleep(&nio, key), then, "after {real}");
        }
    }

    #[test]
    fn what_is_large_or_was_not_measured_is_left_to_interrupts() {
        let nio = NioPaper::new(NioPaperParams::default(), &known());
        #[rustfmt::skip]
        let rows = [ // op         bytes      interrupt
            (Op::Read,  65_536,    false),
            (Op::Read,  65_537,    true),
            (Op::Write, 4_096,     true),
        ];
        for (op, bytes, interrupt) in rows {
            let plan = nio.plan(Key::new(op, bytes, 1), Nanos(0), true);
            assert_eq!(plan == Plan::Interrupt, interrupt, "{op:?} of {bytes}");
        }
    }
}
