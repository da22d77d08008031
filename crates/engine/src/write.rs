//! Writes and flushes: one event under the lock, then copies, fetches and waits until the answer.
//!
//! ```text
//!   lock: slot, Event::Write or Event::Flush
//!     loop  take copies     some: unlock; copy into the frames; lock: Filled
//!           take fetches    some: unlock; fetch the rest of partial pages; lock: Arrived, Failed
//!           none            leave with the answer, or sleep
//! ```
//!
//! # Invariants
//! - A write is answered when its bytes are in the cache; one that is durable when a sync that
//!   began after they were in the store has succeeded.
//! - A write that fails may have changed some of its pages; those are dirty as any others.
//! - The file's extent covers a write from before its event on, so no page of it is written short.

use forerun_core::{
    event::{Error, Event},
    units::{FrameId, HandleId},
};
use forerun_io::sync::MutexGuard;

use crate::{
    carry::{self, Carrier},
    error::WriteError,
    state::State,
    waiters::{Fill, FillRoom, PageRange, SlotId},
};

/// One write: at least one byte.
pub(crate) struct Write<'a> {
    pub(crate) carrier: Carrier<'a>,
    pub(crate) handle: HandleId,
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    /// Answered when the bytes, and all that was written before, are durable.
    pub(crate) durable: bool,
}

/// A copy whose frame is checked in.
struct Copied {
    frame: FrameId,
    copied: bool,
}

impl Write<'_> {
    pub(crate) fn run(&self) -> Result<(), WriteError> {
        let Carrier { shared, file } = self.carrier;
        let mut state = shared.state.lock();
        let me = admit(&mut state, self.range())?;
        let end = self.end();
        let partial = self.partial(file.length.extent());
        file.length.write_begins(end);
        let request = state.live.slots.of(me).request;
        let PageRange { first, count, .. } = self.range();
        let (head_partial, tail_partial) = partial;
        let (handle, durable) = (self.handle, self.durable);
        state.send(
            Some(me),
            Event::Write { request, handle, first, count, head_partial, tail_partial, durable },
        );
        let mut pinned = false;
        let answer = carry_on(self.carrier, state, me, &mut |fill| {
            pinned |= matches!(fill.room, FillRoom::Pinned);
            self.copy(fill)
        });
        file.length.write_ends(end);
        match answer {
            Ok(()) if pinned => Err(WriteError::Pinned),
            answer => answer.map_err(|error| WriteError::of(error, file.page_bytes)),
        }
    }

    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    fn range(&self) -> PageRange {
        let page_bytes = u64::from(self.carrier.file.page_bytes);
        let (first, last) = (self.offset / page_bytes, (self.end() - 1) / page_bytes);
        let count = u32::try_from(last - first + 1).expect("a piece is bounded");
        PageRange { file: self.carrier.file.id, first, count }
    }

    /// Whether the first and the last page hold other bytes of the file, of `extent` bytes.
    fn partial(&self, extent: u64) -> (bool, bool) {
        let page_bytes = u64::from(self.carrier.file.page_bytes);
        let last_page_end = self.end().next_multiple_of(page_bytes);
        let tail = self.end() < extent.min(last_page_end);
        (!self.offset.is_multiple_of(page_bytes), tail)
    }

    /// Copies this write's bytes of the page of `fill`, and checks its frame in.
    fn copy(&self, fill: Fill) -> Copied {
        let Fill { page, frame, room } = fill;
        let (mut memory, fresh) = match room {
            FillRoom::Fresh(memory) => (memory, true),
            FillRoom::Resident(memory) => (memory, false),
            FillRoom::Gone | FillRoom::Pinned => return Copied { frame, copied: false },
        };
        let page_at = page * u64::from(self.carrier.file.page_bytes);
        let page_end = page_at + memory.len() as u64;
        let (from, to) = (self.offset.max(page_at), self.end().min(page_end));
        assert!(from < to, "page {page} is one of the write");
        let within = at(from - page_at)..at(to - page_at);
        if fresh {
            memory[..within.start].fill(0);
            memory[within.end..].fill(0);
        }
        memory[within].copy_from_slice(&self.bytes[at(from - self.offset)..at(to - self.offset)]);
        self.carrier.shared.frames().check_in(memory);
        Copied { frame, copied: true }
    }
}

/// Makes all that was written to the file durable, also of a cache that is closing.
pub(crate) fn flush<'a>(
    carrier: Carrier<'a>,
    mut state: MutexGuard<'a, State>,
    handle: HandleId,
) -> Result<(), WriteError> {
    let none = PageRange { file: carrier.file.id, first: 0, count: 0 };
    let me = enter(&mut state, none)?;
    let request = state.live.slots.of(me).request;
    state.send(Some(me), Event::Flush { request, handle });
    let answer = carry_on(carrier, state, me, &mut |_| unreachable!("a flush fills no page"));
    answer.map_err(|error| WriteError::of(error, carrier.file.page_bytes))
}

/// A slot for a write, unless the cache is closed.
fn admit(state: &mut State, range: PageRange) -> Result<SlotId, WriteError> {
    if state.closed { Err(WriteError::Closed) } else { enter(state, range) }
}

fn enter(state: &mut State, range: PageRange) -> Result<SlotId, WriteError> {
    let me = state.live.slots.admit(range)?;
    state.writers += 1;
    Ok(me)
}

/// Copies, fetches and sleeps until the answer is there and nothing is left to do.
fn carry_on<'a>(
    carrier: Carrier<'a>,
    mut state: MutexGuard<'a, State>,
    me: SlotId,
    copy: &mut dyn FnMut(Fill) -> Copied,
) -> Result<(), Error> {
    let shared = carrier.shared;
    loop {
        let ahead = state.take_ahead();
        let slot = state.live.slots.of(me);
        assert!(slot.served.is_empty(), "a write is served no page");
        let fills = std::mem::take(&mut slot.fills);
        if !fills.is_empty() {
            drop(state);
            let copied: Vec<Copied> = fills.into_iter().map(&mut *copy).collect();
            shared.submit_ahead(ahead);
            state = shared.state.lock();
            for Copied { frame, copied } in copied {
                state.filled(me, frame, copied);
            }
            if state.flusher_waits {
                shared.dirty_due.notify_all();
            }
            continue;
        }
        let fetches = std::mem::take(&mut slot.fetches);
        let done = fetches.is_empty() && slot.settled();
        let answer = if done { slot.answer.take() } else { None };
        if answer.is_none() && fetches.is_empty() && ahead.is_empty() {
            carry::sleep(&mut state, me);
            continue;
        }
        if answer.is_some() {
            state.live.slots.leave(me);
            state.writers -= 1;
            shared.writer_left.notify_all();
        }
        drop(state);
        let batch = (!fetches.is_empty()).then(|| carrier.submit(fetches, &mut || {}));
        shared.submit_ahead(ahead);
        if let Some(answer) = answer {
            return answer;
        }
        state = match batch {
            Some(batch) => carrier.reap(me, batch),
            None => shared.state.lock(),
        };
    }
}

/// An offset within a page or a piece.
fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("within a page or a piece")
}
