//! A read with a miss: one event under the lock, then fetches and waits until its answer.
//!
//! ```text
//!   lock: slot, Event::Read
//!     loop  take served pages and fetches
//!             some: unlock; submit the demand, then the readahead; hand over served pages;
//!                   reap the demand; lock: Arrived, Failed
//!             none: leave with the answer, or sleep
//! ```
//!
//! # Invariants
//! - A reader that sleeps, for a page or for a queue, pins no frame and has no fetch of its own:
//!   readers never wait for each other's copies.
//! - The demand reaches its store before the readahead of the same read, where the store can start
//!   an operation ahead of the wait for it.
//! - A read checks the file's state under the lock, before it sends its event: its bytes are of one
//!   version.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use forerun_core::{
    event::{Error, Event},
    units::{HandleId, Nanos, PageIndex},
};
use forerun_io::{frames::OwnedPin, sync::MutexGuard};

use crate::{
    cancel::Cancel,
    carry::{self, Carrier},
    error::ReadError,
    file::File,
    shared::Shared,
    state::State,
    waiters::{PageRange, SlotId},
};

/// One read: at least one byte, all of it within the file.
pub(crate) struct Read<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) file: &'a File,
    pub(crate) handle: HandleId,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    /// The end of the handle's previous read.
    pub(crate) previous_end: &'a AtomicU64,
    pub(crate) cancel: Option<&'a Cancel>,
}

/// Takes a served page and the pin of its frame.
pub(crate) type Take<'a> = &'a mut dyn FnMut(PageIndex, OwnedPin);

impl<'a> Read<'a> {
    /// Hands every page to `take`, in any order. A read that fails hands over the pages that were
    /// served before.
    pub(crate) fn run(&self, take: Take<'_>) -> Result<(), ReadError> {
        let answer = self.read(take);
        // Also for a refused read: the lookup before it may have set a hazard pointer to a frame
        // for a moment.
        self.shared.frames_unpinned();
        answer
    }

    fn read(&self, take: Take<'_>) -> Result<(), ReadError> {
        let started = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        self.file.require_current()?;
        state.take_hits(&self.shared.hit_buffer);
        let range = self.page_range();
        let me = state.live.slots.admit(range)?;
        self.send_read(&mut state, me, range);
        let slot = state.live.slots.of(me);
        let (request, waits) = (slot.request, slot.answer.is_none());
        let waits_from = waits.then(|| state.sent_at());
        if let Some(cancel) = self.cancel {
            cancel.enter(self.shared, request);
            if cancel.is_cancelled() {
                state.cancel(request);
            }
        }
        let answer = self.carry_on(state, me, take);
        if let Some(cancel) = self.cancel {
            cancel.leave(self.shared, request);
        }
        self.count((started, waits_from), answer.is_ok());
        answer.map_err(|error| self.refine(error))
    }

    /// Replaces an error by the file's, where the file has ended.
    fn refine(&self, error: Error) -> ReadError {
        let error = ReadError::of(error, self.file.page_bytes);
        match error {
            ReadError::Changed | ReadError::Store { .. } => {
                self.file.require_current().err().unwrap_or(error)
            }
            error => error,
        }
    }

    fn carrier(&self) -> Carrier<'a> {
        Carrier { shared: self.shared, file: self.file }
    }

    fn page_range(&self) -> PageRange {
        assert!(self.bytes > 0, "a read of nothing has no pages");
        let page_bytes = u64::from(self.file.page_bytes);
        let first = self.offset / page_bytes;
        let last = (self.offset + self.bytes as u64 - 1) / page_bytes;
        let count = u32::try_from(last - first + 1).expect("at most half the cache");
        PageRange { file: self.file.id, first, count }
    }

    fn send_read(&self, state: &mut State, me: SlotId, range: PageRange) {
        let PageRange { first, count, .. } = range;
        let request = state.live.slots.of(me).request;
        let congested = state.ahead_count() >= self.shared.settings.congested_requests;
        let end = self.offset + self.bytes as u64;
        let previous_end = self.previous_end.swap(end, Ordering::Relaxed);
        let previous_end = Some(previous_end).filter(|&end| end != NEVER_READ);
        let handle = self.handle;
        let event = Event::Read { request, handle, first, count, previous_end, congested };
        state.send(Some(me), event);
    }

    /// Submits, copies and sleeps until the answer is there and all fetches have ended.
    fn carry_on(
        &self,
        mut state: MutexGuard<'a, State>,
        me: SlotId,
        take: Take<'_>,
    ) -> Result<(), Error> {
        loop {
            let ahead = state.take_ahead();
            let slot = state.live.slots.of(me);
            let served = std::mem::take(&mut slot.served);
            let fetches = std::mem::take(&mut slot.fetches);
            let done = fetches.is_empty() && slot.settled();
            let answer = if done { slot.answer.take() } else { None };
            if answer.is_none() && served.is_empty() && fetches.is_empty() && ahead.is_empty() {
                carry::sleep(&mut state, me);
                continue;
            }
            if answer.is_some() {
                state.live.slots.leave(me);
            }
            drop(state);
            let mut served = served.into_iter();
            let carrier = self.carrier();
            let batch = (!fetches.is_empty()).then(|| {
                let mut before_wait = || served.by_ref().for_each(|(page, pin)| take(page, pin));
                carrier.submit(fetches, &mut before_wait)
            });
            if let Some(batch) = &batch
                && !ahead.fetches.is_empty()
            {
                batch.lease.queue.start();
            }
            self.shared.submit_ahead(ahead);
            served.for_each(|(page, pin)| take(page, pin));
            if let Some(answer) = answer {
                return answer;
            }
            state = match batch {
                Some(batch) => carrier.reap(me, batch),
                None => self.shared.state.lock(),
            };
        }
    }

    fn count(&self, times: (Nanos, Option<Nanos>), well: bool) {
        let (now, (started, waits_from)) = (self.shared.clock.now(), times);
        self.shared.hit_buffer.count_locked(|counts| {
            counts.requests += 1;
            counts.failures += u64::from(!well);
            counts.bytes += if well { self.bytes as u64 } else { 0 };
            counts.latency.add(now.since(started));
            if let Some(from) = waits_from {
                counts.waits += 1;
                counts.waited += now.since(from);
            }
        });
    }
}

/// The previous end of a handle that was never read: no read ends there.
pub(crate) const NEVER_READ: u64 = u64::MAX;
