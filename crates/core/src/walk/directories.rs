//! The directories that are known: how they hang together, what is listed of them, and which
//! entries were used or requested.
//!
//! Names stay with the driver. Here an entry is the hash of its name, its class, its rank in each
//! order, and the deepest level to which it was used and requested.
//!
//! ```text
//!   slot --parent, name's hash--> slot          children: (slot, name's hash) --> slot
//!    \--listing--> rows by index, indices by hash, one Sequence an order
//! ```
//! # Invariants
//! - At most `directories_max` slots, `entries_max` rows in a listing, `entries_all_max` in all.
//! - A parent is registered before its children, so there is no circle.
//! - A directory that leaves the table leaves no link behind.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};

use super::order::Sequence;
use super::{Entry, EntryKind, Settings, Spot};
use crate::hash::FixedState;

/// What is known of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    hash: u64,
    pub(super) kind: EntryKind,
    /// Entries of a class are used alike: those of a kind and, for files, of a suffix.
    pub(super) class: u8,
    /// How deep the program has used it.
    pub(super) used: Level,
    /// How deep it was requested.
    pub(super) requested: Level,
    /// The walk whose request for it is not settled.
    pub(super) owner: Option<u8>,
}

/// How much of an entry is used or fetched; each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    #[default]
    Nothing,
    Inode,
    /// The head of a file, the listing of a directory.
    Head,
    Whole,
}

#[derive(Debug)]
struct Listing {
    rows: Vec<Row>,
    /// Indices in the order of their hashes.
    by_hash: Vec<u16>,
    sequences: Vec<Sequence>,
}

#[derive(Debug, Default)]
struct Directory {
    parent: Option<(u32, u64)>,
    /// Its entry in its parent, while the parent is listed.
    spot: Option<Spot>,
    listing: Option<Listing>,
    /// Hashes of names that were used while there was no listing, the last ones.
    unlisted: VecDeque<u64>,
    is_requested: bool,
    /// Listings that failed, one after the other.
    failures: u8,
    /// Uses until the listing is worth requesting again.
    waits: u16,
    /// The first entry whose read was told: each one is told from there on.
    told_from: Option<u16>,
    last_use: u64,
}

/// What a name means in a directory.
pub(super) enum Lookup {
    Found(Spot),
    /// There is no entry of this name in the listing.
    Absent,
    /// There is no listing.
    Unlisted,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Directories {
    slots: Vec<Option<Directory>>,
    children: BTreeMap<(u32, u64), u32>,
    uses: u64,
    entries: usize,
    /// Directories with a listing.
    listed: usize,
    /// Listings that were dropped.
    dropped: u64,
}

impl Directories {
    /// The directory of this name in `parent`, which is added if it is not known. Also returns
    /// whether a slot was taken from another directory.
    pub(super) fn register(
        &mut self,
        parent: Option<(u32, &[u8])>,
        settings: &Settings,
    ) -> (u32, bool) {
        let parent = parent.map(|(slot, name)| (slot, hash(name)));
        if let Some(&slot) = parent.as_ref().and_then(|key| self.children.get(key)) {
            return (slot, false);
        }
        // What a directory lies in is not what gives way to it.
        if let Some((above, _)) = parent {
            assert!(self.is_known(above), "a parent is registered before its children");
            self.renew(above);
        }
        let room = self.slots.len() < settings.directories_max as usize;
        let (slot, taken) = if room {
            self.slots.push(None);
            (self.slots.len() - 1, false)
        } else {
            let kept = parent.map(|(slot, _)| slot as usize);
            let used = |slot: &usize| self.slots[*slot].as_ref().map_or(0, |it| it.last_use);
            let slots = (0..self.slots.len()).filter(|&slot| Some(slot) != kept);
            let slot = slots.min_by_key(used).expect("the table has two slots and more");
            self.remove(slot);
            (slot, true)
        };
        let slot_id = u32::try_from(slot).expect("the table is bounded");
        self.uses += 1;
        let mut directory = Directory { parent, last_use: self.uses, ..Directory::default() };
        if let Some(key) = parent {
            directory.spot = self.find(key.0, key.1);
            self.children.insert(key, slot_id);
        }
        self.slots[slot] = Some(directory);
        (slot_id, taken)
    }

    fn remove(&mut self, slot: usize) {
        let id = u32::try_from(slot).expect("the table is bounded");
        self.unlist(id);
        let Some(directory) = self.slots[slot].take() else { return };
        if let Some(key) = directory.parent {
            self.children.remove(&key);
        }
        let own = (id, 0)..=(id, u64::MAX);
        let children: Vec<_> =
            self.children.range(own).map(|(&key, &child)| (key, child)).collect();
        for (key, child) in children {
            self.children.remove(&key);
            self.directory_mut(child).parent = None;
        }
    }

    /// Drops the listing of `dir`, if there is one.
    pub(super) fn unlist(&mut self, dir: u32) -> bool {
        let Some(directory) = self.slots.get_mut(dir as usize).and_then(Option::as_mut) else {
            return false;
        };
        directory.unlisted.clear();
        (directory.is_requested, directory.told_from) = (false, None);
        if directory.listing.is_none() {
            return false;
        }
        self.tell_parent(dir, false);
        let listing = self.directory_mut(dir).listing.take().expect("it is there");
        self.entries -= listing.rows.len();
        self.listed -= 1;
        self.dropped += 1;
        let own = (dir, 0)..=(dir, u64::MAX);
        let children: Vec<u32> = self.children.range(own).map(|(_, &child)| child).collect();
        for child in children {
            self.directory_mut(child).spot = None;
        }
        true
    }

    /// Takes in a listing of `dir`, of at most `count` entries.
    pub(super) fn list(&mut self, dir: u32, entries: &[Entry<'_>]) {
        assert!(!self.is_listed(dir), "an earlier listing is dropped first");
        let rows: Vec<Row> = entries.iter().map(Row::new).collect();
        let mut by_hash: Vec<u16> = (0..=u16::MAX).take(rows.len()).collect();
        by_hash.sort_by_key(|&index| (rows[usize::from(index)].hash, index));
        let sequences = Sequence::all(entries);
        self.entries += rows.len();
        self.listed += 1;
        let directory = self.directory_mut(dir);
        directory.listing = Some(Listing { rows, by_hash, sequences });
        (directory.is_requested, directory.failures, directory.waits) = (true, 0, 0);
        let used = core::mem::take(&mut directory.unlisted);
        for hash in used {
            if let Some(spot) = self.find(dir, hash) {
                self.row_mut(spot).used = Level::Inode;
            }
        }
        let own = (dir, 0)..=(dir, u64::MAX);
        let children: Vec<_> = self.children.range(own).map(|(key, &at)| (key.1, at)).collect();
        for (hash, child) in children {
            self.directory_mut(child).spot = self.find(dir, hash);
            self.tell_parent(child, true);
        }
        self.tell_parent(dir, true);
    }

    /// Has the sequences of the parent of `dir` know whether something is listed in `dir`: once
    /// that, or its place in the parent, is known, and before either is not any more.
    fn tell_parent(&mut self, dir: u32, is_listed: bool) {
        let directory = self.directory(dir);
        let has_entries = directory.listing.as_ref().is_some_and(|it| !it.rows.is_empty());
        let Some(spot) = directory.spot.filter(|_| has_entries) else { return };
        if self.child(spot) != Some(dir) {
            return;
        }
        let above = self.directory_mut(spot.dir).listing.as_mut();
        for sequence in &mut above.expect("a spot is in a listing").sequences {
            sequence.set_listed(spot.index, is_listed);
        }
    }

    /// Each read of a file in `dir` is told from that of this name on.
    pub(super) fn tell(&mut self, dir: u32, hash: u64) {
        if !self.tells_reads(dir)
            && let Some(spot) = self.is_known(dir).then(|| self.find(dir, hash)).flatten()
        {
            self.directory_mut(dir).told_from = Some(spot.index);
        }
    }

    /// Reads of files in `dir` are not told any more.
    pub(super) fn untell(&mut self, dir: u32) {
        if self.is_known(dir) {
            self.directory_mut(dir).told_from = None;
        }
    }

    /// Whether each read of a file in `dir` is told.
    pub(super) fn tells_reads(&self, dir: u32) -> bool {
        let directory = self.slots.get(dir as usize).and_then(Option::as_ref);
        directory.is_some_and(|it| it.told_from.is_some())
    }

    /// Whether a use of the entry at `spot` as deep as it was requested is told to a walk in this
    /// order, which may have begun before its reads were.
    pub(super) fn is_told(&self, spot: Spot, order: usize) -> bool {
        let is_read = |row: &Row| row.kind == EntryKind::File && row.requested >= Level::Head;
        let Some((row, sequence)) = self.row(spot).zip(self.sequence(spot.dir, order)) else {
            return false;
        };
        let rank = |index| sequence.rank(index, false);
        let from = self.directory(spot.dir).told_from;
        is_read(row) && from.is_some_and(|from| rank(spot.index) >= rank(from))
    }

    /// The least recently used directory with a listing, other than `kept`.
    pub(super) fn least_recent(&self, kept: u32) -> Option<u32> {
        let listed = (0..).zip(&self.slots).filter_map(|(slot, directory)| {
            let directory = directory.as_ref().filter(|it| it.listing.is_some())?;
            (slot != kept).then_some((directory.last_use, slot))
        });
        listed.min().map(|(_, slot)| slot)
    }

    /// Rows of all listings.
    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// What changes as a listing is dropped.
    pub(super) fn version(&self) -> u64 {
        self.dropped
    }

    /// Entries that a directory has, on average.
    pub(super) fn mean_entries(&self) -> u32 {
        u32::try_from(self.entries / self.listed.max(1)).expect("entries are bounded")
    }

    /// Whether the entry at `spot` is a directory of which the entries are not known.
    pub(super) fn is_unknown(&self, spot: Spot) -> bool {
        let is_directory = self.row(spot).is_some_and(|row| row.kind == EntryKind::Directory);
        is_directory && !self.child(spot).is_some_and(|dir| self.is_listed(dir))
    }

    /// Notes a use of `dir` and of all that it lies in.
    pub(super) fn renew(&mut self, dir: u32) {
        self.uses += 1;
        let (uses, mut next) = (self.uses, Some(dir));
        while let Some(slot) = next {
            let directory = self.directory_mut(slot);
            directory.last_use = uses;
            next = directory.parent.map(|(parent, _)| parent);
        }
    }

    /// Notes the use of a name in `dir`, which has no listing. Whether one is worth requesting.
    pub(super) fn note_unlisted(&mut self, dir: u32, hash: u64) -> bool {
        let directory = self.directory_mut(dir);
        assert!(directory.listing.is_none(), "a name of a listing is looked up");
        if !directory.unlisted.contains(&hash) {
            if directory.unlisted.len() == UNLISTED_MAX {
                directory.unlisted.pop_front();
            }
            directory.unlisted.push_back(hash);
        }
        directory.unlisted.len() >= RECOGNISED_AFTER && self.request(dir)
    }

    /// The listing of `dir` was requested for itself and has failed, maybe for a reason that
    /// passes: it is requested again after [`RETRIED_AFTER`] uses, and after ever more, but not for
    /// ever.
    pub(super) fn fail(&mut self, dir: u32) {
        let directory = self.directory_mut(dir);
        if directory.listing.is_some() || directory.failures >= RETRIES_MAX {
            return;
        }
        directory.waits = RETRIED_AFTER.pow(u32::from(directory.failures) + 1);
        directory.failures += 1;
        directory.is_requested = false;
    }

    /// The listing of `dir` was to be requested, and is not for now.
    pub(super) fn withdraw(&mut self, dir: u32) {
        if self.is_known(dir) && !self.is_listed(dir) {
            self.directory_mut(dir).is_requested = false;
        }
    }

    /// Whether the listing of `dir` is to be requested: it is neither there nor requested before,
    /// for itself or by a walk.
    pub(super) fn request(&mut self, dir: u32) -> bool {
        let own = self.spot_of(dir).and_then(|spot| self.row(spot));
        if own.is_some_and(|row| row.owner.is_some() && row.requested >= Level::Head) {
            return false;
        }
        let directory = self.directory_mut(dir);
        if directory.waits > 0 {
            directory.waits -= 1;
            return false;
        }
        !core::mem::replace(&mut directory.is_requested, true)
    }

    /// Whether `dir` is registered.
    pub(super) fn is_known(&self, dir: u32) -> bool {
        self.slots.get(dir as usize).is_some_and(Option::is_some)
    }

    /// Whether `dir` has a listing.
    pub(super) fn is_listed(&self, dir: u32) -> bool {
        self.directory(dir).listing.is_some()
    }

    /// What `name` means in `dir`.
    pub(super) fn look_up(&self, dir: u32, hash: u64) -> Lookup {
        if !self.is_listed(dir) {
            return Lookup::Unlisted;
        }
        self.find(dir, hash).map_or(Lookup::Absent, Lookup::Found)
    }

    fn find(&self, dir: u32, hash: u64) -> Option<Spot> {
        let listing = self.directory(dir).listing.as_ref()?;
        let of = |index: &u16| listing.rows[usize::from(*index)].hash;
        let at = listing.by_hash.partition_point(|index| of(index) < hash);
        let index = *listing.by_hash.get(at).filter(|index| of(index) == hash)?;
        Some(Spot { dir, index })
    }

    /// The directory that `dir` lies in, with the hash of its name.
    pub(super) fn parent(&self, dir: u32) -> Option<(u32, u64)> {
        self.directory(dir).parent
    }

    /// The entry that `dir` is, where its parent is listed.
    pub(super) fn spot_of(&self, dir: u32) -> Option<Spot> {
        self.directory(dir).spot
    }

    /// The directory that the entry at `spot` is, if it is registered.
    pub(super) fn child(&self, spot: Spot) -> Option<u32> {
        let row = self.row(spot)?;
        if row.kind != EntryKind::Directory {
            return None;
        }
        self.children.get(&(spot.dir, row.hash)).copied()
    }

    /// The entry at `spot`, while its directory is listed.
    pub(super) fn row(&self, spot: Spot) -> Option<&Row> {
        let directory = self.slots.get(spot.dir as usize)?.as_ref()?;
        directory.listing.as_ref()?.rows.get(usize::from(spot.index))
    }

    /// The entry at `spot` of a listing.
    pub(super) fn row_mut(&mut self, spot: Spot) -> &mut Row {
        let listing = self.directory_mut(spot.dir).listing.as_mut();
        &mut listing.expect("a spot is in a listing").rows[usize::from(spot.index)]
    }

    /// The entries of `dir` in one order, while it is listed.
    pub(super) fn sequence(&self, dir: u32, order: usize) -> Option<&Sequence> {
        self.directory(dir).listing.as_ref().map(|listing| &listing.sequences[order])
    }

    /// Whether inodes ascend in the entries of `dir` in this order; none where that is not known.
    pub(super) fn is_by_place(&self, dir: u32, order: usize) -> Option<bool> {
        self.sequence(dir, order)?.is_by_place()
    }

    fn directory(&self, dir: u32) -> &Directory {
        self.slots[dir as usize].as_ref().expect("the directory is registered")
    }

    fn directory_mut(&mut self, dir: u32) -> &mut Directory {
        self.slots[dir as usize].as_mut().expect("the directory is registered")
    }
}

impl Row {
    fn new(entry: &Entry<'_>) -> Self {
        let (used, requested) = (Level::Nothing, Level::Nothing);
        let class = class(entry);
        Self { hash: hash(entry.name), kind: entry.kind, class, used, requested, owner: None }
    }
}

/// The class of an entry: 0 for directories, 1 for what is no file, 2 for files without a suffix,
/// and any other by the suffix.
fn class(entry: &Entry<'_>) -> u8 {
    match entry.kind {
        EntryKind::Directory => 0,
        EntryKind::Other => 1,
        EntryKind::File => {
            let dot = entry.name.iter().rposition(|&byte| byte == b'.');
            let suffix = dot.filter(|&at| at > 0).map(|at| &entry.name[at + 1..]);
            let plain = |suffix: &&[u8]| {
                (1..=SUFFIX_BYTES_MAX).contains(&suffix.len())
                    && suffix.iter().all(u8::is_ascii_alphabetic)
            };
            let hashed = suffix.filter(plain).map(|suffix| hash(suffix) % SUFFIXES);
            hashed.map_or(2, |it| u8::try_from(it).expect("a byte holds every class") + 3)
        }
    }
}

/// The hash of a name, the same on every machine.
pub(super) fn hash(name: &[u8]) -> u64 {
    let mut hasher = FixedState.build_hasher();
    hasher.write(name);
    hasher.write_usize(name.len());
    hasher.finish()
}

/// Names that are remembered of a directory without a listing.
const UNLISTED_MAX: usize = 8;
/// Entries after which a walk is taken for one.
pub(super) const RECOGNISED_AFTER: usize = 3;
/// Longer ones, and those with digits, tell entries apart instead of naming what they are.
const SUFFIX_BYTES_MAX: usize = 8;
const SUFFIXES: u64 = 253;
/// Uses of a directory after which a listing that failed is requested again: so many, then each
/// time so many times as many.
const RETRIED_AFTER: u16 = 8;
/// Times that a listing is requested again.
const RETRIES_MAX: u8 = 3;
