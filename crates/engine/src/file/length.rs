//! The length of an open file, which its writes extend.
//!
//! ```text
//!   0                stored           bytes          extent
//!   |== in the store ==|== dirty ======|-- being written --|
//!                      |<- a fetch gives zeros: holes ---->|
//! ```
//!
//! # Invariants
//! - `stored` and `bytes` never exceed `extent`, and none of them falls.

use std::sync::atomic::{AtomicU64, Ordering};

/// The length of a file, in bytes: see the module.
pub(crate) struct Length {
    bytes: AtomicU64,
    extent: AtomicU64,
    stored: AtomicU64,
}

impl Length {
    pub(crate) fn new(bytes: u64) -> Self {
        let cell = || AtomicU64::new(bytes);
        Self { bytes: cell(), extent: cell(), stored: cell() }
    }

    /// What reads see.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// With writes that have begun.
    pub(crate) fn extent(&self) -> u64 {
        self.extent.load(Ordering::Acquire)
    }

    /// What the store is known to hold.
    pub(crate) fn stored(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }

    /// A write up to `end` begins; under the state's lock.
    pub(crate) fn write_begins(&self, end: u64) {
        self.extent.fetch_max(end, Ordering::AcqRel);
    }

    /// A write up to `end` has its answer.
    pub(crate) fn write_ends(&self, end: u64) {
        self.bytes.fetch_max(end, Ordering::AcqRel);
    }

    /// The store took a write up to `end`.
    pub(crate) fn write_stored(&self, end: u64) {
        self.stored.fetch_max(end, Ordering::AcqRel);
    }
}
