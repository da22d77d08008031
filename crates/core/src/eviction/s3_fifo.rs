//! S3-FIFO: a small FIFO queue in front of a main one, and the names that the small one let go.
//!
//! ```text
//!                                +-- used twice ------------------------+
//!   first use --> S, a tenth ----+                                      v
//!                                +-- not --> G (names) --missed again--> M --> used? to the head
//!                                                                              not? it leaves
//! ```
//!
//! A use counts, up to three, and moves nothing. S gives as long as M is within its share of the
//! cache. What M spares goes to its head with one use less.
//!
//! Until the first eviction a full S hands new pages on to M, as the authors' code does; the
//! paper's listing lets S fill the cache, and then evicts from it until it is small.
//!
//! # Invariants
//! - A frame is in S or in M; a name is in G only while its page is not resident.
//! - An eviction looks at a frame of S once, at one of M four times at most.
//! # Sources
//! Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction" (SOSP 2023),
//! algorithm 1; `libCacheSim` 0.3.5, S3FIFO.c, for the start and for an M that outgrows its share:
//! the next eviction takes that back, so that one victim is one victim. Pages read ahead:
//! `ahead.rs`.

use alloc::vec::Vec;

use super::Eviction;
use super::ahead::Ahead;
use super::ghosts::Ghosts;
use crate::params::Share;
use crate::queue::{Links, PassingQueue, Table};
use crate::units::{FrameId, PageId};

/// See the module.
pub type S3Fifo = Ahead<SmallMain>;

/// The queues.
pub struct SmallMain {
    params: S3FifoParams,
    capacity: u32,
    links: Links,
    small: PassingQueue,
    main: PassingQueue,
    rows: Table<Row>,
    ghosts: Ghosts,
    /// Nothing was evicted yet.
    filling: bool,
}

crate::params! {
    /// The shares of S and G, and what it takes to leave S for M.
    pub struct S3FifoParams {
        /// The share of S in the cache. A tenth: Yang et al. 2023, section 4.1.
        small: Share = Share::percent(10),
        /// Names in G, as a share of the capacity. As many as M has frames: Yang et al. 2023,
        /// section 4.1.
        ghost: Share = Share::percent(90),
        /// Uses in S, after the one that fetched a page, that take it to M, three at most. More
        /// than one: Yang et al. 2023, algorithm 1.
        uses: u32 = 2,
    }
}

#[derive(Clone, Copy, Default)]
struct Row {
    page: PageId,
    /// Uses since it came, or since it was spared, up to [`USES_MAX`].
    uses: u8,
    in_main: bool,
}

impl Eviction for SmallMain {
    const NAME: &'static str = "s3-fifo";
    type Params = S3FifoParams;

    fn new(capacity: u32, params: S3FifoParams) -> Self {
        let ghosts = Ghosts::new(params.ghost.of(capacity));
        Self {
            params,
            capacity,
            links: Links::new(capacity),
            small: PassingQueue::new(),
            main: PassingQueue::new(),
            rows: Table::new(capacity),
            ghosts,
            filling: true,
        }
    }

    fn insert(&mut self, frame: FrameId, page: PageId, _: bool) {
        let known = self.ghosts.take(page).is_some();
        self.ghosts.trim();
        let passed_on = self.filling && self.small.len() >= self.small_max();
        let in_main = known || passed_on;
        let queue = if in_main { &mut self.main } else { &mut self.small };
        queue.push_front(&mut self.links, frame.0);
        *self.rows.at(frame.0) = Row { page, uses: 0, in_main };
    }

    fn renew(&mut self, frame: FrameId) {
        let row = self.rows.at(frame.0);
        row.uses = USES_MAX.min(row.uses + 1);
    }

    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>) {
        self.filling = false;
        for _ in 0..count {
            let main_max = self.capacity.saturating_sub(self.small_max());
            let mut victim = None;
            if self.main.len() > main_max {
                victim = self.evict_main(evictable);
            }
            // What S hands on may be all that M has to give.
            let victim = victim
                .or_else(|| self.evict_small(evictable))
                .or_else(|| self.evict_main(evictable));
            let Some(victim) = victim else { break };
            out.push(victim);
        }
    }

    fn may_leave(&mut self, frame: FrameId) {
        let in_main = self.rows.get(frame.0).in_main;
        let queue = if in_main { &mut self.main } else { &mut self.small };
        queue.may_leave(&self.links, frame.0);
    }

    fn forget(&mut self, frame: FrameId) {
        let in_main = self.rows.get(frame.0).in_main;
        let queue = if in_main { &mut self.main } else { &mut self.small };
        queue.remove(&mut self.links, frame.0);
    }

    fn resize(&mut self, capacity: u32) {
        self.filling |= capacity > self.capacity;
        self.capacity = capacity;
        self.ghosts.resize(self.params.ghost.of(capacity));
    }

    fn number_pages(&mut self) {
        self.ghosts.number_pages();
    }

    fn bytes(frames: u32, pages: u32, params: &S3FifoParams) -> u64 {
        let row = Links::ROW_BYTES + Table::<Row>::ROW_BYTES;
        u64::from(frames) * row + Ghosts::bytes(params.ghost.of(frames), pages)
    }
}

impl SmallMain {
    fn small_max(&self) -> u32 {
        self.params.small.of(self.capacity).max(1)
    }

    /// The oldest of S that was used too little; older ones that were used enough go to M.
    fn evict_small(&mut self, evictable: &dyn Fn(FrameId) -> bool) -> Option<FrameId> {
        let enough = self.params.uses.min(USES_MAX.into());
        while let Some(frame) = self.small.oldest(&mut self.links, evictable) {
            self.small.remove(&mut self.links, frame);
            let row = self.rows.at(frame);
            assert!(!row.in_main && row.uses <= USES_MAX, "frame {frame} lies in S");
            if u32::from(row.uses) < enough {
                let page = row.page;
                self.ghosts.remember(page);
                return Some(FrameId(frame));
            }
            row.uses = 0;
            row.in_main = true;
            self.main.push_front(&mut self.links, frame);
        }
        None
    }

    /// The oldest of M that was not used; older ones that were go to its head, with one use less.
    fn evict_main(&mut self, evictable: &dyn Fn(FrameId) -> bool) -> Option<FrameId> {
        while let Some(frame) = self.main.oldest(&mut self.links, evictable) {
            let row = self.rows.at(frame);
            assert!(row.in_main && row.uses <= USES_MAX, "frame {frame} lies in M");
            if row.uses == 0 {
                self.main.remove(&mut self.links, frame);
                return Some(FrameId(frame));
            }
            row.uses -= 1;
            self.main.move_to_front(&mut self.links, frame);
        }
        None
    }
}

/// Uses that are counted: two bits.
const USES_MAX: u8 = 3;
