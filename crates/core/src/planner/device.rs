//! What a driver knows of a device, and what the planner makes of it.
//!
//! # Invariants
//! - The bytes in flight that a policy derives from the profile are the planner's target, whatever
//!   the latency.

use core::ops::Range;

use super::REQUEST_BYTES_MAX;
use crate::device::DeviceKind;
use crate::device::estimate::{DeviceProfile, Estimate, Estimator, Ticket};
use crate::device::remembered::{DeviceMemory, DeviceRecord};
use crate::readahead::BANDWIDTH_DELAY_PRODUCTS;
use crate::units::{FileId, Nanos};

/// What a driver knows of the device or the store behind its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceEstimate {
    /// How latency and depth go together.
    pub kind: DeviceKind,
    /// The usual time to the first byte; above 0.
    pub latency: Nanos,
    /// The most that the device delivers, in bytes a second; `u64::MAX`: not measured.
    pub bytes_per_second: u64,
    /// Requests in flight that the device serves at a time; at least 1.
    pub depth: u32,
}

impl From<DeviceProfile> for DeviceEstimate {
    fn from(profile: DeviceProfile) -> Self {
        let DeviceProfile { kind, access: latency, bytes_per_second, depth, request_bytes: _ } =
            profile;
        Self { kind, latency, bytes_per_second, depth }
    }
}

impl DeviceEstimate {
    /// The profile for a readahead policy that is to keep `in_flight_bytes` in flight, in requests
    /// of at most twice `request_bytes`: the rate follows from both and the latency, and is no
    /// higher than the measured one.
    pub(super) fn profile(&self, in_flight_bytes: u64, request_bytes: u32) -> DeviceProfile {
        assert!(self.latency.0 > 0, "a device answers after a time");
        assert!(self.depth > 0 && request_bytes > 0, "{self:?}: requests of {request_bytes}");
        let accesses_per_second = SECOND / self.latency.0;
        let rate = in_flight_bytes.saturating_mul(accesses_per_second) / BANDWIDTH_DELAY_PRODUCTS;
        DeviceProfile {
            kind: self.kind,
            access: self.latency,
            bytes_per_second: rate.min(self.bytes_per_second),
            depth: self.depth,
            request_bytes,
        }
    }
}

/// The latency of one device, measured by the requests that it answers.
#[derive(Debug)]
pub(super) struct LatencyTracker {
    /// The shortest.
    pub(super) min: Nanos,
    /// A moving average.
    mean: Nanos,
    /// No request is in flight.
    pub(super) is_idle: bool,
}

impl LatencyTracker {
    /// Of a first request.
    pub(super) fn new(latency: Nanos) -> Self {
        Self { min: latency, mean: latency, is_idle: false }
    }

    pub(super) fn learn(&mut self, latency: Nanos) {
        self.min = self.min.min(latency);
        self.mean = Nanos(self.mean.0 - self.mean.0 / SAMPLES + latency.0 / SAMPLES);
    }

    /// The mean latency as a multiple of the shortest: the rest is time in the device's queue.
    pub(super) fn slowdown(&self) -> u64 {
        if self.is_idle { 1 } else { (self.mean.0 / self.min.0.max(1)).max(1) }
    }
}

/// What is known of one device beyond its latency: what is seen of it in this run, and what earlier
/// runs have learnt.
#[derive(Debug)]
pub(super) struct DeviceKnowledge {
    estimator: Estimator,
    memory: DeviceMemory,
}

impl DeviceKnowledge {
    /// A device of which earlier runs have left `record`.
    pub(super) fn new(record: Option<DeviceRecord>) -> Self {
        Self::of_requests(record, u32::try_from(REQUEST_BYTES_MAX).expect("a request"))
    }

    /// The same, for requests of at most `bytes`.
    pub(super) fn of_requests(record: Option<DeviceRecord>, bytes: u32) -> Self {
        Self { estimator: Estimator::new(bytes), memory: DeviceMemory::new(record) }
    }

    /// What the device can do, as far as this run or earlier ones have seen it.
    pub(super) fn estimate(&self) -> Estimate {
        self.memory.estimate(self.estimator.estimate())
    }

    /// A request that finds nothing of its bytes cached goes out.
    pub(super) fn issued(&mut self, now: Nanos, file: FileId, bytes: &Range<u64>) -> Ticket {
        let size = u32::try_from(bytes.end - bytes.start).unwrap_or(u32::MAX);
        self.estimator.issued(now, file, bytes.start, size)
    }

    /// It has arrived by `now`, and had not at `absent`: that is when it was looked at before.
    pub(super) fn arrived(&mut self, now: Nanos, ticket: Ticket, issued: Nanos, absent: Nanos) {
        if now.since(absent).0.saturating_mul(DOUBT) > now.since(issued).0 {
            return self.estimator.failed(ticket);
        }
        self.estimator.arrived(now, ticket);
        self.memory.learn(self.estimator.evidence(), &self.estimator.estimate());
    }

    /// What became of it is not known.
    pub(super) fn lost(&mut self, ticket: Ticket) {
        self.estimator.failed(ticket);
    }

    /// What the device delivers in the time of one access, in bytes, where it is remembered; 0
    /// where it is not, or its rate was never seen.
    pub(super) fn first_distance(&self) -> u64 {
        if !self.memory.has_record() {
            return 0;
        }
        let Estimate { profile, known } = self.estimate();
        if !known.access || !known.rate {
            return 0;
        }
        let bytes = u128::from(profile.bytes_per_second) * u128::from(profile.access.0);
        u64::try_from(bytes / u128::from(SECOND)).unwrap_or(u64::MAX)
    }

    /// What is kept for the next run.
    pub(super) fn record(&self) -> Option<DeviceRecord> {
        self.memory.kept(self.estimator.estimate())
    }
}

const SECOND: u64 = 1_000_000_000;
/// The device has all it can do where latencies are so many times the shortest.
pub(super) const FULL: u64 = 4;
/// An arrival that was seen late by more than one part in so many of its latency tells nothing.
const DOUBT: u64 = 4;
/// Requests over which a mean is taken, as TCP takes one of round trips.
const SAMPLES: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_as_fast_as_its_fastest_request() {
        let millis = Nanos::from_millis;
        let mut latency = LatencyTracker::new(millis(10));
        for (waited, slowdown, why) in [
            (10, 1, "nothing waits"),
            (40, 1, "once is not usual"),
            (40, 1, "twice"),
            (40, 1, "three times"),
            (40, 2, "half of the time"),
            (2, 9, "a faster one is what it can do"),
        ] {
            latency.learn(millis(waited));
            assert_eq!(latency.slowdown(), slowdown, "{why}");
        }
        latency.is_idle = true;
        assert_eq!(latency.slowdown(), 1, "nothing is there to wait for");
        assert_eq!(LatencyTracker::new(Nanos(0)).slowdown(), 1);
    }
}
