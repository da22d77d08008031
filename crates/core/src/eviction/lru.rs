//! Least recently used: the page that was left alone longest leaves first.
//!
//! ```text
//!   arrives, is used -> head (newest) <-> ... <-> tail (oldest) -> leaves
//! ```
//!
//! A page read ahead arrives at the head like any other, and its first use is a use like any
//! other: the policy has no place where a guess would wait apart from what was demanded.
//!
//! # Sources
//! Folklore; first measured by Belady (IBM Systems Journal 1966).

use alloc::vec::Vec;

use super::Eviction;
use crate::queue::{Links, Queue};
use crate::units::{FrameId, PageId};

/// See the module.
pub struct Lru {
    links: Links,
    queue: Queue,
}

impl Eviction for Lru {
    const NAME: &'static str = "lru";
    type Params = ();

    fn new(capacity: u32, (): ()) -> Self {
        Self { links: Links::new(capacity), queue: Queue::new() }
    }

    fn insert(&mut self, frame: FrameId, _: PageId, _: bool) {
        self.queue.push_front(&mut self.links, frame.0);
    }

    fn renew(&mut self, frame: FrameId) {
        self.queue.move_to_front(&mut self.links, frame.0);
    }

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
