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

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;
    use crate::prng::Prng;
    use crate::walk::{Entry, EntryKind, ORDERS, WalkSettings};

    /// The directory of `dir` that is entered first, or first after `index`: each is looked at.
    fn entered(
        directories: &Directories,
        order: usize,
        dir: u32,
        index: Option<u16>,
    ) -> Option<u16> {
        let sequence = directories.sequence(dir, order)?;
        let rank = |index| sequence.rank(index, true);
        let all =
            (0..=u16::MAX).take_while(|&at| directories.row(Spot { dir, index: at }).is_some());
        let behind = all.filter(|&at| index.is_none_or(|index| rank(at) > rank(index)));
        let has_entries =
            |&at: &u16| directories.first_in(order, Spot { dir, index: at }).is_some();
        behind.filter(has_entries).min_by_key(|&at| rank(at))
    }

    #[test]
    fn what_is_entered_next_is_known_without_a_look_at_each_directory() {
        let settings = WalkSettings { directories_max: 12, ..WalkSettings::default() };
        let names: Vec<String> = (0..6).map(|at| format!("n{}", at * 5 % 6)).collect();
        let late = ORDERS.iter().position(|&name| name == "readdir-then-names").expect("it is one");
        let mut met = 0;
        for seed in 0..200 {
            let (mut chance, mut directories) = (Prng::new(seed), Directories::default());
            directories.register(None, &settings);
            for _ in 0..100 {
                let known: Vec<u32> = (0..12).filter(|&dir| directories.is_known(dir)).collect();
                let mut pick = |count: usize| {
                    usize::try_from(chance.below(count as u64)).expect("below a count")
                };
                let dir = known[pick(known.len())];
                match pick(4) {
                    0 | 1 => {
                        let name = names[pick(names.len())].as_bytes();
                        directories.register(Some((dir, name)), &settings);
                    }
                    2 => {
                        let kinds = [EntryKind::Directory, EntryKind::Directory, EntryKind::File];
                        let count = pick(names.len() + 1);
                        let listed: Vec<Entry<'_>> = names[..count]
                            .iter()
                            .map(|name| (name.as_bytes(), kinds[pick(3)]))
                            .map(|(name, kind)| Entry { name, inode: 1, kind })
                            .collect();
                        directories.unlist(dir);
                        directories.list(dir, &listed);
                    }
                    _ => drop(directories.unlist(dir)),
                }
                for dir in (0..12).filter(|&dir| directories.is_known(dir)) {
                    for index in [None, Some(0), Some(1), Some(2)] {
                        let is_there = |at| directories.row(Spot { dir, index: at }).is_some();
                        if index.is_some_and(|at| !is_there(at)) {
                            continue;
                        }
                        let expected = entered(&directories, late, dir, index);
                        let sequence = directories.sequence(dir, late);
                        let found = sequence.and_then(|sequence| sequence.listed_after(index));
                        assert_eq!(found, expected, "seed {seed}: {dir} after {index:?}");
                        met += usize::from(found.is_some());
                    }
                }
            }
        }
        assert!(met > 1_000, "{met}: directories in directories are listed");
    }
}
