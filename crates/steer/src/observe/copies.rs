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

    /// The descriptor that is followed for the copy `number`.
    pub(super) fn followed(&self, number: i32) -> Option<i32> {
        self.of.get(&number).copied()
    }

    /// The descriptor `number` is new; `others` stand for the same file and are no copies.
    pub(super) fn add(&mut self, number: i32, others: Vec<i32>) {
        assert!(!self.is_copy(number), "{number} is new");
        if !self.are_told() {
            return;
        }
        for other in others.into_iter().take(COMPARED_MAX) {
            match self.are_one(number, other) {
                Some(true) => {
                    self.of.insert(number, other);
                    return;
                }
                Some(false) => {}
                None => return,
            }
        }
    }

    /// Whether the copy `number` is none any more: it was closed, and its number is used anew.
    pub(super) fn is_parted(&mut self, number: i32) -> bool {
        let followed = self.of[&number];
        let is_parted = self.are_one(number, followed) == Some(false);
        if is_parted {
            self.of.remove(&number);
        }
        is_parted
    }

    /// Whether two descriptors are copies of each other, where the kernel tells.
    fn are_one(&mut self, number: i32, other: i32) -> Option<bool> {
        let told = is_same_description(self.process, number, other);
        // One may have been closed since, or the process has ended.
        self.is_refused |= told.is_err_and(|why| !matches!(why, Errno::BADF | Errno::SRCH));
        told.ok()
    }

    /// The descriptor `number` is followed no more: the first of its copies is.
    pub(super) fn remove(&mut self, number: i32) {
        if self.of.remove(&number).is_some() || self.of.is_empty() {
            return;
        }
        let mut copies = self.of.iter().filter(|&(_, &followed)| followed == number);
        let Some((&next, _)) = copies.next() else { return };
        self.of.remove(&next);
        for followed in self.of.values_mut().filter(|followed| **followed == number) {
            *followed = next;
        }
        assert!(!self.is_copy(next), "what is followed is no copy");
    }
}

/// Descriptors of one file that a new one is compared with.
const COMPARED_MAX: usize = 16;
