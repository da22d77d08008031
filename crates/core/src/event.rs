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
//!   reader has pinned, and then `Settled`. The cache asserts it.
//! - Every `Read`, `Write`, `Flush` and `Change` is answered by one `Done` or one `Fail`, never
//!   both.
//! - A `Fetch` is answered for each of its frames, in order, by `Arrived` or `Failed`; a `Write`
//!   by `Written` or `WriteFailed`; a `Sync` by `Synced`; a `Fill` by `Filled`; a `Change` by
//!   `Changed`.
//!
//! # Journals
//! The two tables below are the only definition of events and actions: the types, their encoding
//! in a journal and the names under which a journal prints them come from here. The number behind
//! a name is its tag in the record; the fields follow in the order of declaration, as
//! [`codec`] writes their types.
//!
//! **Versions.** A journal carries [`codec::VERSION`]. A change of a tag, or of the order, the
//! number or the types of the fields behind one, raises it: older journals are then refused. A
//! new event or action at the end takes the next free tag and leaves the version: older journals
//! read as they were written. The settings in a journal's head are text; a key more there raises
//! the version too. The layout of the file around the records has a version of its own,
//! `forerun_engine::journal::FORMAT`.

use alloc::vec::Vec;

use crate::readahead::{Cause, StreamId, Window};
use crate::units::{FileId, FrameId, HandleId, PageId, PageIndex, PartitionId, RequestId};

pub mod codec;
mod error;

pub use error::Error;

/// A use of a published page, recorded by a reader without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The frame it found.
    pub frame: FrameId,
    /// The generation that was published with it; the hit is stale if the frame has another now.
    pub generation: u32,
}

codec::records! { decoded
    /// What happened.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Event<'a> {
        /// A handle was opened. Before,
        /// [`Cache::check_open`](crate::cache::Cache::check_open) says whether it may be.
        Open = 1 {
            /// The handle; its number is not in use.
            handle: HandleId,
            /// What it reads and writes.
            file: FileId,
            /// Where the pages go that are fetched for it, but for those that a rule of offsets has
            /// in another partition.
            partition: PartitionId,
            /// Pages in the file, the last one perhaps in part.
            file_pages: u64,
        },
        /// A handle without requests was closed.
        Close = 2 {
            /// The handle.
            handle: HandleId,
        },
        /// A reader wants pages `first..first + count`, cut to the file's end by the driver.
        Read = 3 {
            /// The reader's name for this read.
            request: RequestId,
            /// The reading handle.
            handle: HandleId,
            /// The first page.
            first: PageIndex,
            /// Pages; at least 1.
            count: u32,
            /// Whether the device has more to do than it should be given ahead of need.
            congested: bool,
            /// The byte after this handle's previous read, if there was one.
            previous_end: Option<u64>,
        },
        /// Uses of published pages since the last batch, in order.
        Hits = 4 {
            /// The uses.
            hits: &'a [Hit],
        },
        /// A reader without a lock met a page that carries the marker.
        Marker = 5 {
            /// The reading handle.
            handle: HandleId,
            /// What it found there.
            hit: Hit,
            /// Pages from there to the end of its request; at least 1.
            count: u32,
            /// As in `Read`.
            congested: bool,
            /// As in `Read`.
            previous_end: Option<u64>,
        },
        /// Pages `first..first + count` will be needed; no request waits for them. The absent
        /// ones, within the file and the bounds of readahead, are fetched as one window without a
        /// marker; what a bound or the lack of frames refuses is counted as dropped.
        Prefetch = 21 {
            /// Through which handle; to its readahead this is no read.
            handle: HandleId,
            /// The first page.
            first: PageIndex,
            /// Pages; at least 1.
            count: u32,
        },
        /// A writer has bytes for pages `first..first + count`.
        Write = 6 {
            /// The writer's name for this write.
            request: RequestId,
            /// The writing handle.
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
        Filled = 7 {
            /// The write that they are of.
            request: RequestId,
            /// The frame.
            frame: FrameId,
        },
        /// Everything written so far is to become durable.
        Flush = 8 {
            /// The caller's name for this flush.
            request: RequestId,
            /// Through which handle.
            handle: HandleId,
        },
        /// The caller of `request` gave up waiting.
        Cancel = 9 {
            /// The request; unknown ones are ignored.
            request: RequestId,
        },
        /// Frames of a fetch hold their bytes now: `first` and those that follow it in the fetch.
        Arrived = 10 {
            /// The first of them.
            first: FrameId,
            /// How many.
            count: u32,
        },
        /// Frames of a fetch got nothing.
        Failed = 11 {
            /// The first of them.
            first: FrameId,
            /// How many.
            count: u32,
            /// Why.
            errno: i32,
        },
        /// Frames of a write are in the store, though perhaps not durable.
        Written = 12 {
            /// The first of them.
            first: FrameId,
            /// How many.
            count: u32,
        },
        /// Frames of a write are not in the store.
        WriteFailed = 13 {
            /// The first of them.
            first: FrameId,
            /// How many.
            count: u32,
            /// Why.
            errno: i32,
        },
        /// The store's sync of `file` ended.
        Synced = 14 {
            /// The file.
            file: FileId,
            /// 0, or why it failed.
            errno: i32,
        },
        /// The file has `pages` pages now. Pages beyond are gone, written or not. No write of them
        /// may be in flight, as it would bring them back.
        Truncate = 15 {
            /// The file.
            file: FileId,
            /// Its pages.
            pages: u64,
        },
        /// Another program changed `first..first + count`: clean pages are stale.
        Invalidate = 16 {
            /// The file.
            file: FileId,
            /// The first page.
            first: PageIndex,
            /// Pages.
            count: u64,
        },
        /// A `Retract` met a reader: the frame stays as it was.
        Pinned = 17 {
            /// The frame.
            frame: FrameId,
        },
        /// Every `Retract` since the last `Settled` was carried out or reported as `Pinned`.
        Settled = 18,
        /// A partition may hold `frames` frames from now on.
        Resize = 19 {
            /// The partition.
            partition: PartitionId,
            /// Its share.
            frames: u32,
        },
        /// Time passed: see [`Cache::deadline`](crate::cache::Cache::deadline).
        Tick = 20,
        /// Pages `first..first + count` are to be changed in the store itself: zeroed, discarded or
        /// cut off. Answered by one `Done` or `Fail`.
        Change = 22 {
            /// The caller's name for this change.
            request: RequestId,
            /// Through which handle.
            handle: HandleId,
            /// The first page.
            first: PageIndex,
            /// Pages; those beyond the end of the file have no effect.
            count: u64,
            /// The first page keeps some of its bytes, which are durable before the change.
            keeps_first: bool,
            /// Pages of the file afterwards, where its length changes.
            file_pages: Option<u64>,
            /// Answer only when the change is durable, and what was written before.
            durable: bool,
        },
        /// The store made the change of a `Change`, or failed to.
        Changed = 23 {
            /// Its request.
            request: RequestId,
            /// 0, or why it failed.
            errno: i32,
        },
        /// A partition has another replacement policy from now on.
        Policy = 24 {
            /// The partition.
            partition: PartitionId,
            /// The policy's place in [`NAMES`](crate::eviction::NAMES).
            policy: u32,
        },
    }
}

impl Event<'_> {
    /// Whether a caller waits for the actions: what can be done later is.
    pub(crate) fn is_request(&self) -> bool {
        match self {
            Self::Open { .. }
            | Self::Close { .. }
            | Self::Read { .. }
            | Self::Hits { .. }
            | Self::Marker { .. }
            | Self::Prefetch { .. }
            | Self::Write { .. }
            | Self::Flush { .. }
            | Self::Change { .. }
            | Self::Cancel { .. } => true,
            Self::Filled { .. }
            | Self::Arrived { .. }
            | Self::Failed { .. }
            | Self::Written { .. }
            | Self::WriteFailed { .. }
            | Self::Synced { .. }
            | Self::Changed { .. }
            | Self::Truncate { .. }
            | Self::Invalidate { .. }
            | Self::Pinned { .. }
            | Self::Settled
            | Self::Resize { .. }
            | Self::Policy { .. }
            | Self::Tick => false,
        }
    }
}

/// Whether a request waits for a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchKind {
    /// It holds pages that a request demands.
    Demand,
    /// None of it was demanded yet.
    Readahead,
}

/// Frames that stand in a row in [`Actions::frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRun {
    /// Where the first of them stands.
    pub at: u32,
    /// How many there are.
    pub count: u32,
}

codec::records! {
    /// What the driver has to do, in this order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Action {
        /// Hand the bytes of `page` in `frame` to the reader.
        Serve = 1 {
            /// Its request.
            request: RequestId,
            /// The page of its file.
            page: PageIndex,
            /// Where the bytes are.
            frame: FrameId,
        },
        /// Copy the writer's bytes for `page` into `frame`, then send `Filled`.
        Fill = 2 {
            /// Its request.
            request: RequestId,
            /// The page of its file.
            page: PageIndex,
            /// Where the bytes go.
            frame: FrameId,
            /// The frame holds nothing yet: what the writer does not cover becomes zero.
            fresh: bool,
        },
        /// Read pages from the store into frames.
        Fetch = 3 or "Fetch ahead" {
            /// Whether a request waits.
            kind: FetchKind,
            /// The first page.
            page: PageId,
            /// Their frames.
            frames: FrameRun,
        },
        /// Write pages from frames to the store.
        Write = 5 {
            /// The first page.
            page: PageId,
            /// Their frames.
            frames: FrameRun,
        },
        /// Make what was written to the file durable.
        Sync = 6 {
            /// The file.
            file: FileId,
        },
        /// The request is complete.
        Done = 7 {
            /// The request.
            request: RequestId,
        },
        /// The request failed. Pages that were served before belong to it no longer.
        Fail = 8 {
            /// The request.
            request: RequestId,
            /// Why.
            error: Error,
        },
        /// `page` may be read in `frame` without a lock; a page published before gets a new marker.
        Publish = 9 {
            /// The page.
            page: PageId,
            /// Where it is.
            frame: FrameId,
            /// What a [`Hit`] has to carry.
            generation: u32,
            /// Its use triggers a readahead: the reader sends `Marker`.
            marker: bool,
        },
        /// The frame's page may be read without a lock no longer. If it is pinned: `Pinned`.
        Retract = 10 {
            /// The frame.
            frame: FrameId,
            /// The page left its file: it must not be found again even if a reader holds the frame.
            /// Otherwise a page whose frame is held stays where it is.
            gone: bool,
        },
        /// A readahead decision was carried out; only with `Settings::explain`.
        Explain = 11 {
            /// The handle that reads.
            handle: HandleId,
            /// The page that triggered it.
            page: PageIndex,
            /// What kind of readahead was decided.
            cause: Cause,
            /// Its pages.
            window: Window,
            /// How many of them were neither resident nor in flight.
            fresh: u32,
            /// The stream, where the policy names its streams.
            stream: Option<StreamId>,
        },
        /// Pages that a window had read ahead met their outcomes; only with `Settings::explain`.
        Outcomes = 12 {
            /// The window: how many `Explain`s came before its own.
            window: u32,
            /// How many pages, by outcome.
            outcomes: PrefetchOutcomes,
        },
        /// Have the store make the change of the request, then send `Changed`. The store writes no
        /// page of the file meanwhile.
        Change = 13 {
            /// The request.
            request: RequestId,
        },
    }
}

/// What became of pages that were read ahead: how many of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefetchOutcomes {
    /// Resident at their first use.
    pub used: u32,
    /// In flight at their first use.
    pub late: u32,
    /// Gone before their first use.
    pub wasted: u32,
    /// Not to be had from the store.
    pub failed: u32,
}

impl core::ops::AddAssign for PrefetchOutcomes {
    fn add_assign(&mut self, more: Self) {
        self.used += more.used;
        self.late += more.late;
        self.wasted += more.wasted;
        self.failed += more.failed;
    }
}

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

    /// The frames from `at` to the end, which are not empty.
    pub(crate) fn run_from(&self, at: usize) -> FrameRun {
        assert!(at < self.frames.len(), "a run has a frame");
        let number = |frames| u32::try_from(frames).expect("bounded by the frames");
        FrameRun { at: number(at), count: number(self.frames.len() - at) }
    }

    /// The frames of `action`: none unless it is a fetch or a write.
    #[must_use]
    pub fn frames_of(&self, action: Action) -> &[FrameId] {
        if let Action::Fetch { frames, .. } | Action::Write { frames, .. } = action {
            &self.frames[frames.at as usize..][..frames.count as usize]
        } else {
            &[]
        }
    }
}
