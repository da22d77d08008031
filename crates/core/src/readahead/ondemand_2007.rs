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

use super::handles::Handles;
use super::window::{self, Limit};
use super::{Cause, Decision, Demand, Named, Readahead, Trigger, Window};
use crate::units::{FileId, HandleId};

/// See the module.
pub struct Ondemand2007 {
    max: u32,
    page_bytes: u32,
    last: Handles<Option<Window>>,
}

impl Named for Ondemand2007 {
    const NAME: &'static str = "ondemand-2007";
    type Params = Limit;

    fn new(params: Limit, page_bytes: u32) -> Self {
        let max = window::pages(params.max, page_bytes);
        Self { max, page_bytes, last: Handles::default() }
    }
}

impl Readahead for Ondemand2007 {
    fn window_pages_max(&self) -> u32 {
        self.max
    }

    fn open(&mut self, handle: HandleId, _: FileId) {
        self.last.forget(handle);
    }

    fn decide(&mut self, demand: &Demand) -> Option<Decision> {
        let cause = match demand.trigger {
            Trigger::Request => return None,
            Trigger::Miss => Cause::Sync,
            Trigger::Marker => Cause::Async,
        };
        let last = self.last.of(demand.handle);
        let window = if let Some(next) = window::following(*last, demand.first, self.max) {
            next
        } else if cause == Cause::Async {
            let small = window::opening(demand.first, demand.count, self.max);
            let size = small.size.saturating_mul(4).min(self.max);
            Window { start: demand.first + 1, size, async_size: small.async_size }
        } else if window::is_sequential(demand, self.max, self.page_bytes) {
            window::opening(demand.first, demand.count, self.max)
        } else {
            return Some(window::as_asked(demand));
        };
        *last = Some(window);
        Some(Decision::new(cause, window))
    }
}
