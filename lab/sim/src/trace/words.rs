//! Keys as binary words, one after the other: 32 or 64 bits, either end first.
//!
//! ```text
//!   0f 27 00 00 | 10 27 00 00        u32le: 9999, 10000
//! ```
//! Signed words are keys by their bits; only equality matters.

use super::records::{Format, Step};
use super::{Facts, Request};

/// Words of one width and order.
pub(super) struct Words<const BYTES: usize>(pub(super) fn([u8; BYTES]) -> u64);

impl<const BYTES: usize> Format for Words<BYTES> {
    const IS_TEXT: bool = false;

    fn parse(&mut self, bytes: &[u8], _: bool) -> Step {
        match bytes.first_chunk() {
            Some(word) => Step::Request(BYTES, Request::key((self.0)(*word), 0)),
            None => Step::More,
        }
    }

    fn facts(&self) -> Facts {
        Facts::KEYS
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::tests::{broken, keys};

    #[test]
    fn words_are_keys() {
        let bytes = [1, 0, 0, 0, 0, 0, 0, 0x80];
        #[rustfmt::skip]
        let rows: [(&str, &[u64]); 4] = [
            ("u32le", &[1, 0x8000_0000]),
            ("u32be", &[0x0100_0000, 0x80]),
            ("i64le", &[0x8000_0000_0000_0001]),
            ("i64be", &[0x0100_0000_0000_0080]),
        ];
        for (format, expected) in rows {
            assert_eq!(keys(format, bytes), expected, "{format}");
            assert!(keys(format, "").is_empty(), "{format}");
            let (whole, cut) = (expected.len() as u64, bytes.len() - 1);
            let offset = if whole == 1 { 0 } else { 4 };
            broken(format, &bytes[..cut], whole, offset, "the trace ends within it");
        }
    }
}
