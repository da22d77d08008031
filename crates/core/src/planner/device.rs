//! What a driver knows of a device, and what the planner makes of it.
//!
//! # Invariants
//! - The bytes in flight that a policy derives from the profile are the planner's target, whatever
//!   the latency.

use crate::device::{DeviceKind, estimate::DeviceProfile};
use crate::readahead::BANDWIDTH_DELAY_PRODUCTS;
use crate::units::Nanos;

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

const SECOND: u64 = 1_000_000_000;
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
