//! Memory of caches that are gone, kept for the next one.
//!
//! ```text
//!   given   |=======A=======|      |==B==|
//!   taken   |--new--|===A===|      |==B==|      the smallest that is large enough, cut
//! ```
//! Memory that the system gives anew costs as much as several copies of it: it is zeroed, and on a
//! virtual machine the host may have to find it first. Files that are opened one after the other
//! use the same.
//!
//! # Invariants
//! - No more than the bound is kept; neighbours are one piece. What does not fit goes back to the
//!   system.
//! - What is taken holds whatever its last owner left.
//! # Locking
//! One lock for the process, held while pieces are unmapped and never with another.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm;

use super::arena::HUGE_BYTES;

/// Pieces of memory, of whole huge pages each.
pub(super) struct Spare {
    pieces: Vec<Piece>,
    bytes_max: usize,
}

struct Piece {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a piece is a mapping that nobody refers to; it belongs to no thread.
unsafe impl Send for Piece {}

impl Spare {
    const fn new(bytes_max: usize) -> Self {
        Self { pieces: Vec::new(), bytes_max }
    }

    fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }

    /// `bytes` of memory; the caller owns them now.
    pub(super) fn take(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let fits = self.pieces.iter_mut().filter(|piece| piece.bytes >= bytes);
        let piece = fits.min_by_key(|piece| piece.bytes)?;
        let base = piece.base;
        // SAFETY: the piece is at least as long.
        piece.base = unsafe { base.add(bytes) };
        piece.bytes -= bytes;
        self.pieces.retain(|piece| piece.bytes > 0);
        Some(base)
    }

    /// Keeps what fits.
    ///
    /// # Safety
    /// `bytes` from `base` on are a mapping, or several, that the caller owns and nobody refers to.
    pub(super) unsafe fn give(&mut self, base: NonNull<u8>, bytes: usize) {
        let given = Piece { base, bytes };
        let at = self.pieces.partition_point(|piece| piece.base < base);
        self.pieces.insert(at, given);
        self.pieces.dedup_by(|next, piece| {
            let joins = piece.base.addr().get() + piece.bytes == next.base.addr().get();
            piece.bytes += if joins { next.bytes } else { 0 };
            joins
        });
        self.shrink();
    }

    /// Keeps at most `bytes` from now on, in whole huge pages.
    fn bound(&mut self, bytes: usize) {
        self.bytes_max = bytes - bytes % HUGE_BYTES;
        self.shrink();
    }

    /// Gives back to the system what is more than the bound.
    fn shrink(&mut self) {
        let mut excess = self.bytes().saturating_sub(self.bytes_max);
        while excess > 0
            && let Some(piece) = self.pieces.last_mut()
        {
            let gone = excess.min(piece.bytes);
            piece.bytes -= gone;
            excess -= gone;
            // SAFETY: `gone` bytes behind those that stay were of the piece, and nobody refers to
            // a piece.
            let unmapped = unsafe { mm::munmap(piece.base.as_ptr().add(piece.bytes).cast(), gone) };
            assert!(unmapped.is_ok(), "a mapping of our own can be given back: {unmapped:?}");
            self.pieces.retain(|piece| piece.bytes > 0);
        }
    }
}

/// Keeps at most `bytes` of memory from now on; 0: none. It is `BYTES_MAX` at first.
pub fn spare_bytes_max(bytes: usize) {
    spare().bound(bytes);
}

/// The process's.
pub(super) fn spare() -> MutexGuard<'static, Spare> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

static SPARE: Mutex<Spare> = Mutex::new(Spare::new(BYTES_MAX));
/// As much as one cache takes by default.
const BYTES_MAX: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::super::arena::{HUGE_BYTES as HUGE, map};
    use super::*;

    fn given(spare: &mut Spare, base: NonNull<u8>, huge_pages: usize) {
        // SAFETY: the tests map what they give, and forget it.
        unsafe { spare.give(base, huge_pages * HUGE) };
    }

    fn sizes(spare: &Spare) -> Vec<usize> {
        spare.pieces.iter().map(|piece| piece.bytes / HUGE).collect()
    }

    #[test]
    fn the_smallest_that_is_large_enough_is_cut_and_neighbours_join() {
        let mut spare = Spare::new(8 * HUGE);
        assert_eq!(spare.take(HUGE), None, "nothing is there");
        let base = map(5 * HUGE, HUGE).unwrap();
        // SAFETY: within what was mapped.
        let at = |count: usize| unsafe { base.add(count * HUGE) };
        given(&mut spare, at(3), 2);
        given(&mut spare, at(0), 1);
        assert_eq!(sizes(&spare), [1, 2]);
        assert_eq!(spare.take(HUGE), Some(at(0)));
        assert_eq!(spare.take(HUGE), Some(at(3)), "cut");
        assert_eq!(spare.take(2 * HUGE), None, "too large");
        for (from, count) in [(0, 1), (1, 2), (3, 1)] {
            given(&mut spare, at(from), count);
        }
        assert_eq!(sizes(&spare), [5], "all in one");
        assert_eq!(spare.take(5 * HUGE), Some(base));
        given(&mut spare, base, 5);
        spare.bound(HUGE - 1);
        assert_eq!(sizes(&spare), []);
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let mut spare = Spare::new(3 * HUGE);
        for _ in 0..3 {
            given(&mut spare, map(2 * HUGE, HUGE).unwrap(), 2);
            assert!(spare.bytes() <= 3 * HUGE);
        }
        assert_eq!(spare.bytes(), 3 * HUGE);
        spare.bound(2 * HUGE - 1);
        assert_eq!(sizes(&spare), [1], "whole huge pages");
        spare.bound(0);
    }
}
