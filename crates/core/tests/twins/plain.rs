//! Policies that need one list: FIFO, LRU, CLOCK.
//!
//! # Sources
//! Each names its own.

use forerun_core::units::{FrameId, PageId};

use super::{Pinned, Twin, take};

/// First in, first out.
#[derive(Default)]
pub(super) struct Fifo {
    frames: Vec<FrameId>,
}

impl Twin for Fifo {
    fn insert(&mut self, frame: FrameId, _: PageId, _: bool) {
        self.frames.push(frame);
    }

    fn renew(&mut self, _: FrameId) {}

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        take(&mut self.frames, count, |&frame| !pinned(frame))
    }

    fn forget(&mut self, frame: FrameId) {
        self.frames.retain(|&other| other != frame);
    }

    fn resize(&mut self, _: u32) {}
}

/// Least recently used, by the time of the last use.
#[derive(Default)]
pub(super) struct Lru {
    used: Vec<(u64, FrameId)>,
    now: u64,
}

impl Twin for Lru {
    fn insert(&mut self, frame: FrameId, _: PageId, _: bool) {
        self.now += 1;
        self.used.push((self.now, frame));
    }

    fn renew(&mut self, frame: FrameId) {
        self.forget(frame);
        self.insert(frame, PageId::default(), false);
    }

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        self.used.sort_unstable();
        let taken = take(&mut self.used, count, |&(_, frame)| !pinned(frame));
        taken.into_iter().map(|(_, frame)| frame).collect()
    }

    fn forget(&mut self, frame: FrameId) {
        self.used.retain(|&(_, other)| other != frame);
    }

    fn resize(&mut self, _: u32) {}
}

/// Corbato 1968, one bit: the hand stands at the oldest frame that it may take.
#[derive(Default)]
pub(super) struct Clock {
    ring: Vec<(FrameId, bool)>,
}

impl Twin for Clock {
    fn insert(&mut self, frame: FrameId, _: PageId, _: bool) {
        self.ring.push((frame, false));
    }

    fn renew(&mut self, frame: FrameId) {
        let entry = self.ring.iter_mut().find(|(other, _)| *other == frame);
        entry.expect("only resident frames are used").1 = true;
    }

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        let mut out = Vec::new();
        while out.len() < count as usize {
            let Some(hand) = self.ring.iter().position(|&(frame, _)| !pinned(frame)) else {
                break;
            };
            match self.ring.remove(hand) {
                (frame, true) => self.ring.push((frame, false)),
                (frame, false) => out.push(frame),
            }
        }
        out
    }

    fn forget(&mut self, frame: FrameId) {
        self.ring.retain(|&(other, _)| other != frame);
    }

    fn resize(&mut self, _: u32) {}
}
