//! Readahead on its way to the background, and how much of it a file has at its device at once.
//!
//! ```text
//!   device                         requests at once
//!   not looked at, or one arm      the least
//!   many paths, rate not known     the most
//!   many paths, rate known         twice the depth that was seen to help, within least and most:
//!                                    one half under way, one half there when a path comes free
//! ```
//! What a device of many paths can do is seen only by asking for more than it can: so it gets the
//! most until that was seen. How much is asked for is the policy's.
//!
//! # Invariants
//! - A depth is at least 1, and never above [`Settings::background_depth_max`].

use forerun_core::device::{DeviceKind, estimate::Estimate};

use crate::{file::Fetch, settings::Settings};

/// Fetches that nobody has submitted yet.
pub(crate) struct Ahead {
    pub(crate) fetches: Vec<Fetch>,
    /// How many of a file are to be under way at once from now on.
    pub(crate) depth: u32,
}

/// Between which depths the device decides.
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

    /// The depth for a device of which so much is known.
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
    fn a_device_of_many_paths_gets_twice_its_depth_and_an_arm_the_least() {
        use DeviceKind::{Parallel, SeekBound};
        #[rustfmt::skip]
        let rows = [ // why                device                            least, most, expected
            ("nobody looks",               None,                             8, 64, 8),
            ("an arm",                     Some((SeekBound, 1, true)),      8, 64, 8),
            ("an arm, whatever it seems",  Some((SeekBound, 40, false)),    8, 64, 8),
            ("few paths",                  Some((Parallel, 2, true)),        8, 64, 8),
            ("many paths",                 Some((Parallel, 20, true)),       8, 64, 40),
            ("many, not seen busy",        Some((Parallel, 2, false)),       8, 64, 64),
            ("more than we give",          Some((Parallel, 256, true)),      8, 64, 64),
            ("no number overflows",        Some((Parallel, u32::MAX, true)), 1, 64, 64),
            ("told to the request",        Some((Parallel, 20, true)),       3, 3,  3),
            ("the bound counts",           None,                             8, 2,  2),
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
