//! Cancelling reads from another thread.
//!
//! # Invariants
//! - A cancelled token stays cancelled: later reads with it fail at once.
//! - A cancelled read leaves the cache intact; its pages in flight still arrive.
//! # Locking
//! A read that begins to wait takes the token's lock under the state's; a read with its answer and
//! `cancel` take it alone. `cancel` then takes the states' locks one after the other.

use std::sync::{Arc, Weak};

use forerun_core::units::RequestId;
use forerun_io::sync::{AtomicBool, Mutex, Ordering};

use crate::shared::Shared;

/// A token that cancels reads. Clones are the same token.
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

    /// Cancels every read with this token, now and later. A read that waits for another thread's
    /// fetch ends at once; a read with requests of its own at the device ends with those.
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

    /// Whether the token was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.load(Ordering::SeqCst)
    }

    /// Registers a read that is about to wait.
    pub(crate) fn enter(&self, shared: &Arc<Shared>, request: RequestId) {
        self.inner.waiting.lock().push((Arc::downgrade(shared), request));
    }

    /// Unregisters a read that has its answer.
    pub(crate) fn leave(&self, shared: &Arc<Shared>, request: RequestId) {
        let left = |at: &(Weak<Shared>, RequestId)| {
            at.1 == request && std::ptr::eq(at.0.as_ptr(), Arc::as_ptr(shared))
        };
        self.inner.waiting.lock().retain(|at| !left(at));
    }
}
