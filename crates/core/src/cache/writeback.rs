//! Writes: dirty pages, flush epochs, syncs, and what happens when they fail.
//!
//! ```text
//!   Write -> Fill -> Filled -> Dirty -> Writing -> Unsynced --Synced--> Clean
//!                               ^          | failed     | sync failed
//!                               +----------+------------+
//!   Flush: ends epoch e. All pages of epochs <= e written -> Sync -> Synced -> Done or Fail
//! ```
//!
//! A page is dirty in the epoch in which it was filled. A flush ends the epoch, waits until no
//! page of it or an older one is unwritten, then until a sync that began after that has ended.
//!
//! # Invariants
//! - Dirty, writing and unsynced pages, and those promised to writes that began, never exceed
//!   `Settings::dirty_pages_max`; their frames are not evictable.
//! - Bytes stay until a sync succeeded: a failed write or sync makes its pages dirty again, and
//!   they are written again before the next sync. A second sync alone is never trusted.
//! - A failure is reported once on every handle of the file, at its next flush.
//! # Sources
//! The failed-sync rule: what Linux does to pages after a failed `fsync` (marks them clean) loses
//! data; the `PostgreSQL` developers reported it in 2018.

use alloc::{collections::VecDeque, vec::Vec};

use super::inflight::{Node, Walk};
use super::{Cache, FileId, FrameId, HandleId, NIL, PageId, RequestId, State};
use crate::event::{Action, Error};
use crate::queue::Queue;
use crate::units::PageIndex;

/// What a file has to write.
#[derive(Default)]
pub(super) struct FileWrites {
    /// The epoch of what is dirtied now; a flush ends it.
    epoch: u64,
    /// Pages dirty or being written, by epoch, oldest first; no zero counts.
    unwritten: VecDeque<(u64, u32)>,
    dirty: Queue,
    unsynced: Queue,
    flushes: Vec<FlushRow>,
    /// Syncs sent so far, and whether the last one is in flight.
    syncs: u64,
    syncing: bool,
    /// Syncs that failed so far.
    syncs_failed: u64,
    /// Failures so far, and the last one's errno.
    pub(super) errors: u64,
    errno: i32,
    /// After a failure: write no more until a flush or a tick.
    held: bool,
}

struct FlushRow {
    request: RequestId,
    handle: HandleId,
    epoch: u64,
    /// The sync that it waits for, once its pages are written.
    sync: Option<u64>,
    /// Something failed while it waited: what it covers is not durable.
    failed: bool,
}

/// A write that has not begun.
#[derive(Clone, Copy)]
pub(super) struct ThrottledWrite {
    pub(super) request: RequestId,
    pub(super) handle: HandleId,
    pub(super) first: PageIndex,
    pub(super) count: u32,
    /// Whether the first and the last page are written in part.
    pub(super) partial: (bool, bool),
    pub(super) durable: bool,
}

impl FileWrites {
    /// Whether there is nothing to write, to sync or to answer.
    pub(super) fn idle(&self) -> bool {
        let none_queued = self.dirty.is_empty() && self.unsynced.is_empty();
        none_queued && self.unwritten.is_empty() && self.flushes.is_empty() && !self.syncing
    }

    fn add(&mut self, epoch: u64) {
        if let Some(open) = self.unwritten.iter_mut().find(|open| open.0 == epoch) {
            open.1 += 1;
        } else {
            let at = self.unwritten.partition_point(|open| open.0 < epoch);
            self.unwritten.insert(at, (epoch, 1));
        }
    }

    fn remove(&mut self, epoch: u64) {
        let at = self.unwritten.iter().position(|open| open.0 == epoch);
        let at = at.expect("an unwritten page is counted in its epoch");
        self.unwritten[at].1 -= 1;
        if self.unwritten[at].1 == 0 {
            self.unwritten.remove(at);
        }
    }

    /// Whether nothing of `epoch` or before is unwritten.
    fn drained(&self, epoch: u64) -> bool {
        self.unwritten.front().is_none_or(|open| open.0 > epoch)
    }

    /// Whether `flush` waits for the next sync, and for no page any more.
    fn ready(&self, flush: &FlushRow) -> bool {
        flush.sync.is_none() && (flush.failed || self.drained(flush.epoch))
    }

    fn failed(&mut self, errno: i32) {
        self.errors += 1;
        self.errno = errno;
        self.held = true;
        for flush in &mut self.flushes {
            flush.failed = true;
        }
    }
}

impl Cache {
    pub(super) fn write(&mut self, write: ThrottledWrite) {
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
        if !self.throttled.is_empty() || !self.may_dirty(write.count) {
            if self.throttled.len() as u64 >= u64::from(self.settings.waiters_max) {
                let error = Error::Busy { bound: self.settings.waiters_max };
                return self.fail(write.request, error);
            }
            self.throttled.push_back(write);
            return;
        }
        self.begin_write(write);
    }

    fn may_dirty(&self, count: u32) -> bool {
        self.dirty_pages + self.promised + count <= self.settings.dirty_pages_max
    }

    /// Begins writes that waited for others to become durable, in order.
    pub(super) fn resume_throttled(&mut self) {
        while let Some(&write) = self.throttled.front() {
            if !self.may_dirty(write.count) {
                if self.nothing_will_drain() {
                    self.throttled.pop_front();
                    let errno = self.file(self.file_of(write.handle)).writes.errno;
                    let errno = if errno == 0 { EIO } else { errno };
                    self.fail(write.request, Error::Writeback { errno });
                    continue;
                }
                break;
            }
            self.throttled.pop_front();
            self.begin_write(write);
        }
    }

    /// Whether every file with unwritten bytes is held back after a failure, none in flight.
    fn nothing_will_drain(&self) -> bool {
        self.promised == 0
            && self.dirty_files.iter().all(|file| {
                let writes = &self.file(*file).writes;
                let under_way = self.file_unwritten(*file) > writes.dirty.len();
                writes.held && !writes.syncing && !under_way
            })
    }

    fn file_unwritten(&self, file: FileId) -> u32 {
        self.file(file).writes.unwritten.iter().map(|open| open.1).sum()
    }

    fn begin_write(&mut self, write: ThrottledWrite) {
        let ThrottledWrite { request, handle, first, count, partial, durable } = write;
        let file = self.file_of(handle);
        let (old_pages, end) = (self.file(file).pages, first + u64::from(count));
        self.file_mut(file).pages = old_pages.max(end);
        assert!(self.may_dirty(count), "{request:?} exceeds Settings::dirty_pages_max");
        self.promised += count;
        self.stats.written += u64::from(count);
        let mut walk = Walk::new(request, handle);
        walk.durable = durable;
        let row = self.row(&mut walk);
        for index in first..end {
            let page = PageId { file, index };
            let in_part = index == first && partial.0 || index + 1 == end && partial.1;
            let fresh = !in_part || index >= old_pages;
            if !self.pages.contains_key(&page) {
                self.missed(page);
                self.fetch_alone(page, fresh);
            }
            match self.pages.get(&page).copied() {
                Some(frame) if self.frames[frame].resident() => {
                    self.used(frame);
                    self.frames[frame].fills += 1;
                    self.rows[row as usize].remaining += 1;
                    let page = page.index;
                    self.actions.list.push(Action::Fill { request, page, frame, fresh: false });
                }
                Some(frame) => {
                    self.first_use(frame);
                    self.wait(frame, &mut walk, Node::Fill);
                }
                None => self.starve(page, &mut walk, Node::Fill, fresh),
            }
        }
    }

    pub(super) fn filled(&mut self, request: RequestId, frame: FrameId) {
        assert!(self.frames[frame].fills > 0, "{frame:?} is not being filled");
        assert!(self.promised > 0, "a page that is being filled is promised");
        self.frames[frame].fills -= 1;
        self.promised -= 1;
        if self.frames[frame].doomed {
            self.end_doomed(frame);
        } else {
            self.dirty(frame);
        }
        if let Some(&row) = self.requests.get(&request) {
            self.served(row);
        }
    }

    fn dirty(&mut self, frame: FrameId) {
        let row = self.frames[frame];
        let file = row.page.file;
        let writes = &mut self.files.get_mut(&file).expect("it has pages").writes;
        let epoch = writes.epoch;
        match row.state {
            State::Filling | State::Clean => self.dirty_pages += 1,
            State::Unsynced => writes.unsynced.remove(&mut self.write_links, frame.0),
            State::Writing => {
                if row.redirty.is_none() {
                    self.frames[frame].redirty = Some(epoch);
                    writes.add(epoch);
                }
                return;
            }
            State::Dirty => return self.write_if_flushing(file),
            State::Free | State::Claimed | State::InFlight | State::Lingering => {
                unreachable!("{frame:?} was filled in state {:?}", row.state)
            }
        }
        writes.add(epoch);
        writes.dirty.push_front(&mut self.write_links, frame.0);
        self.frames[frame].state = State::Dirty;
        self.frames[frame].epoch = epoch;
        self.dirty_files.insert(file);
        if row.state == State::Filling {
            let policy = &mut self.partitions[row.partition as usize].policy;
            policy.insert(frame, row.page, false);
            self.publish(frame);
            self.wake(frame);
        }
        self.write_if_flushing(file);
    }

    /// A page became writable: a flush may wait for it.
    fn write_if_flushing(&mut self, file: FileId) {
        let writes = &self.file(file).writes;
        if !writes.flushes.is_empty() && !writes.held {
            self.write_dirty(file);
        }
    }

    /// Sends out writes for the file's dirty pages, oldest first, neighbours together.
    fn write_dirty(&mut self, file: FileId) {
        let mut at = self.file(file).writes.dirty.tail();
        while let Some(index) = at {
            let frame = FrameId(index);
            at = self.write_links.newer(index);
            if self.frames[frame].state != State::Dirty || self.frames[frame].fills > 0 {
                continue;
            }
            if self.write_run(frame) > 1 {
                // The run took neighbours out of the queue wherever they stood: begin again.
                at = self.file(file).writes.dirty.tail();
            }
        }
    }

    /// Sends out one write of `first` and the writable pages just after it.
    fn write_run(&mut self, first: FrameId) -> u32 {
        let page = self.frames[first].page;
        let frames_at = self.actions.frames.len();
        let (mut count, mut last) = (0, None::<FrameId>);
        while count < self.settings.request_pages_max {
            let id = PageId { index: page.index + u64::from(count), ..page };
            let Some(&frame) = self.pages.get(&id) else { break };
            if self.frames[frame].state != State::Dirty || self.frames[frame].fills > 0 {
                break;
            }
            let writes = &mut self.files.get_mut(&page.file).expect("it has pages").writes;
            writes.dirty.remove(&mut self.write_links, frame.0);
            self.frames[frame].sync = writes.syncs_failed;
            self.frames[frame].state = State::Writing;
            self.frames[frame].next = NIL;
            if let Some(last) = last {
                self.frames[last].next = frame.0;
            }
            last = Some(frame);
            self.actions.frames.push(frame);
            count += 1;
        }
        self.stats.writes += 1;
        let frames = self.actions.run_from(frames_at);
        assert_eq!(frames.count, count, "a write has its pages' frames");
        self.actions.list.push(Action::Write { page, frames });
        count
    }

    /// A write ended; `errno` says why it failed, if it did.
    pub(super) fn written(&mut self, first: FrameId, count: u32, errno: Option<i32>) {
        let file = self.frames[first].page.file;
        for frame in self.chain(first, count, State::Writing) {
            self.frames[frame].next = NIL;
            self.end_write(frame, errno);
        }
        if let Some(errno) = errno {
            self.file_mut(file).writes.failed(errno);
        }
        self.progress(file);
    }

    fn end_write(&mut self, frame: FrameId, errno: Option<i32>) {
        let row = self.frames[frame];
        let writes = &mut self.files.get_mut(&row.page.file).expect("it has pages").writes;
        assert!(row.epoch <= writes.epoch && row.sync <= writes.syncs_failed, "{row:?}");
        writes.remove(row.epoch);
        self.frames[frame].redirty = None;
        // A sync that failed meanwhile may have lost it: its flush waits for a second write.
        let doubtful = row.sync != writes.syncs_failed;
        let again = match (errno, row.redirty) {
            (None, redirty) if doubtful => {
                if let Some(epoch) = redirty {
                    writes.remove(epoch);
                }
                writes.add(row.epoch);
                row.epoch
            }
            (None, None) => {
                self.frames[frame].state = State::Unsynced;
                self.frames[frame].sync = writes.syncs;
                writes.unsynced.push_front(&mut self.write_links, frame.0);
                return;
            }
            (_, Some(epoch)) => epoch,
            (Some(_), None) => {
                writes.add(writes.epoch);
                writes.epoch
            }
        };
        self.stats.write_failures += u64::from(errno.is_some());
        self.frames[frame].state = State::Dirty;
        self.frames[frame].epoch = again;
        writes.dirty.push_front(&mut self.write_links, frame.0);
    }

    pub(super) fn flush(&mut self, request: RequestId, handle: HandleId) {
        let file = self.file_of(handle);
        self.flushing += 1;
        let writes = &mut self.file_mut(file).writes;
        let epoch = writes.epoch;
        writes.epoch += 1;
        writes.held = false;
        writes.flushes.push(FlushRow { request, handle, epoch, sync: None, failed: false });
        self.write_dirty(file);
        self.progress(file);
    }

    /// Sends the file's next sync, if a flush waits for one or the cache needs clean pages.
    pub(super) fn progress(&mut self, file: FileId) {
        let pressed = self.pressed();
        if !self.files.contains_key(&file) {
            return;
        }
        self.write_if_flushing(file);
        let writes = &mut self.file_mut(file).writes;
        if writes.syncing {
            return;
        }
        let ready = writes.flushes.iter().any(|flush| writes.ready(flush));
        let relief = pressed && !writes.held && !writes.unsynced.is_empty();
        let sync_now = ready || relief && writes.unwritten.is_empty();
        if !sync_now {
            return self.note_dirty_file(file);
        }
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

    pub(super) fn synced(&mut self, file: FileId, errno: i32) {
        let Some(row) = self.files.get_mut(&file) else {
            unreachable!("the row of a file that syncs stays")
        };
        let writes = &mut row.writes;
        assert!(writes.syncing, "{file:?} is not syncing");
        writes.syncing = false;
        assert!(writes.syncs > 0 && writes.syncs_failed < writes.syncs, "syncs are counted");
        let sync = writes.syncs - 1;
        if errno != 0 {
            writes.failed(errno);
            writes.syncs_failed += 1;
        }
        while let Some(index) = writes.unsynced.tail() {
            let frame = FrameId(index);
            // A failed sync may have lost what was written while it ran, too.
            if errno == 0 && self.frames[frame].sync > sync {
                break;
            }
            writes.unsynced.remove(&mut self.write_links, index);
            if errno == 0 {
                self.frames[frame].state = State::Clean;
                self.dirty_pages -= 1;
            } else {
                self.frames[frame].state = State::Dirty;
                self.frames[frame].epoch = writes.epoch;
                writes.add(writes.epoch);
                writes.dirty.push_front(&mut self.write_links, index);
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
        if reported && !flush.failed {
            self.actions.list.push(Action::Done { request: flush.request });
        } else {
            self.fail(flush.request, Error::Writeback { errno });
        }
    }

    /// Whether clean pages are wanted more than what they cost.
    fn pressed(&self) -> bool {
        let heavy = self.dirty_pages + self.promised > self.settings.dirty_pages_max / 2;
        heavy || !self.throttled.is_empty() || !self.starved.is_empty()
    }

    /// Under pressure, writes and syncs every file that has something to write.
    pub(super) fn relieve(&mut self) {
        if self.dirty_pages == 0 || !self.pressed() {
            return;
        }
        let files: Vec<FileId> = self.dirty_files.iter().copied().collect();
        for file in files {
            if !self.file(file).writes.held {
                self.write_dirty(file);
                self.progress(file);
            }
        }
    }

    /// Files that were left alone after a failure are written again.
    pub(super) fn release_holds(&mut self) {
        let files: Vec<FileId> = self.dirty_files.iter().copied().collect();
        for file in files {
            self.file_mut(file).writes.held = false;
            self.progress(file);
        }
    }

    /// Keeps the list of files with something to write or to sync.
    fn note_dirty_file(&mut self, file: FileId) {
        let writes = &self.file(file).writes;
        if writes.unwritten.is_empty() && writes.unsynced.is_empty() {
            self.dirty_files.remove(&file);
        }
    }

    /// Forgets that the page of `frame`, which has left its file, was to be written.
    pub(super) fn drop_unwritten(&mut self, frame: FrameId) {
        let row = self.frames[frame];
        let Some(file) = self.files.get_mut(&row.page.file) else { return };
        let writes = &mut file.writes;
        match row.state {
            State::Dirty => {
                writes.dirty.remove(&mut self.write_links, frame.0);
                writes.remove(row.epoch);
            }
            State::Unsynced => writes.unsynced.remove(&mut self.write_links, frame.0),
            State::Free
            | State::Claimed
            | State::Writing
            | State::InFlight
            | State::Filling
            | State::Clean
            | State::Lingering => return,
        }
        self.dirty_pages -= 1;
    }

    /// A write that has not begun, or a flush, is given up.
    pub(super) fn cancel_write(&mut self, request: RequestId) {
        if let Some(at) = self.throttled.iter().position(|write| write.request == request) {
            self.throttled.remove(at);
            return self.fail(request, Error::Cancelled);
        }
        let waiting = self.files.values_mut().any(|file| {
            let before = file.writes.flushes.len();
            file.writes.flushes.retain(|flush| flush.request != request);
            file.writes.flushes.len() < before
        });
        if waiting {
            self.flushing -= 1;
            self.fail(request, Error::Cancelled);
        }
    }
}

const EIO: i32 = 5;
