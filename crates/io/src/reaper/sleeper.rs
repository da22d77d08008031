//! Sleeps by the timer alone, with nothing in flight: their wake-up latency on this machine, and
//! what they take of the processor.
//!
//! ```text
//!   sleep |..........asked..........|~~~over~~~| awake
//! ```
//!
//! # Invariants
//! - No sleep ends before its time, whatever signals come.
//! - It sleeps as a reaper does whose policy leaves the waking to the timer: by the same call, with
//!   the same timer slack.

use std::{marker::PhantomData, rc::Rc};

use forerun_core::units::Nanos;

use super::clock::{Precise, now, sleep_until, thread_cpu};

/// See the module.
pub struct Sleeper {
    _precise: Precise,
    /// Timer slack is that of this thread.
    _bound: PhantomData<Rc<()>>,
}

/// The cost of one sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepCost {
    /// Timer overshoot: from its moment to when the thread runs again.
    pub over: Nanos,
    /// Processor time of this thread.
    pub cpu: Nanos,
}

impl Sleeper {
    /// For this thread.
    #[must_use]
    pub fn new() -> Self {
        Self { _precise: Precise::new(), _bound: PhantomData }
    }

    /// Sleeps for `time`.
    #[must_use]
    pub fn sleep(&self, time: Nanos) -> SleepCost {
        let begun_cpu = thread_cpu();
        let until = now() + time;
        let mut at = now();
        while at < until {
            sleep_until(until);
            at = now();
        }
        SleepCost { over: at.since(until), cpu: thread_cpu().since(begun_cpu) }
    }
}

impl Default for Sleeper {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_lasts_as_long_as_it_says() {
        let sleeper = Sleeper::new();
        for micros in [0, 1, 10, 1_000] {
            let (begun, asked) = (now(), Nanos::from_micros(micros));
            let slept = sleeper.sleep(asked);
            let passed = now().since(begun);
            assert!(passed >= asked + slept.over, "{micros} us: {slept:?} in {passed:?}");
        }
    }
}
