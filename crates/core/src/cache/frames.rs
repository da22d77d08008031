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

use alloc::vec::Vec;

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
    /// No page, but a reader still holds it.
    Lingering,
}

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent marks of a page, not a state")]
pub(super) struct Frame {
    pub(super) page: PageId,
    pub(super) state: State,
    /// Counts publications; a hit with another generation is stale.
    pub(super) generation: u32,
    /// Writers that copy into it just now.
    pub(super) fills: u32,
    /// The first of those who wait for its bytes.
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
    /// Nobody has asked for its page yet.
    pub(super) prefetched: bool,
    /// Nobody had asked for its page when it was claimed.
    pub(super) ahead: bool,
    /// Readers without a lock may find it.
    pub(super) published: bool,
    /// Its page left while an operation was under way.
    pub(super) doomed: bool,
    /// Dirtied again while being written: the epoch of the newer bytes.
    pub(super) redirty: Option<u64>,
    /// It is fetched alone, on a request's behalf: there is no second try.
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
        generation: 0,
        fills: 0,
        waiters: NIL,
        next: NIL,
        epoch: 0,
        sync: 0,
        born: 0,
        partition: 0,
        marker: false,
        prefetched: false,
        ahead: false,
        published: false,
        doomed: false,
        redirty: None,
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

/// All frames, by number.
pub(super) struct Frames {
    table: Vec<Frame>,
}

impl Frames {
    pub(super) fn new(count: u32) -> Self {
        Self { table: alloc::vec![Frame::EMPTY; count as usize] }
    }

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
