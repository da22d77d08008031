//! What the kernel's page cache holds of a request, where the kernel tells.
//!
//! # Invariants
//! - Nothing here waits for a page, and a probe fetches one at most.

use std::ops::Range;

use forerun_core::planner::{PAGE_BYTES, RequestState};
use forerun_core::units::Nanos;

use super::workers::{Part, Source};
use crate::kernel::{self, Residency};

/// How many pages of `range`, which is about to be requested, are cached, where the kernel tells.
pub(super) fn cached_pages(source: &Source, range: &Range<u64>) -> Option<u64> {
    match kernel::cached(&source.file, range) {
        Ok(Residency::Pages(count)) => Some(count),
        Ok(Residency::Unknown) => None,
        Err(_) => Some(0),
    }
}

/// What has become of the request of `range`, which was made a time ago.
pub(super) fn state(source: &Source, range: &Range<u64>, waited: Nanos) -> RequestState {
    let Some(Part { bytes, end }) = source.part(range) else { return RequestState::Absent };
    let state = match bytes {
        0 => RequestState::Shortened { bytes },
        _ if !has_arrived(source, end, waited) => return RequestState::Absent,
        _ if bytes == range.end - range.start => RequestState::Arrived,
        _ => RequestState::Shortened { bytes },
    };
    source.forget(range);
    state
}

/// Whether the last page before `end`, which was requested a time ago, has its bytes.
fn has_arrived(source: &Source, end: u64, waited: Nanos) -> bool {
    assert!(end > 0, "a request has bytes");
    if source.is_closed() {
        return false; // Nothing is told of it any more.
    }
    match kernel::absent(&source.file, &(end.saturating_sub(PAGE_BYTES)..end)) {
        Ok(Some(absent)) => absent.is_empty(),
        Ok(None) => source.is_ready(end).unwrap_or(waited >= ARRIVES_AFTER),
        Err(_) => waited >= ARRIVES_AFTER,
    }
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
    use crate::kernel::Devices;
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
        let device = kernel::stat(&file).unwrap().st_dev;
        if !kernel::written_parts(&file, &(written..all), Devices::default().facts(device))
            .is_empty()
        {
            return skip(TEST, "a file system that tells extents that were never written");
        }
        let (source, mut workers) =
            (Arc::new(Source::new(file, device, 128 << 10)), Workers::new(ThreadRoom::here()));
        let mut fetch = |range: Range<u64>| {
            let mut found = RequestState::Absent;
            workers.push(Job {
                source: Arc::clone(&source),
                range: range.clone(),
                knows_cached: true,
            });
            until(|| {
                found = state(&source, &range, Nanos(0));
                found != RequestState::Absent
            });
            assert_eq!(source.part(&range), None, "what was taken in is forgotten");
            found
        };
        assert_eq!(fetch(0..32 * PAGE_BYTES), RequestState::Arrived);
        let bytes = 32 * PAGE_BYTES;
        assert_eq!(fetch(32 * PAGE_BYTES..128 * PAGE_BYTES), RequestState::Shortened { bytes });
        assert_eq!(fetch(128 * PAGE_BYTES..all), RequestState::Shortened { bytes: 0 });
        assert_eq!(kernel::cached(&source.file, &(written..all)).unwrap(), Residency::Pages(0));
        assert_eq!(kernel::cached(&source.file, &(0..written)).unwrap(), Residency::Pages(64));
    }
}
