//! What requests of each partition fit into, readable without the lock.
//!
//! # Invariants
//! - The core's shares are copied under the state's lock, after each event that changes them. A
//!   reader may see older ones: a request that was cut for a larger share waits for frames longer.

use forerun_core::{cache::Cache, units::PartitionId};
use forerun_io::sync::{AtomicU32, Ordering};

/// See the module.
pub(crate) struct Shares(Vec<AtomicU32>);

impl Shares {
    /// The shares of `core`.
    pub(crate) fn new(core: &Cache) -> Self {
        let shares = Self(core.partitions().map(|_| AtomicU32::new(0)).collect());
        shares.copy(core);
        shares
    }

    /// Copies the shares of `core`.
    pub(crate) fn copy(&self, core: &Cache) {
        for (at, share) in (0..).zip(&self.0) {
            share.store(core.smallest_share(PartitionId(at)), Ordering::Relaxed);
        }
    }

    /// Frames that a request of a handle of `partition` fits into.
    pub(crate) fn frames(&self, partition: PartitionId) -> u32 {
        self.0[partition.0 as usize].load(Ordering::Relaxed)
    }
}
