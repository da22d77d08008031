//! A queue that remembers which of its oldest may not leave, so that no search looks at them again.
//!
//! ```text
//!   head (newest) <-> ... <-> fresh <-> [ x <-> x <-> o <-> x ] tail (oldest)
//!                             not asked   passed over    o: may leave again
//! ```
//!
//! What may not leave collects at the tail, where a search for the oldest that may begins. Each
//! index that a search was refused is marked as *passed over* and keeps its place; the next search
//! begins beyond them. Of one that may leave again [`PassingQueue::may_leave`] tells: it is found
//! first, as it is older than all that were not asked. So an index is asked once for each time that
//! it came, was moved or was named to `may_leave`, however many may not leave.
//!
//! # Invariants
//! - Those passed over are the oldest; their marks grow towards the head.
//! - Where nothing was passed over, an operation costs one comparison more than a [`Queue`]'s. What
//!   may leave again costs a place in an ordered map.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Links, NIL, OUT, Queue};
use crate::units::FrameId;

/// See the module.
#[derive(Clone, Debug)]
pub struct PassingQueue {
    queue: Queue,
    /// How many of the oldest were passed over.
    passed: u32,
    /// The oldest of the others: `NIL` without others, `OUT` if nothing was passed over.
    fresh: u32,
    /// Of those passed over, what may leave again, by its mark.
    open: BTreeMap<u64, u32>,
}

impl Default for PassingQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl PassingQueue {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { queue: Queue::new(), passed: 0, fresh: OUT, open: BTreeMap::new() }
    }

    /// Indices in it.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.queue.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The oldest, whether it may leave or not.
    #[must_use]
    pub fn tail(&self) -> Option<u32> {
        self.queue.tail()
    }

    /// See [`Queue::push_front`].
    #[inline]
    pub fn push_front(&mut self, links: &mut Links, index: u32) {
        self.queue.push_front(links, index);
        if self.fresh == NIL {
            self.fresh = index;
        }
    }

    /// See [`Queue::remove`].
    #[inline]
    pub fn remove(&mut self, links: &mut Links, index: u32) {
        if self.passed > 0 {
            self.unmark(links, index);
        }
        self.queue.remove(links, index);
    }

    /// See [`Queue::pop_back`]: the oldest, whether it may leave or not.
    pub fn pop_back(&mut self, links: &mut Links) -> Option<u32> {
        let tail = self.tail()?;
        self.remove(links, tail);
        Some(tail)
    }

    /// See [`Queue::move_to_front`]. The next search asks of `index`.
    #[inline]
    pub fn move_to_front(&mut self, links: &mut Links, index: u32) {
        if self.passed > 0 {
            self.unmark(links, index);
        }
        self.queue.move_to_front(links, index);
        if self.fresh == NIL {
            self.fresh = index;
        }
    }

    /// See [`Queue::replace`]. If `old` was passed over, so was `index`, which may not leave.
    pub fn replace(&mut self, links: &mut Links, old: u32, index: u32) {
        if self.passed > 0 {
            self.hand_on(links, old, index);
        }
        self.queue.replace(links, old, index);
    }

    /// The oldest frame for which `evictable` holds. Older ones are passed over: `evictable` is
    /// asked of them again once [`PassingQueue::may_leave`] has named them, or they were moved.
    #[inline]
    pub fn oldest(
        &mut self,
        links: &mut Links,
        evictable: &dyn Fn(FrameId) -> bool,
    ) -> Option<u32> {
        self.oldest_of(links, |index| evictable(FrameId(index)))
    }

    /// As [`PassingQueue::oldest`], of indices that are no frames.
    #[inline]
    pub fn oldest_of(&mut self, links: &mut Links, leaves: impl Fn(u32) -> bool) -> Option<u32> {
        if self.passed == 0 {
            let tail = self.tail()?;
            if leaves(tail) {
                return Some(tail);
            }
            self.pass_over(links, tail);
        }
        self.oldest_beyond(links, leaves)
    }

    /// The oldest that may leave, where some were passed over.
    #[cold]
    fn oldest_beyond(&mut self, links: &mut Links, leaves: impl Fn(u32) -> bool) -> Option<u32> {
        while let Some(first) = self.open.first_entry() {
            let index = *first.get();
            if leaves(index) {
                return Some(index);
            }
            first.remove();
        }
        while self.fresh != NIL {
            let index = self.fresh;
            if leaves(index) {
                return Some(index);
            }
            self.pass_over(links, index);
        }
        None
    }

    /// Takes up to `count` frames for which `evictable` holds, oldest first, and appends them to
    /// `out`. The others keep their places. Returns how many were taken.
    #[inline]
    pub fn take_from_tail(
        &mut self,
        links: &mut Links,
        count: u32,
        evictable: &dyn Fn(FrameId) -> bool,
        out: &mut Vec<FrameId>,
    ) -> u32 {
        if count == 0 || self.is_empty() {
            return 0;
        }
        self.take_some(links, count, evictable, out)
    }

    fn take_some(
        &mut self,
        links: &mut Links,
        count: u32,
        evictable: &dyn Fn(FrameId) -> bool,
        out: &mut Vec<FrameId>,
    ) -> u32 {
        let mut taken = 0;
        while taken < count
            && let Some(index) = self.oldest(links, evictable)
        {
            self.remove(links, index);
            out.push(FrameId(index));
            taken += 1;
        }
        taken
    }

    /// The next search asks of `index`, which is in this queue, though it was passed over. Returns
    /// whether it was.
    pub fn may_leave(&mut self, links: &Links, index: u32) -> bool {
        let mark = if self.passed > 0 { links.marks.get(index) } else { 0 };
        if mark > 0 {
            self.open.insert(mark, index);
        }
        mark > 0
    }

    /// `index` takes the place of `old`.
    #[cold]
    fn hand_on(&mut self, links: &mut Links, old: u32, index: u32) {
        if self.fresh == old {
            self.fresh = index;
        }
        let mark = links.marks.get(old);
        if mark > 0 {
            *links.marks.at(old) = 0;
            *links.marks.at(index) = mark;
            self.open.remove(&mark);
        }
    }

    #[cold]
    fn pass_over(&mut self, links: &mut Links, index: u32) {
        links.marked += 1;
        *links.marks.at(index) = links.marked;
        self.passed += 1;
        self.fresh = links.linked(index).newer;
        assert!(self.passed <= self.len(), "{} of {} were passed over", self.passed, self.len());
    }

    /// `index` leaves its place.
    #[cold]
    fn unmark(&mut self, links: &mut Links, index: u32) {
        if self.fresh == index {
            self.fresh = links.linked(index).newer;
            return;
        }
        let mark = links.marks.get(index);
        if mark > 0 {
            *links.marks.at(index) = 0;
            self.open.remove(&mark);
            self.passed -= 1;
            if self.passed == 0 {
                self.fresh = OUT;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::listed;
    use super::*;
    use crate::prng::Prng;
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::vec;

    #[test]
    fn take_from_tail_skips_what_may_not_leave() {
        type Row = (&'static str, u32, &'static [u32], &'static [u32], &'static [u32]);
        #[rustfmt::skip]
        let rows: [Row; 7] = [
            // why count pinned taken left, newest first
            ("none wanted", 0, &[], &[], &[4, 3, 2, 1, 0]),
            ("oldest first",                       2, &[],            &[0, 1],       &[4, 3, 2]),
            ("a pinned tail keeps its place",      2, &[0],           &[1, 2],       &[4, 3, 0]),
            ("pinned ones between",                2, &[1, 3],        &[0, 2],       &[4, 3, 1]),
            ("fewer than wanted",                  9, &[2],           &[0, 1, 3, 4], &[2]),
            ("all",                                9, &[],            &[0, 1, 2, 3, 4], &[]),
            ("all pinned", 1, &[0, 1, 2, 3, 4], &[], &[4, 3, 2, 1, 0]),
        ];
        for (why, count, pinned, taken, left) in rows {
            let (mut links, mut queue) = (Links::new(5), PassingQueue::new());
            (0..5).for_each(|index| queue.push_front(&mut links, index));
            let mut out = vec![FrameId(99)];
            let evictable = |frame: FrameId| !pinned.contains(&frame.0);
            let number = queue.take_from_tail(&mut links, count, &evictable, &mut out);
            assert_eq!(number as usize, taken.len(), "{why}");
            assert_eq!(out[0], FrameId(99), "{why}");
            assert!(out[1..].iter().map(|frame| frame.0).eq(taken.iter().copied()), "{why}");
            assert_eq!(listed(&queue.queue, &links), left, "{why}");
        }
    }

    /// Indices there are in the test below.
    const INDICES: u32 = 12;

    #[test]
    fn what_may_leave_again_is_found_at_its_place_and_nothing_is_asked_twice() {
        for seed in 0..400 {
            let mut prng = Prng::new(seed);
            let (mut links, mut queue) = (Links::new(0), PassingQueue::new());
            let mut deque = VecDeque::new();
            let mut kept = [false; INDICES as usize];
            let mut told = [true; INDICES as usize];
            for step in 0..300 {
                let index = u32::try_from(prng.below(INDICES.into())).unwrap();
                let at = index as usize;
                let there = deque.contains(&index);
                match prng.below(8) {
                    0 | 1 if !there => {
                        queue.push_front(&mut links, index);
                        deque.push_front(index);
                        told[at] = true;
                    }
                    2 if there => {
                        queue.remove(&mut links, index);
                        deque.retain(|&other| other != index);
                    }
                    3 if there => {
                        queue.move_to_front(&mut links, index);
                        deque.retain(|&other| other != index);
                        deque.push_front(index);
                        told[at] = true;
                    }
                    4 => {
                        kept[at] = !kept[at];
                        if there && !kept[at] {
                            let passed = links.marks.get(index) > 0;
                            assert_eq!(queue.may_leave(&links, index), passed);
                            told[at] = true;
                        }
                    }
                    5 if there => {
                        // What comes in its place may not leave, if it was asked.
                        let new = (0..INDICES).find(|other| !deque.contains(other));
                        let Some(new) = new else { continue };
                        queue.replace(&mut links, index, new);
                        let place = deque.iter().position(|&other| other == index).unwrap();
                        deque[place] = new;
                        kept[new as usize] = true;
                        let asked = links.marks.get(new) > 0;
                        told[new as usize] = !asked;
                    }
                    6 | 7 => {
                        let asked = RefCell::new(&mut told);
                        let leaves = |index: u32| {
                            let mut told = asked.borrow_mut();
                            assert!(told[index as usize], "{index} is asked for nothing");
                            told[index as usize] = !kept[index as usize];
                            !kept[index as usize]
                        };
                        let found = queue.oldest_of(&mut links, leaves);
                        let oldest = deque.iter().rfind(|&&index| !kept[index as usize]).copied();
                        assert_eq!(found, oldest, "seed {seed}, step {step}");
                    }
                    _ => {}
                }
                assert_eq!(listed(&queue.queue, &links), deque, "seed {seed}");
                let marked = (0..INDICES).filter(|&index| links.marks.get(index) > 0).count();
                assert_eq!(queue.passed as usize, marked, "seed {seed}");
            }
        }
    }
}
