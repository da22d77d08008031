//! Devices side by side: the bytes of a striped set lie in turns on its members (RAID 0).
//!
//! ```text
//!   set       |  0  |  1  |  2  |  3  |  4  | ...     stripes
//!   member 0  |  0  |  2  |  4  |
//!   member 1  |  1  |  3  | ...
//! ```
//! # Invariants
//! - The parts of a range are disjoint, are as many bytes in all, and none crosses a stripe; a set
//!   of one member has no stripes.

use forerun_core::device::{self, Device};
use forerun_core::params::ParamError;

/// Devices, and how the bytes lie on them.
#[derive(Clone, Debug)]
pub struct Striped {
    members: Vec<Device>,
    stripe_bytes: u64,
}

/// A part of a range, on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The member, by its number.
    pub member: usize,
    /// The first byte there.
    pub offset: u64,
    /// Bytes; at least 1.
    pub bytes: u64,
}

impl From<Device> for Striped {
    fn from(device: Device) -> Self {
        Self { members: vec![device], stripe_bytes: STRIPE_BYTES }
    }
}

impl Striped {
    /// The set that `spec` describes: a device, or `DEVICE*N` for N of them side by side, whose
    /// latencies are drawn from `seed` on.
    ///
    /// # Errors
    /// There is no such device, or there are not 1 to 64 of them.
    pub fn make(spec: &str, seed: u64) -> Result<Self, ParamError> {
        let (one, count) = match spec.rsplit_once('*') {
            None => (spec, 1),
            Some((one, count)) => {
                let known = count.parse().ok().filter(|count| (1..=MEMBERS_MAX).contains(count));
                let wrong = || ParamError::BadValue {
                    key: "*".into(),
                    value: count.into(),
                    form: "1 to 64 devices".into(),
                };
                (one, known.ok_or_else(wrong)?)
            }
        };
        let members = (0..count).map(|member| device::make(one, seed.wrapping_add(member)));
        Ok(Self { members: members.collect::<Result<_, _>>()?, stripe_bytes: STRIPE_BYTES })
    }

    /// Its members.
    #[must_use]
    pub fn members(&self) -> &[Device] {
        &self.members
    }

    /// Bytes that the set holds.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        let least = self.members.iter().map(Device::capacity_bytes).min().unwrap_or(0);
        let whole = if self.members.len() > 1 { least - least % self.stripe_bytes } else { least };
        whole.saturating_mul(self.members.len() as u64)
    }

    /// Where `bytes` from `offset` on lie, in ascending order.
    pub(crate) fn parts(&self, offset: u64, bytes: u64) -> impl Iterator<Item = Part> {
        let (members, stripe) = (self.members.len() as u64, self.stripe_bytes);
        let (mut at, end) = (offset, offset + bytes);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            if members == 1 {
                let part = Part { member: 0, offset: at, bytes: end - at };
                at = end;
                return Some(part);
            }
            let (number, inside) = (at / stripe, at % stripe);
            let bytes = (stripe - inside).min(end - at);
            let member = usize::try_from(number % members).expect("at most `MEMBERS_MAX`");
            at += bytes;
            Some(Part { member, offset: number / members * stripe + inside, bytes })
        })
    }
}

/// Bytes of a stripe: what 3ware's controllers and Linux' md take where nothing is said.
const STRIPE_BYTES: u64 = 64 << 10;
const MEMBERS_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_stripes_and_dealt_in_turns() {
        let set = Striped::make("ssd*3", 1).unwrap();
        let parts: Vec<Part> = set.parts((64 << 10) - 4_096, (128 << 10) + 8_192).collect();
        let part = |member, offset, bytes| Part { member, offset, bytes };
        let expected = [
            part(0, 61_440, 4_096),
            part(1, 0, 65_536),
            part(2, 0, 65_536),
            part(0, 65_536, 4_096),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn each_byte_of_a_set_has_a_place_of_its_own() {
        let set = Striped::make("t7k250*4", 1).unwrap();
        let mut places = std::collections::BTreeSet::new();
        for block in 0..1_000_u64 {
            let parts: Vec<Part> = set.parts(block * 4_096, 4_096).collect();
            assert_eq!(parts.len(), 1, "a block lies in one stripe");
            assert!(places.insert((parts[0].member, parts[0].offset)), "block {block}");
        }
        for member in 0..4 {
            assert!(places.iter().filter(|place| place.0 == member).count() >= 240);
        }
        assert_eq!(set.capacity_bytes() % (256 << 10), 0);
    }

    #[test]
    fn a_device_alone_is_not_cut() {
        let set = Striped::make("hdd", 1).unwrap();
        let parts: Vec<Part> = set.parts(1_000, 1 << 20).collect();
        assert_eq!(parts, [Part { member: 0, offset: 1_000, bytes: 1 << 20 }]);
        assert_eq!(set.capacity_bytes(), set.members()[0].capacity_bytes());
        for wrong in ["hdd*0", "hdd*65", "hdd*x", "hdd*", "hd*2"] {
            assert!(Striped::make(wrong, 1).is_err(), "{wrong}");
        }
    }
}
