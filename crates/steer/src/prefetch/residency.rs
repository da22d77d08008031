//! What the kernel's page cache holds of a request, where the kernel tells.
//!
//! # Invariants
//! - Nothing here waits for a page, and a probe fetches one at most.

use std::ops::Range;

use forerun_core::planner::{PAGE_BYTES, RequestState};
use forerun_core::units::Nanos;

use super::workers::{Fetched, Source};
use crate::kernel::{self, Residency};

/// How many pages of `range`, which is about to be requested, are cached, as far as is known.
pub(super) fn cached_pages(source: &Source, range: &Range<u64>) -> u64 {
    match kernel::cached(&source.file, range) {
        Ok(Residency::Pages(count)) => count,
        // Where the last page is, all is.
        Ok(Residency::Unknown) if is_ready(source, range.end) == Some(true) => kernel::pages(range),
        Ok(Residency::Unknown) | Err(_) => 0,
    }
}

/// What has become of the request that ends at `end` and was made a time ago. One that was
/// shortened tells nothing of its device.
pub(super) fn state(source: &Source, end: u64, waited: Nanos) -> RequestState {
    match source.fetched_of(end) {
        Fetched::All if has_arrived(source, end, waited) => RequestState::Arrived,
        Fetched::UpTo(end) if has_arrived(source, end, waited) => RequestState::Cached,
        Fetched::All | Fetched::UpTo(_) => RequestState::Absent,
        Fetched::Nothing => RequestState::Cached,
    }
}

/// Whether the last page before `end`, which was requested a time ago, has its bytes.
fn has_arrived(source: &Source, end: u64, waited: Nanos) -> bool {
    assert!(end > 0, "a request has bytes");
    if source.is_closed() {
        return false; // Nothing is told of it any more.
    }
    match kernel::absent(&source.file, &(end.saturating_sub(PAGE_BYTES)..end)) {
        Ok(Some(absent)) => absent.is_empty(),
        Ok(None) => is_ready(source, end).unwrap_or(waited >= ARRIVES_AFTER),
        Err(_) => waited >= ARRIVES_AFTER,
    }
}

/// Whether the page before `end` can be read without waiting, where the file system tells. One that
/// was never written can, and a probe would have it in memory.
fn is_ready(source: &Source, end: u64) -> Option<bool> {
    if kernel::written_parts(&source.file, &(end.saturating_sub(1)..end)).is_empty() {
        return Some(true);
    }
    source.probe()?.is_ready(end)
}

/// Where the kernel does not tell what has arrived.
const ARRIVES_AFTER: Nanos = Nanos::from_millis(100);

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::sync::Arc;

    use forerun_testkit::{Scratch, drop_from_cache, skip, until};
    use rustix::fs::{FallocateFlags, fallocate};

    use super::super::workers::{Job, Workers};
    use super::*;
    use crate::tasks::ThreadRoom;

    #[test]
    fn what_was_never_written_is_not_fetched_and_not_waited_for() {
        const TEST: &str = "what_was_never_written_is_not_fetched_and_not_waited_for";
        let scratch = Scratch::on_disk("shortened");
        let file = File::create_new(scratch.join("data")).unwrap();
        let (written, all) = (64 * PAGE_BYTES, 256 * PAGE_BYTES);
        file.write_all_at(&vec![1; usize::try_from(written).unwrap()], 0).unwrap();
        if fallocate(&file, FallocateFlags::empty(), 0, all).is_err() {
            return skip(TEST, "a file system with fallocate");
        }
        drop_from_cache(&file);
        let file = File::open(scratch.join("data")).unwrap();
        if !kernel::written_parts(&file, &(written..all)).is_empty() {
            return skip(TEST, "a file system that tells extents that were never written");
        }
        let (source, mut workers) =
            (Arc::new(Source::new(file, 128 << 10)), Workers::new(ThreadRoom::here()));
        let mut fetch = |range: Range<u64>| {
            workers.push(Job { source: Arc::clone(&source), range: range.clone() });
            until(|| state(&source, range.end, Nanos(0)) != RequestState::Absent);
            state(&source, range.end, Nanos(0))
        };
        assert_eq!(fetch(0..32 * PAGE_BYTES), RequestState::Arrived);
        assert_eq!(fetch(32 * PAGE_BYTES..128 * PAGE_BYTES), RequestState::Cached);
        assert_eq!(fetch(128 * PAGE_BYTES..all), RequestState::Cached);
        assert_eq!(kernel::cached(&source.file, &(written..all)).unwrap(), Residency::Pages(0));
        assert_eq!(kernel::cached(&source.file, &(0..written)).unwrap(), Residency::Pages(64));
    }
}
