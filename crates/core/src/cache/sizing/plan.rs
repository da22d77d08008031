//! Plans: the division of frames between partitions that has the most hits.
//!
//! ```text
//!   each gets its minimum; what is left goes out in 64 equal units:
//!   best[partition][units] = max over own units of value(own) + best[partition - 1][units - own]
//! ```
//! Every division into units is considered, so a partition whose hits begin only at some size (a
//! loop under LRU) gets that size or nothing.
//!
//! The value of a size is its hits; those up to what the partition would have of one LRU over all
//! partitions count more than once. So a partition falls below that only where each hit that it
//! loses there brings the others many.
//!
//! # Invariants
//! - The parts of a plan are at least the minimums, and sum up to the frames that are divided.
//! # Sources
//! Qureshi, Patt, Utility-Based Cache Partitioning (MICRO 2006): curves per sharer and divisions
//! by utility. They look ahead greedily; the exact division is small enough here.

use alloc::vec::Vec;

use super::curve::Curve;

/// One partition that takes part.
pub(super) struct Sharer<'c> {
    pub(super) curve: &'c Curve,
    /// Hits that it would have of one LRU over all.
    pub(super) shared_hits: u64,
    pub(super) frames_min: u32,
}

impl Sharer<'_> {
    /// The value of `frames`, in hits.
    fn value(&self, frames: u32, all: u32) -> u64 {
        let hits = self.curve.hits(frames, all);
        let wanted = self.shared_hits.saturating_sub(self.curve.reads() / TOLERATED_PART);
        hits + FAIRNESS * hits.min(wanted)
    }
}

/// The value of a division.
pub(super) fn value(sharers: &[Sharer<'_>], parts: &[u32], all: u32) -> u64 {
    sharers.iter().zip(parts).map(|(sharer, &frames)| sharer.value(frames, all)).sum()
}

/// The hits of a division.
pub(super) fn hits(sharers: &[Sharer<'_>], parts: &[u32], all: u32) -> u64 {
    sharers.iter().zip(parts).map(|(sharer, &frames)| sharer.curve.hits(frames, all)).sum()
}

/// The best division of `frames`, of a cache of `all`; `None` where the minimums exceed them.
pub(super) fn best(sharers: &[Sharer<'_>], frames: u32, all: u32) -> Option<Vec<u32>> {
    let least: u64 = sharers.iter().map(|sharer| u64::from(sharer.frames_min)).sum();
    let spare = u64::from(frames).checked_sub(least)?;
    let size = |sharer: &Sharer<'_>, units: usize| {
        let part = spare * units as u64 / UNITS as u64;
        sharer.frames_min + u32::try_from(part).expect("at most all frames")
    };
    // The best value of each number of units, and what the last partition has of them.
    let mut best = [0; UNITS + 1];
    let mut owns = Vec::with_capacity(sharers.len());
    for sharer in sharers {
        let mut values = [0; UNITS + 1];
        for (units, value) in values.iter_mut().enumerate() {
            *value = sharer.value(size(sharer, units), all);
        }
        let (mut next, mut own) = ([0; UNITS + 1], [0; UNITS + 1]);
        for units in 0..=UNITS {
            // Of equal ones the smallest.
            let of = |own: usize| values[own] + best[units - own];
            own[units] = (0..=units).rev().max_by_key(|&own| of(own)).unwrap_or(0);
            next[units] = of(own[units]);
        }
        best = next;
        owns.push(own);
    }
    let (mut parts, mut left) = (Vec::with_capacity(sharers.len()), UNITS);
    for (sharer, own) in sharers.iter().zip(&owns).rev() {
        parts.push(size(sharer, own[left]));
        left -= own[left];
    }
    parts.reverse();
    // Units that no partition needs, and what rounding left.
    let given: u64 = parts.iter().map(|&part| u64::from(part)).sum();
    if let Some(first) = parts.first_mut() {
        *first += u32::try_from(u64::from(frames) - given).expect("a part of the frames");
    }
    Some(parts)
}

/// The units in which frames are divided.
const UNITS: usize = 64;
/// How much more a hit counts that a partition would have of one LRU over all.
const FAIRNESS: u64 = 15;
/// The part of a partition's reads by which its hits may fall below those of one LRU.
const TOLERATED_PART: u64 = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use alloc::vec;

    /// A curve that rises by steps drawn from `prng`.
    fn curve(prng: &mut Prng) -> Curve {
        let mut hits = [0; 14];
        let mut sum = 0;
        for hit in &mut hits {
            sum += if prng.chance(40) { prng.below(900) } else { 0 };
            *hit = sum;
        }
        Curve::known(hits, 20_000)
    }

    #[test]
    fn no_division_in_units_is_better_than_the_best() {
        let mut prng = Prng::new(3);
        for _ in 0..40 {
            let curves = [curve(&mut prng), curve(&mut prng), curve(&mut prng)];
            let sharers: Vec<Sharer<'_>> = curves
                .iter()
                .map(|curve| {
                    let shared_hits = prng.below(3_000);
                    let frames_min = u32::try_from(prng.below(100)).expect("few");
                    Sharer { curve, shared_hits, frames_min }
                })
                .collect();
            let best = best(&sharers, 640, 640).expect("there is room");
            assert_eq!(best.iter().sum::<u32>(), 640);
            assert!(best.iter().zip(&sharers).all(|(&part, it)| part >= it.frames_min));
            let least: Vec<u32> = sharers.iter().map(|sharer| sharer.frames_min).collect();
            let spare = 640 - least.iter().sum::<u32>();
            let units = u32::try_from(UNITS).expect("few");
            for one in 0..=units {
                for two in 0..=units - one {
                    let part = |units: u32| spare * units / 64;
                    let own = [part(one), part(two), part(units - one - two)];
                    let parts: Vec<u32> = least.iter().zip(own).map(|(a, b)| a + b).collect();
                    assert!(value(&sharers, &parts, 640) <= value(&sharers, &best, 640));
                }
            }
        }
    }

    #[test]
    fn hits_of_one_lru_over_all_come_first() {
        let straight = |all: u64| {
            let mut hits = [0; 14];
            let points = [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32];
            for (hit, point) in hits.iter_mut().zip(points) {
                *hit = all * point / 32;
            }
            Curve::known(hits, 10_000)
        };
        let (steep, flat) = (straight(8_000), straight(2_000));
        let parts = |shared_hits| {
            let of = |curve, shared_hits| Sharer { curve, shared_hits, frames_min: 0 };
            best(&[of(&steep, 0), of(&flat, shared_hits)], 640, 640)
        };
        assert_eq!(parts(0), Some(vec![640, 0]), "the gain alone decides");
        let kept = parts(1_050).expect("there is room");
        assert_eq!(kept, [320, 320], "1000 hits, but for the tolerated 50");
    }

    #[test]
    fn minimums_that_exceed_the_frames_have_no_plan() {
        let curve = Curve::known([0; 14], 1);
        let sharers = [Sharer { curve: &curve, shared_hits: 0, frames_min: 11 }];
        assert_eq!(best(&sharers, 10, 10), None);
        assert_eq!(best(&sharers, 11, 11), Some(vec![11]));
    }
}
