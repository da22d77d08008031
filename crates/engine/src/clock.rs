//! The engine's only source of real time: nanoseconds since the cache was built.
//!
//! # Invariants
//! - A clock never runs backwards. Times read under the state's lock are in the order of the
//!   events, as the core requires.

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

    /// The time since the start.
    pub(crate) fn now(self) -> Nanos {
        let since = self.begun.elapsed().as_nanos();
        Nanos(u64::try_from(since).expect("a run of less than 500 years"))
    }
}
