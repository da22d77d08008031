//! The watch: a thread that compares the versions of open files at an interval, since hits make
//! no system call.
//!
//! # Invariants
//! - The watch notices a change by another program within one interval, also without fetches.
//! - The thread starts with the first file opened by path, and ends with the cache.
//! # Locking
//! One lock for the stop, released while the thread sleeps; no lock is held over a call of a store.

use std::{sync::Arc, time::Duration};

use forerun_io::{
    process::OwnerProcess,
    sync::{
        Condvar, Mutex,
        thread::{Builder, JoinHandle},
    },
};

use crate::shared::Shared;

/// See the module.
#[derive(Default)]
pub(crate) struct Watch {
    stop: Arc<Stop>,
    /// The thread, and its process.
    thread: Mutex<Option<(JoinHandle<()>, OwnerProcess)>>,
}

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Watch {
    /// Starts the thread, unless it runs. If the system refuses it, fetches alone compare.
    pub(crate) fn begin(&self, shared: &Arc<Shared>) {
        let mut thread = self.thread.lock();
        if thread.is_some() || *self.stop.stopped.lock() {
            return;
        }
        let (stop, shared) = (Arc::clone(&self.stop), Arc::clone(shared));
        let interval = shared.settings.version_interval;
        let body = move || {
            while stop.sleep(interval) {
                compare_all(&shared);
            }
        };
        *thread = Builder::new()
            .name("forerun-watch".into())
            .spawn(body)
            .ok()
            .zip(Some(OwnerProcess::current()));
    }

    /// Ends the thread. Idempotent.
    pub(crate) fn end(&self) {
        *self.stop.stopped.lock() = true;
        self.stop.wake.notify_all();
        if let Some((thread, home)) = self.thread.lock().take()
            && !home.is_forked()
        {
            thread.join().expect("stores give their versions without a panic");
        }
    }
}

impl Stop {
    /// Sleeps for `interval`; returns whether to continue.
    fn sleep(&self, interval: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.wake.wait_for(&mut stopped, interval);
        }
        !*stopped
    }
}

/// Compares all open files that can change.
fn compare_all(shared: &Arc<Shared>) {
    let files = shared.state.lock().live.files.open_files(true);
    for file in files {
        shared.compare(&file);
    }
}
