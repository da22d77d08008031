//! What waits to be requested, from the core's fetch to its answer.
//!
//! ```text
//!   core: Fetch --> pending of a cursor --(issue)--> in flight --> arrived
//!                     |         \--taken over by the next cursor there--> pending of that cursor
//!                     \--the program has read it: arrived; dropped: failed
//! ```
//! # Invariants
//! - A page is pending of one cursor, or in flight, or neither; its frame is answered once.
//! - What is pending is for the first cursor that comes there, whichever the core fetched it for.

use alloc::vec::Vec;
use core::ops::Range;

use super::runs::{PageRun, SplitRun};
use super::{CursorId, InFlight, PAGE_BYTES, Planner};
use crate::event::Event;
use crate::units::{FileId, Nanos};

impl Planner {
    /// Answers the core for all that was to be prefetched of `pages`: the program has read them.
    pub(super) fn settle(
        &mut self,
        now: Nanos,
        cursor: CursorId,
        file: FileId,
        pages: &Range<u64>,
    ) {
        let mut arrived = Vec::new();
        self.take_pending(cursor, pages, &mut arrived);
        self.take_in_flight(file, pages, &mut arrived);
        loop {
            self.sort_fetched(cursor, pages, &mut arrived);
            let Some(run) = arrived.pop() else { break };
            self.arrived(now, &run);
        }
    }

    /// What the core has fetched of `pages` has arrived, the rest is pending of `cursor`.
    fn sort_fetched(&mut self, cursor: CursorId, pages: &Range<u64>, arrived: &mut Vec<PageRun>) {
        let (Some(model), Some(row)) = (self.model.as_mut(), self.cursors[cursor.index()].as_mut())
        else {
            return;
        };
        for run in model.effects.fetched.drain(..) {
            let SplitRun { before, within, behind } = run.split(pages);
            arrived.extend(within);
            for run in before.into_iter().chain(behind) {
                self.pending_pages += u64::from(run.count());
                row.pending.push_back(run);
            }
        }
    }

    fn take_pending(&mut self, cursor: CursorId, pages: &Range<u64>, out: &mut Vec<PageRun>) {
        let Some(row) = self.cursors[cursor.index()].as_mut() else { return };
        let before = out.len();
        row.take(pages, out);
        let taken: u64 = out[before..].iter().map(|run| u64::from(run.count())).sum();
        assert!(taken <= self.pending_pages, "{taken} of {} pages", self.pending_pages);
        self.pending_pages -= taken;
    }

    /// Takes what is in flight of `pages` out.
    pub(super) fn take_in_flight(
        &mut self,
        file: FileId,
        pages: &Range<u64>,
        out: &mut Vec<PageRun>,
    ) {
        let meets = |row: &InFlight| row.file == file && row.run.overlaps(pages);
        if !self.in_flight.iter().any(meets) {
            return;
        }
        for row in core::mem::take(&mut self.in_flight) {
            if !meets(&row) {
                self.in_flight.push_back(row);
                continue;
            }
            self.forget_ticket(&row);
            let InFlight { since, distance, is_cold, run, used, absent, .. } = row;
            let SplitRun { before, within, behind } = run.split(pages);
            out.extend(within);
            for run in before.into_iter().chain(behind) {
                let id = self.next_prefetch_id();
                let (used, ticket) = (used.clone(), None);
                let row =
                    InFlight { id, file, since, run, used, distance, is_cold, absent, ticket };
                self.in_flight.push_back(row);
            }
        }
    }

    /// Fails what the core fetches other than for a read, as for one that was cancelled.
    pub(super) fn drop_fetched(&mut self, now: Nanos) {
        while let Some(run) = self.model.as_mut().and_then(|model| model.effects.fetched.pop()) {
            self.failed(now, &run);
        }
    }

    /// Moves what is pending from `pages` on to `cursor`, whose reader came there, from cursors
    /// that are not beyond. A program that jumps forward by positioned reads has a cursor at each
    /// place; a reader that comes there in order takes over from these cursors in turn.
    pub(super) fn take_over(&mut self, cursor: CursorId, pages: &Range<u64>) {
        let Some(mut own) = self.cursors[cursor.index()].take() else { return };
        let mut taken = Vec::new();
        for other in self.cursors.iter_mut().flatten() {
            if other.file != own.file || other.position > pages.end * PAGE_BYTES {
                continue;
            }
            let before = taken.len();
            other.take(&(pages.start..u64::MAX), &mut taken);
            if taken.len() > before {
                own.pace.inherit(&other.pace);
            }
        }
        own.pending.extend(taken);
        self.cursors[cursor.index()] = Some(own);
    }

    /// Drops what is pending of `cursor` in `pages`.
    pub(super) fn drop_pending(&mut self, now: Nanos, cursor: CursorId, pages: &Range<u64>) {
        let mut dropped = Vec::new();
        self.take_pending(cursor, pages, &mut dropped);
        for run in dropped {
            self.failed(now, &run);
        }
    }

    /// What was in flight has come.
    pub(super) fn came(&mut self, now: Nanos, row: InFlight) {
        self.arrived(now, &row.run);
        if let Some(model) = &mut self.model {
            model.used(now, row.file, row.used);
        }
    }

    /// A program has used `pages` as cached ones.
    pub(super) fn used(&mut self, now: Nanos, file: FileId, pages: Range<u64>) {
        let meets = |row: &&mut InFlight| row.file == file && row.run.overlaps(&pages);
        for row in self.in_flight.iter_mut().filter(meets) {
            let own = row.run.pages();
            let (start, end) = (pages.start.max(own.start), pages.end.min(own.end));
            let known = if row.used.is_empty() { start..end } else { row.used.clone() };
            row.used = known.start.min(start)..known.end.max(end);
        }
        if let Some(model) = &mut self.model {
            model.used(now, file, pages);
        }
    }

    pub(super) fn arrived(&mut self, now: Nanos, run: &PageRun) {
        let (first, count) = (run.frames[0], run.count());
        self.send(now, Event::Arrived { first, count });
    }

    pub(super) fn failed(&mut self, now: Nanos, run: &PageRun) {
        self.counts.bytes_dropped += u64::from(run.count()) * PAGE_BYTES;
        let (first, count, errno) = (run.frames[0], run.count(), ECANCELED);
        self.send(now, Event::Failed { first, count, errno });
    }
}

const ECANCELED: i32 = 125;
