//! How far an operation has come, over as many calls of the kernel as it takes.
//!
//! ```text
//!   0        moved           moved + asked      target
//!   |=========|------ a call ------|..............|
//!
//!   target = bytes, rounded up to the alignment where a read goes past the page cache
//! ```
//!
//! What the kernel did is told to [`Transfer::settle`], which says whether the operation is done
//! or where it goes on; who makes the calls (a thread, a ring) is not its business.
//!
//! # Invariants
//! - A call that goes past the page cache begins at an aligned place; a transfer that stops
//!   elsewhere goes on through the page cache.
//! - A transfer ends: each call moves bytes, meets the end, changes the route once or is one of
//!   [`TRIES_MAX`] that are tried again.

use std::ops::Range;

use rustix::io::Errno;

use super::{Opened, Route};
use crate::store::{Op, OpKind};

/// See the module.
#[derive(Debug)]
pub(crate) struct Transfer {
    route: Route,
    moved: usize,
    tries: u32,
}

/// What becomes of an operation after a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is done, with this result.
    Done(Result<usize, Errno>),
    /// Another call is needed.
    Again,
}

impl Transfer {
    /// Nothing has moved yet.
    pub(crate) fn new(route: Route) -> Self {
        Self { route, moved: 0, tries: 0 }
    }

    /// The way the next call takes.
    pub(crate) fn route(&self) -> Route {
        self.route
    }

    /// Bytes that have moved.
    pub(crate) fn moved(&self) -> usize {
        self.moved
    }

    /// Bytes that the next call may ask for; it may ask for fewer if it must.
    pub(crate) fn asked(&self, file: &Opened, op: &Op) -> usize {
        let target = match (self.route, op.kind) {
            (Route::Direct, OpKind::Read) => op.bytes.next_multiple_of(file.offset_align()),
            (Route::Direct | Route::Buffered, _) => op.bytes,
        };
        assert!(self.moved < target, "nothing is left to ask for");
        (target - self.moved).min(CALL_BYTES_MAX)
    }

    /// The call that asked for `asked` bytes came back with `result`.
    pub(crate) fn settle(
        &mut self,
        file: &Opened,
        op: &Op,
        asked: usize,
        result: Result<usize, Errno>,
    ) -> Next {
        match result {
            Ok(0) => Next::Done(self.end(op)),
            Ok(count) => self.advance(file, op, asked, count),
            Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) if self.tries < TRIES_MAX => {
                let cancelled = result == Err(Errno::CANCELED);
                self.tries += if cancelled { TRIES_A_CANCEL } else { 1 };
                Next::Again
            }
            Err(errno) if self.route == Route::Direct && REFUSALS.contains(&errno) => {
                // That one descriptor may not be used so says nothing of the next operation.
                if errno != Errno::BADF {
                    file.refuse_direct();
                }
                self.route = Route::Buffered;
                Next::Again
            }
            Err(errno) => Next::Done(Err(errno)),
        }
    }

    fn advance(&mut self, file: &Opened, op: &Op, asked: usize, count: usize) -> Next {
        assert!(count <= asked, "{count} bytes moved of {asked} asked for");
        self.moved += count;
        if self.moved >= op.bytes || (count < asked && self.at_end(file, op)) {
            return Next::Done(self.end(op));
        }
        if self.route == Route::Direct && !self.moved.is_multiple_of(file.offset_align()) {
            self.route = Route::Buffered;
        }
        Next::Again
    }

    /// Whether a read that came back short met the end of the file.
    fn at_end(&self, file: &Opened, op: &Op) -> bool {
        let end = op.offset + self.moved as u64;
        op.kind == OpKind::Read && file.bytes().is_ok_and(|bytes| end >= bytes)
    }

    fn end(&self, op: &Op) -> Result<usize, Errno> {
        let moved = self.moved.min(op.bytes);
        if op.kind == OpKind::Write && moved < op.bytes {
            return Err(Errno::IO);
        }
        Ok(moved)
    }
}

/// Walks a stretch of bytes over frames, one after the other.
pub(crate) struct Stretch {
    skip: usize,
    left: usize,
}

impl Stretch {
    /// `bytes` bytes from byte `from` of the frames on.
    pub(crate) fn new(from: usize, bytes: usize) -> Self {
        Self { skip: from, left: bytes }
    }

    /// The part of the next frame, of `frame_bytes`, that lies in it.
    pub(crate) fn part(&mut self, frame_bytes: usize) -> Option<Range<usize>> {
        let first = self.skip.min(frame_bytes);
        self.skip -= first;
        let count = self.left.min(frame_bytes - first);
        self.left -= count;
        (count > 0).then_some(first..first + count)
    }
}

/// What the kernel says to an operation that only the way past the page cache is closed to.
const REFUSALS: [Errno; 4] = [Errno::INVAL, Errno::NOTBLK, Errno::OPNOTSUPP, Errno::BADF];

/// How often an operation is begun again that the kernel did not carry out.
const TRIES_MAX: u32 = 64;

/// What a try counts that the kernel cancelled: it does so when the thread that submitted it ends,
/// which is soon over, and after some time where it has no thread to do the work on.
const TRIES_A_CANCEL: u32 = TRIES_MAX;

/// What a call moves at most: the kernel stops just before 2 GiB, at no aligned place.
const CALL_BYTES_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{frames::Frame, store::file::Access};

    #[test]
    fn what_the_kernel_cancels_is_given_up_sooner_than_what_it_puts_off() {
        let running = std::env::current_exe().unwrap();
        let file = Opened::open(running, Access::Read).unwrap();
        let frames = vec![Frame::new(64).unwrap()];
        let op = Op { token: 0, kind: OpKind::Read, offset: 0, bytes: 64, frames };
        for (errno, tries) in [(Errno::CANCELED, 1), (Errno::AGAIN, 64), (Errno::INTR, 64)] {
            let mut transfer = Transfer::new(Route::Buffered);
            for _ in 0..tries {
                assert_eq!(transfer.settle(&file, &op, 64, Err(errno)), Next::Again);
            }
            assert_eq!(transfer.settle(&file, &op, 64, Err(errno)), Next::Done(Err(errno)));
        }
    }

    #[test]
    fn a_stretch_takes_its_part_of_each_frame() {
        #[rustfmt::skip]
        let rows = [ // why            from  bytes  parts of four frames of 10
            ("nothing",                  0,    0, [None, None, None, None]),
            ("all",                      0,   30, [Some(0..10), Some(0..10), Some(0..10), None]),
            ("more than there is",      35,   40, [None, None, None, Some(5..10)]),
            ("within one",              12,    3, [None, Some(2..5), None, None]),
            ("across two",              18,    4, [None, Some(8..10), Some(0..2), None]),
            ("up to a border",           5,   15, [Some(5..10), Some(0..10), None, None]),
        ];
        for (why, from, bytes, parts) in rows {
            let mut stretch = Stretch::new(from, bytes);
            assert_eq!(parts.clone().map(|_| stretch.part(10)), parts, "{why}");
        }
    }
}
