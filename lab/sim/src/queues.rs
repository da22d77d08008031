//! In which queue of 2Q or 2Q* accesses fall, with a cache of one size.
//!
//! ```text
//!   access --+-- resident -------- in A1in | in Am       hits
//!            +-- not resident ---- named in A1out        a miss that makes the page active
//!                                  unknown               any other miss
//! ```
//! The policies are those of the live cache; the page's queue is determined before each access.
//!
//! # Invariants
//! - The counts of an access sequence sum up to its length.
//! - Hits equal those of [`crate::replay`].
//! # Sources
//! Meng et al. 2009, Figs 2b and 5: hits of the three queues by the size of the cache.

use forerun_core::eviction::Eviction;
use forerun_core::eviction::probation::{Probation, Variant};
use forerun_core::units::{FileId, FrameId, PageId};

/// A policy of three queues that reports a page's queue.
pub trait Queues: Eviction {
    /// Whether the resident page in `frame` is in Am, else it is in A1in.
    fn is_active(&self, frame: FrameId) -> bool;
    /// Whether the name of `page` is in A1out.
    fn remembers(&self, page: PageId) -> bool;
}

impl<V: Variant> Queues for Probation<V> {
    fn is_active(&self, frame: FrameId) -> bool {
        self.is_active(frame)
    }

    fn remembers(&self, page: PageId) -> bool {
        self.remembers(page)
    }
}

/// The counts of accesses by queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Hits in A1in.
    pub a1in: u64,
    /// Misses of pages named in A1out.
    pub a1out: u64,
    /// Hits in Am.
    pub am: u64,
    /// All other misses.
    pub unknown: u64,
}

impl QueueCounts {
    /// The sum of all counts.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.a1in + self.a1out + self.am + self.unknown
    }
}

/// Sends `numbers` (see [`crate::replay::Numbering`]) through a cache of `pages` frames.
///
/// # Panics
/// `pages` is 0.
pub fn count<Q: Queues>(pages: u32, params: Q::Params, numbers: &[u32]) -> QueueCounts {
    assert!(pages > 0);
    let mut policy = Q::new(pages, params);
    let known = numbers.iter().max().map_or(0, |&largest| largest as usize + 1);
    let mut frames: Vec<Option<FrameId>> = vec![None; known];
    let (mut residents, mut victims) = (Vec::new(), Vec::new());
    let mut found = QueueCounts::default();
    for &number in numbers {
        if let Some(frame) = frames[number as usize] {
            *(if policy.is_active(frame) { &mut found.am } else { &mut found.a1in }) += 1;
            policy.renew(frame);
            continue;
        }
        let page = PageId { file: FileId(0), index: number.into() };
        *(if policy.remembers(page) { &mut found.a1out } else { &mut found.unknown }) += 1;
        policy.missed(page);
        let filled = u32::try_from(residents.len()).expect("at most `pages`");
        let frame = if filled < pages {
            residents.push(number);
            FrameId(filled)
        } else {
            victims.clear();
            policy.evict(1, &|_| true, &mut victims);
            let frame = victims[0];
            frames[residents[frame.0 as usize] as usize] = None;
            residents[frame.0 as usize] = number;
            frame
        };
        frames[number as usize] = Some(frame);
        policy.insert(frame, page, false);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{self, Cell, replay};
    use forerun_core::eviction::two_q::{TwoQ, TwoQParams};
    use forerun_core::eviction::two_q_star::{TwoQStar, TwoQStarParams};
    use forerun_core::params::Share;
    use forerun_core::units::Nanos;

    fn shares() -> (Share, Share) {
        (Share::percent(50), Share::percent(100))
    }

    fn two_q(pages: u32, numbers: &[u32]) -> QueueCounts {
        let (kin, kout) = shares();
        count::<TwoQ>(pages, TwoQParams { kin, kout }, numbers)
    }

    fn two_q_star(pages: u32, numbers: &[u32]) -> QueueCounts {
        let (kin, kout) = shares();
        count::<TwoQStar>(pages, TwoQStarParams { kin, kout }, numbers)
    }

    #[test]
    fn accesses_fall_where_the_paper_puts_them() {
        let found = |[a1in, a1out, am, unknown]: [u64; 4]| QueueCounts { a1in, a1out, am, unknown };
        #[rustfmt::skip]
        let rows = [ // why  accesses  2Q  2Q*
            ("nothing",                    &[][..],              [0, 0, 0, 0], [0, 0, 0, 0]),
            ("again while in A1in",        &[0, 1, 0][..],       [1, 0, 0, 2], [1, 0, 0, 2]),
            ("its name leads to Am",       &[0, 1, 2, 0, 0][..], [0, 1, 1, 3], [0, 1, 1, 3]),
            ("a use saves it in 2Q* alone", &[0, 1, 0, 2, 0][..], [1, 1, 0, 3], [2, 0, 0, 3]),
        ];
        for (why, numbers, of_2q, of_star) in rows {
            assert_eq!(two_q(2, numbers), found(of_2q), "{why}: 2q");
            assert_eq!(two_q_star(2, numbers), found(of_star), "{why}: 2q-star");
        }
    }

    #[test]
    fn hits_are_those_of_a_replay() {
        let numbers: Vec<u32> = (0..20_000_u32).map(|i| i * i % 1_009 % (1 + i % 400)).collect();
        for pages in [1, 10, 100, 300] {
            for (name, found) in [
                ("2q:kin=0.5,kout=1", two_q(pages, &numbers)),
                ("2q-star:kin=0.5,kout=1", two_q_star(pages, &numbers)),
            ] {
                let mut keys = Some(numbers.iter().map(|&number| u64::from(number)));
                let more = |out: &mut Vec<u64>| {
                    out.extend(keys.take().into_iter().flatten());
                    Ok::<bool, ()>(!out.is_empty())
                };
                let cell = Cell { policy: name.into(), pages };
                let (sample, clock) = (Share::percent(100), &|| Nanos(0));
                let settings =
                    replay::ReplaySettings { threads: 1, memory: u64::MAX, sample, clock };
                let counts = replay(more, &[cell], &settings).expect("known")[0];
                assert_eq!(found.accesses(), counts.accesses, "{name}, {pages} pages");
                assert_eq!(found.a1out + found.unknown, counts.misses, "{name}, {pages} pages");
            }
        }
    }
}
