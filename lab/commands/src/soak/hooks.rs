//! What is asked of the cache beside reads: to read ahead, to hold a page, to change its size.
//!
//! # Invariants
//! - What a pin shows is verified here, as a read is by the worker.

use std::ops::Range;

use anyhow::{Result, anyhow};
use forerun_engine::{Cache, Handle};
use forerun_io::store::pattern;

/// Asks for `range` before it is needed.
pub(super) fn prefetch(handle: &Handle, range: Range<u64>) -> Result<()> {
    Ok(handle.prefetch(range)?)
}

/// Holds the page at `offset`, and verifies the rest of it.
pub(super) fn pin(handle: &Handle, offset: u64) -> Result<()> {
    let page = handle.pin(offset)?;
    pattern::verify(offset, &page).map_err(|at| anyhow!("a pinned page is wrong at byte {at:?}"))
}

/// Gives the cache `bytes` of memory.
pub(super) fn resize(cache: &Cache, bytes: u64) -> Result<()> {
    Ok(cache.resize(bytes)?)
}
