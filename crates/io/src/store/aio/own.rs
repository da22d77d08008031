//! A context that one thread has for itself: checked out for a batch, or behind a port.
//!
//! The kernel keeps completions in memory that it shares with the process, and counts them there
//! when the device's interrupt comes: two words of that memory tell whether there are any, and a
//! system call takes them.
//!
//! # Invariants
//! - What the context cannot take is carried out blocking, with the same result.
//! # Sources
//! Linux `io_getevents(2)`, `fs/aio.c`: `struct aio_ring`.

use std::{sync::Arc, time::Duration};

use rustix::io::Errno;

use super::sys::{Answer, Context};
use crate::{
    reaper::port::{Port, PortFeatures},
    store::{
        Completion, Op,
        file::{Next, OpenFile, Route, Transfer},
    },
};

/// A context and what its thread has in flight there.
pub(super) struct OwnContext {
    context: Context<()>,
    in_flight: usize,
}

impl OwnContext {
    /// A context for `events` operations at once; for fewer, where the system has no more.
    ///
    /// # Errors
    /// The system has none at all.
    pub(super) fn new(events: u32) -> Result<Self, Errno> {
        Ok(Self { context: Context::new(events)?, in_flight: 0 })
    }

    /// Operations that it takes at once.
    pub(super) fn events(&self) -> usize {
        self.context.events()
    }

    /// Whether nothing is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight == 0
    }

    /// Hands over what goes past the page cache, and carries out the rest meanwhile.
    pub(super) fn send(&mut self, batch: Vec<Transfer>, out: &mut Vec<Completion>) {
        let direct = |transfer: &Transfer| transfer.route() == Route::Direct;
        let (direct, mut blocking): (Vec<_>, Vec<_>) = batch.into_iter().partition(direct);
        let count = direct.len();
        let refused = self.context.submit(direct.into_iter().map(|transfer| (transfer, ())));
        self.in_flight += count - refused.len();
        assert!(self.in_flight <= self.events(), "a context takes what it was made for");
        blocking.extend(refused.into_iter().map(|(transfer, ())| transfer));
        out.extend(blocking.into_iter().map(Transfer::carry));
    }

    /// Waits until `least` operations are done, for `time` at most, and takes what is; goes on
    /// with what is not done whole.
    fn take(&mut self, least: usize, time: Option<Duration>, out: &mut Vec<Completion>) {
        let mut answers = Vec::new();
        self.context.wait(least, time, &mut answers);
        assert!(answers.len() <= self.in_flight, "an answer comes once");
        self.in_flight -= answers.len();
        let mut again = Vec::new();
        for Answer { mut transfer, result, .. } in answers {
            match transfer.settle(result) {
                Next::Done(result) => out.push(transfer.done(result)),
                Next::Again => again.push(transfer),
            }
        }
        if !again.is_empty() {
            self.send(again, out);
        }
    }

    /// Waits for all that is in flight.
    pub(super) fn finish(&mut self, out: &mut Vec<Completion>) {
        while self.in_flight > 0 {
            self.take(self.in_flight, None, out);
        }
    }
}

/// A port of one thread to a file.
pub(crate) struct AioPort {
    own: OwnContext,
    file: Arc<OpenFile>,
}

impl AioPort {
    /// A port to `file`, for `depth` operations at once; for fewer, where the system has no more.
    ///
    /// # Errors
    /// The system has no context.
    pub(crate) fn new(file: Arc<OpenFile>, depth: u32) -> Result<Self, Errno> {
        Ok(Self { own: OwnContext::new(depth)?, file })
    }
}

impl Port for AioPort {
    fn name(&self) -> &'static str {
        "linux-aio"
    }

    fn features(&self) -> PortFeatures {
        PortFeatures { poll: true, timed: true }
    }

    fn capacity(&self) -> usize {
        self.own.events()
    }

    fn submit(&mut self, group: Vec<Op>, out: &mut Vec<Completion>) {
        assert!(
            self.own.in_flight == 0 && group.len() <= self.capacity(),
            "more than it has room for"
        );
        let mut batch = Vec::with_capacity(group.len());
        for op in group {
            match Transfer::begin(op, &self.file) {
                Ok(transfer) => batch.push(transfer),
                Err(done) => out.push(done),
            }
        }
        self.own.send(batch, out);
    }

    fn in_flight(&self) -> usize {
        self.own.in_flight
    }

    fn poll(&mut self, out: &mut Vec<Completion>) {
        if self.own.context.is_done() {
            self.own.take(0, Some(Duration::ZERO), out);
        }
    }

    fn wait(&mut self, time: Option<Duration>, out: &mut Vec<Completion>) {
        if self.own.in_flight > 0 {
            self.own.take(self.own.in_flight, time, out);
        }
    }
}
