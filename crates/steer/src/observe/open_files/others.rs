//! The descriptors of a process that are no files: pipes, sockets, terminals, events.
//!
//! ```text
//!   listed now    0   1   2   5   6   7   8   ...   900     in order of their numbers
//!   known before  0   1   2   5   6       8   ...   900     7 is new: looked at
//!                 lowest ones: always     others: one part in [`TURNS`] of each list
//! ```
//! A server has thousands of them, and to look at each in each list takes what the search for new
//! files may take of a processor. The list tells numbers alone: one that was not there before
//! stands for something new, and one that was may as well, where it was closed and used anew in
//! between. The system gives the lowest number that is free, so it is low numbers that are used
//! anew.
//!
//! # Invariants
//! - A number that was not in the list before is looked at, and each other at least once in
//!   [`TURNS`] lists.
//! - No more numbers are kept than the list has that is looked at.

use std::collections::BTreeSet;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Others {
    numbers: BTreeSet<i32>,
    /// All below were in this list already, or are in none.
    listed_to: i32,
    /// How many of this list were among [`Self::numbers`].
    met: usize,
    turn: i32,
}

impl Others {
    /// A new list begins.
    pub(super) fn begin(&mut self) {
        (self.listed_to, self.met) = (0, 0);
        self.turn = (self.turn + 1) % TURNS;
        assert!((0..TURNS).contains(&self.turn), "each number has a turn");
    }

    /// The list, in order, has come to `number`: those before it that it did not have are closed.
    /// Whether it is to be looked at.
    pub(super) fn is_due(&mut self, number: i32) -> bool {
        if number < self.listed_to {
            // The list is in no order.
            return true;
        }
        self.forget(number);
        self.listed_to = number + 1;
        if !self.numbers.contains(&number) {
            return true;
        }
        self.met += 1;
        self.met <= LOOKED_AT || number % TURNS == self.turn
    }

    /// `number`, which was looked at last, stands for no file, or for one.
    pub(super) fn set(&mut self, number: i32, is_other: bool) {
        if is_other {
            self.numbers.insert(number);
        } else {
            self.numbers.remove(&number);
        }
    }

    /// The list has no more.
    pub(super) fn end(&mut self) {
        self.forget(i32::MAX);
    }

    /// Those from [`Self::listed_to`] on and below `number` are closed.
    fn forget(&mut self, number: i32) {
        while let Some(&closed) = self.numbers.range(self.listed_to..number).next() {
            self.numbers.remove(&closed);
        }
    }
}

/// Lists in which each number is looked at once.
const TURNS: i32 = 8;
/// The lowest that are looked at in each list: more than most programs have.
const LOOKED_AT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that are looked at in a list of `numbers`, which are no files.
    fn list(others: &mut Others, numbers: &[i32]) -> Vec<i32> {
        others.begin();
        let due: Vec<i32> = numbers.iter().copied().filter(|&it| others.is_due(it)).collect();
        for &number in &due {
            others.set(number, true);
        }
        others.end();
        due
    }

    #[test]
    fn of_many_that_are_known_the_lowest_are_looked_at_and_a_part_of_the_rest() {
        let (mut others, all) = (Others::default(), (0..4000).collect::<Vec<_>>());
        assert_eq!(list(&mut others, &all), all, "all are new");
        let mut counts = vec![0; all.len()];
        for _ in 0..TURNS {
            let due = list(&mut others, &all);
            assert!(due.len() <= LOOKED_AT + all.len() / 8, "{}", due.len());
            for &number in &due {
                counts[usize::try_from(number).unwrap()] += 1;
            }
        }
        assert!(counts[..LOOKED_AT].iter().all(|&count| count == TURNS), "{counts:?}");
        assert!(counts[LOOKED_AT..].iter().all(|&count| count == 1), "{counts:?}");
    }

    #[test]
    fn what_was_not_in_the_list_before_is_looked_at() {
        let mut others = Others::default();
        let without = |gone: &[i32]| (0..200).filter(|it| !gone.contains(it)).collect::<Vec<_>>();
        list(&mut others, &without(&[]));
        list(&mut others, &without(&[150, 199]));
        assert_eq!(others.numbers.len(), 198, "what is closed is forgotten");
        let due = list(&mut others, &without(&[]));
        assert!(due.contains(&150) && due.contains(&199), "{due:?}");
        // One that has become a file is looked at as long as it is one.
        others.set(100, false);
        for _ in 0..TURNS {
            others.begin();
            assert!((0..200).any(|it| others.is_due(it) && it == 100));
        }
    }
}
