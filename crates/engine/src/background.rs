//! Readahead in flight, and the reaper threads: one for each queue that gives back operations.
//! The files of one ring share a reaper.
//!
//! ```text
//!   submit: in_flight += job --> file's queue --> submitted += 1 --> wakes the reaper
//!   reaper: submitted > 0 --> reap --> submitted -= n, in_flight -= job --> Completions::take
//! ```
//!
//! A job is the submitter's value that comes back with the completion: a fetch. The reaper thread
//! starts at the first job, so a file without readahead costs no thread. Where the system refuses
//! the thread, the submitting thread reaps.
//!
//! # Invariants
//! - `in_flight` holds every job from before its submission until the reaper has taken it; the
//!   reaper ends only when the table is empty. `submitted` is below 0 for a moment when a job is
//!   reaped before its submitter has counted it.
//! - Once closed, and in the child of a `fork`, a background takes no job; those in flight end as
//!   early as the store can end them.
//! - A store that panics fails the jobs that it does not give back, and the thread goes on.
//! - The frames bound the jobs: each operation has its own.
//! # Locking
//! One lock for the list, one for a table, one for a thread's handle; none is held over a queue's
//! calls, the start or the end of a thread, or another lock.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use forerun_io::{
    process::OwnerProcess,
    store::{Completion, Op, Queue, Wait},
    sync::{Condvar, Mutex, thread},
};

use crate::guard::{salvage, unless_panics};

/// Takes the completions of jobs, on the thread that reaped them.
pub(crate) trait Completions<J>: Send + Sync + 'static {
    /// Takes `job`, whose operation completed as `done`; `None`: the store has panicked and not
    /// given it back.
    fn take(self: &Arc<Self>, job: J, done: Option<Completion>);
}

/// A job that was not submitted.
pub(crate) struct Refused<J> {
    pub(crate) job: J,
    /// Its operation; `None`: the store has panicked, and has it.
    pub(crate) op: Option<Op>,
}

/// All reapers of a cache.
pub(crate) struct Backgrounds<J> {
    all: Mutex<Vec<Weak<Background<J>>>>,
}

/// One queue that gives back operations, and its reaper.
pub(crate) struct Background<J> {
    reaped: Arc<dyn Queue>,
    /// Whether several files submit to this reaper.
    shared: bool,
    table: Mutex<Table<J>>,
    /// Wakes the reaper: a job was submitted, or the background closed.
    wake: Condvar,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
    home: OwnerProcess,
}

struct Table<J> {
    /// Jobs by the token of their operation.
    in_flight: BTreeMap<u64, J>,
    submitted: i64,
    /// Whether a thread is reaping.
    reaping: bool,
    closed: bool,
    /// The store has panicked as it was reaped: what was submitted has ended, or will not.
    broken: bool,
}

/// The condition on which a reaper ends, beside an empty table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Closed,
    Quiet,
}

impl<J> Default for Backgrounds<J> {
    fn default() -> Self {
        Self { all: Mutex::default() }
    }
}

impl<J> Default for Table<J> {
    fn default() -> Self {
        let in_flight = BTreeMap::new();
        Self { in_flight, submitted: 0, reaping: false, closed: false, broken: false }
    }
}

impl<J> Backgrounds<J> {
    /// The reaper of operations submitted to `queue`.
    pub(crate) fn of(&self, queue: &Arc<dyn Queue>) -> Arc<Background<J>> {
        let shared = queue.reaper();
        let mut all = self.all.lock();
        all.retain(|background| background.strong_count() > 0);
        if let Some(reaper) = &shared {
            let known = all.iter().filter_map(Weak::upgrade);
            let mut known = known.filter(|background| !background.table.lock().closed);
            if let Some(background) = known.find(|at| Arc::ptr_eq(&at.reaped, reaper)) {
                return background;
            }
        }
        let background = Arc::new(Background {
            shared: shared.is_some(),
            reaped: shared.unwrap_or_else(|| Arc::clone(queue)),
            table: Mutex::default(),
            wake: Condvar::new(),
            thread: Mutex::default(),
            home: OwnerProcess::current(),
        });
        all.push(Arc::downgrade(&background));
        background
    }

    /// Ends all reapers after the last completion in flight. Idempotent.
    pub(crate) fn close(&self) {
        let all: Vec<_> = self.all.lock().iter().filter_map(Weak::upgrade).collect();
        for background in &all {
            background.close();
        }
    }
}

impl<J: Send + 'static> Background<J> {
    /// Submits `op` of `job` to `queue`, which this background reaps. A closed background returns
    /// both untouched.
    pub(crate) fn submit<C: Completions<J>>(
        self: &Arc<Self>,
        completions: &Arc<C>,
        queue: &dyn Queue,
        op: Op,
        job: J,
    ) -> Result<(), Refused<J>> {
        let mut table = self.table.lock();
        if table.closed || self.home.is_forked() {
            return Err(Refused { job, op: Some(op) });
        }
        let token = op.token;
        let before = table.in_flight.insert(token, job);
        assert!(before.is_none(), "a token is in flight once");
        drop(table);
        if unless_panics(|| queue.submit(op)).is_none() {
            let job = self.table.lock().in_flight.remove(&token);
            // A reaper that met a panic too has taken the job.
            return job.map_or(Ok(()), |job| Err(Refused { job, op: None }));
        }
        let start = {
            let mut table = self.table.lock();
            if table.broken {
                return Ok(()); // The reaper has ended the job.
            }
            table.submitted += 1;
            !std::mem::replace(&mut table.reaping, true)
        };
        self.wake.notify_all();
        if start {
            self.start(completions);
        }
        Ok(())
    }

    fn start<C: Completions<J>>(self: &Arc<Self>, completions: &Arc<C>) {
        let (me, for_thread) = (Arc::clone(self), Arc::clone(completions));
        let body = move || me.reap(&for_thread, Until::Closed);
        match thread::Builder::new().name("forerun-ahead".into()).spawn(body) {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(_) => self.reap(completions, Until::Quiet),
        }
    }

    /// Takes completions until the table is empty and `until` holds.
    fn reap<C: Completions<J>>(&self, completions: &Arc<C>, until: Until) {
        let mut out = Vec::new();
        loop {
            let mut table = self.table.lock();
            while table.submitted <= 0 {
                if table.in_flight.is_empty() && (table.closed || until == Until::Quiet) {
                    table.reaping = false;
                    return;
                }
                self.wake.wait(&mut table);
            }
            drop(table);
            if unless_panics(|| self.reaped.reap(Wait::One, &mut out)).is_none() {
                self.break_down(completions, &mut out);
                continue;
            }
            assert!(!out.is_empty(), "a queue gives back what was submitted to it");
            let ended = self.table.lock().ended(&mut out);
            for (job, done) in ended {
                completions.take(job, Some(done));
            }
        }
    }

    /// The store has panicked: refuses jobs from now on, and ends those in flight, of which `out`
    /// has come back.
    fn break_down<C: Completions<J>>(&self, completions: &Arc<C>, out: &mut Vec<Completion>) {
        self.table.lock().closed = true;
        out.append(&mut salvage(&*self.reaped));
        let (ended, lost) = {
            let mut table = self.table.lock();
            let ended = table.ended(out);
            (table.submitted, table.broken) = (0, true);
            (ended, std::mem::take(&mut table.in_flight))
        };
        for (job, done) in ended {
            completions.take(job, Some(done));
        }
        for job in lost.into_values() {
            completions.take(job, None);
        }
    }
}

impl<J> Table<J> {
    /// Takes the jobs of completed operations. One whose submission panicked has no job.
    fn ended(&mut self, out: &mut Vec<Completion>) -> Vec<(J, Completion)> {
        let job = |done: Completion| Some((self.in_flight.remove(&done.op.token)?, done));
        let ended: Vec<_> = out.drain(..).filter_map(job).collect();
        self.submitted -= i64::try_from(ended.len()).expect("bounded by the frames");
        ended
    }
}

impl<J> Background<J> {
    /// Notes the close of a file and its queue. A reaper of this file alone ends after the last
    /// completion in flight.
    pub(crate) fn file_closed(&self, queue: &Arc<dyn Queue>) {
        if !self.shared {
            assert!(Arc::ptr_eq(queue, &self.reaped), "an unshared reaper reaps its own queue");
            self.close();
        }
    }

    /// Refuses jobs from now on, and ends the thread when the table is empty. Idempotent.
    fn close(&self) {
        if self.home.is_forked() {
            return; // The thread is the parent's.
        }
        self.table.lock().closed = true;
        if !self.shared {
            self.reaped.close();
        }
        self.wake.notify_all();
        let Some(thread) = self.thread.lock().take() else { return };
        if thread.thread().id() == thread::current().id() {
            return; // The reaper closes itself after the last write of a file: it ends on its own.
        }
        if let Err(panic) = thread.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

#[cfg(test)]
impl<J: Send + 'static> Background<J> {
    /// Simulates a system that refuses threads: marks the background as being reaped.
    pub(crate) fn refuse_thread(&self) {
        self.table.lock().reaping = true;
    }

    /// Reaps on this thread until nothing is in flight; returns how many jobs were.
    pub(crate) fn reap_here<C: Completions<J>>(&self, completions: &Arc<C>) -> usize {
        let before = self.table.lock().in_flight.len();
        self.reap(completions, Until::Quiet);
        let table = self.table.lock();
        assert!(table.in_flight.is_empty() && !table.reaping && table.submitted == 0);
        drop(table);
        assert!(self.thread.lock().is_none());
        before
    }
}

#[cfg(test)]
mod tests;
