//! The driver of the planner: observers report accesses, the kernel prefetches what it requests.
//!
//! ```text
//!   observers --open, seek, read--> core::planner --PrefetchRequest--> cached? --no--> workers
//!       |                                ^                               | yes            |
//!       |                                +------------- complete --------+-- residency <--+
//!       `--entry--> walks (core::walk) <--------> entries (workers)
//! ```
//! The planner decides; here are the files, the kernel's residency, and the calls. Entries of
//! directory trees go to the walks, which share memory and budget with the planner's readers.
//!
//! # Invariants
//! - Nothing that is cached is requested.
//! - A file's descriptor is held while a reader of it is open, in a process that lives, and by a
//!   call that is under way.

mod devices;
mod ends;
mod entries;
mod files;
mod residency;
mod walks;
mod workers;

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forerun_core::cache::{self, SettingsError};
use forerun_core::effort::{Effort, Spent};
use forerun_core::planner::{
    Access, Planner, PlannerSettings, PlannerStats, REQUEST_BYTES_MAX, RequestState,
};
use forerun_core::units::{FileId, Nanos};

use crate::kernel::{self, Residency, Stat};
use crate::observe::access::{AccessSink, CursorId, EntryAccess};
use crate::observe::poll::Allowance;
use crate::open::Refusal;
use crate::tasks::ThreadRoom;
pub(crate) use devices::RememberedDevices;
use ends::Ends;
use files::Files;
pub use walks::EntryStats;
pub(crate) use walks::FileRead;
use walks::WalkDriver;
use workers::{Job, Workers};

/// See the module.
pub(crate) struct Prefetcher {
    planner: Planner,
    files: Files,
    ends: Ends,
    workers: Workers,
    effort: Effort,
    /// Requests that workers had carried out at the last poll.
    carried_out: u64,
    walks: WalkDriver,
    /// Entries of directory trees are fetched ahead.
    has_walks: bool,
    /// Bytes that a learned list has ahead of the program.
    list_ahead_bytes: u64,
    /// Requests of a learned list that workers have, and that they were given so far.
    list_requests: (usize, u64),
    /// The bytes of memory, and of the budget, that may be ahead of readers and walks together.
    memory_bytes: u64,
    budget_bytes: u64,
    /// Some reader comes to bytes that are not cached before long.
    is_cold: bool,
    thread_room: ThreadRoom,
    readers_refused: u64,
    /// Files of the program that were not opened.
    files_refused: u64,
    /// What was requested for readers in the last call of `advance`.
    requested: Vec<(FileId, Range<u64>)>,
    /// The process whose accesses are reported, and its processor time.
    process: i32,
    processor: Option<Nanos>,
    /// What earlier runs have learnt of devices.
    devices: Option<RememberedDevices>,
}

/// Calls of the workers that have not returned.
#[derive(Clone, Debug)]
pub(crate) struct Running(Vec<Arc<AtomicU64>>);

impl Running {
    /// One more kind of workers: what they have to count in.
    pub(crate) fn counter(&mut self) -> Arc<AtomicU64> {
        let counter = Arc::default();
        self.0.push(Arc::clone(&counter));
        counter
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

impl Prefetcher {
    /// A prefetcher whose walks are `limit_bytes` ahead of a program, at most.
    pub(crate) fn new(settings: PlannerSettings, limit_bytes: u64) -> Result<Self, SettingsError> {
        let (budget_bytes, thread_room) = (settings.budget_bytes, ThreadRoom::here());
        Ok(Self {
            planner: Planner::new(settings)?,
            files: Files::default(),
            ends: Ends::new(thread_room.clone()),
            workers: Workers::new(thread_room.clone()),
            effort: Effort::default(),
            carried_out: 0,
            walks: WalkDriver::new(limit_bytes, budget_bytes / WALKS_ONE_IN, thread_room.clone()),
            thread_room,
            has_walks: true,
            list_ahead_bytes: 0,
            list_requests: (0, 0),
            memory_bytes: u64::MAX,
            budget_bytes,
            is_cold: false,
            readers_refused: 0,
            files_refused: 0,
            requested: Vec::new(),
            process: 0,
            processor: None,
            devices: None,
        })
    }

    /// The same, which takes uses of entries as of no concern.
    pub(crate) fn without_walks(self) -> Self {
        Self { has_walks: false, ..self }
    }

    pub(crate) fn stats(&self) -> PlannerStats {
        self.planner.stats()
    }

    pub(crate) fn core_stats(&self) -> cache::Stats {
        self.planner.core_stats()
    }

    /// Files that were followed, files that were not opened, and readers that were not followed.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [self.files.seen(), self.files_refused, self.readers_refused]
    }

    /// Takes in the reads that were told since the last call, for which a part of `allowance` may
    /// be used: all that were not taken yet.
    pub(crate) fn take_told(&mut self, now: Nanos, allowance: Allowance) -> Vec<FileRead> {
        if self.has_walks { self.walks.take_read(now, allowance) } else { Vec::new() }
    }

    /// What was done for entries of directory trees.
    pub(crate) fn entry_stats(&self) -> EntryStats {
        self.walks.stats()
    }

    /// The room for threads, of which all pools have their part.
    pub(crate) fn thread_room(&self) -> ThreadRoom {
        self.thread_room.clone()
    }

    /// Calls of the workers that have not returned.
    pub(crate) fn running(&self) -> Running {
        Running(vec![self.workers.running(), self.walks.running()])
    }

    /// Sets the bytes of memory that may be ahead.
    pub(crate) fn set_memory(&mut self, bytes: u64) {
        self.memory_bytes = bytes;
    }

    /// The bytes that a learned list may have ahead.
    pub(crate) fn list_bytes(&self) -> u64 {
        let (readers, walks) = (self.planner.ahead_bytes(), self.walks.ahead_bytes());
        self.memory_bytes.min(self.budget_bytes).saturating_sub(readers + walks) / WALKS_ONE_IN
    }

    /// Sets the bytes that a learned list has ahead, and its requests: those that workers have, and
    /// that they were given so far.
    pub(crate) fn set_list(&mut self, ahead_bytes: u64, requests: (usize, u64)) {
        self.list_ahead_bytes = ahead_bytes;
        self.list_requests = requests;
    }

    /// Shares memory and budget between readers and walks.
    fn share(&mut self) {
        let walks = self.walks.ahead_bytes() + self.list_ahead_bytes;
        let readers = self.planner.ahead_bytes();
        self.planner.set_memory(self.memory_bytes.saturating_sub(walks));
        let memory = self.memory_bytes.saturating_sub(readers) / WALKS_ONE_IN;
        let budget = (self.budget_bytes / WALKS_ONE_IN)
            .min(self.budget_bytes - readers.min(self.budget_bytes));
        self.walks.set_budget(memory.min(budget));
    }

    /// Has what is learnt of devices kept by `devices` from run to run.
    pub(crate) fn with_devices(self, devices: Option<RememberedDevices>) -> Self {
        Self { devices, ..self }
    }

    /// Keeps what was learnt of devices for the next run.
    pub(crate) fn save_devices(&self) {
        if let Some(devices) = &self.devices {
            devices.save(self.planner.device_records());
        }
    }

    /// One of the program's processes has ended.
    pub(crate) fn some_ended(&self) {
        self.walks.some_ended();
    }

    /// Forgets all files, whatever state they are in.
    pub(crate) fn clear(&mut self) {
        self.planner.clear();
        self.ends.clear();
        self.files.clear();
        self.walks.clear();
    }

    /// Whether something is in flight or waits to be requested.
    pub(crate) fn is_busy(&self) -> bool {
        self.planner.is_busy() || self.walks.is_fetching()
    }

    /// Whether it pays to look often.
    pub(crate) fn is_attentive(&self, now: Nanos) -> bool {
        self.planner.is_attentive(now) || self.walks.is_attentive(now)
    }

    /// Whether entries of directory trees are used or fetched.
    pub(crate) fn is_walking(&self) -> bool {
        self.walks.is_busy()
    }

    /// Whether an entry that a program uses is worth an early poll.
    pub(crate) fn is_starved(&self) -> bool {
        self.walks.is_starved()
    }

    /// Whether, since the last call, a reader came near to bytes that are not cached.
    pub(crate) fn take_cold(&mut self) -> bool {
        std::mem::take(&mut self.is_cold)
    }

    /// Takes in that a learned list has saved the program `time`, of which one part in `one_in` may
    /// be used.
    pub(crate) fn gain(&mut self, time: Nanos, one_in: u64) {
        self.effort.gain(time, one_in);
    }

    /// Takes in that this thread used `polls` of a processor until `now` since the last call, and
    /// all others `workers`, where one part in `one_in` may be used. The pause that this takes,
    /// after a poll that has used `cost`.
    pub(crate) fn spend(
        &mut self,
        now: Nanos,
        used: [Nanos; 2],
        cost: Nanos,
        one_in: u64,
    ) -> Nanos {
        let (outstanding, submitted) = self.requests();
        let carried_out = submitted.saturating_sub(outstanding as u64);
        let requests = carried_out.saturating_sub(self.carried_out);
        self.carried_out = self.carried_out.max(carried_out);
        let [polls, workers] = used;
        self.effort.gain(self.walks.take_gained(), one_in);
        self.effort.spend(now, Spent { polls, workers, requests }, one_in);
        self.effort.pause(cost, one_in)
    }

    /// Requests that workers have, and how many they were given so far.
    fn requests(&self) -> (usize, u64) {
        let (walks, submitted) = self.walks.requests();
        let (list, listed) = self.list_requests;
        let others = self.workers.outstanding() + list;
        (walks + others, submitted + self.planner.stats().requests + listed)
    }

    /// How many requests more are paid for.
    pub(crate) fn paid_for(&self) -> usize {
        self.effort.requests(self.requests().0)
    }

    /// The processor time that a request costs.
    pub(crate) fn request_cost(&self) -> Nanos {
        self.effort.request_cost()
    }

    /// The file of `cursor`.
    pub(crate) fn file_id(&self, cursor: CursorId) -> Option<FileId> {
        self.planner.file(cursor)
    }

    /// What the last call of [`Prefetcher::advance`] has requested for readers.
    pub(crate) fn requested(&self) -> &[(FileId, Range<u64>)] {
        &self.requested
    }

    /// Looks what has arrived, and has more prefetched. A poll may use `allowance`.
    pub(crate) fn advance(&mut self, now: Nanos, allowance: Allowance) {
        self.requested.clear();
        self.share();
        self.walks.advance(now, self.paid_for(), allowance);
        self.see_arrivals(now);
        let mut requests = Vec::new();
        let room = self.workers.room().min(self.paid_for());
        self.planner.issue(now, room, &mut requests);
        assert!(requests.len() <= room, "no more requests than there is room for");
        for request in requests {
            let source = self.files.source(request.file).expect("a request has a reader");
            let range = request.range;
            let (cached, pages) = (residency::cached_pages(source, &range), kernel::pages(&range));
            assert!(pages > 0, "a request has pages");
            if cached == Some(pages) {
                self.planner.complete(now, request.id, RequestState::Cached);
            } else {
                let knows_cached = cached.is_some();
                self.planner.submitted(request.id, cached.is_none_or(|pages| pages == 0));
                self.requested.push((request.file, range.clone()));
                self.workers.push(Job { source: source.clone(), range, knows_cached });
            }
        }
    }

    /// Looks at a few of the requests in flight: the oldest arrive first.
    fn see_arrivals(&mut self, now: Nanos) {
        let (mut nth, mut absent) = (0, 0);
        while absent < ABSENT_MAX
            && let Some(request) = self.planner.in_flight(nth)
        {
            let (id, waited) = (request.id, now.since(request.since));
            let source = self.files.source(request.file).expect("a request has a reader");
            let state = residency::state(source, &request.range(), waited);
            if !self.planner.complete(now, id, state) {
                absent += 1;
                nth += 1;
            }
        }
    }

    /// Has the planner know the file's size of now.
    fn resize(&mut self, now: Nanos, cursor: CursorId) {
        let Some(file) = self.planner.file(cursor) else { return };
        if let Some(bytes) = self.files.resize(file) {
            self.planner.resize(now, file, bytes);
        }
    }
}

impl AccessSink for Prefetcher {
    fn process(&mut self, pid: i32, processor: Option<Nanos>) {
        (self.process, self.processor) = (pid, processor);
    }

    fn open(&mut self, now: Nanos, file: File, stat: &Stat, position: u64) -> Option<CursorId> {
        if !self.planner.has_room() {
            self.readers_refused += 1;
            return None;
        }
        if let Some(devices) = &mut self.devices
            && self.planner.wants_device(stat.st_dev)
        {
            self.planner.remember(stat.st_dev, devices.record(&file, stat.st_dev));
        }
        let request_bytes = kernel::chunk_bytes(stat.st_dev).min(REQUEST_BYTES_MAX);
        let Self { planner, files, .. } = self;
        let mut unused = None;
        let cursor = self.ends.begins(self.process, || {
            let opened = files.open(file, stat, request_bytes);
            unused = Some(opened.unused);
            for stale in opened.forgotten {
                planner.forget(now, stale);
            }
            let cursor = planner.open(&opened.file, position)?;
            let source = files.source(opened.file.file).expect("it was opened");
            Some((cursor, Arc::clone(source)))
        });
        drop(unused);
        cursor
    }

    fn open_again(&mut self, cursor: CursorId, position: u64) -> Option<CursorId> {
        let Self { planner, files, .. } = self;
        self.ends.begins(self.process, || {
            let source = files.source(planner.file(cursor)?).filter(|it| !it.is_closed())?;
            Some((planner.open_again(cursor, position)?, Arc::clone(source)))
        })
    }

    /// A mapping is read ahead of as any other reader.
    fn mapped(&mut self, _cursor: CursorId) {}

    fn file(&self, cursor: CursorId) -> Option<&File> {
        Some(&self.files.source(self.planner.file(cursor)?)?.file)
    }

    fn seek(&mut self, now: Nanos, cursor: CursorId, position: u64) {
        self.planner.seek(now, cursor, position);
    }

    fn read(&mut self, now: Nanos, cursor: CursorId, range: &Range<u64>, follows: bool) {
        self.resize(now, cursor);
        let processor = self.processor;
        let access = Access { cursor, range: range.clone(), follows, processor };
        let is_cached = self.planner.probe(&access).is_some_and(|around| {
            let cached = self.file(cursor).and_then(|file| kernel::cached(file, &around).ok());
            cached == Some(Residency::Pages(kernel::pages(&around)))
        });
        self.is_cold |= self.planner.read(now, &access, is_cached);
    }

    /// Nothing goes on from it.
    fn read_once(&mut self, _now: Nanos, _cursor: CursorId, range: &Range<u64>) {
        self.planner.read_once(range);
    }

    fn refused(&mut self, why: Refusal) {
        // A file that is gone is refused by nothing.
        self.files_refused += u64::from(!matches!(why, Refusal::Absent(_)));
    }

    fn close(&mut self, now: Nanos, cursor: CursorId) {
        self.ends.ends(cursor);
        if let Some(file) = self.planner.close(now, cursor) {
            self.files.close(file);
        }
    }

    fn entry(&mut self, now: Nanos, access: &EntryAccess<'_>) {
        if self.has_walks {
            self.walks.entry(now, access);
        }
    }
}

/// The part of budget and memory that walks, or a learned list, may have.
pub(crate) const WALKS_ONE_IN: u64 = 2;

/// Of the requests in flight, so many that have not arrived are looked at.
const ABSENT_MAX: usize = 8;

#[cfg(test)]
mod tests;
