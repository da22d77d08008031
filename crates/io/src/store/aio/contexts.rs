//! The contexts that files share: a few that readers check out, one for the background.
//!
//! The system counts the operations that all contexts of all programs are made for, against
//! `/proc/sys/fs/aio-max-nr`. Where that is used up, a context is made for fewer, and where there
//! is none, readers carry their operations out blocking.
//!
//! # Invariants
//! - At most `reader_contexts_max` contexts are made for readers; one is checked in empty.
//! - Once the system refused a context, no other is asked for, so that a miss never pays for it.
//! # Locking
//! The pool's lock is held over no system call; the background starts under a lock of its own.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

use super::{background::Background, own::OwnContext};
use crate::store::{
    Completion,
    file::{Batches, Transfer},
};

/// The bounds of contexts: how many there may be, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextBounds {
    /// Contexts for readers.
    pub reader_contexts_max: u32,
    /// Operations at once on each of those.
    pub reader_events: u32,
    /// Operations at once in the background, all files together.
    pub background_events: u32,
    /// Threads for what must block in the background, all files together.
    pub threads_max: u32,
}

impl Default for ContextBounds {
    /// A tenth of what Linux grants to all programs together by default.
    fn default() -> Self {
        Self { reader_contexts_max: 64, reader_events: 32, background_events: 256, threads_max: 8 }
    }
}

/// See the module.
pub struct Contexts {
    bounds: ContextBounds,
    pool: Mutex<Pool>,
    /// Started when the first queue needs it; none where the system has no context or no thread.
    background: OnceLock<Option<Arc<Background>>>,
}

struct Pool {
    idle: Vec<OwnContext>,
    made: u32,
    made_max: u32,
}

impl Contexts {
    /// None yet: they are made when they are needed.
    #[must_use]
    pub fn new(bounds: ContextBounds) -> Arc<Self> {
        let ContextBounds { reader_events, background_events, threads_max, .. } = bounds;
        assert!(reader_events > 0 && background_events > 0, "contexts for nothing");
        assert!(threads_max > 0, "no thread for what must block");
        let pool = Pool { idle: Vec::new(), made: 0, made_max: bounds.reader_contexts_max };
        Arc::new(Self { bounds, pool: Mutex::new(pool), background: OnceLock::new() })
    }

    /// Checks an empty context out, to be checked in so. None if all are checked out.
    pub(super) fn check_out(&self) -> Option<OwnContext> {
        let mut pool = self.pool.lock();
        if let Some(idle) = pool.idle.pop() {
            return Some(idle);
        }
        if pool.made >= pool.made_max {
            return None;
        }
        pool.made += 1;
        assert!(pool.made <= self.bounds.reader_contexts_max, "contexts are bounded");
        drop(pool);
        let made = OwnContext::new(self.bounds.reader_events).ok();
        if made.is_none() {
            let mut pool = self.pool.lock();
            pool.made -= 1;
            pool.made_max = pool.made;
        }
        made
    }

    /// Checks a context in.
    pub(super) fn check_in(&self, context: OwnContext) {
        assert!(context.is_empty(), "a context is checked in empty");
        let mut pool = self.pool.lock();
        pool.idle.push(context);
        assert!(pool.idle.len() <= pool.made as usize, "a context is checked in once");
    }

    /// The background, if it can be had.
    pub(super) fn background(&self) -> Option<Arc<Background>> {
        let ContextBounds { background_events, threads_max, .. } = self.bounds;
        let start = || Background::start(background_events, threads_max).map(Arc::new);
        self.background.get_or_init(start).clone()
    }
}

impl Batches for Contexts {
    fn carry(self: &Arc<Self>, batch: VecDeque<Transfer>, out: &mut Vec<Completion>) {
        let Some(mut context) = self.check_out() else {
            out.extend(batch.into_iter().map(Transfer::carry));
            return;
        };
        let mut batch = batch.into_iter();
        while batch.len() > 0 {
            context.send(batch.by_ref().take(context.events()).collect(), out);
            context.finish(out);
        }
        self.check_in(context);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::available_or_skip, *};

    #[test]
    fn no_more_contexts_are_checked_out_than_there_may_be() {
        if !available_or_skip("no_more_contexts_are_checked_out_than_there_may_be") {
            return;
        }
        let contexts =
            Contexts::new(ContextBounds { reader_contexts_max: 2, ..ContextBounds::default() });
        let (first, second) = (contexts.check_out().unwrap(), contexts.check_out().unwrap());
        assert!(contexts.check_out().is_none());
        contexts.check_in(first);
        let again = contexts.check_out().unwrap();
        assert!(contexts.check_out().is_none());
        contexts.check_in(again);
        contexts.check_in(second);
        assert_eq!(contexts.pool.lock().idle.len(), 2);
    }
}
