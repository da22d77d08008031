//! Ends: readers that take run after run of about the same length, as of column chunks.
//!
//! ```text
//!   |====run====|........|====run====|.....|====window====#|     # marker behind the predicted end
//! ```
//! How long the last runs of a file were is known where one reader came through a run without a
//! pause for another, and then went elsewhere. The windows of the next stream stop there. The
//! marker lies one page further: no reader meets it unless the run goes on, and then what was known
//! of lengths is forgotten.
//!
//! # Invariants
//! - Streams that take turns teach nothing: their notes alternate.
//! # Sources
//! This project's own.

use crate::readahead::StreamId;

/// Whose pages were used last, and how many of them without another's between.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Streak {
    stream: Option<StreamId>,
    pages: u64,
}

/// The length of the last runs of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    /// Pages; 0: not known.
    pages: u64,
    /// How many runs in a row were about as long.
    alike: u32,
}

impl Streak {
    /// A page of `stream` was used.
    pub(super) fn used(&mut self, stream: StreamId) {
        if self.stream == Some(stream) {
            self.pages += 1;
        } else {
            *self = Self { stream: Some(stream), pages: 1 };
        }
    }

    /// Whose pages were used last.
    pub(super) fn stream(self) -> Option<StreamId> {
        self.stream
    }

    /// Whether `stream` alone was read for most of `pages`.
    pub(super) fn covers(self, stream: StreamId, pages: u64) -> bool {
        self.stream == Some(stream) && self.pages >= pages / 2
    }
}

impl Ends {
    /// A run of `pages` ended.
    pub(super) fn ended(&mut self, pages: u64) {
        if pages < SHORTEST {
            return;
        }
        let alike = pages.abs_diff(self.pages) <= self.pages / ALIKE_PART;
        self.alike = if alike { self.alike.saturating_add(1) } else { 1 };
        self.pages = pages;
    }

    /// How long the next run will be, if that is known.
    pub(super) fn pages(self) -> Option<u64> {
        (self.pages > 0).then_some(self.pages)
    }

    /// Whether a run may be fetched to its end at once.
    pub(super) fn sure(self) -> bool {
        self.alike >= SURE
    }
}

/// A shorter run is no stream.
const SHORTEST: u64 = 8;
/// Lengths are alike that differ by no more than one part in so many.
const ALIKE_PART: u64 = 8;
/// Runs of one length that make it sure.
const SURE: u32 = 2;
