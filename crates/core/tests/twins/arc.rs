//! ARC, by four plain lists.
//!
//! # Sources
//! Megiddo and Modha (FAST 2003), figure 4. The target is in parts of 2^-32, as the policy's is.

use forerun_core::units::{FrameId, PageId};

use super::apart::Paper;
use super::{Classic, Pinned};

const ONE: u64 = 1 << 32;

/// |`of`| / |`by`|, or one if that is more.
fn delta<T, U>(of: &[T], by: &[U]) -> u64 {
    let (of, by) = (of.len() as u64, by.len() as u64);
    if of <= by { ONE } else { (of * ONE + by / 2) / by }
}

/// As the trait calls it; lists begin with their LRU page.
pub(super) struct Arc {
    c: usize,
    p: u64,
    t1: Vec<(FrameId, PageId)>,
    t2: Vec<(FrameId, PageId)>,
    b1: Vec<PageId>,
    b2: Vec<PageId>,
    in_b2: bool,
}

impl Arc {
    pub(super) fn new(capacity: u32) -> Self {
        let (t1, t2, b1, b2) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { c: capacity as usize, p: 0, t1, t2, b1, b2, in_b2: false }
    }

    fn trim(&mut self) {
        while self.t1.len() + self.b1.len() > self.c && !self.b1.is_empty() {
            self.b1.remove(0);
        }
        let all = |s: &Self| s.t1.len() + s.t2.len() + s.b1.len() + s.b2.len();
        while all(self) > 2 * self.c && !self.b2.is_empty() {
            self.b2.remove(0);
        }
    }
}

impl Paper for Arc {
    fn missed(&mut self, x: PageId) {
        self.in_b2 = self.b2.contains(&x);
        if self.b1.contains(&x) {
            self.p = (self.p + delta(&self.b2, &self.b1)).min(self.c as u64 * ONE);
        } else if self.in_b2 {
            self.p = self.p.saturating_sub(delta(&self.b1, &self.b2));
        }
    }

    fn insert(&mut self, frame: FrameId, x: PageId) {
        if self.b1.contains(&x) || self.b2.contains(&x) {
            self.b1.retain(|&y| y != x);
            self.b2.retain(|&y| y != x);
            self.t2.push((frame, x));
        } else {
            self.t1.push((frame, x));
        }
        self.in_b2 = false;
        self.trim();
    }

    fn renew(&mut self, frame: FrameId) {
        let all = self.t1.iter().chain(&self.t2);
        let x = *all.clone().find(|x| x.0 == frame).expect("resident");
        self.forget(frame);
        self.t2.push(x);
    }

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        let mut out = Vec::new();
        for _ in 0..count {
            let of_t1 = self.t1.iter().position(|x| !pinned(x.0));
            let of_t2 = self.t2.iter().position(|x| !pinned(x.0));
            let length = self.t1.len() as u64 * ONE;
            let t1_first = length > self.p || (length == self.p && self.in_b2);
            let (frame, _) = match (of_t1, of_t2) {
                (Some(at), _) if t1_first || of_t2.is_none() => {
                    self.b1.push(self.t1[at].1);
                    self.t1.remove(at)
                }
                (_, Some(at)) => {
                    self.b2.push(self.t2[at].1);
                    self.t2.remove(at)
                }
                (_, None) => break,
            };
            out.push(frame);
        }
        out
    }

    fn forget(&mut self, frame: FrameId) {
        self.t1.retain(|x| x.0 != frame);
        self.t2.retain(|x| x.0 != frame);
    }

    fn resize(&mut self, capacity: u32) {
        self.c = capacity as usize;
        self.p = self.p.min(self.c as u64 * ONE);
        self.trim();
    }
}

/// Figure 4, case by case.
pub(super) struct Access {
    c: usize,
    p: u64,
    t1: Vec<u64>,
    t2: Vec<u64>,
    b1: Vec<u64>,
    b2: Vec<u64>,
}

impl Access {
    pub(super) fn boxed(c: usize) -> Box<dyn Classic> {
        let (t1, t2, b1, b2) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Box::new(Self { c, p: 0, t1, t2, b1, b2 })
    }

    fn replace(&mut self, x: u64) -> u64 {
        let length = self.t1.len() as u64 * ONE;
        let at_target = self.b2.contains(&x) && length == self.p;
        if !self.t1.is_empty() && (at_target || length > self.p) {
            let y = self.t1.remove(0);
            self.b1.push(y);
            y
        } else {
            let y = self.t2.remove(0);
            self.b2.push(y);
            y
        }
    }
}

impl Classic for Access {
    fn access(&mut self, x: u64) -> Option<u64> {
        let (l1, l2) = (self.t1.len() + self.b1.len(), self.t2.len() + self.b2.len());
        if self.t1.contains(&x) || self.t2.contains(&x) {
            // Case I.
            self.t1.retain(|&y| y != x);
            self.t2.retain(|&y| y != x);
            self.t2.push(x);
            None
        } else if self.b1.contains(&x) {
            // Case II.
            self.p = (self.p + delta(&self.b2, &self.b1)).min(self.c as u64 * ONE);
            let left = self.replace(x);
            self.b1.retain(|&y| y != x);
            self.t2.push(x);
            Some(left)
        } else if self.b2.contains(&x) {
            // Case III.
            self.p = self.p.saturating_sub(delta(&self.b1, &self.b2));
            let left = self.replace(x);
            self.b2.retain(|&y| y != x);
            self.t2.push(x);
            Some(left)
        } else {
            // Case IV.
            let left = if l1 == self.c {
                if self.t1.len() < self.c {
                    self.b1.remove(0);
                    Some(self.replace(x))
                } else {
                    Some(self.t1.remove(0))
                }
            } else if l1 + l2 >= self.c {
                if l1 + l2 == 2 * self.c {
                    self.b2.remove(0);
                }
                Some(self.replace(x))
            } else {
                None
            };
            self.t1.push(x);
            left
        }
    }
}
