//! The run under `run`, in virtual time: when the program goes on, and when what walks request is
//! there.
//!
//! ```text
//!   recorded   --compute--|== wait ==|--compute--|== wait ==|--compute--
//!   replayed   --compute--|== wait ==|--compute--|--compute--            predicted, and there
//!                 poll ^  ^  ^  ^  ^     one request a worker, all of them on one device
//! ```
//! What a request takes is what threads waited for that entry. A device that serves several at
//! a time does one after the other in the time that its profile says of small reads: the rate one
//! by one, divided by the best. An arm is sorted for where bytes are requested, but kept to the
//! depth up to which twice as many are faster by a quarter: the mean of both rates is taken. Where
//! inodes and listings alone are requested it is left to the program.
//!
//! # Invariants
//! - A wait is never longer than the one that was recorded.
//! - A call is seen only where the program is blocked in it at a poll, as under `run`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forerun_core::units::Nanos;
use forerun_core::walk::depth::WalkDepth;

use super::sums::share;
use crate::observe::poll::INTERVAL_MIN;

/// What a device can do of small random reads, by its profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallReads {
    /// Bytes a second, at its best depth.
    pub best: u64,
    /// Bytes a second, one by one.
    pub alone: u64,
    /// It has an arm, which several requests at a time are sorted for.
    pub seeks: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Timeline {
    /// Where the program is.
    pub(super) now: Nanos,
    /// When each worker is free.
    workers: BinaryHeap<Reverse<Nanos>>,
    /// When the device is.
    device: Nanos,
    /// None for a device without limit.
    small: Option<SmallReads>,
    next_poll: Nanos,
}

impl Timeline {
    /// A run that begins, on a device with these `small` reads.
    pub(super) fn new(small: Option<SmallReads>) -> Self {
        let workers = WalkDepth::default().requests();
        Self {
            now: Nanos(0),
            workers: (0..workers).map(|_| Reverse(Nanos(0))).collect(),
            device: Nanos(0),
            small,
            next_poll: INTERVAL_MIN,
        }
    }

    /// The next poll, if it is no later than `until`.
    pub(super) fn poll(&mut self, until: Nanos) -> Option<Nanos> {
        let at = self.next_poll;
        (at <= until).then(|| {
            self.next_poll += INTERVAL_MIN;
            at
        })
    }

    /// Nothing happens before `until`: polls until then are left out.
    pub(super) fn skip(&mut self, until: Nanos) {
        let behind = until.since(self.next_poll).0 / INTERVAL_MIN.0;
        self.next_poll += Nanos(behind * INTERVAL_MIN.0);
        assert!(behind == 0 || self.next_poll <= until, "a poll is left out, not the next");
    }

    /// A worker requests what takes `cost`, at `now` or as soon as one is free; it `has_bytes` of a
    /// file. When it is there.
    pub(super) fn request(&mut self, now: Nanos, cost: Nanos, has_bytes: bool) -> Nanos {
        let Reverse(free) = self.workers.pop().expect("there are workers");
        // What waits for a worker does not keep the device from serving others meanwhile.
        self.device = self.device.max(now) + self.busy(cost, has_bytes);
        let end = (free.max(now) + cost).max(self.device);
        assert!(end >= now && end >= free, "a request takes its time");
        self.workers.push(Reverse(end));
        end
    }

    /// The program itself requests what takes `cost`, and `has_bytes` of a file. How long that
    /// takes.
    pub(super) fn demand(&mut self, cost: Nanos, has_bytes: bool) -> Nanos {
        // Demands do not wait behind all that was requested before: the device takes turns.
        self.device = self.device.max(self.now) + self.busy(cost, has_bytes);
        cost
    }

    /// How long a request keeps the device from serving others.
    fn busy(&self, cost: Nanos, has_bytes: bool) -> Nanos {
        match self.small {
            None => Nanos(0),
            Some(small) if small.seeks && !has_bytes => cost,
            Some(SmallReads { best, alone, seeks }) => {
                let alone = alone.min(best);
                let best = if seeks { alone.midpoint(best) } else { best };
                share(cost, Nanos(alone.min(best)), Nanos(best))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_and_the_device_bound_how_soon_requests_are_there() {
        let millis = Nanos::from_millis;
        let count = u64::from(WalkDepth::default().requests());
        #[rustfmt::skip]
        let rows = [ // why, rates, it seeks, requests of 2 ms, of bytes, the last is there at
            ("no limit",              None,               false, count,     true,  2),
            ("one more than workers", None,               false, count + 1, true,  4),
            ("one at a time",         Some([500, 500]),   false, 8,         true,  16),
            ("four at a time",        Some([2_000, 500]), false, 8,         false, 4),
            ("slower side by side",   Some([400, 500]),   false, 8,         true,  16),
            ("an arm that sorts",     Some([1_200, 400]), true,  8,         true,  8),
            ("lookups on an arm",     Some([1_200, 400]), true,  8,         false, 16),
        ];
        for (why, rates, seeks, requests, has_bytes, expected) in rows {
            let small = rates.map(|[best, alone]| SmallReads { best, alone, seeks });
            let mut timeline = Timeline::new(small);
            let request = |_| timeline.request(Nanos(0), millis(2), has_bytes);
            assert_eq!((0..requests).map(request).max(), Some(millis(expected)), "{why}");
        }
        let small = SmallReads { best: 500, alone: 500, seeks: false };
        let mut timeline = Timeline::new(Some(small));
        assert_eq!(timeline.demand(millis(2), true), millis(2));
        assert_eq!(timeline.request(Nanos(0), millis(2), true), millis(4), "the device is busy");
    }

    #[test]
    fn polls_come_in_their_interval() {
        let mut timeline = Timeline::new(None);
        let until = Nanos(INTERVAL_MIN.0 * 3);
        let polls: Vec<u64> = std::iter::from_fn(|| timeline.poll(until).map(|at| at.0)).collect();
        assert_eq!(polls, [1, 2, 3].map(|at| at * INTERVAL_MIN.0));
        timeline.skip(Nanos(INTERVAL_MIN.0 * 10 + 1));
        assert_eq!(timeline.poll(Nanos(u64::MAX / 2)), Some(Nanos(INTERVAL_MIN.0 * 10)));
    }
}
