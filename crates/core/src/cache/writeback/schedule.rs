//! When dirty pages are written although no flush waits for them, and when those are synced.
//!
//! ```text
//!   dirty, of all files           beyond half of the bound: written, in the order of their file,
//!                                 a batch at a time
//!   a file with writes in flight  waits until a largest request is full, and the batch has room
//!   unsynced, of all files        beyond a quarter of the bound: a sync
//!   a request waits for room      what it needs first: a sync, else a write
//!   older than `dirty_age_max`    written and synced
//!   after a failure               again after a delay, which doubles up to a bound
//! ```
//!
//! Pages collect while earlier ones are written, so that writes join their neighbours and
//! overwrites never reach the store; a store that is fast gets smaller batches, never single
//! pages one after the other. A batch is bounded: a store that is slow gets the next one before
//! the bound of what is dirty is met, so writers wait for it no longer than it lags behind, and
//! reads find a part of the writes before them, not all.
//!
//! # Invariants
//! - While a request waits for room and no file moves (writes, syncs, is being filled), the next
//!   event has one move, unless all wait after a failure.
//! - A page that is dirty becomes durable without a flush: it is written and synced once it is
//!   older than `dirty_age_max`, at the latest with the second sync after that.
//! - Time comes with `Tick`: no deadline is met by any other event.
//! # Sources
//! Nagle 1984 for small writes: while one is in flight, the next ones collect. Linux
//! `vm.dirty_background_ratio` and `vm.dirty_expire_centisecs` for the mark and the age.

use alloc::vec::Vec;

use crate::cache::{Cache, FileId, FrameId};
use crate::units::{Nanos, PageIndex};

impl Cache {
    /// Writes and syncs what should be, under pressure.
    pub(in crate::cache) fn relieve(&mut self) {
        let wanted = self.room_wanted();
        if self.dirty_pages == 0 || !wanted && !self.full() && !self.unsynced_full() {
            return;
        }
        let files: Vec<FileId> = self.dirty_files.iter().copied().collect();
        for file in files {
            let writes = &self.file(file).writes;
            if writes.stopped(self.now) {
                continue;
            }
            let idle = writes.writing == 0 && !writes.syncing && writes.unsynced.is_empty();
            if self.full() || wanted && idle {
                self.write_batch(file);
            }
            self.progress(file);
        }
    }

    /// Writes and syncs the files whose time has come.
    pub(in crate::cache) fn write_due(&mut self) {
        let files: Vec<FileId> = self.dirty_files.iter().copied().collect();
        for file in files {
            if self.due(file).is_some_and(|due| due <= self.now) {
                self.file_mut(file).writes.sync_wanted = true;
                self.write_dirty(file, u64::MAX);
                self.progress(file);
            }
        }
    }

    /// When the next `Tick` has something to write, at the latest.
    #[must_use]
    pub fn writeback_due(&self) -> Option<Nanos> {
        self.dirty_files.iter().filter_map(|&file| self.due(file)).min()
    }

    /// The same, for what `file` alone has to write.
    #[must_use]
    pub fn file_writeback_due(&self, file: FileId) -> Option<Nanos> {
        self.dirty_files.get(&file).and_then(|&file| self.due(file))
    }

    /// When `file` is to be written without another cause; while it moves, its next event tells.
    fn due(&self, file: FileId) -> Option<Nanos> {
        let writes = &self.file(file).writes;
        let moving = writes.writing > 0 || writes.syncing || writes.change.is_some();
        let writable = |frame: &FrameId| self.frames[*frame].fills == 0;
        let idle = writes.is_synced() && !writes.dirty.values().any(writable);
        if moving || idle {
            return None;
        }
        let aged = Nanos(writes.since.0.saturating_add(self.settings.dirty_age_max.0));
        Some(writes.retry.map_or(aged, |retry| retry.at))
    }

    /// Sends out writes for what is dirty, from where the last batch ended, unless it should
    /// collect further.
    fn write_batch(&mut self, file: FileId) {
        let most = self.batch_pages_max();
        let writes = &self.file(file).writes;
        let request_is_full = writes.dirty.len() >= self.settings.request_pages_max as usize;
        if writes.writing > 0 && !request_is_full {
            return;
        }
        let mut left = most.saturating_sub(writes.writing);
        let turned = writes.batch_from;
        for pages in [turned..PageIndex::MAX, 0..turned] {
            let mut at = pages.start;
            while left > 0
                && let Some((&index, &frame)) = self.file(file).writes.dirty.range(at..).next()
                && pages.contains(&index)
            {
                let is_writable = self.frames[frame].fills == 0;
                let count = if is_writable { self.write_run(frame) } else { 1 };
                left = left.saturating_sub(if is_writable { count } else { 0 });
                at = index.saturating_add(u64::from(count));
                self.file_mut(file).writes.batch_from = at;
            }
        }
    }

    /// Pages of a file that are being written at once at most, where no flush waits for them and
    /// they are not old; the last request may go beyond.
    fn batch_pages_max(&self) -> u32 {
        let share = self.settings.dirty_pages_max / BATCH_ONE_IN;
        share.max(self.settings.request_pages_max.saturating_mul(BATCH_REQUESTS_MIN))
    }

    /// Whether the unsynced pages of `file` should become clean though no flush waits.
    pub(super) fn sync_is_due(&self, file: FileId) -> bool {
        let writes = &self.file(file).writes;
        if writes.is_synced() || writes.held(self.now) {
            return false;
        }
        let wanted = self.room_wanted() || writes.sync_wanted;
        wanted && writes.writing == 0 || self.unsynced_full()
    }

    /// Whether a request waits for pages to become clean.
    fn room_wanted(&self) -> bool {
        !self.starved.is_empty() || self.throttled_files.iter().any(|&file| self.lacks_room(file))
    }

    /// Whether so many pages are dirty that they are written.
    fn full(&self) -> bool {
        self.dirty_unwritten > self.settings.dirty_pages_max / 2
    }

    /// Whether so many pages wait for a sync that they get one.
    fn unsynced_full(&self) -> bool {
        self.unsynced > self.settings.dirty_pages_max / 4
    }
}

/// A batch is this part of the bound of what is dirty, or so many of the largest requests.
const BATCH_ONE_IN: u32 = 16;
const BATCH_REQUESTS_MIN: u32 = 4;
