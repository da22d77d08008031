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
//! - Frames of dirty, writing and unsynced pages are not evictable. `writeback/throttle.rs` bounds
//!   them, `writeback/schedule.rs` decides which are written when no flush waits.
//! - Bytes stay until a sync succeeded: a failed write or sync makes its pages dirty again, and
//!   they are written again before the next sync. A second sync alone is never trusted.
//! - A failure is reported once on every handle of the file, at its next flush.
//! # Sources
//! The failed-sync rule: what Linux does to pages after a failed `fsync` (marks them clean) loses
//! data; the `PostgreSQL` developers reported it in 2018.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use super::change::{Change, Stage};
use super::inflight::{Node, Walk};
use super::{Cache, FileId, FrameId, HandleId, NIL, PageId, RequestId, State};
use crate::event::{Action, Error};
use crate::queue::Queue;
use crate::units::{Nanos, PageIndex};

mod flush;
mod schedule;
mod throttle;

pub(super) use throttle::{Throttled, ThrottledWrite};

/// What a file has to write.
#[derive(Default)]
pub(super) struct FileWrites {
    /// The epoch of what is dirtied now; a flush ends it.
    epoch: u64,
    /// Pages dirty or being written, by epoch, oldest first; no zero counts.
    unwritten: VecDeque<(u64, u32)>,
    /// Dirty pages, in the order of the file.
    dirty: BTreeMap<PageIndex, FrameId>,
    unsynced: Queue,
    /// Pages that are dirty, being written or unsynced.
    pages: u32,
    /// The same by partition, as far as any had some.
    in_partitions: Vec<u32>,
    /// Of these, those that are being written.
    writing: u32,
    /// Pages of writes that began and are not filled yet.
    promised: u32,
    /// Writes and changes that have not begun, in order.
    throttled: VecDeque<Throttled>,
    /// What the store changes, or will as soon as it writes nothing.
    pub(super) change: Option<Change>,
    flushes: Vec<FlushRow>,
    /// Syncs sent so far, and whether the last one is in flight.
    syncs: u64,
    syncing: bool,
    /// Syncs that failed so far.
    syncs_failed: u64,
    /// Failures so far, and the last one's errno.
    pub(super) errors: u64,
    errno: i32,
    /// After a failure: when it is written again, and how long it waited for that.
    retry: Option<Retry>,
    /// Where the last batch ended that no flush waited for.
    batch_from: PageIndex,
    /// Since when some page of it is not durable.
    since: Nanos,
    /// What is dirty is to become durable though no flush waits.
    sync_wanted: bool,
    /// The sync that makes the last change of the store durable, until it succeeded.
    altered: Option<u64>,
}

/// The next try after a failure.
#[derive(Clone, Copy)]
struct Retry {
    at: Nanos,
    delay: Nanos,
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

impl FileWrites {
    /// Its pages in `partition` that are dirty, being written or unsynced.
    pub(super) fn in_partition(&self, partition: u32) -> u32 {
        self.in_partitions.get(partition as usize).copied().unwrap_or(0)
    }

    /// A page in `partition` is no longer durable.
    fn count(&mut self, partition: u32) {
        let at = partition as usize;
        let len = self.in_partitions.len().max(at + 1);
        self.in_partitions.resize(len, 0);
        self.in_partitions[at] += 1;
        self.pages += 1;
    }

    /// It is, or has left.
    fn uncount(&mut self, partition: u32) {
        self.in_partitions[partition as usize] -= 1;
        self.pages -= 1;
    }

    /// Whether there is nothing to write, to sync or to answer.
    pub(super) fn idle(&self) -> bool {
        let none_queued = self.dirty.is_empty() && self.unsynced.is_empty();
        let none_waits = self.flushes.is_empty() && self.throttled.is_empty();
        let none_waits = none_waits && self.change.is_none() && self.altered.is_none();
        none_queued
            && none_waits
            && self.unwritten.is_empty()
            && self.promised == 0
            && !self.syncing
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

    /// Whether it waits after a failure.
    fn held(&self, now: Nanos) -> bool {
        self.retry.is_some_and(|retry| now < retry.at)
    }

    /// Whether no page of it is written now: it waits after a failure, or for a change.
    fn stopped(&self, now: Nanos) -> bool {
        let changes = self.change.is_some_and(|change| change.stage != Stage::Flushing);
        changes || self.held(now)
    }

    /// Whether it has something to write or to sync.
    pub(super) fn has_any(&self) -> bool {
        !self.unwritten.is_empty() || !self.is_synced()
    }

    /// Whether a sync of it is in flight.
    pub(super) fn is_syncing(&self) -> bool {
        self.syncing
    }

    /// Its pages: dirty, being written, unsynced.
    pub(super) fn counts(&self) -> [u32; 3] {
        let dirty = u32::try_from(self.dirty.len()).expect("pages are bounded by the frames");
        [dirty, self.writing, self.unsynced.len()]
    }

    /// Its pages that are promised, its writes that are throttled, its flushes.
    pub(super) fn waiting(&self) -> [usize; 3] {
        [self.promised as usize, self.throttled.len(), self.flushes.len()]
    }

    /// Whether nothing waits for a sync.
    fn is_synced(&self) -> bool {
        self.unsynced.is_empty() && self.altered.is_none()
    }

    /// The store changed at `now`, and nothing of it is durable yet.
    pub(super) fn alter(&mut self, now: Nanos) {
        if self.pages == 0 && self.altered.is_none() {
            self.since = now;
        }
        self.altered = Some(self.syncs);
    }

    /// Whether pages of writes that began are not filled yet.
    pub(super) fn is_filling(&self) -> bool {
        self.promised > 0
    }

    /// Whether the store writes pages of it.
    pub(super) fn is_writing(&self) -> bool {
        self.writing > 0
    }

    /// The newest epoch that a flush waits for the pages of.
    fn flushing_epoch(&self) -> Option<u64> {
        let waiting = self.flushes.iter().filter(|flush| flush.sync.is_none() && !flush.failed);
        waiting.map(|flush| flush.epoch).max()
    }

    /// A try failed: the next one waits, twice as long as the last did.
    fn failed(&mut self, errno: i32, now: Nanos, delay_min: Nanos) {
        self.errors += 1;
        self.errno = errno;
        if !self.held(now) {
            let longer = |retry: Retry| Nanos(retry.delay.0.saturating_mul(2));
            let delay_max = Nanos(delay_min.0.saturating_mul(RETRY_DELAYS_MAX));
            let delay = self.retry.map_or(delay_min, longer).min(delay_max);
            self.retry = Some(Retry { at: Nanos(now.0.saturating_add(delay.0)), delay });
        }
        for flush in &mut self.flushes {
            flush.failed = true;
        }
    }
}

impl Cache {
    fn begin_write(&mut self, write: ThrottledWrite) {
        let ThrottledWrite { request, handle, first, count, partial, durable } = write;
        let file = self.file_of(handle);
        let (old_pages, end) = (self.file(file).pages, first + u64::from(count));
        self.file_mut(file).pages = old_pages.max(end);
        assert!(self.may_dirty(file, &write), "{request:?} exceeds Settings::dirty_pages_max");
        self.promise(file, count);
        self.stats.written += u64::from(count);
        let mut walk = Walk::new(request, handle);
        walk.durable = durable;
        let row = self.row(&mut walk);
        for index in first..end {
            let page = PageId { file, index };
            let in_part = index == first && partial.0 || index + 1 == end && partial.1;
            let fresh = !in_part || index >= old_pages;
            let held = self.frames.find(page).map(|frame| self.frames[frame].partition);
            let partition = held.unwrap_or_else(|| self.place(handle, index).partition);
            self.sample(partition, page, false);
            if held.is_none() {
                self.missed(partition, page);
                self.fetch_alone(partition, page, fresh);
            }
            match self.frames.find(page) {
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
        self.frames[frame].fills -= 1;
        self.keep_promise(self.frames[frame].page.file);
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
        let (row, now) = (self.frames[frame], self.now);
        let PageId { file, index } = row.page;
        let writes = &mut self.files.get_mut(&file).expect("it has pages").writes;
        let epoch = writes.epoch;
        match row.state {
            State::Filling | State::Clean => {
                if writes.pages == 0 {
                    writes.since = now;
                }
                writes.count(row.partition);
                self.dirty_pages += 1;
                self.partitions[row.partition as usize].dirty += 1;
            }
            State::Unsynced => {
                writes.unsynced.remove(&mut self.write_links, frame.0);
                self.unsynced -= 1;
            }
            State::Writing => {
                if row.redirty.is_none() {
                    self.frames[frame].redirty = Some(epoch);
                    writes.add(epoch);
                }
                return;
            }
            State::Dirty => return self.write_if_awaited(frame),
            State::Free | State::Claimed | State::InFlight | State::Lingering => {
                unreachable!("{frame:?} was filled in state {:?}", row.state)
            }
        }
        writes.add(epoch);
        writes.dirty.insert(index, frame);
        self.dirty_unwritten += 1;
        self.frames[frame].state = State::Dirty;
        self.frames[frame].epoch = epoch;
        self.dirty_files.insert(file);
        if row.state == State::Filling {
            let policy = &mut self.partitions[row.partition as usize].policy;
            policy.insert(frame, row.page, false);
            self.counts(row.partition).inserted += 1;
            self.publish(frame);
            self.wake(frame);
        }
    }

    /// A dirty page became writable: a flush may wait for it.
    fn write_if_awaited(&mut self, frame: FrameId) {
        let row = self.frames[frame];
        let writes = &self.file(row.page.file).writes;
        let awaited = writes.flushing_epoch().is_some_and(|epoch| row.epoch <= epoch);
        if awaited && row.fills == 0 && !writes.stopped(self.now) {
            self.write_run(frame);
        }
    }

    /// Sends out writes for the pages that a flush waits for.
    fn write_awaited(&mut self, file: FileId) {
        let writes = &self.file(file).writes;
        let Some(epoch) = writes.flushing_epoch() else { return };
        if !writes.stopped(self.now) && !writes.drained(epoch) {
            self.write_dirty(file, epoch);
        }
    }

    /// Sends out writes for the file's dirty pages of `epoch` and before, in the order of the file
    /// and together with their neighbours.
    fn write_dirty(&mut self, file: FileId, epoch: u64) {
        let mut at = 0;
        while let Some((&index, &frame)) = self.file(file).writes.dirty.range(at..).next() {
            let row = &self.frames[frame];
            let writable = row.fills == 0 && row.epoch <= epoch;
            let count = if writable { self.write_run(frame) } else { 1 };
            at = index.saturating_add(u64::from(count));
        }
    }

    /// Sends out one write of `first` and the writable pages just after it.
    fn write_run(&mut self, first: FrameId) -> u32 {
        let page = self.frames[first].page;
        let frames_at = self.actions.frames.len();
        let (mut count, mut last) = (0, None::<FrameId>);
        while count < self.settings.request_pages_max {
            let writes = &mut self.files.get_mut(&page.file).expect("it has pages").writes;
            let index = page.index + u64::from(count);
            let Some(&frame) = writes.dirty.get(&index) else { break };
            if self.frames[frame].fills > 0 {
                break;
            }
            assert_eq!(self.frames[frame].state, State::Dirty, "{frame:?} is in the list of dirty");
            writes.dirty.remove(&index);
            writes.writing += 1;
            self.dirty_unwritten -= 1;
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
            let (now, delay) = (self.now, self.settings.retry_delay);
            self.file_mut(file).writes.failed(errno, now, delay);
        }
        self.progress(file);
    }

    fn end_write(&mut self, frame: FrameId, errno: Option<i32>) {
        let row = self.frames[frame];
        let writes = &mut self.files.get_mut(&row.page.file).expect("it has pages").writes;
        assert!(row.epoch <= writes.epoch && row.sync <= writes.syncs_failed, "{row:?}");
        assert!(writes.writing > 0, "{frame:?} is being written");
        writes.writing -= 1;
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
                self.unsynced += 1;
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
        writes.dirty.insert(row.page.index, frame);
        self.dirty_unwritten += 1;
    }

    /// Forgets that the page of `frame`, which has left its file, was to be written.
    pub(super) fn drop_unwritten(&mut self, frame: FrameId) {
        let row = self.frames[frame];
        let Some(file) = self.files.get_mut(&row.page.file) else { return };
        let writes = &mut file.writes;
        match row.state {
            State::Dirty => {
                writes.dirty.remove(&row.page.index);
                self.dirty_unwritten -= 1;
                writes.remove(row.epoch);
            }
            State::Unsynced => {
                writes.unsynced.remove(&mut self.write_links, frame.0);
                self.unsynced -= 1;
            }
            State::Free
            | State::Claimed
            | State::Writing
            | State::InFlight
            | State::Filling
            | State::Clean
            | State::Lingering => return,
        }
        writes.uncount(row.partition);
        self.dirty_pages -= 1;
        self.partitions[row.partition as usize].dirty -= 1;
    }

    /// A write that has not begun, or a flush, is given up.
    pub(super) fn cancel_write(&mut self, request: RequestId) {
        if self.cancel_throttled(request) {
            return self.fail(request, Error::Cancelled);
        }
        let flushing = &mut self.flushing;
        let waiting = self.files.values_mut().any(|file| {
            let before = file.writes.flushes.len();
            file.writes.flushes.retain(|flush| flush.request != request);
            let flushed = file.writes.flushes.len() < before;
            *flushing -= u32::from(flushed);
            let waits =
                |change: &mut Change| change.request == request && change.stage != Stage::InStore;
            file.writes.change.take_if(waits).is_some() || flushed
        });
        if waiting {
            self.fail(request, Error::Cancelled);
        }
    }
}

/// The longest delay before a try, in multiples of the shortest.
const RETRY_DELAYS_MAX: u64 = 64;
