//! The queues of 2Q and 2Q*: new pages serve probation before they count as active.
//!
//! ```text
//!   first use --> A1in (resident) --evicted--> A1out (names) --missed again--> Am (resident, LRU)
//!                   |                                                           ^
//!                   +-- read ahead while its name was in A1out; first use ------+
//! ```
//!
//! Two policies share them and differ in one thing: whether a use moves a page within A1in.
//!
//! **Readahead.** A page that nobody asked for yet always enters A1in. If its name was in A1out it
//! is *hot*, and moves to Am at its first use; were it put there at once, wrong guesses would push
//! active pages out. FlexiCache's flag for pages read ahead needs no bit: only such a page can be
//! hot in A1in.
//!
//! **Eviction of a count** is FlexiCache's: all of them from A1in if it is longer than its share
//! of what will be left, else all from Am. Two things are filled in. "What will be left" counts
//! the one page that the eviction is for: `resident - count + 1`. On a full cache, a miss that
//! evicts one then compares A1in with its share of the whole cache, which is the classic rule.
//! And where the list chosen has too few frames that may leave, the other gives the rest.
//!
//! # Invariants
//! - A frame is in A1in or in Am; a name is in A1out only while its page is not resident.
//! - Only what leaves A1in by eviction leaves a name.
//! # Sources
//! Johnson and Shasha, 2Q (VLDB 1994), the full version; Meng et al. 2009, sections 3 and 4.

use alloc::vec::Vec;

use super::ghosts::Ghosts;
use crate::params::Share;
use crate::queue::{Links, Queue, Table};
use crate::units::{FrameId, PageId};

/// What a use does to a page of A1in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    /// Nothing: uses that follow so soon are taken as one.
    Keep,
    /// Moves it to the head.
    MoveToHead,
}

/// The three queues.
pub(super) struct Probation {
    renewal: Renewal,
    kin: Share,
    kout: Share,
    links: Links,
    a1in: Queue,
    am: Queue,
    a1out: Ghosts,
    pages: Table<PageId>,
    places: Table<Place>,
}

#[derive(Clone, Copy, Default)]
enum Place {
    /// In A1in.
    #[default]
    A1in,
    /// In A1in, known to be active, not used since it was read ahead.
    A1inHot,
    /// In Am.
    Am,
}

impl Probation {
    /// Empty queues for `capacity` frames: A1in may hold `kin` of the resident pages before it is
    /// first to give, A1out remembers `kout` of the capacity.
    pub(super) fn new(capacity: u32, kin: Share, kout: Share, renewal: Renewal) -> Self {
        Self {
            renewal,
            kin,
            kout,
            links: Links::new(capacity),
            a1in: Queue::new(),
            am: Queue::new(),
            a1out: Ghosts::new(kout.of(capacity)),
            pages: Table::new(capacity),
            places: Table::new(capacity),
        }
    }

    pub(super) fn insert(&mut self, frame: FrameId, page: PageId, prefetched: bool) {
        let hot = self.a1out.take(page);
        self.a1out.trim();
        let place = match (hot, prefetched) {
            (false, _) => Place::A1in,
            (true, true) => Place::A1inHot,
            (true, false) => Place::Am,
        };
        self.queue(place).push_front(frame);
        *self.pages.at(frame.0) = page;
        *self.places.at(frame.0) = place;
    }

    pub(super) fn renew(&mut self, frame: FrameId) {
        let place = self.places.get(frame.0);
        match place {
            Place::A1in if self.renewal == Renewal::Keep => {}
            Place::A1in | Place::Am => self.queue(place).move_to_front(frame),
            Place::A1inHot => {
                self.queue(place).remove(frame);
                self.queue(Place::Am).push_front(frame);
                *self.places.at(frame.0) = Place::Am;
            }
        }
    }

    pub(super) fn evict(
        &mut self,
        count: u32,
        evictable: &dyn Fn(FrameId) -> bool,
        out: &mut Vec<FrameId>,
    ) {
        let resident = self.a1in.len() + self.am.len();
        let limit = self.kin.of(resident.saturating_sub(count) + 1);
        if self.a1in.len() > limit {
            let taken = self.evict_a1in(count, evictable, out);
            self.evict_am(count - taken, evictable, out);
        } else {
            let taken = self.evict_am(count, evictable, out);
            self.evict_a1in(count - taken, evictable, out);
        }
    }

    pub(super) fn forget(&mut self, frame: FrameId) {
        let place = self.places.get(frame.0);
        self.queue(place).remove(frame);
    }

    pub(super) fn resize(&mut self, capacity: u32) {
        self.a1out.resize(self.kout.of(capacity));
    }

    fn evict_a1in(
        &mut self,
        count: u32,
        evictable: &dyn Fn(FrameId) -> bool,
        out: &mut Vec<FrameId>,
    ) -> u32 {
        let first = out.len();
        let taken = self.a1in.take_from_tail(&mut self.links, count, evictable, out);
        for frame in &out[first..] {
            self.a1out.remember(self.pages.get(frame.0));
        }
        taken
    }

    fn evict_am(
        &mut self,
        count: u32,
        evictable: &dyn Fn(FrameId) -> bool,
        out: &mut Vec<FrameId>,
    ) -> u32 {
        self.am.take_from_tail(&mut self.links, count, evictable, out)
    }

    fn queue(&mut self, place: Place) -> Placed<'_> {
        let queue = match place {
            Place::A1in | Place::A1inHot => &mut self.a1in,
            Place::Am => &mut self.am,
        };
        Placed { queue, links: &mut self.links }
    }
}

/// The queue of a place, with the links it lies on.
struct Placed<'a> {
    queue: &'a mut Queue,
    links: &'a mut Links,
}

impl Placed<'_> {
    fn push_front(self, frame: FrameId) {
        self.queue.push_front(self.links, frame.0);
    }

    fn remove(self, frame: FrameId) {
        self.queue.remove(self.links, frame.0);
    }

    fn move_to_front(self, frame: FrameId) {
        self.queue.move_to_front(self.links, frame.0);
    }
}
