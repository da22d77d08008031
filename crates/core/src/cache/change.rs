//! Changes of a file in its store: a range that is zeroed or discarded, another length.
//!
//! ```text
//!   Change --> after the writes before it --> no write at the store --> Action::Change --> Changed
//!                        |            ^
//!                        +-- a flush -+     the first page keeps a part, and is not durable
//! ```
//!
//! The store changes the pages itself, so no byte of them passes the cache. While it does, writes
//! of the file wait, those to the store too; reads go on, and see the pages as they were.
//!
//! # Invariants
//! - What the cache has of the pages stays until the change succeeded, and leaves then. After one
//!   that failed, nothing is lost that was written; clean pages are fetched anew.
//! - A read that waits for such a page gets its new bytes: no fetch from before the end of the
//!   change becomes resident.
//! - A file has one change at a time. Changes and writes begin in their order.

use super::{Cache, FileId, FrameId, HandleId, RequestId, State};
use crate::event::{Action, Error};
use crate::units::{PageId, PageIndex};

/// A change of pages in the store.
#[derive(Clone, Copy)]
pub(super) struct Change {
    pub(super) request: RequestId,
    pub(super) handle: HandleId,
    pub(super) first: PageIndex,
    pub(super) count: u64,
    /// The first page keeps some of its bytes.
    pub(super) keeps_first: bool,
    /// The file's length afterwards, where it is another.
    pub(super) file_pages: Option<u64>,
    /// Answered when it is durable.
    pub(super) durable: bool,
    pub(super) stage: Stage,
}

/// How far a change is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The store still writes pages of the file.
    Waiting,
    /// A flush makes durable what the first page keeps.
    Flushing,
    /// The store makes the change.
    InStore,
}

impl Cache {
    /// Takes up the change of `file`, which has no write that began and is not filled.
    pub(super) fn begin_change(&mut self, file: FileId, change: Change) {
        let writes = &mut self.file_mut(file).writes;
        assert!(
            writes.change.is_none() && !writes.is_filling(),
            "changes wait for the writes before"
        );
        writes.change = Some(change);
        self.changing.push(file);
    }

    /// Has stores make the changes that nothing stands in the way of any more.
    pub(super) fn advance_changes(&mut self) {
        if self.changing.is_empty() {
            return;
        }
        let mut changing = core::mem::take(&mut self.changing);
        changing.retain(|&file| self.advance_change(file));
        assert!(self.changing.is_empty(), "no change begins meanwhile");
        self.changing = changing;
    }

    /// Whether `file` still has a change.
    fn advance_change(&mut self, file: FileId) -> bool {
        let Some(row) = self.files.get(&file) else { return false };
        let Some(change) = row.writes.change else { return false };
        if change.stage != Stage::Waiting {
            return true;
        }
        let Change { request, handle, first, .. } = change;
        if change.keeps_first && self.unwritten(PageId { file, index: first }) {
            self.set_stage(file, Stage::Flushing);
            self.flush(request, handle);
        } else if !row.writes.is_writing() {
            self.set_stage(file, Stage::InStore);
            self.actions.list.push(Action::Change { request });
        }
        true
    }

    /// The flush before the change of `file` ended, if that is what `request` flushed for. Returns
    /// whether it is, and the change goes on.
    pub(super) fn flushed_for_change(
        &mut self,
        file: FileId,
        request: RequestId,
        ok: bool,
    ) -> bool {
        let change = &mut self.file_mut(file).writes.change;
        let ours = |change: &Change| change.request == request && change.stage == Stage::Flushing;
        if !change.as_ref().is_some_and(ours) {
            return false;
        }
        *change = change.filter(|_| ok).map(|change| Change { stage: Stage::Waiting, ..change });
        ok
    }

    fn set_stage(&mut self, file: FileId, stage: Stage) {
        let change = self.file_mut(file).writes.change.as_mut();
        change.expect("it has a change").stage = stage;
    }

    /// The store made the change of `request`, or failed to.
    pub(super) fn changed(&mut self, request: RequestId, errno: i32) {
        let is_its = |change: Change| change.request == request && change.stage == Stage::InStore;
        let has_it = |file: &FileId| self.file(*file).writes.change.is_some_and(is_its);
        let file = self.changing.iter().copied().find(has_it);
        let file = file.expect("the store was to make this change");
        let change = self.file_mut(file).writes.change.take().expect("found");
        let Change { handle, first, .. } = change;
        if errno == 0 {
            let now = self.now;
            let row = self.file_mut(file);
            row.pages = change.file_pages.unwrap_or(row.pages);
            row.writes.alter(now);
            self.dirty_files.insert(file);
        }
        for frame in self.frames_of(file, first, first.saturating_add(change.count)) {
            let is_clean = matches!(self.frames[frame].state, State::Clean | State::InFlight);
            if errno == 0 || is_clean {
                self.leave_changed(frame);
            }
        }
        if errno != 0 {
            let page = PageId { file, index: first };
            self.fail(request, Error::Store { page, errno });
        } else if change.durable {
            self.flush(request, handle);
        } else {
            self.actions.list.push(Action::Done { request });
        }
        // First the reads that lack a frame for a moment: they are no reason for a sync.
        self.feed_starved();
        self.progress(file);
    }

    /// The page of `frame` leaves; reads that wait for it fetch it anew, within the file.
    fn leave_changed(&mut self, frame: FrameId) {
        let PageId { file, index: page } = self.frames[frame].page;
        let file_pages = self.file(file).pages;
        if page < file_pages {
            self.starve_waiters(frame);
        }
        self.drop_page(frame, Error::PastEnd { page, file_pages });
    }
}
