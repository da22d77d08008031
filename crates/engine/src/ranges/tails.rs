//! Pages in which reads ended, kept a little longer than others.
//!
//! ```text
//!   |--------|--------|---read--|        its last page was used: it leaves before unread ones
//!                  tail  |==|next read.  and is wanted once more
//! ```
//! The replacement policy evicts used pages of a stream first. Where many readers alternate, a page
//! that two reads share would be evicted between them.
//!
//! # Invariants
//! - At most `most` tails are kept; the oldest goes first.

use std::collections::{BTreeMap, VecDeque};

use forerun_core::units::PageIndex;

pub(super) struct Tails {
    rows: BTreeMap<PageIndex, Box<[u8]>>,
    /// The pages of the tails, oldest first.
    order: VecDeque<PageIndex>,
    most: usize,
}

impl Tails {
    pub(super) fn new(most: usize) -> Self {
        Self { rows: BTreeMap::new(), order: VecDeque::new(), most }
    }

    /// Keeps the bytes of `page`, which never change.
    pub(super) fn keep(&mut self, page: PageIndex, bytes: &[u8]) {
        if self.most == 0 || self.rows.contains_key(&page) {
            return;
        }
        self.rows.insert(page, bytes.into());
        self.order.push_back(page);
        while self.order.len() > self.most {
            if let Some(oldest) = self.order.pop_front() {
                self.rows.remove(&oldest);
            }
        }
    }

    /// Removes and returns the tail of `page`.
    pub(super) fn take(&mut self, page: PageIndex) -> Option<Box<[u8]>> {
        let bytes = self.rows.remove(&page)?;
        self.order.retain(|&other| other != page);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_each_is_taken_once() {
        let mut tails = Tails::new(2);
        for page in [1, 2, 3, 2] {
            tails.keep(page, &[u8::try_from(page).unwrap()]);
        }
        assert_eq!(tails.take(1), None, "it was the oldest");
        assert_eq!(tails.take(2).as_deref(), Some(&[2][..]));
        assert_eq!(tails.take(2), None, "once");
        tails.keep(4, &[4]);
        assert_eq!(tails.take(3).as_deref(), Some(&[3][..]), "there is room for both");
    }
}
