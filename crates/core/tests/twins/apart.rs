//! Pages read ahead beside a policy that knows none: they become its own when they are used.
//!
//! # Sources
//! `eviction/ahead.rs`, whose twin this is.

use forerun_core::units::{FrameId, PageId};

use super::{Pinned, Twin, len, take};

/// A policy whose pages were all asked for.
pub(super) trait Paper {
    fn missed(&mut self, _page: PageId) {}
    fn insert(&mut self, frame: FrameId, page: PageId);
    fn renew(&mut self, frame: FrameId);
    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId>;
    fn forget(&mut self, frame: FrameId);
    fn resize(&mut self, capacity: u32);
}

/// It, and the pages read ahead.
pub(super) struct Apart<P> {
    paper: P,
    capacity: u32,
    unread: Vec<Unread>,
    arrivals: u32,
}

#[derive(Clone, Copy)]
struct Unread {
    frame: FrameId,
    page: PageId,
    arrival: u32,
}

impl<P: Paper + 'static> Apart<P> {
    pub(super) fn boxed(capacity: u32, paper: P) -> Box<dyn Twin> {
        Box::new(Self { paper, capacity, unread: Vec::new(), arrivals: 0 })
    }
}

impl<P: Paper> Twin for Apart<P> {
    fn missed(&mut self, page: PageId) {
        self.paper.missed(page);
    }

    fn insert(&mut self, frame: FrameId, page: PageId, prefetched: bool) {
        self.arrivals += 1;
        if prefetched {
            self.unread.push(Unread { frame, page, arrival: self.arrivals });
        } else {
            self.paper.insert(frame, page);
        }
    }

    fn renew(&mut self, frame: FrameId) {
        let found = self.unread.iter().position(|x| x.frame == frame);
        if let Some(at) = found {
            let page = self.unread.remove(at).page;
            self.paper.missed(page);
            self.paper.insert(frame, page);
        } else {
            self.paper.renew(frame);
        }
    }

    fn evict(&mut self, count: u32, pinned: Pinned) -> Vec<FrameId> {
        let (arrivals, turns) = (self.arrivals, 4 * self.capacity);
        let stale = |x: &Unread| arrivals - x.arrival >= turns && !pinned(x.frame);
        let mut out: Vec<FrameId> =
            take(&mut self.unread, count, stale).into_iter().map(|x| x.frame).collect();
        out.extend(self.paper.evict(count - len(&out), pinned));
        let last = take(&mut self.unread, count - len(&out), |x| !pinned(x.frame));
        out.extend(last.into_iter().map(|x| x.frame));
        out
    }

    fn forget(&mut self, frame: FrameId) {
        let before = self.unread.len();
        self.unread.retain(|x| x.frame != frame);
        if self.unread.len() == before {
            self.paper.forget(frame);
        }
    }

    fn resize(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.paper.resize(capacity);
    }
}
