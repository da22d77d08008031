//! The values that a cache of byte ranges is built from, and what the core is built from then.
//!
//! # Invariants
//! - A cache has `FRAMES_MIN` frames at least, and as many as its file has pages at most, or
//!   `FRAMES_ENOUGH`.

use alloc::string::String;

use super::RANGE_PAGE_BYTES;
use crate::cache::{self, SettingsError};
use crate::device::DeviceKind;
use crate::eviction;
use crate::planner::device::DeviceEstimate;
use crate::units::Nanos;

/// The values that a cache of byte ranges is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangesSettings {
    /// Memory for pages, in bytes; a file that is smaller takes less.
    pub memory_bytes: u64,
    /// The largest fetch, in bytes.
    pub request_bytes_max: u32,
    /// Threads that fetch; readahead waits where so many fetches per thread are queued.
    pub connections: u32,
    /// The readahead policy, as `NAME:key=value,...`.
    pub readahead: String,
    /// The replacement policy, as `NAME:key=value,...`.
    pub policy: String,
}

impl Default for RangesSettings {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            request_bytes_max: 9 << 18,
            connections: 16,
            readahead: "streams:first=1M".into(),
            policy: eviction::DEFAULT.into(),
        }
    }
}

impl RangesSettings {
    /// What the core is built from, for an object of `file_bytes`.
    pub(super) fn core(&self, file_bytes: u64) -> Result<cache::Settings, SettingsError> {
        let (bytes, page_bytes) = (self.memory_bytes, RANGE_PAGE_BYTES);
        let page = u64::from(page_bytes);
        let frames = (bytes / page).min(file_bytes.div_ceil(page).max(FRAMES_ENOUGH));
        let frames = u32::try_from(frames)
            .ok()
            .filter(|&frames| u64::from(frames) >= FRAMES_MIN && frames < u32::MAX)
            .ok_or(SettingsError::CacheBytes { bytes, page_bytes })?;
        if self.request_bytes_max < page_bytes {
            let bytes = self.request_bytes_max;
            return Err(SettingsError::RequestBytes { bytes, page_bytes });
        }
        if self.connections == 0 {
            return Err(SettingsError::Zero("connections"));
        }
        let mut core = cache::Settings::new(frames, &self.policy, &self.readahead);
        core.page_bytes = page_bytes;
        core.request_pages_max = self.request_bytes_max / page_bytes;
        core.handles_max = 1;
        core.files_max = 1;
        core.explain = true;
        core.ahead_pages_max = frames - frames / USED_ONE_IN;
        // The store is not measured: what is seen of it depends on other clients, and on what the
        // fetcher and its language take. Each connection has a request in flight.
        let device = DeviceEstimate {
            kind: DeviceKind::Parallel,
            latency: LATENCY,
            bytes_per_second: u64::MAX,
            depth: self.connections,
        };
        let in_flight = u64::from(self.connections) * u64::from(self.request_bytes_max);
        core.device = Some(device.profile(in_flight, self.request_bytes_max / 2));
        // A reader that waits for a frame waits for fetches that will end.
        core.wait_max = Nanos(u64::MAX);
        Ok(core)
    }
}

/// A smaller cache is refused.
const FRAMES_MIN: u64 = 64;
/// A file that is smaller has so many all the same: a readahead window fits, whatever its file.
const FRAMES_ENOUGH: u64 = 512;
/// A store's usual time to the first byte.
const LATENCY: Nanos = Nanos::from_millis(30);
/// Used pages have this part of the frames, which replacement does not take for unread ones.
const USED_ONE_IN: u32 = 16;
