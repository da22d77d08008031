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
//! takes all the room, and writers of other files go on. The same holds in each partition, of
//! which three frames in four may be dirty, by what the file holds there.
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

use crate::cache::change::{Change, Stage};
use crate::cache::{Cache, FileId, Frame, HandleId, PageId, RequestId, State};
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

/// What waits in the queue of a file's writes.
#[derive(Clone, Copy)]
pub(in crate::cache) enum Throttled {
    Write(ThrottledWrite),
    Change(Change),
}

impl Throttled {
    fn request(self) -> RequestId {
        match self {
            Self::Write(ThrottledWrite { request, .. }) | Self::Change(Change { request, .. }) => {
                request
            }
        }
    }
}

/// Whether a request at the head of a queue begins.
enum Turn {
    Begins,
    Waits,
    Fails(Error),
}

impl Cache {
    pub(in crate::cache) fn write(&mut self, write: ThrottledWrite) {
        assert!(write.count > 0, "{:?} writes nothing", write.request);
        let file = self.file_of(write.handle);
        if let Some(error) = self.too_large(&write) {
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
        self.begin_or_wait(file, Throttled::Write(write));
    }

    /// A change in the store: after the writes and changes before it.
    pub(in crate::cache) fn change(&mut self, change: Change) {
        let file = self.file_of(change.handle);
        self.begin_or_wait(file, Throttled::Change(change));
    }

    fn begin_or_wait(&mut self, file: FileId, next: Throttled) {
        let is_first = self.file(file).writes.throttled.is_empty();
        if is_first && matches!(self.turn_of(file, next), Turn::Begins) {
            return self.begin(file, next);
        }
        if self.throttled >= self.settings.waiters_max {
            let error = Error::Busy { bound: self.settings.waiters_max };
            return self.fail(next.request(), error);
        }
        self.throttled += 1;
        self.stats.throttled += u64::from(matches!(next, Throttled::Write(_)));
        self.file_mut(file).writes.throttled.push_back(next);
        if is_first {
            self.throttled_files.push_back(file);
        }
    }

    fn begin(&mut self, file: FileId, next: Throttled) {
        match next {
            Throttled::Write(write) => self.begin_write(write),
            Throttled::Change(change) => self.begin_change(file, change),
        }
    }

    /// Whether the first in the queue of `file` may begin.
    fn turn_of(&self, file: FileId, next: Throttled) -> Turn {
        let writes = &self.file(file).writes;
        match next {
            _ if writes.change.is_some() => Turn::Waits,
            Throttled::Change(_) if writes.is_filling() => Turn::Waits,
            Throttled::Change(_) => Turn::Begins,
            Throttled::Write(write) if self.may_dirty(file, &write) => Turn::Begins,
            Throttled::Write(write) => self.stuck(file, &write).map_or(Turn::Waits, Turn::Fails),
        }
    }

    /// Whether the first in the queue of `file` waits for pages to become clean.
    pub(super) fn lacks_room(&self, file: FileId) -> bool {
        let writes = &self.file(file).writes;
        match writes.throttled.front() {
            Some(Throttled::Write(write)) => {
                writes.change.is_none() && !self.may_dirty(file, write)
            }
            Some(Throttled::Change(_)) | None => false,
        }
    }

    /// Whether `write`, to `file`, may begin: within the room of all pages, and within that of its
    /// partition.
    pub(super) fn may_dirty(&self, file: FileId, write: &ThrottledWrite) -> bool {
        let writes = &self.file(file).writes;
        let partition = self.partition_of(write);
        let [all, part] = self.free_to_dirty(file, partition);
        let own = [writes.pages, writes.in_partition(partition)];
        let fits = |own: u32, free: u32| {
            let own = u64::from(own) + u64::from(writes.promised);
            let share = SHARE * u64::from(free);
            write.count <= free && (own == 0 || own + u64::from(write.count) <= share)
        };
        fits(own[0], all) && (fits(own[1], part) || self.overwrites(file, write))
    }

    /// Whether each page of `write`, to `file`, is dirty, or being written or filled, already.
    fn overwrites(&self, file: FileId, write: &ThrottledWrite) -> bool {
        (write.first..write.first + u64::from(write.count)).all(|index| {
            let row = self.frames.find(PageId { file, index }).map(|frame| &self.frames[frame]);
            let counts = |row: &Frame| match row.state {
                State::Dirty | State::Writing | State::Unsynced | State::Filling => true,
                State::Clean => row.fills > 0,
                State::Free | State::Claimed | State::InFlight | State::Lingering => false,
            };
            row.is_some_and(counts)
        })
    }

    /// Pages that may become dirty besides: of all, and of `partition`, where those that are
    /// promised to writes of other files than `file` are not counted.
    fn free_to_dirty(&self, file: FileId, partition: u32) -> [u32; 2] {
        let row = &self.partitions[partition as usize];
        let taken = row.dirty + self.file(file).writes.promised;
        let all = self.settings.dirty_pages_max - self.dirty_pages - self.promised;
        [all, row.dirty_max().saturating_sub(taken)]
    }

    /// The partition of the first page of `write`, which counts for all of it.
    fn partition_of(&self, write: &ThrottledWrite) -> u32 {
        self.place(write.handle, write.first).partition
    }

    /// Why no room is ever enough for `write`, if so.
    fn too_large(&self, write: &ThrottledWrite) -> Option<Error> {
        let of_partition = self.partitions[self.partition_of(write) as usize].dirty_max();
        let bound = self.settings.dirty_pages_max.min(of_partition);
        (write.count > bound).then_some(Error::TooLarge { pages: write.count, bound })
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
            while let Some(&next) = self.file(file).writes.throttled.front() {
                let turn = self.turn_of(file, next);
                if matches!(turn, Turn::Waits) {
                    break;
                }
                self.file_mut(file).writes.throttled.pop_front();
                self.throttled -= 1;
                match turn {
                    Turn::Fails(error) => self.fail(next.request(), error),
                    Turn::Begins | Turn::Waits => self.begin(file, next),
                }
            }
            if !self.file(file).writes.throttled.is_empty() {
                self.throttled_files.push_back(file);
            }
        }
    }

    /// Why waiting makes no room for `write`, to `file`, if so: the file waits after a failure, or
    /// all those do that hold pages, or the partition has become too small.
    fn stuck(&self, file: FileId, write: &ThrottledWrite) -> Option<Error> {
        if let Some(error) = self.too_large(write) {
            return Some(error);
        }
        let own = &self.file(file).writes;
        if own.promised > 0 {
            return None;
        }
        let partition = self.partition_of(write);
        let in_partition = own.in_partition(partition);
        let free = self.free_to_dirty(file, partition);
        let [lacks_all, lacks_part] = free.map(|free| write.count > free);
        if (in_partition > 0 || own.pages > 0 && lacks_all) && self.rests(file) {
            return Some(Error::Writeback { errno: own.errno });
        }
        let none_moves = |within: &dyn Fn(FileId) -> bool| {
            self.dirty_files.iter().filter(|&&file| within(file)).all(|&file| self.rests(file))
        };
        let is_its = |file: FileId| self.file(file).writes.in_partition(partition) > 0;
        if in_partition == 0 && lacks_part && none_moves(&is_its) {
            let bound = self.partitions[partition as usize].dirty_max();
            return Some(Error::DirtyFull { bound });
        }
        let all_taken = own.pages == 0 && lacks_all && self.promised == 0;
        let bound = self.settings.dirty_pages_max;
        (all_taken && none_moves(&|_| true)).then_some(Error::DirtyFull { bound })
    }

    /// Whether `file` waits after a failure, and nothing of it is on its way.
    fn rests(&self, file: FileId) -> bool {
        let writes = &self.file(file).writes;
        let changes = writes.change.is_some_and(|change| change.stage == Stage::InStore);
        writes.held(self.now) && !writes.syncing && writes.writing == 0 && !changes
    }

    /// Forgets a write or a change that has not begun; returns whether there was one.
    pub(super) fn cancel_throttled(&mut self, request: RequestId) -> bool {
        let files: Vec<FileId> = self.throttled_files.iter().copied().collect();
        for file in files {
            let queue = &mut self.file_mut(file).writes.throttled;
            let Some(at) = queue.iter().position(|next| next.request() == request) else {
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
