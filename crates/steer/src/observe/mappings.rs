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
//! - Lists and page tables are read in pieces, and a poll ends soon after its allowance.
//! - A poll costs what is new: page tables are scanned from the cursors on, and all of them only
//!   every now and then, where some page became present.
//! - What was touched before its mapping was found is found with it, even if its reader sleeps
//!   then.
//! - A mapping that gave way to others before some of it was touched is none.
//! - What was touched of a mapping stays known where the kernel splits it or joins it with others.
//! - At most [`MAPPINGS_MAX`] mappings of a process and [`CURSORS_MAX`] cursors in all; where these
//!   are too many the mapping with most of them gives one up, that which stood still longest.
//! - The pause after a scan has a bound, however expensive the scan was.
//! - A file is opened when some of it becomes present, and closed with the last of its mapping:
//!   where a process has less mapped than at the last poll, the mappings with open files are looked
//!   at before the next list is read.
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
use rustix::fs::{AtFlags, statat};
use rustix::io::Errno;

use super::access::{AccessSink, CursorId};
use super::cursors::{Continuation, Cursor, Cursors};
use super::pagemap;
use super::poll::{Allowance, SCAN_PAUSE_MAX};
use super::procfs::text::{self, Mapping, Sizes};
use super::procfs::{self, open_in, read};
use crate::clock::thread_time;
use crate::kernel::Stat;
use crate::open::{Candidate, Name, Refusal, as_seen_by, mapping, open};

mod runs;

/// The mapped files of a process.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    statm: Option<File>,
    stat: Option<File>,
    pagemap: Option<File>,
    /// The sizes when `maps` was read last.
    known: Option<Sizes>,
    /// What it had mapped at the last poll.
    mapped_before: u64,
    /// The page faults when they were read last.
    faults: Option<u64>,
    /// Present pages of files when all page tables of these mappings were scanned last.
    scanned: Option<u64>,
    mapped: Vec<MappedFile>,
    /// The list of mappings that is being read.
    list: Option<MappingList>,
    /// The mapping that the scan of all goes on with, what it took so far, and the present pages
    /// when it began where it is not over.
    scanning: usize,
    scan_took: Nanos,
    scan_began: Option<u64>,
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
    device: u64,
    inode: u64,
    path: OsString,
    /// What was present at the last scan.
    runs: Vec<Range<u64>>,
    cursors: Cursors<CursorId>,
    /// It was still there when some of it had become present: the dynamic loader maps all of a
    /// library at first, and the parts in its place at once.
    is_confirmed: bool,
    /// Where the scan of it goes on.
    scanned: u64,
    /// Its file cannot be followed.
    is_left: bool,
}

impl Mappings {
    /// Finds mappings that are new, and forgets those that are gone; the list may take several
    /// calls. Whether all of it was read, as it is now.
    pub(crate) fn discover(
        &mut self,
        process: BorrowedFd<'_>,
        now: Nanos,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> Option<bool> {
        let is_begun = self.list.is_some();
        if !is_begun {
            let sizes = self.sizes(process)?;
            // A mapping that is followed may have been replaced by another of its size, which has
            // faulted then. What is not followed may have become of interest too, but is not
            // touched.
            let is_same = self.known == Some(sizes);
            if is_same && (self.mapped.is_empty() || !self.has_faulted(process)) {
                return Some(true);
            }
            self.known = Some(sizes);
            self.list = Some(MappingList::open(process)?);
        }
        if !self.list.as_mut()?.read(allowance) {
            return Some(false);
        }
        let list = self.list.take()?;
        let mut before = std::mem::take(&mut self.mapped);
        let mut some_are_new = false;
        for mut new in list.found {
            let same = |old: &MappedFile| old.addresses == new.addresses && old.shows(&new);
            if let Some(at) = before.iter().position(same) {
                self.mapped.push(before.swap_remove(at));
                continue;
            }
            some_are_new = true;
            for old in &mut before {
                if old.shows(&new) {
                    new.inherit(old);
                }
            }
            self.mapped.push(new);
        }
        for gone in before {
            gone.close(now, sink);
        }
        // As many pages may be present as before, and others.
        self.scanned = None;
        (self.scanning, self.scan_began) = (0, None);
        self.mapped.iter_mut().for_each(|mapped| mapped.scanned = mapped.addresses.start);
        if some_are_new {
            self.scan_at = now;
        }
        // Between its parts the list may have changed.
        Some(!is_begun || self.sizes(process) == self.known)
    }

    /// Reports the pages that became present; what `allowance` is too short for is scanned later.
    /// Whether any did.
    pub(crate) fn poll(
        &mut self,
        process: BorrowedFd<'_>,
        now: Nanos,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> bool {
        self.has_pending_scan = false;
        if self.mapped.is_empty() {
            return false;
        }
        let Some(Sizes { present, mapped }) = self.sizes(process) else { return false };
        if mapped < std::mem::replace(&mut self.mapped_before, mapped) {
            self.close_gone(process, now, sink);
        }
        if self.scan_began.is_none() && self.scanned == Some(present) {
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
            if allowance.is_over() {
                break;
            }
        }
        if now < self.scan_at {
            self.has_pending_scan = true;
            return moved;
        }
        let began = thread_time();
        while let Some(mapped) = self.mapped.get_mut(self.scanning) {
            let (is_done, has_more) = mapped.scan(process, pagemap, now, sink);
            moved |= has_more;
            keep_few(&mut self.mapped, now, sink);
            self.scanning += usize::from(is_done);
            if allowance.is_over() {
                break;
            }
        }
        self.scan_took += thread_time().since(began);
        self.has_pending_scan = self.scanning < self.mapped.len();
        if !self.has_pending_scan {
            self.scanning = 0;
            self.scan_at = now + scan_pause(std::mem::take(&mut self.scan_took));
            // Of pages that became present meanwhile the next scan tells.
            self.scanned = Some(self.scan_began.take().unwrap_or(present));
        } else if self.scan_began.is_none() {
            self.scan_began = Some(present);
        }
        moved
    }

    /// Whether pages became present, and it was too soon for a scan of all.
    pub(crate) fn has_pending_scan(&self) -> bool {
        self.has_pending_scan
    }

    /// Whether files are open here for this process.
    pub(crate) fn holds_any(&self) -> bool {
        self.mapped.iter().any(|mapped| mapped.cursors.len() > 0)
    }

    /// The process is gone.
    pub(crate) fn close(&mut self, now: Nanos, sink: &mut dyn AccessSink) {
        for gone in std::mem::take(&mut self.mapped) {
            gone.close(now, sink);
        }
    }

    /// Closes the files whose mappings are gone, or became others: these are found with the next
    /// list. One lookup each, where that takes the list as a whole.
    fn close_gone(&mut self, process: BorrowedFd<'_>, now: Nanos, sink: &mut dyn AccessSink) {
        for mapped in &mut self.mapped {
            if mapped.cursors.len() == 0 {
                continue;
            }
            let Range { start, end } = mapped.addresses;
            if statat(process, mapping(start, end), AtFlags::SYMLINK_NOFOLLOW).err()
                == Some(Errno::NOENT)
            {
                let cursors = std::mem::replace(&mut mapped.cursors, Cursors::new());
                cursors.iter().for_each(|cursor| sink.close(now, cursor.state));
            }
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
            device: mapping.device,
            inode: mapping.inode,
            path: mapping.path.to_owned(),
            runs: Vec::new(),
            cursors: Cursors::new(),
            is_confirmed: false,
            scanned: mapping.addresses.start,
            is_left: false,
        }
    }

    /// Whether some of `mapping` shows the same bytes at the same addresses.
    fn shows(&self, mapping: &Self) -> bool {
        let begins = |start: u64, offset| start.wrapping_sub(offset);
        (self.device, self.inode) == (mapping.device, mapping.inode)
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

    /// Scans a piece of it, and reports what became present anywhere there: new cursors begin.
    /// Whether that was the last piece, and whether anything did.
    fn scan(
        &mut self,
        process: BorrowedFd<'_>,
        pagemap: &File,
        now: Nanos,
        sink: &mut dyn AccessSink,
    ) -> (bool, bool) {
        let Range { start, end } = self.addresses;
        let from = self.scanned.max(start);
        let piece = from..end.min(from.saturating_add(SCAN_BYTES_MAX));
        let is_last = piece.end == end;
        self.scanned = if is_last { start } else { piece.end };
        if self.is_left || piece.is_empty() {
            return (true, false);
        }
        let room = RUNS_MAX - self.runs.iter().take_while(|run| run.end <= piece.start).count();
        if room == 0 {
            self.scanned = start;
            return (true, false);
        }
        let Ok(runs) = pagemap::present(pagemap, piece.clone(), room) else {
            return (true, false);
        };
        let fresh = runs::added(&self.runs, &runs);
        if !fresh.is_empty() && !self.is_confirmed {
            self.is_confirmed = self.is_there(process);
            if !self.is_confirmed {
                return (is_last, false);
            }
        }
        runs::replace(&mut self.runs, &piece, runs);
        self.runs.truncate(RUNS_MAX);
        for run in fresh.iter().take(super::cursors::COUNT_MAX) {
            if self.report(process, run, now, sink).is_none() {
                self.is_left = true;
                break;
            }
        }
        (is_last, !fresh.is_empty())
    }

    /// Whether the process has it mapped as it was found.
    fn is_there(&self, process: BorrowedFd<'_>) -> bool {
        let list = open_in(process, "maps").and_then(|maps| {
            let mut list = Vec::new();
            maps.take(LIST_BYTES_MAX as u64).read_to_end(&mut list).ok().map(|_| list)
        });
        let lines = list.iter().flat_map(|list| list.split(|&byte| byte == b'\n'));
        let mut mappings = lines.filter_map(text::mapping).filter(is_followed);
        mappings.any(|mapping| {
            mapping.addresses == self.addresses && self.shows(&MappedFile::new(&mapping))
        })
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
        let (file, stat) = self.open(process).map_err(|why| sink.refused(why)).ok()?;
        let state = sink.open(now, file, &stat, range.start)?;
        sink.mapped(state);
        sink.read(now, state, &range, false);
        self.cursors.add(Cursor { start: run.start, end: run.end, used: now.0, state });
        Some(())
    }

    /// The file by its mapping, if it still is that file. Where that may not be opened, or the
    /// process has another root or less rights than this one, so that it may not reach the file any
    /// more, by its name, as the process sees it: for that a file system may ask its server.
    fn open(&self, process: BorrowedFd<'_>) -> Result<(File, Stat), Refusal> {
        let is_it = |found: &Candidate<'_>| {
            found.stat.st_ino == self.inode
                && procfs::is_followed(&found.stat)
                && found.is_on(self.device)
        };
        let path = as_seen_by(process, &self.path).ok_or(Refusal::Outside)?;
        let Range { start, end } = self.addresses;
        let is_linked = |found: &Candidate<'_>| found.stat.st_nlink > 0 && is_it(found);
        let has_own_root = path == self.path;
        let opened = has_own_root.then(|| open(process, Name::Mapping(start, end), is_linked));
        match opened {
            None | Some(Err(Refusal::Absent(_) | Refusal::Changed | Refusal::Rights)) => {
                open(process, Name::Path(path), is_it)
            }
            Some(opened) => opened,
        }
    }

    fn close(self, now: Nanos, sink: &mut dyn AccessSink) {
        self.cursors.iter().for_each(|cursor| sink.close(now, cursor.state));
    }
}

/// A list of mappings, read in pieces.
#[derive(Debug)]
struct MappingList {
    maps: File,
    /// The bytes of the last line, of which the end is missing.
    rest: Vec<u8>,
    bytes: usize,
    /// Those that are followed.
    found: Vec<MappedFile>,
}

impl MappingList {
    fn open(process: BorrowedFd<'_>) -> Option<Self> {
        let maps = open_in(process, "maps")?;
        Some(Self { maps, rest: Vec::new(), bytes: 0, found: Vec::new() })
    }

    /// Reads on as far as `allowance` goes. Whether that was the end.
    fn read(&mut self, allowance: Allowance) -> bool {
        let mut piece = vec![0; LIST_PIECE_BYTES];
        while self.found.len() < MAPPINGS_MAX && self.bytes < LIST_BYTES_MAX {
            let count = self.maps.read(&mut piece).unwrap_or(0);
            if count == 0 {
                return true;
            }
            self.bytes += count;
            self.rest.extend_from_slice(&piece[..count]);
            let whole = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            let lines = self.rest[..whole].split(|&byte| byte == b'\n');
            let followed = lines.filter_map(text::mapping).filter(is_followed);
            let room = MAPPINGS_MAX - self.found.len();
            self.found.extend(followed.take(room).map(|mapping| MappedFile::new(&mapping)));
            self.rest.drain(..whole);
            if allowance.is_over() {
                return false;
            }
        }
        true
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
/// The list is read up to there: some forty thousand mappings.
const LIST_BYTES_MAX: usize = 4 << 20;
/// As much of it as the kernel writes at a time.
const LIST_PIECE_BYTES: usize = 4 << 10;
/// Addresses that are scanned at a time.
const SCAN_BYTES_MAX: u64 = 4 << 30;
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
mod tests;
