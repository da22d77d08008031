//! A file by its path over linux-aio: past the page cache where `io_uring` is refused.
//!
//! Containers often forbid `io_uring` and leave the older interface, which has several reads of one
//! thread in flight at once, as long as they go past the kernel's page cache. Those that cannot
//! are carried out blocking, as linux-aio would block in the submission of them as well.
//!
//! ```text
//!   Caller:      submit -> waiting -> reap: a context is checked out, all that waits goes in
//!                                           together, the reaper's thread waits for its end
//!   Background:  submit -> scheduler -> one context for all files -> a thread takes completions
//!                                \----> what must block: a few threads
//! ```
//!
//! A file that cannot be read past the page cache has the queues of `queue.rs`, as if linux-aio
//! were not there; so has every file when the system has no context left.
//!
//! There is no `io_cancel`: no file and no block device of Linux can be cancelled, it answers
//! `EINVAL` for all of them. What is in flight when a queue is closed ends by itself.
//!
//! # Invariants
//! - As of `file.rs` and of `queue.rs`.
//! - What linux-aio refuses, for whatever reason, is carried out blocking: the reader sees the
//!   errors of the file, never those of the interface.
//! # Sources
//! Linux `io_setup(2)`, `io_submit(2)`, `io_getevents(2)`, `fs/aio.c`.

mod background;
mod contexts;
mod own;
mod sys;

use std::{path::PathBuf, sync::Arc};

use rustix::io::Errno;

pub use self::contexts::{ContextBounds, Contexts};
pub(crate) use self::own::AioPort;
pub use super::file::Access;
use super::{
    Queue, QueueKind, Store, StoreError,
    file::{CallerQueue, OpenFile},
    threads::Threads,
};

/// Whether the system has linux-aio for this process, now.
///
/// # Errors
/// It has not; `EAGAIN` if only as others use all of `/proc/sys/fs/aio-max-nr`.
pub fn available() -> Result<(), Errno> {
    sys::Context::<()>::new(1).map(drop)
}

/// A file that is open.
#[derive(Clone)]
pub struct Aio {
    file: Threads,
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
        Ok(Self::over(contexts, Arc::new(OpenFile::open(path.into(), access)?)))
    }

    /// A store over a file that is open already.
    pub(crate) fn over(contexts: &Arc<Contexts>, opened: Arc<OpenFile>) -> Self {
        Self { file: Threads::over(opened), contexts: Arc::clone(contexts) }
    }
}

impl Store for Aio {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.file.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        if self.file.opened().direct.is_none() {
            return self.file.queue(kind);
        }
        let (file, contexts) = (Arc::clone(self.file.opened()), &self.contexts);
        match kind {
            QueueKind::Caller => Arc::new(CallerQueue::new(file, Arc::clone(contexts))),
            QueueKind::Background { .. } => match contexts.background() {
                Some(background) => background::queue(background, file, kind),
                None => self.file.queue(kind),
            },
        }
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.file)
    }
}

#[cfg(test)]
mod tests;
