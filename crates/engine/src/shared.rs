//! What handles, readers and reapers share: the index, the state behind its lock, and what is
//! done on behalf of any of them.
//!
//! # Invariants
//! - The frames of a fetch are back in the table before the core hears of it, and the file's
//!   version was compared after its bytes had come: what arrives is of the version that the handle
//!   was opened on.
//! - A fetch that the background refuses, as it is closed, fails at once: nobody waits for it in
//!   vain.
//! - Who lets go of a frame while a read starves for one has it looked for again. So does who
//!   looked for a page in vain: it may have been in the way for a moment.

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
    /// Whether a read waits for a frame to be let go of.
    pub(crate) starving: Arc<AtomicBool>,
    /// Whether the readahead policy has to see every read, hits too.
    pub(crate) sees_requests: bool,
    /// Frames that pages may take; changed under the state's lock.
    pub(crate) frames_now: AtomicU32,
    pub(crate) backgrounds: Backgrounds<Fetch>,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
}

impl Shared {
    pub(crate) fn frames(&self) -> &Frames {
        self.index.frames()
    }

    /// Frames that pages may take now.
    pub(crate) fn frames_now(&self) -> u32 {
        self.frames_now.load(Ordering::Relaxed)
    }

    /// Notes the use of a page that was found without the lock ([`HitBuffer::record`]); hands the notes
    /// over when there are many.
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

    /// Frames were let go of.
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

    /// A fetch came back: puts its frames back and tells the core; `me` is the reader that
    /// reaped it.
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

    /// Lets go of the lock and submits what came of its events.
    pub(crate) fn settle(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let ahead = state.take_ahead();
        drop(state);
        self.submit_ahead(ahead);
    }

    /// Hands fetches to the background of their files.
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

    /// A fetch cannot be carried out any more. Returns what the background is to do instead.
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
