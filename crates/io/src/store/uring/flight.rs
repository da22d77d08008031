//! An operation on its way through a ring: what the kernel is told, and what it may touch.
//!
//! ```text
//!   frames      [page][page][page]        [page]       adjacent in memory or not
//!   runs        |<---- one run ---->|     |<-->|       what the kernel is given
//! ```
//!
//! # Invariants
//! - The runs of an entry lie in the frames of the flight's own operation, and its descriptor is
//!   the flight's own file: whoever keeps the flight keeps all that the kernel touches.
//! - An offset that no file has never reaches a ring, where -1 means the file's position.

#![expect(unsafe_code, reason = "pointers for the kernel, which threads hand on to each other")]

use std::{io::Error, os::fd::AsRawFd, sync::Arc};

use io_uring::{opcode, squeue, types};
use rustix::io::Errno;

use super::{registered::Registered, ring::errno_of};
use crate::store::{
    Done, Op, OpKind,
    file::{BUFFERS_MAX, Next, Opened, Route, Stretch, Transfer},
};

/// See the module.
pub(super) struct Flight {
    op: Op,
    file: Arc<Opened>,
    transfer: Transfer,
    /// What the call under way asked for.
    asked: usize,
    runs: Vec<libc::iovec>,
}

// SAFETY: `runs` points into the frames that `op` owns, which are `Send`; nothing is read or
// written through it but by the kernel, on behalf of whoever has the flight.
unsafe impl Send for Flight {}

impl Flight {
    /// An operation that begins; or its end, where there is nothing for a ring to do.
    pub(super) fn begin(op: Op, file: &Arc<Opened>) -> Result<Self, Done> {
        let moves = match op.kind {
            OpKind::Read | OpKind::Write => op.bytes > 0 && i64::try_from(op.offset).is_ok(),
            OpKind::Sync => true,
        };
        if !moves {
            return Err(file.carry(op));
        }
        let transfer = Transfer::new(file.route(&op));
        Ok(Self { op, file: Arc::clone(file), transfer, asked: 0, runs: Vec::new() })
    }

    /// The way that it goes now.
    pub(super) fn route(&self) -> Route {
        self.transfer.route()
    }

    /// Carries it out on this thread, blocking, without a ring; nothing of it is in one.
    pub(super) fn carry(mut self) -> Done {
        loop {
            let result = match self.op.kind {
                OpKind::Read | OpKind::Write => self.call(),
                OpKind::Sync => self.file.sync().map(|()| 0),
            };
            let next = self.transfer.settle(&self.file, &self.op, self.asked, result);
            if let Next::Done(result) = next {
                return self.done(result);
            }
        }
    }

    /// One call of the kernel for what is left, as far as it goes.
    fn call(&mut self) -> Result<usize, Errno> {
        let fd = self.file.by(self.transfer.route()).as_raw_fd();
        let offset = i64::try_from(self.op.offset + self.transfer.moved() as u64);
        let offset = offset.map_err(|_| Errno::INVAL)?;
        let asked = self.transfer.asked(&self.file, &self.op);
        self.asked = find_runs(&mut self.op, self.transfer.moved(), asked, &mut self.runs);
        let runs = self.runs.as_ptr();
        let count = i32::try_from(self.runs.len()).expect("at most as many as a call takes");
        // SAFETY: the runs lie in the frames of `op`, which we own and nobody else has, and do
        // not overlap; the descriptor is that of `file`, which we keep open.
        let moved = unsafe {
            match self.op.kind {
                OpKind::Read => libc::preadv(fd, runs, count, offset),
                OpKind::Write => libc::pwritev(fd, runs, count, offset),
                OpKind::Sync => unreachable!("a sync transfers nothing"),
            }
        };
        usize::try_from(moved).map_err(|_| errno_of(&Error::last_os_error()))
    }

    /// It was cancelled.
    pub(super) fn cancelled(self) -> Done {
        self.op.cancelled()
    }

    /// It ends with `result`.
    pub(super) fn done(mut self, result: Result<usize, Errno>) -> Done {
        if let (OpKind::Read, Ok(moved)) = (self.op.kind, result) {
            self.op.zero_past(moved);
        }
        Done { op: self.op, result: result.map_err(Errno::raw_os_error) }
    }

    /// The next entry for the kernel. It and what it points to are good as long as `self`.
    pub(super) fn entry(&mut self, registered: &Registered) -> squeue::Entry {
        let fd = types::Fd(self.file.by(self.transfer.route()).as_raw_fd());
        if self.op.kind == OpKind::Sync {
            return opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
        }
        let (op, transfer) = (&mut self.op, &self.transfer);
        let offset = op.offset + transfer.moved() as u64;
        let asked = transfer.asked(&self.file, op);
        self.asked = find_runs(op, transfer.moved(), asked, &mut self.runs);
        let reads = op.kind == OpKind::Read;
        let [run] = &self.runs[..] else {
            let count = u32::try_from(self.runs.len()).expect("at most as many as a call takes");
            let runs = self.runs.as_ptr();
            return if reads {
                opcode::Readv::new(fd, runs, count).offset(offset).build()
            } else {
                opcode::Writev::new(fd, runs, count).offset(offset).build()
            };
        };
        let memory = run.iov_base.cast::<u8>();
        let bytes = u32::try_from(run.iov_len).expect("a call moves less than 4 GiB");
        match (reads, registered.find(memory.addr(), run.iov_len)) {
            (true, Some(buffer)) => {
                opcode::ReadFixed::new(fd, memory, bytes, buffer).offset(offset).build()
            }
            (true, None) => opcode::Read::new(fd, memory, bytes).offset(offset).build(),
            (false, Some(buffer)) => {
                opcode::WriteFixed::new(fd, memory, bytes, buffer).offset(offset).build()
            }
            (false, None) => opcode::Write::new(fd, memory, bytes).offset(offset).build(),
        }
    }

    /// The kernel is done with the entry, as it says by `result`.
    pub(super) fn settle(&mut self, result: i32) -> Next {
        let result = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
        self.transfer.settle(&self.file, &self.op, self.asked, result)
    }
}

/// Fills `runs` with up to `bytes` of the frames from byte `from` on; how much that is.
fn find_runs(op: &mut Op, from: usize, bytes: usize, runs: &mut Vec<libc::iovec>) -> usize {
    runs.clear();
    let mut found = 0;
    let mut after = 0; // The address after the last run.
    let mut stretch = Stretch::new(from, bytes);
    for frame in &mut op.frames {
        let Some(part) = stretch.part(frame.len()) else { continue };
        let count = part.len();
        let memory = frame[part].as_mut_ptr();
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
