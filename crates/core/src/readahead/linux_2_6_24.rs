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

use super::handles::Handles;
use super::window::{self, Limit};
use super::{Cause, Decision, Demand, Named, Probes, Readahead, Trigger, Window};
use crate::units::{FileId, HandleId};

/// See the module.
pub struct Linux2624 {
    max: u32,
    page_bytes: u32,
    last: Handles<Option<Window>>,
}

impl Named for Linux2624 {
    const NAME: &'static str = "linux-2.6.24";
    type Params = Limit;

    fn new(params: Limit, page_bytes: u32) -> Self {
        let max = window::pages(params.max, page_bytes);
        Self { max, page_bytes, last: Handles::default() }
    }
}

impl Readahead for Linux2624 {
    fn probes(&self) -> Probes {
        Probes { before: 0, after: self.max }
    }

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
        let (cause, window) = if let Some(next) = window::following(*last, demand.first, self.max) {
            (cause, next)
        } else if cause == Cause::Async {
            (Cause::Recovered, recovered(demand, self.max)?)
        } else if window::is_sequential(demand, self.max, self.page_bytes) {
            (cause, window::opening(demand.first, demand.count, self.max))
        } else {
            return Some(window::as_asked(demand));
        };
        *last = Some(window);
        Some(Decision::new(cause, window))
    }
}

/// The window after the cached run that begins at a marker; none if the run is longer than any
/// window, since then another reader is ahead of this one.
fn recovered(demand: &Demand, max: u32) -> Option<Window> {
    let cached = demand.cached_after.saturating_add(1);
    let size = window::next_size(cached, max);
    (cached <= max).then(|| window::ahead(demand.first + u64::from(cached), size))
}
