//! Requests of a trace, each over consecutive pages.
//!
//! ```text
//!   bytes  offset = 6000, bytes = 9000         pages of 4 KiB
//!   |....:....|....:####|#########|####:....|   first = 1, count = 3, skew = 1904
//! ```
//! A request [offset, offset + bytes) is one access to each block of 4 KiB that it touches, in
//! ascending order. The key of a block is `device << 44 | block`; a trace of objects has their
//! keys, which are all 64 bits.
//!
//! # Invariants
//! - A request has at least one page and at most [`REQUEST_BLOCKS_MAX`]; none reaches past the
//!   last page of its device.

use forerun_core::units::Nanos;

/// A request for consecutive pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The key of the first page.
    pub first: u64,
    /// The time of the request, by the trace's own clock; 0 where it has none.
    pub time: Nanos,
    /// Bytes requested, or the size of the object; 0 where the trace does not say.
    pub bytes: u64,
    /// Pages; at least 1.
    pub count: u32,
    /// Where in the first page it begins, in bytes.
    pub skew: u16,
    /// Whether it reads or writes.
    pub op: Op,
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// The trace does not say.
    Unknown,
}

/// What the keys of a trace are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Blocks of 4 KiB of a device.
    Blocks,
    /// Names of objects: nothing lies between two of them.
    Keys,
}

/// The facts that a format knows of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What the keys are.
    pub addresses: Addresses,
    /// Whether requests have times.
    pub times: bool,
    /// Whether requests have an operation.
    pub ops: bool,
    /// Whether requests have a length in bytes.
    pub sizes: bool,
}

impl Facts {
    /// Blocks of devices, of which all is known.
    pub(super) const BLOCKS: Self =
        Self { addresses: Addresses::Blocks, times: true, ops: true, sizes: true };
    /// Keys alone.
    pub(super) const KEYS: Self =
        Self { addresses: Addresses::Keys, times: false, ops: false, sizes: false };
}

/// The reason why bytes of a device are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    /// They reach past the last block that has a key.
    #[error("ends past byte 2^56 of its device")]
    PastEnd,
    /// They are more blocks than [`REQUEST_BLOCKS_MAX`].
    #[error("asks for more than {REQUEST_BLOCKS_MAX} blocks of 4 KiB")]
    TooLong,
}

impl Request {
    /// The request for `bytes` from `offset` on of `device`; none where `bytes` is 0.
    ///
    /// # Errors
    /// No block of the device has such a key, or they are too many.
    ///
    /// # Panics
    /// `device` is 2^20 or larger.
    pub fn blocks(device: u32, offset: u64, bytes: u64) -> Result<Option<Self>, Misplaced> {
        assert!(device < DEVICES_MAX, "20 bits are left for devices");
        if bytes == 0 {
            return Ok(None);
        }
        let last = offset.checked_add(bytes - 1).ok_or(Misplaced::PastEnd)? / BLOCK_BYTES;
        if last >> DEVICE_SHIFT != 0 {
            return Err(Misplaced::PastEnd);
        }
        let block = offset / BLOCK_BYTES;
        let count = last - block + 1;
        if count > REQUEST_BLOCKS_MAX {
            return Err(Misplaced::TooLong);
        }
        Ok(Some(Self {
            first: u64::from(device) << DEVICE_SHIFT | block,
            time: Nanos(0),
            bytes,
            count: u32::try_from(count).expect("at most REQUEST_BLOCKS_MAX"),
            skew: u16::try_from(offset % BLOCK_BYTES).expect("less than a block"),
            op: Op::Unknown,
        }))
    }

    /// The request for the object `key` of `bytes`.
    #[must_use]
    pub fn key(key: u64, bytes: u64) -> Self {
        Self { first: key, time: Nanos(0), bytes, count: 1, skew: 0, op: Op::Unknown }
    }

    /// This request with its `time` and operation `op`.
    #[must_use]
    pub fn at(self, time: Nanos, op: Op) -> Self {
        Self { time, op, ..self }
    }

    /// The keys of its pages.
    #[must_use]
    pub fn pages(&self) -> impl ExactSizeIterator<Item = u64> + use<> {
        let first = self.first;
        (0..self.count).map(move |page| first + u64::from(page))
    }

    /// The bytes requested of its page `at`, counted from 0; of an object all of its bytes.
    #[must_use]
    pub fn page_bytes(&self, at: u32) -> u64 {
        if self.count == 1 {
            return self.bytes;
        }
        let (begin, end) = (u64::from(self.skew), u64::from(self.skew) + self.bytes);
        let page = u64::from(at) * BLOCK_BYTES;
        end.min(page + BLOCK_BYTES).saturating_sub(begin.max(page))
    }

    /// The device, where keys are blocks.
    #[must_use]
    pub fn device(&self) -> u32 {
        u32::try_from(self.first >> DEVICE_SHIFT).expect("20 bits are left")
    }

    /// Where on its device it begins, in bytes, where keys are blocks.
    #[must_use]
    pub fn offset(&self) -> u64 {
        let block = self.first & ((1 << DEVICE_SHIFT) - 1);
        block * BLOCK_BYTES + u64::from(self.skew)
    }
}

/// Blocks of one request at most: 1 GiB. A longer one is a broken record.
pub const REQUEST_BLOCKS_MAX: u64 = 1 << 18;
/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 4096;
/// Bits of a block's number; the device stands above them.
pub(super) const DEVICE_SHIFT: u32 = 44;
/// Devices with a number of their own.
pub(crate) const DEVICES_MAX: u32 = 1 << (64 - DEVICE_SHIFT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_part_of_the_bytes() {
        let request = Request::blocks(0, 6_000, 9_000).unwrap().unwrap();
        let parts = [0, 1, 2, 3].map(|at| request.page_bytes(at));
        assert_eq!(parts, [2_192, 4_096, 2_712, 0]);
        assert_eq!(Request::key(7, 1 << 40).page_bytes(0), 1 << 40, "an object is whole");
        assert_eq!(Request::key(7, 0).page_bytes(0), 0);
    }

    #[test]
    fn bytes_become_the_blocks_that_they_touch() {
        #[rustfmt::skip]
        let rows = [ // why  offset  bytes  first, count, skew
            ("one block",           4096,  4096,  Ok(Some((1, 1, 0)))),
            ("one byte",            4095,  1,     Ok(Some((0, 1, 4095)))),
            ("two halves",          2048,  4096,  Ok(Some((0, 2, 2048)))),
            ("as in the picture",   6000,  9000,  Ok(Some((1, 3, 1904)))),
            ("nothing",             4096,  0,     Ok(None)),
            ("the longest",         0,     1 << 30, Ok(Some((0, 1 << 18, 0)))),
            ("longer",              0,     (1 << 30) + 1, Err(Misplaced::TooLong)),
            ("longer, by its place", 1,    1 << 30, Err(Misplaced::TooLong)),
            ("the last byte",       (1 << 56) - 1, 1, Ok(Some(((1 << 44) - 1, 1, 4095)))),
            ("past the last byte",  (1 << 56) - 1, 2, Err(Misplaced::PastEnd)),
            ("past 64 bits",        u64::MAX, 2,  Err(Misplaced::PastEnd)),
        ];
        for (why, offset, bytes, expected) in rows {
            let made = Request::blocks(0, offset, bytes);
            assert_eq!(made.map(|r| r.map(|r| (r.first, r.count, r.skew))), expected, "{why}");
            if let Ok(Some(request)) = Request::blocks(7, offset, bytes) {
                assert_eq!((request.device(), request.offset()), (7, offset), "{why}");
                assert_eq!(request.pages().len(), request.count as usize, "{why}");
                let parts: u64 = (0..request.count).map(|at| request.page_bytes(at)).sum();
                assert_eq!(parts, bytes, "{why}: every byte is of one page");
            }
        }
    }
}
