//! A hasher that gives the same value on every machine and in every run.
//!
//! A map that is seeded at random would still answer the same, but whatever walks it, grows it or
//! times it would differ from run to run. This one has no seed to differ by. Each word is mixed
//! into the state by a widening multiplication whose halves are folded together, so that high and
//! low bits both depend on all bits of the key: hashbrown takes its bucket from the low ones and
//! its tag from the seven highest.
//!
//! ```text
//!   state ^ word --x MULTIPLIER--> [ high 64 | low 64 ] --high ^ low--> state
//! ```
//!
//! # Invariants
//! - Equal keys hash alike on every machine: no value depends on byte order or on the width of
//!   `usize`.
//! # Sources
//! The folded product is that of wyhash (Wang Yi 2019). It resists clumsy keys, not an adversary:
//! a program that picks colliding pages slows down its own cache.

use core::hash::{BuildHasher, Hasher};

use crate::units::PageId;

/// Makes [`FixedHasher`]s, all alike: the third parameter of every hashbrown map here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedState;

impl BuildHasher for FixedState {
    type Hasher = FixedHasher;

    fn build_hasher(&self) -> FixedHasher {
        FixedHasher { state: START }
    }
}

/// The hash of what was written so far.
#[derive(Clone, Debug)]
pub struct FixedHasher {
    state: u64,
}

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.state
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    #[expect(clippy::cast_possible_truncation, reason = "each half is taken on purpose")]
    fn write_u64(&mut self, word: u64) {
        let wide = u128::from(self.state ^ word) * u128::from(MULTIPLIER);
        self.state = (wide >> 64) as u64 ^ wide as u64;
    }

    #[expect(clippy::cast_possible_truncation, reason = "each half is taken on purpose")]
    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

/// The hash of a page: its [`home`] and its [`tag`].
///
/// Up to four neighbours in a file have one home, and their places among them in the tag. The homes
/// of what follows in the file lie about a golden section apart, since the upper half is that of a
/// product with the golden ratio: fewer meet than by chance.
#[must_use]
#[inline]
pub fn page_hash(page: PageId) -> u64 {
    let group = PageId { index: page.index / NEIGHBOURS, ..page };
    FixedState.hash_one(group) ^ (page.index % NEIGHBOURS)
}

/// The bucket of `buckets`, at least 1, where a search for what has this hash begins.
#[must_use]
#[inline]
pub fn home(hash: u64, buckets: usize) -> usize {
    let home = ((hash >> 32) * buckets as u64) >> 32;
    usize::try_from(home).expect("below the number of buckets")
}

/// The half of a hash that does not choose the home.
#[must_use]
#[inline]
pub fn tag(hash: u64) -> u32 {
    u32::try_from(hash & u64::from(u32::MAX)).expect("the lower half")
}

/// The entry of a table of pages for what has this hash and the number `number`, which is below
/// `u32::MAX`: its tag above, one more than the number below. 0 is no entry.
#[must_use]
#[inline]
pub fn entry(hash: u64, number: u32) -> u64 {
    assert!(number < u32::MAX, "an entry has 32 bits for a number and one");
    u64::from(tag(hash)) << TAG_SHIFT | (u64::from(number) + 1)
}

/// Whether `entry` has this tag; no entry may have it too.
#[must_use]
#[inline]
pub fn has_tag(entry: u64, tag: u32) -> bool {
    entry >> TAG_SHIFT == u64::from(tag)
}

/// The number of `entry`; `None` of no entry.
#[must_use]
#[inline]
pub fn number_of(entry: u64) -> Option<u32> {
    let number = u32::try_from(entry & u64::from(u32::MAX)).expect("the lower half");
    number.checked_sub(1)
}

const TAG_SHIFT: u32 = 32;

/// Pages side by side that have one home. A bucket of seven has room for them, and for three more.
const NEIGHBOURS: u64 = 4;

/// The state before anything is written: the fraction of pi, so that a key of zero is mixed too.
const START: u64 = 0x243f_6a88_85a3_08d3;

/// Odd, with its bits well spread: 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::FileId;
    use std::vec;

    fn page(file: u32, index: u64) -> u64 {
        FixedState.hash_one(PageId { file: FileId(file), index })
    }

    fn written(write: impl Fn(&mut FixedHasher)) -> u64 {
        let mut hasher = FixedState.build_hasher();
        write(&mut hasher);
        hasher.finish()
    }

    /// One word by the definition in the header, in steps of 32 bits.
    fn folded(state: u64, word: u64) -> u64 {
        let (a, b) = (state ^ word, MULTIPLIER);
        let (a1, a0, b1, b0) = (a >> 32, a & 0xffff_ffff, b >> 32, b & 0xffff_ffff);
        let middle = a1 * b0 + ((a0 * b0) >> 32);
        let other = a0 * b1 + (middle & 0xffff_ffff);
        let high = a1 * b1 + (middle >> 32) + (other >> 32);
        high ^ a.wrapping_mul(b)
    }

    #[test]
    fn a_hash_is_the_folded_product_of_its_words() {
        assert_eq!(written(|_| ()), START);
        for word in [0, 1, 7, 0x8000_0000_0000_0000, u64::MAX] {
            assert_eq!(written(|h| h.write_u64(word)), folded(START, word));
        }
        assert_eq!(page(3, 5), folded(folded(START, 3), 5));
        assert_eq!(written(|h| h.write_u128(5 << 64 | 3)), page(3, 5));
    }

    #[test]
    fn a_word_hashes_alike_whatever_its_width() {
        let expected = written(|h| h.write_u64(200));
        assert_eq!(written(|h| h.write_u8(200)), expected);
        assert_eq!(written(|h| h.write_u16(200)), expected);
        assert_eq!(written(|h| h.write_u32(200)), expected);
        assert_eq!(written(|h| h.write_usize(200)), expected);
    }

    #[test]
    fn bytes_are_words_of_eight_low_byte_first() {
        let bytes = [1, 2, 0, 0, 0, 0, 0, 0x80, 9];
        let expected = folded(folded(START, 0x8000_0000_0000_0201), 9);
        assert_eq!(written(|h| h.write(&bytes)), expected);
        assert_eq!(written(|h| h.write(&[])), START);
    }

    #[test]
    fn two_builders_agree() {
        let key = ("forerun", 7_u32);
        assert_eq!(FixedState.hash_one(key), FixedState.hash_one(key));
        assert_ne!(FixedState.hash_one(key), FixedState.hash_one(("forerun", 8_u32)));
    }

    #[test]
    fn neighbouring_pages_spread_over_low_and_high_bits() {
        for stride in [1, 2, 64, 1 << 20, 1 << 40] {
            let (mut low, mut high) = (vec![0_u32; 128], vec![0_u32; 128]);
            for file in 0..8 {
                for index in 0..1_024 {
                    let hash = page(file, index * stride);
                    low[usize::try_from(hash % 128).unwrap()] += 1;
                    high[usize::try_from(hash >> 57).unwrap()] += 1;
                }
            }
            for bucket in low.iter().chain(&high) {
                assert!((16..=160).contains(bucket), "{bucket} of 64 at stride {stride}");
            }
        }
    }

    #[test]
    fn neighbours_share_a_home_and_differ_in_their_tags() {
        let hash = |index| page_hash(PageId { file: FileId(3), index });
        for first in [0, 4, 1 << 20, u64::MAX - 3] {
            let near = [0, 1, 2, 3].map(|nth| hash(first + nth));
            assert!(near.iter().all(|hash| home(*hash, 1_000) == home(near[0], 1_000)));
            assert!(
                (1..4).all(|nth| !near[..nth].iter().any(|other| tag(*other) == tag(near[nth])))
            );
        }
        assert_eq!((home(0, 1), home(u64::MAX, 1), home(u64::MAX, 77)), (0, 0, 76));
        assert_eq!((home(1 << 63, 77), tag(1 << 63 | 5)), (38, 5));
    }

    #[test]
    fn the_groups_of_a_file_spread_over_more_homes_than_by_chance() {
        for buckets in [10, 103, 1_171] {
            let (mut unused, mut of) = (0, 0);
            for file in 0..32 {
                let mut groups = vec![0_u32; buckets];
                for group in 0..buckets as u64 {
                    let page = PageId { file: FileId(file), index: group * NEIGHBOURS };
                    groups[home(page_hash(page), buckets)] += 1;
                }
                assert!(groups.iter().all(|count| *count <= 4), "file {file}: {groups:?}");
                unused += groups.iter().filter(|count| **count == 0).count();
                of += buckets;
            }
            // By chance it would be 35 % or more.
            assert!(unused * 4 <= of, "{unused} of {of} homes have no group");
        }
    }
}
