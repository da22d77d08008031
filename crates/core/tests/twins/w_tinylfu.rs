//! W-TinyLFU, by three plain lists and the sketch, which has tests of its own.
//!
//! # Sources
//! Einziger, Friedman, Manes (ACM Transactions on Storage 2017), sections 4.1 and 5.

use forerun_core::sketch::Sketch;
use forerun_core::units::{FrameId, PageId};

use super::apart::Paper;
use super::{Classic, Pinned, page};

fn window_max(capacity: usize) -> usize {
    (capacity / 100).max(1)
}

fn protected_max(capacity: usize) -> usize {
    capacity.saturating_sub(window_max(capacity)) * 8 / 10
}

type Page = (FrameId, PageId);

/// As the trait calls it; lists begin with their LRU page.
pub(super) struct WTinyLfu {
    capacity: usize,
    sketch: Sketch,
    window: Vec<Page>,
    probation: Vec<Page>,
    protected: Vec<Page>,
}

impl WTinyLfu {
    pub(super) fn new(capacity: u32) -> Self {
        let sketch = Sketch::new(capacity, 10 * u64::from(capacity));
        let (window, probation, protected) = (Vec::new(), Vec::new(), Vec::new());
        Self { capacity: capacity as usize, sketch, window, probation, protected }
    }

    fn balance(&mut self) {
        while self.window.len() > window_max(self.capacity) {
            self.probation.push(self.window.remove(0));
        }
        while self.protected.len() > protected_max(self.capacity) {
            self.probation.push(self.protected.remove(0));
        }
    }

    fn victim(&mut self, left: usize, pinned: Pinned) -> Option<FrameId> {
        let oldest = |list: &[Page]| list.iter().copied().find(|x| !pinned(x.0));
        let candidate = oldest(&self.window);
        let of_main = oldest(&self.probation).or_else(|| oldest(&self.protected));
        let overflows = self.window.len() + left > window_max(self.capacity);
        let victim = match (candidate, of_main) {
            (Some(candidate), Some(of_main)) if overflows => {
                if self.sketch.estimate(candidate.1) > self.sketch.estimate(of_main.1) {
                    self.window.retain(|&x| x != candidate);
                    self.probation.push(candidate);
                    of_main
                } else {
                    candidate
                }
            }
            (candidate, of_main) => of_main.or(candidate)?,
        };
        self.forget(victim.0);
        Some(victim.0)
    }
}

impl Paper for WTinyLfu {
    fn missed(&mut self, x: PageId) {
        self.sketch.record(x);
    }

    fn insert(&mut self, frame: FrameId, x: PageId) {
        self.window.push((frame, x));
        self.balance();
    }

    fn renew(&mut self, frame: FrameId) {
        let all = self.window.iter().chain(&self.probation).chain(&self.protected);
        let x = *all.clone().find(|x| x.0 == frame).expect("resident");
        self.sketch.record(x.1);
        let in_window = self.window.contains(&x);
        self.forget(frame);
        if in_window {
            self.window.push(x);
        } else {
            self.protected.push(x);
        }
        self.balance();
    }

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        (1..=count as usize).rev().map_while(|left| self.victim(left, pinned)).collect()
    }

    fn forget(&mut self, frame: FrameId) {
        for list in [&mut self.window, &mut self.probation, &mut self.protected] {
            list.retain(|x| x.0 != frame);
        }
    }

    fn resize(&mut self, capacity: u32) {
        self.capacity = capacity as usize;
        self.sketch.resize(capacity, 10 * u64::from(capacity));
        self.balance();
    }
}

/// One call an access: what overflows the window contends with main's victim.
pub(super) struct Access {
    capacity: usize,
    sketch: Sketch,
    window: Vec<u64>,
    probation: Vec<u64>,
    protected: Vec<u64>,
}

impl Access {
    pub(super) fn boxed(capacity: usize) -> Box<dyn Classic> {
        let frames = u32::try_from(capacity).expect("few");
        let sketch = Sketch::new(frames, 10 * u64::from(frames));
        let (window, probation, protected) = (Vec::new(), Vec::new(), Vec::new());
        Box::new(Self { capacity, sketch, window, probation, protected })
    }

    fn contend(&mut self, candidate: u64) -> Option<u64> {
        let main = self.probation.len() + self.protected.len();
        if main < self.capacity - window_max(self.capacity) {
            self.probation.push(candidate);
            return None;
        }
        let of_main = self.probation.first().or(self.protected.first()).copied();
        let used = |x: u64| self.sketch.estimate(page(x));
        match of_main.filter(|&victim| used(candidate) > used(victim)) {
            Some(victim) => {
                self.probation.retain(|&x| x != victim);
                self.protected.retain(|&x| x != victim);
                self.probation.push(candidate);
                Some(victim)
            }
            None => Some(candidate),
        }
    }
}

impl Classic for Access {
    fn access(&mut self, x: u64) -> Option<u64> {
        self.sketch.record(page(x));
        if self.window.contains(&x) {
            self.window.retain(|&y| y != x);
            self.window.push(x);
        } else if self.probation.contains(&x) || self.protected.contains(&x) {
            self.probation.retain(|&y| y != x);
            self.protected.retain(|&y| y != x);
            self.protected.push(x);
            if self.protected.len() > protected_max(self.capacity) {
                self.probation.push(self.protected.remove(0));
            }
        } else {
            self.window.push(x);
            if self.window.len() > window_max(self.capacity) {
                let candidate = self.window.remove(0);
                return self.contend(candidate);
            }
        }
        None
    }
}
