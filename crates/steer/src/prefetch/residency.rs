//! What the kernel's page cache holds of a request, where the kernel tells.
//!
//! # Invariants
//! - Nothing here waits for a page, and a probe fetches one at most.

use std::ops::Range;

use forerun_core::planner::PAGE_BYTES;
use forerun_core::units::Nanos;

use super::workers::Source;
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

/// Whether the last page before `end`, which was requested a time ago, has its bytes.
pub(super) fn has_arrived(source: &Source, end: u64, waited: Nanos) -> bool {
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

/// Whether the page before `end` can be read without waiting, where the file system tells.
fn is_ready(source: &Source, end: u64) -> Option<bool> {
    source.probe()?.is_ready(end)
}

/// Where the kernel does not tell what has arrived.
const ARRIVES_AFTER: Nanos = Nanos::from_millis(100);
