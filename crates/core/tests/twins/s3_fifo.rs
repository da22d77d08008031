//! S3-FIFO, by plain lists.
//!
//! # Sources
//! Yang et al. (SOSP 2023), algorithm 1. As in the authors' program, a full S hands on to M until
//! the first eviction, and an M that outgrew its share gives at the next one.

use forerun_core::units::{FrameId, PageId};

use super::apart::Paper;
use super::{Classic, Pinned};

/// Of S, G and M: a tenth, nine tenths, and what is left; twice used goes to M.
struct Sizes {
    small: usize,
    ghost: usize,
    main: usize,
}

fn sizes(capacity: usize) -> Sizes {
    let small = (capacity / 10).max(1);
    Sizes { small, ghost: capacity * 9 / 10, main: capacity.saturating_sub(small) }
}

/// As the trait calls it; lists begin with their tail.
pub(super) struct S3Fifo {
    capacity: usize,
    s: Vec<(FrameId, PageId, u32)>,
    m: Vec<(FrameId, PageId, u32)>,
    g: Vec<PageId>,
    filling: bool,
}

impl S3Fifo {
    pub(super) fn new(capacity: u32) -> Self {
        let (s, m, g) = (Vec::new(), Vec::new(), Vec::new());
        Self { capacity: capacity as usize, s, m, g, filling: true }
    }

    fn trim(&mut self) {
        let excess = self.g.len().saturating_sub(sizes(self.capacity).ghost);
        self.g.drain(..excess);
    }

    fn evict_s(&mut self, pinned: Pinned) -> Option<FrameId> {
        loop {
            let at = self.s.iter().position(|t| !pinned(t.0))?;
            let t = self.s.remove(at);
            if t.2 < 2 {
                if sizes(self.capacity).ghost > 0 {
                    self.g.push(t.1);
                }
                return Some(t.0);
            }
            self.m.push((t.0, t.1, 0));
        }
    }

    fn evict_m(&mut self, pinned: Pinned) -> Option<FrameId> {
        loop {
            let at = self.m.iter().position(|t| !pinned(t.0))?;
            let t = self.m.remove(at);
            if t.2 == 0 {
                return Some(t.0);
            }
            self.m.push((t.0, t.1, t.2 - 1));
        }
    }
}

impl Paper for S3Fifo {
    fn insert(&mut self, frame: FrameId, x: PageId) {
        let known = self.g.contains(&x);
        self.g.retain(|&y| y != x);
        self.trim();
        let full = self.filling && self.s.len() >= sizes(self.capacity).small;
        let queue = if known || full { &mut self.m } else { &mut self.s };
        queue.push((frame, x, 0));
    }

    fn renew(&mut self, frame: FrameId) {
        let mut all = self.s.iter_mut().chain(&mut self.m);
        let x = all.find(|x| x.0 == frame).expect("resident");
        x.2 = 3.min(x.2 + 1);
    }

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        self.filling = false;
        let victim = |_| {
            let first = self.m.len() > sizes(self.capacity).main;
            let of_m = if first { self.evict_m(pinned) } else { None };
            of_m.or_else(|| self.evict_s(pinned)).or_else(|| self.evict_m(pinned))
        };
        (0..count).map_while(victim).collect()
    }

    fn forget(&mut self, frame: FrameId) {
        self.s.retain(|x| x.0 != frame);
        self.m.retain(|x| x.0 != frame);
    }

    fn resize(&mut self, capacity: u32) {
        self.filling |= capacity as usize > self.capacity;
        self.capacity = capacity as usize;
        self.trim();
    }
}

/// Algorithm 1, one call an access.
pub(super) struct Access {
    capacity: usize,
    s: Vec<(u64, u32)>,
    m: Vec<(u64, u32)>,
    g: Vec<u64>,
    filling: bool,
}

impl Access {
    pub(super) fn boxed(capacity: usize) -> Box<dyn Classic> {
        let (s, m, g) = (Vec::new(), Vec::new(), Vec::new());
        Box::new(Self { capacity, s, m, g, filling: true })
    }

    fn evict(&mut self) -> u64 {
        let sizes = sizes(self.capacity);
        if self.m.len() <= sizes.main {
            while !self.s.is_empty() {
                let (t, freq) = self.s.remove(0);
                if freq <= 1 {
                    self.g.push(t);
                    if self.g.len() > sizes.ghost {
                        self.g.remove(0);
                    }
                    return t;
                }
                self.m.push((t, 0));
            }
        }
        loop {
            let (t, freq) = self.m.remove(0);
            if freq == 0 {
                return t;
            }
            self.m.push((t, freq - 1));
        }
    }
}

impl Classic for Access {
    fn access(&mut self, x: u64) -> Option<u64> {
        if let Some(hit) = self.s.iter_mut().chain(&mut self.m).find(|y| y.0 == x) {
            hit.1 = 3.min(hit.1 + 1);
            return None;
        }
        let known = self.g.contains(&x);
        self.g.retain(|&y| y != x);
        let full = self.s.len() + self.m.len() == self.capacity;
        let left = full.then(|| self.evict());
        self.filling &= !full;
        if known || (self.filling && self.s.len() >= sizes(self.capacity).small) {
            self.m.push((x, 0));
        } else {
            self.s.push((x, 0));
        }
        left
    }
}
