//! Threads that work off jobs which may wait for a file system.
//!
//! ```text
//!   push --> queue --(threads)--> work --> done --> completed
//! ```
//! # Invariants
//! - At most `jobs_max` jobs are queued, run, or done and not taken; each is given back once.
//! - At most `threads_max` threads; the first starts with the first job, and one without a job for
//!   a second ends.
//! - No lock is held over a job. Nothing waits for the threads: they end with the process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

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
}

#[derive(Debug)]
struct State<J> {
    jobs: VecDeque<J>,
    idle: usize,
    threads: usize,
}

impl<J: Send + 'static, D: Send + 'static> Pool<J, D> {
    /// A pool that does `work` for each job; `running` counts those that a thread is at.
    pub(crate) fn new(bounds: PoolBounds, running: Arc<AtomicU64>, work: fn(J) -> D) -> Self {
        assert!(bounds.threads_max > 0 && bounds.jobs_max > 0, "a pool does something");
        let (sender, done) = channel();
        let state = State { jobs: VecDeque::new(), idle: 0, threads: 0 };
        let shared = Shared { state: Mutex::new(state), more: Condvar::new(), running };
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
        state.threads += usize::from(is_short);
        drop(state);
        if is_short && !self.start() {
            // Without a thread the job waits for one that there is, or for ever.
            self.shared.lock().threads -= 1;
        }
        self.shared.more.notify_one();
    }

    fn start(&self) -> bool {
        let (shared, sender, work) = (Arc::clone(&self.shared), self.sender.clone(), self.work);
        let thread = thread::Builder::new().name(self.bounds.name.into()).stack_size(STACK_BYTES);
        thread.spawn(move || shared.run(work, &sender)).is_ok()
    }

    /// The next job that is done, if there is one.
    pub(crate) fn completed(&mut self) -> Option<D> {
        let done = self.done.try_recv().ok()?;
        assert!(self.outstanding > 0, "a job is given back once");
        self.outstanding -= 1;
        Some(done)
    }

    /// The next job that is done, once it is; none where there is no job, or no thread for it.
    pub(crate) fn wait(&mut self, time: Duration) -> Option<D> {
        if self.outstanding == 0 {
            return None;
        }
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
        let mut state = self.lock();
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
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let (woken, timeout) =
                self.more.wait_timeout(state, IDLE_MAX).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

const IDLE_MAX: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_is_done_once_by_no_more_threads_than_are_allowed() {
        let bounds = PoolBounds { jobs_max: 100, threads_max: 3, name: "test" };
        let mut pool = Pool::new(bounds, Arc::default(), |job: u32| (job, thread::current().id()));
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
}
