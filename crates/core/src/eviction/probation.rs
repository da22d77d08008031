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
//! **Readahead.** A page that is read ahead always enters A1in. If its name was in A1out it
//! is *hot*, and moves to Am at its first use; were it put there at once, wrong guesses would push
//! active pages out. FlexiCache's flag for pages read ahead needs no bit: only such a page can be
//! hot in A1in.
//!
//! Pages of A1in that were not demanded yet lie in a queue of their own. Those that were used give
//! way first: a page that a stream has passed will hardly come again, one that it comes to is read
//! twice if it leaves. But a sixteenth of A1in is left to those just used, and an unread page that
//! stayed while four times as many pages arrived as there are frames is taken for a wrong guess.
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
use core::marker::PhantomData;

use super::Eviction;
use super::ahead::STALE_TURNS;
use super::ghosts::Ghosts;
use crate::params::{Params, Share};
use crate::queue::{Links, PassingQueue, Table};
use crate::units::{FrameId, PageId};

/// The difference between 2Q and 2Q*.
pub trait Variant: Send + 'static {
    /// See [`Eviction::NAME`].
    const NAME: &'static str;
    /// Whether a use moves a page of A1in to its head. If not, uses that follow so soon count as
    /// one.
    const RENEWS_A1IN: bool;
    /// See [`Eviction::Params`].
    type Params: Params;
    /// The shares of A1in in the resident pages, before it is first to give, and of A1out in the
    /// capacity.
    fn shares(params: &Self::Params) -> (Share, Share);
}

/// The three queues.
pub struct Probation<V> {
    variant: PhantomData<V>,
    kin: Share,
    kout: Share,
    links: Links,
    /// Pages of A1in that were used.
    used: PassingQueue,
    /// Pages of A1in that were not demanded yet, by their arrival.
    unread: PassingQueue,
    am: PassingQueue,
    a1out: Ghosts,
    pages: Table<PageId>,
    places: Table<Place>,
    capacity: u32,
    /// Pages that arrived so far, and as each frame's did.
    arrivals: u64,
    arrived: Table<u64>,
}

#[derive(Clone, Copy, Default)]
enum Place {
    /// In A1in.
    #[default]
    A1in,
    /// In A1in, not used since it was read ahead.
    Unread,
    /// The same, known to be active.
    UnreadHot,
    /// In Am.
    Am,
}

impl<V: Variant> Eviction for Probation<V> {
    const NAME: &'static str = V::NAME;
    type Params = V::Params;

    fn new(capacity: u32, params: V::Params) -> Self {
        let (kin, kout) = V::shares(&params);
        Self {
            variant: PhantomData,
            kin,
            kout,
            links: Links::new(capacity),
            used: PassingQueue::new(),
            unread: PassingQueue::new(),
            am: PassingQueue::new(),
            a1out: Ghosts::new(kout.of(capacity)),
            pages: Table::new(capacity),
            places: Table::new(capacity),
            capacity,
            arrivals: 0,
            arrived: Table::new(capacity),
        }
    }

    fn insert(&mut self, frame: FrameId, page: PageId, prefetched: bool) {
        let hot = self.a1out.take(page).is_some();
        self.a1out.trim();
        let place = match (hot, prefetched) {
            (false, false) => Place::A1in,
            (false, true) => Place::Unread,
            (true, true) => Place::UnreadHot,
            (true, false) => Place::Am,
        };
        self.arrivals += 1;
        if prefetched {
            *self.arrived.at(frame.0) = self.arrivals;
        }
        let (queue, links) = self.queue(place);
        queue.push_front(links, frame.0);
        *self.pages.at(frame.0) = page;
        *self.places.at(frame.0) = place;
    }

    fn renew(&mut self, frame: FrameId) {
        let place = self.places.get(frame.0);
        match place {
            Place::A1in if !V::RENEWS_A1IN => {}
            Place::A1in | Place::Am => {
                let (queue, links) = self.queue(place);
                queue.move_to_front(links, frame.0);
            }
            Place::Unread => self.move_to(frame, Place::A1in),
            Place::UnreadHot => self.move_to(frame, Place::Am),
        }
    }

    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>) {
        let a1in = self.used.len() + self.unread.len();
        let resident = a1in + self.am.len();
        let limit = self.kin.of(resident.saturating_sub(count) + 1);
        if a1in > limit {
            let taken = self.evict_a1in(count, evictable, out);
            self.evict_am(count - taken, evictable, out);
        } else {
            let taken = self.evict_am(count, evictable, out);
            self.evict_a1in(count - taken, evictable, out);
        }
        let left = self.used.len() + self.unread.len() + self.am.len();
        assert!(resident - left <= count, "{} of {count} left", resident - left);
    }

    fn may_leave(&mut self, frame: FrameId) {
        let (queue, links) = self.queue(self.places.get(frame.0));
        queue.may_leave(links, frame.0);
    }

    fn forget(&mut self, frame: FrameId) {
        let (queue, links) = self.queue(self.places.get(frame.0));
        queue.remove(links, frame.0);
    }

    fn resize(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.a1out.resize(self.kout.of(capacity));
    }

    fn number_pages(&mut self) {
        self.a1out.number_pages();
    }

    fn bytes(frames: u32, pages: u32, params: &V::Params) -> u64 {
        let row = Links::ROW_BYTES + Table::<PageId>::ROW_BYTES + Table::<Place>::ROW_BYTES;
        let arrived = Table::<u64>::ROW_BYTES;
        let (_, kout) = V::shares(params);
        u64::from(frames) * (row + arrived) + Ghosts::bytes(kout.of(frames), pages)
    }
}

impl<V> Probation<V> {
    /// Whether the resident page in `frame` is in Am, else it is in A1in.
    #[must_use]
    pub fn is_active(&self, frame: FrameId) -> bool {
        matches!(self.places.get(frame.0), Place::Am)
    }

    /// Whether the name of `page` is in A1out, which no resident page's is.
    #[must_use]
    pub fn remembers(&self, page: PageId) -> bool {
        self.a1out.find(page).is_some()
    }

    /// The page in `frame` is used for the first time since it was read ahead.
    fn move_to(&mut self, frame: FrameId, place: Place) {
        assert!(matches!(place, Place::A1in | Place::Am), "a used page is not unread");
        let (queue, links) = self.queue(Place::Unread);
        queue.remove(links, frame.0);
        let (queue, links) = self.queue(place);
        queue.push_front(links, frame.0);
        *self.places.at(frame.0) = place;
    }

    fn evict_a1in(
        &mut self,
        count: u32,
        evictable: &dyn Fn(FrameId) -> bool,
        out: &mut Vec<FrameId>,
    ) -> u32 {
        let first = out.len();
        let mut stale = 0;
        while stale < count && self.stale() {
            let more = self.unread.take_from_tail(&mut self.links, 1, evictable, out);
            if more == 0 {
                break;
            }
            stale += more;
        }
        let spared = (self.used.len() + self.unread.len()) / SPARED_PART;
        let used = self.used.len().saturating_sub(spared).min(count - stale);
        let links = &mut self.links;
        let mut taken = stale + self.used.take_from_tail(links, used, evictable, out);
        taken += self.unread.take_from_tail(links, count - taken, evictable, out);
        taken += self.used.take_from_tail(links, count - taken, evictable, out);
        self.a1out.remember_all(&out[first..], &self.pages);
        taken
    }

    /// Whether the oldest unread page stayed for `STALE_TURNS` turns of the cache.
    fn stale(&self) -> bool {
        let oldest = self.unread.tail().map(|frame| self.arrivals - self.arrived.get(frame));
        oldest.is_some_and(|age| age >= STALE_TURNS * u64::from(self.capacity))
    }

    fn evict_am(
        &mut self,
        count: u32,
        evictable: &dyn Fn(FrameId) -> bool,
        out: &mut Vec<FrameId>,
    ) -> u32 {
        self.am.take_from_tail(&mut self.links, count, evictable, out)
    }

    /// The queue of `place`, with the links that it lies on.
    fn queue(&mut self, place: Place) -> (&mut PassingQueue, &mut Links) {
        let queue = match place {
            Place::A1in => &mut self.used,
            Place::Unread | Place::UnreadHot => &mut self.unread,
            Place::Am => &mut self.am,
        };
        (queue, &mut self.links)
    }
}

/// One page in so many of A1in may have been used, and stay.
const SPARED_PART: u32 = 16;
