//! The background: one context for all files, a thread that takes what is done, and a few threads
//! for what must block.
//!
//! ```text
//!   submit --scheduler--> context --> taker: done | the rest again | to a blocking thread
//!                   \---> jobs -----> blocking threads: done
//!   the thread that ends an operation starts what the scheduler has next
//! ```
//!
//! # Invariants
//! - What goes past the page cache costs 1 at the context, what must block nothing: both count
//!   for the depth of their queue.
//! - The taker waits at the context only while something is in flight there; so it ends when the
//!   last queue and the last store are gone.
//! - A blocking thread is started when a job waits and none is idle.
//! # Locking
//! One lock, the scheduler's, for all queues; held over no system call that reads, writes or waits.

use std::{collections::VecDeque, sync::Arc, thread};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use super::sys::{Answer, Context};
use crate::{
    process::OwnerProcess,
    scheduler::{QueueId, Scheduled, Scheduler},
    store::{
        Completion, ECANCELED, Op, Queue, QueueKind, Wait,
        file::{Next, OpenFile, Route, Transfer},
    },
};

/// The background as its owners have it: it ends the threads when the last one drops it.
pub(super) struct Background {
    shared: Arc<Shared>,
    home: OwnerProcess,
}

struct Shared {
    context: Context<QueueId>,
    threads_max: u32,
    state: Mutex<State>,
    /// For the taker: something is in flight, or it is over.
    submitted: Condvar,
    /// For the blocking threads: a job waits, or it is over.
    jobs: Condvar,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

struct State {
    scheduler: Scheduler<Transfer>,
    /// What started and waits for a blocking thread.
    jobs: VecDeque<(Transfer, QueueId)>,
    /// What the kernel took less what the taker took. Below zero for a moment when the taker is
    /// faster than the submitter.
    in_kernel: i64,
    blocking: u32,
    idle: u32,
    ended: bool,
}

impl State {
    /// Starts all that may start. Returns what is for the context; the rest becomes jobs.
    fn start(&mut self) -> Vec<(Transfer, QueueId)> {
        let is_direct = |transfer: &Transfer| transfer.route() == Route::Direct;
        let mut batch = Vec::new();
        while let Some((id, transfer)) = self.scheduler.next(|op| u32::from(is_direct(op))) {
            if is_direct(&transfer) {
                batch.push((transfer, id));
            } else {
                self.jobs.push_back((transfer, id));
            }
        }
        batch
    }

    /// A transfer that is no longer at the context is to be carried out by a thread.
    fn block(&mut self, transfer: Transfer, id: QueueId) {
        if self.scheduler.is_closed(id) {
            self.scheduler.complete(id, transfer.failed(ECANCELED));
        } else {
            self.jobs.push_back((transfer, id));
        }
    }

    /// Cancels what waits, and what waits for a thread.
    fn close(&mut self, id: QueueId) {
        let (ours, others) = self.jobs.drain(..).partition(|(_, of)| *of == id);
        self.jobs = others;
        self.fail_jobs(ours, ECANCELED);
        self.scheduler.close(id);
    }

    fn fail_jobs(&mut self, jobs: VecDeque<(Transfer, QueueId)>, errno: i32) {
        for (transfer, id) in jobs {
            self.scheduler.complete(id, transfer.failed(errno));
        }
    }
}

impl Background {
    /// A background of at most `events` operations in flight. None if the system has no context
    /// or no thread for it.
    pub(super) fn start(events: u32, threads_max: u32) -> Option<Self> {
        let context = Context::new(events).ok()?;
        let in_flight_max = u32::try_from(context.events()).expect("at most `events`");
        let state = State {
            scheduler: Scheduler::new(in_flight_max),
            jobs: VecDeque::new(),
            in_kernel: 0,
            blocking: 0,
            idle: 0,
            ended: false,
        };
        let shared = Arc::new(Shared {
            context,
            threads_max,
            state: Mutex::new(state),
            submitted: Condvar::new(),
            jobs: Condvar::new(),
            threads: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        let taker = thread::Builder::new().name("forerun-aio".into()).spawn(move || served.take());
        shared.threads.lock().push(taker.ok()?);
        Some(Self { shared, home: OwnerProcess::current() })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.home.is_forked() {
            return; // The threads are the parent's.
        }
        self.shared.state.lock().ended = true;
        self.shared.submitted.notify_all();
        self.shared.jobs.notify_all();
        let threads = std::mem::take(&mut *self.shared.threads.lock());
        for thread in threads {
            thread.join().expect("a store does not panic");
        }
    }
}

impl Shared {
    /// Starts what may start, and releases the lock.
    fn go_on(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let batch = state.start();
        let jobs = state.jobs.len();
        let start = jobs > state.idle as usize && state.blocking < self.threads_max;
        state.blocking += u32::from(start);
        assert!(state.idle <= state.blocking && state.blocking <= self.threads_max, "threads");
        drop(state);
        if jobs > 0 {
            self.jobs.notify_one();
        }
        if start {
            self.start_blocking();
        }
        if !batch.is_empty() {
            self.hand_over(batch);
        }
    }

    /// Hands `batch` to the context, and what that refuses to the blocking threads.
    fn hand_over(self: &Arc<Self>, batch: Vec<(Transfer, QueueId)>) {
        let count = batch.len();
        let refused = self.context.submit(batch.into_iter());
        let mut state = self.state.lock();
        state.in_kernel += i64::try_from(count - refused.len()).expect("few");
        if state.in_kernel > 0 {
            self.submitted.notify_one();
        }
        if refused.is_empty() {
            return;
        }
        for (transfer, id) in refused {
            state.scheduler.freed(1);
            state.block(transfer, id);
        }
        self.go_on(state);
    }

    /// Takes completions until the background ends: the body of the taker's thread.
    fn take(self: &Arc<Self>) {
        let mut answers = Vec::new();
        loop {
            let mut state = self.state.lock();
            while state.in_kernel <= 0 {
                if state.ended {
                    return;
                }
                self.submitted.wait(&mut state);
            }
            drop(state);
            self.context.wait(1, None, &mut answers);
            self.settle(&mut answers);
        }
    }

    /// Settles the answers of the kernel.
    fn settle(self: &Arc<Self>, answers: &mut Vec<Answer<QueueId>>) {
        let count = answers.len();
        let (mut done, mut again, mut blocked) = (Vec::new(), Vec::new(), Vec::new());
        for Answer { mut transfer, owner, result } in answers.drain(..) {
            match transfer.settle(result) {
                Next::Done(result) => done.push((owner, transfer.done(result))),
                Next::Again if transfer.route() == Route::Direct => again.push((transfer, owner)),
                Next::Again => blocked.push((transfer, owner)),
            }
        }
        let mut state = self.state.lock();
        state.in_kernel -= i64::try_from(count).expect("few");
        for (id, done) in done {
            state.scheduler.freed(1);
            state.scheduler.complete(id, done);
        }
        for (transfer, id) in blocked {
            state.scheduler.freed(1);
            state.block(transfer, id);
        }
        self.go_on(state);
        if !again.is_empty() {
            self.hand_over(again);
        }
    }

    /// Starts a thread, which is counted already.
    fn start_blocking(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name("forerun-io".into()).spawn(move || shared.block());
        if let Ok(thread) = thread {
            self.threads.lock().push(thread);
            return;
        }
        let mut state = self.state.lock();
        assert!(state.blocking > 0, "the refused thread was counted");
        state.blocking -= 1;
        let mut batch = Vec::new();
        while state.blocking == 0 && !state.jobs.is_empty() {
            let jobs = std::mem::take(&mut state.jobs);
            state.fail_jobs(jobs, Errno::AGAIN.raw_os_error());
            batch.extend(state.start());
        }
        drop(state);
        if !batch.is_empty() {
            self.hand_over(batch);
        }
    }

    /// Carries jobs out until the background ends: the body of a blocking thread.
    fn block(self: &Arc<Self>) {
        let mut state = self.state.lock();
        loop {
            if let Some((transfer, id)) = state.jobs.pop_front() {
                drop(state);
                let done = transfer.carry();
                state = self.state.lock();
                state.scheduler.complete(id, done);
                self.go_on(state);
                state = self.state.lock();
            } else if state.ended {
                return;
            } else {
                state.idle += 1;
                self.jobs.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}

/// A queue of `file` on `background`.
pub(super) fn queue(
    background: Arc<Background>,
    file: Arc<OpenFile>,
    kind: QueueKind,
) -> Arc<dyn Queue> {
    let changed = Arc::new(Condvar::new());
    let id = background.shared.state.lock().scheduler.open(kind, Arc::clone(&changed));
    Arc::new(ContextQueue { background, file, id, changed })
}

/// One queue.
struct ContextQueue {
    background: Arc<Background>,
    file: Arc<OpenFile>,
    id: QueueId,
    changed: Arc<Condvar>,
}

impl ContextQueue {
    /// Changes the state, and starts what may start then.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let shared = &self.background.shared;
        let mut state = shared.state.lock();
        if self.background.home.is_forked() {
            state.close(self.id); // What waits, and the threads, are the parent's.
        }
        change(&mut state);
        shared.go_on(state);
    }
}

impl Queue for ContextQueue {
    fn submit(&self, op: Op) {
        op.check();
        let begun = Transfer::begin(op, &self.file);
        self.change(|state| match begun {
            Ok(transfer) => state.scheduler.submit(self.id, transfer),
            Err(done) => state.scheduler.submit_done(self.id, done),
        });
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Completion>) {
        let mut state = self.background.shared.state.lock();
        while !state.scheduler.take(self.id, out)
            && wait == Wait::One
            && !state.scheduler.is_idle(self.id)
        {
            self.changed.wait(&mut state);
        }
    }

    fn set_depth(&self, depth: u32) {
        self.change(|state| state.scheduler.set_depth(self.id, depth));
    }

    fn close(&self) {
        self.change(|state| state.close(self.id));
    }
}

impl Drop for ContextQueue {
    fn drop(&mut self) {
        self.change(|state| {
            state.close(self.id);
            state.scheduler.release(self.id);
        });
    }
}
