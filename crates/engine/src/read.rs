//! A read with a miss: one event under the lock, then fetches and waits until its answer
//! (`carry.rs`).
//!
//! # Invariants
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
use forerun_io::frames::OwnedPin;

use crate::{
    cancel::Cancel,
    carry::{Carrier, Copied, Pages},
    error::ReadError,
    file::File,
    shared::Shared,
    state::State,
    waiters::{Fill, PageRange, SlotId},
};

/// One read: at least one byte, all of it within the file.
pub(crate) struct Read<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) file: &'a Arc<File>,
    pub(crate) handle: HandleId,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    /// The end of the handle's previous read.
    pub(crate) previous_end: &'a AtomicU64,
    pub(crate) cancel: Option<&'a Cancel>,
}

/// Takes a served page and the pin of its frame.
pub(crate) type Take<'a> = &'a mut dyn FnMut(PageIndex, OwnedPin);

struct ReadPages<'a>(Take<'a>);

impl Pages for ReadPages<'_> {
    fn serve(&mut self, page: PageIndex, pin: OwnedPin) {
        (self.0)(page, pin);
    }

    fn fill(&mut self, fill: Fill) -> Copied {
        unreachable!("a read fills no page: {:?}", fill.frame)
    }
}

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
        let answer = self.carrier().carry_on(state, me, &mut ReadPages(take));
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
