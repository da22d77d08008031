//! Replies: what happened to a request, in bytes.
//!
//! ```text
//!   simple      magic 4 | error 4 | cookie 8 | data of READ
//!   chunk       magic 4 | flags 2 | type 2 | cookie 8 | length 4 | payload
//! ```
//! Heads are returned as arrays: the data that follow them are copied once, from the cache to the
//! socket.
//!
//! # Invariants
//! - The last chunk of a reply alone has the flag DONE; an error and `NONE` are always last.
//! - No chunk is empty: a hole, an extent and data have at least one byte.

use crate::{
    error::ErrorCode,
    wire::{
        BASE_ALLOCATION_ID, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX, STRUCTURED_REPLY_MAGIC, chunk,
        length,
    },
};

/// The bytes of a simple reply without its data.
pub const SIMPLE_BYTES: usize = 16;
/// The bytes of a chunk without its payload.
pub const CHUNK_BYTES: usize = 20;
/// The most extents of a chunk; the protocol's own bound is 2^20.
pub const EXTENTS_MAX: usize = 1 << 12;

/// A range of one state of `base:allocation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its bytes.
    pub bytes: u32,
    /// [`STATE_HOLE`](crate::wire::STATE_HOLE) and [`STATE_ZERO`](crate::wire::STATE_ZERO), or 0.
    pub state: u32,
}

/// A simple reply; after the success of a `READ` its data follow.
#[must_use]
pub fn simple(cookie: u64, error: Option<ErrorCode>) -> [u8; SIMPLE_BYTES] {
    let mut reply = [0; SIMPLE_BYTES];
    reply[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    reply[4..8].copy_from_slice(&error.map_or(0, ErrorCode::number).to_be_bytes());
    reply[8..].copy_from_slice(&cookie.to_be_bytes());
    reply
}

/// The chunk that says: done.
#[must_use]
pub fn none(cookie: u64) -> [u8; CHUNK_BYTES] {
    head(chunk::DONE, chunk::NONE, cookie, 0)
}

/// What stands before `bytes` of data from `offset` on; `done` if this chunk is the last.
///
/// # Panics
/// There are no data, or as many as no request asks for.
#[must_use]
pub fn data(cookie: u64, offset: u64, bytes: u32, done: bool) -> [u8; CHUNK_BYTES + 8] {
    assert!(bytes > 0, "a chunk of data has data");
    let payload = bytes.checked_add(8).expect("a payload is bounded");
    let mut reply = [0; CHUNK_BYTES + 8];
    let (first, rest) = reply.split_at_mut(CHUNK_BYTES);
    first.copy_from_slice(&head(u16::from(done), chunk::OFFSET_DATA, cookie, payload));
    rest.copy_from_slice(&offset.to_be_bytes());
    reply
}

/// The chunk that says: `bytes` zeroes from `offset` on.
///
/// # Panics
/// There are none.
#[must_use]
pub fn hole(cookie: u64, offset: u64, bytes: u32, done: bool) -> [u8; CHUNK_BYTES + 12] {
    assert!(bytes > 0, "a hole has bytes");
    let mut reply = [0; CHUNK_BYTES + 12];
    let (first, rest) = reply.split_at_mut(CHUNK_BYTES);
    first.copy_from_slice(&head(u16::from(done), chunk::OFFSET_HOLE, cookie, 12));
    rest[..8].copy_from_slice(&offset.to_be_bytes());
    rest[8..].copy_from_slice(&bytes.to_be_bytes());
    reply
}

/// Appends the chunk that says: failed, with a text for people.
pub fn error(out: &mut Vec<u8>, cookie: u64, error: ErrorCode, text: &str) {
    let text = clipped(text);
    out.extend(head(chunk::DONE, chunk::ERROR, cookie, length(6 + text.len())));
    out.extend(error.number().to_be_bytes());
    string16(out, text);
}

/// Appends the chunk that says: failed at `offset`, with a text for people.
pub fn error_at(out: &mut Vec<u8>, cookie: u64, error: ErrorCode, text: &str, offset: u64) {
    let text = clipped(text);
    out.extend(head(chunk::DONE, chunk::ERROR_OFFSET, cookie, length(14 + text.len())));
    out.extend(error.number().to_be_bytes());
    string16(out, text);
    out.extend(offset.to_be_bytes());
}

/// Appends the extents of `base:allocation`, as the last chunk of a reply.
///
/// # Panics
/// There are none, or too many, or one is empty.
pub fn block_status(out: &mut Vec<u8>, cookie: u64, extents: &[Extent]) {
    assert!((1..=EXTENTS_MAX).contains(&extents.len()), "{} extents", extents.len());
    assert!(extents.iter().all(|extent| extent.bytes > 0), "an extent has bytes");
    let payload = length(4 + 8 * extents.len());
    out.extend(head(chunk::DONE, chunk::BLOCK_STATUS, cookie, payload));
    out.extend(BASE_ALLOCATION_ID.to_be_bytes());
    for extent in extents {
        out.extend(extent.bytes.to_be_bytes());
        out.extend(extent.state.to_be_bytes());
    }
}

fn head(flags: u16, kind: u16, cookie: u64, payload: u32) -> [u8; CHUNK_BYTES] {
    let mut reply = [0; CHUNK_BYTES];
    reply[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    reply[4..6].copy_from_slice(&flags.to_be_bytes());
    reply[6..8].copy_from_slice(&kind.to_be_bytes());
    reply[8..16].copy_from_slice(&cookie.to_be_bytes());
    reply[16..].copy_from_slice(&payload.to_be_bytes());
    reply
}

fn string16(out: &mut Vec<u8>, text: &str) {
    out.extend(u16::try_from(text.len()).expect("a string is clipped").to_be_bytes());
    out.extend(text.as_bytes());
}

/// The beginning of `text` that fits a string of the protocol.
fn clipped(text: &str) -> &str {
    let mut end = text.len().min(STRING_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
