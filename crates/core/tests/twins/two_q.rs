//! 2Q and 2Q*, as FlexiCache calls them and as their papers have them.
//!
//! # Sources
//! Johnson and Shasha (VLDB 1994); Meng et al. 2009, sections 3 and 4.

use forerun_core::units::{FrameId, PageId};

use super::{Classic, Pinned, Twin, len, part, take};

/// FlexiCache's listing of 2Q* (Meng et al. 2009, section 4), whose A1in is FIFO in 2Q. Ours: pages
/// of A1in that were read ahead and not used leave after those that were.
pub(super) struct TwoQ {
    star: bool,
    kin: (u32, u32),
    kout: (u32, u32),
    capacity: u32,
    a1in: Vec<Block>,
    am: Vec<Block>,
    a1out: Vec<PageId>,
    /// Pages that came so far.
    arrivals: u32,
}

#[derive(Clone, Copy)]
struct Block {
    frame: FrameId,
    page: PageId,
    pref: bool,
    hot: bool,
    /// The how manyth page it was.
    arrival: u32,
}

impl TwoQ {
    pub(super) fn boxed(
        star: bool,
        kin: (u32, u32),
        kout: (u32, u32),
        capacity: u32,
    ) -> Box<dyn Twin> {
        let (a1in, am, a1out) = (Vec::new(), Vec::new(), Vec::new());
        Box::new(Self { star, kin, kout, capacity, a1in, am, a1out, arrivals: 0 })
    }

    /// Names beyond the limit go once the next page has looked for its own, or the size changed.
    fn trim(&mut self) {
        let excess = self.a1out.len().saturating_sub(part(self.kout, self.capacity));
        self.a1out.drain(..excess);
    }

    /// What leaves A1in: wrong guesses, used pages but for a sixteenth, unread ones, the rest.
    fn leave_a1in(&mut self, count: u32, may_leave: &dyn Fn(&Block) -> bool) -> Vec<Block> {
        let mut out = Vec::new();
        while len(&out) < count {
            let Some(oldest) = self.a1in.iter().find(|x| x.pref) else { break };
            if self.arrivals - oldest.arrival < 4 * self.capacity {
                break;
            }
            let stale = take(&mut self.a1in, 1, |x| x.pref && may_leave(x));
            if stale.is_empty() {
                break;
            }
            out.extend(stale);
        }
        let used = self.a1in.iter().filter(|x| !x.pref).count();
        let used = u32::try_from(used.saturating_sub(self.a1in.len() / 16)).unwrap();
        let first = used.min(count - len(&out));
        out.extend(take(&mut self.a1in, first, |x| !x.pref && may_leave(x)));
        out.extend(take(&mut self.a1in, count - len(&out), |x| x.pref && may_leave(x)));
        out.extend(take(&mut self.a1in, count - len(&out), may_leave));
        out
    }
}

impl Twin for TwoQ {
    fn insert(&mut self, frame: FrameId, page: PageId, prefetched: bool) {
        self.arrivals += 1;
        let arrival = self.arrivals;
        let mut x = Block { frame, page, pref: prefetched, hot: false, arrival };
        if self.a1out.contains(&page) {
            self.a1out.retain(|&other| other != page);
            x.hot = true;
            if x.pref { self.a1in.push(x) } else { self.am.push(x) }
        } else {
            self.a1in.push(x);
        }
        self.trim();
    }

    fn renew(&mut self, frame: FrameId) {
        let all = self.a1in.iter().chain(&self.am);
        let mut x = *all.clone().find(|x| x.frame == frame).expect("resident");
        let first = core::mem::take(&mut x.pref);
        if x.hot {
            self.forget(frame);
            self.am.push(x);
        } else if self.star || first {
            self.forget(frame);
            self.a1in.push(x);
        }
    }

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        let may_leave = |x: &Block| !pinned(x.frame);
        let resident = u32::try_from(self.a1in.len() + self.am.len()).unwrap();
        // One more than what will be left: the page that this is for.
        let limit = part(self.kin, resident.saturating_sub(count) + 1);
        let a1in_first = self.a1in.len() > limit;
        let (most, rest) = if a1in_first {
            let most = self.leave_a1in(count, &may_leave);
            let rest = take(&mut self.am, count - len(&most), may_leave);
            (most, rest)
        } else {
            let most = take(&mut self.am, count, may_leave);
            let rest = self.leave_a1in(count - len(&most), &may_leave);
            (most, rest)
        };
        if part(self.kout, self.capacity) > 0 {
            let from_a1in = if a1in_first { &most } else { &rest };
            self.a1out.extend(from_a1in.iter().map(|x| x.page));
        }
        most.iter().chain(&rest).map(|x| x.frame).collect()
    }

    fn forget(&mut self, frame: FrameId) {
        self.a1in.retain(|x| x.frame != frame);
        self.am.retain(|x| x.frame != frame);
    }

    fn resize(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.trim();
    }
}

/// 2Q as its paper has it (Johnson and Shasha 1994), and 2Q* as its own (Meng et al. 2009,
/// section 3): one call an access, one slot freed a miss.
pub(super) struct Access {
    star: bool,
    kin: usize,
    kout: usize,
    capacity: usize,
    a1in: Vec<u64>,
    am: Vec<u64>,
    a1out: Vec<u64>,
}

impl Access {
    pub(super) fn boxed(
        star: bool,
        kin: (u32, u32),
        kout: (u32, u32),
        capacity: usize,
    ) -> Box<dyn Classic> {
        let frames = u32::try_from(capacity).expect("few");
        let (a1in, am, a1out) = (Vec::new(), Vec::new(), Vec::new());
        let (kin, kout) = (part(kin, frames), part(kout, frames));
        Box::new(Self { star, kin, kout, capacity, a1in, am, a1out })
    }
    fn free_a_slot(&mut self) -> Option<u64> {
        if self.a1in.len() + self.am.len() < self.capacity {
            return None;
        }
        if self.a1in.len() <= self.kin && !self.am.is_empty() {
            return Some(self.am.remove(0));
        }
        let y = self.a1in.remove(0);
        self.a1out.push(y);
        if self.a1out.len() > self.kout {
            self.a1out.remove(0);
        }
        Some(y)
    }
}

impl Classic for Access {
    fn access(&mut self, b: u64) -> Option<u64> {
        if self.am.contains(&b) {
            self.am.retain(|&other| other != b);
            self.am.push(b);
            None
        } else if self.a1in.contains(&b) {
            if self.star {
                self.a1in.retain(|&other| other != b);
                self.a1in.push(b);
            }
            None
        } else if self.a1out.contains(&b) {
            self.a1out.retain(|&other| other != b);
            let left = self.free_a_slot();
            self.am.push(b);
            left
        } else {
            let left = self.free_a_slot();
            self.a1in.push(b);
            left
        }
    }
}
