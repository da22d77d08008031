//! On-demand readahead as first posted: one window a handle, driven by misses and markers alone.
//!
//! | demand | window |
//! |---|---|
//! | at the marker or the end of the last window | the next one, larger, all of it ahead |
//! | a miss that does not follow the previous read | as asked; the last window is kept |
//! | a miss that does, or asks for more than `max` | a first window |
//! | a marker of another window | from the page after it, four times a first window |
//!
//! The last row is where it differs from what Linux 2.6.24 shipped: a lost window is not recovered
//! from the cache but guessed. The guess starts on pages that are mostly there already, so what it
//! fetches is less than its size, and its tail keeps the length that belongs to the smaller window.
//!
//! # Invariants
//! - `0 < size <= max`; the tail is never empty except where pages are read just as asked.
//! # Sources
//! F. Wu, "[PATCH 5/9] readahead: on-demand readahead logic" (Linux kernel mailing list, 2007),
//! `ondemand_readahead`. Its read loop looks for a marker on a page that its own miss has just
//! fetched, too; so must the driver.

use super::ondemand::{LostWindow, Ondemand};
use super::{Cause, Demand, Window, window};

/// See the module.
pub type Ondemand2007 = Ondemand<FromRequest>;

/// The lost window is guessed from the request.
pub struct FromRequest;

impl LostWindow for FromRequest {
    const NAME: &'static str = "ondemand-2007";

    fn probes_after(_: u32) -> u32 {
        0
    }

    fn recovered(demand: &Demand, max: u32) -> Option<(Cause, Window)> {
        let small = window::opening(demand.first, demand.count, max);
        let size = small.size.saturating_mul(4).min(max);
        let window = Window { start: demand.first + 1, size, async_size: small.async_size };
        Some((Cause::Async, window))
    }
}
