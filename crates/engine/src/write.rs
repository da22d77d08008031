//! Writes and flushes: one event under the lock, then copies, fetches and waits until the answer
//! (`carry.rs`).
//!
//! # Invariants
//! - A write is answered when its bytes are in the cache; one that is durable when a sync that
//!   began after they were in the store has succeeded.
//! - A write that fails may have changed some of its pages; those are dirty as any others.
//! - The file's extent covers a write from before its event on, and its length what is filled, so
//!   no page of it is written short.

use std::time::Duration;

use forerun_core::{
    event::Event,
    units::{HandleId, PageIndex},
};
use forerun_io::{frames::OwnedPin, sync::MutexGuard};

use crate::{
    carry::{Carrier, Copied, Pages},
    error::WriteError,
    file::File,
    shared::Shared,
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

/// The pages of a write.
struct WritePages<'a> {
    write: &'a Write<'a>,
    /// A page stayed pinned.
    pinned: bool,
}

impl Pages for WritePages<'_> {
    fn serve(&mut self, page: PageIndex, _: OwnedPin) {
        unreachable!("a write is served no page: {page}")
    }

    fn fill(&mut self, fill: Fill) -> Copied {
        self.pinned |= matches!(fill.room, FillRoom::Pinned);
        self.write.copy(fill)
    }
}

/// A flush has no pages.
struct NoPages;

impl Pages for NoPages {
    fn serve(&mut self, page: PageIndex, _: OwnedPin) {
        unreachable!("a flush is served no page: {page}")
    }

    fn fill(&mut self, fill: Fill) -> Copied {
        unreachable!("a flush fills no page: {:?}", fill.frame)
    }
}

impl Write<'_> {
    pub(crate) fn run(&self) -> Result<(), WriteError> {
        let Carrier { shared, file } = self.carrier;
        let mut state = shared.state.lock();
        let me = admit(&mut state, self.range())?;
        let end = self.end();
        let partial = self.partial(file.length.extent());
        file.length.write_begins(end);
        let slot = state.live.slots.of(me);
        slot.write_end = end;
        let request = slot.request;
        let PageRange { first, count, .. } = self.range();
        let (head_partial, tail_partial) = partial;
        let (handle, durable) = (self.handle, self.durable);
        state.send(
            Some(me),
            Event::Write { request, handle, first, count, head_partial, tail_partial, durable },
        );
        let mut pages = WritePages { write: self, pinned: false };
        let answer = self.carrier.carry_on(state, me, &mut pages);
        match answer {
            Ok(()) if pages.pinned => Err(WriteError::Pinned),
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
        // Before the core knows: a page that may be written lies within the file.
        self.carrier.file.length.filled(to);
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
    let answer = carrier.carry_on(state, me, &mut NoPages);
    answer.map_err(|error| WriteError::of(error, carrier.file.page_bytes))
}

/// Repeats `flush` while a bound of requests refuses it: these end. What a caller can be told
/// nothing of must not be lost for that.
pub(crate) fn flush_at_end(
    shared: &Shared,
    flush: impl Fn() -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    loop {
        match flush() {
            Err(WriteError::Busy { .. }) => {
                let mut state = shared.state.lock();
                shared.writer_left.wait_for(&mut state, BUSY_WAIT);
            }
            flushed => return flushed,
        }
    }
}

/// Until requests of a bound are looked at again.
const BUSY_WAIT: Duration = Duration::from_millis(5);

/// A slot for a request of `file` without pages, unless the cache is closed.
pub(crate) fn admit_without_pages(state: &mut State, file: &File) -> Result<SlotId, WriteError> {
    admit(state, PageRange { file: file.id, first: 0, count: 0 })
}

/// A slot for a write, unless the cache is closed.
fn admit(state: &mut State, range: PageRange) -> Result<SlotId, WriteError> {
    if state.closed { Err(WriteError::Closed) } else { enter(state, range) }
}

fn enter(state: &mut State, range: PageRange) -> Result<SlotId, WriteError> {
    let me = state.live.slots.admit(range)?;
    state.live.slots.of(me).writes = true;
    state.writers += 1;
    Ok(me)
}

/// An offset within a page or a piece.
fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("within a page or a piece")
}
