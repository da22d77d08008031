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
//! # Invariants
//! - Counts grow strictly along the order; no bucket is empty, so there are at most as many as
//!   frames.
//! # Sources
//! Folklore; in constant time by Shah, Mitra, Matani, "An O(1) algorithm for implementing the LFU
//! cache eviction scheme" (2010). Pages read ahead: `ahead.rs`.

use alloc::vec::Vec;

use super::Eviction;
use super::ahead::Ahead;
use crate::queue::{Links, Queue, Table};
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
}

/// Frames that were used equally often, the last to become so at the head.
#[derive(Default)]
struct Bucket {
    uses: u64,
    frames: Queue,
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
        }
    }

    fn insert(&mut self, frame: FrameId, _: PageId, _: bool) {
        let least = self.order.tail().filter(|&bucket| self.bucket(bucket).uses == 1);
        let bucket = least.unwrap_or_else(|| {
            let bucket = self.spare_bucket(1);
            self.order.push_back(&mut self.bucket_links, bucket);
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
            self.buckets[bucket as usize].uses = uses;
            return;
        }
        let target = fits.unwrap_or_else(|| {
            let made = self.spare_bucket(uses);
            self.order.insert_before(&mut self.bucket_links, bucket, made);
            made
        });
        self.take(frame);
        self.put(frame, target);
    }

    fn evict(&mut self, count: u32, evictable: &dyn Fn(FrameId) -> bool, out: &mut Vec<FrameId>) {
        let (mut taken, mut least) = (0, self.order.tail());
        while let Some(bucket) = least
            && taken < count
        {
            least = self.bucket_links.newer(bucket);
            let more = |next| self.bucket(next).uses > self.bucket(bucket).uses;
            assert!(least.is_none_or(more), "counts grow along the order");
            let frames = &mut self.buckets[bucket as usize].frames;
            taken += frames.take_from_tail(&mut self.links, count - taken, evictable, out);
            self.drop_if_empty(bucket);
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
        self.buckets[bucket as usize].frames.push_front(&mut self.links, frame.0);
    }

    fn take(&mut self, frame: FrameId) {
        let bucket = self.places.get(frame.0);
        self.buckets[bucket as usize].frames.remove(&mut self.links, frame.0);
        self.drop_if_empty(bucket);
    }

    fn drop_if_empty(&mut self, bucket: u32) {
        if self.bucket(bucket).frames.is_empty() {
            self.order.remove(&mut self.bucket_links, bucket);
            self.spare.push_front(&mut self.bucket_links, bucket);
        }
    }
}
