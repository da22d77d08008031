//! Belady's bound: the fewest misses that a cache of a size can have, by knowing the future.
//!
//! On a miss in a full cache the page leaves whose next use is farthest away. What a cache holds is
//! then a set of moments, those at which its pages are used next: an access hits if its own moment
//! is in the set, and the victim is the latest. Pages need no further names.
//!
//! ```text
//!   access      0  1  2  3  4  5        in 2 frames: 0 a miss {2}, 1 a miss {2 3}, 2 a hit {3 5},
//!   page        a  b  a  b  c  a        3 a hit {5 never}, 4 a miss: never leaves, {5 never},
//!   next use    2  3  5  -  -  -        5 a hit
//! ```
//!
//! The next uses come from one pass backwards, which every size shares.
//!
//! # Invariants
//! - A missed page always enters, as in any cache that serves pages from its frames.
//! - Memory is 4 bytes an access and as much a page, and for the size that runs a bit an access.
//!   It grows with the trace: [`Past::bytes`] tells.
//! # Sources
//! Belady, "A study of replacement algorithms for a virtual-storage computer" (IBM Systems Journal
//! 1966): MIN. Its optimality: Mattson, Gecsei, Slutz, Traiger (IBM Systems Journal 1970).

use super::moments::Moments;

/// Its name among policies.
pub const NAME: &str = "belady";

/// Accesses so far, by the dense numbers of their pages.
#[derive(Default)]
pub struct Past {
    numbers: Vec<u32>,
    /// One more than the largest number.
    pages: usize,
}

/// The accesses exceed the allowed number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl Past {
    /// Adds `numbers`, if there are `accesses_max` at most then.
    ///
    /// # Errors
    /// There would be more; none was added.
    pub fn push(&mut self, numbers: &[u32], accesses_max: u64) -> Result<(), TooMany> {
        let accesses = (self.numbers.len() + numbers.len()) as u64;
        if accesses > accesses_max.min(ACCESSES_MAX) {
            return Err(TooMany);
        }
        self.numbers.extend_from_slice(numbers);
        let pages = numbers.iter().max().map_or(0, |&largest| largest as usize + 1);
        self.pages = self.pages.max(pages);
        Ok(())
    }

    /// Bytes that a bound takes now, for `pages` distinct ones.
    #[must_use]
    pub fn bytes(&self, pages: u32) -> u64 {
        let numbers = (self.numbers.len() * size_of::<u32>()) as u64;
        numbers + numbers / 32 + u64::from(pages) * size_of::<u32>() as u64
    }

    /// Computes the next use of each access, backwards from the end.
    #[must_use]
    pub fn future(self) -> Future {
        let mut next_uses = self.numbers;
        let mut soonest = vec![NEVER; self.pages];
        for at in (0..next_uses.len()).rev() {
            let moment = u32::try_from(at).expect("fewer than `ACCESSES_MAX`");
            let page = next_uses[at] as usize;
            next_uses[at] = std::mem::replace(&mut soonest[page], moment);
        }
        Future { next_uses }
    }
}

/// The next use of each access's page.
pub struct Future {
    next_uses: Vec<u32>,
}

impl Future {
    /// Accesses.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.next_uses.len() as u64
    }

    /// The misses of a cache of `pages`, of which there is one at least.
    #[must_use]
    pub fn misses(&self, pages: u32) -> u64 {
        let mut misses = 0;
        self.each_miss(pages, |_| misses += 1);
        misses
    }

    /// The same: `missed` sees the place of each access that misses.
    pub fn each_miss(&self, pages: u32, mut missed: impl FnMut(usize)) {
        assert!(pages > 0, "a cache has a frame");
        // Next uses of resident pages, and the number of pages without one.
        let mut resident = Moments::new(self.next_uses.len());
        let (mut with_use, mut without) = (0, 0);
        for (at, &next) in self.next_uses.iter().enumerate() {
            if resident.remove(at) {
                with_use -= 1;
            } else {
                missed(at);
                if with_use + without < pages {
                    // There is a free frame.
                } else if without > 0 {
                    without -= 1;
                } else {
                    resident.remove_latest();
                    with_use -= 1;
                }
            }
            if next == NEVER {
                without += 1;
            } else {
                resident.insert(next as usize);
                with_use += 1;
            }
        }
    }
}

/// The next use of a page that has none.
const NEVER: u32 = u32::MAX;
/// Moments with a number of their own.
const ACCESSES_MAX: u64 = NEVER as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_core::prng::Prng;

    fn future(numbers: &[u32]) -> Future {
        let mut past = Past::default();
        for chunk in numbers.chunks(7) {
            past.push(chunk, numbers.len() as u64).expect("no more than that");
        }
        past.future()
    }

    /// The fewest misses of any choice of victims.
    fn best(numbers: &[u32], resident: &[u32], pages: usize) -> u64 {
        let Some((&page, rest)) = numbers.split_first() else { return 0 };
        if resident.contains(&page) {
            return best(rest, resident, pages);
        }
        if resident.len() < pages {
            return 1 + best(rest, &[resident, &[page]].concat(), pages);
        }
        let instead_of = |victim: usize| {
            let mut next = resident.to_vec();
            next[victim] = page;
            1 + best(rest, &next, pages)
        };
        (0..resident.len()).map(instead_of).min().expect("a full cache has a victim")
    }

    /// The rule, over a plain list.
    fn plain(numbers: &[u32], pages: usize) -> u64 {
        let (mut resident, mut misses) = (Vec::new(), 0);
        for (at, &page) in numbers.iter().enumerate() {
            if resident.contains(&page) {
                continue;
            }
            misses += 1;
            if resident.len() == pages {
                let next = |page: &u32| numbers[at..].iter().position(|other| other == page);
                let farthest =
                    (0..pages).max_by_key(|&nth| next(&resident[nth]).unwrap_or(usize::MAX));
                resident.remove(farthest.expect("a full cache has a victim"));
            }
            resident.push(page);
        }
        misses
    }

    #[test]
    fn no_choice_of_victims_misses_less() {
        for code in 0..4_u32.pow(8) {
            let numbers: Vec<u32> = (0..8).map(|nth| code >> (2 * nth) & 3).collect();
            let future = future(&numbers);
            for pages in 1..=3 {
                let ours = future.misses(pages);
                assert_eq!(ours, best(&numbers, &[], pages as usize), "{numbers:?} in {pages}");
            }
        }
    }

    #[test]
    fn misses_are_those_of_the_plain_rule() {
        for seed in 0..40 {
            let mut prng = Prng::new(seed);
            let unique = 1 + prng.below(60);
            let mut draw = || u32::try_from(prng.below(unique).min(prng.below(unique))).unwrap();
            let numbers: Vec<u32> = (0..500).map(|_| draw()).collect();
            let future = future(&numbers);
            assert_eq!(future.accesses(), 500);
            for pages in [1, 2, 5, 13, 100] {
                let expected = plain(&numbers, pages as usize);
                assert_eq!(future.misses(pages), expected, "seed {seed}, {pages} pages");
            }
        }
    }

    #[test]
    fn a_trace_beyond_the_bound_is_refused_whole() {
        let mut past = Past::default();
        assert_eq!(past.push(&[1, 2], 3), Ok(()));
        assert_eq!(past.push(&[3, 4], 3), Err(TooMany));
        assert_eq!(past.push(&[1], 3), Ok(()));
        assert_eq!(past.future().misses(9), 2);
        assert_eq!(Past::default().future().misses(1), 0, "of nothing");
    }
}
