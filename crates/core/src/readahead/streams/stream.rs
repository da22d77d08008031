//! The record of a stream: where its windows end, where its marker is, which way it goes.
//!
//! ```text
//!                read          marker        frontier
//!   forward   ...|=============#=============|- - - next - - ->
//!   backward  <- - - next - - -|=============#=============|...
//!                              frontier      marker        read
//! ```
//! # Invariants
//! - The marker lies between the reader and the frontier.

use super::pace::Pace;
use super::pages_u32;
use super::strides::{Runs, Stride};
use crate::readahead::Window;
use crate::units::{FileId, PageIndex};

/// What is known of a stream, as long as its marker is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) file: FileId,
    pub(super) direction: Direction,
    /// Forward: the page after its windows. Backward: their first page.
    pub(super) frontier: PageIndex,
    /// Pages of the last window.
    pub(super) size: u32,
    pub(super) marker: PageIndex,
    /// The first page that its reader is known to have used.
    pub(super) origin: PageIndex,
    /// The farthest page that was used.
    pub(super) reached: PageIndex,
    /// Where the reader was as the last window was opened, and pages used since.
    pub(super) from: PageIndex,
    pub(super) used: u32,
    pub(super) pace: Pace,
    /// Opened at a first touch: its first marker says whether that was right.
    pub(super) guessed: bool,
    /// What its reader touched.
    pub(super) runs: Runs,
    /// The pieces for which its last windows were made, if they were.
    pub(super) stride: Option<Stride>,
    /// The page behind its predicted end.
    pub(super) end: Option<PageIndex>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

impl Stream {
    /// A page that its windows brought is used.
    pub(super) fn reach(&mut self, page: PageIndex) {
        self.reached = match self.direction {
            Direction::Forward => self.reached.max(page),
            Direction::Backward => self.reached.min(page),
        };
    }

    /// A page that its windows brought left unread: at its far end, it goes on from there. What a
    /// stride has ahead has holes.
    pub(super) fn lose(&mut self, page: PageIndex) {
        let holes = self.stride.is_some() && self.reached < page && page < self.frontier;
        match self.direction {
            Direction::Forward if holes || page + 1 == self.frontier => self.frontier = page,
            Direction::Backward if page == self.frontier => self.frontier = page + 1,
            Direction::Forward | Direction::Backward => {}
        }
    }

    /// Pages between its reader and its frontier.
    pub(super) fn ahead(&self) -> u64 {
        match self.direction {
            Direction::Forward => self.frontier.saturating_sub(self.reached + 1),
            Direction::Backward => self.reached.saturating_sub(self.frontier),
        }
    }

    /// The page from which on `left` pages are ahead; `left` is at least 1.
    pub(super) fn at(&self, left: u64) -> PageIndex {
        match self.direction {
            Direction::Forward => self.frontier - left,
            Direction::Backward => self.frontier + left - 1,
        }
    }

    /// The next window of `size` within the file, if anything is left of it.
    pub(super) fn next(&self, size: u32, file_pages: u64) -> Option<Window> {
        let left = match self.direction {
            Direction::Forward => file_pages.saturating_sub(self.frontier),
            Direction::Backward => self.frontier,
        };
        let size = pages_u32(left).min(size);
        let start = match self.direction {
            Direction::Forward => self.frontier,
            Direction::Backward => self.frontier - u64::from(size),
        };
        (size > 0).then_some(Window { start, size, async_size: size })
    }

    /// `window` is fetched; its marker is where `async_size` pages are ahead.
    pub(super) fn advance(&mut self, window: Window, async_size: u32) {
        self.size = window.size;
        self.frontier = match self.direction {
            Direction::Forward => window.end(),
            Direction::Backward => window.start,
        };
        // Backward, the first pages come last: the next window is fetched as they are met.
        let async_size = match self.direction {
            Direction::Forward => async_size,
            Direction::Backward => window.async_size,
        };
        self.marker = self.at(async_size.into());
        if let Some(end) = self.end.filter(|&end| end < self.frontier) {
            self.marker = end;
        }
    }

    /// `size`, but no more from `first` on than to the page behind the predicted end.
    pub(super) fn until_end(&self, first: PageIndex, size: u32) -> u32 {
        self.end.map_or(size, |end| pages_u32((end + 1).saturating_sub(first)).min(size))
    }
}
