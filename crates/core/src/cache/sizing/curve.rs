//! Curves: the hits that a partition would have at other sizes.
//!
//! ```text
//!   pages --- hash below the rate? ---> sampled ---> miniature caches, one a size
//!                                                    1/32  2/32  3/32 ...  32/32 of the cache
//! ```
//! A sample of the pages, chosen by hash, uses small caches of page names under the partition's
//! own replacement policy. A cache of the sampled share of a size has the hits of that size.
//! Between two sizes the curve is a straight line.
//!
//! # Invariants
//! - The memory of a curve is bounded by the sample: see [`Curve::bytes`].
//! - The same uses give the same curve.
//! - A page that is read ahead is a miss of every size until its second use: readahead brings it
//!   however small the partition is.
//! # Sources
//! Waldspurger et al., SHARDS (FAST 2015): sampling by the hash of the page. Waldspurger et al.,
//! Cache Modeling and Optimization using Miniature Simulations (ATC 2017): any policy, scaled down.

use alloc::vec::Vec;
use core::hash::BuildHasher;
use hashbrown::HashMap;

use crate::eviction::{AnyEviction, Eviction, WithEviction, dispatch};
use crate::hash::FixedState;
use crate::params::ParamError;
use crate::units::{FrameId, PageId};

/// Which pages are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cache) struct Sample {
    /// Of [`HASHES`] hashes, those below it.
    rate: u64,
}

impl Sample {
    /// A sample of which about `pages` of `frames` pages are; all, if there are no more.
    pub(in crate::cache) fn new(pages: u32, frames: u32) -> Self {
        let rate = u64::from(pages) * HASHES / u64::from(frames.max(1));
        Self { rate: rate.clamp(1, HASHES) }
    }

    /// Whether `page` is one of them.
    pub(in crate::cache) fn takes(self, page: PageId) -> bool {
        // Bits that hashbrown does not look at: the lowest choose a bucket, the highest are a tag.
        // Tables of pages hash another word, of four neighbours.
        FixedState.hash_one(page) >> HASH_SHIFT & (HASHES - 1) < self.rate
    }
}

/// A small cache of page names.
pub(super) struct Miniature {
    policy: AnyEviction,
    frames: HashMap<PageId, FrameId, FixedState>,
    /// What each frame holds.
    pages: Vec<PageId>,
    capacity: u32,
    victims: Vec<FrameId>,
}

impl Miniature {
    pub(super) fn new(policy: &str, capacity: u32) -> Result<Self, ParamError> {
        Ok(Self {
            policy: AnyEviction::make(policy, capacity)?,
            frames: HashMap::with_capacity_and_hasher(capacity as usize, FixedState),
            pages: Vec::with_capacity(capacity as usize),
            capacity,
            victims: Vec::new(),
        })
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Uses `page`. Returns whether it was there.
    pub(super) fn touch(&mut self, page: PageId) -> bool {
        if let Some(&frame) = self.frames.get(&page) {
            self.policy.renew(frame);
            return true;
        }
        self.policy.missed(page);
        let frame = self.empty_frame(page);
        self.frames.insert(page, frame);
        self.policy.insert(frame, page, false);
        false
    }

    fn empty_frame(&mut self, page: PageId) -> FrameId {
        let held = u32::try_from(self.pages.len()).expect("at most the capacity");
        if held < self.capacity {
            self.pages.push(page);
            return FrameId(held);
        }
        self.victims.clear();
        self.policy.evict(1, &|_| true, &mut self.victims);
        let frame = self.victims[0];
        let old = core::mem::replace(&mut self.pages[frame.0 as usize], page);
        self.frames.remove(&old);
        frame
    }

    /// Bytes that its tables take at most.
    pub(super) fn bytes(policy: &str, capacity: u32) -> Result<u64, ParamError> {
        struct Bytes(u32);
        impl WithEviction for Bytes {
            type Output = u64;
            fn with<E: Eviction>(self, params: E::Params) -> u64 {
                E::bytes(self.0, 0, &params)
            }
        }
        let row = size_of::<PageId>() + 2 * (size_of::<(PageId, FrameId)>() + 1);
        Ok(dispatch(policy, Bytes(capacity))? + u64::from(capacity) * row as u64)
    }
}

/// The hits of one partition at every size.
pub(super) struct Curve {
    /// One a point.
    caches: Vec<Miniature>,
    /// Hits of each, older ones for less.
    hits: [u64; POINTS.len()],
    /// Reads, older ones for less.
    reads: u64,
}

impl Curve {
    /// A curve for `policy`, of a sample of `pages` of the pages that fit into the cache.
    pub(super) fn new(policy: &str, pages: u32) -> Result<Self, ParamError> {
        let caches = POINTS.iter().map(|&point| Miniature::new(policy, capacity(pages, point)));
        Ok(Self { caches: caches.collect::<Result<_, _>>()?, hits: [0; POINTS.len()], reads: 0 })
    }

    /// Uses a sampled page; `counts` if a read does.
    pub(super) fn touch(&mut self, page: PageId, counts: bool) {
        for (cache, hits) in self.caches.iter_mut().zip(&mut self.hits) {
            let hit = cache.touch(page) && counts;
            *hits += u64::from(hit) * ONE;
        }
        self.reads += u64::from(counts) * ONE;
    }

    /// Lets the past count for less.
    pub(super) fn age(&mut self) {
        self.hits.iter_mut().chain([&mut self.reads]).for_each(age);
    }

    /// Reads, in the unit of [`Curve::hits`].
    pub(super) fn reads(&self) -> u64 {
        self.reads
    }

    /// Hits with `frames` of the cache's `all` frames.
    pub(super) fn hits(&self, frames: u32, all: u32) -> u64 {
        // In parts of a 32nd, to the left and right of the wanted size.
        let at = u64::from(frames.min(all)) * PARTS;
        let all = u64::from(all.max(1));
        let (mut left, mut low) = (0, 0);
        for (&point, &high) in POINTS.iter().zip(&self.hits) {
            let right = u64::from(point) * all;
            if at <= right {
                let (by, width) = (u128::from(at - left), u128::from(right - left));
                let part = |hits: u64| u64::try_from(u128::from(hits) * by / width).unwrap_or(hits);
                // Of a few policies a larger cache may have fewer hits.
                return if high >= low { low + part(high - low) } else { low - part(low - high) };
            }
            (left, low) = (right, high);
        }
        low
    }

    /// Bytes that a curve takes at most.
    pub(super) fn bytes(policy: &str, pages: u32) -> Result<u64, ParamError> {
        POINTS.iter().map(|&point| Miniature::bytes(policy, capacity(pages, point))).sum()
    }
}

/// Lets a count lose a part.
pub(super) fn age(count: &mut u64) {
    *count -= *count / AGE_PART;
}

fn capacity(pages: u32, point: u8) -> u32 {
    let pages = u64::from(pages) * u64::from(point) / PARTS;
    u32::try_from(pages).expect("a part of a u32").max(1)
}

/// A use, so that the loss of a part is more than rounding.
pub(super) const ONE: u64 = 1 << 8;
/// One part in so many is lost with each window.
const AGE_PART: u64 = 64;
/// Sizes of the miniature caches, in parts of the whole cache: the closer the smaller, as hits rise
/// most there.
const POINTS: [u8; 14] = [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32];
const PARTS: u64 = 32;
const HASHES: u64 = 1 << 24;
const HASH_SHIFT: u32 = 20;

const _: () = assert!(POINTS[POINTS.len() - 1] as u64 == PARTS, "the last size is the whole cache");

#[cfg(test)]
impl Curve {
    /// The curve with `hits` at each point, of `reads` reads.
    pub(super) fn known(hits: [u64; POINTS.len()], reads: u64) -> Self {
        Self { caches: Vec::new(), hits, reads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use crate::units::FileId;
    use std::collections::VecDeque;

    /// Pages of which some are used often.
    fn pages(count: usize) -> Vec<PageId> {
        let mut prng = Prng::new(5);
        let mut page = || {
            let index = prng.below(6_000);
            let index = if prng.chance(70) { index % 700 } else { index };
            PageId { file: FileId(0), index }
        };
        (0..count).map(|_| page()).collect()
    }

    /// Hits of an LRU, kept as a plain list.
    fn lru_hits(pages: &[PageId], frames: usize) -> u64 {
        let (mut list, mut hits) = (VecDeque::new(), 0);
        for &page in pages {
            if let Some(at) = list.iter().position(|&other| other == page) {
                list.remove(at);
                hits += 1;
            } else if list.len() == frames {
                list.pop_back();
            }
            list.push_front(page);
        }
        hits
    }

    #[test]
    fn a_curve_of_all_pages_counts_what_caches_of_its_sizes_do() {
        let pages = pages(6_000);
        let mut curve = Curve::new("lru", 320).expect("a policy");
        for &page in &pages {
            curve.touch(page, true);
        }
        for frames in [10, 20, 30, 60, 160, 320] {
            let hits = lru_hits(&pages, frames as usize);
            assert_eq!(curve.hits(frames, 320), hits * ONE, "{frames}");
        }
        assert_eq!((curve.hits(0, 320), curve.reads()), (0, 6_000 * ONE));
        let between = u64::midpoint(curve.hits(60, 320), curve.hits(80, 320));
        assert_eq!(curve.hits(70, 320), between);
        curve.age();
        assert_eq!(curve.reads(), 6_000 * ONE / 64 * 63);
    }

    #[test]
    fn a_sample_of_the_pages_gives_nearly_the_curve_of_all() {
        let pages = pages(60_000);
        let (sample, mut curve) = (Sample::new(300, 2_400), Curve::new("lru", 300).expect("one"));
        for &page in pages.iter().filter(|&&page| sample.takes(page)) {
            curve.touch(page, true);
        }
        for frames in [300, 900, 2_400] {
            let hits = lru_hits(&pages, frames as usize);
            let (all, ours) =
                (hits * 1_000 / 60_000, curve.hits(frames, 2_400) * 1_000 / curve.reads());
            assert!(all.abs_diff(ours) <= 40, "{frames}: {ours} of 1000, not {all}");
        }
    }

    #[test]
    fn every_policy_has_a_curve() {
        for policy in crate::eviction::NAMES {
            let mut curve = Curve::new(policy, 64).expect("a policy");
            for page in pages(3_000) {
                curve.touch(page, true);
            }
            let hits = [4, 16, 64].map(|frames| curve.hits(frames, 64));
            assert!(hits[0] < hits[2], "{policy}: {hits:?}");
            assert!(Curve::bytes(policy, 64).expect("a policy") > 64 * 5 * 40, "{policy}");
        }
    }

    #[test]
    fn writes_use_pages_and_count_for_nothing() {
        let mut curve = Curve::new("lru", 32).expect("a policy");
        let page = PageId { file: FileId(0), index: 3 };
        curve.touch(page, false);
        assert_eq!(curve.reads(), 0);
        curve.touch(page, true);
        assert_eq!((curve.hits(1, 32), curve.reads()), (ONE, ONE));
    }
}
