//! The table of the index: from the hash of a page to the frames that it may be in.
//!
//! ```text
//!   bucket, a cache line:  [ e0 | e1 | e2 | e3 | e4 | e5 | e6 | passed ]
//!   entry:                 tag (32 bits) | frame + 1 (32 bits)      0: none
//!
//!   home(hash) --> bucket --full, passed += 1--> next bucket --> ...
//! ```
//!
//! An entry lies in the first bucket from its home on that had room when it came. Each bucket
//! counts the entries that passed it; a finder goes on only where something did.
//!
//! # Invariants
//! - Entries never move, and there is room for twice as many as there are frames: an insertion
//!   always ends, and most end at home.
//! - `passed` of a bucket is the number of entries whose way from their home to where they are
//!   leads past it.
//! # Locking
//! None. One thread at a time inserts and removes; any number find meanwhile. A finder may miss an
//! entry that comes or goes just now, and what it finds may have changed: it looks into the frame.

use forerun_core::units::FrameId;

use crate::sync::{AtomicU64, Ordering};

/// See the module.
pub(super) struct Buckets(Box<[Bucket]>);

/// In a cache line of its own.
#[repr(align(64))]
struct Bucket {
    entries: [AtomicU64; BUCKET_ENTRIES],
    passed: AtomicU64,
}

impl Buckets {
    /// For at most `frames` entries.
    pub(super) fn new(frames: u32) -> Self {
        let room = 2 * u64::from(frames);
        let count = room.div_ceil(BUCKET_ENTRIES as u64).max(1);
        Self((0..count).map(|_| Bucket::new()).collect())
    }

    /// The first answer that `look` has for a frame with this hash.
    pub(super) fn find<T>(&self, hash: u64, look: impl Fn(FrameId) -> Option<T>) -> Option<T> {
        for bucket in self.way(hash) {
            for entry in &bucket.entries {
                let entry = entry.load(Ordering::Acquire);
                if entry >> TAG_SHIFT == tag(hash)
                    && let Some(frame) = frame_of(entry)
                    && let Some(answer) = look(frame)
                {
                    return Some(answer);
                }
            }
            if bucket.passed.load(Ordering::Acquire) == 0 {
                return None;
            }
        }
        None
    }

    /// `frame` has this hash from now on.
    pub(super) fn insert(&self, hash: u64, frame: FrameId) {
        let fresh = tag(hash) << TAG_SHIFT | (u64::from(frame.0) + 1);
        for bucket in self.way(hash) {
            if let Some(entry) = bucket.entry(0) {
                entry.store(fresh, Ordering::Release);
                return;
            }
            bucket.pass(1);
        }
        unreachable!("{frame:?} is one of more frames than the table was made for");
    }

    /// `frame`, which was inserted with this hash, has it no longer.
    pub(super) fn remove(&self, hash: u64, frame: FrameId) {
        let old = tag(hash) << TAG_SHIFT | (u64::from(frame.0) + 1);
        for bucket in self.way(hash) {
            if let Some(entry) = bucket.entry(old) {
                entry.store(0, Ordering::Release);
                return;
            }
            bucket.pass(-1);
        }
        unreachable!("{frame:?} was not inserted");
    }

    /// All buckets, from the home of a hash on.
    fn way(&self, hash: u64) -> impl Iterator<Item = &Bucket> {
        let count = self.0.len();
        let home = ((hash & u64::from(u32::MAX)) * count as u64) >> 32;
        let home = usize::try_from(home).expect("below the number of buckets");
        self.0[home..].iter().chain(&self.0[..home])
    }
}

impl Bucket {
    fn new() -> Self {
        Self { entries: std::array::from_fn(|_| AtomicU64::new(0)), passed: AtomicU64::new(0) }
    }

    /// The entry of this value; the one thread that changes entries sees them as they are.
    fn entry(&self, value: u64) -> Option<&AtomicU64> {
        self.entries.iter().find(|entry| entry.load(Ordering::Relaxed) == value)
    }

    fn pass(&self, by: i64) {
        let passed = self.passed.load(Ordering::Relaxed).checked_add_signed(by);
        self.passed.store(passed.expect("as many leave as came"), Ordering::Release);
    }
}

/// The half of the hash that does not choose the bucket.
fn tag(hash: u64) -> u64 {
    hash >> TAG_SHIFT
}

fn frame_of(entry: u64) -> Option<FrameId> {
    let number = u32::try_from(entry & u64::from(u32::MAX)).expect("the lower half");
    number.checked_sub(1).map(FrameId)
}

/// With the count they fill a cache line.
const BUCKET_ENTRIES: usize = 7;
const TAG_SHIFT: u32 = 32;

#[cfg(not(feature = "shuttle"))]
const _: () = assert!(size_of::<Bucket>() == 64);
