//! Ghosts: the names of pages that left, in order, bounded. What a policy learns a second miss by.
//!
//! ```text
//!   remember(page) -> head (newest) ... tail (oldest) -> trim(): dropped beyond the limit
//!                            |
//!                            +-> take(page): it came back
//! ```
//!
//! A name has a *slot*, a small number that stays its own until it is forgotten: by that a policy
//! may keep it in lists of its own. Slots are found by hashing, or, where pages are numbered
//! densely, in a table.
//!
//! A miss is two calls here: an eviction that remembers its victim, then an insertion that looks
//! for its own name. The papers do these the other way round: the name found is taken out, and
//! the victim's goes where it was. So `remember` may overfill the queue, and the insertion trims
//! it once it has looked; then both orders leave the same names.
//!
//! # Invariants
//! - After `trim` or `resize` there are at most `limit` names; before, at most as many more as
//!   frames were evicted since. With a limit of 0 there is never one.
//! - Every operation is O(1), trimming O(1) a name.

use crate::page_table::PageTable;
use crate::queue::{Links, Queue, Table};
use crate::units::{FrameId, PageId};

/// The slot of each name, which `pages` has at its slot.
enum Slots {
    /// By the page's hash: slots alone, so that a name that is not there costs one line of memory.
    Hashed(PageTable),
    /// One more than the slot, by the page's number; 0 where there is none.
    Numbered(Table<u32>),
}

impl Slots {
    fn get(&self, page: PageId, pages: &Table<PageId>) -> Option<u32> {
        match self {
            Self::Hashed(slots) => slots.find(page, |slot| pages.get(slot)),
            Self::Numbered(slots) => slots.get(number(page)).checked_sub(1),
        }
    }

    /// Gives `page`, which has none, a slot.
    fn insert(&mut self, page: PageId, slot: u32, pages: &Table<PageId>) {
        match self {
            Self::Hashed(slots) => slots.insert(page, slot, |slot| pages.get(slot)),
            Self::Numbered(slots) => {
                let before = core::mem::replace(slots.at(number(page)), slot + 1);
                assert!(before == 0, "{page:?} has a slot already");
            }
        }
    }

    fn remove(&mut self, page: PageId, pages: &Table<PageId>) -> Option<u32> {
        match self {
            Self::Hashed(slots) => slots.remove(page, |slot| pages.get(slot)),
            Self::Numbered(slots) => {
                let slot = slots.get(number(page)).checked_sub(1)?;
                *slots.at(number(page)) = 0;
                Some(slot)
            }
        }
    }
}

/// The number of a page that was numbered.
fn number(page: PageId) -> u32 {
    u32::try_from(page.index).expect("pages are numbered in 32 bits")
}

/// A bounded queue of names that can be asked for one of them.
pub(super) struct Ghosts {
    limit: u32,
    slots: Slots,
    pages: Table<PageId>,
    links: Links,
    order: Queue,
    /// Slots without a name, on the same links.
    spare: Queue,
}

impl Ghosts {
    /// None yet, and room for `limit`.
    pub(super) fn new(limit: u32) -> Self {
        Self::with_room(limit, limit)
    }

    /// None yet; room for up to `limit` is taken as they come.
    pub(super) fn growing(limit: u32) -> Self {
        Self::with_room(limit, 0)
    }

    fn with_room(limit: u32, room: u32) -> Self {
        Self {
            limit,
            // An eviction remembers before the insertion that it is for trims: no table of all
            // names is made anew for that.
            slots: Slots::Hashed(PageTable::new(room.saturating_add(room / OVERFILLED_PART))),
            pages: Table::new(room),
            links: Links::new(room),
            order: Queue::new(),
            spare: Queue::new(),
        }
    }

    /// See [`super::Eviction::number_pages`].
    pub(super) fn number_pages(&mut self) {
        assert!(self.order.is_empty(), "numbered before the first page");
        self.slots = Slots::Numbered(Table::new(0));
    }

    /// Bytes for `limit` names among `pages` that are numbered, at most.
    pub(super) fn bytes(limit: u32, pages: u32) -> u64 {
        let row = Table::<PageId>::ROW_BYTES + Links::ROW_BYTES;
        let slots = u64::from(pages) * Table::<u32>::ROW_BYTES;
        // One name more than the limit is held between an eviction and the trim.
        u64::from(limit.saturating_add(1).min(pages)) * row + slots
    }

    /// Names that are remembered.
    pub(super) fn len(&self) -> u32 {
        self.order.len()
    }

    /// Remembers `page`, which is not remembered yet, as the newest. Gives its slot, if there may
    /// be names at all.
    pub(super) fn remember(&mut self, page: PageId) -> Option<u32> {
        if self.limit == 0 {
            return None;
        }
        // Without a spare slot the used ones are just those below their number.
        let slot = self.spare.pop_back(&mut self.links).unwrap_or(self.order.len());
        *self.pages.at(slot) = page;
        self.order.push_front(&mut self.links, slot);
        assert!(slot < self.order.len() + self.spare.len(), "slots are dense");
        self.slots.insert(page, slot, &self.pages);
        Some(slot)
    }

    /// Remembers what each of `frames`, which were just evicted, held.
    pub(super) fn remember_all(&mut self, frames: &[FrameId], pages: &Table<PageId>) {
        for frame in frames {
            self.remember(pages.get(frame.0));
        }
    }

    /// The slot of `page`, if it is remembered.
    pub(super) fn find(&self, page: PageId) -> Option<u32> {
        self.slots.get(page, &self.pages)
    }

    /// Forgets `page`, and gives the slot that it had if it was remembered.
    pub(super) fn take(&mut self, page: PageId) -> Option<u32> {
        let slot = self.slots.remove(page, &self.pages)?;
        assert!(self.pages.get(slot) == page, "{page:?} has the slot of another name");
        self.order.remove(&mut self.links, slot);
        self.spare.push_front(&mut self.links, slot);
        Some(slot)
    }

    /// Forgets the name in `slot`.
    pub(super) fn release(&mut self, slot: u32) {
        let known = self.take(self.pages.get(slot));
        assert!(known == Some(slot), "every slot in order has its name in the map");
    }

    /// The slot of the oldest, if there are more than the limit.
    pub(super) fn surplus(&self) -> Option<u32> {
        self.order.tail().filter(|_| self.order.len() > self.limit)
    }

    /// Forgets the oldest beyond the limit.
    pub(super) fn trim(&mut self) {
        self.trim_to(self.limit);
    }

    /// Forgets the oldest beyond `count`.
    pub(super) fn trim_to(&mut self, count: u32) {
        while self.order.len() > count {
            let oldest = self.order.tail().expect("a queue longer than a limit has a tail");
            self.release(oldest);
        }
    }

    /// Sets the limit and forgets the oldest beyond it.
    pub(super) fn resize(&mut self, limit: u32) {
        self.set_limit(limit);
        self.trim();
    }

    /// Sets the limit; what is beyond it is [`Ghosts::surplus`].
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }
}

/// Names beyond the limit for which there is room, as a part of it.
const OVERFILLED_PART: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use crate::units::FileId;
    use std::collections::VecDeque;

    /// Names there are.
    const NAMES: u64 = 12;

    fn page(index: u64) -> PageId {
        PageId { file: FileId(0), index }
    }

    fn listed(ghosts: &Ghosts) -> VecDeque<u64> {
        let mut seen = VecDeque::new();
        let mut at = ghosts.order.head();
        while let Some(slot) = at {
            seen.push_back(ghosts.pages.get(slot).index);
            at = ghosts.links.older(slot);
        }
        let known = (0..NAMES).filter(|&name| ghosts.find(page(name)).is_some()).count();
        assert_eq!(known, seen.len());
        seen
    }

    #[test]
    fn what_is_remembered_before_the_trim_makes_no_table_anew() {
        let mut ghosts = Ghosts::new(1_024);
        let buckets = |ghosts: &Ghosts| match &ghosts.slots {
            Slots::Hashed(slots) => slots.buckets(),
            Slots::Numbered(_) => panic!("these are hashed"),
        };
        let (before, mut names) = (buckets(&ghosts), 0..);
        for _ in 0..100 {
            for name in names.by_ref().take(100) {
                ghosts.remember(page(name));
            }
            ghosts.trim();
        }
        assert_eq!((ghosts.len(), buckets(&ghosts)), (1_024, before));
    }

    #[test]
    fn ghosts_behave_as_a_deque_of_names() {
        for seed in 0..60 {
            let mut prng = Prng::new(seed);
            let mut limit = u32::try_from(seed % 5).unwrap();
            let mut ghosts = Ghosts::new(limit);
            if seed >= 30 {
                ghosts.number_pages();
            }
            let mut names = VecDeque::new();
            let mut slots_max = 0;
            for _ in 0..300 {
                let name = prng.below(NAMES);
                match prng.below(8) {
                    0..4 if !names.contains(&name) => {
                        ghosts.remember(page(name));
                        if limit > 0 {
                            names.push_front(name);
                        }
                    }
                    4..6 => {
                        let slot = ghosts.find(page(name));
                        assert_eq!(ghosts.take(page(name)), slot);
                        assert_eq!(slot.is_some(), names.contains(&name));
                        names.retain(|&other| other != name);
                    }
                    6 => {
                        let surplus = names.get(limit as usize).and(names.back());
                        let oldest = ghosts.surplus().map(|slot| ghosts.pages.get(slot).index);
                        assert_eq!(oldest, surplus.copied());
                        ghosts.trim();
                        names.truncate(limit as usize);
                    }
                    7 if prng.chance(20) => {
                        limit = u32::try_from(prng.below(6)).unwrap();
                        ghosts.resize(limit);
                        names.truncate(limit as usize);
                    }
                    _ => {}
                }
                slots_max = slots_max.max(names.len());
                assert_eq!(listed(&ghosts), names, "seed {seed}");
                assert_eq!(ghosts.len() as usize, names.len());
                let slots = ghosts.order.len() + ghosts.spare.len();
                assert_eq!(slots as usize, slots_max, "slots are used again");
            }
        }
    }
}
