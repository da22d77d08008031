//! An open file: its store, the ways to it, and whether its bytes are still those of its opening.
//!
//! ```text
//!   Current --+--> Changed   another version is there
//!             +--> Shrunk    so, and shorter
//!             +--> Closed    the cache was closed
//! ```
//!
//! # Invariants
//! - A handle serves one version. Each fetch compares versions after its bytes came, so a page of
//!   another version never becomes resident; [`crate::watch`] compares those of files that are
//!   only hit.
//! - A standing never goes back to `Current`: who wants the new bytes opens the file anew.
//! # Sources
//! A write changes the time of modification before it changes bytes (Linux `file_update_time`,
//! called first by every file system's write), so bytes that came before an unchanged version was
//! seen are none of a later one. They are none of an earlier one either, as a version is taken at
//! the opening only when no write that it tells of is under way ([`Store::settled_version`]). Two
//! writes within one tick of the file system's clock look alike to file systems without
//! fine-grained times (Linux before 6.13); a write through a shared mapping
//! changes the time late or not at all.

use std::sync::Arc;

use forerun_core::units::FileId;
use forerun_io::{
    store::{Queue, Store, Version},
    sync::{AtomicU8, Ordering},
};

use crate::{background::Background, error::ReadError, queues::Queues};

/// See the module.
pub(crate) struct File {
    pub(crate) id: FileId,
    pub(crate) store: Arc<dyn Store>,
    /// What it was when it was opened.
    pub(crate) version: Version,
    /// Its length then.
    pub(crate) bytes: u64,
    pub(crate) page_bytes: u32,
    /// For readers.
    pub(crate) queues: Queues,
    /// Where readahead is submitted.
    pub(crate) ahead: Arc<dyn Queue>,
    /// What reaps it.
    pub(crate) background: Arc<Background>,
    pub(crate) stands: Stands,
}

/// Whether a file may still be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Current,
    Changed,
    Shrunk,
    Closed,
}

/// A standing that changes once.
#[derive(Default)]
pub(crate) struct Stands(AtomicU8);

impl File {
    /// Its pages, the last one perhaps in part.
    pub(crate) fn pages(&self) -> u64 {
        self.bytes.div_ceil(u64::from(self.page_bytes))
    }

    pub(crate) fn standing(&self) -> Standing {
        const STANDINGS: [Standing; 4] =
            [Standing::Current, Standing::Changed, Standing::Shrunk, Standing::Closed];
        STANDINGS[usize::from(self.stands.0.load(Ordering::Acquire))]
    }

    /// Ends the file, unless it has ended. Whether it was current.
    pub(crate) fn end(&self, standing: Standing) -> bool {
        let (current, new) = (Standing::Current as u8, standing as u8);
        let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
        self.stands.0.compare_exchange(current, new, done, seen).is_ok()
    }

    /// Refuses a read of a file that has ended.
    pub(crate) fn require_current(&self) -> Result<(), ReadError> {
        match self.standing() {
            Standing::Current => Ok(()),
            Standing::Changed => Err(ReadError::Changed),
            Standing::Shrunk => Err(ReadError::Shrunk { file_bytes: self.bytes }),
            Standing::Closed => Err(ReadError::Closed),
        }
    }

    /// Compares the version that is there now; the errno of a store that would not say.
    pub(crate) fn compare(&self) -> Result<Standing, i32> {
        let now = self.store.version().map_err(|error| error.errno())?;
        Ok(if now == self.version {
            Standing::Current
        } else if now.bytes < self.version.bytes {
            Standing::Shrunk
        } else {
            Standing::Changed
        })
    }

    /// Ends the background of a file that nobody has open, as soon as its store can.
    pub(crate) fn close(&self) {
        self.ahead.close();
        self.background.file_closed(&self.ahead);
    }
}
