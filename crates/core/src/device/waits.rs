//! What the waits of a program tell of the device that it waited for, where nothing was requested
//! to measure it.
//!
//! ```text
//!   time blocked in a call   0        1 ms                      30 ms
//!                            |--------|---------------------------|------------->
//!                              a cache   an arm, a network volume    no arm
//!                              of a drive, or a fast device          takes so long
//! ```
//! A program that reads one thing after the other has one request in flight, so its waits tell the
//! latency and nothing of how many requests the device serves at a time. One call may make several
//! requests, one after the other: a name is looked up before its inode is read. So the kind is told
//! by the short waits alone, and only where no disk takes so long.
//!
//! # Invariants
//! - A few waits are no evidence: there is no answer from less than `WAITS_MIN`.
//! - What a device may do beyond the waits is never counted as known.
//! # Sources
//! The times of arms are those of `estimate`.

use alloc::vec::Vec;

use super::DeviceKind;
use super::estimate::ARM_MAX;
use crate::units::Nanos;

/// What waits tell of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitEstimate {
    /// The time of a call that waits: the median.
    pub latency: Nanos,
    /// How latency and depth go together, where the latency tells.
    pub kind: Option<DeviceKind>,
}

impl WaitEstimate {
    /// What the times tell for which calls were blocked, each one of its own; `None` of too few.
    #[must_use]
    pub fn of(blocked: impl IntoIterator<Item = Nanos>) -> Option<Self> {
        let mut waits: Vec<Nanos> = blocked.into_iter().filter(|&wait| wait > Nanos(0)).collect();
        if waits.len() < WAITS_MIN {
            return None;
        }
        waits.sort_unstable();
        let (short, latency) = (waits[waits.len() / 4], waits[waits.len() / 2]);
        let kind = (short > ARM_MAX).then_some(DeviceKind::Parallel);
        assert!(Nanos(0) < short && short <= latency, "what was not waited for is no wait");
        Some(Self { latency, kind })
    }
}

/// Fewer waits may be those of one moment in which others used the device.
const WAITS_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_is_told_by_short_waits_where_no_arm_takes_so_long() {
        #[rustfmt::skip]
        let rows = [
            // why                      waits in ms, 0 where there was none,  latency, kind
            ("none",                    &[][..],                                None),
            ("too few",                 &[50; 7],                               None),
            ("no arm",                  &[51, 50, 52, 50, 49, 51, 9, 300, 0],   Some((51, true))),
            ("a volume, short seeks",   &[2; 8],                                Some((2, false))),
            ("as long as an arm takes", &[30; 9],                               Some((30, false))),
            ("often several requests",  &[9, 8, 10, 31, 35, 36, 33, 31, 40],    Some((31, false))),
        ];
        for (why, waits, expected) in rows {
            let found = WaitEstimate::of(waits.iter().copied().map(Nanos::from_millis));
            let expected = expected.map(|(millis, is_parallel)| WaitEstimate {
                latency: Nanos::from_millis(millis),
                kind: is_parallel.then_some(DeviceKind::Parallel),
            });
            assert_eq!(found, expected, "{why}");
        }
    }

    /// `grep -r` of small headers, as a poll each millisecond met it: the first waits, in us.
    #[test]
    fn recorded_waits_of_devices_are_told_apart_as_far_as_they_can_be() {
        #[rustfmt::skip]
        let rows: [(&str, [u64; 24], u64, bool); 3] = [
            ("a network volume of 2 ms", [
                7707, 1321, 2474, 2424, 2476, 1168, 2430, 2468, 1181, 2443, 2499, 1150,
                2164, 2495, 2389, 1172, 1281, 2179, 2255, 1219, 2407, 3476, 2352, 1148,
            ], 2389, false),
            ("an object store of 30 to 60 ms", [
                192_179, 176_769, 54415, 55727, 54479, 52114, 60446, 52498, 55203, 50888,
                40948, 42885, 37229, 35119, 36096, 44447, 43187, 49895, 39637, 44257, 38105,
                32134, 53490, 39871,
            ], 49895, true),
            ("a disk, by short seeks", [
                4016, 5966, 8169, 9217, 1147, 1271, 4701, 5853, 2430, 5828, 3486, 1340,
                1185, 1180, 1195, 1223, 1232, 1181, 1213, 5785, 2175, 1280, 4642, 1237,
            ], 2175, false),
        ];
        for (device, waits, latency, is_parallel) in rows {
            let micros = |us| Nanos(us * 1_000);
            let kind = is_parallel.then_some(DeviceKind::Parallel);
            let expected = Some(WaitEstimate { latency: micros(latency), kind });
            assert_eq!(WaitEstimate::of(waits.map(micros)), expected, "{device}");
        }
    }
}
