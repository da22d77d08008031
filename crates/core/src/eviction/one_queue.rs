//! One queue: what FIFO and LRU share.
//!
//! ```text
//!   arrives -> head (newest) <-> ... <-> tail (oldest) -> leaves
//! ```

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::Eviction;
use crate::queue::{Links, PassingQueue};
use crate::units::{FrameId, PageId};

/// The difference between the two.
pub trait Uses: Send + 'static {
    /// See [`Eviction::NAME`].
    const NAME: &'static str;
    /// Whether a use moves a page to the head.
    const MOVE: bool;
}

/// Frames in order.
pub struct OneQueue<U> {
    uses: PhantomData<U>,
    links: Links,
    queue: PassingQueue,
}

impl<U: Uses> Eviction for OneQueue<U> {
    const NAME: &'static str = U::NAME;
    type Params = ();

    fn new(capacity: u32, (): ()) -> Self {
        Self { uses: PhantomData, links: Links::new(capacity), queue: PassingQueue::new() }
    }

    fn insert(&mut self, frame: FrameId, _: PageId, _: bool) {
        self.queue.push_front(&mut self.links, frame.0);
    }

    fn renew(&mut self, frame: FrameId) {
        if U::MOVE {
            self.queue.move_to_front(&mut self.links, frame.0);
        }
    }

    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>) {
        self.queue.take_from_tail(&mut self.links, count, evictable, out);
    }

    fn may_leave(&mut self, frame: FrameId) {
        self.queue.may_leave(&self.links, frame.0);
    }

    fn forget(&mut self, frame: FrameId) {
        self.queue.remove(&mut self.links, frame.0);
    }

    fn bytes(frames: u32, _: u32, (): &()) -> u64 {
        u64::from(frames) * Links::ROW_BYTES
    }
}
