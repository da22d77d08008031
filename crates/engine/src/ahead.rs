//! Readahead and writes to be submitted to the background, and the depth of readahead: how many
//! requests of a file are in flight at once.
//!
//! ```text
//!   device                         requests at once
//!   not estimated, or seek-bound   the least
//!   parallel, rate not known       the most
//!   parallel, rate known           twice the estimated depth, within least and most: one half is
//!                                    served, the other half is queued at the device
//! ```
//! The limit of a parallel device shows only beyond that limit: the depth is the most until the
//! rate is known. The readahead policy decides how many bytes are requested.
//!
//! # Invariants
//! - A depth is at least 1, and never above [`Settings::background_depth_max`].

use forerun_core::device::{DeviceKind, estimate::Estimate};

use crate::{
    file::{Fetch, Unsubmitted},
    settings::Settings,
};

/// Background operations that are not submitted yet.
pub(crate) struct Ahead {
    pub(crate) fetches: Vec<Fetch>,
    pub(crate) writes: Vec<Unsubmitted>,
    /// Readahead requests of a file in flight at once, from now on.
    pub(crate) depth: u32,
}

impl Ahead {
    pub(crate) fn is_empty(&self) -> bool {
        self.fetches.is_empty() && self.writes.is_empty()
    }

    /// Appends operations that follow from these.
    pub(crate) fn append(&mut self, later: Option<Self>) {
        let Some(mut later) = later else { return };
        self.fetches.append(&mut later.fetches);
        self.writes.append(&mut later.writes);
    }
}

/// The bounds within which the device decides the depth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depths {
    least: u32,
    most: u32,
}

impl Depths {
    pub(crate) fn new(settings: &Settings) -> Self {
        let (least, most) = (settings.background_depth, settings.background_depth_max);
        Self { least: least.min(most), most }
    }

    /// The depth for a device with this estimate.
    pub(crate) fn of(self, device: Option<Estimate>) -> u32 {
        let wanted = match device {
            Some(Estimate { profile, known }) if profile.kind == DeviceKind::Parallel => {
                if known.rate { profile.depth.saturating_mul(2) } else { self.most }
            }
            Some(_) | None => self.least,
        };
        wanted.clamp(self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use forerun_core::{
        device::estimate::{DeviceProfile, Evidence},
        units::Nanos,
    };

    use super::*;

    #[test]
    fn a_parallel_device_gets_twice_its_depth_and_a_seek_bound_one_the_least() {
        use DeviceKind::{Parallel, SeekBound};
        #[rustfmt::skip]
        let rows = [ // why                device                            least, most, expected
            ("no estimate",                None,                             8, 64, 8),
            ("seek-bound",                 Some((SeekBound, 1, true)),      8, 64, 8),
            ("seek-bound, of any depth",   Some((SeekBound, 40, false)),    8, 64, 8),
            ("parallel, shallow",          Some((Parallel, 2, true)),        8, 64, 8),
            ("parallel, deep",             Some((Parallel, 20, true)),       8, 64, 40),
            ("parallel, rate not known",   Some((Parallel, 2, false)),       8, 64, 64),
            ("deeper than the bound",      Some((Parallel, 256, true)),      8, 64, 64),
            ("no number overflows",        Some((Parallel, u32::MAX, true)), 1, 64, 64),
            ("least equals most",          Some((Parallel, 20, true)),       3, 3,  3),
            ("most below least",           None,                             8, 2,  2),
        ];
        for (why, device, background_depth, background_depth_max, expected) in rows {
            let depths = Depths::new(&Settings {
                background_depth,
                background_depth_max,
                ..Settings::default()
            });
            let estimate = device.map(|(kind, depth, rate)| Estimate {
                profile: DeviceProfile {
                    kind,
                    access: Nanos::from_millis(1),
                    bytes_per_second: 1,
                    depth,
                    request_bytes: 1 << 20,
                },
                known: Evidence { kind: true, access: true, rate },
            });
            assert_eq!(depths.of(estimate), expected, "{why}");
        }
    }
}
