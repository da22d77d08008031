//! What a model checks by itself and programs never see: the notes of hits.
//!
//! # Invariants
//! - Nothing is added to what a cache does; it is only reached.

use forerun_core::event::Hit;

use crate::hits;

/// The notes of a cache: see `hits.rs`.
pub struct HitBuffer(hits::HitBuffer);

/// What notes came to, as of the last drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCounts {
    /// Reads that ended without the lock.
    pub reads: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Notes that found no room.
    pub dropped: u64,
}

impl Default for HitBuffer {
    fn default() -> Self {
        Self(hits::HitBuffer::new())
    }
}

impl HitBuffer {
    /// Notes that there is room for at once.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Notes a hit; whether the notes want to be drained.
    #[must_use]
    pub fn record(&self, hit: Hit, bytes: usize, ends: bool) -> bool {
        self.0.record(hit, bytes, ends) != hits::Full::No
    }

    /// Appends what was noted, as before each miss.
    pub fn drain(&self, out: &mut Vec<Hit>) {
        self.0.drain(out);
    }

    /// Appends what was noted, with every place looked at, as before statistics.
    pub fn sweep(&self, out: &mut Vec<Hit>) {
        self.0.sweep(out);
    }

    /// What all notes came to.
    #[must_use]
    pub fn counts(&self) -> HitCounts {
        let total = self.0.total();
        HitCounts { reads: total.unlocked, bytes: total.bytes, dropped: total.dropped }
    }
}
