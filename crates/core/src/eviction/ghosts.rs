//! Ghosts: the names of pages that left, in order, bounded. What a policy learns a second miss by.
//!
//! ```text
//!   remember(page) -> head (newest) ... tail (oldest) -> trim(): dropped beyond the limit
//!                            |
//!                            +-> take(page): it came back
//! ```
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

use hashbrown::HashMap;

use crate::hash::FixedState;
use crate::queue::{Links, Queue, Table};
use crate::units::PageId;

/// A bounded queue of names that can be asked for one of them.
pub(super) struct Ghosts {
    limit: u32,
    slots: HashMap<PageId, u32, FixedState>,
    pages: Table<PageId>,
    links: Links,
    order: Queue,
    /// Slots without a name, on the same links.
    spare: Queue,
}

impl Ghosts {
    /// None yet, and room for `limit`.
    pub(super) fn new(limit: u32) -> Self {
        Self {
            limit,
            slots: HashMap::with_capacity_and_hasher(limit as usize, FixedState),
            pages: Table::new(limit),
            links: Links::new(limit),
            order: Queue::new(),
            spare: Queue::new(),
        }
    }

    /// Remembers `page`, which is not remembered yet, as the newest.
    pub(super) fn remember(&mut self, page: PageId) {
        if self.limit == 0 {
            return;
        }
        // Without a spare slot the used ones are just those below their number.
        let slot = self.spare.pop_back(&mut self.links).unwrap_or(self.order.len());
        *self.pages.at(slot) = page;
        self.order.push_front(&mut self.links, slot);
        let before = self.slots.insert(page, slot);
        assert!(before.is_none(), "{page:?} was resident in two frames");
    }

    /// Forgets `page`, and says whether it was remembered.
    pub(super) fn take(&mut self, page: PageId) -> bool {
        let Some(slot) = self.slots.remove(&page) else {
            return false;
        };
        self.order.remove(&mut self.links, slot);
        self.spare.push_front(&mut self.links, slot);
        true
    }

    /// Forgets the oldest beyond the limit.
    pub(super) fn trim(&mut self) {
        while self.order.len() > self.limit {
            let oldest = self.order.tail().expect("a queue longer than a limit has a tail");
            let known = self.take(self.pages.get(oldest));
            assert!(known, "every slot in order has its name in the map");
        }
    }

    /// Sets the limit and forgets the oldest beyond it.
    pub(super) fn resize(&mut self, limit: u32) {
        self.limit = limit;
        self.trim();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use crate::units::FileId;
    use std::collections::VecDeque;

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
        assert_eq!(ghosts.slots.len(), seen.len());
        seen
    }

    #[test]
    fn ghosts_behave_as_a_deque_of_names() {
        for seed in 0..30 {
            let mut prng = Prng::new(seed);
            let mut limit = u32::try_from(seed % 5).unwrap();
            let mut ghosts = Ghosts::new(limit);
            let mut names = VecDeque::new();
            let mut slots_max = 0;
            for _ in 0..300 {
                let name = prng.below(12);
                match prng.below(8) {
                    0..4 if !names.contains(&name) => {
                        ghosts.remember(page(name));
                        if limit > 0 {
                            names.push_front(name);
                        }
                    }
                    4..6 => {
                        assert_eq!(ghosts.take(page(name)), names.contains(&name));
                        names.retain(|&other| other != name);
                    }
                    6 => {
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
                let slots = ghosts.order.len() + ghosts.spare.len();
                assert_eq!(slots as usize, slots_max, "slots are used again");
            }
        }
    }
}
