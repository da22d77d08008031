//! An open file: its store, its queues, its length, and the fetches of its pages.
//!
//! ```text
//!   a completed fetch:
//!   first        first + whole                  first + frames.len()
//!     |== whole ======|== cut =|== nothing =======|
//!     |<-- Arrived -->|<-------- Failed --------->|
//! ```
//!
//! The last page of a file may be partial: its bytes beyond the end are zero.
//!
//! # Invariants
//! - A handle serves one version. Each fetch compares versions after its bytes arrived, so a page
//!   of another version never becomes resident; `watch.rs` compares files that are only hit, and
//!   `version.rs` tells own writes from those of others.
//! - A page counts as arrived only if all its bytes within the file arrived.
//! - A completion of more bytes than were requested, or with an invalid errno, fails with `EIO`.
//! - A store that ends before the length that is known of it is an error, never zeros.
//! # Sources
//! A write changes the time of modification before it changes bytes (Linux `file_update_time`,
//! called first by every file system's write), so bytes that arrived before an unchanged version
//! was seen are not of a later version. They are not of an earlier one either, as an open takes the
//! version only when no write that it covers is in progress ([`Store::settled_version`]). Two
//! writes within one tick of the file system's clock look alike to file systems without
//! fine-grained times (Linux before 6.13); a write through a shared mapping changes the time late
//! or not at all.

use std::sync::{Arc, OnceLock};

use forerun_core::units::{FileId, FrameId, PageIndex};
use forerun_io::{
    frames::Frames,
    store::{Completion, Op, OpKind, Queue, Store, Version},
};

mod length;
mod writeback;

pub(crate) use self::length::Length;
pub(crate) use self::writeback::{Job, Unsubmitted, Writeback, Written};
pub(crate) use crate::version::{FileState, FileStateCell};
use crate::{
    background::Background,
    error::{CUT, EIO, ReadError},
    guard::unless_panics,
    queues::Queues,
    version::VersionCell,
};

/// An open file.
pub(crate) struct File {
    pub(crate) id: FileId,
    pub(crate) store: Arc<dyn Store>,
    /// What the store cannot grow beyond.
    pub(crate) bytes_max: u64,
    /// The version of its pages.
    pub(crate) version: VersionCell,
    pub(crate) length: Length,
    pub(crate) page_bytes: u32,
    /// The queues of readers.
    pub(crate) queues: Queues,
    /// The queue of readahead.
    pub(crate) ahead: Arc<dyn Queue>,
    /// The reaper of readahead.
    pub(crate) background: Arc<Background<Job>>,
    /// What writes to the store, from the first handle that may write on.
    pub(crate) writer: OnceLock<Writer>,
    pub(crate) state: FileStateCell,
}

/// The queue of writes and syncs of a file, and its reaper.
pub(crate) struct Writer {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) background: Arc<Background<Job>>,
}

impl File {
    /// The length that reads see.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.length.bytes()
    }

    /// The number of pages, a partial last one included.
    pub(crate) fn pages(&self) -> u64 {
        self.bytes().div_ceil(u64::from(self.page_bytes))
    }

    /// Ends the file unless it has ended; returns whether it was current.
    pub(crate) fn end(&self, file_state: FileState) -> bool {
        self.state.end(file_state)
    }

    /// Refuses a read of a file that has ended.
    #[inline]
    pub(crate) fn require_current(&self) -> Result<(), ReadError> {
        match self.state.get() {
            FileState::Current => Ok(()),
            FileState::Changed => Err(ReadError::Changed),
            FileState::Shrunk => Err(ReadError::Shrunk { file_bytes: self.bytes() }),
            FileState::Closed => Err(ReadError::Closed),
        }
    }

    /// The file state by the store's version now, or the errno of a store that fails to give one.
    pub(crate) fn compare(&self) -> Result<FileState, i32> {
        self.version.compare(|| self.store_version())
    }

    /// The store's version now.
    pub(crate) fn store_version(&self) -> Result<Version, i32> {
        let version = unless_panics(|| self.store.version());
        version.map_or(Err(EIO), |version| version.map_err(|error| error.errno()))
    }

    /// The store's length now.
    fn store_bytes(&self) -> Result<u64, i32> {
        let bytes = unless_panics(|| self.store.bytes());
        bytes.map_or(Err(EIO), |bytes| bytes.map_err(|error| error.errno()))
    }

    /// Closes the background queues of a file without handles, and their reapers.
    pub(crate) fn close(&self) {
        self.ahead.close();
        self.background.file_closed(&self.ahead);
        if let Some(writer) = self.writer.get() {
            writer.queue.close();
            writer.background.file_closed(&writer.queue);
        }
    }
}

/// One fetch: pages of a file, to be read from its store into frames.
pub(crate) struct Fetch {
    pub(crate) file: Arc<File>,
    pub(crate) first: PageIndex,
    /// The frames of the pages, in order.
    pub(crate) frames: Vec<FrameId>,
    /// The bytes of the pages that the store holds.
    bytes: usize,
    /// Whether the fetch is readahead, which the file's background carries out and counts.
    pub(crate) background: bool,
}

/// The result of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Pages that arrived whole, from the first on.
    pub(crate) whole: u32,
    /// The errno of the other pages.
    pub(crate) errno: i32,
    /// Bytes that arrived.
    pub(crate) bytes: u64,
    /// The new state of a file that is no longer current.
    pub(crate) file_state: Option<FileState>,
}

impl Fetch {
    /// A fetch of `frames.len()` pages from `first` on; under the state's lock.
    pub(crate) fn new(
        file: Arc<File>,
        first: PageIndex,
        frames: Vec<FrameId>,
        background: bool,
    ) -> Self {
        let page_bytes = u64::from(file.page_bytes);
        let (offset, room) = (first * page_bytes, page_bytes * frames.len() as u64);
        assert!(offset < file.length.extent(), "a fetch begins within its file");
        let bytes = room.min(file.length.stored().saturating_sub(offset));
        let bytes = usize::try_from(bytes).expect("frames fit in memory");
        Self { file, first, frames, bytes, background }
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.frames.len()).expect("at most request_pages_max")
    }

    /// Checks the frames out and builds the store's operation.
    pub(crate) fn op(&self, token: u64, frames: &Frames) -> Op {
        let offset = self.first * u64::from(self.file.page_bytes);
        let frames = self.frames.iter().map(|&frame| frames.check_out(frame)).collect();
        Op { token, kind: OpKind::Read, offset, bytes: self.bytes, frames }
    }

    /// Checks the frames of the completed operation in. A store that has panicked gives back an
    /// operation without them, or none: they were checked in when it dropped them.
    pub(crate) fn put_back(&self, op: Op, frames: &Frames) {
        for (&id, frame) in self.frames.iter().zip(op.frames) {
            assert_eq!(frame.id(), Some(id), "an operation keeps the order of its frames");
            frames.check_in(frame);
        }
    }

    /// Whether the store has kept a frame of the operation: a later operation cannot have it.
    pub(crate) fn is_kept_by_store(&self, frames: &Frames) -> bool {
        self.frames.iter().any(|&frame| frames.is_checked_out(frame))
    }

    /// The result of an operation that the store has lost.
    pub(crate) fn lost() -> Outcome {
        Outcome { whole: 0, errno: EIO, bytes: 0, file_state: None }
    }

    /// The result, after comparing the file's version.
    pub(crate) fn outcome(&self, done: &Completion) -> Outcome {
        if done.op.frames.len() < self.frames.len() {
            return Self::lost();
        }
        let moved = self.moved(done);
        let bytes = moved.unwrap_or(0) as u64;
        let failed = |errno, file_state| Outcome { whole: 0, errno, bytes, file_state };
        match (moved, self.file.compare()) {
            (_, Ok(file_state)) if file_state != FileState::Current => {
                failed(EIO, Some(file_state))
            }
            (Err(errno), _) | (Ok(_), Err(errno)) => failed(errno, None),
            (Ok(moved), Ok(_)) if moved == self.bytes => {
                Outcome { whole: self.count(), errno: 0, bytes, file_state: None }
            }
            (Ok(moved), Ok(_)) if self.is_cut_to(moved) => {
                let whole = moved / self.file.page_bytes as usize;
                let whole = u32::try_from(whole).expect("at most the fetch's pages");
                Outcome { whole, errno: CUT, bytes, file_state: None }
            }
            (Ok(moved), Ok(_)) => {
                let whole = moved / self.file.page_bytes as usize;
                let whole = u32::try_from(whole).expect("at most the fetch's pages");
                let length = self.file.store_bytes();
                let shrank = length.is_ok_and(|bytes| bytes < self.file.length.stored());
                let file_state = shrank.then_some(FileState::Shrunk);
                Outcome { whole, errno: EIO, bytes, file_state }
            }
        }
    }

    /// Whether `moved` bytes are all that an own cut of the file, which came meanwhile, has left of
    /// the fetch.
    fn is_cut_to(&self, moved: usize) -> bool {
        let offset = self.first * u64::from(self.file.page_bytes);
        let left = self.file.length.stored().saturating_sub(offset);
        left < self.bytes as u64 && moved as u64 >= left
    }

    /// The bytes that moved, or a valid errno.
    fn moved(&self, done: &Completion) -> Result<usize, i32> {
        match done.result {
            Ok(moved) if moved <= self.bytes => Ok(moved),
            Ok(_) => Err(EIO),
            Err(errno) => Err(valid(errno)),
        }
    }
}

/// `errno`, or `EIO` for a number that is none.
pub(crate) fn valid(errno: i32) -> i32 {
    if errno > 0 && errno < i32::MAX { errno } else { EIO }
}
