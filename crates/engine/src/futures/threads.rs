//! The threads that read for tasks, and the reads that are handed to them.
//!
//! # Invariants
//! - At most as many threads as were asked for, each started when a job finds none idle.
//! - Every job is answered once: by its read, or as cancelled where its thread ended before.
//! - Jobs that wait are those of futures that live; threads end with the last of these and of the
//!   pool's clones.
//! # Locking
//! The queue's lock and a job's, never both, and neither over a read.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
};

use forerun_io::sync::{Condvar, Mutex};

use crate::{cancel::Cancel, error::ReadError, handle::Handle};

/// Threads that read for [`AsyncHandle`](super::AsyncHandle)s. Clones are the same threads.
#[derive(Clone)]
pub struct ReaderThreads {
    owner: Arc<Owner>,
}

/// Ends the threads with its last clone.
struct Owner {
    pool: Arc<Pool>,
}

struct Pool {
    threads_max: usize,
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Request>,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// A read on its way, as its future sees it.
pub(super) struct Job {
    answer: Arc<Answer>,
    cancel: Cancel,
    /// Keeps the threads.
    _owner: Option<Arc<Owner>>,
}

/// The same, as its thread sees it.
struct Request {
    handle: Arc<Handle>,
    buf: Vec<u8>,
    offset: u64,
    cancel: Cancel,
    answer: Arc<Answer>,
}

type End = (Result<usize, ReadError>, Vec<u8>);

#[derive(Default)]
struct Answer {
    state: Mutex<AnswerState>,
}

#[derive(Default)]
struct AnswerState {
    end: Option<End>,
    waker: Option<Waker>,
}

impl ReaderThreads {
    /// At most `threads` threads. As many reads wait for storage at once; more take turns.
    #[must_use]
    pub fn new(threads: NonZeroUsize) -> Self {
        let (queue, wake) = (Mutex::new(Queue::default()), Condvar::new());
        let pool = Arc::new(Pool { threads_max: threads.get(), queue, wake });
        Self { owner: Arc::new(Owner { pool }) }
    }

    pub(super) fn submit(&self, handle: Arc<Handle>, buf: Vec<u8>, offset: u64) -> Job {
        let (answer, cancel) = (Arc::new(Answer::default()), Cancel::new());
        let request =
            Request { handle, buf, offset, cancel: cancel.clone(), answer: Arc::clone(&answer) };
        self.owner.pool.submit(request);
        Job { answer, cancel, _owner: Some(Arc::clone(&self.owner)) }
    }
}

impl Pool {
    fn submit(self: &Arc<Self>, request: Request) {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(request);
        if queue.waiting.len() <= queue.idle || queue.threads == self.threads_max {
            drop(queue);
            self.wake.notify_one();
            return;
        }
        queue.threads += 1;
        drop(queue);
        let pool = Arc::clone(self);
        let thread = thread::Builder::new().name("forerun-reader".into());
        if thread.spawn(move || pool.work()).is_ok() {
            return;
        }
        let mut queue = self.queue.lock();
        queue.threads -= 1;
        // Without any thread the task's own reads, which blocks it.
        let request = if queue.threads == 0 { queue.waiting.pop_front() } else { None };
        drop(queue);
        request.into_iter().for_each(Request::run);
    }

    /// A thread: takes jobs until the pool has ended and none is left.
    fn work(&self) {
        let _leave = Leave(self);
        loop {
            let mut queue = self.queue.lock();
            while queue.waiting.is_empty() && !queue.closed {
                queue.idle += 1;
                self.wake.wait(&mut queue);
                queue.idle -= 1;
            }
            let Some(request) = queue.waiting.pop_front() else { return };
            drop(queue);
            request.run();
        }
    }
}

/// Counts a thread out, also one that panicked.
struct Leave<'a>(&'a Pool);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().threads -= 1;
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.pool.queue.lock().closed = true;
        self.pool.wake.notify_all();
    }
}

impl Request {
    fn run(mut self) {
        let result = self.handle.read_at_cancellable(&mut self.buf, self.offset, &self.cancel);
        self.answer.give((result, std::mem::take(&mut self.buf)));
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // No more than a look where it was answered.
        self.answer.give((Err(ReadError::Cancelled), Vec::new()));
    }
}

impl Answer {
    /// The answer, unless there is one.
    fn give(&self, end: End) {
        let mut state = self.state.lock();
        if state.end.is_none() {
            state.end = Some(end);
        }
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Job {
    /// A read that needs no thread.
    pub(super) fn done(result: Result<usize, ReadError>, buf: Vec<u8>) -> Self {
        let answer = Arc::new(Answer::default());
        answer.give((result, buf));
        Self { answer, cancel: Cancel::new(), _owner: None }
    }

    /// The answer, once; [`Poll::Pending`] before and after.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<End> {
        let mut state = self.answer.state.lock();
        if let Some(end) = state.end.take() {
            return Poll::Ready(end);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
