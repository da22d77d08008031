//! LFU: the page with the fewest uses, and among those the one that got there first.
//!
//! # Sources
//! Folklore, by search instead of buckets.

use forerun_core::units::{FrameId, PageId};

use super::apart::Paper;
use super::{Classic, Pinned};

/// Frames with their uses and the moment of the last one.
#[derive(Default)]
pub(super) struct Lfu {
    frames: Vec<(u32, u32, FrameId)>,
    now: u32,
}

impl Paper for Lfu {
    fn insert(&mut self, frame: FrameId, _: PageId) {
        self.now += 1;
        self.frames.push((1, self.now, frame));
    }

    fn renew(&mut self, frame: FrameId) {
        self.now += 1;
        let entry = self.frames.iter_mut().find(|x| x.2 == frame).expect("resident");
        *entry = (entry.0 + 1, self.now, frame);
    }

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        self.frames.sort_unstable();
        super::take(&mut self.frames, count, |x| !pinned(x.2)).iter().map(|x| x.2).collect()
    }

    fn forget(&mut self, frame: FrameId) {
        self.frames.retain(|x| x.2 != frame);
    }

    fn resize(&mut self, _: u32) {}
}

/// The same, one call an access.
pub(super) struct Access {
    capacity: usize,
    /// Uses, the moment of the last one, the page.
    pages: Vec<(u32, u32, u64)>,
    now: u32,
}

impl Access {
    pub(super) fn boxed(capacity: usize) -> Box<dyn Classic> {
        Box::new(Self { capacity, pages: Vec::new(), now: 0 })
    }
}

impl Classic for Access {
    fn access(&mut self, x: u64) -> Option<u64> {
        self.now += 1;
        if let Some(entry) = self.pages.iter_mut().find(|entry| entry.2 == x) {
            *entry = (entry.0 + 1, self.now, x);
            return None;
        }
        let full = self.pages.len() == self.capacity;
        let least = full.then(|| *self.pages.iter().min().expect("a full cache has pages"));
        self.pages.retain(|&entry| Some(entry) != least);
        self.pages.push((1, self.now, x));
        least.map(|entry| entry.2)
    }
}
