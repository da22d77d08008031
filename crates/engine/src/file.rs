//! An open file: its store, the ways to it, whether its bytes are still those of its opening, and
//! the fetches of its pages.
//!
//! ```text
//!   Current --+--> Changed   another version is there
//!             +--> Shrunk    so, and shorter
//!             +--> Closed    the cache was closed
//!
//!   a fetch that came back:
//!   first        first + whole                  first + frames.len()
//!     |== whole ======|== cut =|== nothing =======|
//!     |<-- Arrived -->|<-------- Failed --------->|
//! ```
//!
//! The last page of a file may be partial: what is beyond the end is zero.
//!
//! # Invariants
//! - A handle serves one version. Each fetch compares versions after its bytes came, so a page of
//!   another version never becomes resident; `watch.rs` compares those of files that are only hit.
//! - A standing never goes back to `Current`: a reader of the new bytes opens the file anew.
//! - A page counts as arrived only if all its bytes within the file came.
//! - A store that reports more bytes than were requested is believed nothing, and an errno that is
//!   none becomes `EIO`.
//! - Of another version nothing arrives, and a store that ends before the file did when it was
//!   opened is an error, never zeros.
//! # Sources
//! A write changes the time of modification before it changes bytes (Linux `file_update_time`,
//! called first by every file system's write), so bytes that came before an unchanged version was
//! seen are none of a later one. They are none of an earlier one either, as a version is taken at
//! the opening only when no write that it tells of is under way ([`Store::settled_version`]). Two
//! writes within one tick of the file system's clock look alike to file systems without
//! fine-grained times (Linux before 6.13); a write through a shared mapping
//! changes the time late or not at all.

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
    /// What it was when it was opened.
    pub(crate) version: Version,
    /// Its length then.
    pub(crate) bytes: u64,
    pub(crate) page_bytes: u32,
    /// For readers.
    pub(crate) queues: Queues,
    /// Where readahead is submitted.
    pub(crate) ahead: Arc<dyn Queue>,
    /// What reaps it.
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

/// A standing that changes once.
#[derive(Default)]
pub(crate) struct FileStateCell(AtomicU8);

impl File {
    /// Its pages, the last one perhaps in part.
    pub(crate) fn pages(&self) -> u64 {
        self.bytes.div_ceil(u64::from(self.page_bytes))
    }

    pub(crate) fn state(&self) -> FileState {
        const STATES: [FileState; 4] =
            [FileState::Current, FileState::Changed, FileState::Shrunk, FileState::Closed];
        STATES[usize::from(self.state.0.load(Ordering::Acquire))]
    }

    /// Ends the file, unless it has ended. Whether it was current.
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

    /// Compares the version that is there now; the errno of a store that would not say.
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

    /// Ends the background of a file that nobody has open, as soon as its store can.
    pub(crate) fn close(&self) {
        self.ahead.close();
        self.background.file_closed(&self.ahead);
    }
}

/// One fetch: pages of a file on their way from its store into frames.
pub(crate) struct Fetch {
    pub(crate) file: Arc<File>,
    pub(crate) first: PageIndex,
    /// Where the pages go, in order.
    pub(crate) frames: Vec<FrameId>,
    /// No reader waits for it: it goes to the file's background, and is counted there.
    pub(crate) background: bool,
}

/// What came of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Pages that came whole, from the first on.
    pub(crate) whole: u32,
    /// Why the others did not.
    pub(crate) errno: i32,
    /// Bytes that came.
    pub(crate) bytes: u64,
    /// What has become of the file, if it is no longer what it was.
    pub(crate) file_state: Option<FileState>,
}

impl Fetch {
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.frames.len()).expect("at most request_pages_max")
    }

    /// Takes the frames out and makes the store's operation of them.
    pub(crate) fn op(&self, token: u64, frames: &Frames) -> Op {
        let (offset, bytes) = (self.offset(), self.bytes());
        let frames = self.frames.iter().map(|&frame| frames.check_out(frame)).collect();
        Op { token, kind: OpKind::Read, offset, bytes, frames }
    }

    fn offset(&self) -> u64 {
        self.first * u64::from(self.file.page_bytes)
    }

    /// What of its pages lies within the file.
    fn bytes(&self) -> usize {
        let offset = self.offset();
        assert!(offset < self.file.bytes, "a fetch begins within its file");
        let room = u64::from(self.file.page_bytes) * self.frames.len() as u64;
        let bytes = room.min(self.file.bytes - offset);
        usize::try_from(bytes).expect("frames fit in memory")
    }

    /// Puts the frames of its operation back.
    pub(crate) fn put_back(&self, op: Op, frames: &Frames) {
        assert_eq!(op.frames.len(), self.frames.len(), "an operation keeps its frames");
        for (&id, frame) in self.frames.iter().zip(op.frames) {
            assert_eq!(frame.id(), Some(id), "an operation keeps the order of its frames");
            frames.check_in(frame);
        }
    }

    /// What came, after a look at the file's version.
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

    /// The bytes that moved, or an errno in earnest.
    fn moved(&self, done: &Completion) -> Result<usize, i32> {
        match done.result {
            Ok(moved) if moved <= self.bytes() => Ok(moved),
            Ok(_) => Err(EIO),
            Err(errno) => Err(if errno > 0 && errno < i32::MAX { errno } else { EIO }),
        }
    }
}
