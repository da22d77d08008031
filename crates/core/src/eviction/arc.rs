//! ARC: recency against frequency, and a target between them that misses move.
//!
//! ```text
//!   L1, seen once       [ B1: names | T1: resident ]->|<-[ T2: resident | B2: names ]  L2, twice
//!                                   <---- target: how much of the cache T1 should be
//!   a miss on a name of B1: T1 was too small, the target grows; of B2: it shrinks
//! ```
//!
//! A page enters T1; its second use, in the cache or while its name is remembered, takes it to T2.
//! Where a victim comes from depends on the page that it is for: `missed` moves the target and
//! notes whether the name was in B2, before the eviction. The paper forgets the oldest names before
//! it evicts, here they are trimmed once the page is in: the same names are left.
//!
//! # Invariants
//! - T1 and B1 together are no longer than the capacity, all four lists than twice that, once a
//!   page is in. The target is between 0 and the capacity.
//! - The target is in parts of 2^-32 of a page: the paper's is a real number.
//! # Sources
//! Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache" (FAST 2003), figure 4.
//! It has nothing to set. Pages read ahead: `ahead.rs`.

use alloc::vec::Vec;

use super::Eviction;
use super::ahead::Ahead;
use super::ghosts::Ghosts;
use crate::queue::{Links, PassingQueue, Table};
use crate::units::{FrameId, PageId};

/// See the module.
pub type Arc = Ahead<Adaptive>;

/// The four lists and the target.
pub struct Adaptive {
    capacity: u32,
    links: Links,
    /// Pages seen once.
    t1: PassingQueue,
    /// Pages seen more often.
    t2: PassingQueue,
    pages: Table<PageId>,
    /// Apart from the pages, which a hit has no need of.
    in_t2: Table<bool>,
    b1: Ghosts,
    b2: Ghosts,
    /// Pages that T1 should have, in parts of 2^-32.
    target: u64,
    /// The page that was missed last had its name in B2.
    for_b2: bool,
}

impl Eviction for Adaptive {
    const NAME: &'static str = "arc";
    type Params = ();

    fn new(capacity: u32, (): ()) -> Self {
        Self {
            capacity,
            links: Links::new(capacity),
            t1: PassingQueue::new(),
            t2: PassingQueue::new(),
            pages: Table::new(capacity),
            in_t2: Table::new(capacity),
            b1: Ghosts::new(capacity.max(1)),
            b2: Ghosts::new(capacity.max(1)),
            target: 0,
            for_b2: false,
        }
    }

    fn missed(&mut self, page: PageId) {
        let (b1, b2) = (self.b1.len(), self.b2.len());
        self.for_b2 = false;
        if self.b1.find(page).is_some() {
            let most = u64::from(self.capacity) * ONE;
            self.target = self.target.saturating_add(at_least_one(b2, b1)).min(most);
        } else if self.b2.find(page).is_some() {
            self.for_b2 = true;
            self.target = self.target.saturating_sub(at_least_one(b1, b2));
        }
    }

    fn insert(&mut self, frame: FrameId, page: PageId, _: bool) {
        let in_t2 = self.b1.take(page).or_else(|| self.b2.take(page)).is_some();
        let queue = if in_t2 { &mut self.t2 } else { &mut self.t1 };
        queue.push_front(&mut self.links, frame.0);
        *self.pages.at(frame.0) = page;
        *self.in_t2.at(frame.0) = in_t2;
        self.for_b2 = false;
        self.trim();
    }

    fn renew(&mut self, frame: FrameId) {
        if core::mem::replace(self.in_t2.at(frame.0), true) {
            self.t2.move_to_front(&mut self.links, frame.0);
        } else {
            self.t1.remove(&mut self.links, frame.0);
            self.t2.push_front(&mut self.links, frame.0);
        }
    }

    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>) {
        let from_t1 = self.above_target().min(count);
        let mut taken = self.evict_t1(from_t1, evictable, out);
        let first = out.len();
        taken += self.t2.take_from_tail(&mut self.links, count - taken, evictable, out);
        self.b2.remember_all(&out[first..], &self.pages);
        self.evict_t1(count - taken, evictable, out);
    }

    fn may_leave(&mut self, frame: FrameId) {
        let queue = if self.in_t2.get(frame.0) { &mut self.t2 } else { &mut self.t1 };
        queue.may_leave(&self.links, frame.0);
    }

    fn forget(&mut self, frame: FrameId) {
        let queue = if self.in_t2.get(frame.0) { &mut self.t2 } else { &mut self.t1 };
        queue.remove(&mut self.links, frame.0);
    }

    fn resize(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.target = self.target.min(u64::from(capacity) * ONE);
        self.trim();
    }

    fn number_pages(&mut self) {
        self.b1.number_pages();
        self.b2.number_pages();
    }

    fn bytes(frames: u32, pages: u32, (): &()) -> u64 {
        let row = Links::ROW_BYTES + Table::<PageId>::ROW_BYTES + Table::<bool>::ROW_BYTES;
        u64::from(frames) * row + 2 * Ghosts::bytes(frames, pages)
    }
}

impl Adaptive {
    /// How many of T1 leave before one of T2 does.
    fn above_target(&self) -> u32 {
        let whole = u32::try_from(self.target / ONE).expect("at most the capacity");
        assert!(whole <= self.capacity, "a target of {whole} pages of {}", self.capacity);
        // At the target exactly, T1 gives where the page to come was seen more often.
        let one_more = self.for_b2 && self.target.is_multiple_of(ONE) && self.t1.len() >= whole;
        self.t1.len().saturating_sub(whole) + u32::from(one_more)
    }

    fn evict_t1(
        &mut self,
        count: u32,
        evictable: &dyn Fn(FrameId) -> bool,
        out: &mut Vec<FrameId>,
    ) -> u32 {
        let first = out.len();
        let taken = self.t1.take_from_tail(&mut self.links, count, evictable, out);
        self.b1.remember_all(&out[first..], &self.pages);
        taken
    }

    fn trim(&mut self) {
        self.b1.trim_to(self.capacity.saturating_sub(self.t1.len()));
        let rest = self.t1.len() + self.t2.len() + self.b1.len();
        self.b2.trim_to(self.capacity.saturating_mul(2).saturating_sub(rest));
    }
}

/// `of` / `by` to the nearest part, or 1 if that is more.
fn at_least_one(of: u32, by: u32) -> u64 {
    let (of, by) = (u64::from(of), u64::from(by));
    ((of * ONE + by / 2) / by).max(ONE)
}

/// A page, in parts of the target.
const ONE: u64 = 1 << 32;
