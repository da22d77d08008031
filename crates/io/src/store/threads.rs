//! A file by its path, read and written with `preadv` and `pwritev`.
//!
//! Works wherever files do, the kernel's page cache included: the store of last resort, and the
//! one that others are compared with.
//!
//! # Invariants
//! - As of `file.rs`.

use std::{path::PathBuf, sync::Arc};

use rustix::io::Errno;

pub use super::file::Access;
use super::{Done, Op, OpKind, Queue, QueueKind, Store, StoreError, Version, file::Opened};
use crate::queue::{Carry, open};

/// A file that is open.
#[derive(Clone, Debug)]
pub struct Threads(Arc<Opened>);

impl Threads {
    /// Opens the file or block device at `path`, which must be there.
    ///
    /// # Errors
    /// It is missing, may not be opened so, or is neither.
    pub fn open(path: impl Into<PathBuf>, access: Access) -> Result<Self, StoreError> {
        Ok(Self(Arc::new(Opened::open(path.into(), access)?)))
    }
}

impl Store for Threads {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.0.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        open(self.clone(), kind)
    }

    fn version(&self) -> Result<Version, StoreError> {
        self.0.version()
    }
}

impl Carry for Threads {
    type Plan = ();

    fn plan(&self, _: &Op) {}

    fn carry(&self, mut op: Op, (): ()) -> Done {
        let result = match op.kind {
            OpKind::Read => self.0.read(&mut op),
            OpKind::Write => self.0.write(&op),
            OpKind::Sync => self.0.sync().map(|()| 0),
        };
        Done { op, result: result.map_err(Errno::raw_os_error) }
    }
}
