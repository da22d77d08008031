//! The frame table: what each frame holds, and in which state.
//!
//! ```text
//!   Free -> Claimed -> InFlight -> Clean -> (evicted) Claimed | Free
//!      \-> Filling --------------> Dirty -> Writing -> Unsynced -> Clean
//! ```
//!
//! `Claimed` lasts from the choice of a victim until the driver settled its retraction, so
//! between two other events no frame is `Claimed`. `Filling` is a page that is written whole and
//! was never read. A *doomed* frame belongs to no page any more (truncate, invalidate) and comes
//! free when the operation on it ends; a *lingering* one waits for its last reader.
//!
//! What happens most is a hit, and of a frame it reads the header alone: the long row is touched
//! only by the first use of a page that was read ahead.
//!
//! Rows are appended as frames are first taken, so memory is touched as it is used: of a cache that
//! holds little, whatever its size, little.
//!
//! # Invariants
//! - A frame without a row is free. Of the free ones those with a row are taken first, the last one
//!   that came free before the others.
//! - A page is found in the frame that it was mapped to, and its row names that page until it is
//!   unmapped.
//! - A published frame is resident, and its header names its row's partition. So it is retracted
//!   before its page leaves.
//! - A header says *unread* if its frame is published and its row's page is `prefetched`.

use alloc::vec::Vec;

use super::sizing::Sample;
use crate::event::Hit;
use crate::page_table::PageTable;
use crate::readahead::StreamId;
use crate::units::{FrameId, PageId};

/// No row, no frame.
pub(super) const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No page.
    Free,
    /// A page is promised this frame; its old one is being retracted.
    Claimed,
    /// The store reads into it.
    InFlight,
    /// A writer copies a whole new page into it.
    Filling,
    /// As in the store.
    Clean,
    /// Newer than the store.
    Dirty,
    /// Newer than the store, and being written there.
    Writing,
    /// In the store, but not known to be durable: the bytes are kept for a second try.
    Unsynced,
    /// No page, but a reader has it pinned still.
    Lingering,
}

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent marks of a page, not a state")]
pub(super) struct Frame {
    pub(super) page: PageId,
    pub(super) state: State,
    /// Writers that copy into it just now.
    pub(super) fills: u32,
    /// The first waiter for its bytes.
    pub(super) waiters: u32,
    /// The next frame of the same fetch or write.
    pub(super) next: u32,
    /// Dirty, Writing: the flush epoch that its bytes belong to.
    pub(super) epoch: u64,
    /// Unsynced: the sync that will cover it. Writing: how many syncs had failed when it began.
    pub(super) sync: u64,
    /// The event at which its page was claimed.
    pub(super) born: u64,
    /// Its partition.
    pub(super) partition: u32,
    /// Its page triggers a readahead when it is used.
    pub(super) marker: bool,
    /// The stream whose window fetched its page.
    pub(super) stream: Option<StreamId>,
    /// The number of the window that fetched its page, where windows are explained; else `NIL`.
    pub(super) window: u32,
    /// Its page was read ahead, and no request has demanded it yet.
    pub(super) prefetched: bool,
    /// Its page was not demanded when it was claimed.
    pub(super) ahead: bool,
    /// Its page is a gap page: fetched only to bridge a gap.
    pub(super) gap: bool,
    /// Its page left while an operation was in flight.
    pub(super) doomed: bool,
    /// Dirtied again while being written: the epoch of the newer bytes.
    pub(super) redirty: Option<u64>,
    /// It is the first of a demand fetch.
    pub(super) heads_demand: bool,
    /// Its fetch failed before: there is no further try.
    pub(super) last_try: bool,
    /// It is to be written whole: there is nothing to fetch.
    pub(super) fresh: bool,
    /// Doomed, and a reader held it when its page left.
    pub(super) held: bool,
    /// The round of retractions in which a reader was found to hold it.
    pub(super) pinned_round: u64,
}

impl Frame {
    pub(super) const EMPTY: Self = Self {
        page: PageId { file: crate::units::FileId(0), index: 0 },
        state: State::Free,
        fills: 0,
        waiters: NIL,
        next: NIL,
        epoch: 0,
        sync: 0,
        born: 0,
        partition: 0,
        marker: false,
        stream: None,
        window: NIL,
        prefetched: false,
        ahead: false,
        gap: false,
        doomed: false,
        redirty: None,
        heads_demand: false,
        last_try: false,
        fresh: false,
        held: false,
        pinned_round: 0,
    };

    /// Whether it holds a page whose bytes can be handed out.
    pub(super) fn resident(&self) -> bool {
        match self.state {
            State::Clean | State::Dirty | State::Writing | State::Unsynced => !self.doomed,
            State::Free | State::Claimed | State::InFlight | State::Filling | State::Lingering => {
                false
            }
        }
    }

    /// Whether its page may leave at any time.
    pub(super) fn evictable(&self, round: u64) -> bool {
        self.state == State::Clean && self.fills == 0 && self.pinned_round != round
    }
}

/// What a hit has to know of a frame. Apart from the long row, as several share a cache line.
#[derive(Clone, Copy)]
struct FrameHeader {
    /// Counts publications; a hit with another generation is stale.
    generation: u32,
    /// The partition of the page that readers without a lock may find; `NIL` without one.
    partition: u32,
    /// Published, and its page was read ahead and not demanded yet.
    unread: bool,
    /// Published, and sizing follows its page.
    sampled: bool,
}

impl FrameHeader {
    const EMPTY: Self = Self { generation: 0, partition: NIL, unread: false, sampled: false };
}

/// What a current hit found.
#[derive(Clone, Copy)]
pub(super) struct CurrentHit {
    /// The partition of its page.
    pub(super) partition: u32,
    /// Its page was read ahead, and this is its first use.
    pub(super) unread: bool,
    /// Sizing follows its page.
    pub(super) sampled: bool,
}

/// All frames, by number, and the pages that are found in them.
pub(super) struct Frames {
    count: u32,
    /// Rows of the frames that were ever taken.
    table: Vec<Frame>,
    headers: Vec<FrameHeader>,
    /// Of these, those that are free.
    free: Vec<FrameId>,
    pages: PageTable,
    /// Which pages sizing follows, if it is on.
    sample: Option<Sample>,
}

impl Frames {
    pub(super) fn new(count: u32, sample: Option<Sample>) -> Self {
        Self {
            count,
            table: Vec::with_capacity(count as usize),
            headers: Vec::with_capacity(count as usize),
            free: Vec::with_capacity(count as usize),
            pages: PageTable::new(count),
            sample,
        }
    }

    /// Frames that are free.
    pub(super) fn free(&self) -> u32 {
        let (used, free) = (self.table.len() as u64, self.free.len() as u64);
        let free = u64::from(self.count) - used + free;
        u32::try_from(free).expect("at most all frames")
    }

    /// Takes a free frame, if there is one.
    pub(super) fn take_free(&mut self) -> Option<FrameId> {
        if let Some(frame) = self.free.pop() {
            return Some(frame);
        }
        let number = u32::try_from(self.table.len()).expect("at most all frames");
        if number == self.count {
            return None;
        }
        self.table.push(Frame::EMPTY);
        self.headers.push(FrameHeader::EMPTY);
        Some(FrameId(number))
    }

    /// Gives back a frame that was taken and that no page is mapped to.
    pub(super) fn release(&mut self, frame: FrameId) {
        assert!(!self.published(frame), "{frame:?} has not been retracted");
        self[frame] = Frame::EMPTY;
        self.free.push(frame);
    }

    /// The frame that `page` is mapped to.
    #[inline]
    pub(super) fn find(&self, page: PageId) -> Option<FrameId> {
        self.pages.find(page, |frame| self.table[frame as usize].page).map(FrameId)
    }

    /// Pages that are mapped.
    pub(super) fn mapped(&self) -> u32 {
        self.pages.len()
    }

    /// Maps the page that the row of `frame` names, and that is mapped nowhere, to `frame`.
    pub(super) fn map(&mut self, frame: FrameId) {
        let page = self[frame].page;
        self.pages.insert(page, frame.0, |frame| self.table[frame as usize].page);
    }

    /// Unmaps the page that the row of `frame` names.
    pub(super) fn unmap(&mut self, frame: FrameId) {
        let page = self[frame].page;
        let old = self.pages.remove(page, |frame| self.table[frame as usize].page);
        assert!(old == Some(frame.0), "{page:?} is mapped to {old:?}, not {frame:?}");
    }

    /// Lets readers without a lock find the page in `frame`. Returns its generation.
    pub(super) fn publish(&mut self, frame: FrameId) -> u32 {
        if !self.published(frame) {
            let header = self.header_mut(frame);
            header.generation = header.generation.wrapping_add(1);
        }
        self.republish(frame);
        self.header_mut(frame).generation
    }

    /// As [`Frames::publish`], but hits noted before count still: the page never left.
    pub(super) fn republish(&mut self, frame: FrameId) {
        let row = &self[frame];
        assert!(row.resident(), "{frame:?} is published in state {:?}", row.state);
        let (partition, unread) = (row.partition, row.prefetched);
        let sampled = self.sample.is_some_and(|sample| sample.takes(row.page));
        let header = self.header_mut(frame);
        header.partition = partition;
        header.unread = unread;
        header.sampled = sampled;
    }

    /// Readers without a lock find the page in `frame` no longer.
    pub(super) fn retract(&mut self, frame: FrameId) {
        self.header_mut(frame).partition = NIL;
    }

    /// Whether readers without a lock may find the page in `frame`.
    pub(super) fn published(&self, frame: FrameId) -> bool {
        self.headers[frame.0 as usize].partition != NIL
    }

    /// The generation of what is published in `frame`.
    pub(super) fn generation(&self, frame: FrameId) -> u32 {
        self.headers[frame.0 as usize].generation
    }

    /// What `hit` found, unless it is stale.
    pub(super) fn found(&self, hit: Hit) -> Option<CurrentHit> {
        let &FrameHeader { generation, partition, unread, sampled } =
            self.headers.get(hit.frame.0 as usize)?;
        let current = generation == hit.generation && partition != NIL;
        current.then_some(CurrentHit { partition, unread, sampled })
    }

    /// Records a use of the page in `frame`. Returns whether it is the first of a prefetched page.
    pub(super) fn first_use(&mut self, frame: FrameId) -> bool {
        self.header_mut(frame).unread = false;
        core::mem::take(&mut self[frame].prefetched)
    }

    fn header_mut(&mut self, frame: FrameId) -> &mut FrameHeader {
        &mut self.headers[frame.0 as usize]
    }

    /// Those that were ever taken.
    pub(super) fn iter(&self) -> impl Iterator<Item = (FrameId, &Frame)> {
        (0..).map(FrameId).zip(&self.table)
    }
}

impl core::ops::Index<FrameId> for Frames {
    type Output = Frame;

    fn index(&self, frame: FrameId) -> &Frame {
        &self.table[frame.0 as usize]
    }
}

impl core::ops::IndexMut<FrameId> for Frames {
    fn index_mut(&mut self, frame: FrameId) -> &mut Frame {
        &mut self.table[frame.0 as usize]
    }
}
