//! Spare memory: of caches that were dropped, kept for the next one.
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
//! - No more than the bound is kept; neighbours that were mapped together are one piece. What does
//!   not fit goes back to the system.
//! - What is taken holds whatever its last owner left.
//! # Locking
//! One lock for the process, held while pieces are unmapped, and never with another.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::mapping::{HUGE_BYTES, Mapping};

/// Pieces of memory, of whole huge pages each, in the order of their addresses.
pub(super) struct Spare {
    pieces: Vec<Mapping>,
    bytes_max: usize,
}

impl Spare {
    const fn new(bytes_max: usize) -> Self {
        Self { pieces: Vec::new(), bytes_max }
    }

    fn bytes(&self) -> usize {
        self.pieces.iter().map(Mapping::bytes).sum()
    }

    /// `bytes` of memory; the caller owns them now.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Mapping> {
        let fits = self.pieces.iter_mut().filter(|piece| piece.bytes() >= bytes);
        let taken = fits.min_by_key(|piece| piece.bytes())?.split_off_front(bytes);
        self.pieces.retain(|piece| piece.bytes() > 0);
        Some(taken)
    }

    /// Keeps what fits.
    pub(super) fn give(&mut self, given: Mapping) {
        assert!(given.bytes().is_multiple_of(HUGE_BYTES), "pieces are of whole huge pages");
        let at = self.pieces.partition_point(|piece| piece.base() < given.base());
        self.pieces.insert(at, given);
        for piece in std::mem::take(&mut self.pieces) {
            let joined = match self.pieces.last_mut() {
                Some(last) => last.join(piece),
                None => Err(piece),
            };
            self.pieces.extend(joined.err());
        }
        self.shrink();
    }

    /// Keeps at most `bytes` from now on, in whole huge pages.
    fn bound(&mut self, bytes: usize) {
        self.bytes_max = bytes - bytes % HUGE_BYTES;
        self.shrink();
    }

    /// Gives back to the system what is more than the bound.
    fn shrink(&mut self) {
        while self.bytes() > self.bytes_max {
            let excess = self.bytes() - self.bytes_max;
            let Some(mut last) = self.pieces.pop() else { return };
            let kept = last.bytes().saturating_sub(excess);
            drop(last.split_off(kept));
            self.pieces.extend((kept > 0).then_some(last));
        }
        assert!(self.bytes() <= self.bytes_max, "no more is kept than the bound");
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
    use super::{super::mapping::HUGE_BYTES as HUGE, *};

    fn sizes(spare: &Spare) -> Vec<usize> {
        spare.pieces.iter().map(|piece| piece.bytes() / HUGE).collect()
    }

    #[test]
    fn the_smallest_that_is_large_enough_is_cut_and_neighbours_join() {
        let mut spare = Spare::new(8 * HUGE);
        assert!(spare.take(HUGE).is_none(), "nothing is there");
        let mut all = Mapping::new(5 * HUGE, HUGE).unwrap();
        let base = all.base();
        let at = |count: usize| Some(base.addr().get() + count * HUGE);
        let address = |mapping: &Mapping| mapping.base().addr().get();
        let mut parts = [1, 2, 2].map(|count| Some(all.split_off_front(count * HUGE)));
        spare.give(parts[2].take().unwrap());
        spare.give(parts[0].take().unwrap());
        assert_eq!(sizes(&spare), [1, 2]);
        let first = spare.take(HUGE);
        assert_eq!(first.as_ref().map(address), at(0));
        let cut = spare.take(HUGE);
        assert_eq!(cut.as_ref().map(address), at(3), "cut");
        assert!(spare.take(2 * HUGE).is_none(), "too large");
        for part in [first, parts[1].take(), cut] {
            spare.give(part.unwrap());
        }
        assert_eq!(sizes(&spare), [5], "all in one");
        let whole = spare.take(5 * HUGE);
        assert_eq!(whole.as_ref().map(address), at(0));
        spare.give(whole.unwrap());
        spare.bound(HUGE - 1);
        assert_eq!(sizes(&spare), []);
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let mut spare = Spare::new(3 * HUGE);
        for _ in 0..3 {
            spare.give(Mapping::new(2 * HUGE, HUGE).unwrap());
            assert!(spare.bytes() <= 3 * HUGE);
        }
        assert_eq!(spare.bytes(), 3 * HUGE);
        spare.bound(2 * HUGE - 1);
        assert_eq!(sizes(&spare), [1], "whole huge pages");
        spare.bound(0);
    }
}
