//! The bound of what is not durable, and the writes that wait for room.
//!
//! ```text
//!   dirty_pages_max = B     dirty, writing, unsynced, promised         free
//!   |===== file 1 =====|=== file 2 ===|...............................|
//!                                      a file may hold twice what is free
//! ```
//!
//! A file with no page of its own may always begin to write within what is free. One that holds
//! pages may hold, its next write included, at most twice what is free: alone 2/3 of the bound, and
//! `n` files that take all they may leave `1/(2n + 1)` of it. So a file whose store fails never
//! takes all the room, and writers of other files go on.
//!
//! # Invariants
//! - Dirty, writing and unsynced pages, and those promised to writes that began, never exceed
//!   `Settings::dirty_pages_max`.
//! - Writes of one file begin in their order; files take turns.
//! - A write waits only while something may make room for it; else it fails at once.
//! # Sources
//! Choudhury and Hahne 1998, dynamic queue length thresholds for shared-memory switches: a queue
//! may grow to a multiple of what is free. Theirs are packets, ours pages of files.

use alloc::vec::Vec;

use crate::cache::{Cache, FileId, HandleId, RequestId};
use crate::event::Error;
use crate::units::PageIndex;

/// A write that has not begun.
#[derive(Clone, Copy)]
pub(in crate::cache) struct ThrottledWrite {
    pub(in crate::cache) request: RequestId,
    pub(in crate::cache) handle: HandleId,
    pub(in crate::cache) first: PageIndex,
    pub(in crate::cache) count: u32,
    /// Whether the first and the last page are written in part.
    pub(in crate::cache) partial: (bool, bool),
    pub(in crate::cache) durable: bool,
}

impl Cache {
    pub(in crate::cache) fn write(&mut self, write: ThrottledWrite) {
        assert!(write.count > 0, "{:?} writes nothing", write.request);
        let file = self.file_of(write.handle);
        let capacity = self.partitions[self.file(file).partition as usize].capacity;
        let bound = self.settings.dirty_pages_max.min(capacity);
        if write.count > bound {
            let error = Error::TooLarge { pages: write.count, bound };
            return self.fail(write.request, error);
        }
        if let Some(error) = self.too_many_waiters(write.count) {
            return self.fail(write.request, error);
        }
        if write.first.checked_add(u64::from(write.count)).is_none() {
            let file_pages = self.file(file).pages;
            let error = Error::PastEnd { page: write.first, file_pages };
            return self.fail(write.request, error);
        }
        if self.file(file).writes.throttled.is_empty() && self.may_dirty(file, write.count) {
            return self.begin_write(write);
        }
        if self.throttled >= self.settings.waiters_max {
            let error = Error::Busy { bound: self.settings.waiters_max };
            return self.fail(write.request, error);
        }
        self.throttled += 1;
        self.stats.throttled += 1;
        let queue = &mut self.file_mut(file).writes.throttled;
        queue.push_back(write);
        if queue.len() == 1 {
            self.throttled_files.push_back(file);
        }
    }

    /// Whether a write of `count` pages to `file` may begin.
    pub(super) fn may_dirty(&self, file: FileId, count: u32) -> bool {
        let free = self.settings.dirty_pages_max - self.dirty_pages - self.promised;
        let writes = &self.file(file).writes;
        let own = u64::from(writes.pages) + u64::from(writes.promised);
        let share = SHARE * u64::from(free);
        count <= free && (own == 0 || own + u64::from(count) <= share)
    }

    /// Counts pages of a write that begins.
    pub(super) fn promise(&mut self, file: FileId, count: u32) {
        self.promised += count;
        self.file_mut(file).writes.promised += count;
    }

    /// A promised page is filled, or never will be.
    pub(in crate::cache) fn keep_promise(&mut self, file: FileId) {
        assert!(self.promised > 0, "a page that is to be filled is promised");
        self.promised -= 1;
        let promised = &mut self.file_mut(file).writes.promised;
        assert!(*promised > 0, "a page that is to be filled is promised by its file");
        *promised -= 1;
    }

    /// Begins writes that waited for others to become durable: files take turns.
    pub(in crate::cache) fn resume_throttled(&mut self) {
        for _ in 0..self.throttled_files.len() {
            let file = self.throttled_files.pop_front().expect("counted");
            while let Some(&write) = self.file(file).writes.throttled.front() {
                let stuck = if self.may_dirty(file, write.count) {
                    None
                } else if let Some(error) = self.stuck(file, write.count) {
                    Some(error)
                } else {
                    break;
                };
                self.file_mut(file).writes.throttled.pop_front();
                self.throttled -= 1;
                match stuck {
                    None => self.begin_write(write),
                    Some(error) => self.fail(write.request, error),
                }
            }
            if !self.file(file).writes.throttled.is_empty() {
                self.throttled_files.push_back(file);
            }
        }
    }

    /// Why waiting makes no room for `count` pages of `file`, if so: the file waits after a
    /// failure, or all those do that hold pages.
    fn stuck(&self, file: FileId, count: u32) -> Option<Error> {
        let idle = |file: FileId| {
            let writes = &self.file(file).writes;
            let moving = writes.syncing || writes.writing > 0 || writes.promised > 0;
            writes.held(self.now) && !moving
        };
        if idle(file) {
            return Some(Error::Writeback { errno: self.file(file).writes.errno });
        }
        let bound = self.settings.dirty_pages_max;
        let free = bound - self.dirty_pages - self.promised;
        let own = &self.file(file).writes;
        let alone = own.pages == 0 && own.promised == 0 && count > free;
        let none_moves = self.promised == 0 && self.dirty_files.iter().all(|&file| idle(file));
        (alone && none_moves).then_some(Error::Busy { bound })
    }

    /// Forgets a write that has not begun; returns whether there was one.
    pub(super) fn cancel_throttled(&mut self, request: RequestId) -> bool {
        let files: Vec<FileId> = self.throttled_files.iter().copied().collect();
        for file in files {
            let queue = &mut self.file_mut(file).writes.throttled;
            let Some(at) = queue.iter().position(|write| write.request == request) else {
                continue;
            };
            queue.remove(at);
            self.throttled -= 1;
            if self.file(file).writes.throttled.is_empty() {
                self.throttled_files.retain(|&other| other != file);
            }
            return true;
        }
        false
    }
}

/// How much of what is free a file may hold.
const SHARE: u64 = 2;
