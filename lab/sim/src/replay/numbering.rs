//! Dense numbers for keys, in the order in which they first come.
//!
//! ```text
//!   key --hash--> slots: [ . | 3 | . | 1 | 2 | . ]     one more than a number; 0 is free
//!                              |       +---+-- the next slot is tried while the key is another's
//!                              v
//!                 keys:  [ k0 | k1 | k2 | ... ]        by number
//! ```
//! All later stages work on numbers, so the data of a key lie in a table, not a map.
//! Slots hold numbers alone, so that many fit into a processor's cache; and the searches of
//! neighbouring accesses do not wait for each other.
//!
//! # Invariants
//! - Half of the slots are free at least. Equal keys have the same number.
//! # Sources
//! Open addressing with linear probing: Knuth, The Art of Computer Programming, volume 3, 6.4.

use std::hash::BuildHasher as _;

use forerun_core::hash::FixedState;

/// See the module.
#[derive(Default)]
pub struct Numbering {
    slots: Vec<u32>,
    keys: Vec<u64>,
}

/// The distinct keys exceed the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Numbering {
    /// The number of `key`.
    ///
    /// # Panics
    /// There are 2^31 distinct keys already.
    pub fn number(&mut self, key: u64) -> u32 {
        self.number_within(key, u64::MAX).expect("fewer than 2^31 distinct keys")
    }

    /// Appends the number of each of `keys` to `out`.
    ///
    /// # Errors
    /// More than `bytes_max` would be needed, or there are 2^31 distinct keys. The numbers before
    /// are there.
    pub fn number_all(
        &mut self,
        keys: &[u64],
        bytes_max: u64,
        out: &mut Vec<u32>,
    ) -> Result<(), Full> {
        for &key in keys {
            out.push(self.number_within(key, bytes_max)?);
        }
        Ok(())
    }

    /// Distinct keys so far.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.keys.len()).expect("at most `KEYS_MAX`")
    }

    /// Whether no key has come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        bytes(self.slots.len(), self.keys.len())
    }

    #[inline]
    fn number_within(&mut self, key: u64, bytes_max: u64) -> Result<u32, Full> {
        if self.keys.len() * 2 >= self.slots.len() {
            self.grow(bytes_max)?;
        }
        let mask = self.slots.len() - 1;
        let mut at = place(key, mask);
        loop {
            let number = self.slots[at];
            if number == FREE {
                if bytes(self.slots.len(), self.keys.len() + 1) > bytes_max {
                    return Err(Full);
                }
                self.keys.push(key);
                let number = self.len();
                self.slots[at] = number;
                return Ok(number - 1);
            }
            if self.keys[number as usize - 1] == key {
                return Ok(number - 1);
            }
            at = (at + 1) & mask;
        }
    }

    /// Makes room for as many keys again.
    #[cold]
    fn grow(&mut self, bytes_max: u64) -> Result<(), Full> {
        let wanted = (self.slots.len() * 2).max(SLOTS_MIN);
        if wanted / 2 > KEYS_MAX || bytes(wanted, self.keys.len() + 1) > bytes_max {
            return Err(Full);
        }
        // The old slots go first: the new ones follow from the keys.
        self.slots = Vec::new();
        self.slots = vec![FREE; wanted];
        let mask = wanted - 1;
        for (number, &key) in (1..).zip(&self.keys) {
            let mut at = place(key, mask);
            while self.slots[at] != FREE {
                at = (at + 1) & mask;
            }
            self.slots[at] = number;
        }
        Ok(())
    }
}

/// Where the search for `key` begins among `mask + 1` slots.
fn place(key: u64, mask: usize) -> usize {
    let hash = FixedState.hash_one(key);
    usize::try_from(hash & mask as u64).expect("at most the mask")
}

fn bytes(slots: usize, keys: usize) -> u64 {
    (slots * size_of::<u32>() + keys * size_of::<u64>()) as u64
}

/// The value of a free slot.
const FREE: u32 = 0;
/// Slots of the first key.
const SLOTS_MIN: usize = 1 << 12;
/// One more than the largest number fits a slot.
const KEYS_MAX: usize = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_core::prng::Prng;
    use std::collections::BTreeMap;

    #[test]
    fn numbers_are_those_of_a_map() {
        for (seed, distinct) in [(1, 10), (2, 3_000), (3, 40_000)] {
            let mut prng = Prng::new(seed);
            let (mut numbering, mut map) = (Numbering::default(), BTreeMap::new());
            assert!(numbering.is_empty());
            let keys: Vec<u64> = (0..100_000)
                .map(|_| prng.below(distinct).wrapping_mul(0x1000_0000_0000_0001))
                .chain([u64::MAX, 0])
                .collect();
            let mut numbers = Vec::new();
            numbering.number_all(&keys, u64::MAX, &mut numbers).expect("no bound");
            for (key, number) in keys.iter().zip(&numbers) {
                let next = u32::try_from(map.len()).expect("few");
                assert_eq!(*map.entry(*key).or_insert(next), *number, "seed {seed}");
                assert_eq!(numbering.number(*key), *number);
            }
            assert_eq!(numbering.len() as usize, map.len());
        }
    }

    #[test]
    fn a_bound_on_bytes_holds_and_loses_no_number() {
        let keys: Vec<u64> = (0..10_000).collect();
        let (mut numbering, mut numbers) = (Numbering::default(), Vec::new());
        let bytes_max = 60_000;
        assert_eq!(numbering.number_all(&keys, bytes_max, &mut numbers), Err(Full));
        assert!(numbering.bytes() <= bytes_max && numbering.len() > 1_000, "{}", numbering.len());
        assert_eq!(numbers.len(), numbering.len() as usize);
        assert_eq!(numbering.number(5), 5, "what is known stays known");
        numbering.number_all(&keys, u64::MAX, &mut numbers).expect("no bound");
        assert_eq!(numbering.len(), 10_000);
    }
}
