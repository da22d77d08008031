//! Files on `io_uring`: readers on rings of their own, the background on one that all share.
//!
//! ```text
//!   reader A --one read------> preadv
//!   reader B --several-------> ring of B \ a bounded pool; a ring is checked in empty
//!   reader C --several-------> ring of C /
//!   reader D --no ring left--> preadv, one after the other
//!
//!   file 1 --submit--> queue --\
//!   file 2 --submit--> queue ----> scheduler --> one ring --> one reaper for all files
//!   file 3 --submit--> queue --/
//! ```
//!
//! What a reader submits is carried out by one system call, on the reader's thread: a single
//! operation by `preadv`, which is the faster way then (`pool.rs`), several on a ring.
//!
//! # Invariants
//! - Memory that the kernel may write to is owned by a [`Transfer`](super::file::Transfer) until
//!   the kernel has said that it is done; dropping a ring waits for what is in it.
//! - No ring is given more than its completion queue takes.
//! # Sources
//! Linux `io_uring_setup(2)`, `io_uring_enter(2)`.

mod caller;
mod entry;
mod in_flight;
mod pool;
mod port;
mod registered;
mod ring;
mod shared;

use std::sync::Arc;

use rustix::io::Errno;

use self::{caller::CallerQueue, pool::Pool, shared::Shared};
pub(crate) use self::{port::RingPort, registered::Region};
use super::{Queue, QueueKind, Store, StoreError, file::OpenFile, threads::Threads};

/// The rings of all files that are opened together.
#[derive(Clone)]
pub(crate) struct Uring {
    pool: Arc<Pool>,
    shared: Arc<Shared>,
}

/// A refusal of the system: the call, by its name in the manual, and the errno.
pub(crate) type Refusal = (&'static str, Errno);

impl Uring {
    /// Rings of `entries` operations, at most `rings_max` of them for readers. One of each kind
    /// is made and tried.
    ///
    /// # Errors
    /// The system refuses rings, or what they need to read and write files.
    pub(crate) fn new(rings_max: u32, entries: u32) -> Result<Self, Refusal> {
        let shared = Arc::new(Shared::new(entries)?);
        let pool = Arc::new(Pool::new(rings_max, entries));
        if rings_max > 0 {
            pool.check_out().ok_or(("io_uring_setup", Errno::NOMEM))?;
        }
        Ok(Self { pool, shared })
    }

    /// Has the kernel keep `region` pinned, as much of it as it allows: reads into it cost less.
    pub(crate) fn register(&self, region: Region) {
        self.shared.register(region);
        self.pool.copy_from(&self.shared);
    }

    /// Bytes that the kernel keeps pinned.
    pub(crate) fn registered_bytes(&self) -> u64 {
        self.shared.registered_bytes()
    }

    /// A store of `file`.
    pub(crate) fn file(&self, file: Arc<OpenFile>) -> UringFile {
        UringFile { rings: self.clone(), file: Threads::over(file) }
    }
}

/// A file on rings that files share.
pub(crate) struct UringFile {
    rings: Uring,
    file: Threads,
}

impl Store for UringFile {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.file.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        let file = Arc::clone(self.file.opened());
        match kind {
            QueueKind::Caller => Arc::new(CallerQueue::new(file, Arc::clone(&self.rings.pool))),
            QueueKind::Background { .. } => shared::queue(&self.rings.shared, file, kind),
        }
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.file)
    }
}
