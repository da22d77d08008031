//! The run under `run`, in virtual time: when the program goes on, and when what walks request is
//! there.
//!
//! ```text
//!   recorded   --compute--|== wait ==|--compute--|== wait ==|--compute--
//!   replayed   --compute--|== wait ==|--compute--|--compute--            predicted, and there
//!                 poll ^  ^  ^  ^  ^     one request a worker, all of them on one device
//! ```
//! What a request takes is what the program waited for that entry. A device that serves several at
//! a time does one after the other in the time that its profile says of small reads: the rate one
//! by one, divided by the best.
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

/// See the module.
#[derive(Debug)]
pub(super) struct Timeline {
    /// Where the program is.
    pub(super) now: Nanos,
    /// When each worker is free.
    workers: BinaryHeap<Reverse<Nanos>>,
    /// When the device is.
    device: Nanos,
    /// Small reads a second: at the best depth, and one by one; none for a device without limit.
    rates: Option<[u64; 2]>,
    next_poll: Nanos,
}

impl Timeline {
    /// A run that begins, on a device with these rates of small reads.
    pub(super) fn new(rates: Option<[u64; 2]>) -> Self {
        let workers = WalkDepth::default().requests();
        Self {
            now: Nanos(0),
            workers: (0..workers).map(|_| Reverse(Nanos(0))).collect(),
            device: Nanos(0),
            rates,
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

    /// A worker requests what takes `cost`, at `now` or as soon as one is free. When it is there.
    pub(super) fn request(&mut self, now: Nanos, cost: Nanos) -> Nanos {
        let Reverse(free) = self.workers.pop().expect("there are workers");
        // What waits for a worker does not keep the device from serving others meanwhile.
        self.device = self.device.max(now) + self.busy(cost);
        let end = (free.max(now) + cost).max(self.device);
        assert!(end >= now && end >= free, "a request takes its time");
        self.workers.push(Reverse(end));
        end
    }

    /// The program itself requests what takes `cost`. When it is there.
    pub(super) fn demand(&mut self, cost: Nanos) -> Nanos {
        // Demands do not wait behind all that was requested before: the device takes turns.
        let end = self.now + cost;
        self.device = self.device.max(self.now) + self.busy(cost);
        end
    }

    /// How long a request keeps the device from serving others.
    fn busy(&self, cost: Nanos) -> Nanos {
        self.rates
            .map_or(Nanos(0), |[best, alone]| share(cost, Nanos(alone.min(best)), Nanos(best)))
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
        let rows = [ // why, rates, requests of 2 ms, the last is there at
            ("no limit", None, count, 2),
            ("one more than workers", None, count + 1, 4),
            ("one arm", Some([500, 500]), 8, 16),
            ("four at a time", Some([2_000, 500]), 8, 4),
            ("slower side by side", Some([400, 500]), 8, 16),
        ];
        for (why, rates, requests, expected) in rows {
            let mut timeline = Timeline::new(rates);
            let last = (0..requests).map(|_| timeline.request(Nanos(0), millis(2))).max();
            assert_eq!(last, Some(millis(expected)), "{why}");
        }
        let mut timeline = Timeline::new(Some([500, 500]));
        assert_eq!(timeline.demand(millis(2)), millis(2));
        assert_eq!(timeline.request(Nanos(0), millis(2)), millis(4), "the device is busy");
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
