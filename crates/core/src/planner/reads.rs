//! Reads of a program: what of them the core sees, and what follows.
//!
//! ```text
//!   read --probe--> cached ahead? --yes--> left alone; the core hears what was used
//!                         \------no---> core: Read, in parts --> settled; the rest is pending
//! ```
//! # Invariants
//! - [`Planner::probe`] is a function of the cursor and the access, and changes nothing.
//! - A read of the core is answered, or cancelled, before the next one.

use core::ops::Range;

use super::cursor::Direction;
use super::model::Model;
use super::{Access, CursorId, PAGE_BYTES, Planner, pages};
use crate::event::Event;
use crate::units::{FileId, Nanos, PartitionId, RequestId};

impl Planner {
    /// The bytes around `access` whose residency [`Planner::read`] has to know; `None` if it has
    /// none to know.
    #[must_use]
    pub fn probe(&self, access: &Access) -> Option<Range<u64>> {
        let row = self.cursors[access.cursor.index()].as_ref()?;
        let bytes = self.files.get(&row.file)?.bytes;
        let range = access.range.start..access.range.end.min(bytes);
        if range.is_empty() || !row.pending.is_empty() {
            return None;
        }
        let direction = match row.direction {
            Direction::Unknown => Direction::Unknown,
            Direction::Forward | Direction::Backward => row.after(&access.range).0,
        };
        let ahead = |far: u64| match direction {
            Direction::Forward => range.end..bytes.min(range.end + far),
            Direction::Backward => range.start.saturating_sub(far)..range.start,
            // A random reader is new at each place: to look far ahead of each read costs too much.
            Direction::Unknown => {
                let far = far.min(PROBE_BYTES_RANDOM);
                range.start.saturating_sub(far)..bytes.min(range.end + far)
            }
        };
        let near = ahead(PROBE_BYTES / 2);
        let is_known = row.cached.start <= near.start && near.end <= row.cached.end;
        (!is_known).then(|| ahead(PROBE_BYTES))
    }

    /// A program has read. `is_cached`: whether all of the range that [`Planner::probe`] named is.
    /// Returns whether the reader comes to bytes that are not cached before long.
    pub fn read(&mut self, now: Nanos, access: &Access, is_cached: bool) -> bool {
        let probe = self.probe(access);
        let &Access { cursor, ref range, follows, processor } = access;
        let Some(row) = self.cursors[cursor.index()].as_mut() else { return false };
        let file = row.file;
        let Some(bytes) = self.files.get(&file).map(|row| row.bytes) else { return false };
        let (direction, position) = row.after(range);
        let opening = row.comes_to(range, direction, bytes);
        row.position = position;
        let before = core::mem::replace(&mut row.direction, direction);
        // The reader goes on from nothing where its seek was seen before its read.
        let is_new_here = before == Direction::Unknown;
        if before != direction {
            row.pace.moved();
        }
        row.rate.read(range.end - range.start, processor);
        self.openings.left(opening);
        self.counts.bytes_read += range.end - range.start;
        let range = range.start..range.end.min(bytes);
        if range.is_empty() {
            return false;
        }
        let is_cached = match probe {
            Some(probe) => {
                row.cached = if is_cached { probe } else { 0..0 };
                is_cached
            }
            None => row.pending.is_empty(),
        };
        if is_cached {
            self.used(now, file, range.start / PAGE_BYTES..pages(range.end));
            return false;
        }
        if self.open_handle(now, cursor) {
            let pages = range.start / PAGE_BYTES..pages(range.end);
            let follows = follows && !is_new_here;
            self.read_pages(
                now,
                access.cursor,
                file,
                &pages,
                is_new_here,
                follows.then_some(range.start),
            );
        }
        true
    }

    /// Builds the core for the memory that there is. Returns whether it is built.
    fn build(&mut self) -> bool {
        if self.model.is_none() {
            let budget = self.settings.budget_bytes.min(self.memory_bytes / CORE_ONE_IN);
            let settings = self.settings.core(budget);
            self.read_pages_max = u64::from(settings.frames / READS_AT_ONCE);
            // The memory may be too little for a policy's window.
            self.model = Model::new(settings).ok();
        }
        self.model.is_some()
    }

    /// Opens the cursor's handle in the core. Returns whether it is open.
    pub(super) fn open_handle(&mut self, now: Nanos, cursor: CursorId) -> bool {
        let Some(row) = self.cursors[cursor.index()].as_ref() else { return false };
        if row.is_open {
            return true;
        }
        let (file, partition) = (row.file, PartitionId(0));
        let file_pages = pages(self.files[&file].bytes).max(1);
        if !self.build() {
            return false;
        }
        self.send(now, Event::Open { handle: cursor.handle(), file, partition, file_pages });
        self.cursors[cursor.index()].as_mut().expect("it was there").is_open = true;
        self.files.get_mut(&file).expect("it has cursors").open += 1;
        true
    }

    /// Shows a read of `range` to the core, in parts that fit it.
    fn read_pages(
        &mut self,
        now: Nanos,
        cursor: CursorId,
        file: FileId,
        range: &Range<u64>,
        is_new_here: bool,
        mut previous_end: Option<u64>,
    ) {
        if is_new_here {
            self.take_over(cursor, range);
        }
        let late_hits = self.core_stats().late_hits;
        let mut first = range.start;
        while first < range.end {
            let part = first..range.end.min(first + self.read_pages_max);
            self.read_part(now, cursor, file, &part, previous_end);
            first = part.end;
            previous_end = Some(first * PAGE_BYTES);
        }
        let is_late = self.core_stats().late_hits > late_hits;
        let Some(row) = self.cursors[cursor.index()].as_mut() else { return };
        row.is_late |= is_late;
        row.sort_pending();
    }

    fn read_part(
        &mut self,
        now: Nanos,
        cursor: CursorId,
        file: FileId,
        pages: &Range<u64>,
        previous_end: Option<u64>,
    ) {
        self.reads += 1;
        let (request, handle) = (RequestId(self.reads), cursor.handle());
        let (first, congested) = (pages.start, false);
        let count = u32::try_from(pages.end - first).expect("fewer pages than frames");
        self.model().effects.is_done = false;
        self.send(now, Event::Read { request, handle, first, count, previous_end, congested });
        self.settle(now, cursor, file, pages);
        if !self.model().effects.is_done {
            // Some of it is pending of a cursor whose reader has not come there yet.
            self.take_over(cursor, pages);
            self.settle(now, cursor, file, pages);
        }
        if !self.model().effects.is_done {
            // Another waits for some of it; the program does not.
            self.send(now, Event::Cancel { request });
        }
        self.drop_fetched(now);
    }
}

/// The core knows of pages for one part in so many, in which its own size is little.
const CORE_ONE_IN: u64 = 4;
/// A read that the core sees takes one part in so many of its frames, at most.
const READS_AT_ONCE: u32 = 4;
/// A reader that finds so much cached ahead is left alone.
const PROBE_BYTES: u64 = 32 << 20;
/// The same about a place where a reader has read once.
pub(super) const PROBE_BYTES_RANDOM: u64 = 256 << 10;
