//! A read that did not find all its pages without the lock: one event, then whatever is needed
//! until its answer is there.
//!
//! ```text
//!   lock: slot, Event::Read
//!     loop  take what was served and what is to be fetched
//!             some: unlock; submit the demand, then the readahead; hand over what was served;
//!                   reap the demand; lock: Arrived, Failed
//!             none: the answer is there: leave     else sleep
//! ```
//!
//! # Invariants
//! - A reader that sleeps, for a page or for a queue, holds no frame and has no fetch of its own:
//!   readers never wait for each other's copies.
//! - The demand reaches its store before the readahead that came of the same read, where the store
//!   can begin what somebody has yet to wait for.
//! - While a read waits for a frame, its reader sleeps no longer than until the core's deadline.
//! - A file that has ended is found out under the lock, before the core is asked: what a read
//!   gives is of one version.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use forerun_core::{
    event::{Error, Event},
    units::{HandleId, Nanos, PageIndex},
};
use forerun_io::{frames::OwnedPin, store::Wait, sync::MutexGuard};

use crate::{
    cancel::Cancel,
    error::ReadError,
    file::{Fetch, File},
    queues::QueueLease,
    shared::Shared,
    state::State,
    waiters::{PageRange, SlotId},
};

/// Who reads what: at least one byte, all of it within the file.
pub(crate) struct Read<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) file: &'a File,
    pub(crate) handle: HandleId,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    /// Where the handle's previous read ended.
    pub(crate) previous_end: &'a AtomicU64,
    pub(crate) cancel: Option<&'a Cancel>,
}

/// What a reader is given for a page: the page, and its frame until it is let go of.
pub(crate) type Take<'a> = &'a mut dyn FnMut(PageIndex, OwnedPin);

/// Fetches of a reader under way, and the queue that has them.
struct Batch<'a> {
    lease: QueueLease<'a>,
    fetches: Vec<Option<Fetch>>,
}

impl<'a> Read<'a> {
    /// Hands every page to `take`, in no particular order. Those of a read that fails are handed
    /// over too, as far as they came.
    pub(crate) fn run(&self, take: Take<'_>) -> Result<(), ReadError> {
        let answer = self.read(take);
        // Also where it is refused: the page was looked for without the lock before, and who does
        // not find it has named its frame for a moment.
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

    /// A page that left as its file ended is the file's error.
    fn refine(&self, error: Error) -> ReadError {
        let error = ReadError::of(error, self.file.page_bytes);
        match error {
            ReadError::Changed | ReadError::Store { .. } => {
                self.file.require_current().err().unwrap_or(error)
            }
            error => error,
        }
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

    /// Does what is to be done until the answer is there and nothing is left to do.
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
            let answer = if fetches.is_empty() { slot.answer.take() } else { None };
            if answer.is_none()
                && served.is_empty()
                && fetches.is_empty()
                && ahead.fetches.is_empty()
            {
                sleep(&mut state, me);
                continue;
            }
            if answer.is_some() {
                state.live.slots.leave(me);
            }
            drop(state);
            let mut served = served.into_iter();
            let batch = (!fetches.is_empty()).then(|| self.submit(fetches, &mut served, take));
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
                Some(batch) => self.reap(me, batch),
                None => self.shared.state.lock(),
            };
        }
    }

    /// Submits fetches; where a queue has to be waited for, hands over what was served before.
    fn submit(
        &self,
        fetches: Vec<Fetch>,
        served: &mut dyn Iterator<Item = (PageIndex, OwnedPin)>,
        take: Take<'_>,
    ) -> Batch<'_> {
        let lease = self.file.queues.try_check_out().unwrap_or_else(|| {
            served.for_each(|(page, pin)| take(page, pin));
            self.shared.frames_unpinned();
            self.file.queues.check_out()
        });
        for (token, fetch) in (0..).zip(&fetches) {
            lease.queue.submit(fetch.op(token, self.shared.frames()));
        }
        Batch { lease, fetches: fetches.into_iter().map(Some).collect() }
    }

    /// Waits for all that was submitted; each fetch is reported as it comes back. Comes back with
    /// the lock after the last.
    fn reap(&self, me: SlotId, batch: Batch<'_>) -> MutexGuard<'a, State> {
        let Batch { lease, mut fetches } = batch;
        let (mut in_flight, mut out) = (fetches.len(), Vec::with_capacity(fetches.len()));
        loop {
            lease.queue.reap(Wait::One, &mut out);
            assert!(!out.is_empty(), "a queue gives back what it was given");
            for done in out.drain(..) {
                in_flight -= 1;
                let token = usize::try_from(done.op.token).expect("it counts the fetches");
                let fetch = fetches[token].take().expect("an operation comes back once");
                if in_flight == 0 {
                    drop(lease);
                    return self.shared.report(Some(me), &fetch, done);
                }
                let state = self.shared.report(Some(me), &fetch, done);
                self.shared.settle(state);
            }
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
