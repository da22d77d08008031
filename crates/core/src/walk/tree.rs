//! Going over the tree in one order: what comes next, and what came before.
//!
//! ```text
//!   D: a  b/  c        next of a: b/     of b/ (listed): b/x     of b/y: c
//!         b: x  y      a directory that is not entered, or not listed yet, is one entry
//! ```
//! # Invariants
//! - Each step costs as much as the directories that it leaves, however many of those beside them
//!   are not listed; a pass over entries is bounded by its caller.

use super::Spot;
use super::directories::Directories;

/// A spot and all that it lies in, innermost first.
pub(super) struct Chain {
    spots: [Spot; DEPTH_MAX],
    count: usize,
}

impl Chain {
    pub(super) fn new(directories: &Directories, spot: Spot) -> Self {
        let mut chain = Self { spots: [spot; DEPTH_MAX], count: 1 };
        while let Some(above) = directories.spot_of(chain.spots[chain.count - 1].dir) {
            if chain.count == DEPTH_MAX {
                break;
            }
            chain.spots[chain.count] = above;
            chain.count += 1;
        }
        chain
    }

    /// The entry of the chain that lies in `dir`.
    pub(super) fn in_directory(&self, dir: u32) -> Option<Spot> {
        self.spots[..self.count].iter().copied().find(|spot| spot.dir == dir)
    }
}

impl Directories {
    /// The entry after `at` in `order`. Listed directories are entered if `enters`; the end of
    /// `top`, if one is given, is the end.
    pub(super) fn next(
        &self,
        order: usize,
        at: Spot,
        enters: bool,
        top: Option<u32>,
    ) -> Option<Spot> {
        let sequence = self.sequence(at.dir, order)?;
        if enters
            && !sequence.enters_late()
            && let Some(inner) = self.first_in(order, at)
        {
            return Some(inner);
        }
        if let Some(index) = sequence.after(at.index) {
            return Some(Spot { dir: at.dir, index });
        }
        if enters && let Some(inner) = self.enter_after(order, at.dir, None) {
            return Some(inner);
        }
        self.after_directory(order, at.dir, enters, top)
    }

    /// The entry that comes when all in `dir` is done.
    fn after_directory(
        &self,
        order: usize,
        dir: u32,
        enters: bool,
        top: Option<u32>,
    ) -> Option<Spot> {
        let mut dir = dir;
        while top != Some(dir) {
            let above = self.spot_of(dir)?;
            let sequence = self.sequence(above.dir, order)?;
            if sequence.enters_late() {
                if enters && let Some(inner) = self.enter_after(order, above.dir, Some(above.index))
                {
                    return Some(inner);
                }
            } else if let Some(index) = sequence.after(above.index) {
                return Some(Spot { dir: above.dir, index });
            }
            dir = above.dir;
        }
        None
    }

    /// The first entry in the directory at `spot`, if it is listed and has one.
    fn first_in(&self, order: usize, spot: Spot) -> Option<Spot> {
        let dir = self.child(spot)?;
        let index = self.sequence(dir, order)?.first()?;
        Some(Spot { dir, index })
    }

    /// The first entry in the directories of `dir` that are entered behind all entries, from that
    /// after `index` on.
    fn enter_after(&self, order: usize, dir: u32, index: Option<u16>) -> Option<Spot> {
        let index = self.sequence(dir, order)?.listed_after(index)?;
        let inner = self.first_in(order, Spot { dir, index });
        assert!(inner.is_some(), "something is listed there");
        inner
    }

    /// Whether `spot` comes before the entry that `chain` belongs to. A directory comes before what
    /// lies in it; what has no directory in common with the chain is past.
    pub(super) fn is_before(&self, order: usize, spot: Spot, chain: &Chain) -> bool {
        let (mut at, mut is_inner) = (spot, false);
        loop {
            if let Some(other) = chain.in_directory(at.dir) {
                let is_own = chain.spots[0] == other;
                if other.index == at.index {
                    return !is_inner && !is_own;
                }
                let rank =
                    |index, entered| self.sequence(at.dir, order).map(|it| it.rank(index, entered));
                return rank(at.index, is_inner) < rank(other.index, !is_own);
            }
            let Some(above) = self.spot_of(at.dir) else { return true };
            (at, is_inner) = (above, true);
        }
    }

    /// Whether `dir` is `top` or lies in it.
    pub(super) fn is_within(&self, dir: u32, top: u32) -> bool {
        let mut next = Some(dir);
        while let Some(dir) = next {
            if dir == top {
                return true;
            }
            next = self.spot_of(dir).map(|spot| spot.dir);
        }
        false
    }
}

/// Directories above an entry that are compared; what lies deeper counts as being elsewhere.
const DEPTH_MAX: usize = 64;
