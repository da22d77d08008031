//! Workers that fetch entries of directories: threads, as each lookup waits for the device.
//!
//! ```text
//!   walks --push--> team of these rights: queue --(threads)--> fetch --> completions --> walks
//!                   team of other rights: queue --(threads)--/
//! ```
//! A thread that took on the rights of a program opens by these alone, so that each set of rights
//! has a team of its own.
//!
//! # Invariants
//! - At most [`JOBS_MAX`] jobs are queued, running or told and not taken; each job is told once.
//! - At most [`THREADS_MAX`] threads, within what [`ThreadRoom`] grants; the first starts with the
//!   first job, and a thread without jobs ends.
//! - Of one device no more jobs run than it is given: a file system that does not answer holds so
//!   many threads, and the others go on.
//! - No lock is held over a call on a file system. Nothing waits for the threads.

pub(super) mod fetch;
pub(super) mod place;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{iter, thread};

use forerun_core::units::Nanos;
use forerun_core::walk::{WalkRequestId, Want};

use crate::clock::Clock;
use crate::kernel::Devices;
use crate::open::{LeaseList, OwnDescriptors, Refusal, Rights};
use crate::tasks::ThreadRoom;
use crate::watch::WatchQueue;
use fetch::Fetched;
use fetch::Tools;
pub(super) use fetch::{Bounds, Names};
use place::{Handles, Place};

/// An entry to be fetched.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: WalkRequestId,
    /// The directory.
    pub(super) place: Arc<Place>,
    /// The entry; none for the directory itself.
    pub(super) name: Option<Box<[u8]>>,
    pub(super) want: Want,
    /// The inode of the entry; 0 where it is not known.
    pub(super) inode: u64,
    /// The device that it is thought to lie on.
    pub(super) device: Option<u64>,
}

/// How a job ended.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) job: Job,
    pub(super) result: Result<Fetched, Refusal>,
    /// How long it took.
    pub(super) took: Nanos,
}

/// See the module.
#[derive(Debug)]
pub(super) struct EntryWorkers {
    shared: Arc<Shared>,
    sender: SyncSender<Completion>,
    completions: Receiver<Completion>,
    outstanding: usize,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    tools: Tools,
    clock: Clock,
    running: Arc<AtomicU64>,
    room: ThreadRoom,
}

#[derive(Debug, Default)]
struct State {
    teams: Vec<Team>,
    devices: BTreeMap<Option<u64>, DeviceQueue>,
    threads: usize,
    /// One of the threads that wait closes handles.
    expires: bool,
    /// All handles are to be closed now.
    closes: bool,
}

/// How the jobs of one device are carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacing {
    /// Jobs that may run.
    pub(super) running_max: usize,
    /// Those whose inode follows come first, instead of those that were pushed first.
    pub(super) is_by_place: bool,
}

/// The jobs of a device.
#[derive(Debug)]
struct DeviceQueue {
    running: usize,
    pacing: Pacing,
    /// The inode of the last job that was begun.
    place: u64,
}

impl Default for DeviceQueue {
    fn default() -> Self {
        let pacing = Pacing { running_max: THREADS_MAX, is_by_place: false };
        Self { running: 0, pacing, place: 0 }
    }
}

/// The jobs of one set of rights.
#[derive(Debug)]
struct Team {
    rights: Option<Arc<Rights>>,
    jobs: VecDeque<Job>,
    more: Arc<Condvar>,
    idle: usize,
    threads: usize,
}

impl EntryWorkers {
    /// Workers whose calls that have not returned are counted in `running`, and whose watches go to
    /// the queue `watches`.
    pub(super) fn new(
        bounds: Bounds,
        watches: Arc<WatchQueue>,
        running: Arc<AtomicU64>,
        room: ThreadRoom,
    ) -> Self {
        assert!(bounds.head_bytes <= bounds.whole_bytes, "the head is a part of the whole");
        let (sender, completions) = sync_channel(JOBS_MAX);
        let tools = Tools {
            handles: Handles::default(),
            leases: LeaseList::new(),
            devices: Devices::default(),
            descriptors: OwnDescriptors::open().ok(),
            watches,
            bounds,
        };
        let state = Mutex::new(State::default());
        let shared = Arc::new(Shared { state, tools, clock: Clock::start(), running, room });
        Self { shared, sender, completions, outstanding: 0 }
    }

    /// How many jobs more may be pushed.
    pub(super) fn room(&self) -> usize {
        JOBS_MAX - self.outstanding
    }

    /// Jobs that are queued or run, or whose end was not taken in.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Queues `job`, those of whose device are carried out by `pacing`.
    pub(super) fn push(&mut self, job: Job, pacing: Pacing) {
        assert!(self.outstanding < JOBS_MAX, "a job is pushed where there is room");
        assert!(pacing.running_max > 0, "some of the jobs may run");
        self.outstanding += 1;
        let mut state = self.shared.lock();
        state.devices.entry(job.device).or_default().pacing = pacing;
        let rights = job.place.root().rights_to_take_on().cloned();
        let which = state.team(rights.as_ref());
        state.teams[which].jobs.push_back(job);
    }

    /// Has threads work on what is queued: one for [`JOBS_A_WAKE`] jobs, as most jobs do not wait,
    /// and those behind one that does are left to the next call.
    pub(super) fn wake(&mut self) {
        let mut starts = Vec::new();
        let state = self.shared.lock();
        for team in &state.teams {
            let wanted = team.jobs.len().div_ceil(JOBS_A_WAKE);
            for _ in 0..wanted.min(team.idle) {
                team.more.notify_one();
            }
            let room = THREADS_MAX - state.threads - starts.len();
            let missing = wanted.saturating_sub(team.idle).min(room);
            starts.extend(iter::repeat_n(team.rights.clone(), missing));
        }
        drop(state);
        starts.truncate(self.shared.room.take(starts.len()));
        for rights in starts {
            self.start(rights.as_ref());
        }
    }

    /// Has a thread close all handles that are kept: their user may have ended.
    pub(super) fn close_handles(&self) {
        let mut state = self.shared.lock();
        state.closes = true;
        if let Some(team) = state.teams.iter().find(|team| team.idle > 0) {
            team.more.notify_one();
        }
    }

    /// Has a thread work where jobs are queued and there was no room for one.
    pub(super) fn wake_first(&mut self) {
        if self.outstanding > 0 && self.shared.lock().threads == 0 {
            self.wake();
        }
    }

    /// Handles that are kept, and threads.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.shared.tools.handles.count(), self.shared.lock().threads)
    }

    /// Starts a thread, which is granted.
    fn start(&self, rights: Option<&Arc<Rights>>) {
        self.shared.lock().join(rights);
        let (shared, sender) = (Arc::clone(&self.shared), self.sender.clone());
        let thread = thread::Builder::new().name("entries".into()).stack_size(STACK_BYTES);
        let of = rights.cloned();
        if thread.spawn(move || shared.work(of.as_ref(), &sender)).is_err() {
            // Without a thread nothing is fetched, and the program reads as ever.
            self.shared.lock().leave(rights);
            self.shared.room.give_back(1);
        }
    }

    /// The next job that has ended, if there is one.
    pub(super) fn completed(&mut self) -> Option<Completion> {
        let completion = self.completions.try_recv().ok()?;
        assert!(self.outstanding > 0, "a job is told once");
        self.outstanding -= 1;
        Some(completion)
    }

    /// Takes those of the jobs that do not run yet out of the queues.
    pub(super) fn drop_queued(&mut self, is_of: impl Fn(&Job) -> bool) -> Vec<Job> {
        let mut dropped = Vec::new();
        for team in &mut self.shared.lock().teams {
            let (gone, kept) = std::mem::take(&mut team.jobs).into_iter().partition(&is_of);
            team.jobs = kept;
            dropped.extend::<VecDeque<Job>>(gone);
        }
        assert!(dropped.len() <= self.outstanding, "what is dropped was pushed");
        self.outstanding -= dropped.len();
        dropped
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works for the team of `rights` until there is nothing to do.
    fn work(&self, rights: Option<&Arc<Rights>>, sender: &SyncSender<Completion>) {
        let has_rights = rights.is_none_or(|rights| rights.keep());
        let mut waits_since = None;
        let mut state = self.lock();
        loop {
            if std::mem::take(&mut state.closes) {
                drop(state);
                self.tools.handles.close_all();
                state = self.lock();
            }
            let which = state.team(rights);
            if let Some(job) = state.take(which) {
                drop(state);
                waits_since = None;
                let device = job.device;
                let completion = self.carry_out(job, has_rights);
                // The channel has room for all jobs; its other end is there while the process is.
                let _ = sender.send(completion);
                let is_shed = self.room.shed();
                state = self.lock();
                state.ended(device);
                if is_shed {
                    state.leave(rights);
                    return;
                }
                continue;
            }
            let now = self.clock.now();
            let since = *waits_since.get_or_insert(now);
            if now.since(since) >= IDLE_MAX && state.teams[which].jobs.is_empty() {
                state.leave(rights);
                drop(state);
                self.room.give_back(1);
                self.tools.handles.expire(now);
                return;
            }
            // One of those that wait closes what was not used.
            let expires = !std::mem::replace(&mut state.expires, true);
            let wait = Duration::from_nanos(if expires { EXPIRES_EVERY } else { IDLE_MAX }.0);
            let wait = self.room.wait(wait);
            let more = Arc::clone(&state.teams[which].more);
            state.teams[which].idle += 1;
            let (woken, timeout) =
                more.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            let which = state.team(rights);
            state.teams[which].idle -= 1;
            state.expires &= !expires;
            if timeout.timed_out() {
                drop(state);
                self.tools.handles.expire(self.clock.now());
                let is_shed = self.room.shed();
                state = self.lock();
                if is_shed {
                    state.leave(rights);
                    return;
                }
            }
        }
    }

    fn carry_out(&self, job: Job, has_rights: bool) -> Completion {
        let began = self.clock.now();
        self.running.fetch_add(1, Ordering::Relaxed);
        let result = if has_rights {
            self.tools.fetch(&job.place, job.name.as_deref(), job.want, began)
        } else {
            Err(Refusal::Rights)
        };
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.tools.handles.expire(began);
        Completion { job, result, took: self.clock.now().since(began) }
    }
}

impl State {
    /// The team of these rights, which is formed if there is none.
    fn team(&mut self, rights: Option<&Arc<Rights>>) -> usize {
        let is_of = |team: &Team| team.rights.as_ref() == rights;
        if let Some(which) = self.teams.iter().position(is_of) {
            return which;
        }
        self.teams.push(Team {
            rights: rights.cloned(),
            jobs: VecDeque::new(),
            more: Arc::new(Condvar::new()),
            idle: 0,
            threads: 0,
        });
        self.teams.len() - 1
    }

    /// A job of the team at `which` whose device is not at its bound: the first, or of its device
    /// that which lies next, from there to the end and then from the beginning.
    fn take(&mut self, which: usize) -> Option<Job> {
        let Self { teams, devices, .. } = self;
        let jobs = &mut teams[which].jobs;
        let may_run = |job: &Job| {
            devices.get(&job.device).is_none_or(|row| row.running < row.pacing.running_max)
        };
        let first = jobs.iter().position(may_run)?;
        let device = jobs[first].device;
        let row = devices.entry(device).or_default();
        let distance = |at: &usize| jobs[*at].inode.wrapping_sub(row.place);
        let of_device = (first..jobs.len()).filter(|&at| jobs[at].device == device);
        let next = if row.pacing.is_by_place { of_device.min_by_key(distance) } else { None };
        let job = jobs.remove(next.unwrap_or(first)).expect("it was found");
        (row.running, row.place) = (row.running + 1, job.inode);
        Some(job)
    }

    /// A job on `device` has ended; another team may wait for that.
    fn ended(&mut self, device: Option<u64>) {
        let row = self.devices.get_mut(&device).expect("a job that ran has a device");
        assert!(row.running > 0, "a job that ends ran");
        let was_full = row.running >= row.pacing.running_max;
        row.running -= 1;
        if self.devices.len() > DEVICES_MAX {
            self.devices.retain(|_, row| row.running > 0);
        }
        let waits = |team: &&Team| was_full && team.idle > 0 && !team.jobs.is_empty();
        for team in self.teams.iter().filter(waits) {
            team.more.notify_one();
        }
    }

    /// A thread of these rights begins.
    fn join(&mut self, rights: Option<&Arc<Rights>>) {
        let which = self.team(rights);
        self.threads += 1;
        self.teams[which].threads += 1;
        assert!(self.threads <= THREADS_MAX, "threads are bounded");
    }

    /// A thread of these rights ends. A team without threads and jobs is dissolved.
    fn leave(&mut self, rights: Option<&Arc<Rights>>) {
        let which = self.team(rights);
        assert!(self.threads > 0 && self.teams[which].threads > 0, "a thread that ends ran");
        self.threads -= 1;
        let team = &mut self.teams[which];
        team.threads -= 1;
        if team.threads == 0 && team.jobs.is_empty() {
            self.teams.swap_remove(which);
        }
    }
}

/// Jobs that are queued, running or told.
pub(super) const JOBS_MAX: usize = 512;
/// Two devices that have proved parallel.
const THREADS_MAX: usize = 256;
/// Devices without jobs are forgotten where there are more.
const DEVICES_MAX: usize = 64;
/// A thread without jobs for so long ends.
const IDLE_MAX: Nanos = Nanos::from_millis(1_000);
const EXPIRES_EVERY: Nanos = Nanos::from_millis(50);
/// Jobs that are queued for each thread that is woken.
const JOBS_A_WAKE: usize = 4;
const STACK_BYTES: usize = 64 << 10;

const _: () = assert!(THREADS_MAX <= JOBS_MAX);

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::fs::{Mode, OFlags, open};

    use super::*;
    use crate::open::entries::Root;

    #[test]
    fn jobs_of_a_device_that_seeks_are_carried_out_by_place_and_others_in_turn() {
        let process = open("/proc/self", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let process = process.expect("this process sees itself");
        let root = Root::of(process.as_fd()).expect("this process sees its root");
        let place = Place::top(Arc::new(root));
        let job = |(device, inode): (u64, u64)| Job {
            id: WalkRequestId(inode),
            place: Arc::clone(&place),
            name: None,
            want: Want::Inode,
            inode,
            device: Some(device),
        };
        let jobs = [(1, 50), (2, 9), (1, 10), (1, 30), (2, 3), (1, 20)];
        #[rustfmt::skip]
        let rows = [ // by place on device 1, after the inode, the order
            (false, 0,  [50, 9, 10, 30, 3, 20]),
            (true,  0,  [10, 20, 30, 50, 9, 3]),
            (true,  20, [20, 30, 50, 9, 10, 3]),
            (true,  99, [10, 20, 30, 50, 9, 3]),
        ];
        for (is_by_place, after, expected) in rows {
            let mut state = State::default();
            let which = state.team(None);
            state.teams[which].jobs.extend(jobs.map(job));
            let row = state.devices.entry(Some(1)).or_default();
            (row.pacing.is_by_place, row.place) = (is_by_place, after);
            let order: Vec<u64> = iter::from_fn(|| state.take(which)).map(|it| it.inode).collect();
            assert_eq!(order, expected, "by place: {is_by_place}, after {after}");
        }
    }
}
