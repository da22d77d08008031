//! Orders in which programs visit the entries of a directory.
//!
//! An order is a comparison of two entries; entries that compare equal stay in the order of
//! readdir. Most programs go by readdir, sort by name or inode, or do so with the directories
//! after all else.
//!
//! Most programs enter a directory when they come to its entry. Some look at all entries first;
//! such an order has `ENTRIES`, the order of these, beside the one in which directories are
//! entered.
//!
//! To add an order: write `order/NAME.rs` with its `NAME`, `compare` and `ENTRIES`, its line in
//! `orders!` below, and its definition in the model of `tests/walk/orders.rs`.
//!
//! # Invariants
//! - Every order is a permutation of all entries of a directory.
//! - Among orders that fit equally well, the first of the list is taken.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Bound;

use super::{Entry, EntryKind};

/// Compares two entries of a directory.
type Compare = fn(&Entry<'_>, &Entry<'_>) -> Ordering;

macro_rules! orders {
    ($($module:ident),+ $(,)?) => {
        $(mod $module;)+

        /// Every order's name.
        pub const NAMES: &[&str] = &[$($module::NAME),+];

        const COMPARES: &[(Compare, Option<Compare>)] =
            &[$(($module::compare, $module::ENTRIES)),+];
    };
}

orders! {
    readdir,
    name,
    inode,
    numeric,
    readdir_files_first,
    name_files_first,
    readdir_then_names,
}

/// How many orders there are.
pub(super) const COUNT: usize = NAMES.len();

/// The entries in one order.
#[derive(Debug)]
pub(super) struct Sequence {
    entries: Permutation,
    /// The order in which directories are entered, where that is behind all entries.
    entered: Option<Entered>,
    /// Whether inodes ascend in this order; none of few entries.
    is_by_place: Option<bool>,
}

/// Directories that are entered behind all entries.
#[derive(Debug)]
struct Entered {
    permutation: Permutation,
    /// The ranks of those in which something is listed.
    listed: BTreeSet<u16>,
}

/// Which entry comes at a rank, and which rank an entry has.
#[derive(Debug)]
struct Permutation {
    at: Vec<u16>,
    rank: Vec<u16>,
}

impl Permutation {
    /// `entries` sorted by `compare`. It takes little more than one pass where `guess`, some order
    /// of them, is nearly that.
    fn new(compare: Compare, entries: &[Entry<'_>], guess: Option<&Self>) -> Self {
        let entry = |index: u16| &entries[usize::from(index)];
        let compare = |a: &u16, b: &u16| compare(entry(*a), entry(*b)).then(a.cmp(b));
        let fits = |guess: &&Self| {
            let step = (entries.len() / SAMPLES).max(1);
            guess.at.windows(2).step_by(step).all(|pair| compare(&pair[0], &pair[1]).is_lt())
        };
        let guess = guess.filter(fits).map(|guess| guess.at.clone());
        let mut at = guess.unwrap_or_else(|| (0..=u16::MAX).take(entries.len()).collect());
        at.sort_by(compare);
        let mut rank = alloc::vec![0; at.len()];
        for (place, &index) in (0..=u16::MAX).zip(&at) {
            rank[usize::from(index)] = place;
        }
        Self { at, rank }
    }

    /// See [`ascends`].
    fn is_by_place(&self, entries: &[Entry<'_>]) -> Option<bool> {
        let inode = |index: u16| entries[usize::from(index)].inode;
        ascends(self.at.windows(2).map(|step| [inode(step[0]), inode(step[1])]))
    }

    fn after(&self, index: u16) -> Option<u16> {
        self.at.get(usize::from(self.rank[usize::from(index)]) + 1).copied()
    }
}

impl Sequence {
    /// `entries` in every order.
    pub(super) fn all(entries: &[Entry<'_>]) -> Vec<Self> {
        assert!(entries.len() <= 1 << 16, "an index fits 16 bits");
        // Most orders are of names in some way, which take longest to compare.
        let names = Permutation::new(name::compare, entries, None);
        COMPARES.iter().map(|&order| Self::new(order, entries, &names)).collect()
    }

    fn new(
        (compare, before): (Compare, Option<Compare>),
        entries: &[Entry<'_>],
        names: &Permutation,
    ) -> Self {
        let permutation = Permutation::new(compare, entries, Some(names));
        let Some(before) = before else {
            let is_by_place = permutation.is_by_place(entries);
            return Self { entries: permutation, entered: None, is_by_place };
        };
        let entered = Some(Entered { permutation, listed: BTreeSet::new() });
        let permutation = Permutation::new(before, entries, Some(names));
        let is_by_place = permutation.is_by_place(entries);
        Self { entries: permutation, entered, is_by_place }
    }

    /// Whether a program that goes in this order goes by the places of the entries on a disk;
    /// where that cannot be told from chance, none.
    pub(super) fn is_by_place(&self) -> Option<bool> {
        self.is_by_place
    }

    /// The first entry, if there is one.
    pub(super) fn first(&self) -> Option<u16> {
        self.entries.at.first().copied()
    }

    /// The entry after `index`, if it is not the last.
    pub(super) fn after(&self, index: u16) -> Option<u16> {
        self.entries.after(index)
    }

    /// Whether directories are entered behind all entries.
    pub(super) fn enters_late(&self) -> bool {
        self.entered.is_some()
    }

    /// Something is listed in the directory `index` from now on, or nothing any more.
    pub(super) fn set_listed(&mut self, index: u16, is_listed: bool) {
        let Some(Entered { permutation, listed }) = &mut self.entered else { return };
        let rank = permutation.rank[usize::from(index)];
        if is_listed {
            listed.insert(rank);
        } else {
            listed.remove(&rank);
        }
        assert!(listed.len() <= permutation.at.len(), "a directory is an entry");
    }

    /// The directory with something listed that is entered first, or first after `index`, where
    /// they are entered behind all entries.
    pub(super) fn listed_after(&self, index: Option<u16>) -> Option<u16> {
        let Entered { permutation, listed } = self.entered.as_ref()?;
        let after = index.map_or(Bound::Unbounded, |index| {
            Bound::Excluded(permutation.rank[usize::from(index)])
        });
        let &rank = listed.range((after, Bound::Unbounded)).next()?;
        Some(permutation.at[usize::from(rank)])
    }

    /// Where the entry `index` comes in its directory, or, if it is `entered`, what lies in it.
    pub(super) fn rank(&self, index: u16, entered: bool) -> (bool, u16) {
        match &self.entered {
            Some(late) if entered => (true, late.permutation.rank[usize::from(index)]),
            _ => (false, self.entries.rank[usize::from(index)]),
        }
    }
}

/// Whether at least three of four `steps` lead to a higher place: by chance it is half of them.
/// None of few.
pub(crate) fn ascends(steps: impl IntoIterator<Item = [u64; 2]>) -> Option<bool> {
    let (mut ascents, mut count) = (0, 0);
    for [from, to] in steps {
        ascents += usize::from(from < to);
        count += 1;
    }
    assert!(ascents <= count, "an ascent is a step");
    (count >= STEPS_MIN).then_some(ascents * 4 >= count * 3)
}

/// Pairs of entries that are compared to know whether all are in some order.
const SAMPLES: usize = 64;
/// Fewer steps ascend by chance.
const STEPS_MIN: usize = 7;

/// Directories after all else.
fn files_first(a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
    let is_directory = |entry: &Entry<'_>| entry.kind == EntryKind::Directory;
    is_directory(a).cmp(&is_directory(b))
}
