//! Descriptors that are copies of each other (`dup`): they have one position, and what is read
//! through one moves it for all.
//!
//! ```text
//!   3  followed    4, 7  copies of 3        3 is closed: 4 is followed, 7 is a copy of 4
//! ```
//! # Invariants
//! - Of descriptors that are copies of each other one is followed; it is no copy.
//! # Sources
//! kcmp(2).

use std::collections::BTreeMap;

use rustix::io::Errno;

use crate::kernel::is_same_description;

/// The copies among the descriptors of a process.
#[derive(Debug, Default)]
pub(super) struct Copies {
    process: i32,
    /// Which descriptor each is a copy of.
    of: BTreeMap<i32, i32>,
    /// The kernel does not tell.
    is_refused: bool,
}

impl Copies {
    pub(super) fn new(process: i32) -> Self {
        Self { process, ..Self::default() }
    }

    /// Whether the kernel tells copies apart from descriptors that were opened one by one.
    pub(super) fn are_told(&self) -> bool {
        self.process > 0 && !self.is_refused
    }

    pub(super) fn is_copy(&self, number: i32) -> bool {
        self.of.contains_key(&number)
    }

    /// Each copy with the descriptor that is followed for it.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (i32, i32)> {
        self.of.iter().map(|(&copy, &followed)| (copy, followed))
    }

    /// The descriptor `number` is new; `others` stand for the same file and are no copies.
    pub(super) fn add(&mut self, number: i32, others: Vec<i32>) {
        assert!(!self.is_copy(number), "{number} is new");
        if !self.are_told() {
            return;
        }
        for other in others.into_iter().take(COMPARED_MAX) {
            match is_same_description(self.process, number, other) {
                Ok(true) => {
                    self.of.insert(number, other);
                    return;
                }
                Ok(false) => {}
                Err(why) => {
                    // One may have been closed since, or the process has ended.
                    self.is_refused |= !matches!(why, Errno::BADF | Errno::SRCH);
                    return;
                }
            }
        }
    }

    /// The descriptor `number` is followed no more: the first of its copies is.
    pub(super) fn remove(&mut self, number: i32) {
        if self.of.remove(&number).is_some() || self.of.is_empty() {
            return;
        }
        let Some((next, _)) = self.pairs().find(|&(_, followed)| followed == number) else {
            return;
        };
        self.of.remove(&next);
        for followed in self.of.values_mut().filter(|followed| **followed == number) {
            *followed = next;
        }
        assert!(!self.is_copy(next), "what is followed is no copy");
    }
}

/// Descriptors of one file that a new one is compared with.
const COMPARED_MAX: usize = 16;
