//! What is asked once of each device that workers read from.
//!
//! # Invariants
//! - At most [`DEVICES_MAX`] devices are remembered.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::chunk;

/// The bytes of one call, by device.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    chunks: Mutex<BTreeMap<u64, u64>>,
}

impl Devices {
    /// The most that one call reads of a file on `device`.
    pub(crate) fn chunk_bytes(&self, device: u64) -> u64 {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&bytes) = chunks.get(&device) {
            return bytes;
        }
        let bytes = chunk::chunk_bytes(device);
        if chunks.len() >= DEVICES_MAX {
            chunks.clear();
        }
        chunks.insert(device, bytes);
        assert!(bytes > 0 && chunks.len() <= DEVICES_MAX, "devices are bounded");
        bytes
    }
}

const DEVICES_MAX: usize = 64;
