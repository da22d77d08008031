//! Least frequently used: the page with the fewest uses since it came leaves first.
//!
//! Frames with equally many uses share a bucket, in the order in which they got there; buckets are
//! kept by their number of uses. A use moves a frame to the next bucket, which is made if there is
//! none for one use more, so nothing is ever searched.
//!
//! ```text
//!   order:   [9 uses] <-> [4 uses] <-> [2 uses] <-> [1 use]     next to leave
//!               f         f - f           f        f - f - f <- here
//! ```
//!
//! A page that left is forgotten with its count: what was popular once stays for long, what is
//! new has to be used soon.
//!
//! A bucket whose frames were all passed over (`queue/passing.rs`) is passed over itself, so an
//! eviction begins at the first bucket that may give a frame.
//!
//! # Invariants
//! - Counts grow strictly along the order; no bucket is empty, so there are at most as many as
//!   frames.
//! - Buckets that were passed over are those of the fewest uses; those of them that may give a
//!   frame again are in `open`.
//! # Sources
//! Folklore; in constant time by Shah, Mitra, Matani, "An O(1) algorithm for implementing the LFU
//! cache eviction scheme" (2010). Pages read ahead: `ahead.rs`.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Eviction;
use super::ahead::Ahead;
use crate::queue::{Links, PassingQueue, Queue, Table};
use crate::units::{FrameId, PageId};

/// See the module.
pub type Lfu = Ahead<Frequencies>;

/// Frames by their number of uses.
pub struct Frequencies {
    links: Links,
    /// The bucket of each frame.
    places: Table<u32>,
    buckets: Vec<Bucket>,
    bucket_links: Links,
    /// Buckets in use, the most uses at the head.
    order: Queue,
    /// Buckets without frames, on the same links.
    spare: Queue,
    /// Buckets of fewer uses were passed over; 0 if none were.
    passed: u64,
    /// The first of the others, if some were passed over.
    fresh: Option<u32>,
    /// Of those passed over, what may give a frame again, by its uses.
    open: BTreeMap<u64, u32>,
}

/// Frames that were used equally often, the last to become so at the head.
#[derive(Default)]
struct Bucket {
    uses: u64,
    frames: PassingQueue,
}

impl Eviction for Frequencies {
    const NAME: &'static str = "lfu";
    type Params = ();

    fn new(capacity: u32, (): ()) -> Self {
        Self {
            links: Links::new(capacity),
            places: Table::new(capacity),
            buckets: Vec::new(),
            bucket_links: Links::new(0),
            order: Queue::new(),
            spare: Queue::new(),
            passed: 0,
            fresh: None,
            open: BTreeMap::new(),
        }
    }

    fn insert(&mut self, frame: FrameId, _: PageId, _: bool) {
        let least = self.order.tail().filter(|&bucket| self.bucket(bucket).uses == 1);
        let bucket = least.unwrap_or_else(|| {
            let bucket = self.spare_bucket(1);
            self.order.push_back(&mut self.bucket_links, bucket);
            self.note_made(bucket);
            bucket
        });
        self.put(frame, bucket);
    }

    fn renew(&mut self, frame: FrameId) {
        let bucket = self.places.get(frame.0);
        let uses = self.bucket(bucket).uses + 1;
        let next = self.bucket_links.newer(bucket);
        let fits = next.filter(|&next| self.bucket(next).uses == uses);
        if fits.is_none() && self.bucket(bucket).frames.len() == 1 {
            return self.count_on(bucket);
        }
        let target = fits.unwrap_or_else(|| {
            let made = self.spare_bucket(uses);
            self.order.insert_before(&mut self.bucket_links, bucket, made);
            self.note_made(made);
            made
        });
        self.take(frame);
        self.put(frame, target);
    }

    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>) {
        let mut taken = 0;
        while taken < count
            && let Some(bucket) = self.least()
        {
            let more = |next| self.bucket(next).uses > self.bucket(bucket).uses;
            let newer = self.bucket_links.newer(bucket);
            assert!(newer.is_none_or(more), "counts grow along the order");
            let frames = &mut self.buckets[bucket as usize].frames;
            taken += frames.take_from_tail(&mut self.links, count - taken, evictable, out);
            if taken < count && !frames.is_empty() {
                self.pass_over(bucket);
            }
            self.drop_if_empty(bucket);
        }
    }

    fn may_leave(&mut self, frame: FrameId) {
        let bucket = self.places.get(frame.0);
        let Bucket { uses, frames } = &mut self.buckets[bucket as usize];
        if frames.may_leave(&self.links, frame.0) && *uses < self.passed {
            self.open.insert(*uses, bucket);
        }
    }

    fn forget(&mut self, frame: FrameId) {
        self.take(frame);
    }

    fn bytes(frames: u32, _: u32, (): &()) -> u64 {
        // There are no more buckets than frames.
        let bucket = size_of::<Bucket>() as u64 + Links::ROW_BYTES;
        u64::from(frames) * (Links::ROW_BYTES + Table::<u32>::ROW_BYTES + bucket)
    }
}

impl Frequencies {
    fn bucket(&self, bucket: u32) -> &Bucket {
        &self.buckets[bucket as usize]
    }

    /// A bucket without frames, in no order yet.
    fn spare_bucket(&mut self, uses: u64) -> u32 {
        let bucket = self.spare.pop_back(&mut self.bucket_links).unwrap_or_else(|| {
            self.buckets.push(Bucket::default());
            u32::try_from(self.buckets.len() - 1).expect("at most one more than frames")
        });
        let spare = &mut self.buckets[bucket as usize];
        assert!(spare.frames.is_empty() && uses > 0, "a spare bucket is empty");
        spare.uses = uses;
        bucket
    }

    fn put(&mut self, frame: FrameId, bucket: u32) {
        *self.places.at(frame.0) = bucket;
        let Bucket { uses, frames } = &mut self.buckets[bucket as usize];
        frames.push_front(&mut self.links, frame.0);
        if *uses < self.passed {
            self.open.insert(*uses, bucket);
        }
    }

    fn take(&mut self, frame: FrameId) {
        let bucket = self.places.get(frame.0);
        self.buckets[bucket as usize].frames.remove(&mut self.links, frame.0);
        self.drop_if_empty(bucket);
    }

    /// The bucket of the fewest uses among those that may give a frame.
    fn least(&self) -> Option<u32> {
        if self.passed == 0 {
            return self.order.tail();
        }
        self.open.first_key_value().map(|open| *open.1).or(self.fresh)
    }

    /// None of the frames of `bucket` may leave.
    #[cold]
    fn pass_over(&mut self, bucket: u32) {
        let uses = self.bucket(bucket).uses;
        if uses < self.passed {
            self.open.remove(&uses);
        } else {
            self.passed = uses + 1;
            self.fresh = self.bucket_links.newer(bucket);
        }
    }

    /// `bucket` is new in the order.
    fn note_made(&mut self, bucket: u32) {
        if self.passed == 0 || self.bucket(bucket).uses < self.passed {
            return;
        }
        if self.bucket_links.newer(bucket) == self.fresh {
            self.fresh = Some(bucket);
        }
    }

    /// The only frame of `bucket` was used, and no bucket has its uses.
    fn count_on(&mut self, bucket: u32) {
        let Bucket { uses, .. } = &mut self.buckets[bucket as usize];
        let before = *uses;
        *uses += 1;
        if before >= self.passed {
            return;
        }
        let open = self.open.remove(&before).is_some();
        if before + 1 == self.passed {
            self.fresh = Some(bucket);
        } else if open {
            self.open.insert(before + 1, bucket);
        }
    }

    fn drop_if_empty(&mut self, bucket: u32) {
        if self.bucket(bucket).frames.is_empty() {
            if self.passed > 0 {
                self.note_dropped(bucket);
            }
            self.order.remove(&mut self.bucket_links, bucket);
            self.spare.push_front(&mut self.bucket_links, bucket);
        }
    }

    /// `bucket` leaves the order.
    #[cold]
    fn note_dropped(&mut self, bucket: u32) {
        if self.fresh == Some(bucket) {
            self.fresh = self.bucket_links.newer(bucket);
        }
        let uses = self.bucket(bucket).uses;
        self.open.remove(&uses);
    }
}
