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

use std::collections::VecDeque;

use forerun_core::units::PageIndex;

pub(super) struct Tails {
    /// Oldest first.
    rows: VecDeque<(PageIndex, Box<[u8]>)>,
    most: usize,
}

impl Tails {
    pub(super) fn new(most: usize) -> Self {
        Self { rows: VecDeque::new(), most }
    }

    /// Keeps the bytes of `page`, which never change.
    pub(super) fn keep(&mut self, page: PageIndex, bytes: &[u8]) {
        if self.most == 0 || self.place(page).is_some() {
            return;
        }
        if self.rows.len() == self.most {
            self.rows.pop_front();
        }
        self.rows.push_back((page, bytes.into()));
    }

    /// Removes and returns the tail of `page`.
    pub(super) fn take(&mut self, page: PageIndex) -> Option<Box<[u8]>> {
        let (_, bytes) = self.rows.remove(self.place(page)?)?;
        Some(bytes)
    }

    fn place(&self, page: PageIndex) -> Option<usize> {
        self.rows.iter().position(|row| row.0 == page)
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
