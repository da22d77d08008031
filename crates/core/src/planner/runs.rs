//! Runs of pages with the frame numbers that the core gave them.
//!
//! # Invariants
//! - A run has at least one page, and a frame for each.

use alloc::vec::Vec;
use core::ops::Range;

use crate::units::{FrameId, PageIndex};

/// Consecutive pages of one fetch; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageRun {
    pub(super) first: PageIndex,
    pub(super) frames: Vec<FrameId>,
}

/// A run, split by a page range.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SplitRun {
    pub(super) before: Option<PageRun>,
    pub(super) within: Option<PageRun>,
    pub(super) behind: Option<PageRun>,
}

impl PageRun {
    pub(super) fn pages(&self) -> Range<PageIndex> {
        self.first..self.first + self.frames.len() as u64
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.frames.len()).expect("a run has no more pages than there are frames")
    }

    pub(super) fn overlaps(&self, pages: &Range<PageIndex>) -> bool {
        let own = self.pages();
        own.start < pages.end && pages.start < own.end
    }

    /// The parts of the run before, within and behind `pages`.
    pub(super) fn split(mut self, pages: &Range<PageIndex>) -> SplitRun {
        let Range { start, end } = self.pages();
        let from = pages.start.clamp(start, end);
        let to = pages.end.clamp(from, end);
        let behind = self.frames.split_off(index(to - start));
        let within = self.frames.split_off(index(from - start));
        assert_eq!(within.len() as u64, to - from, "a part has a frame for each page");
        let run =
            |first, frames: Vec<FrameId>| (!frames.is_empty()).then_some(Self { first, frames });
        SplitRun {
            before: run(start, self.frames),
            within: run(from, within),
            behind: run(to, behind),
        }
    }
}

fn index(pages: u64) -> usize {
    usize::try_from(pages).expect("a run has no more pages than there are frames")
}

#[cfg(test)]
mod tests;
