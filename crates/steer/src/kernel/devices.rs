//! What is asked once of each device that workers read from.
//!
//! # Invariants
//! - At most [`DEVICES_MAX`] devices are remembered.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::{chunk, extents};

/// What was asked, by device.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    rows: Mutex<BTreeMap<u64, DeviceFacts>>,
}

/// What is asked once of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceFacts {
    /// The most that one call reads of a file.
    pub(crate) chunk_bytes: u64,
    /// The system says that it turns.
    pub(crate) is_rotational: bool,
    /// Its file systems are queried for the extents that were never written.
    pub(crate) tells_unwritten: bool,
}

impl Devices {
    /// What is known of `device`.
    pub(crate) fn facts(&self, device: u64) -> DeviceFacts {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&facts) = rows.get(&device) {
            return facts;
        }
        let chunk_bytes = chunk::chunk_bytes(device);
        let is_rotational = chunk::is_rotational(device);
        let tells_unwritten = extents::are_queried(device);
        let facts = DeviceFacts { chunk_bytes, is_rotational, tells_unwritten };
        if rows.len() >= DEVICES_MAX {
            rows.clear();
        }
        rows.insert(device, facts);
        assert!(chunk_bytes > 0 && rows.len() <= DEVICES_MAX, "devices are bounded");
        facts
    }

    /// The most that one call reads of a file on `device`.
    pub(crate) fn chunk_bytes(&self, device: u64) -> u64 {
        self.facts(device).chunk_bytes
    }
}

const DEVICES_MAX: usize = 64;
