//! What a cache is made of: plain values, each a bound or a name.
//!
//! Nothing here is read from the environment. Every table of the cache is bounded by one of these
//! fields, and a combination that cannot work is refused before anything is built.

use alloc::{string::String, vec, vec::Vec};
use core::fmt;

use super::{Rule, Sizing};
use crate::device::{estimate::DeviceProfile, remembered::DeviceRecord};
use crate::params::{ParamError, nearest};
use crate::units::{Nanos, PartitionId};

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
    /// The low mark of the pool: where a partition has fewer frames free than this, an event that
    /// is no request's evicts pages of it. 0: pages leave by misses alone.
    pub pool_low: u32,
    /// The high mark of the pool: how many frames of a partition an eviction leaves free, beyond
    /// what it is for.
    pub pool_high: u32,
    /// Whether shares change by themselves.
    pub sizing: Sizing,
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
    /// What an earlier run learnt of the device: used until this one has learnt as much, or has
    /// found it wrong twice.
    pub remembered: Option<DeviceRecord>,
}

/// One partition's share, policies and rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionSettings {
    /// Its name in reports.
    pub name: String,
    /// Frames that it may hold at first; 0: none, until it grows.
    pub frames: u32,
    /// Frames that sizing leaves to it at least, beside a window of its readahead.
    pub frames_min: u32,
    /// Its replacement policy, as `NAME:key=value,..`.
    pub policy: String,
    /// Its readahead policy, as `NAME:key=value,..`; `None`: that of the cache.
    pub readahead: Option<String>,
    /// What it takes.
    pub rule: Rule,
}

impl PartitionSettings {
    /// A partition that takes what no rule of another one does.
    #[must_use]
    pub fn new(name: &str, frames: u32, policy: &str) -> Self {
        let (name, policy) = (name.into(), policy.into());
        Self { name, frames, frames_min: 0, policy, readahead: None, rule: Rule::Rest }
    }
}

impl Settings {
    /// One partition of `frames` frames, the other bounds in proportion to it.
    #[must_use]
    pub fn new(frames: u32, policy: &str, readahead: &str) -> Self {
        Self {
            page_bytes: 4096,
            frames,
            partitions: vec![PartitionSettings::new(REST, frames, policy)],
            readahead: readahead.into(),
            request_pages_max: 256,
            ahead_pages_max: frames - frames / 8,
            pool_low: 0,
            pool_high: 0,
            sizing: Sizing::Manual,
            waiters_max: 1 << 20,
            handles_max: 1 << 16,
            files_max: 1 << 16,
            dirty_pages_max: (frames / 4).max(1),
            dirty_age_max: Nanos::from_millis(30_000),
            retry_delay: Nanos::from_millis(100),
            wait_max: Nanos::from_millis(10_000),
            explain: false,
            device: None,
            remembered: None,
        }
    }

    /// Refuses what cannot work; `window` gives the largest window of a partition's readahead
    /// policy, in pages.
    pub(super) fn check(&self, window: impl Fn(u32) -> u32) -> Result<(), SettingsError> {
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
        self.check_names()?;
        let rest = self.rest().ok_or(SettingsError::NoRest)?;
        for (at, partition) in (0..).zip(&self.partitions) {
            let (frames, window) = (partition.frames, window(at));
            if frames < window && (frames > 0 || at as usize == rest) {
                return Err(SettingsError::Window { frames, window });
            }
        }
        Ok(())
    }

    /// Refuses names that a report cannot tell apart.
    fn check_names(&self) -> Result<(), SettingsError> {
        for (at, PartitionSettings { name, .. }) in self.partitions.iter().enumerate() {
            let plain = |letter: char| !letter.is_control() && !letter.is_whitespace();
            if name.is_empty() || !name.chars().all(plain) {
                return Err(SettingsError::Name { name: name.clone() });
            }
            if self.partitions[..at].iter().any(|other| other.name == *name) {
                return Err(SettingsError::Twice { name: name.clone() });
            }
        }
        Ok(())
    }

    /// The number of the partition `name`.
    ///
    /// # Errors
    /// There is none.
    pub fn partition_named(&self, name: &str) -> Result<PartitionId, SettingsError> {
        let at = self.partitions.iter().position(|row| row.name == name);
        let at = at.and_then(|at| u32::try_from(at).ok());
        at.map(PartitionId).ok_or_else(|| SettingsError::NoPartition {
            name: name.into(),
            known: self.partitions.iter().map(|row| row.name.clone()).collect(),
        })
    }
}

/// The name of the partition that takes what no rule does.
pub const REST: &str = "rest";

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
    /// A partition's name is empty, or has blanks.
    Name {
        /// The name.
        name: String,
    },
    /// Two partitions have one name.
    Twice {
        /// The name.
        name: String,
    },
    /// There is no partition of this name.
    NoPartition {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// Every partition has a rule: there is none for what no rule takes.
    NoRest,
    /// A partition gives away more frames than it has.
    Move {
        /// Its frames.
        frames: u32,
        /// What it should give.
        wanted: u32,
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
            Self::Name { name } => {
                write!(
                    f,
                    "a partition named `{}`: a name has letters, and no blanks",
                    name.escape_debug()
                )
            }
            Self::Twice { name } if name == REST => {
                write!(f, "`{REST}` is the partition of what no rule takes: take another name")
            }
            Self::Twice { name } => write!(f, "two partitions are named `{name}`"),
            Self::NoPartition { name, known } => {
                write!(
                    f,
                    "no partition `{}`; there are: {}",
                    name.escape_debug(),
                    known.join(" ")
                )?;
                nearest(name, known).map_or(Ok(()), |one| write!(f, "; the nearest is `{one}`"))
            }
            Self::NoRest => {
                write!(f, "every partition has a rule: one without is needed for all other pages")
            }
            Self::Move { frames, wanted } => {
                write!(f, "a partition of {frames} pages cannot give {wanted}")
            }
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

/// Why a handle cannot be opened; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// As many handles are open as [`Settings::handles_max`] allows.
    Handles {
        /// The bound.
        bound: u32,
    },
    /// As many files are known as [`Settings::files_max`] allows.
    Files {
        /// The bound.
        bound: u32,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handles { bound } => write!(f, "too many handles: at most {bound} may be open"),
            Self::Files { bound } => write!(f, "too many files: at most {bound} are known at once"),
        }
    }
}

impl core::error::Error for OpenError {}
