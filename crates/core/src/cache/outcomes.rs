//! What became of the pages of each explained window, for reports; nothing unless
//! [`Settings::explain`](super::Settings::explain) is on.
//!
//! ```text
//!   Explain, Explain, ...    windows 0, 1, ... in this order; a page read ahead keeps its number
//!   used, wasted, failed --> unreported -- no retraction open --> Outcomes { window, outcomes }
//! ```
//!
//! A victim that turns out to be pinned was used after all, so nothing is reported before
//! retractions are settled.
//!
//! # Invariants
//! - Every page that a window read ahead is reported once, or is still unread.
//! - Unreported outcomes are bounded: an entry for each window that the last events touched.

use super::{Cache, Frame, NIL};
use crate::event::{Action, PrefetchOutcomes};

impl Cache {
    /// The number of the window that is carried out now.
    pub(super) fn window(&self) -> u32 {
        if self.settings.explain { self.windows } else { NIL }
    }

    /// Counts what became of a page read ahead: `count` adds it, if its window has a number.
    pub(super) fn count_outcome(&mut self, window: u32, count: impl Fn(&mut PrefetchOutcomes)) {
        if window == NIL {
            return;
        }
        assert!(window <= self.windows, "window {window} was explained");
        if self.unreported.last().is_none_or(|last| last.0 != window) {
            self.unreported.push((window, PrefetchOutcomes::default()));
        }
        if let Some((_, outcomes)) = self.unreported.last_mut() {
            count(outcomes);
        }
    }

    /// A page of `window` leaves before its first use.
    pub(super) fn count_wasted(&mut self, window: u32) {
        self.stats.ahead_unread -= 1;
        self.stats.ahead_wasted += 1;
        self.count_outcome(window, |outcomes| outcomes.wasted += 1);
    }

    /// A page of `window` was taken for wasted, but a reader holds it.
    pub(super) fn used_after_all(&mut self, window: u32) {
        let wasted =
            |reported: &&mut (u32, PrefetchOutcomes)| reported.0 == window && reported.1.wasted > 0;
        if let Some((_, outcomes)) = self.unreported.iter_mut().rev().find(wasted) {
            outcomes.wasted -= 1;
            outcomes.used += 1;
        }
    }

    pub(super) fn report_outcomes(&mut self) {
        let reported = self
            .unreported
            .drain(..)
            .map(|(window, outcomes)| Action::Outcomes { window, outcomes });
        self.actions.list.extend(reported);
    }

    /// The windows of prefetched pages that were not demanded yet: a number for each such page, in
    /// the order of the frames.
    pub fn unread(&self) -> impl Iterator<Item = u32> {
        let unread = |row: &Frame| row.prefetched && row.window != NIL;
        self.frames.iter().filter(move |at| unread(at.1)).map(|at| at.1.window)
    }
}
