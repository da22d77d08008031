//! Linux 2.6.24: demand readahead, the algorithm of the paper. One window a handle, driven by
//! misses and markers; a window that was lost is recovered from the cache.
//!
//! ```text
//!   several streams on one handle: the handle remembers only the last one's window
//!
//!        marker                 hole
//!   ------#=====================+----------------+
//!         |<-- still cached --->|<-- the next -->|
//!         was the lost window's tail, which a steady stream makes as long as the window
//! ```
//!
//! | demand | window |
//! |---|---|
//! | at the marker or the end of the last window | the next one, larger, all of it ahead |
//! | a miss that does not follow the previous read | as asked; the last window is kept |
//! | a miss that does, or asks for more than `max` | a first window |
//! | another marker, less than `max` cached after it | from the hole, grown from what is cached |
//!
//! # Invariants
//! - `0 < size <= max`; the tail is never empty except where pages are read just as asked.
//! # Sources
//! Linux 2.6.24 `mm/readahead.c`, `ondemand_readahead`; Wu, Xi and Xu, "File prefetching algorithm
//! for concurrent streams" (Journal of Software, 2010). Where the two differ the code holds:
//! windows grow fourfold below `max / 16`, and the head of a file can only be recovered, never
//! pushed on. The marker of a first window that its reader takes whole is on its first page, and
//! fires at once. Two streams that alternate strictly are never adjacent, so without a window at
//! the head of the file they get none.

use super::ondemand::{LostWindow, Ondemand};
use super::{Cause, Demand, Window, window};

/// See the module.
pub type Linux2624 = Ondemand<FromCache>;

/// The lost window is recovered from the cache.
pub struct FromCache;

impl LostWindow for FromCache {
    const NAME: &'static str = "linux-2.6.24";

    fn probes_after(max: u32) -> u32 {
        max
    }

    /// The window after the cached run that begins at a marker; none if the run is longer than any
    /// window, since then another reader is ahead of this one.
    fn recovered(demand: &Demand, max: u32) -> Option<(Cause, Window)> {
        let cached = demand.cached_after.saturating_add(1);
        let size = window::next_size(cached, max);
        (cached <= max)
            .then(|| (Cause::Recovered, window::ahead(demand.first + u64::from(cached), size)))
    }
}
