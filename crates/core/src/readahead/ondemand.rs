//! On-demand readahead: one window a handle, driven by misses and markers alone.
//!
//! The patch and what Linux shipped of it differ in one row: a marker of another window than the
//! last one. Their modules have the tables.
//!
//! # Invariants
//! - `0 < size <= max`; the tail is never empty except where pages are read just as asked.

use core::marker::PhantomData;

use super::handles::Handles;
use super::window::{self, Limit};
use super::{Cause, Decision, Demand, Named, Probes, Readahead, Trigger, Window};
use crate::units::{FileId, HandleId};

/// The answer to the marker of a window that was lost.
pub trait LostWindow: Send + 'static {
    /// See [`Named::NAME`].
    const NAME: &'static str;
    /// Pages that must be looked up after a marker, of a window's `max`.
    fn probes_after(max: u32) -> u32;
    /// The window, if there is to be one.
    fn recovered(demand: &Demand, max: u32) -> Option<(Cause, Window)>;
}

/// One window a handle.
pub struct Ondemand<L> {
    max: u32,
    page_bytes: u32,
    last: Handles<Option<Window>>,
    lost: PhantomData<L>,
}

impl<L: LostWindow> Named for Ondemand<L> {
    const NAME: &'static str = L::NAME;
    type Params = Limit;

    fn new(params: Limit, page_bytes: u32) -> Self {
        let max = window::pages(params.max, page_bytes);
        Self { max, page_bytes, last: Handles::default(), lost: PhantomData }
    }
}

impl<L: LostWindow> Readahead for Ondemand<L> {
    fn probes(&self) -> Probes {
        Probes { before: 0, after: L::probes_after(self.max) }
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
            L::recovered(demand, self.max)?
        } else if window::is_sequential(demand, self.max, self.page_bytes) {
            (cause, window::opening(demand.first, demand.count, self.max))
        } else {
            return Some(window::as_asked(demand));
        };
        *last = Some(window);
        Some(Decision::new(cause, window))
    }
}
