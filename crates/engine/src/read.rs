//! A read: one event, then whatever is needed until its answer is there.
//!
//! ```text
//!   lock: slot, Event::Read
//!     loop  take what was served and what is to be fetched
//!             some: unlock; submit the demand, then the readahead; copy; lock, unpin;
//!                   unlock; reap the demand (Arrived, Failed); lock
//!             none: the answer is there: leave     else sleep
//! ```
//!
//! # Invariants
//! - A reader that sleeps has no frame pinned and no fetch of its own: readers never wait for
//!   each other's copies.
//! - The demand reaches its store before the readahead that came of the same read.
//! - While a read waits for a frame, its reader sleeps no longer than until the core's deadline.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use forerun_core::{
    event::{Error, Event},
    units::{FrameId, HandleId, Nanos, PageIndex},
};
use forerun_io::store::Wait;
use parking_lot::MutexGuard;

use crate::{
    error::ReadError,
    fetch::{Fetch, File},
    queues::Lent,
    shared::Shared,
    state::State,
    waiters::{Asked, SlotId},
};

/// Who reads what: at least one byte, all of it within the file.
pub(crate) struct Read<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) file: &'a File,
    pub(crate) handle: HandleId,
    pub(crate) offset: u64,
    /// Where the handle's previous read ended; changed under the state's lock.
    pub(crate) previous_end: &'a AtomicU64,
}

impl Read<'_> {
    /// Fills `buf`.
    pub(crate) fn run(&self, buf: &mut [u8]) -> Result<(), ReadError> {
        let started = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        if state.closed {
            return Err(ReadError::Closed);
        }
        let asked = self.asked(buf.len());
        let me = state.live.slots.admit(asked)?;
        self.ask(&mut state, me, asked, self.offset + buf.len() as u64);
        let waits_from = match state.live.slots.of(me).answer {
            Some(_) => None,
            None => Some(state.now()),
        };
        let answer = self.carry_on(&mut state, me, buf);
        state.live.slots.leave(me);
        self.count(&mut state, (started, waits_from), answer.is_ok().then_some(buf.len()));
        let (page_bytes, file_bytes) = (self.file.page_bytes, self.file.bytes);
        answer.map_err(|error| ReadError::of(error, page_bytes, file_bytes))
    }

    fn asked(&self, bytes: usize) -> Asked {
        assert!(bytes > 0, "a read of nothing has no pages");
        let page_bytes = u64::from(self.file.page_bytes);
        let first = self.offset / page_bytes;
        let last = (self.offset + bytes as u64 - 1) / page_bytes;
        let count = u32::try_from(last - first + 1).expect("at most half the cache");
        Asked { file: self.file.id, first, count }
    }

    fn ask(&self, state: &mut State, me: SlotId, asked: Asked, end: u64) {
        let Asked { first, count, .. } = asked;
        let request = state.live.slots.of(me).request;
        let congested = state.ahead_count() >= self.shared.settings.congested_requests;
        let previous_end = self.previous_end.swap(end, Ordering::Relaxed);
        let previous_end = Some(previous_end).filter(|&end| end != NEVER_READ);
        let handle = self.handle;
        let event = Event::Read { request, handle, first, count, previous_end, congested };
        state.send(Some(me), event);
    }

    /// Does what is to be done until the answer is there and nothing is left to do.
    fn carry_on(
        &self,
        state: &mut MutexGuard<'_, State>,
        me: SlotId,
        buf: &mut [u8],
    ) -> Result<(), Error> {
        loop {
            let ahead = state.take_ahead();
            let slot = state.live.slots.of(me);
            let served = std::mem::take(&mut slot.served);
            let fetches = std::mem::take(&mut slot.fetches);
            if served.is_empty() && fetches.is_empty() && ahead.is_empty() {
                if let Some(answer) = slot.answer.take() {
                    return answer;
                }
                sleep(state, me);
                continue;
            }
            let trip = MutexGuard::unlocked(state, || {
                let trip = (!fetches.is_empty()).then(|| self.submit(fetches));
                self.shared.submit_ahead(ahead);
                self.copy(&served, buf);
                trip
            });
            state.unpin(me, &served);
            if let Some(trip) = trip {
                MutexGuard::unlocked(state, || self.reap(me, trip));
            }
        }
    }

    fn submit(&self, fetches: Vec<Fetch>) -> (Lent<'_>, Vec<Option<Fetch>>) {
        let lent = self.file.queues.lend();
        for (token, fetch) in (0..).zip(&fetches) {
            lent.queue.submit(fetch.op(token, &self.shared.frames));
        }
        (lent, fetches.into_iter().map(Some).collect())
    }

    /// Waits for all that was submitted; each fetch is reported as it comes back.
    fn reap(&self, me: SlotId, (lent, mut fetches): (Lent<'_>, Vec<Option<Fetch>>)) {
        let (mut under_way, mut out) = (fetches.len(), Vec::new());
        while under_way > 0 {
            lent.queue.reap(Wait::One, &mut out);
            assert!(!out.is_empty(), "a queue gives back what it was given");
            under_way -= out.len();
            for done in out.drain(..) {
                let token = usize::try_from(done.op.token).expect("it counts the fetches");
                let fetch = fetches[token].take().expect("an operation comes back once");
                self.shared.complete(Some(me), &fetch, done);
            }
        }
    }

    /// Copies what lies within the read of each page.
    fn copy(&self, served: &[(PageIndex, FrameId)], buf: &mut [u8]) {
        let end = self.offset + buf.len() as u64;
        for &(page, frame) in served {
            let page_at = page * u64::from(self.file.page_bytes);
            let page_end = page_at.saturating_add(u64::from(self.file.page_bytes));
            let (from, to) = (self.offset.max(page_at), end.min(page_end));
            let within = |offset: u64, base: u64| {
                usize::try_from(offset - base).expect("within a buffer or a page")
            };
            let bytes = self.shared.frames.pin(frame);
            buf[within(from, self.offset)..within(to, self.offset)]
                .copy_from_slice(&bytes[within(from, page_at)..within(to, page_at)]);
        }
    }

    fn count(&self, state: &mut State, times: (Nanos, Option<Nanos>), bytes: Option<usize>) {
        let (now, (started, waits_from)) = (self.shared.clock.now(), times);
        let counts = &mut state.stats;
        counts.requests += 1;
        counts.failures += u64::from(bytes.is_none());
        counts.bytes += bytes.unwrap_or(0) as u64;
        counts.latency.add(now.since(started));
        if let Some(from) = waits_from {
            counts.waits += 1;
            counts.waited += now.since(from);
        }
    }
}

/// Sleeps until something happens to the slot or the core's deadline has come.
fn sleep(state: &mut MutexGuard<'_, State>, me: SlotId) {
    let wake = state.live.slots.sleep(me);
    match state.core.deadline() {
        None => wake.wait(state),
        Some(due) => {
            let left = due.since(state.now());
            if left > Nanos(0) {
                wake.wait_for(state, Duration::from_nanos(left.0));
            }
            if state.core.deadline().is_some_and(|due| due <= state.now()) {
                state.send(Some(me), Event::Tick);
            }
        }
    }
}

/// Where a handle's previous read ended before its first: no read ends there.
pub(crate) const NEVER_READ: u64 = u64::MAX;
