//! Queues as index-linked lists: every operation O(1), no allocation once grown, no `unsafe`.
//!
//! Several queues may share one [`Links`] as long as an index is in one of them at a time: that
//! is how a frame moves between a policy's queues.
//!
//! ```text
//!   head (newest) <-> ... <-> tail (oldest)
//! ```

use alloc::vec::Vec;

use crate::units::FrameId;

/// No index.
const NIL: u32 = u32::MAX;

/// The links of all indices, whichever queue they are in.
pub struct Links {
    links: Vec<Link>,
}

#[derive(Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

impl Links {
    /// Room for indices `0..count`; more is taken when a larger one is pushed.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self { links: Vec::with_capacity(count as usize) }
    }

    fn at(&mut self, index: u32) -> &mut Link {
        let needed = index as usize + 1;
        if self.links.len() < needed {
            self.links.resize(needed, Link { newer: NIL, older: NIL });
        }
        &mut self.links[index as usize]
    }

    /// The neighbour towards the head.
    #[must_use]
    pub fn newer(&self, index: u32) -> Option<u32> {
        let newer = self.links[index as usize].newer;
        (newer != NIL).then_some(newer)
    }

    /// The neighbour towards the tail.
    #[must_use]
    pub fn older(&self, index: u32) -> Option<u32> {
        let older = self.links[index as usize].older;
        (older != NIL).then_some(older)
    }
}

/// One list's ends and length.
#[derive(Clone, Debug)]
pub struct Queue {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { head: NIL, tail: NIL, len: 0 }
    }

    /// Indices in it.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The newest.
    #[must_use]
    pub fn head(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    /// The oldest.
    #[must_use]
    pub fn tail(&self) -> Option<u32> {
        (self.tail != NIL).then_some(self.tail)
    }

    /// Puts `index`, which is in no queue, at the head.
    pub fn push_front(&mut self, links: &mut Links, index: u32) {
        *links.at(index) = Link { newer: NIL, older: self.head };
        match self.head {
            NIL => self.tail = index,
            head => links.links[head as usize].newer = index,
        }
        self.head = index;
        self.len += 1;
    }

    /// Puts `index`, which is in no queue, at the tail.
    pub fn push_back(&mut self, links: &mut Links, index: u32) {
        *links.at(index) = Link { newer: self.tail, older: NIL };
        match self.tail {
            NIL => self.head = index,
            tail => links.links[tail as usize].older = index,
        }
        self.tail = index;
        self.len += 1;
    }

    /// Takes `index`, which is in this queue, out.
    pub fn remove(&mut self, links: &mut Links, index: u32) {
        assert!(self.len > 0, "index {index} is in no queue");
        let Link { newer, older } = links.links[index as usize];
        match newer {
            NIL => self.head = older,
            n => links.links[n as usize].older = older,
        }
        match older {
            NIL => self.tail = newer,
            o => links.links[o as usize].newer = newer,
        }
        self.len -= 1;
    }

    /// Takes the oldest out.
    pub fn pop_back(&mut self, links: &mut Links) -> Option<u32> {
        let tail = self.tail()?;
        self.remove(links, tail);
        Some(tail)
    }

    /// Moves `index`, which is in this queue, to the head.
    pub fn move_to_front(&mut self, links: &mut Links, index: u32) {
        if self.head != index {
            self.remove(links, index);
            self.push_front(links, index);
        }
    }

    /// Takes up to `count` frames for which `evictable` holds, oldest first, and appends them to
    /// `out`. The others keep their places. Returns how many were taken.
    pub fn take_from_tail(
        &mut self,
        links: &mut Links,
        count: u32,
        evictable: &dyn Fn(FrameId) -> bool,
        out: &mut Vec<FrameId>,
    ) -> u32 {
        let (mut taken, mut at) = (0, self.tail);
        while at != NIL && taken < count {
            let newer = links.links[at as usize].newer;
            if evictable(FrameId(at)) {
                self.remove(links, at);
                out.push(FrameId(at));
                taken += 1;
            }
            at = newer;
        }
        taken
    }
}
