//! The driver of `core::learned` in virtual time: entries of a list become tasks, and calls become
//! what the next run is given.
//!
//! # Invariants
//! - A list knows of the tree what it was told in earlier runs, not what the trace has.
//! - Reads of listed files are told whenever they happen, as by inotify; all else as it is
//!   observed.
//! - A trace has no times of change: another inode is another version.

use std::collections::BTreeMap;
use std::ops::Range;

use forerun_core::learned::replay::{Replay, ReplayEntry};
use forerun_core::learned::{
    LearnedEntry, LearnedKind, LearnedList, Observed, Version, WHOLE_BYTES, charged,
};
use forerun_core::units::Nanos;

use super::accesses::{Call, CallKind};
use super::storage::{self, Stages};
use super::tree::Tree;

/// See the module.
pub(super) struct ListDriver {
    entries: Vec<LearnedEntry>,
    places: BTreeMap<Box<[u8]>, u32>,
    replay: Replay,
    budget_bytes: u64,
    /// What was seen of each path, with the ranges of large files.
    seen: BTreeMap<String, Seen>,
}

struct Seen {
    kind: LearnedKind,
    first: Nanos,
    ranges: Vec<Range<u64>>,
}

impl ListDriver {
    pub(super) fn new(tree: &Tree, list: &LearnedList, budget_bytes: u64) -> Self {
        let entries: Vec<LearnedEntry> = list.trusted().collect();
        let places = entries.iter().zip(0..).map(|(it, place)| (it.path.clone(), place)).collect();
        let replay = Replay::new(entries.iter().map(|entry| ReplayEntry {
            first: entry.first,
            bytes: entry.bytes_charged(),
            bytes_max: entry.bytes_max(),
            ranges: entry.ranges.len() as u64,
            place: entry.version.inode,
            is_judged: entry.kind == LearnedKind::Read && find(tree, &entry.path).is_some(),
        }));
        Self { entries, places, replay, budget_bytes, seen: BTreeMap::new() }
    }

    fn used(&mut self, now: Nanos, path: &str) {
        if let Some(&place) = self.places.get(path.as_bytes()) {
            self.replay.used(now, place);
        }
    }

    /// The program begins `call`, and no poll has met it yet.
    pub(super) fn read(&mut self, now: Nanos, call: &Call) {
        if call.call == CallKind::Read && call.error.is_none() {
            self.used(now, &call.path);
        }
    }

    /// `call` is seen.
    pub(super) fn observe(&mut self, now: Nanos, tree: &Tree, call: &Call) {
        self.used(now, &call.path);
        let node = tree.find(&call.path).filter(|_| call.error.is_none());
        let bytes = node.map_or(0, |node| tree.node(node).bytes);
        let (kind, range) = match call.call {
            _ if node.is_none() => (LearnedKind::Absent, 0..0),
            CallKind::Stat | CallKind::Open => (LearnedKind::Stat, 0..0),
            CallKind::List => (LearnedKind::Directory, 0..0),
            CallKind::Exec => (LearnedKind::Read, 0..bytes),
            CallKind::Read | CallKind::Map if bytes <= WHOLE_BYTES => (LearnedKind::Read, 0..bytes),
            CallKind::Read | CallKind::Map => {
                let end = call.offset.saturating_add(call.bytes).min(bytes);
                (LearnedKind::Read, call.offset.min(end)..end)
            }
        };
        let is_listed = self.places.contains_key(call.path.as_bytes());
        if !is_listed && !self.seen.contains_key(&call.path) {
            self.replay.missed();
        }
        let row = self.seen.entry(call.path.clone()).or_insert_with(|| Seen {
            kind,
            first: now,
            ranges: Vec::new(),
        });
        row.kind = if row.kind == LearnedKind::Stat { kind } else { row.kind };
        match row.ranges.last_mut() {
            Some(last) if (last.start..=last.end).contains(&range.start) => {
                last.end = last.end.max(range.end);
            }
            _ if !range.is_empty() => row.ranges.push(range),
            _ => {}
        }
    }

    /// Up to `room` entries to fetch: their places, what lies there, and what each needs.
    pub(super) fn issue(
        &mut self,
        tree: &Tree,
        room: usize,
        seeks: bool,
    ) -> Vec<(u32, Option<usize>, Stages)> {
        let mut places = Vec::new();
        self.replay.issue(room, self.budget_bytes, Some(seeks), &mut places);
        places.iter().map(|&place| self.fetch(tree, place)).collect()
    }

    fn fetch(&self, tree: &Tree, place: u32) -> (u32, Option<usize>, Stages) {
        let entry = &self.entries[place as usize];
        let Some(node) = find(tree, &entry.path) else {
            let path = String::from_utf8_lossy(&entry.path);
            return (place, None, storage::entries(tree, tree.deepest(&path)));
        };
        let mut stages = match entry.kind {
            LearnedKind::Directory => storage::entries(tree, node),
            LearnedKind::Read | LearnedKind::Stat | LearnedKind::Absent => {
                storage::inode(tree, node)
            }
        };
        let ranges = self.ranges(tree, place, node);
        let data: Vec<_> = ranges
            .iter()
            .flat_map(|range| storage::data(tree, node, range.start, range.end - range.start))
            .collect();
        stages.extend((!data.is_empty()).then_some(data));
        (place, Some(node), stages)
    }

    /// What is fetched of the entry at `place`, which is `node` now.
    fn ranges(&self, tree: &Tree, place: u32, node: usize) -> Vec<Range<u64>> {
        let allowed = self.replay.allowed_bytes(place);
        self.entries[place as usize].ranges_of(version(tree, node), allowed)
    }

    /// An entry has been fetched in this time.
    pub(super) fn complete(&mut self, tree: &Tree, place: u32, took: Nanos) {
        let node = find(tree, &self.entries[place as usize].path);
        let bytes = node.map_or(0, |node| charged(&self.ranges(tree, place, node)));
        self.replay.complete(place, (took > Nanos(0)).then_some(took), bytes, true);
    }

    /// The program has ended.
    pub(super) fn finish(&mut self) {
        self.replay.finish();
    }

    /// How much of the list was used, in percent of what could be judged.
    pub(super) fn precision(&self) -> Option<u32> {
        self.replay.stats().precision()
    }

    /// What the run tells: of what it was seen to use, and of what no use could be seen of.
    pub(super) fn learned(&self, tree: &Tree) -> Vec<Observed> {
        let seen = self.seen.iter().map(|(path, row)| {
            let place = self.places.get(path.as_bytes());
            let place = place.filter(|&&place| self.replay.is_requested(place));
            let fetched = place.map(|&place| self.entries[place as usize].ranges.clone());
            let unseen = fetched.unwrap_or_default();
            let version = tree.find(path).map_or_else(Version::default, |node| version(tree, node));
            let entry = LearnedEntry {
                path: path.as_bytes().into(),
                kind: row.kind,
                first: row.first,
                ranges: row.ranges.clone(),
                version,
                history: 0,
                histories: Vec::new(),
            };
            Observed { entry, unseen, is_seen: true }
        });
        let is_wrong = self.replay.is_wrong();
        let is_open = |entry: &&LearnedEntry| {
            let is_seen = str::from_utf8(&entry.path).is_ok_and(|it| self.seen.contains_key(it));
            !is_seen && !is_wrong && entry.kind != LearnedKind::Read
        };
        let unseen = self.entries.iter().filter(is_open);
        let unseen = unseen.map(|entry| {
            let (entry, unseen) = (entry.clone(), Vec::new());
            Observed { entry, unseen, is_seen: false }
        });
        seen.chain(unseen).collect()
    }
}

fn find(tree: &Tree, path: &[u8]) -> Option<usize> {
    tree.find(str::from_utf8(path).ok()?)
}

fn version(tree: &Tree, node: usize) -> Version {
    let node = tree.node(node);
    let modified = i64::from_ne_bytes(node.inode.to_ne_bytes());
    Version { inode: node.inode, bytes: node.bytes, modified }
}
