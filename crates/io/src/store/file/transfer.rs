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
mod tests;
