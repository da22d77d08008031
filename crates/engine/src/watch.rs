//! The watch: compares the versions of open files now and then, since hits ask nobody.
//!
//! # Invariants
//! - A change by another program is noticed within one interval, also where nothing is fetched.
//! - Its thread begins with the first file that was opened by a path, and ends with the cache.
//! # Locking
//! One lock for the stop, held while it sleeps; the state's is not held while a store is asked.

use std::{sync::Arc, time::Duration};

use forerun_io::{
    process::OwnerProcess,
    sync::{
        Condvar, Mutex,
        thread::{Builder, JoinHandle},
    },
};

use crate::{file::FileState, shared::Shared};

/// See the module.
#[derive(Default)]
pub(crate) struct Watch {
    stop: Arc<Stop>,
    /// With the process that it runs in.
    thread: Mutex<Option<(JoinHandle<()>, OwnerProcess)>>,
}

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Watch {
    /// Begins, unless it has. A system without a thread to spare leaves fetches to compare.
    pub(crate) fn begin(&self, shared: &Arc<Shared>) {
        let mut thread = self.thread.lock();
        if thread.is_some() || *self.stop.stopped.lock() {
            return;
        }
        let (stop, shared) = (Arc::clone(&self.stop), Arc::clone(shared));
        let interval = Duration::from_nanos(shared.settings.version_interval.0);
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
            thread.join().expect("it asks stores for their versions, and they do not panic");
        }
    }
}

impl Stop {
    /// Whether to go on after `interval`.
    fn sleep(&self, interval: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.wake.wait_for(&mut stopped, interval);
        }
        !*stopped
    }
}

/// One round over all files that can change.
fn compare_all(shared: &Arc<Shared>) {
    let files = shared.state.lock().live.files.open_files(true);
    for file in files {
        // A store that would not say is asked again, and each fetch asks too.
        if let Ok(file_state) = file.compare()
            && file_state != FileState::Current
        {
            let mut state = shared.state.lock();
            state.changed(&file, file_state);
            shared.settle(state);
        }
    }
}
