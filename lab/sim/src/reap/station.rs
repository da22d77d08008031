//! A device at work: when is an I/O that is submitted at a moment complete?
//!
//! ```text
//!   submitted -> the first free channel: a time that is drawn -> the pipe: bytes past 4 KiB
//! ```
//!
//! # Invariants
//! - The same seed and the same submissions give the same moments, in virtual time as in real.
//! - All channels share one pipe, which the bytes of one I/O pass after those of another.

use forerun_core::prng::Prng;
use forerun_core::reap::CLASS_BYTES;
use forerun_core::units::Nanos;

use super::{Device, earliest};

/// See the module.
#[derive(Clone, Debug)]
pub struct Station {
    device: Device,
    /// When each channel is free.
    channels: Vec<Nanos>,
    /// When the pipe is.
    pipe: Nanos,
    pub(super) draws: Prng,
}

impl Station {
    /// A device at rest.
    #[must_use]
    pub fn new(device: Device, seed: u64) -> Self {
        let channels = vec![Nanos(0); device.channels as usize];
        Self { device, channels, pipe: Nanos(0), draws: Prng::new(seed) }
    }

    /// When an I/O of `bytes` that is submitted now is complete.
    pub fn serve(&mut self, submitted: Nanos, bytes: u64) -> Nanos {
        let (channel, free) = earliest(&self.channels);
        let found = free.max(submitted) + self.device.first.draw(&mut self.draws);
        let rest = bytes.saturating_sub(CLASS_BYTES[0]);
        let passes = Nanos(rest * 1_000_000_000 / self.device.bytes_per_second);
        let complete = if rest == 0 { found } else { self.pipe.max(found) + passes };
        if rest > 0 {
            self.pipe = complete;
        }
        self.channels[channel] = complete;
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reap::Spread;

    #[test]
    fn channels_work_side_by_side_and_bytes_pass_one_after_the_other() {
        let first = Spread::new(1_000, 0);
        let device = Device { name: "two", first, bytes_per_second: 1 << 30, channels: 2 };
        let mut station = Station::new(device, 1);
        let mut serve = |at, bytes| station.serve(Nanos(at), bytes).0;
        #[rustfmt::skip]
        let rows = [ // at, bytes      complete
            (0,     4_096,             1_000),
            (0,     4_096,             1_000), // The other channel.
            (0,     4_096,             2_000), // Behind the first.
            (5_000, 4_096 + (1 << 20), 6_000 + 976_562),
            (5_000, 4_096 + (1 << 20), 6_000 + 976_562 * 2),
        ];
        for (at, bytes, expected) in rows {
            assert_eq!(serve(at, bytes), expected, "{bytes} at {at}");
        }
    }
}
