//! What a cache is made of: plain values, each a bound or a name.
//!
//! Nothing here is read from the environment. Every table of the cache is bounded by one of these
//! fields, and a combination that cannot work is refused before anything is built.

use alloc::{string::String, vec, vec::Vec};
use core::fmt;

use crate::device::estimate::DeviceProfile;
use crate::params::ParamError;
use crate::units::Nanos;

/// The values that a cache is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of a page; a power of two.
    pub page_bytes: u32,
    /// Frames there are, dense from 0. Partitions share them.
    pub frames: u32,
    /// The partitions, numbered by their place.
    pub partitions: Vec<PartitionSettings>,
    /// The readahead policy, as `NAME:key=value,..`.
    pub readahead: String,
    /// Pages of the device's largest request: longer fetches and writes are cut.
    pub request_pages_max: u32,
    /// Pages read ahead and not used yet, resident or in flight.
    pub ahead_pages_max: u32,
    /// Frames that an eviction frees beyond what it needs, so that the next miss finds some.
    pub reclaim_pages: u32,
    /// Pages that requests wait for, over all requests.
    pub waiters_max: u32,
    /// Handles open at once.
    pub handles_max: u32,
    /// Files known at once.
    pub files_max: u32,
    /// Pages dirty, being written, or written and not yet durable.
    pub dirty_pages_max: u32,
    /// How old a dirty page becomes before it is written and synced without a flush.
    pub dirty_age_max: Nanos,
    /// After a failure to write or to sync, the time to the next try; it doubles with each
    /// further failure, up to 64 times this.
    pub retry_delay: Nanos,
    /// How long a request waits for a frame when all are held.
    pub wait_max: Nanos,
    /// Whether readahead decisions are reported as actions.
    pub explain: bool,
    /// What the device can do, where that is known; else it is learnt as requests are made.
    pub device: Option<DeviceProfile>,
}

/// One partition's share and policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionSettings {
    /// Frames that it may hold.
    pub frames: u32,
    /// Its replacement policy, as `NAME:key=value,..`.
    pub policy: String,
}

impl Settings {
    /// One partition of `frames` frames, the other bounds in proportion to it.
    #[must_use]
    pub fn new(frames: u32, policy: &str, readahead: &str) -> Self {
        Self {
            page_bytes: 4096,
            frames,
            partitions: vec![PartitionSettings { frames, policy: policy.into() }],
            readahead: readahead.into(),
            request_pages_max: 256,
            ahead_pages_max: frames - frames / 8,
            reclaim_pages: 0,
            waiters_max: 1 << 20,
            handles_max: 1 << 16,
            files_max: 1 << 16,
            dirty_pages_max: (frames / 4).max(1),
            dirty_age_max: Nanos::from_millis(30_000),
            retry_delay: Nanos::from_millis(100),
            wait_max: Nanos::from_millis(10_000),
            explain: false,
            device: None,
        }
    }

    /// Refuses what cannot work; `window` is the readahead policy's largest, in pages.
    pub(super) fn check(&self, window: u32) -> Result<(), SettingsError> {
        if !self.page_bytes.is_power_of_two() || self.page_bytes < 512 {
            return Err(SettingsError::PageBytes(self.page_bytes));
        }
        let bounds = [
            ("frames", self.frames),
            ("request_pages_max", self.request_pages_max),
            ("waiters_max", self.waiters_max),
            ("handles_max", self.handles_max),
            ("files_max", self.files_max),
            ("dirty_pages_max", self.dirty_pages_max),
        ];
        if let Some(&(name, _)) = bounds.iter().find(|bound| bound.1 == 0) {
            return Err(SettingsError::Zero(name));
        }
        if self.partitions.is_empty() {
            return Err(SettingsError::Zero("partitions"));
        }
        let shares: u64 = self.partitions.iter().map(|p| u64::from(p.frames)).sum();
        if shares > u64::from(self.frames) {
            return Err(SettingsError::Shares { shares, frames: self.frames });
        }
        for partition in &self.partitions {
            if partition.frames < window {
                return Err(SettingsError::Window { frames: partition.frames, window });
            }
        }
        Ok(())
    }
}

/// Why a cache cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsError {
    /// A page must be a power of two of at least 512 bytes.
    PageBytes(u32),
    /// This bound must be at least 1.
    Zero(&'static str),
    /// The partitions want more frames than there are.
    Shares {
        /// The sum of their shares.
        shares: u64,
        /// Frames of the cache.
        frames: u32,
    },
    /// A partition is smaller than one readahead window.
    Window {
        /// Its frames.
        frames: u32,
        /// The policy's largest window, in pages.
        window: u32,
    },
    /// The pages do not make enough frames, or more than there are numbers for.
    CacheBytes {
        /// The cache.
        bytes: u64,
        /// The page.
        page_bytes: u32,
    },
    /// A request takes less than a page.
    RequestBytes {
        /// The largest request.
        bytes: u32,
        /// The page.
        page_bytes: u32,
    },
    /// A policy's name or parameter.
    Policy(ParamError),
}

impl From<ParamError> for SettingsError {
    fn from(error: ParamError) -> Self {
        Self::Policy(error)
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PageBytes(bytes) => {
                write!(f, "a page of {bytes} bytes: it must be a power of two of at least 512")
            }
            Self::Zero(name) => write!(f, "{name} is 0: it must be at least 1"),
            Self::Shares { shares, frames } => {
                write!(f, "the partitions want {shares} frames and there are {frames}")
            }
            Self::Window { frames, window } => write!(
                f,
                "a cache of {frames} pages is smaller than one readahead window of {window} \
                 pages: give it more, or the policy a smaller max"
            ),
            Self::CacheBytes { bytes, page_bytes } => write!(
                f,
                "a cache of {bytes} bytes in pages of {page_bytes}: from 1 to 2^32 - 2 pages are \
                 needed"
            ),
            Self::RequestBytes { bytes, page_bytes } => {
                write!(f, "requests of at most {bytes} bytes are less than a page of {page_bytes}")
            }
            Self::Policy(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SettingsError {}
