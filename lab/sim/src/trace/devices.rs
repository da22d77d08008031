//! Numbers of devices, small enough to stand above a block's number in a key.
//!
//! A small number is kept as it is, so that reports and other tools name the same device. Larger
//! ones (a kernel's device numbers, names of files and hosts) are numbered in the order in which
//! they come, from [`KEPT`] on.
//!
//! # Invariants
//! - Two devices never share a number; a trace with more of them than [`TABLE_MAX`], or with
//!   more than [`NAME_BYTES_MAX`] bytes of names, is refused.

use hashbrown::HashMap;

use forerun_core::hash::FixedState;

use super::request::{DEVICES_MAX, Request};

/// See the module.
#[derive(Default)]
pub(super) struct Devices {
    numbers: HashMap<u64, u32, FixedState>,
    names: HashMap<Box<[u8]>, u32, FixedState>,
    name_bytes: usize,
    /// The last device: requests of one device follow each other.
    last: Option<(u64, u32)>,
}

/// A trace names too many devices.
#[derive(Debug, thiserror::Error)]
#[error("is of one device more than can be told apart")]
pub(super) struct TooMany;

impl Devices {
    /// The number of the device that the trace calls `id`.
    pub(super) fn number(&mut self, id: u64) -> Result<u32, TooMany> {
        if let Some(kept) = u32::try_from(id).ok().filter(|&id| id < KEPT) {
            return Ok(kept);
        }
        if let Some((last, number)) = self.last
            && last == id
        {
            return Ok(number);
        }
        let next = self.next();
        let number = match self.numbers.get(&id) {
            Some(&number) => number,
            None => *self.numbers.entry(id).or_insert(next?),
        };
        self.last = Some((id, number));
        Ok(number)
    }

    /// The number of the device called `name`.
    pub(super) fn named(&mut self, name: &[u8]) -> Result<u32, TooMany> {
        if let Some(&number) = self.names.get(name) {
            return Ok(number);
        }
        let next = self.next()?;
        self.name_bytes += name.len();
        if self.name_bytes > NAME_BYTES_MAX {
            return Err(TooMany);
        }
        self.names.insert(name.into(), next);
        Ok(next)
    }

    /// The request for `bytes` from `offset` on of the device that the trace calls `id`.
    pub(super) fn request(
        &mut self,
        id: u64,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<Request>, String> {
        let device = self.number(id).map_err(|why| why.to_string())?;
        Request::blocks(device, offset, bytes).map_err(|why| why.to_string())
    }

    fn next(&self) -> Result<u32, TooMany> {
        let taken = u32::try_from(self.numbers.len() + self.names.len()).map_err(|_| TooMany)?;
        if taken < TABLE_MAX { Ok(KEPT + taken) } else { Err(TooMany) }
    }
}

/// Devices keep their own numbers below this one.
const KEPT: u32 = DEVICES_MAX / 2;
/// The capacity of the device table.
const TABLE_MAX: u32 = 1 << 16;
/// The longest name of a disk; names are kept in memory.
const NAME_BYTES_MAX: usize = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_are_kept_and_others_counted() {
        let mut devices = Devices::default();
        let mut number = |id| devices.number(id).ok();
        #[rustfmt::skip]
        let rows = [
            (0, Some(0)), (KEPT.into(), Some(KEPT)), (1 << 40, Some(KEPT + 1)), (7, Some(7)),
            (KEPT.into(), Some(KEPT)), (1 << 40, Some(KEPT + 1)), (u64::MAX, Some(KEPT + 2)),
        ];
        for (id, expected) in rows {
            assert_eq!(number(id), expected, "{id}");
        }
        assert_eq!(devices.named(b"sda").ok(), Some(KEPT + 3));
        assert_eq!(devices.named(b"sdb").ok(), Some(KEPT + 4));
        assert_eq!(devices.named(b"sda").ok(), Some(KEPT + 3));
    }

    #[test]
    fn too_many_are_refused_and_the_others_stay() {
        let mut devices = Devices::default();
        for id in 0..u64::from(TABLE_MAX) {
            assert!(devices.number(1 << 32 | id).is_ok());
        }
        assert!(devices.number(7 << 32).is_err() && devices.named(b"x").is_err());
        assert_eq!(devices.number(1 << 32).ok(), Some(KEPT));

        let mut devices = Devices::default();
        assert!(devices.named(&vec![b'a'; NAME_BYTES_MAX]).is_ok());
        assert!(devices.named(b"b").is_err(), "names are bounded, too");
    }
}
