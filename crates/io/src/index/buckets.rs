//! The table of the index: from the hash of a page to the frames that it may be in.
//!
//! ```text
//!   bucket, a cache line:  [ e0 | e1 | e2 | e3 | e4 | e5 | e6 | overflow ]
//!   entry:                 tag (32 bits) | frame + 1 (32 bits)      0: none
//!
//!   home(hash) --> bucket --full, overflow += 1--> next bucket --> ...
//! ```
//!
//! An entry lies in the first bucket from its home on that had room when it was inserted. Each
//! bucket counts the entries that overflowed it; a finder goes on only where there is any.
//!
//! # Invariants
//! - Entries never move, and there is room for twice as many as there are frames: an insertion
//!   always ends, and most end at home.
//! - `overflow` of a bucket is the number of entries that were probed there on their way from
//!   their home to where they lie.
//! # Locking
//! None. One thread at a time inserts and removes; any number find meanwhile. A finder may miss an
//! entry that comes or goes just now, and what it finds may have changed: it checks the frame.

use std::collections::TryReserveError;

use forerun_core::{
    hash::{entry, has_tag, home, number_of, tag},
    units::FrameId,
};

use crate::{
    frames::in_huge_pages,
    sync::{AtomicU64, Ordering},
};

/// See the module.
pub(super) struct Buckets(Box<[Bucket]>);

/// In a cache line of its own.
#[repr(align(64))]
struct Bucket {
    entries: [AtomicU64; BUCKET_ENTRIES],
    overflow: AtomicU64,
}

impl Buckets {
    /// For at most `frames` entries.
    ///
    /// # Errors
    /// The memory cannot be had.
    pub(super) fn new(frames: u32) -> Result<Self, TryReserveError> {
        let room = 2 * u64::from(frames);
        let count = room.div_ceil(BUCKET_ENTRIES as u64).max(1);
        let count = usize::try_from(count).expect("no more than there are frames");
        in_huge_pages(count, Bucket::new).map(Self)
    }

    /// The first answer of `look` for a frame with this hash.
    #[inline]
    pub(super) fn find<T>(&self, hash: u64, look: impl Fn(FrameId) -> Option<T>) -> Option<T> {
        for bucket in self.probe(hash) {
            let mut matches = bucket.matching(tag(hash));
            while matches != 0 {
                let entry = &bucket.entries[matches.trailing_zeros() as usize];
                matches &= matches - 1;
                if let Some(number) = number_of(entry.load(Ordering::Acquire))
                    && let Some(answer) = look(FrameId(number))
                {
                    return Some(answer);
                }
            }
            if bucket.overflow.load(Ordering::Acquire) == 0 {
                return None;
            }
        }
        None
    }

    /// Inserts `frame`, which has this hash from now on.
    pub(super) fn insert(&self, hash: u64, frame: FrameId) {
        let fresh = entry(hash, frame.0);
        for bucket in self.probe(hash) {
            if let Some(entry) = bucket.entry(0) {
                entry.store(fresh, Ordering::Release);
                return;
            }
            bucket.overflow_by(1);
        }
        unreachable!("{frame:?} is one of more frames than the table was made for");
    }

    /// Removes `frame`, which was inserted with this hash.
    pub(super) fn remove(&self, hash: u64, frame: FrameId) {
        let old = entry(hash, frame.0);
        for bucket in self.probe(hash) {
            if let Some(entry) = bucket.entry(old) {
                entry.store(0, Ordering::Release);
                return;
            }
            bucket.overflow_by(-1);
        }
        unreachable!("{frame:?} was not inserted");
    }

    /// All buckets, from the home of a hash on.
    #[inline]
    fn probe(&self, hash: u64) -> impl Iterator<Item = &Bucket> {
        let home = home(hash, self.0.len());
        self.0[home..].iter().chain(&self.0[..home])
    }
}

impl Bucket {
    fn new() -> Self {
        Self { entries: std::array::from_fn(|_| AtomicU64::new(0)), overflow: AtomicU64::new(0) }
    }

    /// Which entries have this tag, a bit each. All are compared, since where among them a page
    /// stands cannot be predicted.
    #[inline]
    fn matching(&self, tag: u32) -> u32 {
        let bits = self
            .entries
            .iter()
            .enumerate()
            .map(|(at, entry)| u32::from(has_tag(entry.load(Ordering::Acquire), tag)) << at);
        bits.fold(0, |all, bit| all | bit)
    }

    /// The entry of this value; the one thread that changes entries sees them as they are.
    fn entry(&self, value: u64) -> Option<&AtomicU64> {
        self.entries.iter().find(|entry| entry.load(Ordering::Relaxed) == value)
    }

    fn overflow_by(&self, by: i64) {
        let overflow = self.overflow.load(Ordering::Relaxed).checked_add_signed(by);
        self.overflow.store(overflow.expect("as many leave as came"), Ordering::Release);
    }
}

/// With the count they fill a cache line.
const BUCKET_ENTRIES: usize = 7;

#[cfg(not(feature = "shuttle"))]
const _: () = assert!(size_of::<Bucket>() == 64);

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::BTreeMap};

    use forerun_core::prng::Prng;

    use super::*;

    /// All frames that a finder tries which accepts none.
    fn all(buckets: &Buckets, hash: u64) -> Vec<u32> {
        let seen = RefCell::new(Vec::new());
        let none: Option<()> = buckets.find(hash, |frame| {
            seen.borrow_mut().push(frame.0);
            None
        });
        assert_eq!(none, None);
        let mut seen = seen.into_inner();
        seen.sort_unstable();
        seen
    }

    fn overflow(buckets: &Buckets) -> Vec<u64> {
        buckets.0.iter().map(|bucket| bucket.overflow.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn entries_of_a_full_bucket_go_to_the_next_and_around_the_end() {
        let buckets = Buckets::new(12).unwrap(); // 4 buckets
        let last = u64::from(u32::MAX) << 32;
        for frame in 0..12 {
            buckets.insert(last, FrameId(frame));
        }
        assert_eq!(overflow(&buckets), [0, 0, 0, 5]);
        assert_eq!(all(&buckets, last), (0..12).collect::<Vec<_>>());
        assert_eq!(all(&buckets, last | 1), [], "at home there too, of another tag");
        assert_eq!(all(&buckets, 0), [7, 8, 9, 10, 11], "at home where they are, of their tag");
        buckets.remove(last, FrameId(0));
        assert_eq!((overflow(&buckets), all(&buckets, last).len()), (vec![0, 0, 0, 5], 11));
        buckets.insert(last, FrameId(0));
        assert_eq!(overflow(&buckets), [0, 0, 0, 5], "where there was room");
        for frame in 0..12 {
            buckets.remove(last, FrameId(frame));
        }
        assert_eq!((overflow(&buckets), all(&buckets, last)), (vec![0; 4], vec![]));
    }

    #[test]
    fn one_frame_and_none_have_a_bucket() {
        assert_eq!((Buckets::new(0).unwrap().0.len(), Buckets::new(1).unwrap().0.len()), (1, 1));
        assert_eq!(all(&Buckets::new(0).unwrap(), 5), []);
    }

    #[test]
    fn the_first_answer_ends_the_search() {
        let buckets = Buckets::new(4).unwrap();
        buckets.insert(9, FrameId(2));
        buckets.insert(9, FrameId(3));
        assert_eq!(buckets.find(9, |frame| (frame.0 == 3).then_some("three")), Some("three"));
        assert_eq!(buckets.find(9, Some), Some(FrameId(2)));
    }

    type Hash = fn(u64) -> u64;

    /// Hashes by how they collide, from a number that differs.
    const HASHES: [(&str, Hash); 5] = [
        ("all matches", |_| 0x4000_0000 << 32 | 7),
        ("one home", |number| number),
        ("one tag", |number| (number << 28).rotate_left(32)),
        ("two homes, three tags", |number| (number % 3) | ((number % 2) << 63)),
        ("spread", |number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    ];

    #[test]
    fn what_was_inserted_and_not_removed_is_found_under_any_collisions() {
        for (why, hash) in HASHES {
            for frames in [1, 3, 7, 8, 20] {
                let (buckets, mut prng) =
                    (Buckets::new(frames).unwrap(), Prng::new(u64::from(frames)));
                let mut twin = BTreeMap::new(); // Frame to hash.
                for _ in 0..400 {
                    let frame = u32::try_from(prng.below(u64::from(frames))).unwrap();
                    if let Some(old) = twin.remove(&frame) {
                        buckets.remove(old, FrameId(frame));
                    } else {
                        let fresh = hash(prng.below(40));
                        buckets.insert(fresh, FrameId(frame));
                        twin.insert(frame, fresh);
                    }
                    for asked in (0..40).map(hash) {
                        let seen = all(&buckets, asked);
                        let mut due = twin.iter().filter(|&(_, &of)| of == asked);
                        assert!(due.all(|(frame, _)| seen.contains(frame)), "{why}");
                        // Another home with the same tag may be on the way.
                        let may = |frame: &u32| tag(twin[frame]) == tag(asked);
                        assert!(seen.iter().all(may), "{why}: {seen:?}");
                    }
                }
                for (frame, old) in twin {
                    buckets.remove(old, FrameId(frame));
                }
                assert_eq!(overflow(&buckets), vec![0; buckets.0.len()], "{why}");
            }
        }
    }
}
