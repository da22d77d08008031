//! The observer of system calls: what programs report by the shim, each read with its place, also
//! reads that move no position.
//!
//! ```text
//!   ring: (pid, fd) read 0..4K, 4K..8K, 8K..12K    -->  one access 0..12K of one cursor
//! ```
//! A call that moves bytes to another file is announced, and reported as it goes on ([`Move`]).
//! A poll that finds no record yet leaves the file to the observer of open files: reads that this
//! has met by then come as records later, and are not reported again.
//!
//! # Invariants
//! - A record is a hint: it counts only for a process that is followed, the file is opened by that
//!   process's descriptor, and must be the one that the record names. Other records are dropped.
//! - At most [`DESCRIPTORS_MAX`] descriptors; they and their cursors go with the process.
//! - A poll ends soon after its allowance: records and reads that are left then are lost, and
//!   counted; calls that move bytes go on with the next poll, each in its turn. That a descriptor
//!   was closed is never lost so.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use forerun_core::units::Nanos;

use super::access::{AccessSink, CursorId};
use super::cursors::{Cursor, Cursors};
use super::moves::Move;
use super::open_files::{Inode, follow};
use super::poll::Allowance;
use super::processes::ProcessTree;
use super::shim::layout::RUN_BYTES;
use super::shim::{Kind, Record, Ring};

/// What programs reported, by process and descriptor.
#[derive(Debug)]
pub(crate) struct CallObserver {
    ring: Ring,
    descriptors: BTreeMap<(i32, i32), Descriptor>,
    /// The descriptor whose call of bytes that move the next poll goes on with.
    moves_from: (i32, i32),
    /// Records of the last poll; kept for their memory.
    records: Vec<Record>,
    /// Reads for which there was no time.
    dropped: u64,
}

/// A descriptor, with one reader or several, each in its place.
#[derive(Debug)]
struct Descriptor {
    inode: Inode,
    /// Holds the file as long as the descriptor stands for it; `None` where it cannot be followed.
    first: Option<CursorId>,
    cursors: Cursors<Unreported>,
    /// The call that moves its bytes, and whether that has returned.
    moving: Option<(Move, bool)>,
    /// What was reported of it by its position, and no record has told of yet: cut as records come,
    /// and soon forgotten.
    known: [Range<u64>; 2],
    /// The end of what was reported so.
    known_to: u64,
    /// Reads so far.
    reads: u64,
    /// Of these, those for which there was no time, and that are not counted yet.
    dropped: u64,
}

/// The reads of one reader since the last poll.
#[derive(Debug, Default)]
struct Unreported {
    /// `None` before its first report.
    cursor: Option<CursorId>,
    /// Forward reads are joined, backward ones in short pieces.
    reads: Vec<Range<u64>>,
    /// The end of what was reported last.
    reported: u64,
}

impl CallObserver {
    pub(crate) fn new(ring: Ring) -> Self {
        let (descriptors, moves_from) = (BTreeMap::new(), (0, 0));
        Self { ring, descriptors, moves_from, records: Vec::new(), dropped: 0 }
    }

    /// Records that were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.ring.lost().saturating_add(self.dropped)
    }

    /// Reports the records that came, as far as `allowance` goes. Whether any was of a read.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        tree: &mut ProcessTree,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> bool {
        let mut records = std::mem::take(&mut self.records);
        self.ring.drain(|record| records.push(record));
        let (mut moved, mut is_over) = (false, false);
        for (nth, record) in records.iter().enumerate() {
            let looks = !is_over && (nth % CHEAP_STEPS == 0 || self.is_costly(record));
            is_over |= looks && allowance.is_over();
            if is_over && record.kind != Kind::Close {
                self.dropped += u64::from(record.kind == Kind::Read);
            } else {
                moved |= self.take(record, now, tree, allowance, sink).is_some();
            }
        }
        records.clear();
        self.records = records;
        assert!(self.descriptors.len() <= DESCRIPTORS_MAX, "more descriptors than are allowed");
        moved |= self.go_on(now, tree, allowance, sink);
        let dropped = &mut self.dropped;
        self.descriptors.retain(|&(pid, _), descriptor| {
            let stays = tree.has(pid);
            descriptor.outlast_known();
            if !stays || descriptor.has_news() {
                sink.process(pid, tree.processor(pid));
                *dropped += descriptor.report(now, allowance, sink);
            }
            if !stays {
                descriptor.close(now, sink);
            }
            stays
        });
        moved
    }

    /// Takes in how far the calls are that move bytes, of one descriptor after the other as far as
    /// `allowance` goes; the next poll goes on from there. Whether any has gone on.
    fn go_on(
        &mut self,
        now: Nanos,
        tree: &ProcessTree,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> bool {
        let lasting = self.descriptors.iter().filter(|it| matches!(it.1.moving, Some((_, false))));
        let lasting = lasting.map(|(&key, _)| key).collect();
        allowance.in_turn(lasting, &mut self.moves_from, |key| {
            let descriptor = self.descriptors.get_mut(&key).expect("none was removed");
            let process = tree.folder(key.0);
            process.is_some_and(|it| descriptor.go_on(it, now, allowance, sink))
        })
    }

    /// Closes what processes have left that are followed no more; their last reads are reported.
    pub(crate) fn close_left(&mut self, tree: &ProcessTree, now: Nanos, sink: &mut dyn AccessSink) {
        self.descriptors.retain(|&(pid, _), descriptor| {
            let stays = tree.has(pid);
            if !stays {
                descriptor.close(now, sink);
            }
            stays
        });
    }

    /// Whether `record` is the first of a descriptor: its file is looked at and opened.
    fn is_costly(&self, record: &Record) -> bool {
        let key = (record.pid.try_into().unwrap_or(0), record.fd.try_into().unwrap_or(0));
        matches!(record.kind, Kind::Read | Kind::Move) && !self.descriptors.contains_key(&key)
    }

    fn take(
        &mut self,
        record: &Record,
        now: Nanos,
        tree: &mut ProcessTree,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> Option<()> {
        let (pid, fd) = (record.pid.try_into().ok()?, record.fd.try_into().ok()?);
        if !tree.has(pid) {
            return None;
        }
        let inode = (record.dev, record.ino);
        let known = self.descriptors.get(&(pid, fd));
        if record.kind == Kind::Close || known.is_some_and(|known| known.inode != inode) {
            self.close(pid, fd, now, tree, allowance, sink);
        }
        match record.kind {
            // A mapping is followed by its pages.
            Kind::Open | Kind::Map | Kind::Close => return None,
            Kind::Moved => {
                let (_, is_over) = self.descriptors.get_mut(&(pid, fd))?.moving.as_mut()?;
                *is_over = true;
                return None;
            }
            Kind::Read | Kind::Move => {}
        }
        let range = record.offset..record.offset.checked_add(record.length)?;
        let is_read = record.kind == Kind::Read;
        let is_long = is_read && record.length > READ_BYTES_MAX;
        if range.is_empty() || is_long || i64::try_from(range.end).is_err() {
            return None;
        }
        if !self.descriptors.contains_key(&(pid, fd)) {
            if self.descriptors.len() >= DESCRIPTORS_MAX {
                return None;
            }
            let processor = tree.processor(pid);
            let (process, known) = tree.hand_over(pid, fd, inode, now, sink)?;
            sink.process(pid, processor);
            let first = follow(process, fd, inode, now, sink);
            self.descriptors.insert((pid, fd), Descriptor::new(inode, first, known));
        }
        let descriptor = self.descriptors.get_mut(&(pid, fd))?;
        if !is_read {
            let to = record.to.0.try_into().ok()?;
            let moving = Move::new(record.offset, record.length, to, record.to.1)?;
            let known = descriptor.known.iter_mut().find(|known| known.contains(&record.offset));
            descriptor.moving =
                Some((moving.known_to(known.map_or(0, |it| std::mem::take(it).end)), false));
            return None;
        }
        let moved = descriptor.moving.take_if(|(_, is_over)| *is_over);
        let news = moved.map_or([range.clone(), 0..0], |(moved, _)| moved.beyond(&range));
        for range in news.into_iter().filter(|range| !range.is_empty()) {
            for part in descriptor.news_of(range) {
                descriptor.read(&part, now, allowance, sink);
            }
        }
        Some(())
    }

    fn close(
        &mut self,
        pid: i32,
        fd: i32,
        now: Nanos,
        tree: &mut ProcessTree,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) {
        let Some(mut descriptor) = self.descriptors.remove(&(pid, fd)) else { return };
        tree.take_back(pid, fd);
        sink.process(pid, tree.processor(pid));
        self.dropped += descriptor.report(now, allowance, sink);
        descriptor.close(now, sink);
    }
}

impl Descriptor {
    fn new(inode: Inode, first: Option<CursorId>, known: [Range<u64>; 2]) -> Self {
        let (cursors, moving, known_to, reads, dropped) = (Cursors::new(), None, 0, 0, 0);
        Self { inode, first, cursors, moving, known, known_to, reads, dropped }
    }

    /// The parts of `range` that were not reported by the position.
    fn news_of(&mut self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let overlaps = |it: &&mut Range<u64>| it.start.max(range.start) < it.end.min(range.end);
        let parts = match self.known.iter_mut().find(overlaps) {
            Some(known) => {
                let before = range.start..known.start.max(range.start);
                known.start = known.end.min(range.end);
                self.known_to = known.start;
                [before, self.known_to..range.end]
            }
            None => [range, 0..0],
        };
        parts.into_iter().filter(|part| !part.is_empty())
    }

    /// All records have come of what was known, but for those that the shim may hold back yet.
    fn outlast_known(&mut self) {
        for known in &mut self.known {
            known.start = known.start.max(known.end.saturating_sub(RUN_BYTES));
        }
    }

    /// Takes in how far the call is that moves its bytes. Whether it has gone on.
    fn go_on(
        &mut self,
        process: BorrowedFd<'_>,
        now: Nanos,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> bool {
        let (Some(first), Some((moving, false))) = (self.first, &mut self.moving) else {
            return false;
        };
        let to = moving.reached(process);
        let Some(moved) = moving.advance(to, first, sink) else { return false };
        self.read(&moved, now, allowance, sink).is_some()
    }

    /// Takes in a read: a cursor continues there, or a new one begins.
    fn read(
        &mut self,
        range: &Range<u64>,
        now: Nanos,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> Option<()> {
        assert!(!range.is_empty(), "a read has bytes");
        let first = self.first?;
        self.reads += 1;
        let used = self.reads;
        if let Some((cursor, _)) = self.cursors.continued_by(range) {
            (cursor.start, cursor.end, cursor.used) = (range.start, range.end, used);
            cursor.state.add(range);
            return Some(());
        }
        let reported = if range.start == self.known_to { self.known_to } else { 0 };
        let mut state = Unreported { reported, ..Unreported::default() };
        state.add(range);
        let cursor = Cursor { start: range.start, end: range.end, used, state };
        if let Some(gone) = self.cursors.add(cursor) {
            self.dropped += gone.state.give_way(first, now, allowance, sink);
        }
        Some(())
    }

    fn has_news(&self) -> bool {
        self.cursors.iter().any(|cursor| !cursor.state.reads.is_empty())
    }

    /// Reports what was read since the last report; how many reads `allowance` is too short for.
    fn report(&mut self, now: Nanos, allowance: Allowance, sink: &mut dyn AccessSink) -> u64 {
        let Some(first) = self.first else { return 0 };
        let mut dropped = std::mem::take(&mut self.dropped);
        for cursor in self.cursors.iter_mut() {
            dropped += cursor.state.report(first, now, allowance, sink);
        }
        assert!(!self.has_news(), "all is reported");
        dropped
    }

    fn close(&self, now: Nanos, sink: &mut dyn AccessSink) {
        let cursors = self.cursors.iter().filter_map(|cursor| cursor.state.cursor);
        for cursor in cursors.chain(self.first) {
            sink.close(now, cursor);
        }
    }
}

impl Unreported {
    fn add(&mut self, range: &Range<u64>) {
        match self.reads.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            Some(last) if last.start == range.end && last.end - range.start <= BACKWARD_BYTES => {
                last.start = range.start;
            }
            Some(_) | None => self.reads.push(range.clone()),
        }
    }

    /// How many reads `allowance` is too short for.
    fn report(
        &mut self,
        first: CursorId,
        now: Nanos,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> u64 {
        let Some(from) = self.reads.first().map(|read| read.start) else { return 0 };
        self.cursor = self.cursor.or_else(|| sink.open_again(first, from));
        let mut dropped = 0;
        for read in self.reads.drain(..) {
            let Some(cursor) = self.cursor.filter(|_| dropped == 0 && !allowance.is_over()) else {
                dropped += u64::from(self.cursor.is_some());
                continue;
            };
            // A new reader begins at a file's first byte, or where its position has stood.
            sink.read(now, cursor, &read, read.start == self.reported);
            self.reported = read.end;
        }
        dropped
    }

    /// Reports what is left before the cursor goes. A cursor that began since the last poll does
    /// not go on: a program that reads at random is not followed from place to place. How many
    /// reads `allowance` is too short for.
    fn give_way(
        mut self,
        first: CursorId,
        now: Nanos,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> u64 {
        let Some(cursor) = self.cursor else {
            self.reads.iter().for_each(|read| sink.read_once(now, first, read));
            return 0;
        };
        let dropped = self.report(first, now, allowance, sink);
        sink.close(now, cursor);
        dropped
    }
}

/// Backward reads are reported in pieces of so much, as the shim records forward ones.
const BACKWARD_BYTES: u64 = 64 << 10;
/// No system call reads more.
const READ_BYTES_MAX: u64 = 1 << 31;
/// Records between two looks at the allowance.
const CHEAP_STEPS: usize = 64;
/// Descriptors that were reported; a word in the ring may name any.
const DESCRIPTORS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::{Command, Stdio};

    use forerun_testkit::Scratch;
    use rustix::process::{Pid, getpid};

    use super::super::access::recording::RecordingSink;
    use super::super::cursors::COUNT_MAX;
    use super::*;

    fn descriptor() -> Descriptor {
        Descriptor::new((0, 0), Some(CursorId(0)), [0..0, 0..0])
    }

    #[test]
    fn all_reads_are_reported() {
        type Rows<'a> = (&'a str, &'a [Range<u64>], &'a [(u32, Range<u64>, bool)]);
        #[rustfmt::skip]
        let rows: [Rows<'_>; 5] = [
            ("in order",     &[0..10, 10..20], &[(1, 0..20, true)]),
            ("backward",     &[20..30, 10..20], &[(1, 10..30, false)]),
            ("in pieces",    &[98_304..163_841, 65_536..98_304],
                             &[(1, 98_304..163_841, false), (1, 65_536..98_304, false)]),
            ("back over it", &[10..20, 20..30, 10..20], &[(1, 10..30, false), (1, 10..20, false)]),
            ("two that meet", &[50..60, 30..40, 40..50, 60..70, 50..60, 70..80],
                             &[(1, 50..80, false), (2, 30..60, false)]),
        ];
        for (why, reads, reported) in rows {
            let (mut sink, mut descriptor) = (RecordingSink::default(), descriptor());
            for range in reads {
                descriptor.read(range, Nanos(0), Allowance::endless(), &mut sink);
            }
            assert_eq!(descriptor.report(Nanos(0), Allowance::endless(), &mut sink), 0);
            assert_eq!(sink.reads, reported, "{why}");
        }
    }

    #[test]
    fn what_the_position_has_shown_is_not_reported_again() {
        type Rows<'a> = (&'a str, Range<u64>, &'a [Range<u64>], &'a [(Range<u64>, bool)]);
        #[rustfmt::skip]
        let rows: [Rows<'_>; 8] = [ // why, known, records, reported
            ("nothing was known",     0..0,   &[0..64, 64..128],   &[(0..128, true)]),
            ("a part of a record",    0..100, &[0..64, 64..128],   &[(100..128, true)]),
            ("whole records",         0..128, &[0..128, 128..192], &[(128..192, true)]),
            ("the first were lost",   0..128, &[64..128, 128..192], &[(128..192, true)]),
            ("read again",            0..100, &[0..64, 64..100, 0..64], &[(0..64, true)]),
            ("from another place on", 0..99, &[200..264, 264..300], &[(200..300, false)]),
            ("and before it",         64..99, &[0..9, 64..100],   &[(0..9, true), (99..100, true)]),
            ("over it on both sides", 20..40, &[0..30, 30..64],  &[(0..20, true), (40..64, true)]),
        ];
        for (why, known, records, expected) in rows {
            let mut sink = RecordingSink::default();
            let mut descriptor = Descriptor::new((0, 0), Some(CursorId(0)), [known, 0..0]);
            for record in records {
                for range in descriptor.news_of(record.clone()) {
                    descriptor.read(&range, Nanos(0), Allowance::endless(), &mut sink);
                }
            }
            assert_eq!(descriptor.report(Nanos(0), Allowance::endless(), &mut sink), 0, "{why}");
            let read: Vec<_> = sink.reads.into_iter().map(|(_, range, it)| (range, it)).collect();
            assert_eq!(read, expected, "{why}");
        }
    }

    #[test]
    fn what_the_position_has_shown_is_forgotten_but_for_what_the_shim_holds_back() {
        const MIB: u64 = 1 << 20;
        let mut descriptor = Descriptor::new((0, 0), Some(CursorId(0)), [0..MIB, 0..0]);
        descriptor.outlast_known();
        let mut first = |range| descriptor.news_of(range).next();
        assert_eq!(first(0..4096), Some(0..4096), "it is read again");
        let held = MIB - 4096..MIB + 4096;
        assert_eq!(first(held.clone()), Some(MIB..MIB + 4096));
        assert_eq!(first(held.clone()), Some(held), "it is read again");
    }

    #[test]
    fn random_reads_are_not_followed_from_place_to_place() {
        let (mut sink, mut descriptor) = (RecordingSink::default(), descriptor());
        let place = |at: u64| at * 100..at * 100 + 10;
        for at in 1..=100 {
            descriptor.read(&place(at), Nanos(0), Allowance::endless(), &mut sink);
        }
        assert_eq!(descriptor.report(Nanos(0), Allowance::endless(), &mut sink), 0);
        let mut reported: Vec<_> = sink.reads.iter().map(|(_, range, _)| range.clone()).collect();
        reported.sort_by_key(|range| range.start);
        assert_eq!(reported, (1..=100).map(place).collect::<Vec<_>>());
        let once = sink.reads.iter().filter(|(cursor, ..)| *cursor == 0).count();
        assert_eq!((once, sink.cursors), (100 - COUNT_MAX, 16));
    }

    #[test]
    fn calls_that_move_bytes_go_on_each_in_its_turn_as_far_as_the_allowance_goes() {
        const BYTES: u64 = 1 << 20;
        let scratch = Scratch::new("moves");
        let copy = File::create(scratch.join("copy")).unwrap();
        copy.set_len(BYTES).unwrap();
        // Its output has grown as far as a move of all bytes has it grow.
        let mut program = Command::new("cat");
        let mut program = program.stdin(Stdio::piped()).stdout(copy).spawn().unwrap();
        let pid = i32::try_from(program.id()).unwrap();
        let mut tree = ProcessTree::new(Pid::from_raw(pid).unwrap(), Some(getpid()));
        let mut calls = CallObserver::new(Ring::create().unwrap().0);
        for fd in 10..13 {
            let moving = Some((Move::new(0, BYTES, 1, 0).unwrap(), false));
            calls.descriptors.insert((pid, fd), Descriptor { moving, ..descriptor() });
        }
        let mut sink = RecordingSink::default();
        assert!(!calls.poll(Nanos(0), &mut tree, Allowance::of(Nanos(0)), &mut sink));
        assert_eq!((sink.reads.len(), calls.moves_from), (0, (pid, 10)), "there was no time");
        calls.moves_from = (pid, 12);
        assert!(calls.poll(Nanos(0), &mut tree, Allowance::endless(), &mut sink));
        let read: Vec<_> = sink.reads.iter().map(|(_, range, _)| range.clone()).collect();
        assert_eq!(read, [(); 3].map(|()| 0..BYTES), "of all, also of those before");
        drop(program.stdin.take());
        assert!(program.wait().unwrap().success());
    }
}
