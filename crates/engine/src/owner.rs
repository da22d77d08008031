//! The owner that a cache's clones and handles share: dropping the last of them closes the cache.
//!
//! # Invariants
//! - A closed cache starts no read, and has no thread and no fetch.
//! # Locking
//! The state's lock, never over a call of a store or the end of a thread.

use std::sync::Arc;

use forerun_io::files::Files;

use crate::{file::FileState, shared::Shared, watch::Watch};

/// See the module.
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) files: Files,
    pub(crate) watch: Watch,
}

impl Owner {
    /// Refuses new reads and ends all background work. Idempotent.
    pub(crate) fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        let files = state.live.files.open_files(false);
        drop(state);
        for file in &files {
            file.end(FileState::Closed);
            file.close();
        }
        self.shared.backgrounds.close();
        self.watch.end();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.close();
    }
}
