//! Events and actions: the only way into the core and out of it.
//!
//! A driver calls [`Cache::handle`](crate::cache::Cache::handle) with an [`Event`] and carries
//! out, in order, the [`Action`]s that were appended. An event runs to completion: nothing has to
//! be polled, and a wait is a row in a table of the cache.
//!
//! ```text
//!   Read ----------> Serve* Done              all pages resident
//!   Read ----------> Serve* Fetch*   ...      some are not: later, as they arrive,
//!   Arrived -------> Serve* Done
//!   Prefetch ------> Fetch*                   never an answer
//!   any  ----------> Retract*                 then, before any other event:
//!                    Pinned* Settled -------> Fetch* Publish* ...
//! ```
//!
//! # Invariants
//! - After a call that appended a `Retract`, the next events are `Pinned` for each frame that a
//!   reader holds, and then `Settled`. The cache asserts it.
//! - Every `Read`, `Write` and `Flush` is answered by one `Done` or one `Fail`, never both.
//! - A `Fetch` is answered for each of its frames, in order, by `Arrived` or `Failed`; a `Write`
//!   by `Written` or `WriteFailed`; a `Sync` by `Synced`; a `Fill` by `Filled`.

use alloc::vec::Vec;
use core::fmt;

use crate::readahead::Decision;
use crate::units::{FileId, FrameId, HandleId, PageId, PageIndex, PartitionId, RequestId};

pub mod codec;

/// A use of a published page, noted by a reader without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The frame it found.
    pub frame: FrameId,
    /// The generation that was published with it; the hit is stale if the frame has another now.
    pub generation: u32,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A handle was opened. The first handle of a file puts it into its partition.
    Open {
        /// The handle; its number is not in use.
        handle: HandleId,
        /// What it reads and writes.
        file: FileId,
        /// Where the file's pages are to live.
        partition: PartitionId,
        /// Pages in the file, the last one perhaps in part.
        file_pages: u64,
    },
    /// A handle without requests was closed.
    Close {
        /// The handle.
        handle: HandleId,
    },
    /// A reader wants pages `first..first + count`, cut to the file's end by the driver.
    Read {
        /// The reader's name for this read.
        request: RequestId,
        /// Who reads.
        handle: HandleId,
        /// The first page.
        first: PageIndex,
        /// Pages; at least 1.
        count: u32,
        /// The byte after this handle's previous read, if there was one.
        previous_end: Option<u64>,
        /// Whether the device has more to do than it should be given ahead of need.
        congested: bool,
    },
    /// Uses of published pages since the last batch, in order.
    Hits {
        /// The uses.
        hits: &'a [Hit],
    },
    /// A reader without a lock met a page that carries the marker.
    Marker {
        /// Who reads.
        handle: HandleId,
        /// What it found there.
        hit: Hit,
        /// Pages from there to the end of its request; at least 1.
        count: u32,
        /// As in `Read`.
        previous_end: Option<u64>,
        /// As in `Read`.
        congested: bool,
    },
    /// Pages `first..first + count` will be needed, and nobody waits for them. Those absent, within
    /// the file and within the bounds of readahead, are fetched as one window without a marker;
    /// what a bound or the lack of frames refuses is counted as dropped.
    Prefetch {
        /// Through which handle; to its readahead this is no read.
        handle: HandleId,
        /// The first page.
        first: PageIndex,
        /// Pages; at least 1.
        count: u32,
    },
    /// A writer has bytes for pages `first..first + count`.
    Write {
        /// The writer's name for this write.
        request: RequestId,
        /// Who writes.
        handle: HandleId,
        /// The first page.
        first: PageIndex,
        /// Pages; at least 1.
        count: u32,
        /// The first page is written in part, so its other bytes are needed.
        head_partial: bool,
        /// The last page is written in part.
        tail_partial: bool,
        /// Answer only when the bytes are durable (FUA).
        durable: bool,
    },
    /// The bytes of a `Fill` are in the frame.
    Filled {
        /// The write that they are of.
        request: RequestId,
        /// The frame.
        frame: FrameId,
    },
    /// Everything written so far is to become durable.
    Flush {
        /// The caller's name for this flush.
        request: RequestId,
        /// Through which handle.
        handle: HandleId,
    },
    /// Whoever waits for `request` gave up.
    Cancel {
        /// The request; unknown ones are ignored.
        request: RequestId,
    },
    /// Frames of a fetch hold their bytes now: `first` and those that follow it in the fetch.
    Arrived {
        /// The first of them.
        first: FrameId,
        /// How many.
        count: u32,
    },
    /// Frames of a fetch got nothing.
    Failed {
        /// The first of them.
        first: FrameId,
        /// How many.
        count: u32,
        /// Why.
        errno: i32,
    },
    /// Frames of a write are in the store, though perhaps not durable.
    Written {
        /// The first of them.
        first: FrameId,
        /// How many.
        count: u32,
    },
    /// Frames of a write are not in the store.
    WriteFailed {
        /// The first of them.
        first: FrameId,
        /// How many.
        count: u32,
        /// Why.
        errno: i32,
    },
    /// The store's sync of `file` ended.
    Synced {
        /// The file.
        file: FileId,
        /// 0, or why it failed.
        errno: i32,
    },
    /// The file has `pages` pages now. Pages beyond are gone, written or not. No write of them may
    /// be under way in the store, as it would bring them back.
    Truncate {
        /// The file.
        file: FileId,
        /// Its pages.
        pages: u64,
    },
    /// Somebody else changed `first..first + count`: clean pages are stale.
    Invalidate {
        /// The file.
        file: FileId,
        /// The first page.
        first: PageIndex,
        /// Pages.
        count: u64,
    },
    /// A `Retract` met a reader: the frame stays as it was.
    Pinned {
        /// The frame.
        frame: FrameId,
    },
    /// Every `Retract` since the last `Settled` was carried out or reported as `Pinned`.
    Settled,
    /// A partition may hold `frames` frames from now on.
    Resize {
        /// The partition.
        partition: PartitionId,
        /// Its share.
        frames: u32,
    },
    /// Time passed: see [`Cache::deadline`](crate::cache::Cache::deadline).
    Tick,
}

/// Whether somebody waits for a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchKind {
    /// It holds pages that a request asked for.
    Demand,
    /// Nobody has asked for any of it yet.
    Readahead,
}

/// What the driver has to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Hand the bytes of `page` in `frame` to the reader.
    Serve {
        /// Whose.
        request: RequestId,
        /// Which page of its file.
        page: PageIndex,
        /// Where the bytes are.
        frame: FrameId,
    },
    /// Copy the writer's bytes for `page` into `frame`, then send `Filled`.
    Fill {
        /// Whose.
        request: RequestId,
        /// Which page of its file.
        page: PageIndex,
        /// Where the bytes go.
        frame: FrameId,
        /// The frame holds nothing yet: what the writer does not cover becomes zero.
        fresh: bool,
    },
    /// Read pages from the store into frames.
    Fetch {
        /// Whether somebody waits.
        kind: FetchKind,
        /// The first page.
        page: PageId,
        /// Pages.
        count: u32,
        /// Where their frames stand in [`Actions::frames`].
        frames_at: u32,
    },
    /// Write pages from frames to the store.
    Write {
        /// The first page.
        page: PageId,
        /// Pages.
        count: u32,
        /// Where their frames stand in [`Actions::frames`].
        frames_at: u32,
    },
    /// Make what was written to the file durable.
    Sync {
        /// The file.
        file: FileId,
    },
    /// The request is complete.
    Done {
        /// Which.
        request: RequestId,
    },
    /// The request failed. Pages that were served before belong to it no longer.
    Fail {
        /// Which.
        request: RequestId,
        /// Why.
        error: Error,
    },
    /// `page` may be read in `frame` without a lock; a page published before gets a new marker.
    Publish {
        /// The page.
        page: PageId,
        /// Where it is.
        frame: FrameId,
        /// What a [`Hit`] has to carry.
        generation: u32,
        /// Its use triggers a readahead: the reader sends `Marker`.
        marker: bool,
    },
    /// The frame's page may be read without a lock no longer. If a reader holds it: `Pinned`.
    Retract {
        /// The frame.
        frame: FrameId,
        /// The page left its file: it must not be found again even if a reader holds the frame.
        /// Otherwise a page whose frame is held stays where it is.
        gone: bool,
    },
    /// A readahead decision was carried out; only with `Settings::explain`.
    Explain {
        /// For whom.
        handle: HandleId,
        /// The page that triggered it.
        page: PageIndex,
        /// What was decided.
        decision: Decision,
        /// How many of its pages were neither resident nor in flight.
        fresh: u32,
    },
    /// Pages that a window had read ahead met their fates; only with `Settings::explain`.
    Fate {
        /// The window: how many `Explain`s came before its own.
        window: u32,
        /// How many pages, by fate.
        fates: Fates,
    },
}

/// What became of pages that were read ahead: how many of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// Resident when they were first asked for.
    pub used: u32,
    /// In flight when they were first asked for.
    pub late: u32,
    /// Gone before anybody asked for them.
    pub wasted: u32,
    /// Not to be had from the store.
    pub failed: u32,
}

impl core::ops::AddAssign for Fates {
    fn add_assign(&mut self, more: Self) {
        self.used += more.used;
        self.late += more.late;
        self.wasted += more.wasted;
        self.failed += more.failed;
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The store failed to read. The page stays absent, so the next read tries again.
    Store {
        /// The page that could not be read.
        page: PageId,
        /// What the store said.
        errno: i32,
    },
    /// Written bytes could not be made durable. They are kept, and written again later.
    Writeback {
        /// What the store said.
        errno: i32,
    },
    /// The request reaches beyond the file's end, or the file shrank under it.
    PastEnd {
        /// The first page beyond.
        page: PageIndex,
        /// Pages in the file.
        file_pages: u64,
    },
    /// The file changed under the request: its pages would be of two versions.
    Changed {
        /// The page that changed.
        page: PageIndex,
    },
    /// Every frame of the partition was held, dirty or in flight until the wait limit passed.
    NoFrames {
        /// The partition's frames.
        capacity: u32,
    },
    /// A table is full; fewer requests at once will do.
    Busy {
        /// The setting that bounds it.
        bound: u32,
    },
    /// The request itself is larger than the cache can ever hold at once.
    TooLarge {
        /// Its pages.
        pages: u32,
        /// What it may have.
        bound: u32,
    },
    /// The request was cancelled.
    Cancelled,
}

impl Error {
    /// The errno that front ends answer with: the only such table.
    #[must_use]
    pub fn errno(self) -> i32 {
        match self {
            Self::Store { errno, .. } | Self::Writeback { errno } => errno,
            Self::PastEnd { .. } | Self::TooLarge { .. } => EINVAL,
            Self::Changed { .. } => ESTALE,
            Self::NoFrames { .. } | Self::Busy { .. } => EAGAIN,
            Self::Cancelled => ECANCELED,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Store { page, errno } => {
                write!(f, "the store failed at page {}: errno {errno}", page.index)
            }
            Self::Writeback { errno } => {
                write!(f, "written bytes are not durable yet: errno {errno}; they are kept")
            }
            Self::PastEnd { page, file_pages } => {
                write!(f, "page {page} is beyond the end of a file of {file_pages} pages")
            }
            Self::Changed { page } => write!(f, "the file changed at page {page}: read it again"),
            Self::NoFrames { capacity } => {
                write!(f, "no frame came free: all {capacity} are held, dirty or in flight")
            }
            Self::Busy { bound } => write!(f, "more than {bound} requests wait already"),
            Self::TooLarge { pages, bound } => {
                write!(f, "a request of {pages} pages; at most {bound} fit")
            }
            Self::Cancelled => write!(f, "cancelled"),
        }
    }
}

impl core::error::Error for Error {}

/// What a call appended: actions, and the frames that fetches and writes name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// The actions, in order.
    pub list: Vec<Action>,
    /// Frames of [`Action::Fetch`] and [`Action::Write`].
    pub frames: Vec<FrameId>,
}

impl Actions {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self { list: Vec::new(), frames: Vec::new() }
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.frames.clear();
    }

    /// The frames of `action`: none unless it is a fetch or a write.
    #[must_use]
    pub fn frames_of(&self, action: Action) -> &[FrameId] {
        if let Action::Fetch { count, frames_at, .. } | Action::Write { count, frames_at, .. } =
            action
        {
            self.run(frames_at, count)
        } else {
            &[]
        }
    }

    /// The frames of a fetch or a write.
    #[must_use]
    pub fn run(&self, frames_at: u32, count: u32) -> &[FrameId] {
        let at = frames_at as usize;
        &self.frames[at..at + count as usize]
    }
}

const EAGAIN: i32 = 11;
const EINVAL: i32 = 22;
const ESTALE: i32 = 116;
const ECANCELED: i32 = 125;
