//! The reaper's clocks: real time, this thread's processor time, and a sleep by the timer alone.
//!
//! # Invariants
//! - All reapers of a process have one origin of time.
//! - While a [`Precise`] lives, the timers of its thread are as late as the machine makes them, and
//!   not by the kernel's slack on top of it.

#![expect(clippy::disallowed_types, reason = "the reaper waits in real time")]

use std::{num::NonZeroU64, sync::OnceLock, time::Instant};

use forerun_core::units::Nanos;
use rustix::{
    thread::{
        ClockId as SleepClock, clock_nanosleep_relative, current_timer_slack,
        set_current_timer_slack,
    },
    time::{ClockId, Timespec, clock_gettime},
};

/// Time since the first call in this process.
pub(super) fn now() -> Nanos {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    let passed = BEGUN.get_or_init(Instant::now).elapsed().as_nanos();
    Nanos(u64::try_from(passed).expect("a run of less than 500 years"))
}

/// Processor time of this thread.
pub(super) fn thread_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |value: i64| u64::try_from(value).expect("processor time is not negative");
    Nanos(part(time.tv_sec) * SECOND + part(time.tv_nsec))
}

/// Sleeps until `moment`; a signal may end it.
pub(super) fn sleep_until(moment: Nanos) {
    let left = moment.since(now());
    if left > Nanos(0) {
        // The caller reads the clock again.
        let _ = clock_nanosleep_relative(SleepClock::Monotonic, &timespec(left));
    }
}

/// A time in the kernel's form.
pub(super) fn timespec(time: Nanos) -> Timespec {
    let part = |value: u64| i64::try_from(value).expect("nanoseconds fit");
    Timespec { tv_sec: part(time.0 / SECOND), tv_nsec: part(time.0 % SECOND) }
}

/// Sets the kernel's timer slack of this thread to 1 ns for as long as it lives.
pub(super) struct Precise {
    before: Option<NonZeroU64>,
}

impl Precise {
    /// Where the kernel refuses, sleeps are some 50 us later.
    pub(super) fn new() -> Self {
        let before = current_timer_slack().ok().and_then(NonZeroU64::new);
        let set = set_current_timer_slack(NonZeroU64::new(1));
        Self { before: before.filter(|_| set.is_ok()) }
    }
}

impl Drop for Precise {
    fn drop(&mut self) {
        if self.before.is_some() {
            // It was this before.
            let _ = set_current_timer_slack(self.before);
        }
    }
}

const SECOND: u64 = 1_000_000_000;
