//! A store of any size whose every byte follows from its offset: nothing is kept, all of it can
//! be checked.
//!
//! The 8 bytes at a multiple of 8 are a mix of its offset, little end first, so that a page in
//! the wrong place, a torn page and a page of zeros all show. Words rather than bytes, so that
//! filling and checking run at the speed of memory.
//!
//! ```text
//!   offset   0        8        16
//!            |mix(0)..|mix(8)..|mix(16)..
//!                 ^-- a run may begin and end anywhere
//! ```
//!
//! # Invariants
//! - [`fill`] depends on offsets only, never on where a run begins.
//! - It never changes: traces and reports name it.
//! # Sources
//! The mix is two rounds of multiply and xor-shift, as in the finaliser of `MurmurHash3`
//! (Appleby 2011), with other constants.

use std::sync::Arc;

use rustix::io::Errno;

use super::{Completion, Op, OpKind, Queue, QueueKind, Store, StoreError};
use crate::queue::{Carry, open};

/// `bytes` of the pattern: a write that would change one of them fails with `EROFS`.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    bytes: u64,
}

impl Pattern {
    /// A store of `bytes`.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { bytes }
    }
}

/// Writes the pattern at `offset` into `run`. Offsets wrap after 2^64.
pub fn fill(offset: u64, run: &mut [u8]) {
    let (head, words) = split(offset, run.len());
    let (run, last) = run.split_at_mut(head + words);
    let (first, run) = run.split_at_mut(head);
    fill_bytes(offset, first);
    let mut at = offset.wrapping_add(head as u64);
    for word in run.chunks_exact_mut(8) {
        word.copy_from_slice(&mix(at).to_le_bytes());
        at = at.wrapping_add(8);
    }
    fill_bytes(at, last);
}

/// Compares `run` with the pattern at `offset`.
///
/// # Errors
/// The offset, in the store, of the first byte that differs.
pub fn verify(offset: u64, run: &[u8]) -> Result<(), u64> {
    let mut expected = [0; CHUNK_BYTES];
    for (count, chunk) in run.chunks(CHUNK_BYTES).enumerate() {
        let at = offset.wrapping_add((count * CHUNK_BYTES) as u64);
        let expected = &mut expected[..chunk.len()];
        fill(at, expected);
        if chunk != expected {
            let same = chunk.iter().zip(expected.iter()).take_while(|(a, b)| a == b).count();
            return Err(at.wrapping_add(same as u64));
        }
    }
    Ok(())
}

impl Store for Pattern {
    fn bytes(&self) -> Result<u64, StoreError> {
        Ok(self.bytes)
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        open(*self, kind)
    }
}

impl Carry for Pattern {
    type Plan = ();

    fn carry(&self, mut op: Op, (): ()) -> Completion {
        let result = match op.kind {
            OpKind::Read => Ok(self.read(&mut op)),
            OpKind::Write => self.write(&op),
            OpKind::Sync => Ok(0),
        };
        Completion { op, result }
    }
}

impl Pattern {
    /// The bytes are there, or are refused.
    fn write(self, op: &Op) -> Result<usize, i32> {
        let end = op.offset.checked_add(op.bytes as u64);
        let mut at = op.offset;
        let mut is_same = |piece: &[u8]| {
            let same = verify(at, piece).is_ok();
            at = at.wrapping_add(piece.len() as u64);
            same
        };
        let within = end.is_some_and(|end| end <= self.bytes);
        let same = within && op.pieces().all(&mut is_same);
        if same { Ok(op.bytes) } else { Err(Errno::ROFS.raw_os_error()) }
    }

    fn read(self, op: &mut Op) -> usize {
        let left = self.bytes.saturating_sub(op.offset);
        let moved = usize::try_from(left).map_or(op.bytes, |left| left.min(op.bytes));
        let (mut at, mut rest) = (op.offset, moved);
        for piece in op.pieces_mut() {
            let now = piece.len().min(rest);
            fill(at, &mut piece[..now]);
            at = at.wrapping_add(now as u64);
            rest -= now;
        }
        op.zero_past(moved);
        moved
    }
}

/// The bytes of a run before its first whole word, and those in whole words.
fn split(offset: u64, bytes: usize) -> (usize, usize) {
    let head = usize::try_from(offset.wrapping_neg() % 8).expect("below 8").min(bytes);
    let words = (bytes - head) / 8 * 8;
    assert!(bytes - head - words < 8, "a tail is less than a word");
    (head, words)
}

/// As [`fill`] for a run inside one word.
fn fill_bytes(offset: u64, run: &mut [u8]) {
    let word = mix(offset & !7).to_le_bytes();
    let from = usize::try_from(offset % 8).expect("below 8");
    run.copy_from_slice(&word[from..from + run.len()]);
}

/// The word at `offset`: another one at each, as both rounds can be undone.
fn mix(offset: u64) -> u64 {
    let mut word = (offset ^ 0x6a09_e667_f3bc_c908).wrapping_mul(0x9fb2_1c65_1e98_df25);
    word ^= word >> 32;
    word = word.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    word ^ (word >> 29)
}

/// How much [`verify`] computes before it compares: stays in the first-level cache.
const CHUNK_BYTES: usize = 4_096;
const _: () = assert!(CHUNK_BYTES.is_multiple_of(8), "a chunk is of whole words");
