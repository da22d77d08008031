//! The prefetch workers: threads that call the kernel, as a call may have to wait until the
//! device's queue has room.
//!
//! ```text
//!   prefetcher --push--> queue --(threads)--> what was written of it --> kernel::prefetch
//!       ^                                          |
//!       '---- residency <--------------------------'  its part
//! ```
//! # Invariants
//! - The jobs of one file run in their order, one at a time: two threads would mix them up on the
//!   way to the device.
//! - At most [`QUEUE_MAX`] jobs wait and [`THREADS_MAX`] run; a thread starts when one is missing,
//!   the first with the first job, within what [`ThreadRoom`] grants.
//! - Of a job only what was written is fetched, and its part is known before the first call.
//! - A job of a closed file ([`Source::close`]) is dropped, what is left of one that runs as well.
//! - Nothing waits for the threads: they end with the process.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::kernel::{self, Devices, Probe};
use crate::tasks::ThreadRoom;

/// A file of the program, by a descriptor of our own that can only read.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: File,
    device: u64,
    /// Bytes of one call.
    pub(crate) chunk_bytes: u64,
    /// Opened with the first question that only a probe answers.
    probe: OnceLock<Option<Probe>>,
    closed: AtomicBool,
    /// A job of the file runs; changed with the queue locked.
    is_busy: AtomicBool,
    /// What is fetched of the jobs that the prefetcher has not taken in yet, once a worker knows.
    parts: Mutex<VecDeque<(Range<u64>, Option<Part>)>>,
}

/// What is fetched of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) bytes: u64,
    /// One past the last of them.
    pub(super) end: u64,
}

impl Source {
    pub(crate) fn new(file: File, device: u64, chunk_bytes: u64) -> Self {
        assert!(chunk_bytes > 0, "a call prefetches something");
        let (closed, is_busy) = (AtomicBool::new(false), AtomicBool::new(false));
        let (probe, parts) = (OnceLock::new(), Mutex::default());
        Self { file, device, chunk_bytes, probe, closed, is_busy, parts }
    }

    /// What is fetched of the job of `range`; `None` while no worker knows.
    pub(super) fn part(&self, range: &Range<u64>) -> Option<Part> {
        self.parts().iter().find(|row| row.0 == *range)?.1
    }

    /// The prefetcher has taken in what became of the job of `range`.
    pub(super) fn forget(&self, range: &Range<u64>) {
        self.parts().retain(|row| row.0 != *range);
    }

    fn set_part(&self, range: &Range<u64>, part: Option<Part>) {
        let mut parts = self.parts();
        parts.retain(|row| row.0 != *range);
        if parts.len() == PARTS_MAX {
            parts.pop_front();
        }
        parts.push_back((range.clone(), part));
    }

    fn parts(&self) -> MutexGuard<'_, VecDeque<(Range<u64>, Option<Part>)>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `range` fetched, as far as that is needed; `knows_cached` says whether the kernel
    /// reports what is cached.
    fn fetch(&self, range: &Range<u64>, knows_cached: bool, devices: &Devices) {
        let mut parts = kernel::written_parts(&self.file, range, devices.facts(self.device));
        // Where the last page is, all is. What was never written is not probed, which fetches it.
        let last = parts.last().map(|last| last.end).filter(|_| !knows_cached);
        if last.is_some_and(|end| self.is_ready(end) == Some(true)) {
            parts.clear();
        }
        let bytes = parts.iter().map(|part| part.end - part.start).sum();
        let end = parts.last().map_or(range.start, |last| last.end);
        assert!(bytes <= range.end - range.start && end <= range.end, "a part of the job");
        self.set_part(range, Some(Part { bytes, end }));
        let is_open = || !self.is_closed();
        for part in parts {
            // What the kernel refuses never arrives, and the planner counts it as failed then.
            let _ = kernel::prefetch_while(&self.file, &part, self.chunk_bytes, is_open);
        }
    }

    /// Whether the page before `end` can be read without waiting, where the file system tells.
    pub(super) fn is_ready(&self, end: u64) -> Option<bool> {
        self.probe()?.is_ready(end)
    }

    /// A descriptor that tells whether a page is there, where one can be had.
    fn probe(&self) -> Option<&Probe> {
        self.probe.get_or_init(|| Probe::new(&self.file)).as_ref()
    }

    /// The program is done with it. The descriptor is closed as soon as no call has it.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Has the descriptors stand for `nothing`: the file is closed now, whatever owns the source,
    /// but for a call that is under way.
    pub(crate) fn release(&self, nothing: &OwnedFd) {
        assert!(self.is_closed(), "what is released is read no more");
        // What is refused is closed with its last owner.
        let _ = kernel::stand_for(&self.file, nothing);
        if let Some(Some(probe)) = self.probe.get() {
            probe.release(nothing);
        }
    }
}

/// Bytes to be prefetched.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) source: Arc<Source>,
    pub(crate) range: Range<u64>,
    /// The kernel reports what is cached of the file.
    pub(crate) knows_cached: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    running: Arc<AtomicU64>,
    room: ThreadRoom,
    devices: Devices,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

impl Workers {
    /// Workers whose threads find their room in `room`.
    pub(crate) fn new(room: ThreadRoom) -> Self {
        let (queue, more, running) = (Mutex::default(), Condvar::new(), Arc::default());
        let devices = Devices::default();
        Self { shared: Arc::new(Shared { queue, more, running, room, devices }) }
    }

    /// The number of calls that have not returned.
    pub(crate) fn running(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.running)
    }

    /// How many jobs more may wait.
    pub(crate) fn room(&self) -> usize {
        QUEUE_MAX - self.shared.lock().jobs.len()
    }

    /// Jobs that wait or run.
    pub(crate) fn outstanding(&self) -> usize {
        let queued = self.shared.lock().jobs.len();
        queued + usize::try_from(self.shared.running.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Queues `job`, for which there is room.
    pub(crate) fn push(&mut self, job: Job) {
        assert!(job.range.start < job.range.end, "a job has bytes");
        job.source.set_part(&job.range, None);
        let mut queue = self.shared.lock();
        assert!(queue.jobs.len() < QUEUE_MAX, "a job is pushed where there is room");
        queue.jobs.push_back(job);
        let is_short = queue.idle < queue.jobs.len() && queue.threads < THREADS_MAX;
        drop(queue);
        if is_short && self.shared.room.take(1) == 1 {
            self.shared.lock().threads += 1;
            let shared = Arc::clone(&self.shared);
            let name = thread::Builder::new().name("prefetch".into()).stack_size(STACK_BYTES);
            // Without a thread nothing is prefetched, and the program reads as ever.
            if name.spawn(move || shared.work()).is_err() {
                self.shared.lock().threads -= 1;
                self.shared.room.give_back(1);
            }
        }
        self.shared.more.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut queue = self.lock();
        loop {
            let Some(Job { source, range, knows_cached }) = queue.take() else {
                let wait = self.room.wait(IDLE_MAX);
                queue.idle += 1;
                let (woken, timeout) =
                    self.more.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner);
                queue = woken;
                queue.idle -= 1;
                if timeout.timed_out() {
                    drop(queue);
                    if self.room.shed() {
                        self.lock().threads -= 1;
                        return;
                    }
                    queue = self.lock();
                }
                continue;
            };
            drop(queue);
            self.running.fetch_add(1, Ordering::Relaxed);
            if !source.is_closed() {
                source.fetch(&range, knows_cached, &self.devices);
            }
            self.running.fetch_sub(1, Ordering::Relaxed);
            queue = self.lock();
            let was_busy = source.is_busy.swap(false, Ordering::Relaxed);
            assert!(was_busy, "a job that ends ran");
            drop(queue);
            // Its last owner closes the file, which a file system may block: not with the lock.
            drop(source);
            queue = self.lock();
        }
    }
}

impl Queue {
    /// The first job of a file without a running one; it runs from now on.
    fn take(&mut self) -> Option<Job> {
        let is_free = |job: &Job| !job.source.is_busy.load(Ordering::Relaxed);
        let job = self.jobs.remove(self.jobs.iter().position(is_free)?)?;
        let was_busy = job.source.is_busy.swap(true, Ordering::Relaxed);
        assert!(!was_busy, "one job of a file runs at a time");
        Some(job)
    }
}

/// Jobs of one file that the prefetcher has not taken in: those that wait, and are in flight.
const PARTS_MAX: usize = 1024;
/// Jobs that wait.
const QUEUE_MAX: usize = 256;
/// Jobs that run: one that waits for a slow device does not hold up all others.
const THREADS_MAX: usize = 4;
/// An idle thread looks whether there is room for it.
const IDLE_MAX: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 64 << 10;
