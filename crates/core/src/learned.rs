//! Learned lists: what a program used in its last runs, in the order in which it came to it.
//!
//! ```text
//!   run: path, kind, ranges, first use --merge--> list --trusted, by first use--> replay::Replay
//!   list of another machine -----------merge_list--^
//! ```
//! What one run used is asked for at the next start. From the third run on that is what two of the
//! last three used, so that what was used by chance leaves the list by itself.
//!
//! # Invariants
//! - A list has each path once, and at most [`ENTRIES_MAX`] entries; those that were trusted least
//!   and used latest go first.
//! - An entry has at most [`RANGES_MAX`] ranges, in order, none touching another, and a list
//!   [`RANGES_ALL_MAX`] in all.
//! - The same runs in the same order give the same list.
//! # Sources
//! Android's `IORap` and FAST (FAST'11): lists of several runs, merged.

pub mod replay;
pub mod used;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::units::Nanos;

/// What a program does with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LearnedKind {
    /// Reads or maps bytes of a file.
    Read,
    /// Asks for its facts alone.
    Stat,
    /// Asks for a path where nothing is: a failed lookup waits for the device as well.
    Absent,
    /// Lists a directory.
    Directory,
}

impl LearnedKind {
    /// All of them, by name.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("read", Self::Read),
        ("stat", Self::Stat),
        ("absent", Self::Absent),
        ("directory", Self::Directory),
    ];

    /// Its name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        let mut names = Self::NAMES.iter();
        names.find(|(_, kind)| *kind == self).expect("every kind has a name").0
    }
}

/// What tells one version of a file from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Its inode.
    pub inode: u64,
    /// Its size.
    pub bytes: u64,
    /// When it was written last, in nanoseconds since 1970.
    pub modified: i64,
}

impl Version {
    /// Whether the bytes may be others: a copy of a file has another inode and the same bytes.
    #[must_use]
    pub fn has_changed(self, now: Self) -> bool {
        (self.bytes, self.modified) != (now.bytes, now.modified)
    }
}

/// A path that a program used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedEntry {
    /// The full path, as the program sees it.
    pub path: Box<[u8]>,
    /// What it was used for.
    pub kind: LearnedKind,
    /// The first use, since the start of the program.
    pub first: Nanos,
    /// The bytes that were used, to whole pages: in order and apart.
    pub ranges: Vec<Range<u64>>,
    /// The version that was used.
    pub version: Version,
    /// Which of the last runs used it: bit 0 is the last.
    pub history: u8,
}

/// What a run tells of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// What was used; the history counts for nothing.
    pub entry: LearnedEntry,
    /// Whether a use was seen. Of what was there before the program came to it a use may not be
    /// visible: then the history says what it said before.
    pub is_seen: bool,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnedList {
    runs: u64,
    entries: Vec<LearnedEntry>,
}

impl LearnedList {
    /// A list of `entries` that `runs` runs have given; of a path that stands twice the first
    /// counts.
    #[must_use]
    pub fn new(runs: u64, entries: impl IntoIterator<Item = LearnedEntry>) -> Self {
        let mut by_path = BTreeMap::new();
        for mut entry in entries {
            entry.ranges = joined(entry.ranges);
            entry.history &= HISTORY;
            by_path.entry(entry.path.clone()).or_insert(entry);
        }
        Self::of(runs, by_path)
    }

    fn of(runs: u64, by_path: BTreeMap<Box<[u8]>, LearnedEntry>) -> Self {
        let mut entries: Vec<LearnedEntry> = by_path.into_values().collect();
        let ranges: usize = entries.iter().map(|entry| entry.ranges.len()).sum();
        if entries.len() > ENTRIES_MAX || ranges > RANGES_ALL_MAX {
            entries.sort_by_key(|entry| (core::cmp::Reverse(entry.history), entry.first));
            let mut ranges = 0;
            let fits = |entry: &&LearnedEntry| {
                ranges += entry.ranges.len();
                ranges <= RANGES_ALL_MAX
            };
            let count = entries.iter().take(ENTRIES_MAX).take_while(fits).count();
            entries.truncate(count);
        }
        entries.sort_by(|a, b| (a.first, &a.path).cmp(&(b.first, &b.path)));
        assert!(entries.len() <= ENTRIES_MAX, "a list has a bound");
        Self { runs, entries }
    }

    /// How many runs it comes from.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// All entries, by first use.
    #[must_use]
    pub fn entries(&self) -> &[LearnedEntry] {
        &self.entries
    }

    /// The entries that the next run is expected to use, by first use.
    pub fn trusted(&self) -> impl Iterator<Item = &LearnedEntry> {
        self.entries.iter().filter(|entry| self.is_trusted(entry))
    }

    /// Whether the next run is expected to use `entry`.
    #[must_use]
    pub fn is_trusted(&self, entry: &LearnedEntry) -> bool {
        let seen = (entry.history & HISTORY).count_ones();
        if self.runs < RUNS_OF_MAJORITY { seen > 0 } else { seen >= MAJORITY }
    }

    /// Takes in what one more run used.
    pub fn merge(&mut self, run: Vec<Observed>) {
        let before = core::mem::take(&mut self.entries);
        let mut by_path: BTreeMap<Box<[u8]>, LearnedEntry> = BTreeMap::new();
        for mut entry in before {
            entry.history = (entry.history << 1) & HISTORY;
            by_path.insert(entry.path.clone(), entry);
        }
        for Observed { entry, is_seen } in run {
            match by_path.get_mut(&entry.path) {
                Some(known) => known.take_in(entry, is_seen),
                None if is_seen => {
                    let entry = LearnedEntry { history: 1, ranges: joined(entry.ranges), ..entry };
                    by_path.insert(entry.path.clone(), entry);
                }
                None => {}
            }
        }
        by_path.retain(|_, entry| entry.history != 0);
        *self = Self::of(self.runs.saturating_add(1), by_path);
        assert!(self.entries.is_sorted_by_key(|entry| entry.first), "entries go by first use");
    }

    /// Takes in `other`, a list of the same program from elsewhere: what either trusts is trusted.
    pub fn merge_list(&mut self, other: &Self) {
        let trusted = |list: &Self, entry: &LearnedEntry| LearnedEntry {
            history: if list.is_trusted(entry) { HISTORY } else { 1 },
            ..entry.clone()
        };
        let mut by_path: BTreeMap<Box<[u8]>, LearnedEntry> = BTreeMap::new();
        let both = [&*self, other];
        let all = both.iter().flat_map(|list| list.entries.iter().map(|it| trusted(list, it)));
        for entry in all {
            match by_path.get_mut(&entry.path) {
                Some(known) => {
                    known.history |= entry.history;
                    if !known.version.has_changed(entry.version) {
                        known.ranges.extend(entry.ranges);
                        known.ranges = joined(core::mem::take(&mut known.ranges));
                    }
                }
                None => drop(by_path.insert(entry.path.clone(), entry)),
            }
        }
        *self = Self::of(self.runs.max(other.runs), by_path);
    }
}

impl LearnedEntry {
    /// The bytes that were used.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Takes in what a run tells of the same path.
    fn take_in(&mut self, now: Self, is_seen: bool) {
        if !is_seen {
            // As the run before said.
            self.history |= (self.history >> 1) & 1;
            return;
        }
        self.history |= 1;
        self.first = now.first;
        let is_other = self.kind != now.kind || self.version.has_changed(now.version);
        if is_other && !now.ranges.is_empty() || self.kind != now.kind {
            self.ranges = joined(now.ranges);
        } else {
            let mut ranges = core::mem::take(&mut self.ranges);
            ranges.extend(now.ranges);
            self.ranges = joined(ranges);
        }
        (self.kind, self.version) = (now.kind, now.version);
    }

    /// The ranges to fetch of the version that is there `now`: those that were used, and of another
    /// version all of it, or its head, as was used before.
    #[must_use]
    pub fn ranges_of(&self, now: Version) -> Vec<Range<u64>> {
        let Some(first) = self.ranges.first() else { return Vec::new() };
        if !self.version.has_changed(now) {
            let end = now.bytes;
            let inside = self.ranges.iter().map(|range| range.start..range.end.min(end));
            return inside.filter(|range| !range.is_empty()).collect();
        }
        let is_whole = self.ranges.len() == 1 && *first == (0..self.version.bytes);
        let head = if is_whole { now.bytes.min(WHOLE_MAX) } else { first.end.min(HEAD_MAX) };
        let head = head.min(now.bytes);
        if first.start > 0 || head == 0 { Vec::new() } else { alloc::vec![0..head] }
    }
}

/// `ranges` in order, those that touch joined, and the nearest joined where there are too many.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            Some(_) | None => out.push(range),
        }
    }
    if out.len() > RANGES_MAX {
        let mut gaps: Vec<u64> = out.windows(2).map(|two| two[1].start - two[0].end).collect();
        gaps.sort_unstable();
        let closed_max = gaps[out.len() - RANGES_MAX - 1];
        let mut fewer: Vec<Range<u64>> = Vec::new();
        for range in out {
            match fewer.last_mut() {
                Some(last) if range.start - last.end <= closed_max => last.end = range.end,
                Some(_) | None => fewer.push(range),
            }
        }
        out = fewer;
    }
    assert!(out.len() <= RANGES_MAX, "ranges have a bound");
    out
}

/// A file up to here is learned whole; of a larger one, what is used.
pub const WHOLE_BYTES: u64 = 256 << 10;
/// Entries of a list, at most.
pub const ENTRIES_MAX: usize = 1 << 16;
/// Ranges of an entry, at most.
pub const RANGES_MAX: usize = 4_096;
/// Ranges of a list, at most.
pub const RANGES_ALL_MAX: usize = 1 << 17;
/// The runs that the history tells of.
const HISTORY: u8 = 0b111;
/// From so many runs on an entry needs a majority of the last three.
const RUNS_OF_MAJORITY: u64 = 3;
const MAJORITY: u32 = 2;
/// Of another version than the one that was read whole no more is fetched.
const WHOLE_MAX: u64 = 4 << 20;
/// Of another version than the one that was read in part no more is fetched.
const HEAD_MAX: u64 = 128 << 10;

#[cfg(test)]
mod tests;
