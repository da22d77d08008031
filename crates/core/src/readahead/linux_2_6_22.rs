//! Linux 2.6.22, the last before demand readahead: two windows a handle, and every request
//! inspected.
//!
//! ```text
//!      current window           ahead window
//!   --+------------------------+------------------------------+--
//!     |<------- size --------->|<-------- ahead size -------->|
//!          ^ the reader is here: the ahead window is in flight
//!                              ^ a request that reaches this page makes it the current window
//!                                and opens the next one ahead
//! ```
//!
//! Strict: one request that does not continue the previous one closes both windows, and the next
//! that does starts small again, on pages that are cached already. A page that was read ahead and
//! evicted unused is read alone, and so are all after it up to the window's end. When 256 pages in
//! a row were found cached, readahead rests until a page is missing.
//!
//! A window may open another at once, and how it goes on depends on how many pages of a window
//! had to be read; so what remains of a request waits in `Stream::then` for
//! [`Readahead::submitted`].
//!
//! # Invariants
//! - `0 < size <= max`; no window has a marker.
//! - There is no ahead window without a current one.
//! # Sources
//! Linux 2.6.22 `mm/readahead.c` (unchanged since 2.6.16): `page_cache_readahead`,
//! `make_ahead_window`, `check_ra_success`, `handle_ra_miss`. Its caller asks again at the page
//! where the last answer ended (`do_generic_mapping_read`).

use core::mem;

use super::handles::Handles;
use super::window::{self, Limit};
use super::{Cause, Decision, Demand, Named, Readahead, Trigger, Window};
use crate::units::{FileId, HandleId, PageIndex};

/// See the module.
pub struct Linux2622 {
    bounds: SizeRange,
    streams: Handles<Stream>,
}

/// The bounds of a window's size, in pages.
#[derive(Clone, Copy)]
struct SizeRange {
    /// A window that shrinks does not go below this.
    least: u32,
    max: u32,
}

/// What is known of a handle.
#[derive(Default)]
struct Stream {
    /// The page after the last one that was inspected.
    next: PageIndex,
    current: Option<Window>,
    ahead: Option<Window>,
    /// A page that should have been there was not: the next window shrinks.
    missed: bool,
    /// Readahead rests: the file seems to be cached.
    resting: bool,
    /// Pages of windows without any fresh page, since the last fresh one.
    cached_pages: u32,
    then: Then,
}

/// What remains to be done for a request once its window was submitted.
#[derive(Clone, Copy, Default)]
enum Then {
    /// Nothing.
    #[default]
    Done,
    /// Open the ahead window without regard to congestion: the request wants it.
    ForceAhead,
    /// The ahead window was opened: see whether the request reaches into it already.
    Cross,
    /// The ahead window was opened in place of the one that became current.
    Recheck,
}

impl Named for Linux2622 {
    const NAME: &'static str = "linux-2.6.22";
    type Params = Limit;

    fn new(params: Limit, page_bytes: u32) -> Self {
        let bounds = SizeRange {
            least: (LEAST_BYTES / page_bytes).max(1),
            max: window::pages(params.max, page_bytes),
        };
        Self { bounds, streams: Handles::default() }
    }
}

impl Readahead for Linux2622 {
    fn sees_requests(&self) -> bool {
        true
    }

    fn window_pages_max(&self) -> u32 {
        self.bounds.max
    }

    fn open(&mut self, handle: HandleId, _: FileId) {
        self.streams.forget(handle);
    }

    fn decide(&mut self, demand: &Demand) -> Option<Decision> {
        let stream = self.streams.of(demand.handle);
        match demand.trigger {
            Trigger::Request if demand.opens_request || demand.first == stream.next => {
                stream.inspect(demand, self.bounds)
            }
            Trigger::Request | Trigger::Marker => None,
            Trigger::Miss => {
                stream.missed = true;
                stream.resting = false;
                stream.cached_pages = 0;
                Some(decision(Cause::Page, demand.first, 1))
            }
        }
    }

    fn submitted(&mut self, demand: &Demand, decision: Decision, fresh: u32) -> Option<Decision> {
        let stream = self.streams.of(demand.handle);
        let useful = stream.note(decision.window.size, fresh);
        match mem::take(&mut stream.then) {
            Then::ForceAhead if useful => stream.open_ahead(self.bounds, Then::Done, false),
            Then::Done | Then::ForceAhead => None,
            Then::Cross if useful => stream.cross(self.bounds, demand.congested),
            Then::Cross | Then::Recheck => {
                stream.next = stream.next.min(decision.window.end());
                None
            }
        }
    }
}

impl Stream {
    /// A request goes on, or begins, at `demand.first`.
    fn inspect(&mut self, demand: &Demand, bounds: SizeRange) -> Option<Decision> {
        let (mut first, mut count) = (demand.first, demand.count);
        if first + 1 == self.next {
            // The page that was inspected last, once more: what matters is what follows it.
            count -= 1;
            first += u64::from(count > 0);
        }
        let sequential = first == self.next;
        self.next = first + 1;
        let asked = count.min(bounds.max);
        if asked == 0 || self.resting {
            return None;
        }
        self.next = first + u64::from(asked);
        if !sequential {
            self.close();
            return Some(decision(Cause::Random, first, asked));
        }
        if self.current.is_none() {
            let initial = decision(Cause::Initial, first, window::opening_size(asked, bounds.max));
            self.current = Some(initial.window);
            self.then = if count >= bounds.max { Then::ForceAhead } else { Then::Done };
            return Some(initial);
        }
        if self.ahead.is_none() {
            return self.open_ahead(bounds, Then::Cross, demand.congested);
        }
        self.cross(bounds, demand.congested)
    }

    /// Makes the ahead window current once the request reaches into it, and opens the next.
    fn cross(&mut self, bounds: SizeRange, congested: bool) -> Option<Decision> {
        let reached = self.ahead.filter(|ahead| self.next > ahead.start)?;
        self.current = Some(reached);
        self.open_ahead(bounds, Then::Recheck, congested)
    }

    /// Opens an ahead window; not on a congested device, unless the request itself wants it.
    fn open_ahead(&mut self, bounds: SizeRange, then: Then, congested: bool) -> Option<Decision> {
        let current = self.current.expect("an ahead window follows a current one");
        let size = if mem::take(&mut self.missed) {
            current.size.saturating_sub(2).max(bounds.least).min(bounds.max)
        } else {
            window::next_size(current.size, bounds.max)
        };
        let ahead = decision(Cause::Ahead, current.end(), size);
        if congested && self.next <= ahead.window.start {
            self.ahead = None;
            return None;
        }
        self.ahead = Some(ahead.window);
        self.then = then;
        Some(ahead)
    }

    /// Counts what a window fetched; whether readahead goes on.
    fn note(&mut self, size: u32, fresh: u32) -> bool {
        if fresh > 0 {
            self.cached_pages = 0;
            return true;
        }
        self.cached_pages = self.cached_pages.saturating_add(size);
        if self.cached_pages < RESTING_PAGES {
            return true;
        }
        self.close();
        self.resting = true;
        false
    }

    /// Closes both windows.
    fn close(&mut self) {
        self.current = None;
        self.ahead = None;
        self.missed = false;
    }
}

fn decision(cause: Cause, start: PageIndex, size: u32) -> Decision {
    Decision::new(cause, Window { start, size, async_size: 0 })
}

/// The least window, `VM_MIN_READAHEAD`.
const LEAST_BYTES: u32 = 16 << 10;

/// So many pages found cached in a row put readahead to rest, `VM_MAX_CACHE_HIT`.
const RESTING_PAGES: u32 = 256;
