//! The background: one context for all files, a thread that takes what is done, and a few threads
//! for what must block.
//!
//! ```text
//!   submit --desk--> context -----> taker: done | the rest again | to a blocking thread
//!              \---> jobs --------> blocking threads: done
//!   whoever ends one has the desk begin the next
//! ```
//!
//! # Invariants
//! - The taker waits at the context only while something is in flight there; so it ends when the
//!   last queue and the last store are gone.
//! - A blocking thread is started when a job waits and none is idle.
//! # Locking
//! One lock, the desk's, for all queues; held over no system call that reads, writes or waits.

use std::{sync::Arc, thread};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use super::{
    carry,
    desk::{Desk, Job, LaneId},
    is_direct,
    sys::{Context, Landed},
    transfer::{Step, Transfer},
};
use crate::{
    process::Home,
    store::{Done, Op, Queue, Wait, file::Opened},
};

/// The owner's end: ends the threads when it goes. No thread of its own holds it.
#[derive(Debug)]
pub(super) struct Background {
    shared: Arc<Shared>,
    home: Home,
}

#[derive(Debug)]
struct Shared {
    context: Context,
    threads_max: u32,
    state: Mutex<State>,
    /// For the taker: something is in flight, or it is over.
    flying: Condvar,
    /// For the blocking threads: a job waits, or it is over.
    jobs: Condvar,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

#[derive(Debug)]
struct State {
    desk: Desk,
    /// What the kernel took less what was taken back. Below zero for a moment when the taker is
    /// faster than the submitter.
    in_kernel: i64,
    blocking: u32,
    idle: u32,
    ended: bool,
}

impl Background {
    /// A background of at most `events` operations in flight. None if the system has no context
    /// or no thread for it.
    pub(super) fn start(events: u32, threads_max: u32) -> Option<Self> {
        let context = Context::new(events).ok()?;
        let desk = Desk::new(context.events());
        let state = State { desk, in_kernel: 0, blocking: 0, idle: 0, ended: false };
        let shared = Arc::new(Shared {
            context,
            threads_max,
            state: Mutex::new(state),
            flying: Condvar::new(),
            jobs: Condvar::new(),
            threads: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        let taker = thread::Builder::new().name("forerun-aio".into()).spawn(move || served.take());
        shared.threads.lock().push(taker.ok()?);
        Some(Self { shared, home: Home::here() })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.home.is_left() {
            return; // The threads are the parent's.
        }
        self.shared.state.lock().ended = true;
        self.shared.flying.notify_all();
        self.shared.jobs.notify_all();
        let threads = std::mem::take(&mut *self.shared.threads.lock());
        for thread in threads {
            thread.join().expect("a store does not panic");
        }
    }
}

impl Shared {
    /// Begins what may begin, and lets go of the desk.
    fn go_on(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let batch = state.desk.begin();
        let jobs = state.desk.job_count();
        let start = jobs > state.idle as usize && state.blocking < self.threads_max;
        state.blocking += u32::from(start);
        drop(state);
        if jobs > 0 {
            self.jobs.notify_one();
        }
        if start {
            self.start_blocking();
        }
        if !batch.is_empty() {
            self.fly(batch);
        }
    }

    /// Hands `batch` to the context, and what that refuses to the blocking threads.
    fn fly(self: &Arc<Self>, batch: Vec<Transfer>) {
        let count = batch.len();
        let refused = self.context.submit(batch);
        let taken = count - refused.len();
        let mut state = self.state.lock();
        state.in_kernel += i64::try_from(taken).expect("few");
        if state.in_kernel > 0 {
            self.flying.notify_one();
        }
        if refused.is_empty() {
            return;
        }
        state.desk.landed(refused.len());
        for Transfer { op, lane, .. } in refused {
            state.desk.block(lane, op);
        }
        self.go_on(state);
    }

    /// The taker's life.
    fn take(self: &Arc<Self>) {
        let mut landed = Vec::new();
        loop {
            let mut state = self.state.lock();
            while state.in_kernel <= 0 {
                if state.ended {
                    return;
                }
                self.flying.wait(&mut state);
            }
            drop(state);
            self.context.wait(&mut landed);
            self.settle(&mut landed);
        }
    }

    /// Does what follows from what the kernel said.
    fn settle(self: &Arc<Self>, landed: &mut Vec<Landed>) {
        let count = landed.len();
        let mut again = Vec::new();
        let mut over = Vec::new();
        for (transfer, result) in landed.drain(..) {
            let lane = transfer.lane;
            match transfer.answered(result) {
                Step::Again(transfer) => again.push(transfer),
                Step::Done(done) => over.push((lane, Ok(done))),
                Step::Block(op) => over.push((lane, Err(op))),
            }
        }
        let mut state = self.state.lock();
        state.in_kernel -= i64::try_from(count).expect("few");
        state.desk.landed(over.len());
        for (lane, over) in over {
            match over {
                Ok(done) => state.desk.end(lane, done),
                Err(op) => state.desk.block(lane, op),
            }
        }
        self.go_on(state);
        if !again.is_empty() {
            self.fly(again);
        }
    }

    /// Starts a thread that is counted already.
    fn start_blocking(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name("forerun-io".into()).spawn(move || shared.block());
        if let Ok(thread) = thread {
            self.threads.lock().push(thread);
            return;
        }
        let mut state = self.state.lock();
        state.blocking -= 1;
        let mut batch = Vec::new();
        while state.blocking == 0 && state.desk.job_count() > 0 {
            state.desk.refuse_jobs(Errno::AGAIN.raw_os_error());
            batch.extend(state.desk.begin());
        }
        drop(state);
        if !batch.is_empty() {
            self.fly(batch);
        }
    }

    /// A blocking thread's life.
    fn block(self: &Arc<Self>) {
        let mut state = self.state.lock();
        loop {
            if let Some(Job { op, opened, lane }) = state.desk.job() {
                drop(state);
                let done = carry(&opened, op);
                state = self.state.lock();
                state.desk.end(lane, done);
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

/// One queue.
pub(super) struct Lane {
    background: Arc<Background>,
    opened: Arc<Opened>,
    id: LaneId,
    changed: Arc<Condvar>,
}

impl Lane {
    pub(super) fn new(background: Arc<Background>, opened: Arc<Opened>, depth: u32) -> Self {
        let changed = Arc::new(Condvar::new());
        let mut state = background.shared.state.lock();
        let id = state.desk.open(Arc::clone(&opened), depth, Arc::clone(&changed));
        drop(state);
        Self { background, opened, id, changed }
    }
}

impl Queue for Lane {
    fn submit(&self, op: Op) {
        op.check();
        let direct = is_direct(&self.opened, &op);
        let shared = &self.background.shared;
        let mut state = shared.state.lock();
        if self.background.home.is_left() {
            state.desk.close(self.id); // Its threads are the parent's.
        }
        state.desk.submit(self.id, op, direct);
        shared.go_on(state);
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Done>) {
        let mut state = self.background.shared.state.lock();
        while !state.desk.take(self.id, out) && wait == Wait::One {
            self.changed.wait(&mut state);
        }
    }

    fn set_depth(&self, depth: u32) {
        let shared = &self.background.shared;
        let mut state = shared.state.lock();
        if self.background.home.is_left() {
            state.desk.close(self.id); // What waits is the parent's.
        }
        state.desk.set_depth(self.id, depth);
        shared.go_on(state);
    }

    fn close(&self) {
        let shared = &self.background.shared;
        let mut state = shared.state.lock();
        state.desk.close(self.id);
        // Its turn may have kept others from theirs.
        shared.go_on(state);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let shared = &self.background.shared;
        let mut state = shared.state.lock();
        state.desk.forget(self.id);
        shared.go_on(state);
    }
}
