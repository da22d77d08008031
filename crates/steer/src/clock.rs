//! Real time: nanoseconds since the start of a session, and processor time.
//!
//! # Invariants
//! - Time never goes back, as the core requires.
//! # Sources
//! Linux `include/linux/posix-timers_types.h`: the clock number of a process.

#![expect(unsafe_code, reason = "another process's clock has no safe wrapper")]

use std::mem::MaybeUninit;

use forerun_core::units::Nanos;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: u64,
}

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        Self { started: nanos(clock_gettime(ClockId::Monotonic)) }
    }

    /// The time since its start.
    pub(crate) fn now(self) -> Nanos {
        Nanos(nanos(clock_gettime(ClockId::Monotonic)).saturating_sub(self.started))
    }
}

/// The time since some moment of the past.
pub(crate) fn monotonic() -> Nanos {
    Nanos(nanos(clock_gettime(ClockId::Monotonic)))
}

/// Processor time that this thread has used.
pub(crate) fn thread_time() -> Nanos {
    Nanos(nanos(clock_gettime(ClockId::ThreadCPUTime)))
}

/// Processor time that all threads of this process have used.
pub(crate) fn process_time() -> Nanos {
    Nanos(nanos(clock_gettime(ClockId::ProcessCPUTime)))
}

/// Processor time that all threads of the process `pid` have used.
pub(crate) fn time_of(pid: i32) -> Option<Nanos> {
    let clock = (!pid << 3) | CLOCK_SCHED;
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: a call that succeeds has written the time to its argument.
    let time = unsafe {
        if libc::clock_gettime(clock, time.as_mut_ptr()) != 0 {
            return None;
        }
        time.assume_init()
    };
    Some(Nanos(nanos(Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec })))
}

/// The time of all threads of a process, as the scheduler counts it.
const CLOCK_SCHED: i32 = 2;
const SECOND: u64 = 1_000_000_000;

/// `time` as system calls take it.
pub(crate) fn timespec(time: Nanos) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.0 / SECOND).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(time.0 % SECOND).expect("below a second"),
    }
}

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * SECOND + u64::try_from(time.tv_nsec).unwrap_or(0)
}
