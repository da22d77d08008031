//! Cancelling reads from another thread.
//!
//! # Invariants
//! - A cancelled token stays cancelled: reads that begin with it fail at once.
//! - A cancelled read leaves the cache as good as before; pages on their way to it still arrive.
//! # Locking
//! A token's lock is taken under the state's by a read that begins to wait, and alone by one that
//! has its answer and by who cancels. That one then takes the states' locks one after the other.

use std::sync::{Arc, Weak};

use forerun_core::units::RequestId;
use forerun_io::sync::{AtomicBool, Mutex, Ordering};

use crate::shared::Shared;

/// A token that cancels the reads which were given it. Clones are the same token.
#[derive(Clone, Default)]
pub struct Cancel {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    cancelled: AtomicBool,
    waiting: Mutex<Vec<(Weak<Shared>, RequestId)>>,
}

impl Cancel {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels every read that was given this token, now and later. A read that waits for pages of
    /// others ends at once; one that has requests of its own at the device ends when those do.
    pub fn cancel(&self) {
        self.inner.cancelled.store(true, Ordering::SeqCst);
        let waiting = self.inner.waiting.lock().clone();
        for (shared, request) in waiting {
            if let Some(shared) = shared.upgrade() {
                let mut state = shared.state.lock();
                state.cancel(request);
                shared.settle(state);
            }
        }
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.load(Ordering::SeqCst)
    }

    /// A read is about to wait.
    pub(crate) fn enter(&self, shared: &Arc<Shared>, request: RequestId) {
        self.inner.waiting.lock().push((Arc::downgrade(shared), request));
    }

    /// A read has its answer.
    pub(crate) fn leave(&self, shared: &Arc<Shared>, request: RequestId) {
        let left = |at: &(Weak<Shared>, RequestId)| {
            at.1 == request && std::ptr::eq(at.0.as_ptr(), Arc::as_ptr(shared))
        };
        self.inner.waiting.lock().retain(|at| !left(at));
    }
}
