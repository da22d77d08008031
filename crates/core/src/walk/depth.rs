//! How many requests of walks and lists a device is given at a time, and in which order: learnt
//! from how fast it answers.
//!
//! ```text
//!   32 --a full round faster by a quarter--> 64 --> 128        else back to the depth before
//!   1 --the same, where the system says that it seeks--> 2 --> ... --> 128
//!        as good at half the depth, now and then: back
//!   512 requests in a row that were cached --> 1               until one is not
//! ```
//! A lookup waits for one block after the other, so the number of lookups is what a device has in
//! flight. One that serves them side by side answers twice as many a second with twice the depth.
//! An arm does not: it is led over the disk by one request after the other, by place, as several at
//! once take it back and forth. What the system says is but where to begin: virtual disks are said
//! to seek, too.
//!
//! # Invariants
//! - The depth is from 1 to `DEPTH_MAX`.
//! - Only rounds in which as much was in flight as may be are compared.
//! - A device that has proved parallel, or is not said to seek, is given requests in the order of
//!   their uses.

use crate::units::Nanos;

/// See the module.
#[derive(Clone, Debug)]
pub struct WalkDepth {
    depth: u32,
    /// The system says that the device seeks.
    is_said_to_seek: bool,
    /// Until then nothing is requested: two requests are no faster than one, of which the program
    /// has one under way.
    rests_until: Nanos,
    rest: Nanos,
    /// Nanoseconds for a request at the depth before, during a trial.
    before: Option<u64>,
    trial: Trial,
    /// When the round began, and what it has answered.
    round: Option<(Nanos, u32)>,
    /// Requests in a row that were cached.
    cached: u32,
    /// Requests of the round that were of bytes.
    with_bytes: u32,
    /// How long the device takes for a lookup that waits for no others; 0: not known.
    latency: Nanos,
}

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    /// Twice the depth.
    Double,
    /// Half the depth.
    Half,
    /// Nothing, for so many answers more; then what stands beside it. None: for ever.
    Settled(Option<u32>, bool),
}

impl Default for WalkDepth {
    fn default() -> Self {
        Self {
            depth: DEPTH_FIRST,
            is_said_to_seek: false,
            rests_until: Nanos(0),
            rest: REST_FIRST,
            before: None,
            trial: Trial::Double,
            round: None,
            cached: 0,
            with_bytes: 0,
            latency: Nanos(0),
        }
    }
}

impl WalkDepth {
    /// The depth of a device of which the system says whether it seeks.
    #[must_use]
    pub fn of(is_said_to_seek: bool) -> Self {
        let depth = if is_said_to_seek { 1 } else { DEPTH_FIRST };
        Self { depth, is_said_to_seek, ..Self::default() }
    }

    /// Requests that may be in flight; at least 1.
    #[must_use]
    pub fn requests(&self) -> u32 {
        if self.is_cached() { 1 } else { self.depth }
    }

    /// Requests that may be in flight or wait for it, so that there are some to choose from.
    #[must_use]
    pub fn requests_and_queue(&self) -> u32 {
        if self.is_cached() { 1 } else { self.depth.max(DEPTH_FIRST) + QUEUE }
    }

    /// Whether nothing is to be requested now, as the program alone is as fast.
    #[must_use]
    pub fn rests(&self, now: Nanos) -> bool {
        now < self.rests_until
    }

    /// Whether all of late was cached: requests are to find out whether that goes on.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        self.cached >= CACHED_MAX
    }

    /// Whether requests are carried out in the order of their places.
    #[must_use]
    pub fn is_by_place(&self) -> bool {
        self.is_said_to_seek && self.depth < DEPTH_FIRST
    }

    /// A request has been answered; `is_full` if as many were in flight as may be until then.
    pub fn answered(&mut self, now: Nanos, is_cached: bool, is_full: bool, bytes: u64) {
        if is_cached {
            self.cached = (self.cached + 1).min(CACHED_MAX);
            return;
        }
        self.cached = 0;
        self.with_bytes += u32::from(bytes > 0);
        if let Trial::Settled(left, was_double) = self.trial {
            let Some(left) = left else { return };
            let left = left.saturating_sub(1);
            self.trial = match left {
                0 if was_double && self.depth > 1 => Trial::Half,
                0 => Trial::Double,
                _ => Trial::Settled(Some(left), was_double),
            };
            return;
        }
        let Some((began, count)) = self.round.filter(|_| is_full) else {
            self.round = is_full.then_some((now, 0));
            self.with_bytes = 0;
            return;
        };
        let count = count + 1;
        if count < (self.depth * ROUND_FACTOR).max(ROUND_MIN) {
            self.round = Some((began, count));
            return;
        }
        self.round = None;
        self.compare(now.since(began).0 / u64::from(count));
        let is_lookups = self.with_bytes < count / BYTES_ONE_IN;
        self.with_bytes = 0;
        if self.depth == 1 && is_lookups && matches!(self.trial, Trial::Settled(..)) {
            self.rests_until = now + self.rest;
            self.rest = (self.rest + self.rest).min(REST_MAX);
            self.trial = Trial::Double;
        }
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
        let is_double = self.trial == Trial::Double;
        let is_better = self.before.is_none_or(|before| {
            // Half is as good where it takes no more than the depth that would be worth doubling.
            let (mine, other) = if is_double { FASTER } else { (FASTER.1, FASTER.0) };
            nanos * other <= before * mine
        });
        if !is_better {
            self.depth = if is_double { self.depth / 2 } else { self.depth * 2 };
        }
        let is_last = if is_double { self.depth == DEPTH_MAX } else { self.depth == 1 };
        if is_better && !is_last {
            self.before = Some(nanos);
            self.depth = if is_double { self.depth * 2 } else { self.depth / 2 };
            return;
        }
        self.before = None;
        let again = self.is_by_place().then_some(TRIAL_EVERY);
        self.trial = Trial::Settled(again, is_double);
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
/// Requests beyond those that run, so that none of the workers waits for the next poll.
const QUEUE: u32 = 32;
/// Requests of a round, for each that may be in flight, and of the shortest round.
const ROUND_FACTOR: u32 = 2;
const ROUND_MIN: u32 = 32;
/// A round with fewer requests of bytes is one of lookups.
const BYTES_ONE_IN: u32 = 8;
/// How long nothing is requested of a device on which two requests are no faster than one, at first
/// and at most.
const REST_FIRST: Nanos = Nanos::from_millis(2_000);
const REST_MAX: Nanos = Nanos::from_millis(60_000);
/// Answers of a device that seeks between two trials.
const TRIAL_EVERY: u32 = 256;
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
            depth.answered(now, false, is_full, 1);
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

    /// The depth that most of `answers` are given at, where an answer takes so many nanoseconds at
    /// a depth of 1, 2, 4 and more.
    fn mostly(depth: &mut WalkDepth, now: &mut Nanos, times: &[u64], answers: u32) -> u32 {
        let mut counts = [0; 8];
        for _ in 0..answers {
            let at = depth.requests().ilog2() as usize;
            *now += Nanos(times[at.min(times.len() - 1)]);
            depth.answered(*now, false, true, 1);
            counts[at] += 1;
        }
        let most = (0..8).max_by_key(|&at| counts[at]).expect("there are eight");
        1 << most
    }

    #[test]
    fn a_device_that_is_said_to_seek_begins_with_one_request_by_place() {
        #[rustfmt::skip]
        let rows: [(&str, &[u64], u32, bool); 5] = [ // why, times, depth after, by place
            ("an arm on the way",      &[400, 900, 1_400],            1,   true),
            ("an arm that picks",      &[8_000, 6_000, 3_000, 3_000], 4,   true),
            ("a virtual disk",         &[2_048, 1_024, 512, 256, 128, 64, 32, 16], 128, false),
            ("a disk of 16 at a time", &[1_600, 800, 400, 200, 100, 100], 16, true),
            ("a disk of 40 at a time", &[4_000, 2_000, 1_000, 500, 250, 125, 100], 64, false),
        ];
        for (why, times, expected, is_by_place) in rows {
            let (mut depth, mut now) = (WalkDepth::of(true), Nanos(0));
            assert!(depth.is_by_place() && depth.requests() == 1, "{why}");
            assert_eq!(mostly(&mut depth, &mut now, times, 3_000), expected, "{why}");
            assert_eq!(depth.is_by_place(), is_by_place, "{why}");
        }
        assert!(!WalkDepth::of(false).is_by_place());
    }

    #[test]
    fn a_device_that_seeks_is_tried_again_now_and_then() {
        let (mut depth, mut now) = (WalkDepth::of(true), Nanos(0));
        let (picks, goes) = ([8_000, 4_000, 4_000], [400, 900, 1_400]);
        assert_eq!(mostly(&mut depth, &mut now, &picks, 2_000), 2);
        assert_eq!(mostly(&mut depth, &mut now, &goes, 2_000), 1, "what is read lies in order now");
        assert_eq!(mostly(&mut depth, &mut now, &picks, 2_000), 2);
    }

    #[test]
    fn there_is_a_queue_to_choose_from() {
        assert_eq!(WalkDepth::of(true).requests_and_queue(), DEPTH_FIRST + QUEUE);
        assert_eq!(WalkDepth::of(false).requests_and_queue(), DEPTH_FIRST + QUEUE);
        let mut cached = WalkDepth::of(true);
        for _ in 0..CACHED_MAX {
            assert!(!cached.is_cached());
            cached.answered(Nanos(0), true, true, 1);
        }
        assert_eq!((cached.is_cached(), cached.requests_and_queue()), (true, 1));
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
            depth.answered(Nanos(0), true, true, 1);
        }
        assert_eq!(depth.requests(), 1);
        depth.answered(Nanos(1), false, true, 1);
        assert_eq!(depth.requests(), DEPTH_FIRST, "one that is not");
    }
}
