//! The hit buffer, public for the models in `tests/models/` alone.
//!
//! # Invariants
//! - A wrapper only forwards: it adds no behaviour.

use forerun_core::event::Hit;

use crate::hits;

/// The hit buffer of a cache: see `hits.rs`.
pub struct HitBuffer(hits::HitBuffer);

/// The counts of a hit buffer, as of the last drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCounts {
    /// Reads of hits alone.
    pub reads: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Hits that found no place.
    pub dropped: u64,
}

impl Default for HitBuffer {
    fn default() -> Self {
        Self(hits::HitBuffer::new())
    }
}

impl HitBuffer {
    /// The most hits that the buffer holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Records a hit; returns whether its stripe should be drained.
    #[must_use]
    pub fn record(&self, hit: Hit, bytes: usize, ends: bool) -> bool {
        self.0.record(hit, bytes, ends) != hits::Full::No
    }

    /// Appends recorded hits, as before each miss.
    pub fn drain(&self, out: &mut Vec<Hit>) {
        self.0.drain(out);
    }

    /// Appends recorded hits of every place, as before statistics.
    pub fn sweep(&self, out: &mut Vec<Hit>) {
        self.0.sweep(out);
    }

    /// The sum of all stripes.
    #[must_use]
    pub fn counts(&self) -> HitCounts {
        let total = self.0.total();
        HitCounts { reads: total.unlocked, bytes: total.bytes, dropped: total.dropped }
    }
}
