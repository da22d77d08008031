//! Pages that leave because their file changed: truncate and invalidate.
//!
//! ```text
//!   clean                 retract, then free
//!   dirty, unsynced       dropped unwritten (truncate only)
//!   in flight, filling    doomed: no page's any more, free when the operation has ended
//! ```
//!
//! # Invariants
//! - After the call no reader finds the page: it is out of the table, and retracted.
//! - Each request that waited for it gets one error; a fetch of the page's new bytes may start at
//!   once, into another frame.
//! - Invalidate spares bytes whose write was answered.

use alloc::vec::Vec;

use super::{Cache, FileId, FrameId, PageId, State};
use crate::event::Error;
use crate::units::PageIndex;

impl Cache {
    pub(super) fn truncate(&mut self, file: FileId, pages: u64) {
        let Some(row) = self.files.get_mut(&file) else { return };
        row.pages = pages;
        for frame in self.frames_of(file, pages, u64::MAX) {
            let page = self.frames[frame].page.index;
            self.drop_page(frame, Error::PastEnd { page, file_pages: pages });
        }
        self.progress(file);
    }

    pub(super) fn invalidate(&mut self, file: FileId, first: PageIndex, count: u64) {
        for frame in self.frames_of(file, first, first.saturating_add(count)) {
            let row = &self.frames[frame];
            if matches!(row.state, State::Clean | State::InFlight) && row.fills == 0 {
                self.drop_page(frame, Error::Changed { page: row.page.index });
            }
        }
        self.fail_starved_reads(file, first..first.saturating_add(count));
    }

    /// The frames of the file's pages `first..end`, in the order of the pages. Looks up each page,
    /// or walks over all frames where those are fewer; either ends with the last frame that the
    /// file holds, as most files are short or cached from their head.
    pub(super) fn frames_of(&self, file: FileId, first: PageIndex, end: PageIndex) -> Vec<FrameId> {
        let resident = self.files.get(&file).map_or(0, |row| row.frames as usize);
        let held = |index| self.frames.find(PageId { file, index });
        if end - first <= u64::from(self.settings.frames) {
            return (first..end).filter_map(held).take(resident).collect();
        }
        let within = |page: PageId| page.file == file && first <= page.index && page.index < end;
        let mut found: Vec<(PageIndex, FrameId)> = self
            .frames
            .iter()
            .filter(|(frame, row)| within(row.page) && self.frames.find(row.page) == Some(*frame))
            .map(|(frame, row)| (row.page.index, frame))
            .take(resident)
            .collect();
        found.sort_unstable();
        found.into_iter().map(|at| at.1).collect()
    }

    pub(super) fn drop_page(&mut self, frame: FrameId, error: Error) {
        let row = self.frames[frame];
        assert!(row.state != State::Claimed, "claims are issued before another event");
        assert!(row.state != State::Writing, "writes of pages that go are answered before");
        self.stats.invalidated += 1;
        self.frames.unmap(frame);
        if row.prefetched {
            self.frames[frame].prefetched = false;
            self.count_wasted(row.window);
        }
        self.left_unused(&row);
        self.frames[frame].marker = false;
        self.fail_waiters(frame, error);
        if row.resident() {
            self.partitions[row.partition as usize].policy.forget(frame);
        }
        self.drop_unwritten(frame);
        let busy = row.fills > 0 || row.state == State::InFlight;
        self.frames[frame].doomed = busy;
        if self.frames.published(frame) {
            self.retract_dropped(frame, busy);
        } else if !busy {
            self.release(frame);
        }
    }

    /// An operation on a doomed frame has ended; the frame comes free when none is left.
    pub(super) fn end_doomed(&mut self, frame: FrameId) {
        let row = self.frames[frame];
        assert!(row.doomed, "{frame:?} holds a page: {row:?}");
        if row.fills > 0 {
            return;
        }
        if row.held {
            // The reader may have released it since: the retraction is asked for again.
            self.frames[frame].state = State::Lingering;
            self.frames[frame].doomed = false;
            self.retract_dropped(frame, false);
        } else {
            self.release(frame);
        }
    }
}
