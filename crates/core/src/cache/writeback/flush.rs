//! Flushes and syncs: what waits for pages to be durable, and how it is answered.
//!
//! ```text
//!   Flush --> its pages are written --> a sync that began after that --> Synced: Done or Fail
//! ```
//!
//! # Invariants
//! - A file has one sync in flight at a time. Pages that were written while it ran wait for the
//!   next.
//! - After a failed sync every page that it was to cover is dirty again, and every flush that
//!   waited has failed.

use alloc::vec::Vec;

use super::FlushRow;
use crate::cache::{Cache, FileId, FrameId, HandleId, RequestId, State};
use crate::event::{Action, Error};

impl Cache {
    pub(in crate::cache) fn flush(&mut self, request: RequestId, handle: HandleId) {
        let (file, now) = (self.file_of(handle), self.now);
        self.flushing += 1;
        let writes = &mut self.file_mut(file).writes;
        let epoch = writes.epoch;
        writes.epoch += 1;
        if let Some(retry) = &mut writes.retry {
            retry.at = now;
        }
        writes.flushes.push(FlushRow { request, handle, epoch, sync: None, failed: false });
        self.write_awaited(file);
        self.progress(file);
    }

    /// Sends the file's next sync, if a flush waits for one or its unsynced pages should be clean.
    pub(in crate::cache) fn progress(&mut self, file: FileId) {
        if !self.files.contains_key(&file) {
            return;
        }
        self.write_awaited(file);
        let relief = self.sync_is_due(file);
        let writes = &mut self.file_mut(file).writes;
        if writes.syncing {
            return;
        }
        let ready = writes.flushes.iter().any(|flush| writes.ready(flush));
        if !ready && !relief {
            return self.note_dirty_file(file);
        }
        writes.sync_wanted = false;
        let sync = writes.syncs;
        writes.syncs += 1;
        writes.syncing = true;
        let drained = writes.unwritten.front().map_or(u64::MAX, |open| open.0);
        for flush in &mut writes.flushes {
            if flush.sync.is_none() && (flush.failed || flush.epoch < drained) {
                flush.sync = Some(sync);
            }
        }
        self.stats.syncs += 1;
        self.actions.list.push(Action::Sync { file });
    }

    pub(in crate::cache) fn synced(&mut self, file: FileId, errno: i32) {
        let Some(row) = self.files.get_mut(&file) else {
            unreachable!("the row of a file that syncs stays")
        };
        let (writes, now) = (&mut row.writes, self.now);
        assert!(writes.syncing, "{file:?} is not syncing");
        writes.syncing = false;
        assert!(writes.syncs > 0 && writes.syncs_failed < writes.syncs, "syncs are counted");
        let sync = writes.syncs - 1;
        if errno == 0 {
            // While it waits after a failure, what failed is not in the store yet.
            writes.retry = writes.retry.filter(|_| writes.held(now));
            writes.since = now;
            writes.altered = writes.altered.filter(|&covered_by| covered_by > sync);
        } else {
            writes.failed(errno, now, self.settings.retry_delay);
            writes.syncs_failed += 1;
        }
        while let Some(index) = writes.unsynced.tail() {
            let frame = FrameId(index);
            // A failed sync may have lost what was written while it ran, too.
            if errno == 0 && self.frames[frame].sync > sync {
                break;
            }
            writes.unsynced.remove(&mut self.write_links, index);
            self.unsynced -= 1;
            if errno == 0 {
                self.frames[frame].state = State::Clean;
                let at = self.frames[frame].partition;
                writes.uncount(at);
                self.dirty_pages -= 1;
                self.partitions[at as usize].dirty -= 1;
                self.partitions[at as usize].policy.may_leave(frame);
            } else {
                let row = &mut self.frames[frame];
                (row.state, row.epoch) = (State::Dirty, writes.epoch);
                writes.add(writes.epoch);
                writes.dirty.insert(row.page.index, frame);
                self.dirty_unwritten += 1;
            }
        }
        let (ended, waiting) = core::mem::take(&mut writes.flushes)
            .into_iter()
            .partition::<Vec<_>, _>(|flush| flush.sync == Some(sync));
        writes.flushes = waiting;
        for flush in ended {
            self.end_flush(file, &flush);
        }
        self.progress(file);
        self.forget_idle_file(file);
    }

    fn end_flush(&mut self, file: FileId, flush: &FlushRow) {
        assert!(self.flushing > 0, "{:?} waits", flush.request);
        self.flushing -= 1;
        let writes = &self.file(file).writes;
        let (errors, errno) = (writes.errors, writes.errno);
        let handle = self.handles[flush.handle.0 as usize].as_mut();
        let handle = handle.expect("a handle with requests stays open");
        let reported = core::mem::replace(&mut handle.errors_seen, errors) == errors;
        let ok = reported && !flush.failed;
        if self.flushed_for_change(file, flush.request, ok) {
            return;
        }
        if ok {
            self.actions.list.push(Action::Done { request: flush.request });
        } else {
            self.fail(flush.request, Error::Writeback { errno });
        }
    }

    /// Keeps the list of files with something to write or to sync.
    fn note_dirty_file(&mut self, file: FileId) {
        if !self.file(file).writes.has_any() {
            self.dirty_files.remove(&file);
        }
    }
}
