//! What programs tell by the shim: each read with its place, also those that move no position.
//!
//! ```text
//!   ring: (pid, fd) read 0..4K, 4K..8K, 8K..12K    -->  one read 0..12K of one lane
//! ```
//! # Invariants
//! - A record is a hint: it is taken of a process that is watched alone, the file is opened by that
//!   process's descriptor, and must be the one that the record names. What does not fit is dropped.
//! - At most [`DESCRIPTORS_MAX`] descriptors and [`FRONTS_MAX`] readers of each; they go with it or
//!   with its process.

use std::collections::BTreeMap;
use std::ops::Range;

use forerun_core::units::Nanos;

use crate::files::follow;
use crate::readers::{CursorId, Readers};
use crate::shim::{Kind, Record, Ring};
use crate::watch::Tree;

/// What programs told of, by process and descriptor.
#[derive(Debug)]
pub(crate) struct Told {
    ring: Ring,
    descriptors: BTreeMap<(i32, i32), Descriptor>,
    /// Records of the last look.
    records: Vec<Record>,
}

/// Who reads by one descriptor: one or several, each in its place.
#[derive(Debug)]
struct Descriptor {
    key: (u64, u64),
    /// Holds the file as long as the descriptor stands for it; none where it cannot be followed.
    first: Option<CursorId>,
    fronts: Vec<Front>,
    /// Reads so far.
    reads: u64,
}

#[derive(Debug)]
struct Front {
    /// None before it was told of.
    lane: Option<CursorId>,
    /// What was read there since it was told of last: forward as one, backward in short pieces.
    reads: Vec<Range<u64>>,
    /// The last read.
    start: u64,
    end: u64,
    /// The end of what was told last.
    told: u64,
    /// Which read was its last.
    last: u64,
}

impl Told {
    pub(crate) fn new(ring: Ring) -> Self {
        Self { ring, descriptors: BTreeMap::new(), records: Vec::new() }
    }

    /// Records that did not come through.
    pub(crate) fn lost(&self) -> u64 {
        self.ring.lost()
    }

    /// Takes in what was told. Whether anything was read.
    pub(crate) fn look(&mut self, now: Nanos, tree: &mut Tree, readers: &mut dyn Readers) -> bool {
        let mut records = std::mem::take(&mut self.records);
        self.ring.drain(|record| records.push(record));
        let mut moved = false;
        for record in &records {
            moved |= self.take(record, now, tree, readers).is_some();
        }
        records.clear();
        self.records = records;
        self.descriptors.retain(|&(pid, _), descriptor| {
            let stays = tree.has(pid);
            if !stays || descriptor.has_news() {
                readers.process(pid, tree.processor(pid));
                descriptor.flush(now, readers);
            }
            if !stays {
                descriptor.close(now, readers);
            }
            stays
        });
        moved
    }

    fn take(
        &mut self,
        record: &Record,
        now: Nanos,
        tree: &mut Tree,
        readers: &mut dyn Readers,
    ) -> Option<()> {
        let (pid, fd) = (record.pid.try_into().ok()?, record.fd.try_into().ok()?);
        if !tree.has(pid) {
            return None;
        }
        let key = (record.dev, record.ino);
        let known = self.descriptors.get(&(pid, fd));
        if record.kind == Kind::Close || known.is_some_and(|known| known.key != key) {
            self.close(pid, fd, now, tree, readers);
        }
        match record.kind {
            // A mapping is followed by its pages.
            Kind::Open | Kind::Map | Kind::Close => return None,
            Kind::Read => {}
        }
        let range = record.offset..record.offset.checked_add(record.length)?;
        if range.is_empty() {
            return None;
        }
        if !self.descriptors.contains_key(&(pid, fd)) {
            if self.descriptors.len() >= DESCRIPTORS_MAX {
                return None;
            }
            let process = tree.tells(pid, fd, now, readers)?;
            let first = follow(process, fd, key, now, readers);
            let fresh = Descriptor { key, first, fronts: Vec::new(), reads: 0 };
            self.descriptors.insert((pid, fd), fresh);
        }
        self.descriptors.get_mut(&(pid, fd))?.read(&range, now, readers)
    }

    fn close(&mut self, pid: i32, fd: i32, now: Nanos, tree: &Tree, readers: &mut dyn Readers) {
        let Some(mut descriptor) = self.descriptors.remove(&(pid, fd)) else { return };
        readers.process(pid, tree.processor(pid));
        descriptor.flush(now, readers);
        descriptor.close(now, readers);
    }
}

impl Descriptor {
    /// A read goes on where a front stands, or a new one begins there.
    fn read(&mut self, range: &Range<u64>, now: Nanos, readers: &mut dyn Readers) -> Option<()> {
        let first = self.first?;
        self.reads += 1;
        let last = self.reads;
        let forward = self.fronts.iter().position(|front| front.end == range.start);
        // Where two meet, each goes on its way.
        let at = forward.or_else(|| self.fronts.iter().position(|front| front.start == range.end));
        if let Some(front) = at.and_then(|at| self.fronts.get_mut(at)) {
            front.read(range);
            front.last = last;
            return Some(());
        }
        if self.fronts.len() == FRONTS_MAX {
            let oldest = (0..FRONTS_MAX).min_by_key(|&at| self.fronts[at].last)?;
            self.fronts.swap_remove(oldest).give_way(first, now, readers);
        }
        let mut front = Front { lane: None, reads: Vec::new(), start: 0, end: 0, told: 0, last };
        front.read(range);
        self.fronts.push(front);
        Some(())
    }

    fn has_news(&self) -> bool {
        self.fronts.iter().any(|front| !front.reads.is_empty())
    }

    /// Tells what was read since the last time.
    fn flush(&mut self, now: Nanos, readers: &mut dyn Readers) {
        let Some(first) = self.first else { return };
        for front in &mut self.fronts {
            front.flush(first, now, readers);
        }
    }

    fn close(&self, now: Nanos, readers: &mut dyn Readers) {
        let fronts = self.fronts.iter().filter_map(|front| front.lane);
        for lane in fronts.chain(self.first) {
            readers.close(now, lane);
        }
    }
}

impl Front {
    fn read(&mut self, range: &Range<u64>) {
        (self.start, self.end) = (range.start, range.end);
        match self.reads.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            Some(last) if last.start == range.end && last.end - range.start <= BACK_BYTES => {
                last.start = range.start;
            }
            Some(_) | None => self.reads.push(range.clone()),
        }
    }

    fn flush(&mut self, first: CursorId, now: Nanos, readers: &mut dyn Readers) {
        let Some(from) = self.reads.first().map(|read| read.start) else { return };
        self.lane = self.lane.or_else(|| readers.again(first, from));
        for read in self.reads.drain(..) {
            let Some(lane) = self.lane else { continue };
            // A file's first byte is where every reader begins.
            readers.read(now, lane, &read, read.start == self.told);
            self.told = read.end;
        }
    }

    /// It gives way to another. One that came since the last look was none who goes on: a program
    /// that reads at random is not followed from place to place.
    fn give_way(mut self, first: CursorId, now: Nanos, readers: &mut dyn Readers) {
        if let Some(lane) = self.lane {
            self.flush(first, now, readers);
            readers.close(now, lane);
        } else {
            self.reads.iter().for_each(|read| readers.once(now, first, read));
        }
    }
}

/// Readers of one descriptor that are told apart.
const FRONTS_MAX: usize = 16;
/// What is read backward is told in pieces of so much, as the shim tells what is read in order.
const BACK_BYTES: u64 = 64 << 10;
/// Descriptors that were told of; a word in the ring may name any.
const DESCRIPTORS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readers::heard::Heard;

    #[test]
    fn whatever_is_read_is_told() {
        type Rows<'a> = (&'a str, &'a [Range<u64>], &'a [(u32, Range<u64>, bool)]);
        #[rustfmt::skip]
        let rows: [Rows<'_>; 5] = [
            ("in order",     &[0..10, 10..20], &[(1, 0..20, true)]),
            ("backward",     &[20..30, 10..20], &[(1, 10..30, false)]),
            ("in pieces",    &[98_304..163_841, 65_536..98_304],
                             &[(1, 98_304..163_841, false), (1, 65_536..98_304, false)]),
            ("back over it", &[10..20, 20..30, 10..20], &[(1, 10..30, false), (1, 10..20, false)]),
            ("two who meet", &[50..60, 30..40, 40..50, 60..70, 50..60, 70..80],
                             &[(1, 50..80, false), (2, 30..60, false)]),
        ];
        for (why, reads, told) in rows {
            let mut heard = Heard::default();
            let first = Some(CursorId(0));
            let mut descriptor = Descriptor { key: (0, 0), first, fronts: Vec::new(), reads: 0 };
            for range in reads {
                descriptor.read(range, Nanos(0), &mut heard);
            }
            descriptor.flush(Nanos(0), &mut heard);
            assert_eq!(heard.reads, told, "{why}");
        }
    }

    #[test]
    fn who_reads_at_random_is_not_followed_from_place_to_place() {
        let mut heard = Heard::default();
        let first = Some(CursorId(0));
        let mut descriptor = Descriptor { key: (0, 0), first, fronts: Vec::new(), reads: 0 };
        let place = |at: u64| at * 100..at * 100 + 10;
        for at in 1..=100 {
            descriptor.read(&place(at), Nanos(0), &mut heard);
        }
        descriptor.flush(Nanos(0), &mut heard);
        let mut told: Vec<_> = heard.reads.iter().map(|(_, range, _)| range.clone()).collect();
        told.sort_by_key(|range| range.start);
        assert_eq!(told, (1..=100).map(place).collect::<Vec<_>>());
        let once = heard.reads.iter().filter(|(lane, ..)| *lane == 0).count();
        assert_eq!((once, heard.lanes), (100 - FRONTS_MAX, 16));
    }
}
