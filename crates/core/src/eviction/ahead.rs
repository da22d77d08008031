//! Pages read ahead, for policies whose papers know none: they wait apart until they are used.
//!
//! ```text
//!   read ahead -> unread (by arrival) --first use--> the policy: missed, then inserted
//!                    |
//!                    +-- not used ------------> leaves
//!   demanded   ----------------------------------> the policy
//! ```
//!
//! The first use of a page that was read ahead is, for the policy, what its miss would have been.
//! So a guess never counts as a use, and displaces nothing that a policy holds for active; and a
//! page whose name is still remembered at its first use enters where a miss on it would have
//! entered: 2Q*'s rule for pages that are *hot*.
//!
//! Unread pages leave after all others: a page that a stream comes to is read twice if it leaves.
//! But one that stayed while four times as many pages arrived as there are frames is taken for a
//! wrong guess, and leaves first.
//!
//! # Invariants
//! - A frame is unread, or the policy's, never both. Without readahead the policy does all.
//! # Sources
//! Meng et al. 2009, section 4: pages read ahead are flagged, enter on probation, and their first
//! use clears the flag. The turns of the cache are those of `probation.rs`.

use alloc::vec::Vec;

use super::Eviction;
use crate::queue::{Links, PassingQueue, Table};
use crate::units::{FrameId, PageId};

/// A policy as its paper has it, for which every page was demanded, and the pages read ahead that
/// are not its own yet.
pub struct Ahead<P> {
    policy: P,
    capacity: u32,
    links: Links,
    unread: PassingQueue,
    rows: Table<Row>,
    /// Pages that arrived so far.
    arrivals: u64,
}

/// What is known of an unread page.
#[derive(Clone, Copy, Default)]
struct Row {
    page: PageId,
    /// How many had arrived with it.
    arrival: u64,
}

impl<P: Eviction> Eviction for Ahead<P> {
    const NAME: &'static str = P::NAME;
    type Params = P::Params;

    fn new(capacity: u32, params: P::Params) -> Self {
        Self {
            policy: P::new(capacity, params),
            capacity,
            links: Links::new(0),
            unread: PassingQueue::new(),
            rows: Table::new(0),
            arrivals: 0,
        }
    }

    fn missed(&mut self, page: PageId) {
        self.policy.missed(page);
    }

    fn insert(&mut self, frame: FrameId, page: PageId, prefetched: bool) {
        self.arrivals += 1;
        if prefetched {
            self.unread.push_front(&mut self.links, frame.0);
            *self.rows.at(frame.0) = Row { page, arrival: self.arrivals };
        } else {
            self.policy.insert(frame, page, false);
        }
    }

    fn renew(&mut self, frame: FrameId) {
        if self.take_unread(frame) {
            let page = self.rows.get(frame.0).page;
            self.policy.missed(page);
            self.policy.insert(frame, page, false);
        } else {
            self.policy.renew(frame);
        }
    }

    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>) {
        let wanted = out.len().saturating_add(count as usize);
        while out.len() < wanted
            && self.unread.tail().is_some_and(|frame| self.is_stale(frame))
            && let Some(frame) = self.unread.oldest(&mut self.links, evictable)
            && self.is_stale(frame)
        {
            self.unread.remove(&mut self.links, frame);
            out.push(FrameId(frame));
        }
        let left = |out: &Vec<FrameId>| u32::try_from(wanted - out.len()).expect("at most `count`");
        self.policy.evict(left(out), evictable, out);
        self.unread.take_from_tail(&mut self.links, left(out), evictable, out);
        assert!(out.len() <= wanted, "{} frames, {wanted} wanted", out.len());
    }

    fn may_leave(&mut self, frame: FrameId) {
        if self.is_unread(frame) {
            self.unread.may_leave(&self.links, frame.0);
        } else {
            self.policy.may_leave(frame);
        }
    }

    fn forget(&mut self, frame: FrameId) {
        if !self.take_unread(frame) {
            self.policy.forget(frame);
        }
    }

    fn resize(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.policy.resize(capacity);
    }

    fn number_pages(&mut self) {
        self.policy.number_pages();
    }

    fn bytes(frames: u32, pages: u32, params: &P::Params) -> u64 {
        let row = Links::ROW_BYTES + Table::<Row>::ROW_BYTES;
        u64::from(frames) * row + P::bytes(frames, pages, params)
    }
}

impl<P> Ahead<P> {
    /// Whether the page in `frame`, which is unread, is taken for a wrong guess.
    fn is_stale(&self, frame: u32) -> bool {
        let arrival = self.rows.get(frame).arrival;
        assert!(0 < arrival && arrival <= self.arrivals, "an unread page has arrived");
        let age = self.arrivals - arrival;
        age >= STALE_TURNS * u64::from(self.capacity)
    }

    fn is_unread(&self, frame: FrameId) -> bool {
        !self.unread.is_empty() && self.links.is_linked(frame.0)
    }

    /// Whether `frame` was unread, which it is no longer.
    fn take_unread(&mut self, frame: FrameId) -> bool {
        let unread = self.is_unread(frame);
        if unread {
            self.unread.remove(&mut self.links, frame.0);
        }
        unread
    }
}

/// Turns of the cache after which an unread page is taken for a wrong guess.
pub(super) const STALE_TURNS: u64 = 4;
