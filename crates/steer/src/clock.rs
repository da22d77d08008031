//! Real time, for those who watch: nanoseconds since the start, and what watching costs.
//!
//! # Invariants
//! - It never runs backwards, as the core asks for.
//! # Sources
//! Linux `include/linux/posix-timers_types.h`: how a process's number is made a clock's.

#![expect(unsafe_code, reason = "another process's clock has no safe wrapper")]

use std::mem::MaybeUninit;

use forerun_core::units::Nanos;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    begun: u64,
}

impl Clock {
    /// A clock that begins now.
    pub(crate) fn start() -> Self {
        Self { begun: nanos(clock_gettime(ClockId::Monotonic)) }
    }

    /// The time since it began.
    pub(crate) fn now(self) -> Nanos {
        Nanos(nanos(clock_gettime(ClockId::Monotonic)).saturating_sub(self.begun))
    }
}

/// Processor time that this thread has taken.
pub(crate) fn thread_time() -> Nanos {
    Nanos(nanos(clock_gettime(ClockId::ThreadCPUTime)))
}

/// Processor time that all threads of this process have taken.
pub(crate) fn process_time() -> Nanos {
    Nanos(nanos(clock_gettime(ClockId::ProcessCPUTime)))
}

/// Processor time that all threads of the process `pid` have taken.
pub(crate) fn time_of(pid: i32) -> Option<Nanos> {
    let clock = (!pid << 3) | CLOCK_SCHED;
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: a call that succeeded has written the time to the place that it was given.
    let time = unsafe {
        if libc::clock_gettime(clock, time.as_mut_ptr()) != 0 {
            return None;
        }
        time.assume_init()
    };
    Some(Nanos(nanos(Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec })))
}

/// A process's time, of all its threads, as its scheduler counts it.
const CLOCK_SCHED: i32 = 2;

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
