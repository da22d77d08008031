//! The length of an open file, which its writes extend, and which may be set.
//!
//! ```text
//!   0                stored           bytes          extent
//!   |== in the store ==|== dirty ======|-- being written --|
//!                      |<- a fetch gives zeros: holes ---->|
//! ```
//!
//! # Invariants
//! - `stored` and `bytes` never exceed `extent`. They fall only where the length is set: `bytes`
//!   and `stored` before the store cuts the file, so that nothing beyond is asked for, and
//!   `extent` when the core knows.

use forerun_io::sync::{AtomicU64, Ordering};

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

    /// The bytes of a write up to `end` are in their frame.
    pub(crate) fn filled(&self, end: u64) {
        self.bytes.fetch_max(end, Ordering::AcqRel);
    }

    /// The store is about to cut the file to `bytes`; returns what is to be restored where it does
    /// not. Under the state's lock.
    pub(crate) fn cut_begins(&self, bytes: u64) -> (u64, u64) {
        let done = Ordering::AcqRel;
        (self.bytes.fetch_min(bytes, done), self.stored.fetch_min(bytes, done))
    }

    /// The store did not cut the file.
    pub(crate) fn cut_failed(&self, (bytes, stored): (u64, u64)) {
        self.bytes.store(bytes, Ordering::Release);
        self.stored.store(stored, Ordering::Release);
    }

    /// The store has `bytes` bytes, and writes that have begun end at `begun` or before. Under the
    /// state's lock.
    pub(crate) fn set(&self, bytes: u64, begun: u64) {
        self.extent.store(bytes.max(begun), Ordering::Release);
        self.bytes.store(bytes, Ordering::Release);
        self.stored.store(bytes, Ordering::Release);
    }

    /// The store took a write up to `end`.
    pub(crate) fn write_stored(&self, end: u64) {
        self.stored.fetch_max(end, Ordering::AcqRel);
    }
}
