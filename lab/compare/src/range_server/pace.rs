//! The pace of a body: pieces at absolute times, as over a link of a fixed rate.
//!
//! ```text
//!   |--piece 0--|--piece 1--|--2--|     a piece is sent when its last byte would have passed
//!   start       ^ sent      ^     ^
//! ```
//!
//! # Invariants
//! - A late wake-up does not make the next piece later, so the mean is the rate.
//! - After a slow reader, the sender catches up on at most `BEHIND_MAX`.

use std::thread;
use std::time::Duration;
#[expect(clippy::disallowed_types, reason = "a link has real time")]
use std::time::Instant;

/// The progress of one body on its link.
#[expect(clippy::disallowed_types, reason = "a link has real time")]
pub(super) struct Pace {
    /// Bytes a second, not 0.
    rate: u64,
    /// When the last byte so far has passed.
    passed: Instant,
}

#[expect(clippy::disallowed_types, reason = "a link has real time")]
impl Pace {
    /// A body that begins now, or nothing if `rate` is 0: no limit.
    pub(super) fn new(rate: u64) -> Option<Self> {
        (rate > 0).then(|| Self { rate, passed: Instant::now() })
    }

    /// Waits until `bytes` more have passed.
    pub(super) fn wait(&mut self, bytes: u64) {
        let earliest = Instant::now().checked_sub(BEHIND_MAX);
        self.passed = earliest.map_or(self.passed, |earliest| self.passed.max(earliest));
        self.passed += Duration::from_nanos(bytes * NANOS_A_SECOND / self.rate);
        thread::sleep(self.passed.saturating_duration_since(Instant::now()));
    }
}

/// Longer than a wake-up is late on a busy machine, shorter than what a reader would notice.
const BEHIND_MAX: Duration = Duration::from_millis(50);
const NANOS_A_SECOND: u64 = 1_000_000_000;
