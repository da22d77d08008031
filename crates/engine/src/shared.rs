//! What handles, readers and reapers share: the frames, the state behind its lock, and what is
//! done on behalf of any of them.
//!
//! # Invariants
//! - The frames of a fetch are back in the table before the core hears of it.
//! - A fetch that the background refuses, as it is closed, fails at once: nobody waits for it in
//!   vain.

use std::sync::Arc;

use forerun_core::event::Event;
use forerun_io::{
    frames::Frames,
    store::{Done, ECANCELED},
};
use parking_lot::Mutex;

use crate::{clock::Clock, fetch::Fetch, settings::Settings, state::State, waiters::SlotId};

/// See the module.
pub(crate) struct Shared {
    pub(crate) frames: Frames,
    pub(crate) state: Mutex<State>,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
}

impl Shared {
    /// A fetch came back: puts its frames back and tells the core; `me` is the reader that
    /// reaped it.
    pub(crate) fn complete(self: &Arc<Self>, me: Option<SlotId>, fetch: &Fetch, done: Done) {
        let outcome = fetch.outcome(&done);
        fetch.put_back(done.op, &self.frames);
        let mut state = self.state.lock();
        state.stats.store_bytes += outcome.bytes;
        state.stats.store_requests += 1;
        state.ended(fetch);
        let (whole, count) = (outcome.whole, fetch.count());
        if whole > 0 {
            state.send(me, Event::Arrived { first: fetch.frames[0], count: whole });
        }
        if whole < count {
            let (first, count) = (fetch.frames[whole as usize], count - whole);
            state.send(me, Event::Failed { first, count, errno: outcome.errno });
        }
        let ahead = state.take_ahead();
        drop(state);
        self.submit_ahead(ahead);
    }

    /// Hands fetches to the background of their files.
    pub(crate) fn submit_ahead(self: &Arc<Self>, mut ahead: Vec<Fetch>) {
        while !ahead.is_empty() {
            let mut later = Vec::new();
            for fetch in ahead {
                let file = Arc::clone(&fetch.file);
                if let Err(fetch) = file.background.submit(self, fetch) {
                    later.append(&mut self.refused(&fetch));
                }
            }
            ahead = later;
        }
    }

    /// A fetch cannot be carried out any more. Returns what the background is to do instead.
    fn refused(&self, fetch: &Fetch) -> Vec<Fetch> {
        let mut state = self.state.lock();
        state.ended(fetch);
        let (first, count) = (fetch.frames[0], fetch.count());
        state.send(None, Event::Failed { first, count, errno: ECANCELED });
        state.take_ahead()
    }
}
