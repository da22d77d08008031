//! What the kernel's page cache has of a file already, so that it is copied and not read again.
//!
//! ```text
//!   file   |....####....|............|....####....|       a few places are sampled
//!           ^            ^            ^            ^      when it is opened, then now and then
//!   an operation on a file of which any page was cached asks for its own range
//! ```
//!
//! A sample may miss what is cached; the device reads it then, and the bytes are the same.
//!
//! # Invariants
//! - A sample costs the same for any length: at most [`PLACES`] calls over [`PLACE_BYTES`] each.
//! - A file of which nothing was cached costs its operations no system call, but for one sample in
//!   [`OPS_A_SAMPLE`] of them.
//! # Sources
//! Linux `cachestat(2)` (6.5); without it nothing counts as cached.

#![expect(unsafe_code, reason = "a system call that no library wraps")]

use std::{
    fs::File,
    os::fd::AsRawFd,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

/// A sample of the kernel's page cache, for one file.
#[derive(Debug)]
pub(super) struct CachedSample {
    /// The last sample met cached pages.
    seen: AtomicBool,
    /// Operations since the file was opened.
    ops: AtomicU32,
}

impl CachedSample {
    pub(super) fn new() -> Self {
        Self { seen: AtomicBool::new(false), ops: AtomicU32::new(1) }
    }

    /// Counts an operation; whether a sample is due.
    pub(super) fn is_due(&self) -> bool {
        self.ops.fetch_add(1, Ordering::Relaxed).is_multiple_of(OPS_A_SAMPLE)
    }

    /// Samples a few places of `file`, which is `bytes` long.
    pub(super) fn sample(&self, file: &File, bytes: u64) {
        let step = (bytes / PLACES).max(PLACE_BYTES);
        let places = (0..PLACES).map(|place| place * step).take_while(|at| *at < bytes);
        let mut counts = places.map_while(|at| cached_pages(file, at, PLACE_BYTES));
        self.seen.store(counts.any(|cached| cached > 0), Ordering::Relaxed);
    }

    /// Whether all pages of the range are cached.
    pub(super) fn all_of(&self, file: &File, offset: u64, bytes: usize) -> bool {
        if !self.seen.load(Ordering::Relaxed) {
            return false;
        }
        let page = rustix::param::page_size() as u64;
        let Some(end) = offset.checked_add(bytes as u64) else { return false };
        let wanted = end.div_ceil(page) - offset / page;
        cached_pages(file, offset, bytes as u64).is_some_and(|cached| cached >= wanted)
    }
}

/// Pages of `file` from `offset` on that the kernel has cached; none if it does not say.
fn cached_pages(file: &File, offset: u64, bytes: u64) -> Option<u64> {
    /// The kernel's `struct cachestat_range`.
    #[repr(C)]
    struct Range {
        offset: u64,
        bytes: u64,
    }
    let range = Range { offset, bytes };
    // The kernel's `struct cachestat`: cached, dirty, in writeback, evicted, recently evicted.
    let mut counts = [0_u64; 5];
    // SAFETY: the kernel reads `range` and writes the five counters of `counts`; both have the
    // layout that it expects and live until the call returns.
    let failed = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, counts.as_mut_ptr(), 0)
    };
    (failed == 0).then_some(counts[0])
}

/// The call's number, the same on every architecture.
const CACHESTAT: libc::c_long = 451;
/// Places of a sample.
const PLACES: u64 = 16;
/// Bytes of each place.
const PLACE_BYTES: u64 = 64 << 10;
/// Operations between two samples.
const OPS_A_SAMPLE: u32 = 1024;
const _: () = assert!(PLACES > 0 && PLACE_BYTES > 0, "a sample has places");

#[cfg(test)]
mod tests {
    use forerun_testkit::ScratchFile;

    use super::*;

    #[test]
    fn a_sample_is_due_now_and_then() {
        let sample = CachedSample::new();
        let due = (0..3 * OPS_A_SAMPLE).filter(|_| sample.is_due()).count();
        assert_eq!(due, 3);
    }

    #[test]
    fn a_file_that_was_just_read_is_held_where_the_kernel_says_so() {
        let file = File::open(ScratchFile::holding("held", [7; 10_000])).unwrap();
        if cached_pages(&file, 0, 1).is_none() {
            return; // An older kernel: nothing is held, which every other test runs with.
        }
        let sample = CachedSample::new();
        assert!(!sample.all_of(&file, 0, 4096), "not looked at yet");
        sample.sample(&file, 10_000);
        assert!(sample.all_of(&file, 0, 10_000));
        assert!(sample.all_of(&file, 4_000, 200));
        assert!(!sample.all_of(&file, 8_192, 40_000), "there is no such page");
        sample.sample(&file, 0);
        assert!(!sample.all_of(&file, 0, 4096), "nothing was seen");
    }
}
