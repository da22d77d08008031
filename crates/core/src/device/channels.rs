//! A device of channels at work: when is an I/O that is submitted at a moment complete?
//!
//! ```text
//!   submitted -> the first free channel: a time that is drawn -> the pipe: bytes past 4 KiB
//! ```
//!
//! # Invariants
//! - The same seed and the same submissions give the same moments, in virtual time as in real.
//! - All channels share one pipe, which the bytes of one I/O pass after those of another.
//! # Sources
//! The models: Liao et al. 2022, table 1 (905P, 850 PRO) and section 1; what large I/Os add is the
//! device's published rate of reading.

use alloc::{vec, vec::Vec};

use super::Spread;
use crate::params::ParamError;
use crate::prng::Prng;
use crate::reap::CLASS_BYTES;
use crate::units::Nanos;

/// A device of channels: what a read of it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelModel {
    /// Its name.
    pub name: &'static str,
    /// The first 4 KiB.
    pub first: Spread,
    /// What follows passes at this rate, one I/O after the other.
    pub bytes_per_second: u64,
    /// I/Os that are served at a time.
    pub channels: u32,
}

/// Every model. A new one goes to the end. A name that `devices!` has too stands for the same drive
/// with numbers of its own; only such a drive has latencies in a profile of a model.
pub const CHANNEL_MODELS: [ChannelModel; 3] = [
    ChannelModel {
        name: "optane",
        first: Spread::new(10_000, 2_000),
        bytes_per_second: 2_600_000_000,
        channels: 6,
    },
    ChannelModel {
        name: "gen4",
        first: Spread::new(5_000, 700),
        bytes_per_second: 7_200_000_000,
        channels: 8,
    },
    ChannelModel {
        name: "sata",
        first: Spread::new(80_000, 50_000),
        bytes_per_second: 550_000_000,
        channels: 8,
    },
];

/// The model of this name.
///
/// # Errors
/// There is none.
pub fn channel_model(name: &str) -> Result<ChannelModel, ParamError> {
    let names = || CHANNEL_MODELS.iter().map(|model| model.name).collect();
    let unknown = || ParamError::UnknownName { name: name.into(), known: names() };
    CHANNEL_MODELS.into_iter().find(|model| model.name == name).ok_or_else(unknown)
}

/// See the module.
#[derive(Clone, Debug)]
pub struct DeviceServer {
    device: ChannelModel,
    /// When each channel is free.
    channels: Vec<Nanos>,
    /// When the pipe is.
    pipe: Nanos,
    draws: Prng,
}

impl DeviceServer {
    /// A device at rest.
    #[must_use]
    pub fn new(device: ChannelModel, seed: u64) -> Self {
        assert!(device.channels > 0 && device.bytes_per_second > 0, "{device:?} serves nothing");
        let channels = vec![Nanos(0); device.channels as usize];
        Self { device, channels, pipe: Nanos(0), draws: Prng::new(seed) }
    }

    /// The draws of the device, for its clients to share.
    pub fn draws(&mut self) -> &mut Prng {
        &mut self.draws
    }

    /// When an I/O of `bytes` that is submitted now is complete.
    pub fn serve(&mut self, submitted: Nanos, bytes: u64) -> Nanos {
        let free = self.channels.iter_mut().min_by_key(|free| **free);
        let free = free.expect("there is at least one channel");
        let found = (*free).max(submitted) + self.device.first.draw(&mut self.draws);
        let rest = bytes.saturating_sub(CLASS_BYTES[0]);
        let passes = Nanos(rest * 1_000_000_000 / self.device.bytes_per_second);
        let complete = if rest == 0 { found } else { self.pipe.max(found) + passes };
        if rest > 0 {
            self.pipe = complete;
        }
        assert!(complete >= submitted, "an I/O takes time");
        *free = complete;
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_work_side_by_side_and_bytes_pass_one_after_the_other() {
        let first = Spread::new(1_000, 0);
        let device = ChannelModel { name: "two", first, bytes_per_second: 1 << 30, channels: 2 };
        let mut server = DeviceServer::new(device, 1);
        let mut serve = |at, bytes| server.serve(Nanos(at), bytes).0;
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
