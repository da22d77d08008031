//! The files that a process has mapped, and where it is in each.
//!
//! ```text
//!   addresses    |######====....####......#=........|      present: # before, = since
//!                       front          front
//! ```
//! A mapped file has no position. But a page that the process touches becomes present in its page
//! tables, so what became present between two looks was read, 64 KiB at a time where the kernel
//! maps what lies around. A front is where such a run ends, or begins for who goes backward: one
//! for each thread that goes through the file, or a part of it.
//!
//! # Invariants
//! - A look costs what is new: page tables are walked from the fronts on, and all of them only
//!   every now and then, where some page became present.
//! - What was touched before its mapping was found is found with it, though its reader sleeps then.
//! - What was touched of a mapping stays told where the kernel splits it or joins it with others.
//! - At most [`MAPPED_MAX`] mappings of a process, [`FRONTS_MAX`] fronts in each and
//!   [`FRONTS_ALL_MAX`] in all; the front that has stood still longest gives way, in all of those
//!   of the mapping with most fronts.
//! - The pause after a survey has a bound, however expensive the survey was.
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

use crate::clock::thread_time;
use crate::files::{file, open_of, text};
use crate::pagemap;
use crate::proc::{self, Mapping, Sizes};
use crate::readers::{CursorId, Readers};
use crate::session::EXPENSIVE_PAUSE_MAX;

/// The mapped files of a process.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    statm: Option<File>,
    stat: Option<File>,
    pagemap: Option<File>,
    /// What there was as `maps` was read last.
    known: Option<Sizes>,
    /// Page faults that it had had when that was asked last.
    faults: Option<u64>,
    /// Pages of files that were present as all page tables of these mappings were looked at last.
    surveyed: Option<u64>,
    mapped: Vec<Mapped>,
    /// When all page tables are looked at again.
    survey_at: Nanos,
    /// Pages became present, and it was too soon for that.
    owes: bool,
}

#[derive(Debug)]
struct Mapped {
    addresses: Range<u64>,
    offset: u64,
    inode: u64,
    path: OsString,
    /// What was present at the last survey.
    runs: Vec<Range<u64>>,
    fronts: Vec<Front>,
    refused: bool,
}

#[derive(Debug)]
struct Front {
    /// Where it goes on, an address, and where it goes on if it goes back.
    end: u64,
    start: u64,
    lane: CursorId,
    /// When it last moved.
    moved: Nanos,
}

impl Maps {
    /// Takes in mappings that are new, and lets go of those that are not there any more.
    pub(crate) fn discover(
        &mut self,
        process: BorrowedFd<'_>,
        now: Nanos,
        readers: &mut dyn Readers,
    ) -> Option<()> {
        let sizes = self.sizes(process)?;
        // One that is followed may have given way to another of its size, which has faulted then.
        // What is not followed may have become of interest too, but nobody has touched it.
        let is_same = self.known == Some(sizes);
        if is_same && (self.mapped.is_empty() || !self.has_faulted(process)) {
            return Some(());
        }
        let mut list = Vec::new();
        file(process, "maps")?.read_to_end(&mut list).ok()?;
        self.known = Some(sizes);
        let mut before = std::mem::take(&mut self.mapped);
        let mut some_are_new = false;
        let lines = list.split(|&byte| byte == b'\n');
        for mapping in lines.filter_map(proc::mapping).filter(is_of_interest) {
            if self.mapped.len() == MAPPED_MAX {
                break;
            }
            let same = |old: &Mapped| old.addresses == mapping.addresses && old.shows(&mapping);
            let known = before.iter().position(same).map(|at| before.swap_remove(at));
            some_are_new |= known.is_none();
            let known = known.unwrap_or_else(|| {
                let mut new = Mapped::new(&mapping);
                let parts = before.iter_mut().filter(|old| old.shows(&mapping));
                parts.for_each(|old| new.inherit(old));
                new
            });
            self.mapped.push(known);
        }
        for gone in before {
            gone.close(now, readers);
        }
        // As many may be present as before, and others.
        self.surveyed = None;
        if some_are_new {
            self.survey_at = now;
        }
        Some(())
    }

    /// Looks which pages became present, and tells `readers`. Whether any did.
    pub(crate) fn look(
        &mut self,
        process: BorrowedFd<'_>,
        now: Nanos,
        readers: &mut dyn Readers,
    ) -> bool {
        self.owes = false;
        if self.mapped.is_empty() {
            return false;
        }
        let Some(Sizes { present, .. }) = self.sizes(process) else { return false };
        if self.surveyed == Some(present) {
            return false;
        }
        // The process may have become another program: page tables are those of one.
        if self.pagemap.is_none() || now >= self.survey_at {
            self.pagemap = file(process, "pagemap");
        }
        let Some(pagemap) = &self.pagemap else { return false };
        let mut moved = false;
        for mapped in &mut self.mapped {
            moved |= mapped.follow_fronts(pagemap, now, readers);
        }
        if now >= self.survey_at {
            let began = thread_time();
            for at in 0..self.mapped.len() {
                moved |= self.mapped[at].survey(process, pagemap, now, readers);
                keep_few(&mut self.mapped, now, readers);
            }
            let cost = thread_time().since(began);
            self.survey_at = now + survey_pause(cost);
            self.surveyed = Some(present);
        } else {
            self.owes = true;
        }
        moved
    }

    /// Whether pages became present that were not looked for yet: it was too soon for a survey.
    pub(crate) fn owes(&self) -> bool {
        self.owes
    }

    /// The process is gone.
    pub(crate) fn close(&mut self, now: Nanos, readers: &mut dyn Readers) {
        for gone in std::mem::take(&mut self.mapped) {
            gone.close(now, readers);
        }
    }

    /// Whether there were page faults since the last time, where the kernel tells.
    fn has_faulted(&mut self, process: BorrowedFd<'_>) -> bool {
        if self.stat.is_none() {
            self.stat = file(process, "stat");
        }
        let faults = self.stat.as_ref().and_then(|stat| text(stat, proc::faults));
        std::mem::replace(&mut self.faults, faults) != faults || faults.is_none()
    }

    fn sizes(&mut self, process: BorrowedFd<'_>) -> Option<Sizes> {
        if self.statm.is_none() {
            self.statm = file(process, "statm");
        }
        text(self.statm.as_ref()?, proc::sizes)
    }
}

impl Mapped {
    fn new(mapping: &Mapping<'_>) -> Self {
        Self {
            addresses: mapping.addresses.clone(),
            offset: mapping.offset,
            inode: mapping.inode,
            path: mapping.path.to_owned(),
            runs: Vec::new(),
            fronts: Vec::new(),
            refused: false,
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

    /// Goes on with what lies within it of `old`, of which it was a part or which became one of
    /// its: the kernel splits and joins mappings as their flags change.
    fn inherit(&mut self, old: &mut Self) {
        let Range { start, end } = self.addresses;
        let within = old.runs.iter().map(|run| run.start.max(start)..run.end.min(end));
        self.runs.extend(within.filter(|run| run.start < run.end));
        self.runs.sort_by_key(|run| run.start);
        let room = FRONTS_MAX.saturating_sub(self.fronts.len());
        let fronts = old.fronts.extract_if(.., |front| (start..end).contains(&front.end));
        self.fronts.extend(fronts.take(room));
        self.refused |= old.refused;
    }

    /// What became present right behind the fronts.
    fn follow_fronts(&mut self, pagemap: &File, now: Nanos, readers: &mut dyn Readers) -> bool {
        let mut moved = false;
        for front in &mut self.fronts {
            let range = front.end..self.addresses.end.min(front.end + REACH_BYTES);
            let Ok(found) = pagemap::present(pagemap, range, 1) else { continue };
            let Some(run) = found.first().filter(|run| run.start == front.end) else { continue };
            // Some of it may have been present before, as above a reader that goes backward.
            for fresh in added(&self.runs, slice::from_ref(run)) {
                let from = self.offset + (fresh.start - self.addresses.start);
                let range = from..from + (fresh.end - fresh.start);
                readers.read(now, front.lane, &range, true);
                front.moved = now;
                moved = true;
            }
            front.end = run.end;
            lengthen(&mut self.runs, run);
        }
        moved
    }

    /// What became present anywhere: new fronts begin there.
    fn survey(
        &mut self,
        process: BorrowedFd<'_>,
        pagemap: &File,
        now: Nanos,
        readers: &mut dyn Readers,
    ) -> bool {
        if self.refused {
            return false;
        }
        let Ok(runs) = pagemap::present(pagemap, self.addresses.clone(), RUNS_MAX) else {
            return false;
        };
        let fresh = added(&self.runs, &runs);
        self.runs = runs;
        for run in fresh.iter().take(FRONTS_MAX) {
            if !self.begin(process, run, now, readers) {
                self.refused = true;
                break;
            }
        }
        !fresh.is_empty()
    }

    /// A front at the end of `run`. `false`: the file cannot be followed.
    fn begin(
        &mut self,
        process: BorrowedFd<'_>,
        run: &Range<u64>,
        now: Nanos,
        readers: &mut dyn Readers,
    ) -> bool {
        let from = self.offset + (run.start - self.addresses.start);
        let range = from..from + (run.end - run.start);
        if let Some(front) = self.fronts.iter_mut().find(|front| front.end == run.start) {
            (front.end, front.moved) = (run.end, now);
            readers.read(now, front.lane, &range, true);
            return true;
        }
        if let Some(front) = self.fronts.iter_mut().find(|front| front.start == run.end) {
            (front.start, front.moved) = (run.start, now);
            readers.read(now, front.lane, &range, false);
            return true;
        }
        if self.fronts.len() == FRONTS_MAX {
            let oldest = (0..FRONTS_MAX).min_by_key(|&at| self.fronts[at].moved);
            let oldest = self.fronts.swap_remove(oldest.expect("there are some"));
            readers.close(now, oldest.lane);
        }
        let Some((file, stat)) = self.open(process) else { return false };
        let Some(lane) = readers.open(now, file, &stat, range.start) else { return false };
        readers.maps(lane);
        readers.read(now, lane, &range, false);
        self.fronts.push(Front { end: run.end, start: run.start, lane, moved: now });
        true
    }

    /// The file by its name, as the process sees it, if it still is that file.
    fn open(&self, process: BorrowedFd<'_>) -> Option<(File, Stat)> {
        let mut name = OsString::from("root");
        name.push(&self.path);
        open_of(process, name, |stat| stat.st_ino == self.inode)
    }

    fn close(self, now: Nanos, readers: &mut dyn Readers) {
        for front in self.fronts {
            readers.close(now, front.lane);
        }
    }
}

/// Closes fronts where all mappings together have too many: of the mapping with most of them the
/// one that has stood still longest. Fronts that one survey begins have stood still equally long,
/// so age alone would leave some mapping without any.
fn keep_few(all: &mut [Mapped], now: Nanos, readers: &mut dyn Readers) {
    let count = all.iter().map(|mapped| mapped.fronts.len()).sum();
    for _ in FRONTS_ALL_MAX..count {
        let oldest = |mapped: &Mapped| mapped.fronts.iter().map(|front| front.moved).min();
        let fullest =
            all.iter_mut().max_by_key(|mapped| (mapped.fronts.len(), Reverse(oldest(mapped))));
        let fronts = &mut fullest.expect("some mapping has a front").fronts;
        let at = (0..fronts.len()).min_by_key(|&at| fronts[at].moved);
        readers.close(now, fronts.swap_remove(at.expect("it has most of them")).lane);
    }
}

/// How long to wait after a survey that took `cost` of a processor.
fn survey_pause(cost: Nanos) -> Nanos {
    Nanos(cost.0.saturating_mul(SURVEY_ONE_IN)).clamp(SURVEY_EVERY, EXPENSIVE_PAUSE_MAX)
}

/// What of `after` is not in `before`; both are in order and without overlaps.
fn added(before: &[Range<u64>], after: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut old = before.iter().peekable();
    for run in after {
        let mut at = run.start;
        while old.next_if(|old| old.end <= at).is_some() {}
        let mut rest = old.clone();
        while let Some(known) = rest.next_if(|known| known.start < run.end) {
            if at < known.start {
                found.push(at..known.start);
            }
            at = at.max(known.end);
        }
        if at < run.end {
            found.push(at..run.end);
        }
    }
    found
}

/// The run in which `more` begins, or at whose end, goes on to its end at least.
fn lengthen(runs: &mut Vec<Range<u64>>, more: &Range<u64>) {
    let begins = |run: &Range<u64>| run.start <= more.start && more.start <= run.end;
    let Some(at) = runs.iter().position(begins) else { return };
    runs[at].end = runs[at].end.max(more.end);
    while runs.get(at + 1).is_some_and(|next| next.start <= runs[at].end) {
        let next = runs.remove(at + 1);
        runs[at].end = runs[at].end.max(next.end);
    }
}

fn is_of_interest(mapping: &Mapping<'_>) -> bool {
    let bytes = mapping.addresses.end - mapping.addresses.start;
    mapping.readable && !mapping.executable && bytes >= MAPPED_BYTES_MIN
}

/// Mappings of a process that are looked at.
const MAPPED_MAX: usize = 64;
/// Smaller ones are read before anybody has seen them.
const MAPPED_BYTES_MIN: u64 = 1 << 20;
/// Readers of a mapping.
const FRONTS_MAX: usize = 16;
/// Readers of all mappings of a process: who reads at random leaves readers for others.
const FRONTS_ALL_MAX: usize = 64;
/// Parts of a mapping that are told apart.
const RUNS_MAX: usize = 256;
/// So far behind a front pages are looked for that became present.
const REACH_BYTES: u64 = 64 << 20;
const SURVEY_EVERY: Nanos = Nanos::from_millis(10);
const SURVEY_ONE_IN: u64 = 50;

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]
mod tests {
    use super::*;
    use crate::readers::heard::Heard;

    /// Mappings with so many fronts each, all of which moved at once.
    fn mappings(counts: &[usize]) -> Vec<Mapped> {
        let front = |lane: usize| {
            let lane = CursorId(u32::try_from(lane).unwrap());
            Front { end: 0, start: 0, lane, moved: Nanos(7) }
        };
        let mapped = |(at, &count): (usize, &usize)| {
            let line = format!("{at:x}1000-{at:x}2000 r--p 0 fe:00 131 /x");
            let mut mapped = Mapped::new(&proc::mapping(line.as_bytes()).unwrap());
            mapped.fronts = (0..count).map(|which| front(at * FRONTS_MAX + which)).collect();
            mapped
        };
        counts.iter().enumerate().map(mapped).collect()
    }

    #[test]
    fn fronts_of_equal_age_give_way_where_they_are_most() {
        let mut heard = Heard::default();
        // The newest mapping has the lowest address, and one reader.
        let mut all = mappings(&[[1].as_slice(), &[FRONTS_MAX; 39]].concat());
        keep_few(&mut all, Nanos(8), &mut heard);
        let left: Vec<usize> = all.iter().map(|mapped| mapped.fronts.len()).collect();
        assert_eq!(left.iter().sum::<usize>(), FRONTS_ALL_MAX);
        assert!(left.iter().all(|&count| (1..=2).contains(&count)), "{left:?}");
        assert_eq!(heard.closed.len(), 39 * FRONTS_MAX + 1 - FRONTS_ALL_MAX);
        // Within a mapping the oldest gives way.
        let mut all = mappings(&[FRONTS_ALL_MAX + 1]);
        all[0].fronts[5].moved = Nanos(6);
        let oldest = all[0].fronts[5].lane;
        keep_few(&mut all, Nanos(8), &mut heard);
        assert_eq!(heard.closed.last(), Some(&oldest));
    }

    #[test]
    fn the_pause_after_a_survey_has_bounds() {
        let millis = Nanos::from_millis;
        #[rustfmt::skip]
        let rows = [ // cost, pause
            (Nanos(0),          SURVEY_EVERY,             "a free one"),
            (millis(1),         millis(50),               "its part of a processor"),
            (millis(600_000),   EXPENSIVE_PAUSE_MAX,      "an expensive one"),
            (Nanos(u64::MAX),   EXPENSIVE_PAUSE_MAX,      "the largest number"),
        ];
        for (cost, pause, why) in rows {
            assert_eq!(survey_pause(cost), pause, "{why}");
        }
    }

    #[test]
    fn what_is_new_is_what_was_not_there() {
        type Runs<'a> = &'a [Range<u64>];
        #[rustfmt::skip]
        let rows: [(&str, Runs<'_>, Runs<'_>, Runs<'_>); 8] = [
            ("nothing before",      &[],            &[1..3, 5..6],  &[1..3, 5..6]),
            ("the same",            &[1..3],        &[1..3],        &[]),
            ("longer",              &[1..3],        &[1..9],        &[3..9]),
            ("longer before",       &[5..9],        &[1..9],        &[1..5]),
            ("grown together",      &[1..3, 7..9],  &[1..9],        &[3..7]),
            ("gone in part",        &[1..9],        &[2..3, 5..6],  &[]),
            ("gone and come",       &[1..3],        &[5..6],        &[5..6]),
            ("round about",         &[3..4, 6..7],  &[1..9],        &[1..3, 4..6, 7..9]),
        ];
        for (why, before, after, expected) in rows {
            assert_eq!(added(before, after), expected, "{why}");
        }
    }

    #[test]
    fn a_run_that_goes_on_meets_others() {
        let mut runs = vec![1..3, 5..6, 8..9];
        lengthen(&mut runs, &(3..4));
        assert_eq!(runs, [1..4, 5..6, 8..9]);
        lengthen(&mut runs, &(4..7));
        assert_eq!(runs, [1..7, 8..9]);
        lengthen(&mut runs, &(20..21));
        assert_eq!(runs, [1..7, 8..9]);
        // Another front was there first, and did not come so far.
        lengthen(&mut runs, &(6..8));
        assert_eq!(runs, [1..9]);
        lengthen(&mut runs, &(2..4));
        assert_eq!(runs, [1..9]);
    }
}
