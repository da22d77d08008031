//! How often pages were used, about: four small counters a page, shared with other pages.
//!
//! ```text
//!   hash(page) -> a block of 64 bytes:  row 0 [ 32 counters ] one of them is the page's
//!                                       row 1 [ 32 counters ] one
//!                                       row 2, row 3          one each
//!   estimate = the smallest of the four
//! ```
//! Pages that share a counter make it too large, never too small; only the smallest of a page's
//! four grow, so that it takes four coincidences. All lie in one cache line. A counter has four
//! bits and stops at 15. After `sample` uses all are halved: what was popular once fades.
//!
//! # Invariants
//! - Until counters are first halved an estimate is at least the uses, up to 15.
//! - Memory is 32 bytes a page of the capacity, rounded up to a power of two: sixteen counters a
//!   row for each, as a sample has ten uses of a page, which may be of ten pages.
//! # Sources
//! Einziger, Friedman, Manes, "`TinyLFU`: A Highly Efficient Cache Admission Policy" (ACM
//! Transactions on Storage 2017), section 3: minimal increment, small counters, halving after a
//! sample. Cormode and Muthukrishnan 2005 for the rows; blocks of a cache line:
//! Putze, Sanders, Singler 2007.

use alloc::{vec, vec::Vec};
use core::hash::BuildHasher;

use crate::hash::FixedState;
use crate::units::PageId;

/// See the module.
pub struct Sketch {
    blocks: Vec<[u64; BLOCK_WORDS]>,
    /// Uses until the next halving, and from one to the next at first.
    left: u64,
    sample: u64,
}

impl Sketch {
    /// Counters for `capacity` pages, halved after every `sample` uses (at least one).
    #[must_use]
    pub fn new(capacity: u32, sample: u64) -> Self {
        let sample = sample.max(1);
        Self { blocks: vec![[0; BLOCK_WORDS]; blocks(capacity)], left: sample, sample }
    }

    /// Bytes of the counters for `capacity` pages.
    #[must_use]
    pub fn bytes(capacity: u32) -> u64 {
        (blocks(capacity) * size_of::<[u64; BLOCK_WORDS]>()) as u64
    }

    /// Counters for another capacity and sample. What was counted stays, less exact in fewer.
    pub fn resize(&mut self, capacity: u32, sample: u64) {
        self.sample = sample.max(1);
        self.left = self.left.min(self.sample);
        let wanted = blocks(capacity);
        assert!(wanted.is_power_of_two(), "the hash's low bits choose among {wanted} blocks");
        // A page's block of twice as many is the one that it had, or its copy in the upper half.
        while self.blocks.len() < wanted {
            self.blocks.extend_from_within(..);
        }
        while self.blocks.len() > wanted {
            let upper = self.blocks.split_off(self.blocks.len() / 2);
            for (lower, upper) in self.blocks.iter_mut().flatten().zip(upper.iter().flatten()) {
                *lower = larger(*lower, *upper);
            }
        }
    }

    /// `page` was used.
    pub fn record(&mut self, page: PageId) {
        let (block, places) = self.places(page);
        let block = &mut self.blocks[block];
        let least = least(block, places);
        if least < COUNT_MAX {
            for Place { word, shift } in places {
                if block[word] >> shift & COUNT_MAX == least {
                    block[word] += 1 << shift;
                }
            }
        }
        self.left -= 1;
        if self.left == 0 {
            self.halve();
        }
    }

    /// About how often `page` was used lately.
    #[must_use]
    pub fn estimate(&self, page: PageId) -> u32 {
        let (block, places) = self.places(page);
        u32::try_from(least(&self.blocks[block], places)).expect("a counter has four bits")
    }

    /// Halves all counters. What was counted so far is half of the next sample.
    fn halve(&mut self) {
        for word in self.blocks.iter_mut().flatten() {
            *word = *word >> 1 & HALVED;
        }
        self.left = self.sample - self.sample / 2;
    }

    fn places(&self, page: PageId) -> (usize, [Place; ROWS]) {
        let hash = FixedState.hash_one(page);
        let block = usize::try_from(hash >> 32).expect("32 bits") & (self.blocks.len() - 1);
        let place = |row: usize| {
            // Five bits a row: a word of two, and one of its sixteen counters.
            let bits = hash >> (5 * row);
            let word = ROW_WORDS * row + usize::from(bits >> 4 & 1 == 1);
            Place { word, shift: 4 * u32::try_from(bits & 15).expect("four bits") }
        };
        (block, core::array::from_fn(place))
    }
}

/// One counter of a block.
#[derive(Clone, Copy)]
struct Place {
    word: usize,
    shift: u32,
}

/// Blocks for `capacity` pages: a power of two.
fn blocks(capacity: u32) -> usize {
    let pages = usize::try_from(u64::from(capacity).next_power_of_two()).expect("at most 2^32");
    (pages * PAGE_WORDS).div_ceil(BLOCK_WORDS)
}

/// Of each counter of two words the larger one.
fn larger(a: u64, b: u64) -> u64 {
    let counter = |word: u64, nth: u32| word >> (4 * nth) & COUNT_MAX;
    (0..16).fold(0, |word, nth| word | counter(a, nth).max(counter(b, nth)) << (4 * nth))
}

fn least(block: &[u64; BLOCK_WORDS], places: [Place; ROWS]) -> u64 {
    let count = |Place { word, shift }: Place| block[word] >> shift & COUNT_MAX;
    places.into_iter().map(count).min().expect("there are rows")
}

/// Counters of a page.
const ROWS: usize = 4;
/// Words of a row in a block; 16 counters each.
const ROW_WORDS: usize = 2;
const BLOCK_WORDS: usize = ROWS * ROW_WORDS;
/// Words for each page of the capacity.
const PAGE_WORDS: usize = 4;
const COUNT_MAX: u64 = 15;
const _: () = assert!(BLOCK_WORDS * size_of::<u64>() == 64, "a block is a cache line");
const _: () = assert!(PAGE_WORDS <= BLOCK_WORDS && BLOCK_WORDS.is_multiple_of(PAGE_WORDS));
/// The bits that a counter keeps when all of a word are shifted at once.
const HALVED: u64 = 0x7777_7777_7777_7777;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use crate::units::FileId;

    fn page(index: u64) -> PageId {
        PageId { file: FileId(3), index }
    }

    #[test]
    fn an_estimate_is_never_too_small_and_seldom_too_large() {
        for capacity in [1, 7, 64, 1_000] {
            let mut sketch = Sketch::new(capacity, u64::MAX);
            let mut uses = vec![0_u32; capacity as usize];
            let mut prng = Prng::new(capacity.into());
            for _ in 0..4 * capacity {
                let index = prng.below(capacity.into()).min(prng.below(capacity.into()));
                uses[usize::try_from(index).unwrap()] += 1;
                sketch.record(page(index));
            }
            let mut exact = 0;
            for (index, &uses) in (0..).zip(&uses) {
                let estimate = sketch.estimate(page(index));
                assert!(estimate >= uses.min(15), "{index} of {capacity}: {estimate} for {uses}");
                exact += u32::from(estimate == uses.min(15));
            }
            assert!(exact * 100 >= capacity * 95, "{exact} of {capacity}");
        }
    }

    #[test]
    fn counters_stop_at_fifteen_and_are_halved_after_a_sample() {
        let mut sketch = Sketch::new(16, 20);
        let estimates: Vec<u32> = (0..40)
            .map(|_| {
                sketch.record(page(9));
                sketch.estimate(page(9))
            })
            .collect();
        let first = (1..=15).chain([15, 15, 15, 15, 7]);
        let then = (8..=15).chain([15, 7]).chain(8..=15).chain([15, 7]);
        assert!(estimates.iter().copied().eq(first.chain(then)), "{estimates:?}");
        assert_eq!(sketch.estimate(page(10)), 0);
    }

    #[test]
    fn another_capacity_keeps_what_was_counted() {
        let mut sketch = Sketch::new(100, u64::MAX);
        (0..100).for_each(|index| (0..index % 7).for_each(|_| sketch.record(page(index))));
        let estimates = |sketch: &Sketch| -> Vec<u32> {
            (0..100).map(|index| sketch.estimate(page(index))).collect()
        };
        let first = estimates(&sketch);
        for capacity in [128, 1_000, 5_000] {
            sketch.resize(capacity, u64::MAX);
            assert_eq!(estimates(&sketch), first, "{capacity} frames");
        }
        for capacity in [600, 100, 20, 1] {
            let before = estimates(&sketch);
            sketch.resize(capacity, u64::MAX);
            let after = estimates(&sketch);
            assert!(after.iter().zip(&before).all(|(after, before)| after >= before), "{capacity}");
        }
        sketch.resize(100, 1);
        sketch.record(page(7));
        assert!(estimates(&sketch).iter().all(|&estimate| estimate <= 7), "halved after one use");
    }

    #[test]
    fn memory_is_four_words_a_page() {
        for (capacity, blocks) in [(0, 1), (1, 1), (2, 1), (3, 2), (1_024, 512), (1_025, 1_024)] {
            assert_eq!(Sketch::new(capacity, 1).blocks.len(), blocks, "{capacity}");
        }
    }
}
