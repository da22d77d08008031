//! Going over the tree in one order: what comes next, and what came before.
//!
//! ```text
//!   D: a  b/  c        next of a: b/     of b/ (listed): b/x     of b/y: c
//!         b: x  y      a directory that is not entered, or not listed yet, is one entry
//! ```
//! # Invariants
//! - Each step costs as much as the directories that it leaves; a pass over entries is bounded by
//!   its caller.

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
        let entered = sequence.first_entered().filter(|_| enters);
        if let Some(inner) = self.enter_from(order, at.dir, entered) {
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
                let entered = sequence.entered_after(above.index).filter(|_| enters);
                if let Some(inner) = self.enter_from(order, above.dir, entered) {
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

    /// The first entry in the directories of `dir` that are entered behind all entries, from
    /// `entered` on.
    fn enter_from(&self, order: usize, dir: u32, entered: Option<u16>) -> Option<Spot> {
        let mut entered = entered;
        while let Some(index) = entered {
            if let Some(inner) = self.first_in(order, Spot { dir, index }) {
                return Some(inner);
            }
            entered = self.sequence(dir, order)?.entered_after(index);
        }
        None
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
