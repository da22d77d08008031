//! The observer of mappings: the pages of mapped files that a process touches.
//!
//! ```text
//!   addresses    |######====....####......#=........|      present: # before, = since
//!                       cursor         cursor
//! ```
//! A mapped file has no position. But a page that the process touches becomes present in its page
//! tables, so what became present between two polls was read, 64 KiB at a time where the kernel
//! maps what lies around. A stream cursor stands where such a run ends, or begins for a reader that
//! goes backward: one for each thread that goes through the file, or a part of it.
//!
//! # Invariants
//! - A poll costs what is new: page tables are scanned from the cursors on, and all of them only
//!   every now and then, where some page became present.
//! - What was touched before its mapping was found is found with it, even if its reader sleeps
//!   then.
//! - What was touched of a mapping stays known where the kernel splits it or joins it with others.
//! - At most [`MAPPINGS_MAX`] mappings of a process and [`CURSORS_MAX`] cursors in all; where these
//!   are too many the mapping with most of them gives one up, that which stood still longest.
//! - The pause after a scan has a bound, however expensive the scan was.
//! - A file is opened when some of it becomes present, and closed with the last of its mapping.
//! # Sources
//! proc(5); Linux `mm/memory.c` (`do_fault_around`).

use std::cmp::Reverse;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::slice;

use forerun_core::units::Nanos;
use rustix::fs::Stat;

use super::access::{AccessSink, CursorId};
use super::cursors::{Continuation, Cursor, Cursors};
use super::pagemap;
use super::poll::SCAN_PAUSE_MAX;
use super::procfs::text::{self, Mapping, Sizes};
use super::procfs::{open_in, open_target, read};
use crate::clock::thread_time;

mod runs;

/// The mapped files of a process.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    statm: Option<File>,
    stat: Option<File>,
    pagemap: Option<File>,
    /// The sizes when `maps` was read last.
    known: Option<Sizes>,
    /// The page faults when they were read last.
    faults: Option<u64>,
    /// Present pages of files when all page tables of these mappings were scanned last.
    scanned: Option<u64>,
    mapped: Vec<MappedFile>,
    /// When all page tables are scanned again.
    scan_at: Nanos,
    /// Pages became present, and it is too soon for that.
    has_pending_scan: bool,
}

/// A mapping of a file.
#[derive(Debug)]
struct MappedFile {
    addresses: Range<u64>,
    offset: u64,
    inode: u64,
    path: OsString,
    /// What was present at the last scan.
    runs: Vec<Range<u64>>,
    cursors: Cursors<CursorId>,
    /// Its file cannot be followed.
    is_left: bool,
}

impl Mappings {
    /// Finds mappings that are new, and forgets those that are gone.
    pub(crate) fn discover(
        &mut self,
        process: BorrowedFd<'_>,
        now: Nanos,
        sink: &mut dyn AccessSink,
    ) -> Option<()> {
        let sizes = self.sizes(process)?;
        // A mapping that is followed may have been replaced by another of its size, which has
        // faulted then. What is not followed may have become of interest too, but is not touched.
        let is_same = self.known == Some(sizes);
        if is_same && (self.mapped.is_empty() || !self.has_faulted(process)) {
            return Some(());
        }
        let mut list = Vec::new();
        open_in(process, "maps")?.read_to_end(&mut list).ok()?;
        self.known = Some(sizes);
        let mut before = std::mem::take(&mut self.mapped);
        let mut some_are_new = false;
        let lines = list.split(|&byte| byte == b'\n').filter_map(text::mapping);
        for mapping in lines.filter(is_followed).take(MAPPINGS_MAX) {
            let same = |old: &MappedFile| old.addresses == mapping.addresses && old.shows(&mapping);
            let known = before.iter().position(same).map(|at| before.swap_remove(at));
            some_are_new |= known.is_none();
            let known = known.unwrap_or_else(|| {
                let mut new = MappedFile::new(&mapping);
                let parts = before.iter_mut().filter(|old| old.shows(&mapping));
                parts.for_each(|old| new.inherit(old));
                new
            });
            self.mapped.push(known);
        }
        for gone in before {
            gone.close(now, sink);
        }
        // As many pages may be present as before, and others.
        self.scanned = None;
        if some_are_new {
            self.scan_at = now;
        }
        Some(())
    }

    /// Reports the pages that became present. Whether any did.
    pub(crate) fn poll(
        &mut self,
        process: BorrowedFd<'_>,
        now: Nanos,
        sink: &mut dyn AccessSink,
    ) -> bool {
        self.has_pending_scan = false;
        if self.mapped.is_empty() {
            return false;
        }
        let Some(Sizes { present, .. }) = self.sizes(process) else { return false };
        if self.scanned == Some(present) {
            return false;
        }
        // The process may have become another program: page tables are those of one.
        if self.pagemap.is_none() || now >= self.scan_at {
            self.pagemap = open_in(process, "pagemap");
        }
        let Some(pagemap) = &self.pagemap else { return false };
        let mut moved = false;
        for mapped in &mut self.mapped {
            moved |= mapped.follow_cursors(pagemap, now, sink);
        }
        if now < self.scan_at {
            self.has_pending_scan = true;
            return moved;
        }
        let began = thread_time();
        for at in 0..self.mapped.len() {
            moved |= self.mapped[at].scan(process, pagemap, now, sink);
            keep_few(&mut self.mapped, now, sink);
        }
        self.scan_at = now + scan_pause(thread_time().since(began));
        self.scanned = Some(present);
        moved
    }

    /// Whether pages became present, and it was too soon for a scan of all.
    pub(crate) fn has_pending_scan(&self) -> bool {
        self.has_pending_scan
    }

    /// The process is gone.
    pub(crate) fn close(&mut self, now: Nanos, sink: &mut dyn AccessSink) {
        for gone in std::mem::take(&mut self.mapped) {
            gone.close(now, sink);
        }
    }

    /// Whether there were page faults since the last call, where the kernel tells.
    fn has_faulted(&mut self, process: BorrowedFd<'_>) -> bool {
        if self.stat.is_none() {
            self.stat = open_in(process, "stat");
        }
        let faults = self.stat.as_ref().and_then(|stat| read(stat, text::faults));
        std::mem::replace(&mut self.faults, faults) != faults || faults.is_none()
    }

    fn sizes(&mut self, process: BorrowedFd<'_>) -> Option<Sizes> {
        if self.statm.is_none() {
            self.statm = open_in(process, "statm");
        }
        read(self.statm.as_ref()?, text::sizes)
    }
}

impl MappedFile {
    fn new(mapping: &Mapping<'_>) -> Self {
        assert!(mapping.addresses.start < mapping.addresses.end, "a mapping is not empty");
        Self {
            addresses: mapping.addresses.clone(),
            offset: mapping.offset,
            inode: mapping.inode,
            path: mapping.path.to_owned(),
            runs: Vec::new(),
            cursors: Cursors::new(),
            is_left: false,
        }
    }

    /// Whether some of `mapping` shows the same bytes at the same addresses.
    fn shows(&self, mapping: &Mapping<'_>) -> bool {
        let begins = |start: u64, offset| start.wrapping_sub(offset);
        self.inode == mapping.inode
            && begins(self.addresses.start, self.offset)
                == begins(mapping.addresses.start, mapping.offset)
            && self.addresses.start < mapping.addresses.end
            && mapping.addresses.start < self.addresses.end
    }

    /// Adopts what lies within it of `old`, of which it was a part or which became one of its: the
    /// kernel splits and joins mappings as their flags change.
    fn inherit(&mut self, old: &mut Self) {
        let Range { start, end } = self.addresses;
        let within = old.runs.iter().map(|run| run.start.max(start)..run.end.min(end));
        self.runs.extend(within.filter(|run| run.start < run.end));
        self.runs.sort_by_key(|run| run.start);
        self.cursors.take_from(&mut old.cursors, &(start..end));
        self.is_left |= old.is_left;
    }

    /// The place in the file of the bytes at `addresses`.
    fn place(&self, addresses: &Range<u64>) -> Range<u64> {
        assert!(self.addresses.start <= addresses.start, "{addresses:x?} is of another mapping");
        let from = self.offset + (addresses.start - self.addresses.start);
        from..from + (addresses.end - addresses.start)
    }

    /// Reports what became present right behind the cursors.
    fn follow_cursors(&mut self, pagemap: &File, now: Nanos, sink: &mut dyn AccessSink) -> bool {
        let mut moved = false;
        let mut cursors = std::mem::replace(&mut self.cursors, Cursors::new());
        for cursor in cursors.iter_mut() {
            let range = cursor.end..self.addresses.end.min(cursor.end + BEHIND_BYTES);
            let Ok(found) = pagemap::present(pagemap, range, 1) else { continue };
            let Some(run) = found.first().filter(|run| run.start == cursor.end) else { continue };
            // Some of it may have been present before, as above a reader that goes backward.
            for fresh in runs::added(&self.runs, slice::from_ref(run)) {
                sink.read(now, cursor.state, &self.place(&fresh), true);
                cursor.used = now.0;
                moved = true;
            }
            cursor.end = run.end;
            runs::lengthen(&mut self.runs, run);
        }
        self.cursors = cursors;
        moved
    }

    /// Scans all of it, and reports what became present anywhere: new cursors begin there.
    fn scan(
        &mut self,
        process: BorrowedFd<'_>,
        pagemap: &File,
        now: Nanos,
        sink: &mut dyn AccessSink,
    ) -> bool {
        if self.is_left {
            return false;
        }
        let Ok(runs) = pagemap::present(pagemap, self.addresses.clone(), RUNS_MAX) else {
            return false;
        };
        let fresh = runs::added(&self.runs, &runs);
        self.runs = runs;
        for run in fresh.iter().take(super::cursors::COUNT_MAX) {
            if self.report(process, run, now, sink).is_none() {
                self.is_left = true;
                break;
            }
        }
        !fresh.is_empty()
    }

    /// Reports `run`, which became present: a cursor continues there, or a new one begins. `None`:
    /// the file cannot be followed.
    fn report(
        &mut self,
        process: BorrowedFd<'_>,
        run: &Range<u64>,
        now: Nanos,
        sink: &mut dyn AccessSink,
    ) -> Option<()> {
        let range = self.place(run);
        if let Some((cursor, how)) = self.cursors.continued_by(run) {
            match how {
                Continuation::Forward => cursor.end = run.end,
                Continuation::Backward => cursor.start = run.start,
            }
            cursor.used = now.0;
            sink.read(now, cursor.state, &range, how == Continuation::Forward);
            return Some(());
        }
        if self.cursors.len() == super::cursors::COUNT_MAX {
            let oldest = self.cursors.remove_oldest().expect("there are some");
            sink.close(now, oldest.state);
        }
        let (file, stat) = self.open(process)?;
        let state = sink.open(now, file, &stat, range.start)?;
        sink.mapped(state);
        sink.read(now, state, &range, false);
        self.cursors.add(Cursor { start: run.start, end: run.end, used: now.0, state });
        Some(())
    }

    /// The file by its name, as the process sees it, if it still is that file.
    fn open(&self, process: BorrowedFd<'_>) -> Option<(File, Stat)> {
        let mut name = OsString::from("root");
        name.push(&self.path);
        open_target(process, name, |stat| stat.st_ino == self.inode)
    }

    fn close(self, now: Nanos, sink: &mut dyn AccessSink) {
        self.cursors.iter().for_each(|cursor| sink.close(now, cursor.state));
    }
}

/// Closes cursors where all mappings together have too many: of the mapping with most of them the
/// one that has stood still longest. Cursors that one scan begins have stood still equally long, so
/// age alone would leave some mapping without any.
fn keep_few(all: &mut [MappedFile], now: Nanos, sink: &mut dyn AccessSink) {
    let count: usize = all.iter().map(|mapped| mapped.cursors.len()).sum();
    for _ in CURSORS_MAX..count {
        let fullest = all
            .iter_mut()
            .max_by_key(|mapped| (mapped.cursors.len(), Reverse(mapped.cursors.oldest_use())));
        let oldest = fullest.and_then(|mapped| mapped.cursors.remove_oldest());
        sink.close(now, oldest.expect("the mapping with most cursors has one").state);
    }
    assert!(all.iter().map(|mapped| mapped.cursors.len()).sum::<usize>() <= CURSORS_MAX);
}

/// The pause after a scan that used `cost` of a processor.
fn scan_pause(cost: Nanos) -> Nanos {
    Nanos(cost.0.saturating_mul(SCAN_ONE_IN)).clamp(SCAN_INTERVAL_MIN, SCAN_PAUSE_MAX)
}

fn is_followed(mapping: &Mapping<'_>) -> bool {
    let bytes = mapping.addresses.end - mapping.addresses.start;
    mapping.readable && !mapping.executable && bytes >= MAPPING_BYTES_MIN
}

/// Mappings of a process that are followed.
const MAPPINGS_MAX: usize = 64;
/// Smaller ones are read before a poll sees them.
const MAPPING_BYTES_MIN: u64 = 1 << 20;
/// Cursors in all mappings of a process: one that reads at random leaves cursors for others.
const CURSORS_MAX: usize = 64;
/// Runs of a mapping that are kept apart.
const RUNS_MAX: usize = 256;
/// How far behind a cursor a poll looks for pages that became present.
const BEHIND_BYTES: u64 = 64 << 20;
const SCAN_INTERVAL_MIN: Nanos = Nanos::from_millis(10);
/// A scan may use one part in so many of a processor.
const SCAN_ONE_IN: u64 = 50;

const _: () = assert!(MAPPINGS_MAX <= CURSORS_MAX, "each mapping keeps a cursor");
const _: () = assert!(SCAN_INTERVAL_MIN.0 <= SCAN_PAUSE_MAX.0);

#[cfg(test)]
mod tests {
    use super::super::access::recording::RecordingSink;
    use super::super::cursors::COUNT_MAX;
    use super::*;

    /// Mappings with so many cursors each, all of which moved at once.
    fn mappings(counts: &[usize]) -> Vec<MappedFile> {
        let mapped = |(at, &count): (usize, &usize)| {
            let line = format!("{at:x}1000-{at:x}2000 r--p 0 fe:00 131 /x");
            let mut mapped = MappedFile::new(&text::mapping(line.as_bytes()).unwrap());
            for which in 0..count {
                let state = CursorId(u32::try_from(at * COUNT_MAX + which).unwrap());
                let gone = mapped.cursors.add(Cursor { start: 0, end: 0, used: 7, state });
                assert!(gone.is_none());
            }
            mapped
        };
        counts.iter().enumerate().map(mapped).collect()
    }

    #[test]
    fn cursors_of_equal_age_give_way_where_they_are_most() {
        let mut sink = RecordingSink::default();
        // The newest mapping has the lowest address, and one reader.
        let mut all = mappings(&[[1].as_slice(), &[COUNT_MAX; 39]].concat());
        keep_few(&mut all, Nanos(8), &mut sink);
        let left: Vec<usize> = all.iter().map(|mapped| mapped.cursors.len()).collect();
        assert_eq!(left.iter().sum::<usize>(), CURSORS_MAX);
        assert!(left.iter().all(|&count| (1..=2).contains(&count)), "{left:?}");
        assert_eq!(sink.closed.len(), 39 * COUNT_MAX + 1 - CURSORS_MAX);
        // Within a mapping the oldest gives way, and of equal ones the mapping with the oldest.
        let mut all = mappings(&[13; 5]);
        let oldest = all[3].cursors.iter_mut().nth(5).unwrap();
        (oldest.used, oldest.state) = (6, CursorId(999));
        keep_few(&mut all, Nanos(8), &mut sink);
        assert_eq!(sink.closed.last(), Some(&CursorId(999)));
    }

    #[test]
    fn the_pause_after_a_scan_has_bounds() {
        let millis = Nanos::from_millis;
        #[rustfmt::skip]
        let rows = [ // cost, pause
            (Nanos(0),          SCAN_INTERVAL_MIN,   "a free one"),
            (millis(1),         millis(50),          "its part of a processor"),
            (millis(600_000),   SCAN_PAUSE_MAX,      "an expensive one"),
            (Nanos(u64::MAX),   SCAN_PAUSE_MAX,      "the largest number"),
        ];
        for (cost, pause, why) in rows {
            assert_eq!(scan_pause(cost), pause, "{why}");
        }
    }
}
