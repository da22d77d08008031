//! The state that handles, readers and reapers share: the index, the hit buffer, the locked state,
//! and the operations that any of these threads carries out.
//!
//! # Invariants
//! - Before the core gets the result of a fetch, its frames are checked in, and the file's version
//!   was compared after the bytes arrived: arrived pages are of the version that the handle opened.
//! - A fetch that a closed background refuses fails at once, so no read waits for it.
//! - Unpinning a frame while a read waits for one retries the allocation. So does a lookup that
//!   misses: its hazard pointer may have blocked a victim for a moment.

use std::sync::Arc;

use forerun_core::event::{Event, Hit};
use forerun_io::{
    frames::Frames,
    index::Index,
    store::{Completion, ECANCELED},
    sync::{AtomicBool, AtomicU32, Mutex, MutexGuard, Ordering},
};

use crate::{
    ahead::Ahead,
    background::{Backgrounds, Completions},
    clock::Clock,
    file::Fetch,
    hits::{Full, HitBuffer},
    settings::Settings,
    state::State,
    waiters::SlotId,
};

/// See the module.
pub(crate) struct Shared {
    pub(crate) index: Arc<Index>,
    pub(crate) hit_buffer: HitBuffer,
    pub(crate) state: Mutex<State>,
    /// Whether a read waits for a frame to be unpinned.
    pub(crate) starving: Arc<AtomicBool>,
    /// Whether the readahead policy needs every read as an event, hits too.
    pub(crate) sees_requests: bool,
    /// The number of frames that pages may take; changed under the state's lock.
    pub(crate) frames_now: AtomicU32,
    pub(crate) backgrounds: Backgrounds<Fetch>,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
}

impl Shared {
    pub(crate) fn frames(&self) -> &Frames {
        self.index.frames()
    }

    /// The number of frames that pages may take now.
    pub(crate) fn frames_now(&self) -> u32 {
        self.frames_now.load(Ordering::Relaxed)
    }

    /// Records a hit without the lock ([`HitBuffer::record`]); drains the hit buffer when a stripe
    /// is full.
    #[inline]
    pub(crate) fn record(self: &Arc<Self>, hit: Hit, bytes: usize, ends: bool) {
        match self.hit_buffer.record(hit, bytes, ends) {
            Full::No => {}
            full @ (Full::May | Full::Must) => self.take_hits(full),
        }
    }

    #[cold]
    fn take_hits(self: &Arc<Self>, full: Full) {
        let state = match full {
            Full::Must => Some(self.state.lock()),
            Full::No | Full::May => self.state.try_lock(),
        };
        if let Some(mut state) = state {
            state.take_hits(&self.hit_buffer);
            self.settle(state);
        }
    }

    /// Retries the allocation of a waiting read, after frames were unpinned.
    #[inline]
    pub(crate) fn frames_unpinned(self: &Arc<Self>) {
        if self.starving.load(Ordering::SeqCst) {
            self.retry_allocation();
        }
    }

    #[cold]
    fn retry_allocation(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.send(None, Event::Tick);
        self.settle(state);
    }

    /// Checks in the frames of a completed fetch and sends its result to the core; `me` is the
    /// reader that reaped it.
    pub(crate) fn report(
        &self,
        me: Option<SlotId>,
        fetch: &Fetch,
        done: Completion,
    ) -> MutexGuard<'_, State> {
        let outcome = fetch.outcome(&done);
        fetch.put_back(done.op, self.frames());
        let mut state = self.state.lock();
        state.store_bytes += outcome.bytes;
        state.store_requests += 1;
        if let Some(file_state) = outcome.file_state {
            state.changed(&fetch.file, file_state);
        }
        let (whole, count) = (outcome.whole, fetch.count());
        if whole > 0 {
            state.send(me, Event::Arrived { first: fetch.frames[0], count: whole });
        }
        if whole < count {
            let (first, count) = (fetch.frames[whole as usize], count - whole);
            state.send(me, Event::Failed { first, count, errno: outcome.errno });
        }
        state.ended(fetch);
        state
    }

    /// Releases the lock and submits the readahead of its events.
    pub(crate) fn settle(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let ahead = state.take_ahead();
        drop(state);
        self.submit_ahead(ahead);
    }

    /// Submits fetches to the backgrounds of their files.
    pub(crate) fn submit_ahead(self: &Arc<Self>, ahead: Ahead) {
        let Ahead { mut fetches, depth } = ahead;
        while !fetches.is_empty() {
            let mut later = Vec::new();
            for fetch in fetches {
                let file = Arc::clone(&fetch.file);
                file.ahead.set_depth(depth);
                let op = fetch.op(u64::from(fetch.frames[0].0), self.frames());
                let refused = file.background.submit(self, &*file.ahead, op, fetch);
                if let Err((op, fetch)) = refused {
                    fetch.put_back(op, self.frames());
                    later.append(&mut self.refused(&fetch).fetches);
                }
            }
            fetches = later;
        }
    }

    /// Fails a fetch that the background refused. Returns the readahead that the core issues
    /// instead.
    fn refused(&self, fetch: &Fetch) -> Ahead {
        let mut state = self.state.lock();
        let (first, count) = (fetch.frames[0], fetch.count());
        state.send(None, Event::Failed { first, count, errno: ECANCELED });
        state.ended(fetch);
        state.take_ahead()
    }
}

impl Completions<Fetch> for Shared {
    fn take(self: &Arc<Self>, fetch: Fetch, done: Completion) {
        let state = self.report(None, &fetch, done);
        self.settle(state);
    }
}
