//! The engine's only reader of real time: nanoseconds since the cache was made.
//!
//! # Invariants
//! - It never runs backwards. What is read under the state's lock is in the order of the events,
//!   as the core asks for.

#![expect(clippy::disallowed_types, reason = "the one clock of this crate")]

use std::time::Instant;

use forerun_core::units::Nanos;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    begun: Instant,
}

impl Clock {
    /// A clock that begins now.
    pub(crate) fn start() -> Self {
        Self { begun: Instant::now() }
    }

    /// The time since it began.
    pub(crate) fn now(self) -> Nanos {
        let since = self.begun.elapsed().as_nanos();
        Nanos(u64::try_from(since).expect("a run of less than 500 years"))
    }
}
