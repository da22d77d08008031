//! The index of published pages: all that a hit touches.
//!
//! ```text
//!   page --hash--> buckets --frame--> header: published, and of that page? pin --> bytes
//! ```
//!
//! Readers find and pin without a lock. One writer, the [`Publisher`], publishes and retracts pages
//! as the core says. A reader that misses a page which is just being published asks the core;
//! nothing is lost but a little time.
//!
//! All that a hit runs through is inlined into its caller: what a call hands back through memory is
//! read there before it has left the processor's store buffer, which the atomic operations of a
//! pin hold up until the reader's bytes have come.
//!
//! # Invariants
//! - A page is found only while it is published, and its bytes are of that page for as long as
//!   the pin lives: the header of the frame is loaded again once the pin is taken.
//! - A page is published in one frame at most, and in the table exactly while it is published.
//! - The table is bounded by the frames, and made with the index.
//! # Locking
//! One [`Publisher`] exists for an index, and changes it by `&mut self`: it is kept under the lock
//! that the core is under.

mod buckets;

use std::sync::Arc;

use forerun_core::{
    event::Hit,
    hash::page_hash,
    units::{FrameId, PageId},
};

use crate::frames::{Frames, NoMemory, Pin, Publication, PublishOutcome};
use buckets::Buckets;

/// See the module.
pub struct Index {
    frames: Arc<Frames>,
    buckets: Buckets,
}

/// A page that was found, pinned.
#[derive(Debug)]
pub struct PinnedPage<'a> {
    /// Its bytes.
    pub pin: Pin<'a>,
    /// What the core learns of its use.
    pub hit: Hit,
    /// Its use triggers a readahead.
    pub marker: bool,
}

/// What is published in a frame: the arguments of [`Publisher::publish`] but for the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The page.
    pub page: PageId,
    /// The generation.
    pub generation: u32,
    /// Its use triggers a readahead.
    pub marker: bool,
}

/// The one writer of an index.
pub struct Publisher {
    index: Arc<Index>,
}

impl Index {
    /// An index of pages in `frames`, none published, and its publisher.
    ///
    /// # Errors
    /// The memory cannot be had.
    pub fn new(frames: Arc<Frames>) -> Result<(Arc<Self>, Publisher), NoMemory> {
        let refused = NoMemory { count: frames.count(), page_bytes: frames.page_bytes() };
        let buckets = Buckets::new(frames.count()).map_err(|_| refused)?;
        let index = Arc::new(Self { frames, buckets });
        Ok((Arc::clone(&index), Publisher { index }))
    }

    /// Pins the frame that `page` is in, if it is published. No lock, no allocation, no system
    /// call. A page that is just being published or retracted may be missed.
    #[must_use]
    #[inline]
    pub fn find(&self, page: PageId) -> Option<PinnedPage<'_>> {
        self.buckets.find(page_hash(page), |frame| {
            let (pin, publication) = self.frames.find(page, frame)?;
            let hit = Hit { frame, generation: publication.generation };
            Some(PinnedPage { pin, hit, marker: publication.marker })
        })
    }

    /// The frames that pages are found in.
    #[must_use]
    pub fn frames(&self) -> &Frames {
        &self.frames
    }
}

impl Publisher {
    /// The index.
    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// What is published in `frame`.
    #[must_use]
    pub fn published(&self, frame: FrameId) -> Option<Published> {
        let (page, publication) = self.index.frames.published(frame)?;
        let Publication { generation, marker } = publication;
        Some(Published { page, generation, marker })
    }

    /// Whether the page of `frame` was retracted while it was pinned: no page can be published in
    /// it until a retraction finds it unpinned.
    #[must_use]
    pub fn is_retracting(&self, frame: FrameId) -> bool {
        self.index.frames.is_retracting(frame)
    }

    /// Publishes `page` in `frame`, which is cached and holds its bytes. A page that is published
    /// there already gets a new marker.
    ///
    /// # Panics
    /// The frame is checked out, or another page or generation is published in it, or the page is
    /// published in another frame.
    pub fn publish(&mut self, page: PageId, frame: FrameId, generation: u32, marker: bool) {
        match self.index.frames.publish(page, frame, generation, marker) {
            PublishOutcome::Marker => {}
            PublishOutcome::New => {
                assert!(self.index.find(page).is_none(), "{page:?} is published in two frames");
                self.index.buckets.insert(page_hash(page), frame);
            }
        }
    }

    /// Retracts the page in `frame`; returns whether the frame has no pin: then it may be checked
    /// out. If it is pinned, a page that is not `gone` stays published. A frame without a published
    /// page may be asked about, too.
    #[must_use = "a frame that is pinned cannot be checked out"]
    pub fn retract(&mut self, frame: FrameId, gone: bool) -> bool {
        let retracted = self.index.frames.retract(frame, gone);
        if let Some(page) = retracted.page {
            self.index.buckets.remove(page_hash(page), frame);
        }
        retracted.unpinned
    }
}
