//! How many bytes may be prefetched now, so that no program loses pages in use.
//!
//! ```text
//!   machine   MemAvailable                               what it could give without swapping
//!   group     limit - usage + file pages not in use      its own, and each one it lies in
//!                 least of all  x  share by pressure  =  to use
//! ```
//!
//! A page is charged to the group of the process that reads it, so the groups of this process bound
//! what it reads, for itself or for a program that it started. A group that has read a lot is
//! always full: its inactive file pages are room. Of the active ones the kernel reclaims at most
//! half while there are others, so half of them counts.
//!
//! # Invariants
//! - What cannot be read or parsed is unknown, never a limit and never an error.
//! - No answer depends on an earlier one.
//! # Sources
//! Linux `Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/memory.rst`,
//! `Documentation/accounting/psi.rst`; `mm/show_mem.c` (`si_mem_available`).

pub(crate) mod groups;
pub(crate) mod text;

use std::fs;
use std::path::{Path, PathBuf};

use groups::{Group, Version};

/// The memory limits of this process.
#[derive(Debug)]
pub struct Memory {
    /// `/`, but for tests.
    root: PathBuf,
    /// Its own group and each one around it.
    groups: Vec<Group>,
}

/// The free memory at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// What can be cached without reclaiming pages in use; `None` where unknown.
    pub free_bytes: Option<u64>,
    /// What sets that limit.
    pub bound: Bound,
    /// The time in which some task waited for memory in the last ten seconds, in hundredths of a
    /// percent: on the machine or in the group, whichever is worse.
    pub pressure: u32,
}

/// What limits the free memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The memory of the machine.
    Machine,
    /// The limit of the control group in this folder.
    Group(PathBuf),
}

impl Memory {
    /// The limits of this process, in the groups that it is in now.
    #[must_use]
    pub fn here() -> Self {
        Self::below(Path::new("/"))
    }

    /// The limits of a process whose `/` is `root`.
    pub(crate) fn below(root: &Path) -> Self {
        Self { root: root.to_owned(), groups: groups::of_own(root, "memory") }
    }

    /// The tightest limit of its groups, if they have any.
    pub(crate) fn group_limit_bytes(&self) -> Option<u64> {
        self.groups.iter().filter_map(Group::limit_bytes).min()
    }

    /// The free memory of the tightest of its groups now, where any has a limit.
    pub(crate) fn group_free_bytes(&self) -> Option<u64> {
        self.groups.iter().filter_map(Group::free_bytes).min()
    }

    /// The free memory now: a few files of `/proc` and `/sys` are read.
    #[must_use]
    pub fn room(&self) -> Room {
        let read = |path: &Path| fs::read_to_string(path).ok();
        let machine = read(&self.root.join("proc/meminfo"));
        let mut free_bytes = machine.and_then(|text| text::available(&text));
        let mut bound = Bound::Machine;
        let waited = read(&self.root.join("proc/pressure/memory"));
        let mut pressure = waited.and_then(|text| text::pressure(&text)).unwrap_or(0);
        for group in &self.groups {
            if let Some(bytes) = group.free_bytes()
                && free_bytes.is_none_or(|least| bytes < least)
            {
                free_bytes = Some(bytes);
                bound = Bound::Group(group.folder.clone());
            }
        }
        // The groups around it have pressures of their own; that of the nearest is the worst.
        let nearest = self.groups.iter().find(|group| group.version == Version::Two);
        let waited = nearest.and_then(|group| read(&group.folder.join("memory.pressure")));
        pressure = pressure.max(waited.and_then(|text| text::pressure(&text)).unwrap_or(0));
        Room { free_bytes, bound, pressure }
    }
}

impl Room {
    /// The bytes that may be prefetched: all that is free while no task waits for memory, nothing
    /// at the pressure limit, in proportion between.
    #[must_use]
    pub fn bytes_to_use(&self) -> u64 {
        let free = self.free_bytes.unwrap_or(UNKNOWN_BYTES);
        let left = PRESSURE_MAX.saturating_sub(self.pressure.max(PRESSURE_MIN));
        let span = PRESSURE_MAX - PRESSURE_MIN;
        assert!(left <= span, "no more than all is free");
        let share = u128::from(free) * u128::from(left) / u128::from(span);
        assert!(share <= u128::from(free), "a part of what is free");
        u64::try_from(share).expect("no more than that")
    }
}

/// Counts as free where that is unknown.
const UNKNOWN_BYTES: u64 = 64 << 20;
/// Up to 1 % of the time some task always waits.
const PRESSURE_MIN: u32 = 100;
/// At 20 % a machine swaps, or reads its programs again and again.
const PRESSURE_MAX: u32 = 2_000;

const _: () = assert!(PRESSURE_MIN < PRESSURE_MAX);

#[cfg(test)]
mod tests;
