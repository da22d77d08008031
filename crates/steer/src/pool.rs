//! Threads that work off jobs which may wait for a file system.
//!
//! ```text
//!   push --> queue --(threads)--> work --> done --> completed
//! ```
//! # Invariants
//! - At most `jobs_max` jobs are queued, run, or done and not taken; each is given back once.
//! - At most `threads_max` threads, within what [`ThreadRoom`] grants; the first starts with the
//!   first job, and one without a job for a second ends.
//! - No lock is held over a job. Nothing waits for the threads: they end with the process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::tasks::ThreadRoom;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pool<J, D> {
    shared: Arc<Shared<J>>,
    work: fn(J) -> D,
    sender: Sender<D>,
    done: Receiver<D>,
    outstanding: usize,
    bounds: PoolBounds,
}

/// The bounds of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolBounds {
    pub(crate) jobs_max: usize,
    pub(crate) threads_max: usize,
    pub(crate) name: &'static str,
}

#[derive(Debug)]
struct Shared<J> {
    state: Mutex<State<J>>,
    more: Condvar,
    running: Arc<AtomicU64>,
    room: ThreadRoom,
}

#[derive(Debug)]
struct State<J> {
    jobs: VecDeque<J>,
    idle: usize,
    threads: usize,
}

impl<J: Send + 'static, D: Send + 'static> Pool<J, D> {
    /// A pool that does `work` for each job; `running` counts those that a thread is at.
    pub(crate) fn new(
        bounds: PoolBounds,
        running: Arc<AtomicU64>,
        room: ThreadRoom,
        work: fn(J) -> D,
    ) -> Self {
        assert!(bounds.threads_max > 0 && bounds.jobs_max > 0, "a pool does something");
        let (sender, done) = channel();
        let state = State { jobs: VecDeque::new(), idle: 0, threads: 0 };
        let shared = Shared { state: Mutex::new(state), more: Condvar::new(), running, room };
        Self { shared: Arc::new(shared), work, sender, done, outstanding: 0, bounds }
    }

    /// How many jobs more may be pushed.
    pub(crate) fn room(&self) -> usize {
        self.bounds.jobs_max - self.outstanding
    }

    /// Jobs that are not taken yet.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Queues `job`, for which there is room.
    pub(crate) fn push(&mut self, job: J) {
        assert!(self.outstanding < self.bounds.jobs_max, "a job is pushed where there is room");
        self.outstanding += 1;
        let mut state = self.shared.lock();
        state.jobs.push_back(job);
        let is_short = state.idle < state.jobs.len() && state.threads < self.bounds.threads_max;
        drop(state);
        if is_short {
            // Without a thread the job waits for one that there is, or for room.
            self.start();
        }
        self.shared.more.notify_one();
    }

    /// Starts a thread, where there is room.
    fn start(&self) {
        if self.shared.room.take(1) == 0 {
            return;
        }
        self.shared.lock().threads += 1;
        if !self.spawn() {
            self.shared.lock().threads -= 1;
            self.shared.room.give_back(1);
        }
    }

    /// Starts a thread where jobs are queued and there is none.
    fn start_first(&self) {
        let state = self.shared.lock();
        let is_without = state.threads == 0 && !state.jobs.is_empty();
        drop(state);
        if is_without {
            self.start();
        }
    }

    fn spawn(&self) -> bool {
        let (shared, sender, work) = (Arc::clone(&self.shared), self.sender.clone(), self.work);
        let thread = thread::Builder::new().name(self.bounds.name.into()).stack_size(STACK_BYTES);
        thread.spawn(move || shared.run(work, &sender)).is_ok()
    }

    /// The next job that is done, if there is one.
    pub(crate) fn completed(&mut self) -> Option<D> {
        let done = self.done.try_recv().ok();
        if done.is_none() && self.outstanding > 0 {
            self.start_first();
        }
        let done = done?;
        assert!(self.outstanding > 0, "a job is given back once");
        self.outstanding -= 1;
        Some(done)
    }

    /// The next job that is done, once it is; none where there is no job, or no thread for it.
    pub(crate) fn wait(&mut self, time: Duration) -> Option<D> {
        if self.outstanding == 0 {
            return None;
        }
        self.start_first();
        let done = self.done.recv_timeout(time).ok()?;
        self.outstanding -= 1;
        Some(done)
    }
}

impl<J> Shared<J> {
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run<D>(&self, work: fn(J) -> D, sender: &Sender<D>) {
        let (mut state, mut waited) = (self.lock(), Duration::ZERO);
        loop {
            assert!(state.idle < state.threads, "a thread that takes a job is not idle");
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                self.running.fetch_add(1, Ordering::Relaxed);
                let done = work(job);
                self.running.fetch_sub(1, Ordering::Relaxed);
                if sender.send(done).is_err() {
                    return;
                }
                waited = Duration::ZERO;
            } else {
                let wait = self.room.wait(IDLE_MAX);
                state.idle += 1;
                let (woken, timeout) =
                    self.more.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
                state = woken;
                state.idle -= 1;
                waited = if timeout.timed_out() { waited + wait } else { Duration::ZERO };
                if waited >= IDLE_MAX && state.jobs.is_empty() {
                    state.threads -= 1;
                    drop(state);
                    self.room.give_back(1);
                    return;
                }
                drop(state);
            }
            if self.room.shed() {
                self.lock().threads -= 1;
                return;
            }
            state = self.lock();
        }
    }
}

const IDLE_MAX: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::fs;

    use forerun_testkit::{Scratch, until};

    use super::*;

    #[test]
    fn each_job_is_done_once_by_no_more_threads_than_are_allowed() {
        let bounds = PoolBounds { jobs_max: 100, threads_max: 3, name: "test" };
        let mut pool = Pool::new(bounds, Arc::default(), ThreadRoom::here(), |job: u32| {
            (job, thread::current().id())
        });
        for job in 0..100 {
            pool.push(job);
        }
        assert_eq!(pool.room(), 0);
        let (mut jobs, mut threads) = (Vec::new(), Vec::new());
        while let Some((job, thread)) = pool.wait(Duration::from_secs(600)) {
            jobs.push(job);
            threads.push(thread);
        }
        jobs.sort_unstable();
        threads.sort_by_key(|id| format!("{id:?}"));
        threads.dedup();
        assert_eq!(jobs, (0..100).collect::<Vec<_>>());
        assert!((1..=3).contains(&threads.len()), "{threads:?}");
        assert_eq!((pool.room(), pool.outstanding()), (100, 0));
        assert!(pool.completed().is_none());
    }

    #[test]
    fn jobs_wait_for_room_in_the_limits_of_the_program() {
        let machine = Scratch::new("pool-limits");
        for folder in ["proc/self", "cg"] {
            fs::create_dir_all(machine.join(folder)).unwrap();
        }
        let write = |name: &str, text: &str| fs::write(machine.join(name), text).unwrap();
        write("proc/self/cgroup", "0::/\n");
        write("proc/self/mountinfo", "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n");
        write("cg/pids.max", "64\n");
        write("cg/pids.current", "61\n");
        let bounds = PoolBounds { jobs_max: 100, threads_max: 100, name: "test" };
        let room = ThreadRoom::in_groups_of(&machine);
        let mut pool = Pool::new(bounds, Arc::default(), room, |job: u32| job);
        (0..100).for_each(|job| pool.push(job));
        assert_eq!((pool.completed(), pool.shared.lock().threads), (None, 0), "a quarter of 3");
        write("cg/pids.current", "52\n");
        let mut jobs = Vec::new();
        until(|| {
            jobs.extend(pool.completed());
            assert!(pool.shared.lock().threads <= 3, "a quarter of 12");
            jobs.len() == 100
        });
        write("cg/pids.current", "64\n");
        until(|| pool.shared.lock().threads == 0);
    }
}
