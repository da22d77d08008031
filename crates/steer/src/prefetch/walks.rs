//! The driver of `core::walk`: uses of entries by path go in, workers fetch what is requested.
//!
//! ```text
//!   observers --entry--> root of the process, chain of directories --touch, list--> core::walk
//!   watches --directory, name--> told ------------------------------------------------/ |
//!                                                                                      | issue
//!   core::walk <--listed, complete-- completions <-- workers (entries) <-- jobs <------+
//! ```
//! # Invariants
//! - Each request of core is answered once: by a worker, or as failed where there is no place, no
//!   name or no answer of its device.
//! - A device that has not answered for [`STUCK_AFTER`] gets nothing until it does.
//! - What is known is forgotten when no entry was used for [`FORGOTTEN_AFTER`].

mod directories;
mod roots;
mod watches;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use forerun_core::units::Nanos;
use forerun_core::walk::depth::{WalkDepth, was_cached};
use forerun_core::walk::{
    DirectoryId, Use, WalkOutcome, WalkRequest, WalkRequestId, WalkSettings, WalkStats, Walks,
};

use super::entries::place::Place;
use super::entries::{Bounds, Completion, EntryWorkers, JOBS_MAX, Job, Pacing};
use crate::kernel::Devices;
use crate::observe::access::{EntryAccess, EntryCall};
use crate::observe::poll::Allowance;
use crate::tasks::ThreadRoom;
use crate::watch::WatchQueue;
use directories::Directories;
use roots::Roots;
use watches::{ToldRead, Untold, Watches};

/// What was done for entries of directory trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryStats {
    /// Walks that were recognised.
    pub walks: u64,
    /// Entries that were requested ahead of a program.
    pub requested: u64,
    /// Of these, those that the program was seen to use.
    pub used: u64,
    /// Of those, the ones that were in flight then.
    pub late: u64,
    /// Entries that were there as the program went past them: a use of them is not seen.
    pub passed: u64,
    /// Entries that were not used.
    pub unused: u64,
    /// Entries that could not be fetched.
    pub failed: u64,
    /// Bytes of files that were requested of the kernel.
    pub bytes: u64,
    /// Bytes of those that were not used, cached ones among them.
    pub unused_bytes: u64,
}

/// A file in a directory of a walk that was read, on a device that had not all cached of late.
#[derive(Debug)]
pub(crate) struct FileRead {
    place: Arc<Place>,
    name: Vec<u8>,
    /// The process that has read it, where the system tells.
    pub(crate) process: Option<i32>,
    /// A walk of the program had fetched it, which goes on.
    pub(crate) is_fetched: bool,
}

impl FileRead {
    /// Where it lies; none below another root than that of this process.
    pub(crate) fn path(&self) -> Option<Vec<u8>> {
        let above = self.place.root().is_own().then(|| self.place.path())?;
        let names = [&b""[..], &above, &self.name];
        Some(names[usize::from(above.is_empty())..].join(&b'/'))
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct WalkDriver {
    walks: Walks,
    settings: WalkSettings,
    directories: Directories,
    roots: Roots,
    watches: Watches,
    /// Started with the first request.
    workers: Option<EntryWorkers>,
    running: Arc<AtomicU64>,
    thread_room: ThreadRoom,
    /// The directories of the requests that a worker has.
    requests: BTreeMap<WalkRequestId, DirectoryId>,
    /// Requests that workers were given.
    submitted: u64,
    devices: BTreeMap<Option<u64>, DeviceRow>,
    facts: Devices,
    /// Files that were read and not taken yet: of a process that is known, or fetched by a walk.
    read: Vec<FileRead>,
    /// When an entry was last used, if any was since all was forgotten.
    used: Option<Nanos>,
    /// When a poll last met the program at one.
    met: Option<Nanos>,
    /// When a device answered last.
    answered: Option<Nanos>,
    /// The time of the last poll.
    now: Nanos,
    /// What may be used of the poll that goes on, and after its end of the next one.
    allowance: Option<Allowance>,
    /// Of walks that are forgotten; of all, the bytes.
    counts: EntryStats,
}

/// What is known of a device.
#[derive(Debug, Default)]
struct DeviceRow {
    depth: WalkDepth,
    in_flight: usize,
    /// When it last answered, or began to have something in flight.
    answered: Nanos,
}

impl DeviceRow {
    fn is_stuck(&self, now: Nanos) -> bool {
        self.in_flight > 0 && now.since(self.answered) >= STUCK_AFTER
    }

    /// Whether nothing is requested of it.
    fn is_closed(&self, now: Nanos) -> bool {
        self.is_stuck(now) || self.depth.rests(now)
    }

    /// Whether it has to do what is requested of it: not all was cached of late.
    fn is_cold(&self, now: Nanos) -> bool {
        !self.depth.is_cached() && !self.is_closed(now)
    }

    fn requests_max(&self) -> usize {
        self.depth.requests() as usize
    }
}

impl WalkDriver {
    /// Walks of which all together are no more than `budget_bytes` ahead, and each `limit_bytes`.
    pub(super) fn new(limit_bytes: u64, budget_bytes: u64, thread_room: ThreadRoom) -> Self {
        let settings = WalkSettings::default();
        let ahead_bytes_max = settings.ahead_bytes_max.min(limit_bytes);
        let settings = WalkSettings { ahead_bytes_max, budget_bytes, ..settings };
        Self {
            walks: Walks::new(settings.clone()),
            settings,
            directories: Directories::default(),
            roots: Roots::default(),
            watches: Watches::new(WatchQueue::new()),
            workers: None,
            running: Arc::default(),
            thread_room,
            requests: BTreeMap::new(),
            submitted: 0,
            devices: BTreeMap::new(),
            facts: Devices::default(),
            read: Vec::new(),
            used: None,
            met: None,
            answered: None,
            now: Nanos(0),
            allowance: None,
            counts: EntryStats::default(),
        }
    }

    /// The number of calls of workers that have not returned.
    pub(super) fn running(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.running)
    }

    /// Whether entries are used or fetched.
    pub(super) fn is_busy(&self) -> bool {
        let is_used = self.used.is_some_and(|at| self.now.since(at) < BUSY_FOR);
        is_used || !self.requests.is_empty()
    }

    /// Requests that workers have, and how many they were given so far.
    pub(super) fn requests(&self) -> (usize, u64) {
        (self.workers.as_ref().map_or(0, EntryWorkers::outstanding), self.submitted)
    }

    /// What programs were saved since the last call.
    pub(super) fn take_gained(&mut self) -> Nanos {
        self.walks.take_gained()
    }

    /// Takes in the reads that were told since the last call, for which a part of `allowance` may
    /// be used: all that were not taken yet.
    pub(super) fn take_read(&mut self, now: Nanos, allowance: Allowance) -> Vec<FileRead> {
        self.hear(now, allowance);
        self.allowance = Some(allowance.share(1));
        std::mem::take(&mut self.read)
    }

    pub(super) fn ahead_bytes(&self) -> u64 {
        self.walks.ahead_bytes()
    }

    /// Sets the bytes that may be ahead of all walks.
    pub(super) fn set_budget(&mut self, bytes: u64) {
        self.walks.set_budget(bytes);
    }

    pub(super) fn stats(&self) -> EntryStats {
        let WalkStats { walks, requested, used, late, passed, failed, .. } = self.walks.stats();
        let (unused, unused_bytes) = self.walks.not_used();
        let counts = self.counts;
        EntryStats {
            walks: counts.walks + walks,
            requested: counts.requested + requested,
            used: counts.used + used,
            late: counts.late + late,
            passed: counts.passed + passed,
            unused: counts.unused + unused,
            failed: counts.failed + failed,
            bytes: counts.bytes,
            unused_bytes: counts.unused_bytes + unused_bytes,
        }
    }

    /// Forgets all that is known; what is in flight is not waited for.
    pub(super) fn clear(&mut self) {
        self.counts = self.stats();
        self.walks.clear();
        self.directories = Directories::default();
        self.roots.clear();
        self.watches.clear();
        self.read.clear();
        (self.used, self.met) = (None, None);
        let dropped = self.workers.as_mut().map(|workers| workers.drop_queued(|_| true));
        for job in dropped.into_iter().flatten() {
            self.leave(&job);
        }
    }

    /// One of the program's processes has ended: what it was in may be deleted or unmounted next.
    pub(super) fn some_ended(&self) {
        if let Some(workers) = &self.workers {
            workers.close_handles();
        }
    }

    /// A program uses an entry.
    pub(super) fn entry(&mut self, now: Nanos, access: &EntryAccess<'_>) {
        let path = access.path;
        if KERNELS_OWN.iter().any(|own| path.starts_with(own)) {
            return;
        }
        let mut names: Vec<&[u8]> =
            path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
        if names.iter().any(|name| matches!(*name, b"." | b"..")) {
            return;
        }
        let usage = match access.call {
            EntryCall::List => None,
            EntryCall::Stat | EntryCall::Open => Some(Use::Stat),
            EntryCall::Read { to_end } => Some(Use::Read { to_end }),
        };
        // Without a name it is the root itself, which is no entry.
        let entry = usage.and_then(|usage| Some((names.pop()?, usage)));
        if entry.is_none() && usage.is_some() {
            return;
        }
        let top = access.with_thread(|thread| self.roots.top(now, thread)).flatten();
        let Some(top) = top else { return };
        // What was told is older than what is met now.
        self.take_told(now);
        (self.used, self.met) = (Some(now), Some(now));
        let mut dir = self.directories.top(&mut self.walks, &top);
        for name in names {
            let Some(below) = self.directories.below(&mut self.walks, dir, name) else { return };
            dir = below;
            if let Some(place) = self.directories.place(dir) {
                place.enter();
            }
        }
        let other = self.directories.place(dir).and_then(|place| self.watches.prefer(dir, place));
        self.untold(other);
        match entry {
            Some((name, usage)) => self.walks.touch(dir, name, usage),
            None => self.walks.list(dir),
        }
    }

    /// Takes in the reads that watches have told since the last call, for which a part of
    /// `allowance` may be used.
    fn hear(&mut self, now: Nanos, allowance: Allowance) {
        // Whatever this poll uses: beside many processes that is all that it may.
        self.allowance = Some(allowance.share(TAKEN_IN_ONE_IN));
        self.take_told(now);
    }

    /// Takes in the reads that watches have told since the last call. Once a poll has used what it
    /// may, they are dropped: what is taken in late is of no use.
    fn take_told(&mut self, now: Nanos) {
        let mut told = Vec::new();
        self.watches.take(&mut told);
        // Any process may have read it: of one that was not met for long it is another's.
        let is_met = self.met.is_some_and(|at| now.since(at) < BUSY_FOR);
        for ToldRead { dir, place, name, process } in told {
            if self.is_spent() {
                return self.watches.drop_told();
            }
            if self.directories.is_at(dir, &place) {
                self.used = Some(now);
                self.roots.used(now, place.root());
                let is_fetched = self.walks.told(dir, &name) && is_met;
                let row = place.device().and_then(|device| self.devices.get(&Some(device)));
                let is_cold = row.is_some_and(|row| row.is_cold(now));
                if is_cold && (is_fetched || process.is_some()) && self.read.len() < READ_MAX {
                    self.read.push(FileRead { place, name, process, is_fetched });
                }
                assert!(self.read.len() <= READ_MAX, "what waits is bounded");
            }
        }
    }

    /// Whether this poll has used what it may.
    fn is_spent(&self) -> bool {
        self.allowance.is_some_and(Allowance::is_over)
    }

    /// Whether a device could take more requests than it has, or none is known yet: then each
    /// entry that a program uses is worth an early poll.
    pub(super) fn is_starved(&self) -> bool {
        let has_room =
            |row: &DeviceRow| row.is_cold(self.now) && row.in_flight < row.requests_max();
        self.is_busy() && self.is_some_device(has_room)
    }

    /// Whether it pays to look often: a device has requests, or has answered one a short time ago.
    pub(super) fn is_attentive(&self, now: Nanos) -> bool {
        let is_young = self.answered.is_some_and(|at| now.since(at) < BUSY_FOR);
        is_young || self.devices.values().any(|row| row.in_flight > 0 && row.is_cold(now))
    }

    /// Whether entries are fetched, or may have to be: not all were cached of late.
    pub(super) fn is_fetching(&self) -> bool {
        self.is_busy() && self.is_some_device(|row| row.is_cold(self.now))
    }

    /// Whether `is_so` of a device; also where none is known yet. What is not known lies on one of
    /// them as soon as there are some.
    fn is_some_device(&self, is_so: impl Fn(&DeviceRow) -> bool) -> bool {
        let mut known = self.devices.iter().filter(|(device, _)| device.is_some()).peekable();
        known.peek().is_none() || known.any(|(_, row)| is_so(row))
    }

    /// Takes in what was told and what workers have done, for which a part of `allowance` may be
    /// used, and gives them up to `room_max` requests more.
    pub(super) fn advance(&mut self, now: Nanos, room_max: usize, allowance: Allowance) {
        self.now = now;
        if self.used.is_none() && self.requests.is_empty() {
            return;
        }
        self.hear(now, allowance);
        self.roots.expire(now);
        while !self.is_spent()
            && let Some(completion) = self.workers.as_mut().and_then(EntryWorkers::completed)
        {
            self.take_in(now, completion);
        }
        self.allowance = Some(allowance.share(1));
        self.give_up_on_stuck(now);
        if self.used.is_none_or(|at| now.since(at) >= FORGOTTEN_AFTER) {
            if self.requests.is_empty() {
                self.clear();
            }
            return;
        }
        let room = self.room(now).min(room_max);
        if room == 0 {
            if let Some(workers) = &mut self.workers {
                workers.wake_first();
            }
            return;
        }
        let known =
            self.devices.iter().filter(|(device, row)| device.is_some() && !row.is_closed(now));
        let mut known = known.map(|(_, row)| row).peekable();
        let seeks = known.peek().is_some() && known.all(|row| row.depth.is_by_place());
        self.walks.set_seeks(seeks);
        let mut requests = Vec::new();
        self.walks.issue(room, &mut requests);
        assert!(requests.len() <= room, "no more requests than there is room for");
        for request in requests {
            if let Some(job) = self.job(now, &request) {
                self.submit(now, request.dir, job);
            } else {
                self.walks.complete(request.id, WalkOutcome::Failed);
            }
        }
        if let Some(workers) = &mut self.workers {
            workers.wake();
        }
    }

    /// How many requests more the devices are given.
    fn room(&self, now: Nanos) -> usize {
        let first = DeviceRow::default();
        let open = self.devices.values().filter(|row| !row.is_closed(now));
        let (mut deepest, mut in_flight) = (0, 0);
        for row in open {
            deepest = deepest.max(row.depth.requests_and_queue());
            in_flight += row.in_flight;
        }
        if deepest == 0 && self.devices.values().any(|row| row.depth.rests(now)) {
            return 0;
        }
        let depth = if deepest == 0 { first.depth.requests_and_queue() } else { deepest } as usize;
        let most = self.workers.as_ref().map_or(JOBS_MAX, EntryWorkers::room);
        depth.saturating_sub(in_flight).min(most)
    }

    /// The job of a request; none where its place, its name or its device is not there.
    fn job(&self, now: Nanos, request: &WalkRequest) -> Option<Job> {
        let &WalkRequest { id, dir, index, want } = request;
        let place = Arc::clone(self.directories.place(dir)?);
        let (name, inode) = match index {
            Some(index) => {
                let (name, inode) = self.directories.entry(dir, index)?;
                (Some(name.into()), inode)
            }
            None => (None, 0),
        };
        let device = place.device();
        let is_closed = self.devices.get(&device).is_some_and(|row| row.is_closed(now));
        (!is_closed).then_some(Job { id, place, name, want, inode, device })
    }

    fn submit(&mut self, now: Nanos, dir: DirectoryId, job: Job) {
        let row = self.device(job.device);
        if row.in_flight == 0 {
            row.answered = now;
        }
        row.in_flight += 1;
        // What is known of no device may hang like any other.
        let running_max =
            if job.device.is_some() { row.requests_max() } else { UNKNOWN_RUNNING_MAX };
        let pacing = Pacing { running_max, is_by_place: row.depth.is_by_place() };
        self.submitted += 1;
        self.requests.insert(job.id, dir);
        let &WalkSettings { head_bytes, whole_bytes, entries_max, .. } = &self.settings;
        let (running, watches, room) = (&self.running, &self.watches, &self.thread_room);
        let workers = self.workers.get_or_insert_with(|| {
            let bounds = Bounds { head_bytes, whole_bytes, entries_max: entries_max as usize };
            EntryWorkers::new(bounds, watches.queue(), Arc::clone(running), room.clone())
        });
        workers.push(job, pacing);
    }

    fn device(&mut self, device: Option<u64>) -> &mut DeviceRow {
        let facts = &self.facts;
        self.devices.entry(device).or_insert_with(|| {
            let seeks = device.is_some_and(|device| facts.facts(device).is_rotational);
            DeviceRow { depth: WalkDepth::of(seeks), ..DeviceRow::default() }
        })
    }

    /// `job` is with the workers no more. The directory of its request.
    fn leave(&mut self, job: &Job) -> DirectoryId {
        let row = self.devices.get_mut(&job.device).expect("a job has a device");
        assert!(row.in_flight > 0, "a job that ends was in flight");
        row.in_flight -= 1;
        self.requests.remove(&job.id).expect("a job is told once")
    }

    fn take_in(&mut self, now: Nanos, completion: Completion) {
        let Completion { job, result, took } = completion;
        let dir = self.leave(&job);
        let row = self.devices.get_mut(&job.device).expect("a job has a device");
        let is_full = row.in_flight + 1 >= row.requests_max();
        let needs_bytes = result.as_ref().is_ok_and(|it| it.bytes > 0 && !it.is_cached);
        let is_cached = was_cached(took, needs_bytes);
        let bytes = result.as_ref().map_or(0, |it| it.bytes);
        row.depth.answered(now, is_cached, is_full, bytes);
        // Those that wait for their turn do not wait in the device's queue.
        row.depth.took(took, row.in_flight.min(row.requests_max() - 1));
        self.answered = if is_cached { self.answered } else { Some(now) };
        let saves = if is_cached { Nanos(0) } else { row.depth.latency() };
        row.answered = now;
        let is_here = self.directories.is_at(dir, &job.place);
        let outcome = match result {
            Err(_) => WalkOutcome::Failed,
            Ok(mut fetched) => {
                self.counts.bytes += if fetched.is_cached { 0 } else { fetched.bytes };
                if fetched.has_changed && is_here {
                    self.directories.changed(&mut self.walks, dir);
                }
                if let Some(names) = fetched.names.take().filter(|_| is_here) {
                    // What is requested of these depends on it.
                    self.device(job.place.device());
                    let listed = match &job.name {
                        Some(name) => self.directories.below(&mut self.walks, dir, name),
                        None => Some(dir),
                    };
                    if let Some(listed) = listed {
                        self.directories.list(&mut self.walks, listed, names);
                        self.watch(listed, fetched.watch.take());
                    }
                }
                if let Some(number) = fetched.watch {
                    self.watches.end(number);
                }
                WalkOutcome::Fetched { bytes: fetched.bytes, saves }
            }
        };
        self.walks.complete(job.id, outcome);
    }

    /// Reads in `dir` are told by the watch of this number from now on.
    fn watch(&mut self, dir: DirectoryId, number: Option<i32>) {
        let watched = number.zip(self.directories.place(dir));
        let ended = watched.and_then(|(number, place)| self.watches.add(number, dir, place));
        self.untold(ended);
    }

    /// Reads in this directory are not told any more, if its number is still its own.
    fn untold(&mut self, ended: Option<Untold>) {
        if let Some((dir, place)) = ended
            && self.directories.is_at(dir, &place)
        {
            self.walks.untold(dir);
        }
    }

    /// Takes the jobs of devices that do not answer, or are to rest, out of the queue.
    fn give_up_on_stuck(&mut self, now: Nanos) {
        let stuck = self.devices.iter().filter(|(_, row)| row.is_closed(now));
        let stuck: Vec<Option<u64>> = stuck.map(|(&device, _)| device).collect();
        for device in stuck {
            let Some(workers) = &mut self.workers else { return };
            for job in workers.drop_queued(|job| job.device == device) {
                self.leave(&job);
                self.walks.complete(job.id, WalkOutcome::Failed);
            }
        }
        if self.devices.len() > DEVICES_MAX {
            self.devices.retain(|_, row| row.in_flight > 0);
        }
    }
}

/// The part of what a poll may use that is there for what was told and done, at least.
const TAKEN_IN_ONE_IN: u64 = 4;
/// Requests that run while their device is not known.
const UNKNOWN_RUNNING_MAX: usize = 16;
/// The slowest of the devices that answer at all are faster.
const STUCK_AFTER: Nanos = Nanos::from_millis(2_000);
/// After an entry the next one is looked for this long.
const BUSY_FOR: Nanos = Nanos::from_millis(200);
const FORGOTTEN_AFTER: Nanos = Nanos::from_millis(5_000);
/// Files that are read between two polls: more than one poll takes in.
const READ_MAX: usize = 4_096;
/// Devices without requests are forgotten where there are more.
const DEVICES_MAX: usize = 64;
/// What lies there is not on a device, wherever else it may be mounted.
const KERNELS_OWN: [&[u8]; 2] = [b"/proc/", b"/sys/"];

#[cfg(test)]
mod tests;
