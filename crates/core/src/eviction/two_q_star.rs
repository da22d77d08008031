//! 2Q*: 2Q whose A1in is managed as LRU.
//!
//! While a cache fills, every page enters A1in. In a large one nearly all hits fall there, and
//! moving what is hit to the head spares active pages the second miss that 2Q asks of them: it
//! behaves like LRU. In a small one the limit on A1in still keeps scans away from Am.
//!
//! The queues, eviction of a count and pages read ahead are described in `probation.rs`.
//!
//! # Sources
//! Meng et al., the article on 2Q* and FlexiCache (2009), sections 3 (the algorithm) and 4
//! (batches and readahead).

use alloc::vec::Vec;

use super::Eviction;
use super::probation::{Probation, Renewal};
use crate::params::Share;
use crate::units::{FrameId, PageId};

/// See the module.
pub struct TwoQStar {
    queues: Probation,
}

crate::params! {
    /// The shares of A1in and A1out.
    pub struct TwoQStarParams {
        /// The share of the resident pages that A1in keeps. A tenth: Meng
        /// et al. 2009, section 3.
        kin: Share = Share::percent(10),
        /// Names in A1out, as a share of the capacity. As many as frames: Meng et al. 2009,
        /// section 3.
        kout: Share = Share::percent(100),
    }
}

impl Eviction for TwoQStar {
    const NAME: &'static str = "2q-star";
    type Params = TwoQStarParams;

    fn new(capacity: u32, params: TwoQStarParams) -> Self {
        let TwoQStarParams { kin, kout } = params;
        Self { queues: Probation::new(capacity, kin, kout, Renewal::MoveToHead) }
    }

    fn insert(&mut self, frame: FrameId, page: PageId, prefetched: bool) {
        self.queues.insert(frame, page, prefetched);
    }

    fn renew(&mut self, frame: FrameId) {
        self.queues.renew(frame);
    }

    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>) {
        self.queues.evict(count, evictable, out);
    }

    fn forget(&mut self, frame: FrameId) {
        self.queues.forget(frame);
    }

    fn resize(&mut self, capacity: u32) {
        self.queues.resize(capacity);
    }

    fn number_pages(&mut self) {
        self.queues.number_pages();
    }

    fn bytes(frames: u32, pages: u32, params: &TwoQStarParams) -> u64 {
        Probation::bytes(frames, pages, params.kout)
    }
}

impl TwoQStar {
    /// Whether the resident page in `frame` is in Am, else it is in A1in.
    #[must_use]
    pub fn is_active(&self, frame: FrameId) -> bool {
        self.queues.is_active(frame)
    }

    /// Whether the name of `page` is in A1out.
    #[must_use]
    pub fn remembers(&self, page: PageId) -> bool {
        self.queues.remembers(page)
    }
}
