//! Frames that writers fill: a frame is checked out while a writer copies into it.
//!
//! ```text
//!   Fill --> retracted, checked out --> a writer copies --> checked in, published again --> Filled
//!              | pinned                     ^
//!              +--> blocked: retried when --+      readers that the core serves meanwhile wait,
//!                   a pin is released              and get their pins before the next writer
//! ```
//!
//! The core sees a page that stays resident. Readers that look the page up without the lock do
//! not find it, and take the lock.
//!
//! # Invariants
//! - A writer copies only into a frame that is checked out, so no reader sees a byte of a copy in
//!   progress, and a write to the store never takes one along.
//! - Writers of one frame take turns in the order of the core.
//! - Each fill is handed to its writer exactly once: with the frame, or as one that has become
//!   void, since the page has left its file or stayed pinned for too long. For a store that writes
//!   the page a writer waits as long as that takes: what bounds it is the store.
//! # Locking
//! All of it lies under the state's lock. Copies are made without it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forerun_core::units::{FrameId, Nanos, PageIndex, RequestId};
use forerun_io::index::{Published, Publisher};

use crate::waiters::{Fill, FillRoom, Slots};

/// See the module.
#[derive(Default)]
pub(crate) struct Fills {
    rows: BTreeMap<FrameId, FillRow>,
    /// Those frames that no writer copies into: they wait for a pin.
    blocked: BTreeSet<FrameId>,
}

/// A frame with fills.
struct FillRow {
    /// What is published when the last fill has ended.
    published: Option<Published>,
    /// The frame is checked out to a writer.
    copying: bool,
    /// Writers that wait for the frame, in order.
    writers: VecDeque<(RequestId, PageIndex)>,
    /// Readers that wait for the writer that copies, or for those before them.
    readers: Vec<(RequestId, PageIndex)>,
    /// Since when its first writer waits for pins.
    since: Nanos,
    /// When that was last looked at, the store had the frame.
    at_store: bool,
}

impl Fills {
    /// Has `request` fill `frame` as soon as no reader has it pinned.
    pub(crate) fn begin(
        &mut self,
        (request, page): (RequestId, PageIndex),
        (frame, fresh): (FrameId, bool),
        now: Nanos,
        (publisher, slots): (&mut Publisher, &mut Slots),
    ) {
        slots.wake(request).fills_open += 1;
        if let Some(row) = self.rows.get_mut(&frame) {
            assert!(!fresh, "{frame:?} is filled by one writer before it holds a page");
            if row.writers.is_empty() {
                (row.since, row.at_store) = (now, false);
            }
            row.writers.push_back((request, page));
            return;
        }
        let mut row = FillRow {
            published: publisher.published(frame),
            copying: false,
            writers: VecDeque::new(),
            readers: Vec::new(),
            since: now,
            at_store: false,
        };
        if !row.start((request, page), (frame, fresh), publisher, slots) {
            row.writers.push_back((request, page));
            self.blocked.insert(frame);
        }
        self.rows.insert(frame, row);
    }

    /// Defers serving `frame` to a reader while a writer has or awaits it; returns whether it did.
    pub(crate) fn defer(
        &mut self,
        frame: FrameId,
        request: RequestId,
        page: PageIndex,
        slots: &mut Slots,
    ) -> bool {
        let row = self.rows.get_mut(&frame);
        let Some(row) = row.filter(|row| row.copying || !row.writers.is_empty()) else {
            return false;
        };
        row.readers.push((request, page));
        slots.wake(request).serves_deferred += 1;
        true
    }

    /// Takes a new marker of a page that is being filled; returns whether it is.
    pub(crate) fn mark(&mut self, frame: FrameId, marker: bool) -> bool {
        let Some(row) = self.rows.get_mut(&frame) else { return false };
        let published = row.published.as_mut().expect("a page in its frame is published once");
        published.marker = marker;
        true
    }

    /// Retracts the page of a frame with fills; returns whether no reader has it pinned or waits
    /// for it. `None`: the frame has no fills.
    pub(crate) fn retract(
        &mut self,
        frame: FrameId,
        gone: bool,
        publisher: &mut Publisher,
        slots: &mut Slots,
    ) -> Option<bool> {
        let row = self.rows.get_mut(&frame)?;
        assert!(gone || row.writers.is_empty() && !row.copying, "{frame:?} is not evictable");
        for (request, page) in row.writers.drain(..) {
            slots.wake(request).fills.push(Fill { page, frame, room: FillRoom::Gone });
        }
        if row.copying {
            row.published = None;
            return Some(row.readers.is_empty());
        }
        row.serve(frame, publisher, slots);
        let unpinned = publisher.retract(frame, gone);
        if gone || unpinned {
            self.rows.remove(&frame);
            self.blocked.remove(&frame);
        }
        Some(unpinned)
    }

    /// A writer has copied into `frame` and checked it in.
    pub(crate) fn ended(
        &mut self,
        frame: FrameId,
        now: Nanos,
        publisher: &mut Publisher,
        slots: &mut Slots,
    ) {
        let row = self.rows.get_mut(&frame).expect("a frame that is filled has a row");
        assert!(row.copying, "{frame:?} is checked out to one writer");
        (row.copying, row.since, row.at_store) = (false, now, false);
        row.serve(frame, publisher, slots);
        self.go_on(frame, publisher, slots);
    }

    /// Retries the fills that wait for pins.
    pub(crate) fn retry(&mut self, publisher: &mut Publisher, slots: &mut Slots) {
        for frame in self.blocked.clone() {
            self.go_on(frame, publisher, slots);
        }
    }

    /// Gives up the fills that have waited for pins of readers since `wait_max` or longer;
    /// `is_writing`: the store has the frame.
    pub(crate) fn expire(
        &mut self,
        now: Nanos,
        wait_max: Nanos,
        is_writing: impl Fn(FrameId) -> bool,
        slots: &mut Slots,
    ) {
        for &frame in &self.blocked {
            let row = self.rows.get_mut(&frame).expect("a blocked frame has a row");
            if now.0 < row.since.0.saturating_add(wait_max.0) {
                continue;
            }
            let before = std::mem::replace(&mut row.at_store, is_writing(frame));
            if row.at_store || before {
                // It waits for readers from then on when the store was last seen to have it.
                row.since = Nanos(now.0 + LOOK_AGAIN.0.saturating_sub(wait_max.0));
                continue;
            }
            for (request, page) in row.writers.drain(..) {
                slots.wake(request).fills.push(Fill { page, frame, room: FillRoom::Pinned });
            }
        }
    }

    /// Whether a fill waits for a pin, or a page is to be published when the last pin is released.
    pub(crate) fn blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Since when a fill waits for a pin.
    pub(crate) fn blocked_since(&self) -> Option<Nanos> {
        let blocked = self.blocked.iter().map(|frame| &self.rows[frame]);
        blocked.filter(|row| !row.writers.is_empty()).map(|row| row.since).min()
    }

    /// Forgets the pages that were to be served to a request that has failed.
    pub(crate) fn forget(&mut self, request: RequestId) {
        for row in self.rows.values_mut() {
            row.readers.retain(|reader| reader.0 != request);
        }
    }

    /// Hands the frame to its next writer, or publishes the page where none is left.
    fn go_on(&mut self, frame: FrameId, publisher: &mut Publisher, slots: &mut Slots) {
        let Some(row) = self.rows.get_mut(&frame) else { return };
        let goes_on = if let Some(&writer) = row.writers.front() {
            let starts = row.start(writer, (frame, false), publisher, slots);
            if starts {
                row.writers.pop_front();
            }
            starts
        } else {
            row.serve(frame, publisher, slots);
            let before = row.published;
            // Where the retraction met a pin, the page cannot be published before its release.
            let is_unpinned = before.is_none()
                || !publisher.is_retracting(frame)
                || publisher.retract(frame, true);
            if is_unpinned {
                self.rows.remove(&frame);
                if let Some(Published { page, generation, marker }) = before {
                    publisher.publish(page, frame, generation, marker);
                }
            }
            is_unpinned
        };
        if goes_on {
            self.blocked.remove(&frame);
        } else {
            self.blocked.insert(frame);
        }
    }
}

/// Until a store that has a frame is looked at again, at least.
const LOOK_AGAIN: Nanos = Nanos::from_millis(1);

impl FillRow {
    /// Checks the frame out for `writer`; returns whether no reader had it pinned.
    fn start(
        &mut self,
        (request, page): (RequestId, PageIndex),
        (frame, fresh): (FrameId, bool),
        publisher: &mut Publisher,
        slots: &mut Slots,
    ) -> bool {
        assert!(!self.copying, "{frame:?} has one writer at a time");
        // The page stays in its file; `gone` keeps readers from pinning it meanwhile.
        if !publisher.retract(frame, true) {
            return false;
        }
        let memory = publisher.index().frames().check_out(frame);
        let room = if fresh { FillRoom::Fresh(memory) } else { FillRoom::Resident(memory) };
        self.copying = true;
        slots.wake(request).fills.push(Fill { page, frame, room });
        true
    }

    /// Pins the frame for every reader that waits.
    fn serve(&mut self, frame: FrameId, publisher: &Publisher, slots: &mut Slots) {
        for (request, page) in self.readers.drain(..) {
            let pin = publisher.index().frames().pin_owned(frame);
            let slot = slots.wake(request);
            slot.serves_deferred -= 1;
            slot.served.push((page, pin));
        }
    }
}
