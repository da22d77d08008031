//! The flusher: a thread of a cache that tells the core the time when something dirty is due.
//!
//! The core decides what is written when: pages that are old, and files whose store failed. The
//! thread sleeps until that time, or for as long as nothing is dirty. Writes themselves are carried
//! out by the background of their file.
//!
//! # Invariants
//! - One thread a cache, started by the first handle that may write; it ends with the cache.
//! - The thread wakes when a file has something due before the time that it sleeps until: its first
//!   page became dirty, or its last operation ended.
//! - Where the system refuses the thread, a flush, pressure and the end of handles still write.
//! # Locking
//! The state's lock, released while the thread sleeps.

use std::{sync::Arc, time::Duration};

use forerun_core::{event::Event, units::Nanos};
use forerun_io::{
    process::OwnerProcess,
    sync::{
        Mutex,
        thread::{Builder, JoinHandle},
    },
};

use crate::shared::Shared;

/// See the module.
#[derive(Default)]
pub(crate) struct Flusher {
    /// The thread, and its process.
    thread: Mutex<Option<(JoinHandle<()>, OwnerProcess)>>,
}

impl Flusher {
    /// Starts the thread, unless it runs.
    pub(crate) fn begin(&self, shared: &Arc<Shared>) {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(shared);
            let body = move || run(&shared);
            *thread = Builder::new()
                .name("forerun-flush".into())
                .spawn(body)
                .ok()
                .zip(Some(OwnerProcess::current()));
        }
    }

    /// Ends the thread of a closed cache. Idempotent.
    pub(crate) fn end(&self, shared: &Shared) {
        let thread = self.thread.lock().take();
        shared.state.lock().flusher_ends = true;
        shared.dirty_due.notify_all();
        if let Some((thread, home)) = thread
            && !home.is_forked()
        {
            thread.join().expect("the core takes a tick at any time");
        }
    }
}

fn run(shared: &Arc<Shared>) {
    let mut state = shared.state.lock();
    while !state.flusher_ends {
        let due = state.core.writeback_due();
        let left = due.map(|due| due.since(state.now()));
        if left == Some(Nanos(0)) {
            state.send(None, Event::Tick);
            shared.settle(state);
            state = shared.state.lock();
            continue;
        }
        state.flusher_until = Some(due.unwrap_or(Nanos(u64::MAX)));
        match left {
            None => shared.dirty_due.wait(&mut state),
            Some(left) => {
                shared.dirty_due.wait_for(&mut state, Duration::from_nanos(left.0));
            }
        }
        state.flusher_until = None;
    }
}
