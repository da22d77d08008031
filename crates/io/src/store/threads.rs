//! A file by its path, read and written with `preadv` and `pwritev`.
//!
//! Works wherever files do: the store of last resort, and the one that others are compared with.
//! By its path a file is read through the kernel's page cache; [`Files`](crate::files::Files) opens
//! it past that too.
//!
//! # Invariants
//! - As of `file.rs`.

use std::{path::PathBuf, sync::Arc};

pub use super::file::Access;
use super::{
    Change, Completion, Op, Queue, QueueKind, Store, StoreError, Version,
    file::{OpenFile, Transfer},
};
use crate::queue::{Carry, open};

/// A file that is open.
#[derive(Clone, Debug)]
pub struct Threads(Arc<OpenFile>);

impl Threads {
    /// Opens the file or block device at `path`, which must be there.
    ///
    /// # Errors
    /// It is missing, may not be opened so, or is neither.
    pub fn open(path: impl Into<PathBuf>, access: Access) -> Result<Self, StoreError> {
        Ok(Self(Arc::new(OpenFile::open(path.into(), access)?)))
    }

    /// A file that is open already.
    pub(crate) fn over(file: Arc<OpenFile>) -> Self {
        Self(file)
    }

    /// The file.
    pub(crate) fn opened(&self) -> &Arc<OpenFile> {
        &self.0
    }
}

impl Store for Threads {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.0.bytes()
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        open(self.clone(), kind)
    }

    fn bytes_max(&self) -> Option<u64> {
        self.0.bytes_max()
    }

    fn change(&self, change: Change) -> Result<(), i32> {
        self.0.change(change)
    }

    fn version(&self) -> Result<Version, StoreError> {
        self.0.version()
    }

    fn settled_version(&self) -> Result<Version, StoreError> {
        self.0.settled_version()
    }

    fn version_tells_all(&self) -> bool {
        !self.0.is_device()
    }
}

impl Carry for Threads {
    type Plan = ();

    fn carry(&self, op: Op, (): ()) -> Completion {
        Transfer::carry_out(op, &self.0)
    }
}
