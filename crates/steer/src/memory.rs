//! How many bytes may be read ahead now, so that nobody loses what he uses.
//!
//! ```text
//!   machine   MemAvailable                               what it could give without swapping
//!   group     limit - usage + file pages not in use      its own, and each one it lies in
//!                 least of all  x  share by pressure  =  to use
//! ```
//!
//! Whoever reads a page is charged for it, so the groups of this process bound what it reads, for
//! itself or for a program that it started. A group that has read a lot is always full: its file
//! pages that nobody came back to are room. Of those in use (the active ones) the kernel gives up
//! at most half while there are others, so half of them counts.
//!
//! # Invariants
//! - What cannot be read or understood is no information, never a limit and never an error.
//! - No answer depends on what was answered before.
//! # Sources
//! Linux `Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/memory.rst`,
//! `Documentation/accounting/psi.rst`; `mm/show_mem.c` (`si_mem_available`).

mod groups;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use groups::{Group, Version};

/// Where the limits of this process are told.
#[derive(Debug)]
pub struct Memory {
    /// `/`, but for tests.
    root: PathBuf,
    /// Its own group and each one around it.
    groups: Vec<Group>,
}

/// What there was of memory at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// What can be cached without taking from anybody; none where nothing was told.
    pub free_bytes: Option<u64>,
    /// What allows no more.
    pub bound: Bound,
    /// How long somebody waited for memory in the last ten seconds, in hundredths of a percent:
    /// on the machine or in the group, whichever is worse.
    pub pressure: u32,
}

/// What sets the room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The memory of the machine.
    Machine,
    /// The limit of the control group in this folder.
    Group(PathBuf),
}

impl Memory {
    /// That of this process. A process that is moved to another group later is not followed.
    #[must_use]
    pub fn here() -> Self {
        Self::below(Path::new("/"))
    }

    /// That of a process whose `/` is `root`.
    pub(crate) fn below(root: &Path) -> Self {
        let told = |path| fs::read_to_string(root.join(path)).unwrap_or_default();
        let groups = groups::of(root, &told("proc/self/cgroup"), &told("proc/self/mountinfo"));
        Self { root: root.to_owned(), groups }
    }

    /// What there is now: a few files of `/proc` and `/sys` are read.
    #[must_use]
    pub fn room(&self) -> Room {
        let told = |path: &Path| fs::read_to_string(path).ok();
        let machine = told(&self.root.join("proc/meminfo"));
        let mut free_bytes = machine.and_then(|text| text::available(&text));
        let mut bound = Bound::Machine;
        let waited = told(&self.root.join("proc/pressure/memory"));
        let mut pressure = waited.and_then(|text| text::pressure(&text)).unwrap_or(0);
        for group in &self.groups {
            if let Some(bytes) = group.free_bytes()
                && free_bytes.is_none_or(|least| bytes < least)
            {
                free_bytes = Some(bytes);
                bound = Bound::Group(group.folder.clone());
            }
        }
        // That of the groups around it is told by their own pressure; the nearest is the worst.
        let nearest = self.groups.iter().find(|group| group.version == Version::Two);
        let waited = nearest.and_then(|group| told(&group.folder.join("memory.pressure")));
        pressure = pressure.max(waited.and_then(|text| text::pressure(&text)).unwrap_or(0));
        Room { free_bytes, bound, pressure }
    }
}

impl Room {
    /// The bytes that may be ahead: all that is free while nobody waits for memory, nothing where
    /// everybody does, in proportion between.
    #[must_use]
    pub fn bytes_to_use(&self) -> u64 {
        let free = self.free_bytes.unwrap_or(UNTOLD_BYTES);
        let left = PRESSURE_NONE_LEFT.saturating_sub(self.pressure.max(PRESSURE_OF_NO_MATTER));
        let span = PRESSURE_NONE_LEFT - PRESSURE_OF_NO_MATTER;
        let share = u128::from(free) * u128::from(left) / u128::from(span);
        u64::try_from(share).expect("a part of what is free")
    }
}

/// What is taken to be free where nothing is told.
const UNTOLD_BYTES: u64 = 64 << 20;
/// Up to 1 % of the time somebody always waits.
const PRESSURE_OF_NO_MATTER: u32 = 100;
/// At 20 % a machine swaps, or reads its programs again and again.
const PRESSURE_NONE_LEFT: u32 = 2_000;

#[cfg(test)]
mod tests;
