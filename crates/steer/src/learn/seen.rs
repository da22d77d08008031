//! What a run was seen to use.
//!
//! # Invariants
//! - At most [`ENTRIES_MAX`] paths; of a path at most [`TOUCHES_MAX`] ranges are kept apart.
//! - A path that nothing was found out of is not learned: it may have been gone at once.

use std::collections::BTreeMap;
use std::iter;
use std::ops::Range;

use forerun_core::learned::{
    ENTRIES_MAX, LearnedEntry, LearnedKind, Observed, RANGES_MAX, STEP, Version, WHOLE_BYTES, used,
};
use forerun_core::units::Nanos;
use rustix::fs::FileType;

use super::fetch::PathFacts;
use crate::kernel;
use crate::open::entries::on_a_safe_way;
use crate::open::{LeaseList, open_found};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct UsedPaths {
    rows: BTreeMap<Box<[u8]>, Row>,
    /// The first use of the path that came last.
    last: Nanos,
}

#[derive(Debug)]
struct Row {
    kind: LearnedKind,
    first: Nanos,
    /// None until it was looked at.
    version: Option<Version>,
    /// It is neither file nor directory, cannot be looked at, or is in memory in any case.
    is_strange: bool,
    /// Most of the file was in memory when the program came to it: what is there at the end says
    /// nothing of what was used.
    was_cached: bool,
    /// The program had read it when it was noted: what was in memory then is no more than that.
    was_read: bool,
    touches: Vec<Range<u64>>,
    /// What was requested of it ahead of the program's readers.
    requested: Vec<Range<u64>>,
}

/// What was fetched of a path for its list.
#[derive(Clone, Copy, Debug)]
pub(super) enum Listed<'a> {
    Nothing,
    /// Of the version that is there now these ranges.
    Same(&'a [Range<u64>]),
    /// The same, where the list proved to be that of something else: that tells of no use.
    Wrong(&'a [Range<u64>]),
    /// What the entry has of another version.
    Other(&'a LearnedEntry),
}

impl UsedPaths {
    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.rows.contains_key(path)
    }

    /// The program uses `path`. Whether that is the first time.
    pub(super) fn note(&mut self, now: Nanos, path: &[u8], kind: LearnedKind) -> bool {
        if let Some(row) = self.rows.get_mut(path) {
            // A file that is looked up is read later; what is absent may come to be.
            row.kind = if row.kind == LearnedKind::Stat { kind } else { row.kind };
            return false;
        }
        if self.rows.len() >= ENTRIES_MAX {
            return false;
        }
        // What one poll meets has an order, too.
        self.last = now.max(self.last + STEP);
        let row = Row {
            kind,
            first: self.last,
            version: None,
            is_strange: false,
            was_cached: false,
            was_read: false,
            touches: Vec::new(),
            requested: Vec::new(),
        };
        self.rows.insert(path.into(), row);
        assert!(self.rows.len() <= ENTRIES_MAX, "paths have a bound");
        true
    }

    /// The program has read the file at `path` before it was noted: that it is in memory is no sign
    /// that it was before.
    pub(super) fn was_read(&mut self, path: &[u8]) {
        if let Some(row) = self.rows.get_mut(path) {
            row.was_read = true;
        }
    }

    /// The version of the file at `path`.
    pub(super) fn found(&mut self, path: &[u8], version: Version) {
        if let Some(row) = self.rows.get_mut(path) {
            row.version = Some(version);
        }
    }

    pub(super) fn was_cached(&mut self, path: &[u8], is_cached: bool) {
        if let Some(row) = self.rows.get_mut(path) {
            row.was_cached = is_cached;
        }
    }

    /// What lies at `path` was looked up.
    pub(super) fn looked(&mut self, path: &[u8], found: &PathFacts) {
        let Some(row) = self.rows.get_mut(path) else { return };
        row.version = Some(found.version);
        let was_fetched = row.was_read && found.version.bytes <= READ_WHOLE_MAX;
        row.was_cached |= found.is_cached && !was_fetched;
        let is_known = matches!(found.kind, FileType::RegularFile | FileType::Directory);
        row.is_strange = !is_known || found.is_in_memory;
        row.kind = match (row.kind, found.kind) {
            // It was opened, and is listed or its entries are used.
            (LearnedKind::Read, FileType::Directory) => LearnedKind::Directory,
            // The link itself is looked up, and what it leads to is used.
            (LearnedKind::Read, _) if found.real.is_some() => LearnedKind::Stat,
            (kind, _) => kind,
        };
    }

    /// `path` leads to `real`, by links.
    pub(super) fn link(&mut self, now: Nanos, path: &[u8], real: &[u8]) {
        let Some(row) = self.rows.get(path) else { return };
        let kind = row.kind;
        if kind == LearnedKind::Read && self.note(now, real, kind) {
            let version = self.rows.get(path).and_then(|row| row.version);
            self.rows.get_mut(real).expect("it was noted").version = version;
        }
    }

    /// Nothing lies at `path`.
    pub(super) fn absent(&mut self, path: &[u8]) {
        if let Some(row) = self.rows.get_mut(path) {
            row.kind = LearnedKind::Absent;
            row.version = Some(Version::default());
        }
    }

    /// `range` of the file at `path` was read.
    pub(super) fn read(&mut self, path: &[u8], range: &Range<u64>) {
        let Some(row) = self.rows.get_mut(path) else { return };
        let wide = range.start / TOUCH_BYTES * TOUCH_BYTES
            ..range.end.checked_next_multiple_of(TOUCH_BYTES).unwrap_or(range.end);
        let last = row.touches.last_mut();
        if let Some(last) = last.filter(|it| it.start <= wide.start && wide.start <= it.end) {
            last.end = last.end.max(wide.end);
        } else if row.touches.len() < TOUCHES_MAX {
            row.touches.push(wide);
        }
        assert!(row.touches.len() <= TOUCHES_MAX, "ranges of a path have a bound");
    }

    /// `range` of the file at `path` was requested ahead of a reader.
    pub(super) fn requested(&mut self, path: &[u8], range: &Range<u64>) {
        let Some(row) = self.rows.get_mut(path) else { return };
        let last = row.requested.last_mut();
        if let Some(last) = last.filter(|it| it.start <= range.start && range.start <= it.end) {
            last.end = last.end.max(range.end);
        } else if row.requested.len() < RANGES_MAX {
            row.requested.push(range.clone());
        }
        assert!(row.requested.len() <= RANGES_MAX, "requests of a path have a bound");
    }

    /// All of it, for a list. Of large files that were not in memory before it is asked what is
    /// there now. What was fetched for those that are `listed`, and what was requested ahead of the
    /// program and not read, is left out: what prefetching has wasted would never leave the list.
    pub(super) fn observed<'a>(
        &self,
        listed: impl Fn(&[u8], Version) -> Listed<'a>,
    ) -> Vec<Observed> {
        // One for all: the kernel may take 10 ms and more to list locks.
        let (mut asked, leases) = (0, LeaseList::new());
        let mut all = Vec::new();
        for (path, row) in &self.rows {
            let Some(version) = row.version.filter(|_| !row.is_strange) else { continue };
            let is_large = row.kind == LearnedKind::Read && version.bytes > WHOLE_BYTES;
            let mut ranges = row.ranges(version);
            let before = if is_large { listed(path, version) } else { Listed::Nothing };
            let unseen = match before {
                // That most of it is there by now may be the doing of the list itself.
                Listed::Same(fetched) => fetched.to_vec(),
                Listed::Nothing | Listed::Other(_) if row.was_cached => {
                    iter::once(0..u64::MAX).collect()
                }
                Listed::Wrong(_) | Listed::Nothing | Listed::Other(_) => Vec::new(),
            };
            if matches!(before, Listed::Same(_) | Listed::Wrong(_)) {
                ranges = row.touched(version);
            }
            if is_large && !row.was_cached && asked < ASKED_MAX {
                asked += 1;
                let resident = resident(path, &leases);
                ranges = resident.map_or(ranges, |it| row.used(it, version, &before));
            }
            let entry = LearnedEntry {
                path: path.clone(),
                kind: row.kind,
                first: row.first,
                ranges,
                version,
                history: 0,
                histories: Vec::new(),
            };
            all.push(Observed { entry, unseen, is_seen: true });
        }
        all
    }
}

impl Row {
    /// What is known of the bytes that were read.
    fn ranges(&self, version: Version) -> Vec<Range<u64>> {
        if self.kind != LearnedKind::Read {
            return Vec::new();
        }
        if version.bytes <= WHOLE_BYTES {
            return iter::once(0..version.bytes).collect();
        }
        if self.touches.is_empty() {
            return iter::once(0..HEAD_BYTES.min(version.bytes)).collect();
        }
        self.touched(version)
    }

    /// Of what is `resident` at the end what the program used, as far as is known.
    fn used(
        &self,
        resident: Vec<Range<u64>>,
        version: Version,
        before: &Listed<'_>,
    ) -> Vec<Range<u64>> {
        let mut requested = self.requested.clone();
        match before {
            Listed::Nothing => {}
            Listed::Same(fetched) | Listed::Wrong(fetched) => requested.extend_from_slice(fetched),
            Listed::Other(entry) => requested.extend(entry.ranges_of(version, entry.bytes_max())),
        }
        used::used(resident, &requested, &self.touched(version))
    }

    /// What observers told of the bytes that were read.
    fn touched(&self, version: Version) -> Vec<Range<u64>> {
        let end = version.bytes;
        self.touches.iter().map(|range| range.start..range.end.min(end)).collect()
    }
}

/// What is in memory of the file at `path`, where the kernel tells.
fn resident(path: &[u8], leases: &LeaseList) -> Option<Vec<Range<u64>>> {
    let (place, stat) = on_a_safe_way(path).ok()?;
    let (file, stat) = open_found(&place, &stat, leases, None).ok()?;
    let all = 0..stat.st_size.min(RESIDENT_MAX);
    let absent = kernel::absent_untouched(&file, &all)?;
    let (mut ranges, mut at) = (Vec::new(), 0);
    for gap in absent {
        ranges.push(at..gap.start);
        at = gap.end;
    }
    ranges.push(at..all.end);
    ranges.retain(|range| !range.is_empty());
    assert!(ranges.is_sorted_by(|a, b| a.end <= b.start), "what is resident lies in order");
    Some(ranges)
}

/// A file that was in memory before is taken for one that was read as a whole up to this size.
const READ_WHOLE_MAX: u64 = 4 << 20;
const TOUCHES_MAX: usize = 512;
/// The unit of what observers tell of mappings: pages around a fault come with it.
const TOUCH_BYTES: u64 = 64 << 10;
/// Of a large file of which nothing else is known.
const HEAD_BYTES: u64 = 128 << 10;
/// Large files that are asked about at the end.
const ASKED_MAX: usize = 64;
/// Bytes of a file that are asked about.
const RESIDENT_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use forerun_core::learned::LearnedList;

    use super::*;

    /// What a run that has read `reads` of a large file tells, most of which was in memory by then.
    fn run(reads: &[Range<u64>], listed: Listed<'_>) -> Vec<Observed> {
        let mut seen = UsedPaths::default();
        seen.note(Nanos(0), PATH, LearnedKind::Read);
        seen.found(PATH, Version { inode: 1, bytes: 1_000 << 10, modified: 7 });
        seen.was_cached(PATH, true);
        for range in reads {
            seen.read(PATH, range);
        }
        seen.observed(|_, _| listed)
    }

    #[test]
    fn what_was_read_once_of_a_file_that_its_list_has_fetched_is_not_fetched() {
        let ranges = |list: &LearnedList| list.trusted().next().expect("it is learned").ranges;
        let (often, once) = (0..640 << 10, 704 << 10..768 << 10);
        let mut list = LearnedList::default();
        for _ in 0..3 {
            let fetched = list.trusted().next().map(|entry| entry.ranges);
            let listed = fetched.as_deref().map_or(Listed::Nothing, Listed::Same);
            list.merge(run(from_ref(&often), listed));
        }
        list.merge(run(from_ref(&once), Listed::Same(&ranges(&list))));
        for _ in 0..4 {
            assert_eq!(ranges(&list), from_ref(&often), "it was read in one of three runs");
            list.merge(run(&[], Listed::Same(&ranges(&list))));
        }
        assert_eq!(list.entries()[0].ranges, from_ref(&often), "it is forgotten");
    }

    #[test]
    fn what_one_poll_meets_is_learned_in_its_order() {
        let mut seen = UsedPaths::default();
        for path in [&b"/c"[..], b"/a", b"/b", b"/a"] {
            seen.note(Nanos::from_millis(7), path, LearnedKind::Stat);
            seen.found(path, Version::default());
        }
        let mut list = LearnedList::default();
        list.merge(seen.observed(|_, _| Listed::Nothing));
        let paths: Vec<_> = list.entries().iter().map(|entry| &*entry.path).collect();
        assert_eq!(paths, [b"/c", b"/a", b"/b"]);
    }

    #[test]
    fn no_use_is_visible_of_what_was_there_before() {
        let fetched = 0..640 << 10;
        let fetched = from_ref(&fetched);
        #[rustfmt::skip]
        let rows: &[(_, &[Range<u64>], _)] = &[ // what the list has fetched, unseen, why
            (Listed::Same(fetched),  fetched,       "what is there is the list's own"),
            (Listed::Wrong(fetched), &[],           "of a wrong list"),
            (Listed::Nothing,        from_ref(&(0..u64::MAX)), "it was there without a list"),
        ];
        for (listed, unseen, why) in rows {
            assert_eq!(run(&[], *listed)[0].unseen, *unseen, "{why}");
        }
    }

    const PATH: &[u8] = b"/nowhere/large";
}
