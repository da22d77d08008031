//! A file by its path over linux-aio: past the page cache where `io_uring` is refused.
//!
//! Containers often forbid `io_uring` and leave the older interface, which has several reads of one
//! thread under way at once, as long as they go past the kernel's page cache. Those that cannot
//! are carried out blocking, as linux-aio would block in the submission of them as well.
//!
//! ```text
//!   Caller:      submit -> waiting -> reap: a context is lent, all that waits goes in together,
//!                                           its end is awaited on the reaper's thread
//!   Background:  submit -> waiting -> one context for all files -> a thread takes what is done
//!                             \-----> what must block: a few threads
//! ```
//!
//! A file that cannot be read past the page cache has the queues of `queue.rs`, as if linux-aio
//! were not there; so has every file when the system has no context left for us.
//!
//! There is no `io_cancel`: no file and no block device of Linux lets itself be cancelled, it
//! answers `EINVAL` for all of them. What is under way when a queue is closed ends by itself.
//!
//! # Invariants
//! - As of `file.rs` and of `queue.rs`.
//! - What linux-aio refuses, for whatever reason, is carried out blocking: the reader sees the
//!   errors of the file, never those of the interface.
//! # Sources
//! Linux `io_setup(2)`, `io_submit(2)`, `io_getevents(2)`, `fs/aio.c`.

mod background;
mod caller;
mod contexts;
mod desk;
mod port;
mod sys;
mod transfer;

use std::{path::PathBuf, sync::Arc};

use rustix::io::Errno;

pub use self::contexts::{Bounds, Contexts};
pub(crate) use self::port::AioPort;
pub use super::file::Access;
use super::{
    Done, Op, OpKind, Queue, QueueKind, Store, StoreError, Version,
    file::{self, Opened, Route},
};
use crate::queue::{Carry, open};

/// Whether the system has linux-aio for us, now.
///
/// # Errors
/// It has not; `EAGAIN` if only as others use all of `/proc/sys/fs/aio-max-nr`.
pub fn available() -> Result<(), Errno> {
    sys::Context::new(1).map(drop)
}

/// A file that is open.
#[derive(Clone, Debug)]
pub struct Aio {
    opened: Arc<Opened>,
    contexts: Arc<Contexts>,
}

impl Aio {
    /// Opens the file or block device at `path`, which must be there. Its queues use `contexts`,
    /// which files share.
    ///
    /// # Errors
    /// It is missing, may not be opened so, or is neither.
    pub fn open(
        contexts: &Arc<Contexts>,
        path: impl Into<PathBuf>,
        access: Access,
    ) -> Result<Self, StoreError> {
        Ok(Self::over(contexts, Arc::new(Opened::open(path.into(), access)?)))
    }

    /// A store over a file that is open already.
    pub(crate) fn over(contexts: &Arc<Contexts>, opened: Arc<Opened>) -> Self {
        Self { opened, contexts: Arc::clone(contexts) }
    }
}

impl Store for Aio {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.opened.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        let blocking = || open(Blocking(Arc::clone(&self.opened)), kind);
        if self.opened.direct.is_none() {
            return blocking();
        }
        let (opened, contexts) = (Arc::clone(&self.opened), &self.contexts);
        match kind {
            QueueKind::Caller => Arc::new(caller::Lane::new(opened, Arc::clone(contexts))),
            QueueKind::Background { depth } => match contexts.background() {
                Some(background) => Arc::new(background::Lane::new(background, opened, depth)),
                None => blocking(),
            },
        }
    }

    fn version(&self) -> Result<Version, StoreError> {
        self.opened.version()
    }

    fn settled_version(&self) -> Result<Version, StoreError> {
        self.opened.settled_version()
    }

    fn version_tells_all(&self) -> bool {
        !self.opened.is_device()
    }
}

/// Carries operations out one by one.
struct Blocking(Arc<Opened>);

impl Carry for Blocking {
    type Plan = ();

    fn plan(&self, _: &Op) {}

    fn carry(&self, op: Op, (): ()) -> Done {
        carry(&self.0, op)
    }
}

/// Carries `op` out on this thread.
fn carry(opened: &Arc<Opened>, op: Op) -> Done {
    file::Transfer::carry_out(op, opened)
}

/// Whether `op` is one for a context.
fn is_direct(opened: &Opened, op: &Op) -> bool {
    let moves = match op.kind {
        OpKind::Read | OpKind::Write => op.bytes > 0,
        OpKind::Sync => false,
    };
    moves && opened.route(op) == Route::Direct
}

#[cfg(test)]
mod tests;
