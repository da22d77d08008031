//! Extents: the bytes of its page that each frame has.
//!
//! # Invariants
//! - A frame's extent is that of the page which it holds, or is about to hold.
//! - An extent lies within its page.

use super::{FetchRow, RANGE_PAGE_BYTES, page_of};
use crate::queue::Table;
use crate::units::{FrameId, PageIndex};

/// A range of bytes within a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

/// See the module.
pub(super) struct Extents {
    frames: Table<Extent>,
    count: u32,
    /// Frames that have less than a page, or had when they were filled.
    partial: u64,
}

impl Default for Extent {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl Extent {
    /// All of a page, up to the end of the file.
    pub const WHOLE: Self = Self { start: 0, end: RANGE_PAGE_BYTES };

    /// The part of page `index` that lies in `start..end`, which meets it.
    #[must_use]
    pub fn of(index: PageIndex, start: u64, end: u64) -> Self {
        let base = index * u64::from(RANGE_PAGE_BYTES);
        let within = |offset: u64| {
            let offset = offset.saturating_sub(base).min(u64::from(RANGE_PAGE_BYTES));
            u32::try_from(offset).expect("within a page")
        };
        Self { start: within(start), end: within(end) }
    }

    /// Whether `other` lies within it.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

impl Extents {
    pub(super) fn new(frames: u32) -> Self {
        Self { frames: Table::new(frames), count: frames, partial: 0 }
    }

    pub(super) fn of(&self, frame: FrameId) -> Extent {
        self.frames.get(frame.0)
    }

    pub(super) fn has_partial(&self) -> bool {
        self.partial > 0
    }

    /// The frames of `fetch`, of a file of `file_bytes`, have its bytes.
    pub(super) fn fill(&mut self, fetch: &FetchRow, file_bytes: u64) {
        for (index, &frame) in (page_of(fetch.start)..).zip(&fetch.frames) {
            let extent = Extent::of(index, fetch.start, fetch.end);
            let rest = file_bytes - index * u64::from(RANGE_PAGE_BYTES);
            let is_whole =
                extent.start == 0 && u64::from(extent.end) == rest.min(u64::from(RANGE_PAGE_BYTES));
            assert!(frame.0 < self.count, "{frame:?} of {}", self.count);
            let old = self.frames.at(frame.0);
            let was_whole = *old == Extent::WHOLE;
            *old = if is_whole { Extent::WHOLE } else { extent };
            self.partial = self.partial + u64::from(!is_whole) - u64::from(!was_whole);
        }
        assert!(self.partial <= u64::from(self.count), "{} partial frames", self.partial);
    }
}
