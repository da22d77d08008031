//! How many requests of walks a device is given at a time: learnt from how fast it answers.
//!
//! ```text
//!   32 --a full round faster by a quarter--> 64 --> 128        else back to the depth before
//!   512 requests in a row that were cached --> 1               until one is not
//! ```
//! A lookup waits for one block after the other, so the number of lookups is what a device has in
//! flight. One that serves them side by side answers twice as many a second with twice the depth.
//!
//! # Invariants
//! - The depth is from 1 to `DEPTH_MAX`.
//! - Only rounds in which as much was in flight as may be are compared.

use crate::units::Nanos;

/// See the module.
#[derive(Clone, Debug)]
pub struct WalkDepth {
    depth: u32,
    /// Nanoseconds for a request at the depth before, while it grows.
    before: Option<u64>,
    is_settled: bool,
    /// When the round began, and what it has answered.
    round: Option<(Nanos, u32)>,
    /// Requests in a row that were cached.
    cached: u32,
    /// How long the device takes for a lookup that waits for no others; 0: not known.
    latency: Nanos,
}

impl Default for WalkDepth {
    fn default() -> Self {
        Self {
            depth: DEPTH_FIRST,
            before: None,
            is_settled: false,
            round: None,
            cached: 0,
            latency: Nanos(0),
        }
    }
}

impl WalkDepth {
    /// Requests that may be in flight; at least 1.
    #[must_use]
    pub fn requests(&self) -> u32 {
        if self.cached >= CACHED_MAX { 1 } else { self.depth }
    }

    /// A request has been answered; `is_full` if as many were in flight as may be until then.
    pub fn answered(&mut self, now: Nanos, is_cached: bool, is_full: bool) {
        if is_cached {
            self.cached = (self.cached + 1).min(CACHED_MAX);
            return;
        }
        self.cached = 0;
        if self.is_settled {
            return;
        }
        let Some((began, count)) = self.round.filter(|_| is_full) else {
            self.round = is_full.then_some((now, 0));
            return;
        };
        let count = count + 1;
        if count < self.depth * ROUND_FACTOR {
            self.round = Some((began, count));
            return;
        }
        self.round = None;
        self.compare(now.since(began).0 / u64::from(count));
        assert!((1..=DEPTH_MAX).contains(&self.depth), "the depth has its bounds");
    }

    /// A lookup `took` so long beside `others` on the same device.
    pub fn took(&mut self, took: Nanos, others: usize) {
        if took >= CACHED_WITHIN && others < FEW {
            let Nanos(before) = self.latency;
            let mean = (before * (LATENCY_OF - 1) + took.0) / LATENCY_OF;
            self.latency = if before == 0 { took } else { Nanos(mean) };
        }
    }

    /// What a program waits for a lookup at least, as far as it is known.
    #[must_use]
    pub fn latency(&self) -> Nanos {
        self.latency
    }

    /// A round at this depth took so many nanoseconds for a request.
    fn compare(&mut self, nanos: u64) {
        let is_better = self.before.is_none_or(|before| nanos * FASTER.1 <= before * FASTER.0);
        if !is_better {
            self.depth /= 2;
        }
        self.is_settled = !is_better || self.depth == DEPTH_MAX;
        if !self.is_settled {
            self.before = Some(nanos);
            self.depth *= 2;
        }
    }
}

/// Whether a lookup that `took` so long waited for no device; it did where it `needs_bytes`, which
/// were requested and have not come.
#[must_use]
pub fn was_cached(took: Nanos, needs_bytes: bool) -> bool {
    took < CACHED_WITHIN && !needs_bytes
}

/// Faster than any device answers.
const CACHED_WITHIN: Nanos = Nanos::from_micros(100);
/// The depth of a device that nothing is known of.
const DEPTH_FIRST: u32 = 32;
/// The depth of a device that has proved parallel.
const DEPTH_MAX: u32 = 128;
/// Requests of a round, for each that may be in flight.
const ROUND_FACTOR: u32 = 2;
/// Beside no more lookups than these one does not wait in the device's queue.
const FEW: usize = 4;
/// A latency is the mean of about so many.
const LATENCY_OF: u64 = 8;
/// A depth is kept that takes four fifths of the time, or less.
const FASTER: (u64, u64) = (4, 5);
/// More than the inodes that one read of a file system brings.
const CACHED_MAX: u32 = 512;

const _: () = assert!(DEPTH_FIRST <= DEPTH_MAX && DEPTH_MAX.is_multiple_of(DEPTH_FIRST));

#[cfg(test)]
mod tests {
    use super::*;

    /// The depth after many answers of a device that takes up `slots` requests at a time.
    fn learnt(slots: u32, is_full: bool) -> u32 {
        let (mut depth, mut now) = (WalkDepth::default(), Nanos(0));
        for _ in 0..10_000 {
            now += Nanos(2_000_000 / u64::from(depth.requests().min(slots)));
            depth.answered(now, false, is_full);
        }
        depth.requests()
    }

    #[test]
    fn the_depth_grows_as_long_as_the_device_answers_faster() {
        #[rustfmt::skip]
        let rows = [ // slots, full, depth, why
            (1,    true,  32,  "one arm"),
            (16,   true,  32,  "fewer than at first"),
            (33,   true,  32,  "hardly more"),
            (64,   true,  64,  "twice as many"),
            (1000, true,  128, "any number, up to the bound"),
            (1000, false, 32,  "never full"),
        ];
        for (slots, is_full, expected, why) in rows {
            assert_eq!(learnt(slots, is_full), expected, "{why}");
        }
    }

    #[test]
    fn a_latency_is_that_of_lookups_that_wait_for_no_others() {
        let mut depth = WalkDepth::default();
        let micros = Nanos::from_micros;
        #[rustfmt::skip]
        let rows = [ // took us, others, latency us, why
            (9_000, 30,     0, "many others"),
            (20,     0,     0, "cached"),
            (800,    3,   800, "the first"),
            (1_600,  0,   900, "one of eight"),
            (90_000, 4,   900, "as many as may wait for each other"),
        ];
        for (took, others, latency, why) in rows {
            depth.took(micros(took), others);
            assert_eq!(depth.latency(), micros(latency), "{why}");
        }
    }

    #[test]
    fn what_is_cached_is_requested_one_by_one() {
        let mut depth = WalkDepth::default();
        for _ in 0..CACHED_MAX {
            assert_eq!(depth.requests(), DEPTH_FIRST);
            depth.answered(Nanos(0), true, true);
        }
        assert_eq!(depth.requests(), 1);
        depth.answered(Nanos(1), false, true);
        assert_eq!(depth.requests(), DEPTH_FIRST, "one that is not");
    }
}
