//! One operation on its way through linux-aio: what is asked of the kernel next.
//!
//! ```text
//!     frames:  |page |page |page |      a read asks for its last page whole: past the page cache
//!     bytes:   |============|           only whole blocks can be read
//!     moved:   |====|                   taken up again here, unless the file ends here
//! ```
//!
//! # Invariants
//! - A call asks for at most `SPANS_MAX` pieces and `CALL_BYTES_MAX` bytes; what exceeds it
//!   comes in the next.
//! - Frames that lie one behind the other in memory are one piece.

use std::sync::Arc;

use libc::iovec;
use rustix::io::Errno;

use super::desk::LaneId;
use crate::store::{Done, Op, OpKind, file::Opened};

/// See the module.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) op: Op,
    pub(super) opened: Arc<Opened>,
    /// Whose it is.
    pub(super) lane: LaneId,
    moved: usize,
    /// What the kernel was last asked for.
    asked: usize,
}

/// What follows from an answer of the kernel.
#[derive(Debug)]
pub(super) enum Step {
    /// It is over.
    Done(Done),
    /// The kernel is to be asked for the rest.
    Again(Transfer),
    /// It is to be carried out blocking, as a whole.
    Block(Op),
}

impl Transfer {
    pub(super) fn new(op: Op, opened: Arc<Opened>, lane: LaneId) -> Self {
        Self { op, opened, lane, moved: 0, asked: 0 }
    }

    /// Where the rest begins, if files go that far.
    pub(super) fn offset(&self) -> Option<i64> {
        i64::try_from(self.op.offset.checked_add(self.moved as u64)?).ok()
    }

    /// The memory of the rest, as far as one call goes.
    pub(super) fn spans(&mut self) -> Vec<iovec> {
        let mut spans: Vec<iovec> = Vec::new();
        let (mut at, mut asked) = (0, 0);
        for frame in &mut self.op.frames {
            if at >= self.op.bytes {
                break;
            }
            let counts = match self.op.kind {
                OpKind::Read => frame.len(),
                OpKind::Write | OpKind::Sync => frame.len().min(self.op.bytes - at),
            };
            let from = self.moved.saturating_sub(at).min(counts);
            at += frame.len();
            let bytes = counts - from;
            if bytes == 0 {
                continue;
            }
            if asked > 0 && bytes > CALL_BYTES_MAX - asked {
                break;
            }
            let start = frame[from..].as_mut_ptr();
            let full = spans.len() == SPANS_MAX;
            match spans.last_mut() {
                Some(last) if last.iov_base as usize + last.iov_len == start as usize => {
                    last.iov_len += bytes;
                }
                _ if full => break,
                _ => spans.push(iovec { iov_base: start.cast(), iov_len: bytes }),
            }
            asked += bytes;
        }
        self.asked = asked;
        spans
    }

    /// What to do now that the kernel moved so much, or failed.
    pub(super) fn answered(mut self, result: Result<usize, Errno>) -> Step {
        let now = match result {
            Ok(now) => now,
            Err(Errno::INTR) => return Step::Again(self),
            // The interface or the device's blocks are in the way, not the bytes.
            Err(Errno::INVAL | Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOTBLK) => {
                return Step::Block(self.op);
            }
            Err(errno) => return self.done(Err(errno)),
        };
        assert!(now <= self.asked, "{now} bytes came, {} were asked for", self.asked);
        self.moved += now;
        if self.moved >= self.op.bytes {
            let bytes = self.op.bytes;
            return self.done(Ok(bytes));
        }
        match self.op.kind {
            OpKind::Read if now == 0 || (now < self.asked && self.is_at_end()) => {
                let moved = self.moved;
                self.done(Ok(moved))
            }
            OpKind::Write if now == 0 => self.done(Err(Errno::IO)),
            OpKind::Read | OpKind::Write | OpKind::Sync => Step::Again(self),
        }
    }

    fn is_at_end(&self) -> bool {
        let end = self.op.offset.saturating_add(self.moved as u64);
        self.opened.bytes().is_ok_and(|bytes| bytes <= end)
    }

    fn done(mut self, result: Result<usize, Errno>) -> Step {
        if let (OpKind::Read, Ok(moved)) = (self.op.kind, result) {
            self.op.zero_past(moved);
        }
        Step::Done(Done { op: self.op, result: result.map_err(Errno::raw_os_error) })
    }
}

/// `UIO_MAXIOV` of Linux.
const SPANS_MAX: usize = 1024;

/// Linux moves no more with one call: `MAX_RW_COUNT`, for pages of 4 KiB.
const CALL_BYTES_MAX: usize = 0x7fff_f000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        frames::Frame,
        store::file::{Access, Opened},
    };

    /// A transfer of `bytes` over `count` frames of 64 bytes; the file is 1,000 bytes or more.
    fn transfer(kind: OpKind, count: usize, bytes: usize) -> Transfer {
        let frames = (0..count).map(|_| Frame::new(64).unwrap()).collect();
        let op = Op { token: 1, kind, offset: 0, bytes, frames };
        let path = std::env::current_exe().unwrap();
        let opened = Opened::open(path, Access::Read).unwrap();
        Transfer::new(op, Arc::new(opened), LaneId::NONE)
    }

    fn bytes_of(spans: &[iovec]) -> usize {
        spans.iter().map(|span| span.iov_len).sum()
    }

    #[test]
    fn a_read_asks_for_its_last_frame_whole_and_a_write_for_its_bytes() {
        #[rustfmt::skip]
        let rows = [ // why                       kind           frames bytes asked
            ("a read's tail is a whole frame",    OpKind::Read,  4,     130,  192),
            ("frames beyond are left out",        OpKind::Read,  4,      64,   64),
            ("a write's tail is cut",             OpKind::Write, 4,     130,  130),
            ("all of it",                         OpKind::Write, 4,     256,  256),
        ];
        for (why, kind, frames, bytes, asked) in rows {
            let mut transfer = transfer(kind, frames, bytes);
            assert_eq!(bytes_of(&transfer.spans()), asked, "{why}");
            assert_eq!(transfer.asked, asked, "{why}");
        }
    }

    #[test]
    fn a_call_has_at_most_so_many_pieces_and_the_next_goes_on() {
        let mut transfer = transfer(OpKind::Write, 3_000, 3_000 * 64);
        let mut calls = 0;
        loop {
            let spans = transfer.spans();
            assert!(spans.len() <= SPANS_MAX);
            calls += 1;
            let asked = transfer.asked;
            match transfer.answered(Ok(asked)) {
                Step::Again(rest) => transfer = rest,
                Step::Done(done) => break assert_eq!(done.result, Ok(3_000 * 64)),
                Step::Block(_) => panic!("it was answered"),
            }
        }
        assert!(calls <= 3, "{calls}");
    }

    #[test]
    fn what_stopped_short_is_asked_for_from_there() {
        let mut transfer = transfer(OpKind::Read, 4, 200);
        transfer.spans();
        for (now, asked) in [(10, 246), (54, 192), (1, 191)] {
            let Step::Again(mut rest) = transfer.answered(Ok(now)) else { panic!("short") };
            assert_eq!(bytes_of(&rest.spans()), asked, "{now}");
            transfer = rest;
        }
        assert_eq!(transfer.offset(), Some(65));
    }

    #[test]
    fn an_answer_leads_to_the_right_step() {
        let name = |step: &Step| match step {
            Step::Done(done) => format!("{:?}", done.result),
            Step::Again(_) => "again".to_owned(),
            Step::Block(_) => "block".to_owned(),
        };
        #[rustfmt::skip]
        let rows = [ // why                         kind           answer               step
            ("all",                                 OpKind::Read,  Ok(128),             "Ok(100)"),
            ("all that counts",                     OpKind::Read,  Ok(100),             "Ok(100)"),
            ("nothing: the end",                    OpKind::Read,  Ok(0),               "Ok(0)"),
            ("short, and not the end",              OpKind::Read,  Ok(64),              "again"),
            ("nothing could be written",            OpKind::Write, Ok(0),               "Err(5)"),
            ("written in part",                     OpKind::Write, Ok(99),              "again"),
            ("written",                             OpKind::Write, Ok(100),             "Ok(100)"),
            ("a signal",                            OpKind::Read,  Err(Errno::INTR),    "again"),
            ("blocks in the way",                   OpKind::Read,  Err(Errno::INVAL),   "block"),
            ("no room in the kernel",               OpKind::Write, Err(Errno::AGAIN),   "block"),
            ("the device fails",                    OpKind::Read,  Err(Errno::IO),      "Err(5)"),
        ];
        for (why, kind, answer, step) in rows {
            let mut transfer = transfer(kind, 2, 100);
            transfer.spans();
            assert_eq!(name(&transfer.answered(answer)), step, "{why}");
        }
    }

    #[test]
    fn an_offset_that_no_file_has_is_not_for_the_kernel() {
        for (offset, expected) in [(i64::MAX as u64, Some(i64::MAX)), (1 << 63, None)] {
            let mut transfer = transfer(OpKind::Read, 1, 64);
            transfer.op.offset = offset;
            assert_eq!(transfer.offset(), expected);
        }
    }
}
