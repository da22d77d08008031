//! Queues as index-linked lists: every operation O(1), no allocation once grown, no `unsafe`.
//!
//! Several queues may share one [`Links`] as long as an index is in one of them at a time: that
//! is how a frame moves between a policy's queues. A [`Table`] holds what else is known of an
//! index. A [`PassingQueue`] remembers which of its oldest may not leave.
//!
//! ```text
//!   head (newest) <-> ... <-> tail (oldest)
//! ```
//!
//! # Invariants
//! - An index is in one queue of its links at most. Pushing it twice, or taking out what is in
//!   none, is a bug and panics; so does taking an end out of another queue than its own.

use alloc::vec::Vec;

mod passing;

pub use passing::PassingQueue;

/// No index: the neighbour of an end.
const NIL: u32 = u32::MAX;

/// The neighbour of an index that is in no queue.
const OUT: u32 = u32::MAX - 1;

/// One row an index. Rows are taken as indices come; one that was never written is the default.
pub struct Table<T> {
    rows: Vec<T>,
}

impl<T: Copy + Default> Table<T> {
    /// Bytes of a row.
    pub const ROW_BYTES: u64 = size_of::<T>() as u64;

    /// Room for indices `0..count`; more is taken when a larger one is written.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self { rows: Vec::with_capacity(count as usize) }
    }

    /// What `index` holds.
    #[must_use]
    pub fn get(&self, index: u32) -> T {
        self.rows.get(index as usize).copied().unwrap_or_default()
    }

    /// What `index` holds, to be changed.
    pub fn at(&mut self, index: u32) -> &mut T {
        let index = index as usize;
        if index >= self.rows.len() {
            self.grow(index + 1);
        }
        &mut self.rows[index]
    }

    #[cold]
    fn grow(&mut self, count: usize) {
        self.rows.resize(count, T::default());
    }
}

/// The links of all indices, whichever queue they are in.
pub struct Links {
    table: Table<Link>,
    /// The marks of those that a [`PassingQueue`] passed over; 0 of all others.
    marks: Table<u64>,
    /// Marks so far.
    marked: u64,
}

#[derive(Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
}

impl Default for Link {
    fn default() -> Self {
        Self { newer: OUT, older: OUT }
    }
}

impl Links {
    /// Bytes that an index takes.
    pub const ROW_BYTES: u64 = Table::<Link>::ROW_BYTES;

    /// Room for indices `0..count`; more is taken when a larger one is pushed.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self { table: Table::new(count), marks: Table::new(0), marked: 0 }
    }

    /// Whether `index` is in a queue.
    #[must_use]
    #[inline]
    pub fn is_linked(&self, index: u32) -> bool {
        self.table.get(index).newer != OUT
    }

    /// The neighbour towards the head of `index`, which is in a queue.
    #[must_use]
    #[inline]
    pub fn newer(&self, index: u32) -> Option<u32> {
        let newer = self.linked(index).newer;
        (newer != NIL).then_some(newer)
    }

    /// The neighbour towards the tail of `index`, which is in a queue.
    #[must_use]
    pub fn older(&self, index: u32) -> Option<u32> {
        let older = self.linked(index).older;
        (older != NIL).then_some(older)
    }

    #[inline]
    fn linked(&self, index: u32) -> Link {
        assert!(self.is_linked(index), "index {index} is in no queue");
        self.table.get(index)
    }

    #[inline]
    fn link(&mut self, index: u32, link: Link) {
        assert!(index < OUT, "index {index} is out of range");
        assert!(!self.is_linked(index), "index {index} is in a queue already");
        *self.table.at(index) = link;
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
    #[inline]
    pub fn push_front(&mut self, links: &mut Links, index: u32) {
        links.link(index, Link { newer: NIL, older: self.head });
        match self.head {
            NIL => self.tail = index,
            head => links.table.at(head).newer = index,
        }
        self.head = index;
        self.len += 1;
    }

    /// Puts `index`, which is in no queue, at the tail.
    pub fn push_back(&mut self, links: &mut Links, index: u32) {
        links.link(index, Link { newer: self.tail, older: NIL });
        match self.tail {
            NIL => self.head = index,
            tail => links.table.at(tail).older = index,
        }
        self.tail = index;
        self.len += 1;
    }

    /// Puts `index`, which is in no queue, just before `older`, which is in this one.
    pub fn insert_before(&mut self, links: &mut Links, older: u32, index: u32) {
        let newer = links.linked(older).newer;
        if newer == NIL {
            assert!(self.head == older, "index {older} is the head of another queue");
            return self.push_front(links, index);
        }
        links.link(index, Link { newer, older });
        links.table.at(older).newer = index;
        links.table.at(newer).older = index;
        self.len += 1;
    }

    /// Puts `index`, which is in no queue, where `old` is, which is in this one and leaves it.
    pub fn replace(&mut self, links: &mut Links, old: u32, index: u32) {
        self.insert_before(links, old, index);
        self.remove(links, old);
    }

    /// Takes `index`, which is in this queue, out.
    #[inline]
    pub fn remove(&mut self, links: &mut Links, index: u32) {
        let Link { newer, older } = links.linked(index);
        match newer {
            NIL => {
                assert!(self.head == index, "index {index} is the head of another queue");
                self.head = older;
            }
            newer => links.table.at(newer).older = older,
        }
        match older {
            NIL => {
                assert!(self.tail == index, "index {index} is the tail of another queue");
                self.tail = newer;
            }
            older => links.table.at(older).newer = newer,
        }
        *links.table.at(index) = Link::default();
        self.len -= 1;
    }

    /// Takes the oldest out.
    #[inline]
    pub fn pop_back(&mut self, links: &mut Links) -> Option<u32> {
        let tail = self.tail()?;
        self.remove(links, tail);
        Some(tail)
    }

    /// Moves `index`, which is in this queue, to the head. Taking it out and pushing it would do
    /// the same; in one step the head is read and written once, which a row of moves waits for.
    #[inline]
    pub fn move_to_front(&mut self, links: &mut Links, index: u32) {
        let Link { newer, older } = links.linked(index);
        assert!(self.len > 0, "index {index} is in another queue");
        if newer == NIL {
            assert!(self.head == index, "index {index} is the head of another queue");
            return;
        }
        links.table.at(newer).older = older;
        match older {
            NIL => {
                assert!(self.tail == index, "index {index} is the tail of another queue");
                self.tail = newer;
            }
            older => links.table.at(older).newer = newer,
        }
        *links.table.at(index) = Link { newer: NIL, older: self.head };
        links.table.at(self.head).newer = index;
        self.head = index;
    }
}

#[cfg(test)]
mod tests;
