//! First in, first out: the floor that every other policy has to beat.
//!
//! # Sources
//! Folklore. Use does not matter; neither does prefetching.

use alloc::vec::Vec;

use super::Eviction;
use crate::queue::{Links, Queue};
use crate::units::{FrameId, PageId};

/// See the module.
pub struct Fifo {
    links: Links,
    queue: Queue,
}

impl Eviction for Fifo {
    const NAME: &'static str = "fifo";
    type Params = ();

    fn new(capacity: u32, (): ()) -> Self {
        Self { links: Links::new(capacity), queue: Queue::new() }
    }

    fn insert(&mut self, frame: FrameId, _: PageId, _: bool) {
        self.queue.push_front(&mut self.links, frame.0);
    }

    fn renew(&mut self, _: FrameId) {}

    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>) {
        self.queue.take_from_tail(&mut self.links, count, evictable, out);
    }

    fn forget(&mut self, frame: FrameId) {
        self.queue.remove(&mut self.links, frame.0);
    }

    fn resize(&mut self, _: u32) {}

    fn bytes(frames: u32, _: u32, (): &()) -> u64 {
        u64::from(frames) * Links::ROW_BYTES
    }
}
