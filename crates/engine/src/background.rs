//! Readahead under way, and the threads that reap it: one for each queue that gives back
//! operations, which the files of one ring share.
//!
//! ```text
//!   submit: in_flight += fetch --> file's queue --> submitted += 1 --> wakes the reaper
//!   reaper: submitted > 0 --> reap --> submitted -= n, in_flight -= fetch --> Arrived, Failed
//! ```
//!
//! The reaper is started at the first fetch, so a file that is never read ahead costs no thread.
//! Where the system refuses the thread, who submits reaps.
//!
//! # Invariants
//! - `in_flight` holds every fetch from before its submission until it was reaped; the reaper
//!   ends only when it is empty. `submitted` may be below 0 for a moment, when a fetch is reaped
//!   before its submitter has counted it.
//! - Once closed, and in the child of a `fork`, no fetch is taken; those under way end early, as
//!   the store can.
//! - How many there can be is bounded by the frames: each fetch has its own.
//! # Locking
//! One lock for the list, one for a table, one for a thread's handle; none is held over a queue's
//! calls, the start or the end of a thread, or another lock.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use forerun_io::{
    process::Home,
    store::{Queue, Wait},
    sync::{Condvar, Mutex, thread},
};

use crate::{fetch::Fetch, shared::Shared};

/// All reapers of a cache.
#[derive(Default)]
pub(crate) struct Backgrounds {
    all: Mutex<Vec<Weak<Background>>>,
}

/// See the module.
pub(crate) struct Background {
    reaped: Arc<dyn Queue>,
    /// Whether other files may come to it.
    shared: bool,
    table: Mutex<Table>,
    /// For the reaper: something was submitted, or there is no more to come.
    wake: Condvar,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
    home: Home,
}

#[derive(Default)]
struct Table {
    /// By token, which is the number of the first frame.
    in_flight: BTreeMap<u64, Fetch>,
    submitted: i64,
    /// Somebody reaps.
    reaping: bool,
    closed: bool,
}

/// When a reaper ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Closed,
    Quiet,
}

impl Backgrounds {
    /// The reaper of what is submitted to `queue`.
    pub(crate) fn of(&self, queue: &Arc<dyn Queue>) -> Arc<Background> {
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
            home: Home::here(),
        });
        all.push(Arc::downgrade(&background));
        background
    }

    /// Ends all reapers, once what is in flight has come back. Idempotent.
    pub(crate) fn close(&self) {
        let all: Vec<_> = self.all.lock().iter().filter_map(Weak::upgrade).collect();
        for background in &all {
            background.close();
        }
    }
}

impl Background {
    /// Hands a fetch over; gives it back, untouched, when the background is closed.
    pub(crate) fn submit(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        fetch: Fetch,
    ) -> Result<(), Fetch> {
        let token = u64::from(fetch.frames[0].0);
        let op = fetch.op(token, shared.frames());
        let file = Arc::clone(&fetch.file);
        let mut table = self.table.lock();
        if table.closed || self.home.is_left() {
            drop(table);
            fetch.put_back(op, shared.frames());
            return Err(fetch);
        }
        let before = table.in_flight.insert(token, fetch);
        assert!(before.is_none(), "a frame is in one fetch");
        let start = !std::mem::replace(&mut table.reaping, true);
        drop(table);
        file.ahead.submit(op);
        self.table.lock().submitted += 1;
        self.wake.notify_all();
        if start {
            self.start(shared);
        }
        Ok(())
    }

    fn start(self: &Arc<Self>, shared: &Arc<Shared>) {
        let (me, for_thread) = (Arc::clone(self), Arc::clone(shared));
        let body = move || me.reap(&for_thread, Until::Closed);
        match thread::Builder::new().name("forerun-ahead".into()).spawn(body) {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(_) => self.reap(shared, Until::Quiet),
        }
    }

    /// Takes completions until there is no more to come.
    fn reap(&self, shared: &Arc<Shared>, until: Until) {
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
            self.reaped.reap(Wait::One, &mut out);
            assert!(!out.is_empty(), "a queue gives back what it was given");
            let mut table = self.table.lock();
            table.submitted -= i64::try_from(out.len()).expect("bounded by the frames");
            let mut ended = Vec::with_capacity(out.len());
            for done in out.drain(..) {
                let fetch = table.in_flight.remove(&done.op.token);
                ended.push((fetch.expect("it was submitted by that token"), done));
            }
            drop(table);
            for (fetch, done) in ended {
                let state = shared.report(None, &fetch, done);
                shared.settle(state);
            }
        }
    }

    /// The last handle of a file is gone, and its queue is closed. Waits for what was in flight
    /// where no other file shares the reaper.
    pub(crate) fn file_closed(&self, queue: &Arc<dyn Queue>) {
        if !self.shared {
            assert!(Arc::ptr_eq(queue, &self.reaped), "a reaper of its own");
            self.close();
        }
    }

    /// Takes no more, and ends the thread once nothing is in flight. Idempotent.
    fn close(&self) {
        if self.home.is_left() {
            return; // The thread is the parent's.
        }
        self.table.lock().closed = true;
        if !self.shared {
            self.reaped.close();
        }
        self.wake.notify_all();
        let Some(thread) = self.thread.lock().take() else { return };
        if let Err(panic) = thread.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use forerun_io::store::pattern::Pattern;

    use super::*;
    use crate::{Cache, Settings};

    #[test]
    fn where_no_thread_is_to_be_had_the_submitter_reaps_until_all_is_back() {
        let settings = Settings { readahead: "fixed:size=64K".into(), ..Settings::default() };
        let cache = Cache::new(Settings { request_bytes_max: 8 << 10, ..settings }).unwrap();
        let file = cache.open_store(Arc::new(Pattern::new(1 << 20))).unwrap();
        let background = &file.file.background;
        background.table.lock().reaping = true;
        let mut buf = [0; 10];
        assert_eq!(file.read_at(0, &mut buf), Ok(10));
        assert_eq!(background.table.lock().in_flight.len(), 7);
        background.reap(file.shared(), Until::Quiet);
        let table = background.table.lock();
        assert!(table.in_flight.is_empty() && !table.reaping && table.submitted == 0);
        drop(table);
        assert!(background.thread.lock().is_none());
        assert_eq!(cache.stats().store_requests, 8);
        assert_eq!(cache.stats().core.ahead_failed, 0);
    }
}
