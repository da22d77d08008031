//! Learned lists: what a program used in its last runs, in the order in which it came to it.
//!
//! ```text
//!   run: path, kind, ranges, first use --merge--> list --trusted, by first use--> replay::Replay
//!   list of another machine -----------merge_list--^
//! ```
//! What one run used is asked for at the next start. From the third run on that is what two of the
//! last three used, so that what was used by chance leaves the list by itself; of a file the same
//! goes for each of its ranges. A list of which three runs on end used little is learned anew.
//!
//! # Invariants
//! - A list has each path once, and at most [`ENTRIES_MAX`] entries; those that were trusted least
//!   and used latest go first.
//! - An entry has at most [`RANGES_MAX`] ranges, in order, none touching another that the same runs
//!   used, and a list [`RANGES_ALL_MAX`] in all.
//! - Of no version of a file more is fetched than the bytes that are allowed, which are what the
//!   request is charged.
//! - The same runs in the same order give the same list.
//! # Sources
//! Android's `IORap` and FAST (FAST'11): lists of several runs, merged.

mod ranges;
pub mod replay;
pub mod used;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::planner::PAGE_BYTES;
use crate::units::Nanos;
use ranges::{Span, after_run, aged, aged_unseen, joined, layered};

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
    /// The same of each range; none where all of them are as the entry.
    pub histories: Vec<u8>,
}

/// What a run tells of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// What was used; the histories count for nothing.
    pub entry: LearnedEntry,
    /// Ranges of which no use would be seen, as they were there before the program came to them.
    pub unseen: Vec<Range<u64>>,
    /// Whether a use was seen. Of what was there before the program came to it a use may not be
    /// visible: then the history says what it said before.
    pub is_seen: bool,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnedList {
    runs: u64,
    /// Which of the last runs that could be judged used little of it: bit 0 is the last.
    poor: u8,
    entries: Vec<LearnedEntry>,
}

impl LearnedList {
    /// A list of `entries` that `runs` runs have given; of a path that stands twice the first
    /// counts.
    #[must_use]
    pub fn new(runs: u64, entries: impl IntoIterator<Item = LearnedEntry>) -> Self {
        let mut by_path = BTreeMap::new();
        for mut entry in entries {
            entry.history &= HISTORY;
            if entry.histories.len() == entry.ranges.len() && !entry.ranges.is_empty() {
                entry.set(layered(entry.spans()));
            } else {
                entry.uniform(entry.ranges.clone());
            }
            by_path.entry(entry.path.clone()).or_insert(entry);
        }
        Self::of(runs, by_path)
    }

    /// The list, of which the last runs used little as `poor` says: bit 0 is the last.
    #[must_use]
    pub fn with_poor(self, poor: u8) -> Self {
        Self { poor: poor & HISTORY, ..self }
    }

    /// See [`LearnedList::with_poor`].
    #[must_use]
    pub fn poor(&self) -> u8 {
        self.poor
    }

    /// Takes in how much of it the last run used, in percent of what could be judged, and none
    /// where that was too little. Once three runs on end used less than [`replay::PRECISION_HALF`]
    /// percent nothing of it is left: it is learned anew.
    pub fn judge(&mut self, precision: Option<u32>) {
        let Some(precision) = precision else { return };
        self.poor = (self.poor << 1 | u8::from(precision < replay::PRECISION_HALF)) & HISTORY;
        if self.poor == HISTORY {
            *self = Self::default();
        }
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
        Self { runs, poor: 0, entries }
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

    /// The entries that the next run is expected to use, by first use, with the ranges that it is
    /// expected to use of them.
    pub fn trusted(&self) -> impl Iterator<Item = LearnedEntry> {
        let trusted = self.entries.iter().filter(|entry| self.is_trusted(entry));
        trusted.map(|entry| {
            let ranges = self.trusted_ranges(entry);
            LearnedEntry { ranges, histories: Vec::new(), path: entry.path.clone(), ..*entry }
        })
    }

    /// Whether the next run is expected to use `entry`.
    #[must_use]
    pub fn is_trusted(&self, entry: &LearnedEntry) -> bool {
        self.are_trusted(entry.history)
    }

    /// The ranges of `entry` that the next run is expected to use.
    fn trusted_ranges(&self, entry: &LearnedEntry) -> Vec<Range<u64>> {
        if entry.histories.is_empty() {
            return entry.ranges.clone();
        }
        let spans = entry.spans().into_iter().filter(|(_, runs)| self.are_trusted(*runs));
        joined(spans.map(|(range, _)| range).collect())
    }

    /// Whether what these of the last `runs` used is expected to be used again.
    fn are_trusted(&self, runs: u8) -> bool {
        let seen = (runs & HISTORY).count_ones();
        if self.runs < RUNS_OF_MAJORITY { seen > 0 } else { seen >= MAJORITY }
    }

    /// Takes in what one more run used.
    pub fn merge(&mut self, run: Vec<Observed>) {
        let before = in_order_of(&run, core::mem::take(&mut self.entries));
        let mut before: BTreeMap<Box<[u8]>, LearnedEntry> =
            before.into_iter().map(|entry| (entry.path.clone(), entry)).collect();
        let mut by_path = BTreeMap::new();
        for Observed { mut entry, unseen, is_seen } in run {
            if by_path.contains_key(&entry.path) {
                continue; // Of a path that stands twice the first counts.
            }
            match before.remove(&entry.path) {
                Some(known) => {
                    let told = if is_seen { Some((entry, &*unseen)) } else { None };
                    let known = known.after(told, &|runs| self.are_trusted(runs));
                    by_path.insert(known.path.clone(), known);
                }
                None if is_seen => {
                    entry.history = 1;
                    entry.uniform(entry.ranges.clone());
                    by_path.insert(entry.path.clone(), entry);
                }
                None => {}
            }
        }
        for (path, mut entry) in before {
            entry.age();
            by_path.insert(path, entry);
        }
        by_path.retain(|_, entry| entry.history != 0);
        let (runs, poor) = (self.runs.saturating_add(1), self.poor);
        *self = Self::of(runs, by_path).with_poor(poor);
        assert!(self.entries.is_sorted_by_key(|entry| entry.first), "entries go by first use");
    }

    /// Takes in `other`, a list of the same program from elsewhere: what either trusts is trusted.
    /// Of the runs that used little of their list, those count that have fewer on end.
    pub fn merge_list(&mut self, other: &Self) {
        let trusted = |list: &Self, entry: &LearnedEntry| {
            let is_trusted = list.is_trusted(entry);
            let mut entry = entry.clone();
            entry.history = if is_trusted { HISTORY } else { 1 };
            entry.uniform(if is_trusted {
                list.trusted_ranges(&entry)
            } else {
                entry.ranges.clone()
            });
            entry
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
        let lists = both.into_iter().filter(|list| list.runs > 0);
        let poor = lists.map(|list| list.poor).min_by_key(|poor| poor.trailing_ones());
        let runs = self.runs.max(other.runs);
        *self = Self::of(runs, by_path).with_poor(poor.unwrap_or_default());
    }
}

/// `entries`, by first use, at their places in `run`: what was not seen in it follows what came
/// before it until now. Times of two runs, of which one waited and one did not, tell no order.
fn in_order_of(run: &[Observed], mut entries: Vec<LearnedEntry>) -> Vec<LearnedEntry> {
    let seen = run.iter().filter(|it| it.is_seen);
    let seen: BTreeMap<&[u8], Nanos> = seen.map(|it| (&*it.entry.path, it.entry.first)).collect();
    let mut last = None;
    for entry in &mut entries {
        let after = |last: Nanos| Nanos(last.0.saturating_add(STEP.0));
        entry.first = match seen.get(&*entry.path) {
            Some(&first) => first,
            None => last.map_or(entry.first.min(STEP), after),
        };
        last = Some(entry.first);
    }
    entries
}

impl LearnedEntry {
    /// The bytes that were used.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// The bytes that are charged where no more than its ranges are fetched.
    #[must_use]
    pub fn bytes_charged(&self) -> u64 {
        charged(&self.ranges)
    }

    /// The most that is fetched of any version, if so much is allowed.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        let bytes = self.bytes_charged();
        if self.is_whole() { bytes.max(WHOLE_BYTES) } else { bytes }
    }

    /// Whether all of the file was used.
    fn is_whole(&self) -> bool {
        self.ranges.len() == 1 && self.ranges[0] == (0..self.version.bytes)
    }

    /// Its ranges, each with the runs that used it.
    fn spans(&self) -> Vec<Span> {
        let runs = |at: usize| self.histories.get(at).copied().unwrap_or(self.history) & HISTORY;
        self.ranges.iter().enumerate().map(|(at, range)| (range.clone(), runs(at))).collect()
    }

    /// It has `spans`.
    fn set(&mut self, spans: Vec<Span>) {
        let is_uniform = spans.iter().all(|(_, runs)| *runs == self.history);
        (self.ranges, self.histories) = spans.into_iter().unzip();
        if is_uniform {
            self.histories.clear();
        }
    }

    /// It has `ranges`, all of the runs that used it.
    fn uniform(&mut self, ranges: Vec<Range<u64>>) {
        (self.ranges, self.histories) = (joined(ranges), Vec::new());
    }

    /// One more run did not use it.
    fn age(&mut self) {
        for history in self.histories.iter_mut().chain([&mut self.history]) {
            *history = aged(*history);
        }
    }

    /// It, after a run that has `told` what it used of the same path, and of which ranges no use
    /// is visible; or that may have used any of it. What the list did not trust was not fetched
    /// for it, and is not used unseen.
    fn after(
        mut self,
        told: Option<(Self, &[Range<u64>])>,
        are_trusted: &dyn Fn(u8) -> bool,
    ) -> Self {
        let Some((now, unseen)) = told else {
            for history in self.histories.iter_mut().chain([&mut self.history]) {
                *history = aged_unseen(*history, are_trusted);
            }
            self.set(layered(self.spans()));
            return self;
        };
        let before = self.spans();
        self.history = aged(self.history) | 1;
        self.first = now.first;
        let is_other = self.kind != now.kind || self.version.has_changed(now.version);
        if is_other && !now.ranges.is_empty() || self.kind != now.kind {
            self.uniform(now.ranges);
        } else {
            self.set(after_run(before, &now.ranges, unseen, are_trusted));
        }
        (self.kind, self.version) = (now.kind, now.version);
        self
    }

    /// The ranges to fetch of the version that is there `now`: those that were used, and of another
    /// version all of it, or its head, as was used before; of that `allowed_bytes` at most, which
    /// are no less than [`LearnedEntry::bytes_charged`].
    #[must_use]
    pub fn ranges_of(&self, now: Version, allowed_bytes: u64) -> Vec<Range<u64>> {
        let Some(first) = self.ranges.first() else { return Vec::new() };
        if !self.version.has_changed(now) {
            let end = now.bytes;
            let inside = self.ranges.iter().map(|range| range.start..range.end.min(end));
            return inside.filter(|range| !range.is_empty()).collect();
        }
        let head =
            if self.is_whole() { self.bytes_max().min(WHOLE_MAX) } else { first.end.min(HEAD_MAX) };
        let head = head.min(now.bytes).min(allowed_bytes / PAGE_BYTES * PAGE_BYTES);
        if first.start > 0 || head == 0 { Vec::new() } else { alloc::vec![0..head] }
    }
}

/// The bytes that a fetch of `ranges` is charged: those of the pages that they touch.
#[must_use]
pub fn charged(ranges: &[Range<u64>]) -> u64 {
    let of = |range: &Range<u64>| {
        let end = range.end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(range.end);
        if range.is_empty() { 0 } else { end - range.start / PAGE_BYTES * PAGE_BYTES }
    };
    ranges.iter().map(of).fold(0, u64::saturating_add)
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
/// Of another version than the one that was read whole no more is fetched, whatever is allowed.
const WHOLE_MAX: u64 = 4 << 20;
/// Of another version than the one that was read in part no more is fetched.
const HEAD_MAX: u64 = 128 << 10;

/// The least that lists tell times apart by.
pub const STEP: Nanos = Nanos::from_micros(1);

#[cfg(test)]
mod tests;
