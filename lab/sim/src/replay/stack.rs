//! LRU caches of several sizes in one pass: the smaller one holds what is newest in the larger.
//!
//! ```text
//!   newest [ a  b | c  d  e | f  g  h  i ] oldest     caches of 2, 5 and 9 pages
//!           part 0  part 1    part 2                  a use of d: a miss in the first alone
//!
//!   d goes to the head of part 0; its oldest, b, to the head of part 1, where d has left a place
//! ```
//! So an access costs one step for each size in which it misses, whatever the number of sizes;
//! most accesses hit in the smallest. Parts are queues that share one set of links.
//!
//! # Invariants
//! - Part n holds pages that the cache of size n has and that of size n - 1 has not; no part is
//!   longer than the difference of their sizes, and none but the last that is used is shorter.
//! # Sources
//! Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for storage hierarchies" (IBM Systems
//! Journal 1970): inclusion, and stack distances. Only those of the wanted sizes are distinguished.

use forerun_core::queue::{Links, Queue, Table};

use super::Chunk;

/// See the module.
pub(super) struct Stack {
    parts: Vec<Part>,
    links: Links,
    /// One more than the part of each page; 0 where it is in none.
    parts_of: Table<u16>,
}

struct Part {
    queue: Queue,
    pages_max: u32,
    /// Uses of its pages.
    uses: Uses,
}

/// Accesses, and what they weigh together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Uses {
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl Uses {
    /// Both together.
    pub(super) fn and(self, more: Self) -> Self {
        let bytes = self.bytes.saturating_add(more.bytes);
        Self { count: self.count + more.count, bytes }
    }
}

impl Stack {
    /// Empty caches of `sizes`, which rise.
    pub(super) fn new(sizes: &[u32]) -> Self {
        let before = [0].into_iter().chain(sizes.iter().copied());
        let part = |(&size, before): (&u32, u32)| {
            assert!(size > before, "sizes rise");
            Part { queue: Queue::new(), pages_max: size - before, uses: Uses::default() }
        };
        let parts: Vec<Part> = sizes.iter().zip(before).map(part).collect();
        assert!(parts.len() < usize::from(u16::MAX), "a part has 16 bits");
        Self { parts, links: Links::new(0), parts_of: Table::new(0) }
    }

    /// The pages of `chunk` are used, in this order.
    pub(super) fn access_all(&mut self, chunk: &Chunk) {
        for (at, &number) in chunk.numbers.iter().enumerate() {
            self.access(number, chunk.bytes_of(at));
        }
    }

    /// Hits in each size so far.
    pub(super) fn hits(&self) -> Vec<Uses> {
        let sum = |hits: &mut Uses, part: &Part| {
            *hits = hits.and(part.uses);
            Some(*hits)
        };
        self.parts.iter().scan(Uses::default(), sum).collect()
    }

    /// Bytes that it takes once there are `pages` distinct ones.
    pub(super) fn bytes(pages: u32) -> u64 {
        u64::from(pages) * (Links::ROW_BYTES + Table::<u16>::ROW_BYTES)
    }

    fn access(&mut self, number: u32, bytes: u64) {
        let place = self.parts_of.at(number);
        let from = std::mem::replace(place, 1).checked_sub(1).map(usize::from);
        if let Some(from) = from {
            let uses = &mut self.parts[from].uses;
            *uses = uses.and(Uses { count: 1, bytes });
            if from == 0 {
                self.parts[0].queue.move_to_front(&mut self.links, number);
                return;
            }
            self.parts[from].queue.remove(&mut self.links, number);
        }
        self.parts[0].queue.push_front(&mut self.links, number);
        self.pass_on();
    }

    /// The oldest of each part that is too long goes to the next one; of the last, it leaves.
    fn pass_on(&mut self) {
        for at in 0..self.parts.len() {
            let part = &mut self.parts[at];
            if part.queue.len() <= part.pages_max {
                return;
            }
            let oldest = part.queue.pop_back(&mut self.links).expect("it is too long");
            let place = self.parts_of.at(oldest);
            *place = 0;
            if let Some(next) = self.parts.get_mut(at + 1) {
                *place = u16::try_from(at + 2).expect("fewer than 2^16 parts");
                next.queue.push_front(&mut self.links, oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_core::prng::Prng;

    #[test]
    fn hits_are_those_of_a_plain_list() {
        for seed in 0..40 {
            let mut prng = Prng::new(seed);
            let unique = 1 + prng.below(40);
            let draw = |prng: &mut Prng| u32::try_from(prng.below(unique).min(prng.below(unique)));
            let numbers: Vec<u32> = (0..600).map(|_| draw(&mut prng).expect("few")).collect();
            let sizes = [1, 2, 7, 19, 64];
            let mut stack = Stack::new(&sizes);
            let bytes: Vec<u64> = numbers.iter().map(|_| prng.below(9_000)).collect();
            stack.access_all(&Chunk { numbers: numbers.clone(), bytes: bytes.clone() });
            let (mut list, mut hits) = (Vec::new(), [Uses::default(); 5]);
            for (number, bytes) in numbers.into_iter().zip(bytes) {
                if let Some(distance) = list.iter().position(|&other| other == number) {
                    list.remove(distance);
                    for (_, hits) in
                        sizes.iter().zip(&mut hits).filter(|(size, _)| distance < **size as usize)
                    {
                        *hits = hits.and(Uses { count: 1, bytes });
                    }
                }
                list.insert(0, number);
            }
            assert_eq!(stack.hits(), hits, "seed {seed}");
        }
    }
}
