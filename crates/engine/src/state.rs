//! The state under the one lock: the core, and the tables that its actions change.
//!
//! ```text
//!   send(event) -> drive: core -> Serve    pins the frame for the reader's slot
//!                                 Fetch    a demand to a reader that waits for it,
//!                                          readahead to the background
//!                                 Fill     checks the frame out to its writer
//!                                 Write    shares the frames with an operation of the background
//!                                 Change   has the thread of the request change the store
//!                                 Done     answers the slot and wakes its reader
//!                                 Publish  enters the frame in the index: hits without the lock
//!                                 Retract  removes it; false while a reader has it pinned
//! ```
//!
//! # Invariants
//! - Time is read under the lock, so events reach the core in the order of their times.
//! - A frame stays pinned from its `Serve` until its reader has copied it.
//! - A demand without waiting readers fails before the lock is released, so no later read joins it:
//!   a read after an error fetches anew.
//! - The thread that sends an event takes its background fetches ([`State::take_ahead`]) before it
//!   releases the lock for good, and submits them.
//! - `starving` is set while a read waits for a frame, and before the core's last attempt to
//!   allocate one, so a thread that unpins a frame later sees it.
//! - While there is a deadline, no request sleeps without one: the event that brings it about
//!   wakes those that do.
//! # Locking
//! The order is: state, then a journal's or a cancel token's or a stripe's counts or a file's
//! version. The locks of
//! `queues.rs`, `background.rs`, `watch.rs` and stores are taken under no other. A reader sleeps on
//! its slot's condition with this lock.

use std::sync::Arc;

use forerun_core::{
    cache::Cache,
    drive::{Driver, drive},
    event::{Actions, Error, Event, FetchKind, Hit, PrefetchOutcomes},
    readahead::Decision,
    units::{FileId, FrameId, HandleId, Nanos, PageId, PageIndex, RequestId},
    windows::WindowLog,
};
use forerun_io::{
    index::Publisher,
    store::{ECANCELED, Version},
    sync::{AtomicBool, Ordering},
};

use crate::{
    ahead::{Ahead, Depths},
    clock::Clock,
    error::OpenError,
    file::{Fetch, File, FileState, Unsubmitted, Writeback},
    files::Files,
    fills::Fills,
    hits::HitBuffer,
    journal::Recorder,
    settings::Settings,
    shares::Shares,
    stats::Windows,
    waiters::{SlotId, Slots},
};

/// See the module.
#[expect(clippy::struct_excessive_bools, reason = "independent marks of a cache, not a state")]
pub(crate) struct State {
    pub(crate) core: Cache,
    actions: Actions,
    clock: Clock,
    pub(crate) live: Live,
    /// Hits that are about to be sent.
    hits: Vec<Hit>,
    depths: Depths,
    starving: Arc<AtomicBool>,
    shares: Arc<Shares>,
    /// Requests wait for a frame, no longer than until a deadline: those that sleep know it.
    is_timed: bool,
    /// Changes of the core's shares that are copied.
    resizes: u64,
    pub(crate) store_bytes: u64,
    pub(crate) store_requests: u64,
    pub(crate) files_changed: u64,
    pub(crate) closed: bool,
    /// The closing is over.
    pub(crate) has_closed: bool,
    /// Writes and flushes in flight.
    pub(crate) writers: u32,
    /// Until when the flusher sleeps, if it does.
    pub(crate) flusher_until: Option<Nanos>,
    pub(crate) flusher_ends: bool,
    handles_made: u32,
    handles_free: Vec<HandleId>,
}

/// The tables that actions change.
pub(crate) struct Live {
    publisher: Publisher,
    pub(crate) slots: Slots,
    pub(crate) files: Files,
    /// Fetches of the current event.
    fetched: Vec<Fetch>,
    /// Readahead that is not submitted yet.
    ahead: Vec<Fetch>,
    /// Writes and syncs that are not submitted yet.
    writes: Vec<Unsubmitted>,
    /// Frames that writers fill.
    pub(crate) fills: Fills,
    /// The number of readahead fetches in the background, or about to be.
    ahead_count: u32,
    /// Causes and outcomes of readahead windows.
    windows: WindowLog,
    /// When the last event was sent.
    sent_at: Nanos,
    recorder: Option<Box<dyn Recorder>>,
}

/// The row of a file that is about to be opened.
pub(crate) enum Place {
    /// The file is open already.
    Open(Arc<File>),
    /// A free row, or one with the file's cached pages.
    Free(FileId),
}

impl State {
    /// A state whose events carry `hits_max` hits at most; `starving` is set while a read waits for
    /// a frame to be unpinned, and `shares` follow the core's.
    pub(crate) fn new(
        core: Cache,
        clock: Clock,
        publisher: Publisher,
        (starving, shares): (Arc<AtomicBool>, Arc<Shares>),
        hits_max: usize,
        settings: &Settings,
        recorder: Option<Box<dyn Recorder>>,
    ) -> Self {
        let live = Live {
            publisher,
            slots: Slots::new(settings.readers_max),
            files: Files::new(core.settings().files_max),
            fetched: Vec::new(),
            ahead: Vec::new(),
            writes: Vec::new(),
            fills: Fills::default(),
            ahead_count: 0,
            windows: WindowLog::new(settings.windows_max as usize),
            sent_at: Nanos(0),
            recorder,
        };
        Self {
            core,
            actions: Actions::new(),
            clock,
            live,
            hits: Vec::with_capacity(hits_max),
            depths: Depths::new(settings),
            starving,
            shares,
            is_timed: false,
            resizes: 0,
            store_bytes: 0,
            store_requests: 0,
            files_changed: 0,
            closed: false,
            has_closed: false,
            writers: 0,
            flusher_until: None,
            flusher_ends: false,
            handles_made: 0,
            handles_free: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// When the last event was sent.
    pub(crate) fn sent_at(&self) -> Nanos {
        self.live.sent_at
    }

    /// The readahead windows that were kept.
    pub(crate) fn windows(&self) -> Windows {
        let log = &self.live.windows;
        let (rows, left_out) = (log.rows(&self.core), log.left_out());
        Windows { now: self.now(), rows, left_out }
    }

    /// Sends `event` and carries out its actions; `me` is the reader that sends it.
    pub(crate) fn send(&mut self, me: Option<SlotId>, event: Event<'_>) {
        self.drive(event);
        self.live.retry_fills();
        let starves = self.core.deadline().is_some() || self.live.fills.blocked();
        if starves && !self.starving.swap(true, Ordering::SeqCst) {
            // A frame may have been unpinned since the last attempt, before `starving` was set.
            self.drive(Event::Tick);
            self.live.retry_fills();
        } else if !starves && self.starving.load(Ordering::Relaxed) {
            self.starving.store(false, Ordering::SeqCst);
        }
        let mut orphans = self.live.route(me);
        while let Some(fetch) = orphans.pop() {
            let (first, count) = (fetch.frames[0], fetch.count());
            self.drive(Event::Failed { first, count, errno: ECANCELED });
            self.ended(&fetch);
            orphans.append(&mut self.live.route(me));
        }
        let is_timed = self.deadline().is_some();
        if is_timed && !self.is_timed {
            self.live.slots.rouse_all();
        }
        self.is_timed = is_timed;
    }

    fn drive(&mut self, event: Event<'_>) {
        let now = self.clock.now();
        drive(&mut self.core, now, event, &mut self.actions, &mut self.live);
        if let Some(recorder) = &mut self.live.recorder {
            recorder.came_back(&self.actions);
        }
        let resizes = self.core.resizes();
        if std::mem::replace(&mut self.resizes, resizes) != resizes {
            self.shares.copy(&self.core);
        }
    }

    /// Sends the hits that were recorded without the lock.
    pub(crate) fn take_hits(&mut self, hit_buffer: &HitBuffer) {
        self.send_hits(|hits| hit_buffer.drain(hits));
    }

    /// As [`State::take_hits`], and leaves no hit recorded before.
    pub(crate) fn sweep_hits(&mut self, hit_buffer: &HitBuffer) {
        self.send_hits(|hits| hit_buffer.sweep(hits));
    }

    fn send_hits(&mut self, drain: impl FnOnce(&mut Vec<Hit>)) {
        let mut hits = std::mem::take(&mut self.hits);
        drain(&mut hits);
        if !hits.is_empty() {
            self.send(None, Event::Hits { hits: &hits });
            hits.clear();
        }
        self.hits = hits;
    }

    /// Whether what `file` has to write is due before the flusher wakes.
    pub(crate) fn is_due_before_flusher(&self, file: FileId) -> bool {
        self.flusher_until
            .is_some_and(|until| self.core.file_writeback_due(file).is_some_and(|due| due < until))
    }

    /// Takes the background operations of events so far; the caller submits them.
    pub(crate) fn take_ahead(&mut self) -> Ahead {
        let fetches = std::mem::take(&mut self.live.ahead);
        let writes = std::mem::take(&mut self.live.writes);
        Ahead { fetches, writes, depth: self.depths.of(self.core.device()) }
    }

    /// A writer has ended its copy into `frame`, which is checked in if it was checked out.
    pub(crate) fn filled(&mut self, me: SlotId, frame: FrameId, copied: bool) {
        if copied {
            self.live.fill_ended(frame);
        }
        let slot = self.live.slots.of(me);
        slot.fills_open -= 1;
        let request = slot.request;
        self.send(Some(me), Event::Filled { request, frame });
    }

    /// The store made the change of `me`, or failed to.
    pub(crate) fn changed_in_store(&mut self, me: SlotId, file: &File, errno: i32) {
        self.live.files.wrote(file.id, file.version.get());
        let request = self.live.slots.of(me).request;
        self.send(Some(me), Event::Changed { request, errno });
    }

    /// Ends a request that has its answer; returns whether it was a write or a flush.
    pub(crate) fn leave(&mut self, me: SlotId) -> bool {
        let wrote = self.live.slots.leave(me);
        self.writers -= u32::from(wrote);
        wrote
    }

    /// When a read or a write has waited for a frame long enough, if one waits.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let blocked = self.live.fills.blocked_since();
        let wait_max = self.core.settings().wait_max.0;
        let blocked = blocked.map(|since| Nanos(since.0.saturating_add(wait_max)));
        self.core.deadline().into_iter().chain(blocked).min()
    }

    /// Gives up what has waited for a frame for too long; `me` is the thread that found it out.
    pub(crate) fn expire(&mut self, me: SlotId) {
        let (now, wait_max) = (self.now(), self.core.settings().wait_max);
        let is_writing = |frame| self.core.is_writing(frame);
        self.live.fills.expire(now, wait_max, is_writing, &mut self.live.slots);
        self.send(Some(me), Event::Tick);
    }

    /// The number of readahead requests in the background.
    pub(crate) fn ahead_count(&self) -> u32 {
        self.live.ahead_count
    }

    /// Counts the end of a fetch whose result the core has.
    pub(crate) fn ended(&mut self, fetch: &Fetch) {
        self.live.ahead_count -= u32::from(fetch.background);
        self.live.files.operation_ended(fetch.file.id);
    }

    /// Counts the end of a write or a sync whose result the core has. Returns the file if its last
    /// handle has closed before, and nothing of it is unwritten any more: it is to be closed.
    pub(crate) fn write_ended(&mut self, file: &Arc<File>) -> Option<Arc<File>> {
        let (id, version) = (file.id, file.version.get());
        self.live.files.wrote(id, version);
        let unwritten = self.core.unwritten_file(id);
        let last = self.live.files.leftover_written(id, unwritten);
        self.live.files.operation_ended(id);
        if !last {
            return None;
        }
        if self.live.files.is_forgotten(id) {
            self.drop_pages(id);
        }
        Some(Arc::clone(file))
    }

    /// Cancels `request`, unless it has its answer.
    pub(crate) fn cancel(&mut self, request: RequestId) {
        if self.live.slots.waiting(request).is_some() {
            self.send(None, Event::Cancel { request });
        }
    }

    /// Ends a file whose version has changed: reads that wait for its pages fail, and its pages are
    /// invalidated. No effect where another file has the row by now, as callers compare versions
    /// without the lock.
    pub(crate) fn changed(&mut self, file: &Arc<File>, file_state: FileState) {
        if !self.live.files.has_place(file) || !file.end(file_state) {
            return;
        }
        self.files_changed += 1;
        self.drop_pages(file.id);
        self.live.files.forget(file.id);
    }

    /// As [`State::changed`], for a file that may have no handle.
    fn outdated(&mut self, id: FileId, file_state: FileState) {
        if let Some(file) = self.live.files.file(id).cloned() {
            return self.changed(&file, file_state);
        }
        self.files_changed += 1;
        self.drop_pages(id);
        self.live.files.forget(id);
    }

    /// A row for a file that is about to be opened; `version` if it can be found by it. Invalidates
    /// pages of an older version, and those of a closed file whose row is reused.
    pub(crate) fn place(&mut self, version: Option<Version>) -> Result<Place, OpenError> {
        let known = version.and_then(|version| self.live.files.find(&version));
        if let (Some((id, known)), Some(version)) = (known, version) {
            if known == version {
                let open = self.live.files.file(id).filter(|_| self.live.files.is_kept(id));
                return Ok(open.map_or(Place::Free(id), |file| Place::Open(Arc::clone(file))));
            }
            let shorter = version.bytes < known.bytes;
            self.outdated(id, if shorter { FileState::Shrunk } else { FileState::Changed });
        }
        let (id, taken) = self.live.files.place()?;
        if taken {
            self.drop_pages(id);
        }
        Ok(Place::Free(id))
    }

    /// Invalidates all pages of a file, those in flight too.
    pub(crate) fn drop_pages(&mut self, file: FileId) {
        self.send(None, Event::Invalidate { file, first: 0, count: u64::MAX });
    }

    /// The number of the handle that the cache itself opens, one at a time: it gets one also where
    /// all are open. Numbers stay dense.
    pub(crate) fn own_handle(&mut self) -> HandleId {
        self.free_handle().unwrap_or(HandleId(self.handles_bound()))
    }

    /// The cache has closed its own handle.
    pub(crate) fn own_handle_closed(&mut self, handle: HandleId) {
        if handle.0 < self.handles_bound() {
            self.handle_closed(handle);
        }
    }

    /// Handles that callers may have open; the core has room for one more.
    fn handles_bound(&self) -> u32 {
        self.core.settings().handles_max - 1
    }

    /// A free handle number.
    pub(crate) fn free_handle(&mut self) -> Result<HandleId, OpenError> {
        if let Some(handle) = self.handles_free.pop() {
            return Ok(handle);
        }
        let bound = self.handles_bound();
        if self.handles_made == bound {
            return Err(OpenError::Handles { bound });
        }
        self.handles_made += 1;
        Ok(HandleId(self.handles_made - 1))
    }

    /// Frees a handle number.
    pub(crate) fn handle_closed(&mut self, handle: HandleId) {
        self.handles_free.push(handle);
    }
}

impl Live {
    fn retry_fills(&mut self) {
        self.fills.retry(&mut self.publisher, &mut self.slots);
    }

    fn fill_ended(&mut self, frame: FrameId) {
        self.fills.ended(frame, self.sent_at, &mut self.publisher, &mut self.slots);
    }

    /// Routes the fetches of the last event to waiting readers and to the background. Returns the
    /// demands without a waiting reader: retries of a failed page, where another page of the same
    /// reads failed before.
    fn route(&mut self, me: Option<SlotId>) -> Vec<Fetch> {
        let mut orphans = Vec::new();
        for fetch in self.fetched.drain(..) {
            if fetch.background {
                self.ahead_count += 1;
                self.ahead.push(fetch);
            } else {
                orphans.extend(self.slots.give(me, fetch));
            }
        }
        orphans
    }
}

impl Driver for Live {
    fn serve(&mut self, request: RequestId, page: PageIndex, frame: FrameId) {
        if self.fills.defer(frame, request, page, &mut self.slots) {
            return;
        }
        let pin = self.publisher.index().frames().pin_owned(frame);
        self.slots.wake(request).served.push((page, pin));
    }

    fn fetch(&mut self, kind: FetchKind, page: PageId, frames: &[FrameId]) {
        let background = kind == FetchKind::Readahead;
        let file = self.files.operation_started(page.file);
        self.fetched.push(Fetch::new(file, page.index, frames.to_vec(), background));
    }

    fn done(&mut self, request: RequestId) {
        self.slots.wake(request).answer = Some(Ok(()));
    }

    fn fail(&mut self, request: RequestId, error: Error) {
        self.fills.forget(request);
        let slot = self.slots.wake(request);
        slot.serves_deferred = 0;
        slot.answer = Some(Err(error));
    }

    fn fill(&mut self, request: RequestId, page: PageIndex, frame: FrameId, fresh: bool) {
        let tables = (&mut self.publisher, &mut self.slots);
        self.fills.begin((request, page), (frame, fresh), self.sent_at, tables);
    }

    fn write(&mut self, page: PageId, frames: &[FrameId]) {
        let file = self.files.operation_started(page.file);
        let all = self.publisher.index().frames();
        self.writes.push(Writeback::pages(file, page.index, frames, all));
    }

    fn sync(&mut self, file: FileId) {
        self.writes.push(Writeback::sync(self.files.operation_started(file)));
    }

    fn change(&mut self, request: RequestId) {
        self.slots.wake(request).changes = true;
    }

    fn publish(&mut self, page: PageId, frame: FrameId, generation: u32, marker: bool) {
        if self.fills.mark(frame, marker) {
            return;
        }
        self.publisher.publish(page, frame, generation, marker);
    }

    fn retract(&mut self, frame: FrameId, gone: bool) -> bool {
        let (publisher, slots) = (&mut self.publisher, &mut self.slots);
        if let Some(unpinned) = self.fills.retract(frame, gone, publisher, slots) {
            return unpinned;
        }
        self.publisher.retract(frame, gone)
    }

    fn explain(&mut self, handle: HandleId, _: PageIndex, decision: Decision, fresh: u32) {
        self.windows.opened(self.sent_at, handle, decision, fresh);
    }

    fn outcomes(&mut self, window: u32, outcomes: PrefetchOutcomes) {
        self.windows.count_outcomes(self.sent_at, window, outcomes);
    }

    fn sent(&mut self, now: Nanos, event: &Event<'_>) {
        self.sent_at = now;
        if let Some(recorder) = &mut self.recorder {
            recorder.sent(now, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use forerun_testkit::Scratch;

    use super::*;
    use crate::Cache;

    #[test]
    fn a_file_that_changed_after_its_last_handle_does_not_invalidate_another_ones_pages() {
        let scratch = Scratch::new("state");
        let path = scratch.file("data", [1; 100]);
        let cache = Cache::builder().memory(4 << 20).build().unwrap();
        let handle = cache.open(&path).unwrap();
        let (old, mut buf) = (Arc::clone(&handle.file), [0; 300]);
        assert_eq!(handle.read_at(&mut buf, 0), Ok(100));
        drop(handle);
        fs::write(&path, vec![2; 200]).unwrap();
        let handle = cache.open(&path).unwrap();
        assert_eq!(handle.read_at(&mut buf, 0), Ok(200));
        assert_eq!((handle.file.id, old.state.get()), (old.id, FileState::Current), "its place");
        handle.shared().state.lock().changed(&old, FileState::Changed);
        let before = cache.stats();
        assert_eq!((handle.read_at(&mut buf, 0), buf[199]), (Ok(200), 2));
        assert_eq!(cache.stats().store_requests, before.store_requests, "the page is still there");
        assert_eq!(before.files_changed, 1, "it was counted when it was found out");
    }
}
