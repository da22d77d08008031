//! Cache calls beside reads: prefetch, pin, resize.
//!
//! # Invariants
//! - The bytes of a pin are verified here; the worker verifies reads.

use std::ops::Range;

use anyhow::{Result, anyhow};
use forerun_engine::{Cache, Handle};
use forerun_io::store::pattern;

/// Prefetches `range`.
pub(super) fn prefetch(handle: &Handle, range: Range<u64>) -> Result<()> {
    Ok(handle.prefetch(range)?)
}

/// Pins the page at `offset`, and verifies the rest of it.
pub(super) fn pin(handle: &Handle, offset: u64) -> Result<()> {
    let page = handle.pin(offset)?;
    pattern::verify(offset, &page).map_err(|at| anyhow!("a pinned page is wrong at byte {at:?}"))
}

/// Resizes the cache to `bytes`.
pub(super) fn resize(cache: &Cache, bytes: u64) -> Result<()> {
    Ok(cache.resize(bytes)?)
}
