//! The settings of a live cache: plain values with constant defaults.
//!
//! Settings never come from the environment. A field of [`Settings`] bounds each table and each
//! queue of the engine; a combination that cannot work is refused before anything is built.
//!
//! # Invariants
//! - The core's settings follow from these values alone ([`Settings::core`]), so a journal and its
//!   settings are enough for a replay.

use std::time::Duration;

use forerun_core::{
    cache::{self, Sizing},
    device::{estimate::DeviceProfile, remembered::DeviceRecord},
    eviction, readahead,
    units::Nanos,
};
use forerun_io::files::FilesSettings;

use crate::{error::BuildError, partitions::Partition};

/// The settings of a live cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Memory for pages, in bytes.
    pub cache_bytes: u64,
    /// Bytes of a page; a power of two, from 512 to 16 MiB.
    pub page_bytes: u32,
    /// The replacement policy, as `NAME:key=value,...`.
    pub policy: String,
    /// The readahead policy, as `NAME:key=value,...`. A largest window that it names must fit the
    /// cache.
    pub readahead: String,
    /// Partitions, in the order in which their rules are matched. What they leave of the cache is
    /// the partition `rest`, for all that no rule takes.
    pub partitions: Vec<Partition>,
    /// Memory that [`Sizing::Auto`] leaves to `rest` at least, beside a window of its readahead
    /// and a largest request.
    pub rest_bytes_min: u64,
    /// Whether memory moves between partitions by itself, to where it brings more hits.
    pub sizing: Sizing,
    /// Where a partition has less memory free than this, pages of it are evicted before a read
    /// needs their frames. 0: a miss evicts by itself.
    pub pool_bytes_min: u64,
    /// How much memory of a partition an eviction leaves free.
    pub pool_bytes_max: u64,
    /// The largest request to a store; at least a page.
    pub request_bytes_max: u32,
    /// The most bytes prefetched and not used yet; never more than 7/8 of the cache.
    pub ahead_bytes_max: u64,
    /// Readahead requests of one file in flight at once; more wait behind them. A parallel device
    /// gets more, by its estimated depth.
    pub background_depth: u32,
    /// The most readahead requests of one file in flight at a parallel device.
    pub background_depth_max: u32,
    /// The number of readahead requests in flight or waiting, over all files, from which on the
    /// device counts as congested: markers then trigger nothing.
    pub congested_requests: u32,
    /// Readers that may fetch from one file at once, each on its own queue; more take turns.
    pub demand_queues_max: u32,
    /// Reads in flight at once; more are refused.
    pub readers_max: u32,
    /// Pages that readers wait for, over all reads; more are refused.
    pub waiters_max: u32,
    /// Handles open at once.
    pub handles_max: u32,
    /// Files open at once, or closed with cached pages; closed ones are replaced first.
    pub files_max: u32,
    /// The most bytes that are written and not yet durable; never more than half of the cache.
    pub dirty_bytes_max: u64,
    /// How old a dirty page becomes before it is written and synced without a flush.
    pub dirty_age_max: Duration,
    /// After a failure to write or to sync, the time to the next try; it doubles with each further
    /// failure, up to 64 times this.
    pub retry_delay: Duration,
    /// Whether every write is durable before it is answered.
    pub write_through: bool,
    /// How long a request waits for a frame when all are pinned or in flight.
    pub wait_max: Duration,
    /// The interval at which the watch compares the versions of open files. Fetches compare in any
    /// case.
    pub version_interval: Duration,
    /// The number of readahead windows that [`Cache::windows`](crate::Cache::windows) keeps, from
    /// the first on; 0: none.
    pub windows_max: u32,
    /// The measured device profile, for all files of the cache. `None`: estimated from requests.
    pub device: Option<DeviceProfile>,
    /// What an earlier run learnt of the device, for all files of the cache: used until this one
    /// has learnt as much, or has found it wrong twice. `None`: nothing is remembered.
    pub remembered: Option<DeviceRecord>,
    /// How files opened by path are read.
    pub files: FilesSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            page_bytes: 4 << 10,
            policy: eviction::DEFAULT.into(),
            readahead: readahead::DEFAULT.into(),
            partitions: Vec::new(),
            rest_bytes_min: 0,
            sizing: Sizing::Manual,
            pool_bytes_min: 0,
            pool_bytes_max: 0,
            request_bytes_max: 1 << 20,
            ahead_bytes_max: 256 << 20,
            background_depth: 8,
            background_depth_max: 64,
            congested_requests: REQUESTS_OF_A_KERNEL / 8 * 7,
            demand_queues_max: 64,
            readers_max: 1 << 10,
            waiters_max: 1 << 20,
            handles_max: 1 << 16,
            files_max: 1 << 10,
            dirty_bytes_max: 256 << 20,
            dirty_age_max: Duration::from_secs(30),
            retry_delay: Duration::from_millis(100),
            write_through: false,
            wait_max: Duration::from_secs(10),
            version_interval: Duration::from_secs(1),
            windows_max: 0,
            device: None,
            remembered: None,
            files: FilesSettings::default(),
        }
    }
}

impl Settings {
    /// The settings of the core.
    ///
    /// # Errors
    /// A bound is 0 or does not fit. The core checks the rest when it is built.
    pub fn core(&self) -> Result<cache::Settings, BuildError> {
        if !self.page_bytes.is_power_of_two() {
            return Err(cache::SettingsError::PageBytes(self.page_bytes).into());
        }
        if self.page_bytes > PAGE_BYTES_MAX {
            let (bytes, bound) = (self.page_bytes, PAGE_BYTES_MAX);
            return Err(BuildError::PageBytes { bytes, bound });
        }
        let (page_bytes, bytes) = (u64::from(self.page_bytes), self.cache_bytes);
        let frames = bytes / page_bytes;
        let frames =
            u32::try_from(frames)
                .ok()
                .filter(|&frames| frames > 0 && frames < u32::MAX)
                .ok_or(cache::SettingsError::CacheBytes { bytes, page_bytes: self.page_bytes })?;
        if self.request_bytes_max < self.page_bytes {
            let (bytes, page_bytes) = (self.request_bytes_max, self.page_bytes);
            return Err(cache::SettingsError::RequestBytes { bytes, page_bytes }.into());
        }
        let mut core = cache::Settings::new(frames, &self.policy, &self.readahead);
        core.page_bytes = self.page_bytes;
        core.request_pages_max = self.request_bytes_max / self.page_bytes;
        let ahead = u32::try_from(self.ahead_bytes_max / page_bytes).unwrap_or(u32::MAX);
        core.ahead_pages_max = ahead.min(frames - frames / 8);
        core.waiters_max = self.waiters_max;
        // One more for the cache itself, which makes durable at its end what handles left.
        core.handles_max = self.handles_max.saturating_add(u32::from(self.handles_max > 0));
        core.files_max = self.files_max;
        core.wait_max = Nanos::from(self.wait_max);
        let dirty = u32::try_from(self.dirty_bytes_max / page_bytes).unwrap_or(u32::MAX);
        core.dirty_pages_max = dirty.min((frames / 2).max(1));
        core.dirty_age_max = Nanos::from(self.dirty_age_max);
        core.retry_delay = Nanos::from(self.retry_delay);
        core.explain = self.windows_max > 0;
        core.device = self.device;
        core.remembered = self.remembered;
        let pages = |bytes: u64| u32::try_from(bytes / page_bytes).unwrap_or(u32::MAX);
        core.pool_low = pages(self.pool_bytes_min);
        core.pool_high = pages(self.pool_bytes_max);
        core.sizing = self.sizing;
        let parts = self.partitions.iter().map(|part| part.core(pages));
        core.partitions.extend(parts);
        let shares = core.partitions[1..].iter().map(|part| u64::from(part.frames)).sum::<u64>();
        let rest = u64::from(frames).checked_sub(shares);
        let rest = rest.ok_or(cache::SettingsError::Shares { shares, frames })?;
        let given = &mut core.partitions[0];
        given.frames = u32::try_from(rest).expect("at most all frames");
        given.frames_min = pages(self.rest_bytes_min);
        Ok(core)
    }

    /// Refuses bounds of the engine's own that are 0.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let bounds = [
            ("background_depth", self.background_depth),
            ("background_depth_max", self.background_depth_max),
            ("congested_requests", self.congested_requests),
            ("demand_queues_max", self.demand_queues_max),
            ("readers_max", self.readers_max),
        ];
        // Times of 0 would make the watch and the flusher spin.
        let above_zero = |time: Duration| u32::from(time > Duration::ZERO);
        let times = [
            ("version_interval", above_zero(self.version_interval)),
            ("dirty_age_max", above_zero(self.dirty_age_max)),
            ("retry_delay", above_zero(self.retry_delay)),
        ];
        let zero = bounds.iter().chain(&times).find(|bound| bound.1 == 0);
        zero.map_or(Ok(()), |&(name, _)| Err(cache::SettingsError::Zero(name).into()))
    }
}

/// `nr_requests` of a Linux block queue by default; it counts as congested from 7/8 of it on
/// (Linux 2.6.22 `block/ll_rw_blk.c`: `blk_queue_congestion_threshold`).
const REQUESTS_OF_A_KERNEL: u32 = 128;

/// The largest page. A tally of the hit buffer counts many of them (`hits.rs`).
const PAGE_BYTES_MAX: u32 = 16 << 20;

#[cfg(test)]
mod tests {
    use forerun_core::cache::Rule;

    use super::*;

    #[test]
    fn the_core_gets_whole_pages_within_the_bounds() {
        let settings = Settings { cache_bytes: (1 << 20) + 4095, ..Settings::default() };
        let core = settings.core().unwrap();
        assert_eq!((core.frames, core.request_pages_max, core.ahead_pages_max), (256, 256, 224));
        let settings = Settings { ahead_bytes_max: 40_000, ..settings };
        assert_eq!(settings.core().unwrap().ahead_pages_max, 9);
    }

    #[test]
    fn the_defaults_fit_any_memory_and_any_page() {
        for (cache_bytes, page_bytes) in [(4 << 10, 4 << 10), (512, 512), (1 << 30, 2 << 20)] {
            let settings = Settings { cache_bytes, page_bytes, ..Settings::default() };
            let settings = Settings { request_bytes_max: 2 << 20, ..settings };
            assert!(crate::Cache::new(settings).is_ok(), "{cache_bytes} {page_bytes}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused_in_one_line() {
        let default = Settings::default;
        let zero = Duration::ZERO;
        let part = |bytes| Partition::new("log", bytes, Rule::Offsets(0..1));
        let parts = |bytes| vec![part(bytes)];
        let linux = || Settings { readahead: "linux-6".into(), ..default() };
        #[rustfmt::skip]
        let rows = [
            ("no page", Settings { cache_bytes: 4095, ..default() }, "a cache of 4095 bytes"),
            ("too many", Settings { cache_bytes: u64::MAX, ..default() }, "a cache of 1844"),
            ("odd page", Settings { page_bytes: 1000, ..default() }, "a page of 1000 bytes"),
            ("huge page", Settings { page_bytes: 32 << 20, ..default() }, "a page of 33554432"),
            ("no page size", Settings { page_bytes: 0, ..default() }, "a page of 0 bytes"),
            ("small request", Settings { request_bytes_max: 4095, ..default() }, "requests of"),
            ("no depth", Settings { background_depth: 0, ..default() }, "background_depth is 0"),
            ("none at most", Settings { background_depth_max: 0, ..default() }, "background_d"),
            ("no bound", Settings { congested_requests: 0, ..default() }, "congested_requests"),
            ("no queue", Settings { demand_queues_max: 0, ..default() }, "demand_queues_max is"),
            ("no reader", Settings { readers_max: 0, ..default() }, "readers_max is 0"),
            ("no interval", Settings { version_interval: zero, ..default() }, "version_interval"),
            ("no age", Settings { dirty_age_max: zero, ..default() }, "dirty_age_max is 0"),
            ("no delay", Settings { retry_delay: zero, ..default() }, "retry_delay is 0"),
            ("no waiter", Settings { waiters_max: 0, ..default() }, "waiters_max is 0"),
            ("no handle", Settings { handles_max: 0, ..default() }, "handles_max is 0"),
            ("no file", Settings { files_max: 0, ..default() }, "files_max is 0"),
            ("window", Settings { cache_bytes: 4096, ..linux() }, "a cache of 1 pages is"),
            ("partitions", Settings { partitions: parts(65 << 20), ..default() }, "the partitions"),
            ("twice", Settings { partitions: vec![part(0), part(0)], ..default() }, "two partit"),
            ("policy", Settings { policy: "none".into(), ..default() }, "no `none`; there are"),
            ("readahead", Settings { readahead: "off:a=1".into(), ..default() }, "no parameter"),
        ];
        for (why, settings, text) in rows {
            let error = crate::Cache::new(settings).err().expect(why).to_string();
            assert!(error.starts_with(text) && !error.contains('\n'), "{why}: {error}");
        }
    }
}
