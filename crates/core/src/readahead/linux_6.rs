//! Linux 6.18 on a file system without large folios: demand readahead, and for a reader that
//! nothing is known of, what lies in the cache just before it.
//!
//! | demand | window |
//! |---|---|
//! | marker of the last window | the next one, larger; its end rounded down to 4 pages |
//! | another marker, less than `max` cached after it | from the hole, as grown; rounded too |
//! | a miss at the head of the file, larger than `max`, or after the last read | a first window |
//! | a miss with more cached before it than it asks for | that much and what it asks; tail of 1 |
//! | any other miss | as asked; the last window is kept |
//!
//! A request beyond `max` may use windows up to the largest request of the device, `io`.
//!
//! Known faults of the original, kept:
//! - The previous read ends at the byte *after* it, so a reader that skips every other page counts
//!   as sequential (`a_gap_of_one_page_counts_as_sequential`).
//! - The end of the file cuts a window before its marker is placed, but not in what the handle
//!   remembers: the marker moves towards the front, or is lost ([`Linux6::marker`]).
//! - A run of `max` cached pages before a miss counts as one page less
//!   (`history_is_counted_to_one_below_the_largest_window`).
//!
//! # Invariants
//! - `0 < size <= max(max, io)` and `async_size <= size`.
//! # Sources
//! Linux 6.18 `mm/readahead.c`: `page_cache_sync_ra`, `page_cache_async_ra`, `do_page_cache_ra`,
//! `ractl_max_pages`; `mm/filemap.c`: `page_cache_prev_miss`, `page_cache_next_miss`. We differ on
//! a congested device: today's kernel then reads page by page only for throttled control groups,
//! which are not known here, so a miss is served in full.

use super::handles::Handles;
use super::window;
use super::{Cause, Decision, Demand, Named, Probes, Readahead, Trigger, Window};
use crate::params::Bytes;
use crate::units::{FileId, HandleId, PageIndex};

crate::params! {
    /// What may be set.
    pub struct Linux6Params {
        /// The largest window. The papers' test bed had 1 MiB; a kernel's default is 128 KiB.
        /// Less than a page counts as one page.
        max: Bytes = Bytes(1 << 20),
        /// The device's largest request; a kernel's default for `max_sectors_kb`, 1280 KiB.
        /// It matters where it is more than `max`.
        io: Bytes = Bytes(1280 << 10),
    }
}

/// See the module.
pub struct Linux6 {
    max: u32,
    io: u32,
    page_bytes: u32,
    last: Handles<Option<Window>>,
}

impl Named for Linux6 {
    const NAME: &'static str = "linux-6";
    type Params = Linux6Params;

    fn new(params: Linux6Params, page_bytes: u32) -> Self {
        let max = window::pages(params.max, page_bytes);
        let io = window::pages(params.io, page_bytes);
        Self { max, io, page_bytes, last: Handles::default() }
    }
}

impl Readahead for Linux6 {
    fn probes(&self) -> Probes {
        let pages = self.window_pages_max();
        Probes { before: pages, after: pages }
    }

    fn window_pages_max(&self) -> u32 {
        self.max.max(self.io)
    }

    fn open(&mut self, handle: HandleId, _: FileId) {
        self.last.forget(handle);
    }

    fn decide(&mut self, demand: &Demand) -> Option<Decision> {
        match demand.trigger {
            Trigger::Request => None,
            Trigger::Miss => Some(self.missed(demand)),
            Trigger::Marker => self.marked(demand),
        }
    }

    /// The tail keeps its length where the file's end clips the window, so it begins earlier.
    fn marker(&self, decision: Decision, file_pages: u64) -> Option<PageIndex> {
        let window = decision.window;
        let end = window.end().min(file_pages);
        let page = end.checked_sub(u64::from(window.async_size))?;
        (window.start <= page && page < end).then_some(page)
    }
}

impl Linux6 {
    /// The largest window for a request of `count` pages.
    fn limit(&self, count: u32) -> u32 {
        self.max.max(count.min(self.io))
    }

    fn missed(&mut self, demand: &Demand) -> Decision {
        let (first, count, max) = (demand.first, demand.count, self.limit(demand.count));
        let previous = demand.previous_end.map(|end| end / u64::from(self.page_bytes));
        let window = if first == 0 || count > max || window::follows(first, previous) {
            let size = window::opening_size(count, max);
            let async_size = if size > count { size - count } else { size / 2 };
            Window { start: first, size, async_size }
        } else {
            let history = demand.cached_before.min(max - 1);
            if history <= count {
                return window::as_asked(demand);
            }
            // Cached from the head of the file on: likely a reader of all of it.
            let whole = u64::from(history) == first;
            let grown = if whole { history.saturating_mul(2) } else { history };
            Window { start: first, size: grown.saturating_add(count).min(max), async_size: 1 }
        };
        *self.last.of(demand.handle) = Some(window);
        Decision::new(Cause::Sync, window)
    }

    fn marked(&mut self, demand: &Demand) -> Option<Decision> {
        let max = self.limit(demand.count);
        let last = self.last.of(demand.handle);
        let (start, size) = match *last {
            Some(last) if window::turn(last) == demand.first => {
                (last.end(), last.size.max(window::next_size(last.size, max)))
            }
            Some(_) | None => {
                let cached = demand.cached_after.saturating_add(1);
                if cached > max {
                    return None;
                }
                let seen = cached.saturating_add(demand.count);
                (demand.first + u64::from(cached), window::next_size(seen, max))
            }
        };
        let window = window::ahead(start, rounded(start, size, max));
        *last = Some(window);
        Some(Decision::new(Cause::Async, window))
    }
}

/// The size of a window from `start` whose end is rounded down to [`ALIGN_PAGES`], or to the
/// largest power of two that divides `max`; `size` as it is where nothing would be left.
fn rounded(start: PageIndex, size: u32, max: u32) -> u32 {
    let align = ALIGN_PAGES.min(1 << max.trailing_zeros());
    let end = start + u64::from(size);
    let excess = u32::try_from(end % u64::from(align)).expect("less than the alignment");
    if excess < size { size - excess } else { size }
}

/// Pages in the folios that the next window would use if the file system had large ones.
const ALIGN_PAGES: u32 = 4;
