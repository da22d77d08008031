//! The file format of journals.
//!
//! ```text
//!   file    run, run, ...                      one run a core; most files hold one
//!   run     line, text, block, block, ...
//!   line    forerun-journal format=00001 bytes=00000512 text=<16 hex> line=<16 hex>
//!   text    key=value lines: the version of the events, the core's settings
//!   block   mark (4) | bytes (u32) | events (u32) | sum (u64) | head's sum (u32) | payload
//!   payload group, group, ...
//!   group   events (varint) | bytes of actions (varint) | events | actions
//! ```
//!
//! A group is an event, the `Pinned` and `Settled` that its retractions led to, and all actions
//! of these. Numbers are little-endian; `forerun_core::event::codec` encodes events and actions.
//!
//! # Invariants
//! - A checksum covers each byte, and each block's head has its own: a wrong length is not mistaken
//!   for a file that was cut.
//! - A head's sum depends on the block or the text before it: no block can be lost or moved
//!   unnoticed.
//! - A block begins and ends at a whole group.

use std::hash::{BuildHasher as _, Hasher as _};

use forerun_core::hash::FixedState;

/// The version of the layout of a file.
pub const FORMAT: u32 = 1;

/// The first bytes of every journal.
pub(super) const MAGIC: &str = "forerun-journal format=";
/// The length of a run's first line.
pub(super) const LINE_BYTES: usize = 88;
/// The most bytes of a run's settings.
pub(super) const TEXT_BYTES_MAX: usize = 64 << 10;
/// The first bytes of a block.
pub(super) const MARK: [u8; 4] = *b"\nblk";
/// The bytes of a block's head, before its payload.
pub(super) const HEAD_BYTES: usize = 24;
/// A block ends with the group that brings it to this size.
pub(super) const BLOCK_BYTES: usize = 64 << 10;
/// The largest payload: writers create no larger one, and readers refuse one.
pub(super) const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// The checksum of `bytes`.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = FixedState.build_hasher();
    hasher.write_u64(bytes.len() as u64);
    hasher.write(bytes);
    hasher.finish()
}

/// The first line of a run whose settings are `bytes` of text with the checksum `sum`.
pub(super) fn line(bytes: usize, sum: u64) -> String {
    let line = format!("{MAGIC}{FORMAT:05} bytes={bytes:08} text={sum:016x} ");
    let line = format!("{line}line={:016x}\n", checksum(line.as_bytes()));
    assert_eq!(line.len(), LINE_BYTES, "the fields are of fixed width: {line}");
    line
}

/// The contents of a run's first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The length and the checksum of the settings.
    Text { bytes: usize, sum: u64 },
    /// Another format.
    Format(u32),
    /// Not a first line.
    Broken,
}

/// Reads a run's first line.
pub(super) fn parse_line(line: &[u8; LINE_BYTES]) -> Line {
    let Ok(text) = std::str::from_utf8(line) else { return Line::Broken };
    let Some(rest) = text.strip_prefix(MAGIC) else { return Line::Broken };
    let format = rest.get(..5).and_then(|digits| digits.parse().ok());
    match format {
        Some(FORMAT) => {}
        Some(other) => return Line::Format(other),
        None => return Line::Broken,
    }
    let field = |name: &str| text.split(' ').find_map(|field| field.strip_prefix(name));
    let bytes = field("bytes=").and_then(|digits| digits.parse().ok());
    let sum = field("text=").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let (Some(bytes), Some(sum)) = (bytes, sum) else { return Line::Broken };
    if bytes > TEXT_BYTES_MAX || self::line(bytes, sum) != text {
        return Line::Broken;
    }
    Line::Text { bytes, sum }
}

/// A block's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of the payload.
    pub(super) bytes: u32,
    /// Events of the payload.
    pub(super) events: u32,
    /// The payload's checksum.
    pub(super) sum: u64,
}

impl Head {
    /// The head of a block with this payload.
    pub(super) fn of(payload: &[u8], events: u32) -> Self {
        assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a payload of {} bytes", payload.len());
        let bytes = u32::try_from(payload.len()).expect("bounded above");
        Self { bytes, events, sum: checksum(payload) }
    }

    /// The encoded head, after a block or text whose checksum is `before`.
    pub(super) fn encode(self, before: u64) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&MARK);
        head[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        head[8..12].copy_from_slice(&self.events.to_le_bytes());
        head[12..20].copy_from_slice(&self.sum.to_le_bytes());
        let own = FixedState.hash_one((before, self.bytes, self.events, self.sum));
        head[20..].copy_from_slice(&own.to_le_bytes()[..4]);
        head
    }

    /// Decodes a head, if it follows `before`.
    pub(super) fn decode(head: &[u8; HEAD_BYTES], before: u64) -> Option<Self> {
        let (words, _) = head.as_chunks::<4>();
        let word = |at: usize| u32::from_le_bytes(words[at]);
        let sum = u64::from(word(4)) << 32 | u64::from(word(3));
        let decoded = Self { bytes: word(1), events: word(2), sum };
        let fits = decoded.bytes as usize <= PAYLOAD_BYTES_MAX;
        (fits && decoded.encode(before) == *head).then_some(decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_was_changed_or_moved_is_none() {
        let head = Head::of(b"payload", 3);
        let bytes = head.encode(7);
        assert_eq!(Head::decode(&bytes, 7), Some(head));
        assert_eq!(Head::decode(&bytes, 8), None, "it follows another block");
        for at in 0..HEAD_BYTES {
            let mut changed = bytes;
            changed[at] ^= 0x10;
            assert_eq!(Head::decode(&changed, 7), None, "byte {at}");
        }
        let large = Head { bytes: u32::MAX, ..head };
        assert_eq!(Head::decode(&large.encode(7), 7), None);
    }

    #[test]
    fn a_line_that_was_changed_is_another_format_or_broken() {
        let written = line(512, 0xabc);
        let bytes: [u8; LINE_BYTES] = written.as_bytes().try_into().unwrap();
        assert_eq!(parse_line(&bytes), Line::Text { bytes: 512, sum: 0xabc });
        for at in 0..LINE_BYTES {
            let mut changed = bytes;
            changed[at] ^= 1;
            let digits = MAGIC.len()..MAGIC.len() + 5;
            let parsed = parse_line(&changed);
            let expected = matches!(parsed, Line::Broken)
                || digits.contains(&at) && matches!(parsed, Line::Format(_));
            assert!(expected, "byte {at}: {parsed:?}");
        }
        let huge = line(TEXT_BYTES_MAX + 1, 0);
        assert_eq!(parse_line(huge.as_bytes().try_into().unwrap()), Line::Broken);
    }
}
