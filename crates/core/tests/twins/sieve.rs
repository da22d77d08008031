//! SIEVE, by a plain list and an index for its hand.
//!
//! # Sources
//! Zhang et al. (NSDI 2024), algorithm 1.

use forerun_core::units::{FrameId, PageId};

use super::apart::Paper;
use super::{Classic, Pinned};

/// `[0]` is the tail; the hand is an index, and one past the end means the tail.
#[derive(Default)]
pub(super) struct Sieve {
    queue: Vec<(FrameId, bool)>,
    hand: usize,
}

impl Paper for Sieve {
    fn insert(&mut self, frame: FrameId, _: PageId) {
        // A hand that passed the head stands before the tail, not at what comes next.
        if self.hand >= self.queue.len() {
            self.hand = 0;
        }
        self.queue.push((frame, false));
    }

    fn renew(&mut self, frame: FrameId) {
        self.queue.iter_mut().find(|x| x.0 == frame).expect("resident").1 = true;
    }

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        let mut out = Vec::new();
        // Where the others may not leave the hand stays behind the last one that may.
        while out.len() < count as usize && self.queue.iter().any(|x| !pinned(x.0)) {
            if self.hand >= self.queue.len() {
                self.hand = 0;
            }
            let (frame, visited) = self.queue[self.hand];
            if pinned(frame) {
                self.hand += 1;
            } else if visited {
                self.queue[self.hand].1 = false;
                self.hand += 1;
            } else {
                self.queue.remove(self.hand);
                out.push(frame);
            }
        }
        out
    }

    fn forget(&mut self, frame: FrameId) {
        let at = self.queue.iter().position(|x| x.0 == frame).expect("resident");
        self.queue.remove(at);
        self.hand -= usize::from(at < self.hand);
    }

    fn resize(&mut self, _: u32) {}
}

/// Algorithm 1, one call an access.
pub(super) struct Access {
    capacity: usize,
    /// `[0]` is the tail.
    queue: Vec<(u64, bool)>,
    hand: Option<u64>,
}

impl Access {
    pub(super) fn boxed(capacity: usize) -> Box<dyn Classic> {
        Box::new(Self { capacity, queue: Vec::new(), hand: None })
    }

    fn evict(&mut self) -> u64 {
        let hand = self.hand.and_then(|x| self.queue.iter().position(|y| y.0 == x));
        let mut o = hand.unwrap_or(0);
        while self.queue[o].1 {
            self.queue[o].1 = false;
            o = (o + 1) % self.queue.len();
        }
        self.hand = self.queue.get(o + 1).map(|y| y.0);
        self.queue.remove(o).0
    }
}

impl Classic for Access {
    fn access(&mut self, x: u64) -> Option<u64> {
        if let Some(hit) = self.queue.iter_mut().find(|y| y.0 == x) {
            hit.1 = true;
            return None;
        }
        let left = (self.queue.len() == self.capacity).then(|| self.evict());
        self.queue.push((x, false));
        left
    }
}
