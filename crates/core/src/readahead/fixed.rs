//! A constant window: what a driver without any judgement does.
//!
//! A miss fetches `size` pages from the missing one; a marker fetches the `size` pages after the
//! window that the marker belongs to. The marker halves a window, so a steady reader keeps between
//! half a window and one and a half windows ahead.
//!
//! ```text
//!        miss           marker
//!   ...---+===============#===============+ - - - - - - - - - - - - - - +
//!         |<----------- size ------------>|<-- fetched at the marker -->|
//! ```
//!
//! The policy keeps no state: every tail is equally long, so a marker alone tells where its window
//! ends.
//!
//! # Invariants
//! - Every window has `size` pages; one of a single page has no marker.
//! # Sources
//! Folklore; the yardstick that growing windows have to beat, above all on random reads.

use super::{Cause, Decision, Demand, Named, Readahead, Trigger, Window, window};
use crate::params::Bytes;

crate::params! {
    /// What may be set.
    pub struct Size {
        /// The window; Linux's default for the largest one, 128 KiB.
        /// Less than a page counts as one page.
        size: Bytes = Bytes(128 << 10),
    }
}

/// See the module.
pub struct Fixed {
    size: u32,
}

impl Named for Fixed {
    const NAME: &'static str = "fixed";
    type Params = Size;

    fn new(params: Size, page_bytes: u32) -> Self {
        Self { size: window::pages(params.size, page_bytes) }
    }
}

impl Readahead for Fixed {
    fn window_pages_max(&self) -> u32 {
        self.size
    }

    fn decide(&mut self, demand: &Demand) -> Option<Decision> {
        let tail = self.size / 2;
        let (cause, start) = match demand.trigger {
            Trigger::Request => return None,
            Trigger::Miss => (Cause::Sync, demand.first),
            Trigger::Marker => (Cause::Async, demand.first + u64::from(tail)),
        };
        let window = Window { start, size: self.size, async_size: tail };
        (start < demand.file_pages).then_some(Decision::new(cause, window))
    }
}
