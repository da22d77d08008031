//! Requests in flight, reads, writes and flushes: one slot each, with served pages, fetches and
//! copies to carry out, and the answer.
//!
//! ```text
//!   RequestId = serial * slots + slot     so an answer finds its slot without a search
//! ```
//!
//! # Invariants
//! - A slot belongs to one request until the request leaves it, without served pages, fetches and
//!   copies.
//! - Every serve, fetch and answer of a slot wakes its sleeping reader, which checks the slot again
//!   after any wake-up.

use std::sync::Arc;

use forerun_core::{
    event::Error,
    units::{FileId, FrameId, PageIndex, RequestId},
};
use forerun_io::{
    frames::{Frame, OwnedPin},
    sync::Condvar,
};

use crate::{error::ReadError, file::Fetch};

/// A slot's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId(u32);

/// The page range of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageRange {
    pub(crate) file: FileId,
    pub(crate) first: PageIndex,
    pub(crate) count: u32,
}

/// One request in flight.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent marks of a request, not a state")]
pub(crate) struct Slot {
    pub(crate) request: RequestId,
    pub(crate) range: PageRange,
    /// Served pages, pinned for the reader.
    pub(crate) served: Vec<(PageIndex, OwnedPin)>,
    /// Fetches that this reader carries out.
    pub(crate) fetches: Vec<Fetch>,
    /// Copies that this writer makes.
    pub(crate) fills: Vec<Fill>,
    /// Copies that are handed out or will be, and whose end the core has not heard of.
    pub(crate) fills_open: u32,
    /// Pages that are served as soon as a writer has copied.
    pub(crate) serves_deferred: u32,
    pub(crate) answer: Option<Result<(), Error>>,
    /// It is a write, a flush or a change.
    pub(crate) writes: bool,
    /// The byte after the last that it writes.
    pub(crate) write_end: u64,
    /// It has the store make its change now.
    pub(crate) changes: bool,
    /// Its fetches wait for a queue.
    awaits_queue: bool,
    active: bool,
    sleeping: bool,
    wake: Arc<Condvar>,
}

/// One copy into a frame.
pub(crate) struct Fill {
    pub(crate) page: PageIndex,
    pub(crate) frame: FrameId,
    pub(crate) room: FillRoom,
}

/// Where the writer's bytes go.
pub(crate) enum FillRoom {
    /// The frame, which holds nothing yet.
    Fresh(Frame),
    /// The frame with the page's bytes.
    Resident(Frame),
    /// Nowhere: the page has left its file.
    Gone,
    /// Nowhere: the frame stayed pinned.
    Pinned,
}

/// All slots: as many as the most readers at one time.
pub(crate) struct Slots {
    all: Vec<Slot>,
    free: Vec<SlotId>,
    max: u32,
    serial: u64,
    /// Slots whose fetches wait for a queue.
    queue_waits: u32,
}

impl Slots {
    pub(crate) fn new(max: u32) -> Self {
        Self { all: Vec::new(), free: Vec::new(), max, serial: 0, queue_waits: 0 }
    }

    /// A slot for a read of `range`.
    pub(crate) fn admit(&mut self, range: PageRange) -> Result<SlotId, ReadError> {
        let created = u32::try_from(self.all.len()).expect("at most `max`");
        let id = match self.free.pop() {
            Some(id) => id,
            None if created < self.max => {
                self.all.push(Slot::default());
                SlotId(created)
            }
            None => return Err(ReadError::Busy { what: "readers", bound: self.max }),
        };
        // Serials wrap around, long after the first request of the same number has ended.
        self.serial = (self.serial + 1) % (u64::MAX / u64::from(self.max));
        let request = RequestId(self.serial * u64::from(self.max) + u64::from(id.0));
        let slot = self.of(id);
        (slot.request, slot.range, slot.active) = (request, range, true);
        Ok(id)
    }

    /// Ends a request; returns whether it is a write or a flush.
    pub(crate) fn leave(&mut self, id: SlotId) -> bool {
        let slot = self.of(id);
        assert!(slot.active && slot.served.is_empty() && slot.fetches.is_empty());
        assert!(slot.settled() && slot.fills.is_empty() && !slot.awaits_queue);
        assert!(!slot.changes, "a change has its answer when the store has made it");
        slot.write_end = 0;
        slot.active = false;
        slot.sleeping = false;
        slot.answer = None;
        let writes = std::mem::take(&mut slot.writes);
        self.free.push(id);
        writes
    }

    /// The fetches of a request wait for a queue, or no longer do.
    pub(crate) fn await_queue(&mut self, id: SlotId, waits: bool) {
        let before = std::mem::replace(&mut self.of(id).awaits_queue, waits);
        self.queue_waits = self.queue_waits + u32::from(waits) - u32::from(before);
    }

    /// The end of all writes of `file` that are in progress.
    pub(crate) fn write_end(&self, file: FileId) -> u64 {
        let writes = self.all.iter().filter(|slot| slot.active && slot.range.file == file);
        writes.map(|slot| slot.write_end).max().unwrap_or(0)
    }

    /// Wakes the request that has waited longest for a queue of `file`: one was returned.
    pub(crate) fn queue_returned(&mut self, file: FileId) {
        if self.queue_waits == 0 {
            return;
        }
        let waits = |slot: &&mut Slot| slot.awaits_queue && slot.range.file == file;
        if let Some(slot) = self.all.iter_mut().filter(waits).min_by_key(|slot| slot.request) {
            slot.awaits_queue = false;
            self.queue_waits -= 1;
            slot.rouse();
        }
    }

    pub(crate) fn of(&mut self, id: SlotId) -> &mut Slot {
        &mut self.all[id.0 as usize]
    }

    /// The slot of a request in flight without an answer.
    pub(crate) fn waiting(&self, request: RequestId) -> Option<SlotId> {
        let at = usize::try_from(request.0 % u64::from(self.max)).ok()?;
        let slot = self.all.get(at)?;
        let waits = slot.active && slot.request == request && slot.answer.is_none();
        waits.then(|| SlotId(u32::try_from(at).expect("at most `max`")))
    }

    /// Wakes the reader of a request and returns its slot.
    pub(crate) fn wake(&mut self, request: RequestId) -> &mut Slot {
        let at = usize::try_from(request.0 % u64::from(self.max)).expect("a slot's number");
        let slot = &mut self.all[at];
        assert!(slot.active && slot.request == request, "{request:?} is not in flight");
        slot.rouse();
        slot
    }

    /// Wakes all that sleep, to sleep on until a deadline.
    pub(crate) fn rouse_all(&mut self) {
        self.all.iter_mut().for_each(Slot::rouse);
    }

    /// Marks a reader as sleeping and returns its condition.
    pub(crate) fn sleep(&mut self, id: SlotId) -> Arc<Condvar> {
        let slot = self.of(id);
        slot.sleeping = true;
        Arc::clone(&slot.wake)
    }

    /// Assigns `fetch` to a reader that waits for one of its pages: `me` if it does, else a
    /// sleeping one, else any. Returns the fetch when no reader does.
    pub(crate) fn give(&mut self, me: Option<SlotId>, fetch: Fetch) -> Option<Fetch> {
        let at = |id: SlotId| id.0 as usize;
        let own = me.map(at).filter(|&at| self.all[at].waits_for(&fetch));
        let Some(at) = own.or_else(|| {
            let waits = |slot: &Slot| slot.waits_for(&fetch);
            let sleeps = self.all.iter().position(|slot| slot.sleeping && waits(slot));
            sleeps.or_else(|| self.all.iter().position(waits))
        }) else {
            return Some(fetch);
        };
        self.all[at].rouse();
        self.all[at].fetches.push(fetch);
        None
    }
}

impl Slot {
    /// Whether nothing is to be handed to it any more.
    fn settled(&self) -> bool {
        self.fills_open == 0 && self.serves_deferred == 0
    }

    /// Takes the pages that were served.
    pub(crate) fn take_served(&mut self) -> Vec<(PageIndex, OwnedPin)> {
        std::mem::take(&mut self.served)
    }

    /// Takes the copies to make.
    pub(crate) fn take_fills(&mut self) -> Vec<Fill> {
        std::mem::take(&mut self.fills)
    }

    /// Takes the answer, if nothing is left to do.
    pub(crate) fn take_answer(&mut self) -> Option<Result<(), Error>> {
        let is_done = self.fetches.is_empty() && self.settled();
        if is_done { self.answer.take() } else { None }
    }

    fn rouse(&mut self) {
        if self.sleeping {
            self.sleeping = false;
            self.wake.notify_one();
        }
    }

    /// Whether it has no answer yet and asks for a page of `fetch`.
    fn waits_for(&self, fetch: &Fetch) -> bool {
        let PageRange { file, first, count } = self.range;
        let same = self.active && self.answer.is_none() && file == fetch.file.id;
        let (end, fetch_end) = (first + u64::from(count), fetch.first + u64::from(fetch.count()));
        same && first < fetch_end && fetch.first < end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_finds_its_slot_whatever_the_bound_and_however_many_came_before() {
        for max in [1, 3, 1 << 10, u32::MAX] {
            let mut slots = Slots::new(max);
            let used_up = u64::MAX / u64::from(max);
            for before in [0, 7, used_up - 3] {
                slots.serial = before;
                for _ in 0..5 {
                    let id = slots.admit(PageRange::default()).unwrap();
                    let request = slots.of(id).request;
                    assert_eq!(slots.wake(request).request, request);
                    assert!(!slots.leave(id));
                }
            }
        }
    }
}
