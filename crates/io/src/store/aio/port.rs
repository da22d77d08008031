//! A context that one thread has for itself, to wait on as it likes.
//!
//! The kernel keeps completions in memory that it shares with the process, and counts them there
//! when the device's interrupt comes: a look at two words tells whether there are any, and a
//! system call takes them.
//!
//! # Invariants
//! - What the context cannot take is carried out blocking, with the same result, on submission.
//! # Sources
//! Linux `io_getevents(2)`, `fs/aio.c`: `struct aio_ring`.

use std::{sync::Arc, time::Duration};

use rustix::io::Errno;

use super::{
    carry,
    desk::LaneId,
    is_direct,
    sys::Context,
    transfer::{Step, Transfer},
};
use crate::{
    reaper::port::{Offers, Port},
    store::{Done, Op, file::Opened},
};

/// See the module.
pub(crate) struct AioPort {
    context: Context,
    opened: Arc<Opened>,
    room: usize,
    in_flight: usize,
}

impl AioPort {
    /// A port to `opened`, for `room` operations at once; for fewer, where the system has no more.
    ///
    /// # Errors
    /// It has no context.
    pub(crate) fn new(opened: Arc<Opened>, room: u32) -> Result<Self, Errno> {
        let context = Context::new(room)?;
        let room = context.events();
        Ok(Self { context, opened, room, in_flight: 0 })
    }

    /// Hands `transfers` over.
    fn send(&mut self, transfers: Vec<Transfer>, out: &mut Vec<Done>) {
        let count = transfers.len();
        let refused = self.context.submit(transfers);
        self.in_flight += count - refused.len();
        out.extend(refused.into_iter().map(|transfer| carry(&self.opened, transfer.op)));
    }

    /// Takes what is done, after a wait for `least` of it; on with what is not done whole.
    fn take(&mut self, least: usize, time: Duration, out: &mut Vec<Done>) {
        let mut landed = Vec::new();
        self.context.wait_for(least, time, &mut landed);
        self.in_flight -= landed.len();
        let mut again = Vec::new();
        for (transfer, result) in landed {
            match transfer.answered(result) {
                Step::Done(done) => out.push(done),
                Step::Again(transfer) => again.push(transfer),
                Step::Block(op) => out.push(carry(&self.opened, op)),
            }
        }
        if !again.is_empty() {
            self.send(again, out);
        }
    }
}

impl Port for AioPort {
    fn name(&self) -> &'static str {
        "linux-aio"
    }

    fn offers(&self) -> Offers {
        Offers { look: true, timed: true }
    }

    fn room(&self) -> usize {
        self.room
    }

    fn submit(&mut self, group: Vec<Op>, out: &mut Vec<Done>) {
        assert!(self.in_flight == 0 && group.len() <= self.room, "more than there is room for");
        let opened = Arc::clone(&self.opened);
        let (direct, blocking): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|op| is_direct(&opened, op));
        let transfer = |op| Transfer::new(op, Arc::clone(&opened), LaneId::NONE);
        self.send(direct.into_iter().map(transfer).collect(), out);
        out.extend(blocking.into_iter().map(|op| carry(&opened, op)));
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn look(&mut self, out: &mut Vec<Done>) {
        if self.context.is_done() {
            self.take(0, Duration::ZERO, out);
        }
    }

    fn wait(&mut self, time: Option<Duration>, out: &mut Vec<Done>) {
        self.take(self.in_flight, time.unwrap_or(WAIT_MAX), out);
    }
}

/// A wait comes back now and then, and goes on.
const WAIT_MAX: Duration = Duration::from_secs(3_600);
