//! CLOCK: LRU with one bit a frame, so that a use moves nothing.
//!
//! The clock's hand stands at the tail of a queue; going round is moving the tail to the head.
//!
//! ```text
//!   arrives -> head (newest) <-> ... <-> tail <- hand:  referenced? clear the bit, to the head
//!                ^                         |            not?        it leaves
//!                +------- referenced ------+
//! ```
//!
//! Every page arrives unreferenced, read ahead or not, and its first use sets the bit: so a page
//! read ahead and never used has one round, and one that was used has two. The hand passes over
//! a frame that may not leave without clearing its bit or moving it.
//!
//! # Invariants
//! - An eviction sees each frame twice at most: the second time its bit is clear.
//! # Sources
//! Corbato, "A Paging Experiment with the Multics System" (1968), with one bit.

use alloc::vec::Vec;

use super::Eviction;
use crate::queue::{Links, PassingQueue, Table};
use crate::units::{FrameId, PageId};

/// See the module.
pub struct Clock {
    links: Links,
    queue: PassingQueue,
    referenced: Table<bool>,
}

impl Eviction for Clock {
    const NAME: &'static str = "clock";
    type Params = ();

    fn new(capacity: u32, (): ()) -> Self {
        Self {
            links: Links::new(capacity),
            queue: PassingQueue::new(),
            referenced: Table::new(capacity),
        }
    }

    fn insert(&mut self, frame: FrameId, _: PageId, _: bool) {
        self.queue.push_front(&mut self.links, frame.0);
        *self.referenced.at(frame.0) = false;
    }

    fn renew(&mut self, frame: FrameId) {
        *self.referenced.at(frame.0) = true;
    }

    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>) {
        let mut taken = 0;
        while taken < count
            && let Some(frame) = self.queue.oldest(&mut self.links, evictable)
        {
            if core::mem::take(self.referenced.at(frame)) {
                self.queue.move_to_front(&mut self.links, frame);
            } else {
                self.queue.remove(&mut self.links, frame);
                out.push(FrameId(frame));
                taken += 1;
            }
        }
    }

    fn may_leave(&mut self, frame: FrameId) {
        self.queue.may_leave(&self.links, frame.0);
    }

    fn forget(&mut self, frame: FrameId) {
        self.queue.remove(&mut self.links, frame.0);
    }

    fn bytes(frames: u32, _: u32, (): &()) -> u64 {
        u64::from(frames) * (Links::ROW_BYTES + Table::<bool>::ROW_BYTES)
    }
}
