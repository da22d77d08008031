//! What programs tell by the shim: each read with its place, also those that move no position.
//!
//! ```text
//!   ring: (pid, fd) read 0..4K, 4K..8K, 8K..12K    -->  one read 0..12K of one lane
//! ```
//! # Invariants
//! - A record is a hint: the file is opened by the process's descriptor, and must be the one that
//!   the record names. What does not fit is dropped.
//! - At most [`FRONTS_MAX`] readers of a descriptor, and go with it or with its process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use forerun_core::units::Nanos;

use crate::clock::time_of;
use crate::drive::{Drive, LaneId};
use crate::files::follow;
use crate::shim::{Kind, Record, Ring};
use crate::watch::Tree;

/// The readers that programs told of.
#[derive(Debug)]
pub(crate) struct Told {
    ring: Ring,
    readers: BTreeMap<(i32, i32), Reader>,
    /// Records of the last look.
    records: Vec<Record>,
}

/// Who reads by one descriptor: one or several, each in its place.
#[derive(Debug)]
struct Reader {
    key: (u64, u64),
    /// Holds the file as long as the descriptor stands for it; none where it cannot be followed.
    first: Option<LaneId>,
    fronts: Vec<Front>,
    /// Reads so far.
    reads: u64,
}

#[derive(Debug)]
struct Front {
    lane: LaneId,
    /// What was read there since it was told of last.
    read: Range<u64>,
    /// Whether that goes on where it had stopped.
    follows: bool,
    /// Which read was its last.
    last: u64,
}

impl Told {
    pub(crate) fn new(ring: Ring) -> Self {
        Self { ring, readers: BTreeMap::new(), records: Vec::new() }
    }

    /// Records that did not come through.
    pub(crate) fn lost(&self) -> u64 {
        self.ring.lost()
    }

    /// Takes in what was told. Whether anything was read.
    pub(crate) fn look(&mut self, now: Nanos, tree: &mut Tree, drive: &mut Drive) -> bool {
        let mut records = std::mem::take(&mut self.records);
        self.ring.drain(|record| records.push(record));
        let mut moved = false;
        for record in &records {
            moved |= self.take(record, now, tree, drive).is_some();
        }
        records.clear();
        self.records = records;
        self.readers.retain(|&(pid, _), reader| {
            let stays = tree.has(pid);
            drive.set_processor(time_of(pid));
            reader.flush(now, drive);
            if !stays {
                reader.close(now, drive);
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
        drive: &mut Drive,
    ) -> Option<()> {
        let (pid, fd) = (record.pid.try_into().ok()?, record.fd.try_into().ok()?);
        let key = (record.dev, record.ino);
        let known = self.readers.get(&(pid, fd));
        if record.kind == Kind::Close || known.is_some_and(|reader| reader.key != key) {
            self.close(pid, fd, now, drive);
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
        let reader = match self.readers.entry((pid, fd)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let process = tree.tells(pid, fd, now, drive)?;
                let first = follow(process, fd, key, now, drive);
                entry.insert(Reader { key, first, fronts: Vec::new(), reads: 0 })
            }
        };
        reader.read(&range, now, drive)
    }

    fn close(&mut self, pid: i32, fd: i32, now: Nanos, drive: &mut Drive) {
        let Some(mut reader) = self.readers.remove(&(pid, fd)) else { return };
        reader.flush(now, drive);
        reader.close(now, drive);
    }
}

impl Reader {
    /// A read goes on where a front stands, or a new one begins there.
    fn read(&mut self, range: &Range<u64>, now: Nanos, drive: &mut Drive) -> Option<()> {
        self.reads += 1;
        let last = self.reads;
        if let Some(front) = self.fronts.iter_mut().find(|front| front.read.end == range.start) {
            (front.read.end, front.last) = (range.end, last);
            return Some(());
        }
        if self.fronts.len() == FRONTS_MAX {
            let oldest = (0..FRONTS_MAX).min_by_key(|&at| self.fronts[at].last)?;
            let mut oldest = self.fronts.swap_remove(oldest);
            oldest.flush(now, drive);
            drive.close(now, oldest.lane);
        }
        let lane = drive.again(self.first?, range.start)?;
        self.fronts.push(Front { lane, read: range.clone(), follows: range.start == 0, last });
        Some(())
    }

    /// Tells what was read since the last time.
    fn flush(&mut self, now: Nanos, drive: &mut Drive) {
        for front in &mut self.fronts {
            front.flush(now, drive);
        }
    }

    fn close(&self, now: Nanos, drive: &mut Drive) {
        let fronts = self.fronts.iter().map(|front| front.lane);
        for lane in fronts.chain(self.first) {
            drive.close(now, lane);
        }
    }
}

impl Front {
    fn flush(&mut self, now: Nanos, drive: &mut Drive) {
        if !self.read.is_empty() {
            drive.read(now, self.lane, &self.read, self.follows);
            self.read.start = self.read.end;
            self.follows = true;
        }
    }
}

/// Readers of one descriptor that are told apart.
const FRONTS_MAX: usize = 16;
