//! One open file that is followed: where its reader stands, and what of its moves is reported.
//!
//! # Invariants
//! - The program's file is opened anew once a page of it has been read, and what is reported of it
//!   comes in the order of its positions.
//! - What a call that moves bytes has reached is reported while it goes on, and counts once.

use std::fs::File;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use forerun_core::units::Nanos;

use crate::observe::access::{AccessSink, CursorId, is_cached, is_written};
use crate::observe::counts::{Counted, MovedBy};
use crate::observe::moves::Move;
use crate::observe::procfs;
use crate::open::{Candidate, Name, Refusal, open};

/// A file's device and inode number.
pub(crate) type Inode = (u64, u64);

/// An open file that is followed, and what was reported of it.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) info: File,
    pub(super) inode: Inode,
    pub(super) position: u64,
    /// What was reported of it last, in order.
    pub(super) run: Range<u64>,
    pub(super) cursor: Option<CursorId>,
    /// Writes may have moved its position, too: what was read before it stood there has not.
    pub(super) read_before: Option<u64>,
    /// Its position cannot be followed.
    pub(super) is_left: bool,
    /// The call that moves its bytes from its position on.
    pub(super) moving: Option<Move>,
    /// The call that does so from an offset of its own.
    pub(super) aside: Option<Aside>,
}

/// A call that moves bytes from an offset of its own, and the reader that it is.
#[derive(Debug)]
pub(super) struct Aside {
    pub(super) call: Move,
    pub(super) cursor: Option<CursorId>,
    /// It begins where the call before it was known to be.
    pub(super) follows: bool,
}

impl OpenFile {
    /// Whether it was read up to `position`, or another place was sought. The first bytes alone do
    /// not count: so the dynamic loader reads the header of a library, before it maps it.
    pub(super) fn has_moved_to(&self, position: u64) -> bool {
        let is_header = self.cursor.is_none() && position < HEADER_BYTES;
        position != self.position && !self.is_left && !is_header
    }

    /// Where a reader at `position` is: within a call that moves bytes from there on.
    pub(super) fn at(&mut self, process: BorrowedFd<'_>, position: u64) -> u64 {
        // It has returned where the position is another.
        self.moving.take_if(|call| call.start() != position);
        let is_header = self.cursor.is_none() && position < HEADER_BYTES;
        match &self.moving {
            Some(call) if self.position == call.at() => call.reached(process),
            Some(call) if is_header => {
                self.position = position;
                call.reached(process)
            }
            // What was read before the call comes first.
            Some(_) | None => position,
        }
    }

    /// Reports how far the call is that has an offset of its own. Whether it has gone on.
    pub(super) fn go_on(
        &mut self,
        process: BorrowedFd<'_>,
        number: i32,
        now: Nanos,
        sink: &mut dyn AccessSink,
    ) -> bool {
        let Some(Aside { call, cursor, follows }) = &mut self.aside else { return false };
        let to = call.reached(process);
        if to == call.at() {
            return false;
        }
        let Some(reader) = cursor.or_else(|| follow(process, number, self.inode, now, sink)) else {
            self.aside = None;
            return false;
        };
        *cursor = Some(reader);
        let Some(moved) = call.advance(to, reader, sink) else { return false };
        sink.read(now, reader, &moved, *follows);
        *follows = true;
        true
    }

    pub(super) fn may_write(&self) -> bool {
        self.read_before.is_some()
    }

    /// It stands where it does since the process had read so much, or longer; its last move has
    /// `shown` bytes of what was read.
    pub(super) fn has_stood_since(&mut self, read: u64, shown: u64) {
        self.read_before = self.read_before.map(|before| read.max(before.saturating_add(shown)));
    }

    /// What has moved its position to `to`.
    pub(super) fn moved_by(&self, to: u64, counted: Option<&mut Counted>) -> MovedBy {
        let bytes = to.saturating_sub(self.position);
        match counted {
            // No count has the bytes of a call before it returns.
            _ if self.call_to(to).is_some() => MovedBy::uncounted(bytes, false),
            Some(counted) => counted.moved_by(bytes, self.read_before),
            None => MovedBy::uncounted(bytes, self.may_write()),
        }
    }

    /// The call that moves its bytes, where that has gone on to `to`.
    pub(super) fn call_to(&self, to: u64) -> Option<&Move> {
        self.moving.as_ref().filter(|call| call.at() == self.position && call.start() < to)
    }

    /// Its position moves to `to`; reports that.
    pub(super) fn move_to(
        &mut self,
        process: BorrowedFd<'_>,
        number: i32,
        to: u64,
        by: MovedBy,
        now: Nanos,
        sink: &mut dyn AccessSink,
    ) {
        let (from, calls) = (self.position, self.call_to(to).is_some());
        self.position = to;
        if self.cursor.is_none() {
            self.cursor = follow(process, number, self.inode, now, sink);
            self.is_left = self.cursor.is_none();
            if let Some(cursor) = self.cursor.filter(|_| self.may_write() && from > 0) {
                sink.seek(now, cursor, from);
            }
        }
        let Some(cursor) = self.cursor else { return };
        // By another process that has the descriptor, or by calls that are not counted.
        let is_written = by.reads && self.may_write() && is_written(cursor, &(from..to), sink);
        let by = if is_written { MovedBy::NOTHING_READ } else { by };
        match self.moving.as_mut().filter(|_| calls) {
            Some(call) => match call.advance(to, cursor, sink) {
                Some(moved) => {
                    sink.read(now, cursor, &moved, true);
                    self.has_read(moved);
                }
                None => self.position = from,
            },
            None => self.has_read(report(cursor, from..to, by, now, sink)),
        }
    }

    /// Its position is `to`, and nothing is reported.
    pub(super) fn stands_at(&mut self, to: u64) {
        (self.position, self.run) = (to, to..to);
    }

    /// `range` was reported.
    pub(super) fn has_read(&mut self, range: Range<u64>) {
        self.run = if self.run.end == range.start { self.run.start..range.end } else { range };
    }

    pub(super) fn close(&mut self, now: Nanos, sink: &mut dyn AccessSink) {
        let aside = self.aside.take().and_then(|aside| aside.cursor);
        for cursor in self.cursor.take().into_iter().chain(aside) {
            sink.close(now, cursor);
        }
    }
}

/// Reports a position that went from one end of `range` to the other, as a read or as a seek. What
/// is reported as read.
fn report(
    cursor: CursorId,
    range: Range<u64>,
    by: MovedBy,
    now: Nanos,
    sink: &mut dyn AccessSink,
) -> Range<u64> {
    if by.reads && is_cached(cursor, &range, sink) != Some(false) {
        sink.read(now, cursor, &range, true);
        return range;
    }
    sink.seek(now, cursor, range.end);
    // All that is known of a read is where it ended. But it may still come after the seek: then the
    // page before is not cached.
    let page = range.end.saturating_sub(1) / 4096 * 4096;
    let last = page..range.end;
    if by.last_read && !last.is_empty() && is_cached(cursor, &last, sink) == Some(true) {
        sink.read(now, cursor, &last, false);
        return last;
    }
    range.end..range.end
}

/// Opens a file of the process anew, and begins to follow a reader of it from its head.
pub(crate) fn follow(
    process: BorrowedFd<'_>,
    number: i32,
    inode: Inode,
    now: Nanos,
    sink: &mut dyn AccessSink,
) -> Option<CursorId> {
    let is_it = |found: &Candidate<'_>| {
        (found.stat.st_dev, found.stat.st_ino) == inode && procfs::is_followed(&found.stat)
    };
    match open(process, Name::Descriptor(number), is_it) {
        Ok((file, stat)) => sink.open(now, file, &stat, 0),
        // It stands for another file by now, or for one that is not followed.
        Err(Refusal::Absent(_) | Refusal::Changed | Refusal::Kind) => None,
        Err(why) => {
            sink.refused(why);
            None
        }
    }
}

/// A file is followed once more than this was read of it.
const HEADER_BYTES: u64 = 4096;
