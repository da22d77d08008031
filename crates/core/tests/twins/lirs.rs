//! LIRS, by a plain stack and a plain queue.
//!
//! # Sources
//! Jiang and Zhang (SIGMETRICS 2002), section 3. From Jiang's program: a page that is used twice in
//! a row was used once, and Q has two pages at least. Names are bounded as the policy says.

use forerun_core::units::{FrameId, PageId};

use super::apart::Paper;
use super::{Classic, Pinned, take};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lir,
    Hir,
    /// A HIR page that is not resident.
    Name,
}

fn lirs_max(capacity: usize) -> usize {
    capacity.saturating_sub(2.max(capacity / 100)).max(usize::from(capacity > 1))
}

/// As the trait calls it. `s[0]` is the bottom of S, `q[0]` the front of Q.
pub(super) struct Lirs {
    capacity: usize,
    /// Names that there may be.
    names_max: fn(usize) -> usize,
    s: Vec<(PageId, Kind)>,
    q: Vec<(FrameId, PageId)>,
    low: Vec<(FrameId, PageId)>,
    /// Names in the order in which their pages left.
    left: Vec<PageId>,
    last: Option<FrameId>,
    filling: bool,
}

impl Lirs {
    pub(super) fn new(capacity: u32, names_max: fn(usize) -> usize) -> Self {
        let (s, q, low, left) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let capacity = capacity as usize;
        Self { capacity, names_max, s, q, low, left, last: None, filling: true }
    }

    fn push(&mut self, x: PageId, kind: Kind) {
        self.s.retain(|y| y.0 != x);
        self.left.retain(|&y| y != x);
        self.s.push((x, kind));
    }

    /// Demotes what is too much, cuts S off below the lowest LIR page, bounds the names.
    fn settle(&mut self) {
        while self.low.len() > lirs_max(self.capacity) {
            let bottom = self.s.iter().position(|y| y.1 == Kind::Lir).expect("a LIR page");
            let (x, _) = self.s.remove(bottom);
            let at = self.low.iter().position(|y| y.1 == x).expect("it is resident");
            self.q.push(self.low.remove(at));
        }
        while self.s.first().is_some_and(|y| y.1 != Kind::Lir) {
            let (x, _) = self.s.remove(0);
            self.left.retain(|&y| y != x);
        }
    }

    fn trim(&mut self) {
        while self.left.len() > (self.names_max)(self.capacity) {
            let x = self.left.remove(0);
            self.s.retain(|y| y.0 != x);
        }
    }

    fn evict_lirs(&mut self, count: usize, pinned: Pinned) -> Vec<FrameId> {
        let mut out = Vec::new();
        let from_bottom: Vec<PageId> =
            self.s.iter().filter(|y| y.1 == Kind::Lir).map(|y| y.0).collect();
        for x in from_bottom {
            let at = self.low.iter().position(|y| y.1 == x).expect("it is resident");
            if out.len() < count && !pinned(self.low[at].0) {
                out.push(self.low.remove(at).0);
                self.s.retain(|y| y.0 != x);
            }
        }
        self.settle();
        out
    }
}

impl Paper for Lirs {
    fn insert(&mut self, frame: FrameId, x: PageId) {
        self.last = Some(frame);
        let in_s = self.s.iter().any(|y| y.0 == x);
        let fills = self.filling && self.low.len() + self.q.len() < lirs_max(self.capacity);
        if in_s || fills || self.low.is_empty() {
            self.push(x, Kind::Lir);
            self.low.push((frame, x));
        } else {
            self.push(x, Kind::Hir);
            self.q.push((frame, x));
        }
        self.settle();
        self.trim();
    }

    fn renew(&mut self, frame: FrameId) {
        if self.last.replace(frame) == Some(frame) {
            return;
        }
        if let Some(&(_, x)) = self.low.iter().find(|y| y.0 == frame) {
            self.push(x, Kind::Lir);
        } else {
            let at = self.q.iter().position(|y| y.0 == frame).expect("resident");
            let (_, x) = self.q.remove(at);
            if self.s.iter().any(|y| y.0 == x) || self.low.is_empty() {
                self.push(x, Kind::Lir);
                self.low.push((frame, x));
            } else {
                self.push(x, Kind::Hir);
                self.q.push((frame, x));
            }
        }
        self.settle();
    }

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        self.filling = false;
        let taken = take(&mut self.q, count, |y| !pinned(y.0));
        let bounded = (self.names_max)(self.capacity) == 0;
        for (_, x) in &taken {
            if let Some(entry) = self.s.iter_mut().find(|y| y.0 == *x) {
                entry.1 = Kind::Name;
                self.left.push(*x);
            }
        }
        if bounded {
            self.trim();
        }
        let mut out: Vec<FrameId> = taken.iter().map(|y| y.0).collect();
        out.extend(self.evict_lirs(count as usize - out.len(), pinned));
        out
    }

    fn forget(&mut self, frame: FrameId) {
        let all = self.low.iter().chain(&self.q);
        let x = all.clone().find(|y| y.0 == frame).expect("resident").1;
        self.low.retain(|y| y.0 != frame);
        self.q.retain(|y| y.0 != frame);
        self.s.retain(|y| y.0 != x);
        self.settle();
    }

    fn resize(&mut self, capacity: u32) {
        self.filling |= capacity as usize > self.capacity;
        self.capacity = capacity as usize;
        self.settle();
        self.trim();
    }
}

/// The paper's three cases, one call an access.
pub(super) struct Access {
    capacity: usize,
    s: Vec<(u64, Kind)>,
    q: Vec<u64>,
    last: Option<u64>,
}

impl Access {
    pub(super) fn boxed(capacity: usize) -> Box<dyn Classic> {
        Box::new(Self { capacity, s: Vec::new(), q: Vec::new(), last: None })
    }

    fn lirs(&self) -> usize {
        self.s.iter().filter(|y| y.1 == Kind::Lir).count()
    }

    /// To the top of S, as LIR; the bottom of S becomes HIR if that is one too many.
    fn make_lir(&mut self, x: u64) {
        self.s.retain(|y| y.0 != x);
        self.q.retain(|&y| y != x);
        self.s.push((x, Kind::Lir));
        if self.lirs() > lirs_max(self.capacity) {
            let bottom = self.s.iter().position(|y| y.1 == Kind::Lir).expect("too many");
            self.q.push(self.s.remove(bottom).0);
        }
    }

    /// To the top of S and to the end of Q, as HIR.
    fn make_hir(&mut self, x: u64) {
        self.s.retain(|y| y.0 != x);
        self.q.retain(|&y| y != x);
        self.s.push((x, Kind::Hir));
        self.q.push(x);
    }

    fn miss(&mut self, x: u64, in_s: bool) -> Option<u64> {
        let resident = self.lirs() + self.q.len();
        let left = (resident == self.capacity).then(|| self.q.remove(0));
        if let Some(entry) = self.s.iter_mut().find(|y| Some(y.0) == left) {
            entry.1 = Kind::Name;
        }
        // While there is room, pages are LIR at once.
        if in_s || resident < lirs_max(self.capacity) {
            self.make_lir(x);
        } else {
            self.make_hir(x);
        }
        left
    }
}

impl Classic for Access {
    fn access(&mut self, x: u64) -> Option<u64> {
        if self.last.replace(x) == Some(x) {
            return None;
        }
        let mut left = None;
        match (self.s.iter().find(|y| y.0 == x).map(|y| y.1), self.q.contains(&x)) {
            // 1: a LIR page goes to the top. 2: a resident HIR page becomes LIR if it is in S.
            (Some(Kind::Lir), _) | (Some(_), true) => self.make_lir(x),
            (None, true) => self.make_hir(x),
            // 3: a page that is not resident.
            (known, false) => left = self.miss(x, known.is_some()),
        }
        while self.s.first().is_some_and(|y| y.1 != Kind::Lir) {
            self.s.remove(0);
        }
        left
    }
}
