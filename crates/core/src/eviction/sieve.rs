//! SIEVE: FIFO whose hand passes over what was used, and leaves it where it is.
//!
//! ```text
//!   arrives -> head (newest) <-> ... <-> [hand] <-> ... <-> tail (oldest)
//!                                 <- visited? clear the bit, go on; not? it leaves
//! ```
//!
//! CLOCK moves what it spares to the head, among new pages. Here it keeps its place behind them, so
//! the hand, which comes from the tail and goes on where it stood, sifts new pages out quickly.
//! The hand passes over a frame that may not leave without clearing its bit.
//!
//! # Invariants
//! - The hand stands at a frame of the queue, or before its tail.
//! - An eviction goes round twice at most: the second time every bit is clear.
//! # Sources
//! Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is Simpler than LRU" (NSDI 2024), algorithm 1. Pages
//! read ahead: `ahead.rs`.

use alloc::vec::Vec;

use super::Eviction;
use super::ahead::Ahead;
use crate::queue::{Links, Queue, Table};
use crate::units::{FrameId, PageId};

/// See the module.
pub type Sieve = Ahead<Sifter>;

/// The queue and its hand.
pub struct Sifter {
    links: Links,
    queue: Queue,
    visited: Table<bool>,
    /// Where the next search begins; at the tail if nowhere.
    hand: Option<u32>,
}

impl Eviction for Sifter {
    const NAME: &'static str = "sieve";
    type Params = ();

    fn new(capacity: u32, (): ()) -> Self {
        Self {
            links: Links::new(capacity),
            queue: Queue::new(),
            visited: Table::new(capacity),
            hand: None,
        }
    }

    fn insert(&mut self, frame: FrameId, _: PageId, _: bool) {
        self.queue.push_front(&mut self.links, frame.0);
        *self.visited.at(frame.0) = false;
    }

    fn renew(&mut self, frame: FrameId) {
        *self.visited.at(frame.0) = true;
    }

    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>) {
        let stands = |hand| self.links.is_linked(hand);
        assert!(self.hand.is_none_or(stands), "the hand stands at a frame of the queue");
        let (mut taken, mut steps) = (0, 2 * u64::from(self.queue.len()));
        while taken < count
            && steps > 0
            && let Some(frame) = self.hand.or(self.queue.tail())
        {
            steps -= 1;
            self.hand = self.links.newer(frame);
            if !evictable(FrameId(frame)) {
                continue;
            }
            if self.visited.get(frame) {
                *self.visited.at(frame) = false;
                continue;
            }
            self.queue.remove(&mut self.links, frame);
            out.push(FrameId(frame));
            taken += 1;
        }
    }

    fn forget(&mut self, frame: FrameId) {
        if self.hand == Some(frame.0) {
            self.hand = self.links.newer(frame.0);
        }
        self.queue.remove(&mut self.links, frame.0);
    }

    fn bytes(frames: u32, _: u32, (): &()) -> u64 {
        u64::from(frames) * (Links::ROW_BYTES + Table::<bool>::ROW_BYTES)
    }
}
