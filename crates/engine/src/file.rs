//! An open file: its store, its queues, whether its version is still that of its opening, and the
//! fetches of its pages.
//!
//! ```text
//!   Current --+--> Changed   the store has another version
//!             +--> Shrunk    the same, and a shorter one
//!             +--> Closed    the cache was closed
//!
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
//!   of another version never becomes resident; `watch.rs` compares files that are only hit.
//! - A file state never returns to `Current`: a reader of the new bytes opens the file anew.
//! - A page counts as arrived only if all its bytes within the file arrived.
//! - A completion of more bytes than were requested, or with an invalid errno, fails with `EIO`.
//! - A store that ends before the file's length at its opening is an error, never zeros.
//! # Sources
//! A write changes the time of modification before it changes bytes (Linux `file_update_time`,
//! called first by every file system's write), so bytes that arrived before an unchanged version
//! was seen are not of a later version. They are not of an earlier one either, as an open takes the
//! version only when no write that it covers is in progress ([`Store::settled_version`]). Two
//! writes within one tick of the file system's clock look alike to file systems without
//! fine-grained times (Linux before 6.13); a write through a shared mapping changes the time late
//! or not at all.

use std::sync::Arc;

use forerun_core::units::{FileId, FrameId, PageIndex};
use forerun_io::{
    frames::Frames,
    store::{Completion, Op, OpKind, Queue, Store, Version},
    sync::{AtomicU8, Ordering},
};

use crate::{
    background::Background,
    error::{EIO, ReadError},
    queues::Queues,
};

/// An open file.
pub(crate) struct File {
    pub(crate) id: FileId,
    pub(crate) store: Arc<dyn Store>,
    /// The version at the opening.
    pub(crate) version: Version,
    /// The length at the opening.
    pub(crate) bytes: u64,
    pub(crate) page_bytes: u32,
    /// The queues of readers.
    pub(crate) queues: Queues,
    /// The queue of readahead.
    pub(crate) ahead: Arc<dyn Queue>,
    /// The reaper of readahead.
    pub(crate) background: Arc<Background<Fetch>>,
    pub(crate) state: FileStateCell,
}

/// Whether a file may still be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileState {
    Current,
    Changed,
    Shrunk,
    Closed,
}

/// A file state that changes at most once.
#[derive(Default)]
pub(crate) struct FileStateCell(AtomicU8);

impl File {
    /// The number of pages, a partial last one included.
    pub(crate) fn pages(&self) -> u64 {
        self.bytes.div_ceil(u64::from(self.page_bytes))
    }

    pub(crate) fn state(&self) -> FileState {
        const STATES: [FileState; 4] =
            [FileState::Current, FileState::Changed, FileState::Shrunk, FileState::Closed];
        STATES[usize::from(self.state.0.load(Ordering::Acquire))]
    }

    /// Ends the file unless it has ended; returns whether it was current.
    pub(crate) fn end(&self, file_state: FileState) -> bool {
        let (current, new) = (FileState::Current as u8, file_state as u8);
        let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
        self.state.0.compare_exchange(current, new, done, seen).is_ok()
    }

    /// Refuses a read of a file that has ended.
    pub(crate) fn require_current(&self) -> Result<(), ReadError> {
        match self.state() {
            FileState::Current => Ok(()),
            FileState::Changed => Err(ReadError::Changed),
            FileState::Shrunk => Err(ReadError::Shrunk { file_bytes: self.bytes }),
            FileState::Closed => Err(ReadError::Closed),
        }
    }

    /// The file state by the store's version now, or the errno of a store that fails to give one.
    pub(crate) fn compare(&self) -> Result<FileState, i32> {
        let now = self.store.version().map_err(|error| error.errno())?;
        Ok(if now == self.version {
            FileState::Current
        } else if now.bytes < self.version.bytes {
            FileState::Shrunk
        } else {
            FileState::Changed
        })
    }

    /// Closes the readahead queue of a file without handles, and its background.
    pub(crate) fn close(&self) {
        self.ahead.close();
        self.background.file_closed(&self.ahead);
    }
}

/// One fetch: pages of a file, to be read from its store into frames.
pub(crate) struct Fetch {
    pub(crate) file: Arc<File>,
    pub(crate) first: PageIndex,
    /// The frames of the pages, in order.
    pub(crate) frames: Vec<FrameId>,
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
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.frames.len()).expect("at most request_pages_max")
    }

    /// Checks the frames out and builds the store's operation.
    pub(crate) fn op(&self, token: u64, frames: &Frames) -> Op {
        let (offset, bytes) = (self.offset(), self.bytes());
        let frames = self.frames.iter().map(|&frame| frames.check_out(frame)).collect();
        Op { token, kind: OpKind::Read, offset, bytes, frames }
    }

    fn offset(&self) -> u64 {
        self.first * u64::from(self.file.page_bytes)
    }

    /// The bytes of the pages within the file.
    fn bytes(&self) -> usize {
        let offset = self.offset();
        assert!(offset < self.file.bytes, "a fetch begins within its file");
        let room = u64::from(self.file.page_bytes) * self.frames.len() as u64;
        let bytes = room.min(self.file.bytes - offset);
        usize::try_from(bytes).expect("frames fit in memory")
    }

    /// Checks the frames of the completed operation in.
    pub(crate) fn put_back(&self, op: Op, frames: &Frames) {
        assert_eq!(op.frames.len(), self.frames.len(), "an operation keeps its frames");
        for (&id, frame) in self.frames.iter().zip(op.frames) {
            assert_eq!(frame.id(), Some(id), "an operation keeps the order of its frames");
            frames.check_in(frame);
        }
    }

    /// The result, after comparing the file's version.
    pub(crate) fn outcome(&self, done: &Completion) -> Outcome {
        let moved = self.moved(done);
        let bytes = moved.unwrap_or(0) as u64;
        let failed = |errno, file_state| Outcome { whole: 0, errno, bytes, file_state };
        match (moved, self.file.compare()) {
            (_, Ok(file_state)) if file_state != FileState::Current => {
                failed(EIO, Some(file_state))
            }
            (Err(errno), _) | (Ok(_), Err(errno)) => failed(errno, None),
            (Ok(moved), Ok(_)) if moved == self.bytes() => {
                Outcome { whole: self.count(), errno: 0, bytes, file_state: None }
            }
            (Ok(moved), Ok(_)) => {
                let whole = moved / self.file.page_bytes as usize;
                let whole = u32::try_from(whole).expect("at most the fetch's pages");
                let length = self.file.store.bytes();
                let shrank = length.is_ok_and(|bytes| bytes < self.file.bytes);
                let file_state = shrank.then_some(FileState::Shrunk);
                Outcome { whole, errno: EIO, bytes, file_state }
            }
        }
    }

    /// The bytes that moved, or a valid errno.
    fn moved(&self, done: &Completion) -> Result<usize, i32> {
        match done.result {
            Ok(moved) if moved <= self.bytes() => Ok(moved),
            Ok(_) => Err(EIO),
            Err(errno) => Err(if errno > 0 && errno < i32::MAX { errno } else { EIO }),
        }
    }
}
