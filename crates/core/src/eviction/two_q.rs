//! 2Q: a page is active once it is missed a second time while its name is remembered.
//!
//! A hit in A1in moves nothing: uses that follow each other closely count as one. So a scan passes
//! through A1in and leaves Am alone; but in a large cache every active page costs a second miss
//! before it is known.
//!
//! The queues, eviction of a count and pages read ahead are described in `probation.rs`.
//!
//! # Sources
//! Johnson and Shasha, "2Q: A Low Overhead High Performance Buffer Management Replacement
//! Algorithm" (VLDB 1994), the full version.

use alloc::vec::Vec;

use super::Eviction;
use super::probation::{Probation, Renewal};
use crate::params::Share;
use crate::units::{FrameId, PageId};

/// See the module.
pub struct TwoQ {
    queues: Probation,
}

crate::params! {
    /// The shares of A1in and A1out.
    pub struct TwoQParams {
        /// The share of the resident pages that A1in keeps. A quarter: Johnson
        /// and Shasha, section 3.
        kin: Share = Share::percent(25),
        /// Names in A1out, as a share of the capacity. Half: Johnson
        /// and Shasha, section 3.
        kout: Share = Share::percent(50),
    }
}

impl Eviction for TwoQ {
    const NAME: &'static str = "2q";
    type Params = TwoQParams;

    fn new(capacity: u32, params: TwoQParams) -> Self {
        let TwoQParams { kin, kout } = params;
        Self { queues: Probation::new(capacity, kin, kout, Renewal::Keep) }
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

    fn bytes(frames: u32, pages: u32, params: &TwoQParams) -> u64 {
        Probation::bytes(frames, pages, params.kout)
    }
}

impl TwoQ {
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
