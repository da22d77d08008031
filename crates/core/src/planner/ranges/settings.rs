//! The values that a cache of byte ranges is built from, and what the core is built from then.
//!
//! # Invariants
//! - A cache has `FRAMES_MIN` frames at least, and as many as its file has pages at most, or
//!   `FRAMES_ENOUGH`.

use alloc::string::String;

use super::RANGE_PAGE_BYTES;
use crate::cache::{self, SettingsError};
use crate::device::DeviceKind;
use crate::device::estimate::{DeviceProfile, Estimate};
use crate::eviction;
use crate::planner::device::DeviceEstimate;
use crate::units::Nanos;

/// The values that a cache of byte ranges is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangesSettings {
    /// Memory for pages, in bytes; a file that is smaller takes less.
    pub memory_bytes: u64,
    /// The largest fetch, in bytes; windows are cut into halves of it, of 64 KiB at least.
    pub request_bytes_max: u32,
    /// Threads that fetch; readahead waits where so many fetches per thread are queued.
    pub connections: u32,
    /// The readahead policy, as `NAME:key=value,...`.
    pub readahead: String,
    /// The replacement policy, as `NAME:key=value,...`.
    pub policy: String,
    /// What is known of the store as the cache begins; `None`: nothing.
    pub store: Option<Estimate>,
}

impl Default for RangesSettings {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            request_bytes_max: 4 << 20,
            connections: 16,
            readahead: "streams:first=1M".into(),
            policy: eviction::DEFAULT.into(),
            store: None,
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
        core.request_pages_max = self.cut_bytes() / page_bytes;
        core.handles_max = 1;
        core.files_max = 1;
        core.explain = true;
        core.ahead_pages_max = frames - frames / USED_ONE_IN;
        core.device = Some(self.device());
        // A reader that waits for a frame waits for fetches that will end.
        core.wait_max = Nanos(u64::MAX);
        Ok(core)
    }

    /// Windows are cut to so many bytes, which [`FetchQueue`](super::FetchQueue) may join again.
    fn cut_bytes(&self) -> u32 {
        (self.request_bytes_max / 2).max(self.request_bytes_max.min(CUT_BYTES_MIN))
    }

    /// What the policy sizes windows by. The cache does not measure its store: what one file sees
    /// of it depends on the others, and on what the fetcher and its language take. Each connection
    /// has a request in flight, but no more altogether than a store whose rate is known delivers in
    /// the time of a few accesses: all that a reader elsewhere in the file waits behind.
    fn device(&self) -> DeviceProfile {
        let known = self.store.filter(|store| store.known.access && store.known.rate);
        let latency = known.map_or(LATENCY, |store| store.profile.access.max(LATENCY));
        let bytes_per_second = known.map_or(u64::MAX, |store| store.profile.bytes_per_second);
        let device = DeviceEstimate {
            kind: DeviceKind::Parallel,
            latency,
            bytes_per_second,
            depth: self.connections,
        };
        let in_flight = u64::from(self.connections) * u64::from(self.request_bytes_max);
        let profile = device.profile(in_flight, (self.cut_bytes() / 2).max(RANGE_PAGE_BYTES));
        let in_access = u128::from(bytes_per_second) * u128::from(latency.0) / 1_000_000_000;
        let most = u32::try_from(in_access).unwrap_or(u32::MAX).max(RANGE_PAGE_BYTES);
        DeviceProfile { request_bytes: profile.request_bytes.min(most), ..profile }
    }
}

/// Requests that are smaller are not cut.
const CUT_BYTES_MIN: u32 = 64 << 10;
/// A smaller cache is refused.
const FRAMES_MIN: u64 = 64;
/// A file that is smaller has so many all the same: a readahead window fits, whatever its file.
const FRAMES_ENOUGH: u64 = 512;
/// A store's usual time to the first byte; less is not gone by, as it is the fetcher's language
/// that takes its time then.
const LATENCY: Nanos = Nanos::from_millis(30);
/// Used pages have this part of the frames, which replacement does not take for unread ones.
const USED_ONE_IN: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::estimate::Evidence;

    #[test]
    fn what_is_known_of_a_store_bounds_what_is_in_flight() {
        let all = 64 << 20;
        #[rustfmt::skip]
        let rows = [ // why                        ms   MB/s  rate   in flight      window's half
            ("nothing is known",                   0,   0,    false, all,           1 << 20),
            ("its rate was not seen",              30,  10,   false, all,           1 << 20),
            ("a slow link: four accesses' worth",  30,  10,   true,  1_200_000,     300_000),
            ("no less than a usual access",        1,   10,   true,  1_200_000,     300_000),
            ("far away",                           300, 10,   true,  12_000_000,    1 << 20),
            ("fast: what connections carry",       30,  700,  true,  all,           1 << 20),
            ("nearly nothing",                     30,  0,    true,  0,             8192),
        ];
        for (why, millis, megabytes, rate, in_flight, request) in rows {
            let profile = DeviceProfile {
                kind: DeviceKind::SeekBound,
                access: Nanos::from_millis(millis),
                bytes_per_second: (megabytes * 1_000_000).max(1),
                depth: 1,
                request_bytes: 1,
            };
            let known = Evidence { kind: false, access: true, rate };
            let store = (millis > 0).then_some(Estimate { profile, known });
            let device = RangesSettings { store, ..RangesSettings::default() }.device();
            let made = device.bytes_per_second * device.access.0 / 1_000_000_000 * 4;
            assert!(made.abs_diff(in_flight) <= in_flight / 50 + 4, "{why}: {made}");
            assert_eq!(device.request_bytes, request, "{why}");
            assert_eq!(device.kind, DeviceKind::Parallel, "{why}");
        }
    }
}
