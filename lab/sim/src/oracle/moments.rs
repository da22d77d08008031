//! A set of moments with fast removal of the latest: bits in words, and layers of bits that mark
//! the non-empty words.
//!
//! ```text
//!   layer 1   [ 1 0 1 ... ]              bit n: word n of layer 0 is not empty
//!   layer 0   [ 64 moments ] [ none ] [ 64 moments ] ...
//! ```
//!
//! # Invariants
//! - A bit of a layer is set just when the word below it is not zero. The last layer is one word.
//! - Every operation reads one word a layer: four of them for 16 million moments.
//! # Sources
//! Van Emde Boas 1975, with words of 64 for its halves, as bitmaps of schedulers are.

/// See the module.
pub(super) struct Moments {
    layers: Vec<Vec<u64>>,
}

impl Moments {
    /// None of the moments `0..count`.
    pub(super) fn new(count: usize) -> Self {
        let mut layers = Vec::new();
        let mut words = count;
        loop {
            words = words.div_ceil(64).max(1);
            layers.push(vec![0; words]);
            if words == 1 {
                return Self { layers };
            }
        }
    }

    /// Adds `moment`.
    pub(super) fn insert(&mut self, moment: usize) {
        let mut at = moment;
        for layer in &mut self.layers {
            let word = &mut layer[at / 64];
            let was_empty = std::mem::replace(word, *word | 1 << (at % 64)) == 0;
            if !was_empty {
                return;
            }
            at /= 64;
        }
    }

    /// Removes `moment`; returns whether the set held it.
    pub(super) fn remove(&mut self, moment: usize) -> bool {
        let known = self.layers[0][moment / 64] >> (moment % 64) & 1 == 1;
        let mut at = moment;
        for layer in self.layers.iter_mut().take_while(|_| known) {
            let word = &mut layer[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                break;
            }
            at /= 64;
        }
        known
    }

    /// Removes and returns the latest moment.
    pub(super) fn remove_latest(&mut self) -> Option<usize> {
        let mut at = 0;
        for layer in self.layers.iter().rev() {
            at = at * 64 + layer[at].checked_ilog2()? as usize;
        }
        self.remove(at);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_core::prng::Prng;
    use std::collections::BTreeSet;

    #[test]
    fn moments_behave_as_a_sorted_set() {
        for count in [1, 63, 64, 65, 4_096, 4_097, 300_000] {
            let mut prng = Prng::new(count as u64);
            let (mut moments, mut set) = (Moments::new(count), BTreeSet::new());
            assert_eq!(moments.remove_latest(), None);
            for step in 0..20_000 {
                let moment = usize::try_from(prng.below(count as u64)).unwrap();
                match prng.below(5) {
                    0 | 1 => {
                        moments.insert(moment);
                        set.insert(moment);
                    }
                    2 | 3 => assert_eq!(moments.remove(moment), set.remove(&moment), "{step}"),
                    _ => assert_eq!(moments.remove_latest(), set.pop_last(), "{step} of {count}"),
                }
            }
            while let Some(last) = set.pop_last() {
                assert_eq!(moments.remove_latest(), Some(last));
            }
            assert_eq!(moments.remove_latest(), None);
        }
        assert_eq!(Moments::new(0).remove_latest(), None);
    }
}
