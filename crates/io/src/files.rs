//! Files by their paths: stub until the interfaces are there.
//!
//! # Invariants
//! - None yet.

use std::{fmt, path::Path, sync::Arc};

use crate::{
    frames::Frames,
    store::{
        Store, StoreError,
        threads::{Access, Threads},
    },
};

/// Which interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The best that works.
    #[default]
    Auto,
}

/// How files are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesSettings {
    /// Which interface.
    pub backend: Backend,
}

/// Not offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no")]
pub struct BackendError;

/// What was chosen.
#[derive(Clone, Debug)]
pub struct Chosen;

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("threads")
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Files;

impl Files {
    /// New.
    ///
    /// # Errors
    /// None.
    pub fn new(_: FilesSettings) -> Result<Self, BackendError> {
        Ok(Self)
    }

    /// Opens.
    ///
    /// # Errors
    /// As there.
    pub fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(Threads::open(path, access)?))
    }

    /// Registers.
    pub fn register(&self, _: &Frames) {}

    /// Chosen.
    #[must_use]
    pub fn chosen(&self) -> Chosen {
        Chosen
    }
}
