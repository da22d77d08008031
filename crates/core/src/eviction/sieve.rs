//! SIEVE: FIFO whose hand passes over what was used, and leaves it where it is.
//!
//! ```text
//!   arrives -> head (newest) <-> ... <-> [hand] <-> ... <-> tail (oldest)
//!                                 <- visited? clear the bit, go on; not? it leaves
//! ```
//!
//! CLOCK moves what it spares to the head, among new pages. Here it keeps its place behind them, so
//! the hand, which comes from the tail and goes on where it stood, sifts new pages out quickly.
//! The hand passes over a frame that may not leave without clearing its bit. Such a frame is taken
//! out of the queue, with its number in the order of arrival, so that the hand meets it once; when
//! it may leave again, the hand meets it at its place, and if it is spared, puts it there.
//!
//! # Invariants
//! - A frame is in the queue, or it was passed over. The hand stands at one of either kind, or
//!   before the tail.
//! - The queue is in the order of arrival. Frames are numbered from the first that was passed over.
//! - The hand meets a frame of the queue twice at most in an eviction: then its bit is clear. Where
//!   too few may leave it stays behind the last one that may.
//! # Sources
//! Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is Simpler than LRU" (NSDI 2024), algorithm 1. Pages
//! read ahead: `ahead.rs`.

use alloc::collections::BTreeMap;
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
    /// All but those passed over.
    queue: Queue,
    visited: Table<bool>,
    /// Where the next search begins; at the tail if nowhere.
    hand: Option<u32>,
    /// Arrivals so far, and the number of each frame; none before a frame is passed over.
    arrivals: u64,
    arrived: Table<u64>,
    /// Those passed over that may not leave, by their numbers, and those that may again.
    aside: BTreeMap<u64, u32>,
    open: BTreeMap<u64, u32>,
    /// Where frames are numbered: the first of the queue from the hand on.
    next: Option<u32>,
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
            arrivals: 0,
            arrived: Table::new(0),
            aside: BTreeMap::new(),
            open: BTreeMap::new(),
            next: None,
        }
    }

    fn insert(&mut self, frame: FrameId, _: PageId, _: bool) {
        self.queue.push_front(&mut self.links, frame.0);
        *self.visited.at(frame.0) = false;
        if self.arrivals > 0 {
            self.number(frame.0);
            if self.hand.is_some() && self.next.is_none() {
                self.next = Some(frame.0);
            }
        }
    }

    fn renew(&mut self, frame: FrameId) {
        *self.visited.at(frame.0) = true;
    }

    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>) {
        let mut taken = 0;
        while self.arrivals == 0
            && taken < count
            && let Some(frame) = self.hand.or(self.queue.tail())
        {
            if !evictable(FrameId(frame)) {
                self.number_all();
                break;
            }
            self.hand = self.links.newer(frame);
            if !core::mem::take(self.visited.at(frame)) {
                self.queue.remove(&mut self.links, frame);
                out.push(FrameId(frame));
                taken += 1;
            }
        }
        while self.arrivals > 0
            && taken < count
            && let Some((frame, next)) = self.meet()
        {
            if !evictable(FrameId(frame)) {
                self.pass_over(frame, next);
                continue;
            }
            let newer = self.beyond(frame, next);
            if core::mem::take(self.visited.at(frame)) {
                self.spare(frame, next);
            } else {
                self.take_out(frame);
                out.push(FrameId(frame));
                taken += 1;
            }
            (self.hand, self.next) = (newer, next);
        }
    }

    fn may_leave(&mut self, frame: FrameId) {
        if self.aside.is_empty() || self.links.is_linked(frame.0) {
            return;
        }
        let number = self.arrived.get(frame.0);
        if let Some(frame) = self.aside.remove(&number) {
            self.open.insert(number, frame);
        }
    }

    fn forget(&mut self, frame: FrameId) {
        if self.arrivals == 0 {
            if self.hand == Some(frame.0) {
                self.hand = self.links.newer(frame.0);
            }
            return self.queue.remove(&mut self.links, frame.0);
        }
        let linked = self.links.is_linked(frame.0);
        let next = if linked { self.links.newer(frame.0) } else { self.next };
        if self.hand == Some(frame.0) {
            (self.hand, self.next) = (self.beyond(frame.0, next), next);
        } else if self.next == Some(frame.0) {
            self.next = next;
        }
        self.take_out(frame.0);
    }

    fn bytes(frames: u32, _: u32, (): &()) -> u64 {
        u64::from(frames) * (Links::ROW_BYTES + Table::<bool>::ROW_BYTES)
    }
}

impl Sifter {
    /// The frame that the hand comes to next, apart from those that may not leave, and the first of
    /// the queue beyond it.
    fn meet(&self) -> Option<(u32, Option<u32>)> {
        let number = self.hand.map_or(0, |hand| self.arrived.get(hand));
        let next = if self.hand.is_some() { self.next } else { self.queue.tail() };
        let ahead = self.earlier(next, self.open.range(number..).next());
        ahead.or_else(|| self.earlier(self.queue.tail(), self.open.first_key_value()))
    }

    /// The earlier arrival of the two, and the first of the queue beyond it.
    fn earlier(
        &self,
        queued: Option<u32>,
        open: Option<(&u64, &u32)>,
    ) -> Option<(u32, Option<u32>)> {
        match (queued, open) {
            (Some(queued), open)
                if open.is_none_or(|(&number, _)| self.arrived.get(queued) < number) =>
            {
                Some((queued, self.links.newer(queued)))
            }
            (_, open) => open.map(|(_, &frame)| (frame, queued)),
        }
    }

    /// The frame that arrived just after `frame`, if `next` is the first such one of the queue.
    fn beyond(&self, frame: u32, next: Option<u32>) -> Option<u32> {
        if self.aside.is_empty() && self.open.is_empty() {
            return next;
        }
        let later = self.arrived.get(frame) + 1;
        let first = |passed: &BTreeMap<u64, u32>| passed.range(later..).next().map(|at| *at.1);
        let all = [next, first(&self.aside), first(&self.open)];
        all.into_iter().flatten().min_by_key(|&frame| self.arrived.get(frame))
    }

    /// Takes `frame` out of the hand's way, which stays where it is.
    #[cold]
    fn pass_over(&mut self, frame: u32, next: Option<u32>) {
        self.take_out(frame);
        if self.next == Some(frame) {
            self.next = next;
        }
        self.aside.insert(self.arrived.get(frame), frame);
    }

    /// Numbers the frames there are, once: the first is about to be passed over.
    #[cold]
    fn number_all(&mut self) {
        let mut at = self.queue.tail();
        while let Some(frame) = at {
            self.number(frame);
            at = self.links.newer(frame);
        }
        self.next = self.hand;
    }

    fn number(&mut self, frame: u32) {
        self.arrivals += 1;
        *self.arrived.at(frame) = self.arrivals;
    }

    /// The hand leaves `frame` where it is: in the queue, just before `next`.
    fn spare(&mut self, frame: u32, next: Option<u32>) {
        if self.links.is_linked(frame) {
            return;
        }
        self.take_out(frame);
        match next.map(|next| self.links.older(next)) {
            None => self.queue.push_front(&mut self.links, frame),
            Some(None) => self.queue.push_back(&mut self.links, frame),
            Some(Some(older)) => self.queue.insert_before(&mut self.links, older, frame),
        }
    }

    fn take_out(&mut self, frame: u32) {
        if self.links.is_linked(frame) {
            return self.queue.remove(&mut self.links, frame);
        }
        let number = self.arrived.get(frame);
        let known = self.open.remove(&number).or_else(|| self.aside.remove(&number));
        assert!(known == Some(frame), "frame {frame} was passed over");
    }
}
