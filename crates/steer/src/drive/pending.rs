//! What waits to be asked for, from the core's fetch to its answer.
//!
//! ```text
//!   core: Fetch --> pending of a lane --(ahead)--> asked --> arrived
//!                     |        \--taken over by who comes there--> pending of another
//!                     \--the program has read it: arrived; nobody will: failed
//! ```
//! # Invariants
//! - A page is pending of one lane, or asked for, or neither; its frame is answered once.
//! - What is pending of a lane is for the first who comes there, not for who was there first.

use std::ops::Range;

use forerun_core::event::Event;
use forerun_core::units::{FileId, Nanos};

use super::{Asked, Drive, ECANCELED};
use crate::lanes::{Cut, PAGE, Piece};
use crate::readers::LaneId;

impl Drive {
    /// Whatever was to be read ahead of pages that are `there` has been read by the program.
    pub(super) fn settle(&mut self, now: Nanos, lane: LaneId, file: FileId, there: &Range<u64>) {
        let mut arrived = Vec::new();
        if let Some(row) = self.lanes[lane.0 as usize].as_mut() {
            row.take(there, &mut arrived);
        }
        self.pending_pages -= arrived.iter().map(|piece| piece.frames.len() as u64).sum::<u64>();
        self.take_asked(file, there, &mut arrived);
        loop {
            self.sort(lane, there, &mut arrived);
            let Some(piece) = arrived.pop() else { break };
            self.arrived(now, &piece);
        }
    }

    /// What the core fetches of pages that are `there` is there, the rest is pending.
    fn sort(&mut self, lane: LaneId, there: &Range<u64>, arrived: &mut Vec<Piece>) {
        let Some(row) = self.lanes[lane.0 as usize].as_mut() else { return };
        for (_, piece) in self.world.fetched.drain(..) {
            let Cut { before, within, behind } = piece.cut(there);
            arrived.extend(within);
            for piece in before.into_iter().chain(behind) {
                self.pending_pages += piece.frames.len() as u64;
                row.pending.push_back(piece);
            }
        }
    }

    /// Takes what was asked for of `pages` out: somebody has read it.
    pub(super) fn take_asked(
        &mut self,
        file: FileId,
        pages: &Range<u64>,
        arrived: &mut Vec<Piece>,
    ) {
        let meets = |asked: &Asked| {
            let has = asked.piece.pages();
            asked.file == file && has.start < pages.end && pages.start < has.end
        };
        if !self.asked.iter().any(meets) {
            return;
        }
        for asked in std::mem::take(&mut self.asked) {
            if !meets(&asked) {
                self.asked.push_back(asked);
                continue;
            }
            let Asked { piece, since, is_cold, .. } = asked;
            let Cut { before, within, behind } = piece.cut(pages);
            arrived.extend(within);
            let rest = before.into_iter().chain(behind);
            self.asked.extend(rest.map(|piece| Asked { file, piece, since, is_cold }));
        }
    }

    /// What the core fetches other than for a read, as for one that was cancelled: nobody needs it.
    pub(super) fn refuse(&mut self, now: Nanos) {
        while let Some((_, piece)) = self.world.fetched.pop() {
            self.failed(now, &piece);
        }
    }

    /// The reader of `lane` came to `pages`: he takes over what is pending from there on, for those
    /// who are not beyond. A program that jumps forward by reads that say their place is a reader
    /// in each; who comes in order to where another has jumped takes over from him in turn.
    pub(super) fn take_over(&mut self, lane: LaneId, pages: &Range<u64>) {
        let Some(mut own) = self.lanes[lane.0 as usize].take() else { return };
        let mut taken = Vec::new();
        for other in self.lanes.iter_mut().flatten() {
            if other.file != own.file || other.main > pages.end * PAGE {
                continue;
            }
            let before = taken.len();
            other.take(&(pages.start..u64::MAX), &mut taken);
            if taken.len() > before {
                own.pace.inherit(&other.pace);
            }
        }
        own.pending.extend(taken);
        self.lanes[lane.0 as usize] = Some(own);
    }

    /// Gives up what is pending of `lane` in `pages`.
    pub(super) fn give_up(&mut self, now: Nanos, lane: LaneId, pages: &Range<u64>) {
        let mut gone = Vec::new();
        if let Some(row) = self.lanes[lane.0 as usize].as_mut() {
            row.take(pages, &mut gone);
        }
        for piece in gone {
            self.pending_pages -= piece.frames.len() as u64;
            self.failed(now, &piece);
        }
    }

    pub(super) fn arrived(&mut self, now: Nanos, piece: &Piece) {
        let (first, count) = (piece.frames[0], piece.count());
        self.send(now, Event::Arrived { first, count });
    }

    pub(super) fn failed(&mut self, now: Nanos, piece: &Piece) {
        self.counts.bytes_given_up += u64::from(piece.count()) * PAGE;
        let (first, count, errno) = (piece.frames[0], piece.count(), ECANCELED);
        self.send(now, Event::Failed { first, count, errno });
    }
}

impl Piece {
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.frames.len()).expect("no more than the frames")
    }
}
