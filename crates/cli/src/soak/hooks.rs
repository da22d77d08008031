//! What is asked of the cache beside reads: to read ahead, to hold a page, to change its size.
//!
//! Each hook is one call of the engine. One that the engine does not have yet tells so, and is
//! then counted by nobody.
//!
//! # Invariants
//! - What a pin shows is verified here, as a read is by the worker.

use std::ops::Range;

use anyhow::Result;
use forerun_engine::{Cache, Handle};

/// Whether the engine could be asked.
pub(super) type Asked = Result<bool>;

/// Asks for `range` before it is needed.
pub(super) fn prefetch(handle: &Handle, range: Range<u64>) -> Asked {
    let _ = (handle, range);
    NOT_YET
}

/// Holds the page at `offset`, and verifies the rest of it.
pub(super) fn pin(handle: &Handle, offset: u64) -> Asked {
    let _ = (handle, offset);
    NOT_YET
}

/// Gives the cache `bytes` of memory.
pub(super) fn resize(cache: &Cache, bytes: u64) -> Asked {
    let _ = (cache, bytes);
    NOT_YET
}

const NOT_YET: Asked = Ok(false);
