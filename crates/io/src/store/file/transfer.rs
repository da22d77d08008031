//! An operation on a file, over as many calls of the kernel as it takes.
//!
//! ```text
//!   0        moved           moved + asked      target
//!   |=========|------ a call ------|..............|
//!
//!   target = bytes, rounded up to the alignment where a read goes past the page cache
//!
//!   frames    [page][page][page]        [page]       adjacent in memory or not
//!   runs      |<---- one run ---->|     |<-->|       what the kernel is given
//! ```
//!
//! A thread makes the calls itself ([`Transfer::carry`]); a ring takes the next call's
//! runs ([`Transfer::prepare`]) and answers later ([`Transfer::settle`]).
//!
//! # Invariants
//! - A call that goes past the page cache begins at an aligned place; a transfer that stops
//!   elsewhere goes on through the page cache.
//! - A transfer ends: each call moves bytes, meets the end, changes the route once or is one of
//!   [`TRIES_MAX`] that are tried again.
//! - The runs of a call lie in the frames of the transfer's own operation, and its descriptor is
//!   the transfer's own file: the owner of the transfer owns all that the kernel touches.
//! - An offset that no file has never reaches the kernel: to a ring, -1 means the file's position.

#![expect(unsafe_code, reason = "pointers for the kernel, which threads hand on to each other")]

use std::{
    io::Error,
    ops::Range,
    os::fd::{AsRawFd, RawFd},
    sync::Arc,
};

use rustix::io::Errno;

use super::{OpenFile, Route};
use crate::{
    scheduler::Scheduled,
    store::{Completion, Op, OpKind},
};

/// See the module.
pub(crate) struct Transfer {
    op: Op,
    file: Arc<OpenFile>,
    route: Route,
    moved: usize,
    tries: u32,
    /// Bytes that the call in flight moves at most.
    asked: usize,
    runs: Vec<libc::iovec>,
}

// SAFETY: `runs` points into the frames that `op` owns, which are `Send`; only the kernel reads
// or writes through it, for the owner of the transfer.
unsafe impl Send for Transfer {}

/// A call of the kernel: where it begins, and its memory. Valid as long as its transfer is
/// neither changed nor dropped.
pub(crate) struct Call<'a> {
    pub(crate) fd: RawFd,
    pub(crate) offset: i64,
    pub(crate) runs: &'a [libc::iovec],
}

/// What follows from the answer to a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The operation is done, with this result.
    Done(Result<usize, Errno>),
    /// Another call is needed.
    Again,
}

impl Transfer {
    /// A transfer of `op`, with its route; or its end, where the kernel has nothing to do.
    pub(crate) fn begin(op: Op, file: &Arc<OpenFile>) -> Result<Self, Completion> {
        let (bytes, kind) = (op.bytes, op.kind);
        let route = file.route(&op);
        let (file, runs) = (Arc::clone(file), Vec::new());
        let transfer = Self { op, file, route, moved: 0, tries: 0, asked: 0, runs };
        if kind == OpKind::Sync {
            return Ok(transfer);
        }
        if bytes == 0 {
            return Err(transfer.done(Ok(0)));
        }
        match transfer.offset() {
            Ok(_) => Ok(transfer),
            Err(errno) => Err(transfer.done(Err(errno))),
        }
    }

    /// Carries `op` out on this thread, blocking.
    pub(crate) fn carry_out(op: Op, file: &Arc<OpenFile>) -> Completion {
        Self::begin(op, file).map_or_else(|done| done, Self::carry)
    }

    /// What the operation does.
    pub(crate) fn kind(&self) -> OpKind {
        self.op.kind
    }

    /// The route of the next call.
    pub(crate) fn route(&self) -> Route {
        self.route
    }

    /// The file's descriptor on the transfer's route.
    pub(crate) fn fd(&self) -> RawFd {
        self.file.by(self.route).as_raw_fd()
    }

    /// The next call of a read or a write.
    ///
    /// # Errors
    /// The rest begins where no file reaches.
    pub(crate) fn prepare(&mut self) -> Result<Call<'_>, Errno> {
        let offset = self.offset()?;
        let left = self.left();
        self.asked = find_runs(&mut self.op, self.moved, left, &mut self.runs);
        assert!(self.asked > 0 && self.runs.len() <= BUFFERS_MAX, "a call moves some bytes");
        Ok(Call { fd: self.fd(), offset, runs: &self.runs })
    }

    /// Goes on on this thread, blocking; no call of it is in flight.
    pub(crate) fn carry(mut self) -> Completion {
        loop {
            let result = match self.op.kind {
                OpKind::Read | OpKind::Write => self.call(),
                OpKind::Sync => self.file.sync().map(|()| 0),
            };
            if let Next::Done(result) = self.settle(result) {
                return self.done(result);
            }
        }
    }

    /// Takes the answer to the call in flight.
    pub(crate) fn settle(&mut self, result: Result<usize, Errno>) -> Next {
        match result {
            Ok(0) => Next::Done(self.end()),
            Ok(count) => self.advance(count),
            Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) if self.tries < TRIES_MAX => {
                let cancelled = result == Err(Errno::CANCELED);
                self.tries += if cancelled { TRIES_A_CANCEL } else { 1 };
                Next::Again
            }
            Err(errno) if self.route == Route::Direct && REFUSALS.contains(&errno) => {
                // That one descriptor may not be used so says nothing of the next operation.
                if errno != Errno::BADF {
                    self.file.refuse_direct();
                }
                self.route = Route::Buffered;
                Next::Again
            }
            Err(errno) => Next::Done(Err(errno)),
        }
    }

    /// Ends the operation with `result`.
    pub(crate) fn done(mut self, result: Result<usize, Errno>) -> Completion {
        assert!(result.unwrap_or(0) <= self.op.bytes, "more moved than was asked for");
        if let (OpKind::Read, Ok(moved)) = (self.op.kind, result) {
            self.op.zero_past(moved);
        }
        Completion { op: self.op, result: result.map_err(Errno::raw_os_error) }
    }

    /// Where the rest begins.
    fn offset(&self) -> Result<i64, Errno> {
        let at = self.op.offset.checked_add(self.moved as u64);
        at.and_then(|at| i64::try_from(at).ok()).ok_or(Errno::INVAL)
    }

    /// Bytes that the next call may move; it may move fewer if it must.
    fn left(&self) -> usize {
        let target = match (self.route, self.op.kind) {
            (Route::Direct, OpKind::Read) => {
                self.op.bytes.next_multiple_of(self.file.offset_align())
            }
            (Route::Direct | Route::Buffered, _) => self.op.bytes,
        };
        assert!(self.moved < target, "nothing is left to ask for");
        (target - self.moved).min(CALL_BYTES_MAX)
    }

    /// One call for what is left, as far as it goes.
    fn call(&mut self) -> Result<usize, Errno> {
        let kind = self.op.kind;
        let Call { fd, offset, runs } = self.prepare()?;
        let count = i32::try_from(runs.len()).expect("at most as many as a call takes");
        // SAFETY: the runs lie in the frames of `op`, which this transfer alone owns, and do not
        // overlap; the descriptor is that of `file`, which this transfer keeps open.
        let moved = unsafe {
            match kind {
                OpKind::Read => libc::preadv(fd, runs.as_ptr(), count, offset),
                OpKind::Write => libc::pwritev(fd, runs.as_ptr(), count, offset),
                OpKind::Sync => unreachable!("a sync transfers nothing"),
            }
        };
        usize::try_from(moved)
            .map_err(|_| Errno::from_io_error(&Error::last_os_error()).unwrap_or(Errno::IO))
    }

    fn advance(&mut self, count: usize) -> Next {
        let asked = self.asked;
        assert!(count <= asked, "{count} bytes moved of {asked} asked for");
        self.moved += count;
        if self.moved >= self.op.bytes || (count < asked && self.at_end()) {
            return Next::Done(self.end());
        }
        if self.route == Route::Direct && !self.moved.is_multiple_of(self.file.offset_align()) {
            self.route = Route::Buffered;
        }
        Next::Again
    }

    /// Whether a read that came back short met the end of the file.
    fn at_end(&self) -> bool {
        let end = self.op.offset.saturating_add(self.moved as u64);
        self.op.kind == OpKind::Read && self.file.bytes().is_ok_and(|bytes| end >= bytes)
    }

    fn end(&self) -> Result<usize, Errno> {
        let moved = self.moved.min(self.op.bytes);
        if self.op.kind == OpKind::Write && moved < self.op.bytes {
            return Err(Errno::IO);
        }
        Ok(moved)
    }
}

impl Scheduled for Transfer {
    fn failed(self, errno: i32) -> Completion {
        self.op.failed(errno)
    }
}

/// Fills `runs` with up to `bytes` of the frames from byte `from` on; returns how much that is.
fn find_runs(op: &mut Op, from: usize, bytes: usize, runs: &mut Vec<libc::iovec>) -> usize {
    runs.clear();
    let mut found = 0;
    let mut after = 0; // The address after the last run.
    let mut stretch = Stretch::new(from, bytes);
    let fills = op.kind == OpKind::Read;
    for frame in &mut op.frames {
        let Some(part) = stretch.part(frame.len()) else { continue };
        let count = part.len();
        // Of a write the kernel only reads the memory, which may be shared.
        let memory = if fills { frame[part].as_mut_ptr() } else { frame[part].as_ptr().cast_mut() };
        if let Some(last) = runs.last_mut()
            && memory.addr() == after
        {
            last.iov_len += count;
        } else if runs.len() < BUFFERS_MAX {
            runs.push(libc::iovec { iov_base: memory.cast(), iov_len: count });
        } else {
            break;
        }
        after = memory.addr() + count;
        found += count;
    }
    found
}

/// A stretch of bytes over frames, one after the other.
struct Stretch {
    skip: usize,
    left: usize,
}

impl Stretch {
    /// `bytes` bytes from byte `from` of the frames on.
    fn new(from: usize, bytes: usize) -> Self {
        Self { skip: from, left: bytes }
    }

    /// The part of the next frame, of `frame_bytes`, that lies in it.
    fn part(&mut self, frame_bytes: usize) -> Option<Range<usize>> {
        let first = self.skip.min(frame_bytes);
        self.skip -= first;
        let count = self.left.min(frame_bytes - first);
        self.left -= count;
        (count > 0).then_some(first..first + count)
    }
}

/// Buffers that one call of the kernel takes: Linux's `UIO_MAXIOV`.
const BUFFERS_MAX: usize = 1024;

/// What the kernel says to an operation that only the way past the page cache is closed to.
const REFUSALS: [Errno; 4] = [Errno::INVAL, Errno::NOTBLK, Errno::OPNOTSUPP, Errno::BADF];

/// How often an operation is begun again that the kernel did not carry out.
const TRIES_MAX: u32 = 64;

/// What a try counts that the kernel cancelled: it does so when the thread that submitted it ends,
/// which is soon over, and after some time where it has no thread to do the work on.
const TRIES_A_CANCEL: u32 = TRIES_MAX;

/// What a call moves at most: the kernel stops just before 2 GiB, at no aligned place.
const CALL_BYTES_MAX: usize = 1 << 30;
const _: () = assert!(CALL_BYTES_MAX < u32::MAX as usize, "an entry of a ring has 32 bits for it");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{frames::Frame, store::file::Access};

    /// A transfer of `bytes` over `count` frames of 64 bytes, of a file of 1,000 bytes or more.
    fn transfer(kind: OpKind, count: usize, bytes: usize) -> Transfer {
        let frames = (0..count).map(|_| Frame::new(64).unwrap()).collect();
        let running = std::env::current_exe().unwrap();
        let file = Arc::new(OpenFile::open(running, Access::Read).unwrap());
        let op = Op { token: 0, kind, offset: 0, bytes, frames };
        Transfer::begin(op, &file).expect("there is something to move")
    }

    fn asked(transfer: &mut Transfer) -> usize {
        transfer.prepare().unwrap().runs.iter().map(|run| run.iov_len).sum()
    }

    #[test]
    fn what_the_kernel_cancels_is_given_up_sooner_than_what_it_puts_off() {
        for (errno, tries) in [(Errno::CANCELED, 1), (Errno::AGAIN, 64), (Errno::INTR, 64)] {
            let mut transfer = transfer(OpKind::Read, 1, 64);
            for _ in 0..tries {
                assert_eq!(transfer.settle(Err(errno)), Next::Again);
            }
            assert_eq!(transfer.settle(Err(errno)), Next::Done(Err(errno)));
        }
    }

    #[test]
    fn a_call_asks_for_the_bytes_that_count_in_at_most_so_many_runs() {
        #[rustfmt::skip]
        let rows = [ // why                   kind           frames  bytes
            ("a tail is cut",                 OpKind::Read,      4,    130),
            ("frames beyond are left out",    OpKind::Read,      4,     64),
            ("a write's tail is cut",         OpKind::Write,     4,    130),
            ("all of it",                     OpKind::Write,     4,    256),
        ];
        for (why, kind, frames, bytes) in rows {
            let mut transfer = transfer(kind, frames, bytes);
            assert_eq!(asked(&mut transfer), bytes, "{why}");
            assert_eq!(transfer.asked, bytes, "{why}");
        }
        let mut long = transfer(OpKind::Write, 3_000, 3_000 * 64);
        for calls in 1.. {
            assert!(long.prepare().unwrap().runs.len() <= BUFFERS_MAX);
            if let Next::Done(result) = long.settle(Ok(long.asked)) {
                assert_eq!((result, calls <= 3), (Ok(3_000 * 64), true), "{calls}");
                break;
            }
        }
    }

    #[test]
    fn what_stopped_short_is_asked_for_from_there() {
        let mut transfer = transfer(OpKind::Read, 4, 200);
        asked(&mut transfer);
        for (now, left) in [(10, 190), (54, 136), (1, 135)] {
            assert_eq!(transfer.settle(Ok(now)), Next::Again, "short, and not the end");
            assert_eq!(asked(&mut transfer), left, "{now}");
        }
        assert_eq!(transfer.offset(), Ok(65));
    }

    #[test]
    fn an_answer_leads_to_the_right_step() {
        use OpKind::{Read, Write};
        use Route::{Buffered, Direct};
        let done = |result| Next::Done(result);
        let (inval, eio, intr, again) = (Errno::INVAL, Errno::IO, Errno::INTR, Errno::AGAIN);
        #[rustfmt::skip]
        let rows = [ // why            kind   route     answer         step              route
            ("all that counts",        Read,  Direct,   Ok(100),       done(Ok(100)),    Direct),
            ("nothing: the end",       Read,  Direct,   Ok(0),         done(Ok(0)),      Direct),
            ("short, before the end",  Read,  Direct,   Ok(64),        Next::Again,      Direct),
            ("nothing was written",    Write, Buffered, Ok(0),         done(Err(eio)),   Buffered),
            ("written in part",        Write, Buffered, Ok(99),        Next::Again,      Buffered),
            ("written",                Write, Buffered, Ok(100),       done(Ok(100)),    Buffered),
            ("a signal",               Read,  Direct,   Err(intr),     Next::Again,      Direct),
            ("blocks in the way",      Read,  Direct,   Err(inval),    Next::Again,      Buffered),
            ("blocks in no way",       Read,  Buffered, Err(inval),    done(Err(inval)), Buffered),
            ("put off by the kernel",  Write, Direct,   Err(again),    Next::Again,      Direct),
            ("the device fails",       Read,  Direct,   Err(eio),      done(Err(eio)),   Direct),
        ];
        for (why, kind, route, answer, step, then) in rows {
            let mut transfer = transfer(kind, 2, 100);
            asked(&mut transfer);
            transfer.route = route;
            assert_eq!((transfer.settle(answer), transfer.route), (step, then), "{why}");
        }
    }

    #[test]
    fn an_offset_that_no_file_has_is_not_for_the_kernel() {
        let file = Arc::clone(&transfer(OpKind::Read, 1, 64).file);
        for (offset, begins) in [(i64::MAX as u64, true), (1 << 63, false)] {
            let frames = vec![Frame::new(64).unwrap()];
            let op = Op { token: 0, kind: OpKind::Read, offset, bytes: 64, frames };
            let begun = Transfer::begin(op, &file).map_err(|done| done.result);
            assert_eq!(begun.is_ok(), begins);
            assert!(begun.is_ok() || begun.err() == Some(Err(Errno::INVAL.raw_os_error())));
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
