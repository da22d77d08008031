//! What this machine and this user's rights let forerun see.
//!
//! # Invariants
//! - Each is tried on this process, not guessed from a version.
//! # Sources
//! cachestat(2); Linux `Documentation/admin-guide/mm/pagemap.rst`,
//! `Documentation/admin-guide/LSM/Yama.rst`, `Documentation/admin-guide/cgroup-v2.rst`.

use std::fs::{self, File};

use rustix::param::page_size;

use crate::kernel;
use crate::observe::{may_attach, scans_pages};
use crate::quota::Share;
use crate::tasks::ThreadRoom;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// What is cached of a file that this user may read.
    pub cached: CachedPages,
    /// `PAGEMAP_SCAN`: which pages of a mapping a program uses, in one call.
    pub scans_pages: bool,
    /// The calls that a program's threads are blocked in, and their paths.
    pub sees_calls: bool,
    /// What control groups leave of one processor, in thousandths; at most all of it.
    pub processor: u64,
    /// Threads that may make requests within the limits of tasks; no more than [`THREADS_MAX`] are
    /// told.
    pub threads: usize,
}

/// More threads than requests are in flight for one program.
pub const THREADS_MAX: usize = 128;

/// What the kernel tells of cached pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedPages {
    /// `cachestat(2)` counts them in one call.
    Counted,
    /// `mincore(2)` tells of each.
    Told,
    /// Neither, to this user.
    Hidden,
}

/// What can be done here.
#[must_use]
pub fn abilities() -> Abilities {
    let own = File::open("/proc/self/exe").ok();
    let first = 0..page_size() as u64;
    let tells = |file: &File| kernel::absent(file, &first).is_ok_and(|absent| absent.is_some());
    let pages = File::open("/proc/self/pagemap").ok();
    let cached = match own {
        Some(file) if kernel::counts_cached(&file) => CachedPages::Counted,
        Some(file) if tells(&file) => CachedPages::Told,
        Some(_) | None => CachedPages::Hidden,
    };
    Abilities {
        cached,
        scans_pages: pages.as_ref().is_some_and(scans_pages),
        sees_calls: may_attach() && fs::read("/proc/self/syscall").is_ok(),
        processor: Share::own().thousandths(),
        threads: ThreadRoom::here().take(THREADS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_the_same_a_moment_later_and_own_pages_can_be_read() {
        // Other programs may begin and end tasks meanwhile.
        let now = || Abilities { threads: 0, ..abilities() };
        let can = now();
        assert_eq!(can, now());
        assert!((1..=1000).contains(&can.processor), "{can:?}");
        let own = File::open("/proc/self/exe").unwrap();
        let is_known =
            kernel::cached(&own, &(0..1)).is_ok_and(|it| it != kernel::Residency::Unknown);
        assert_eq!(is_known, can.cached != CachedPages::Hidden);
    }
}
