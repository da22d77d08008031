//! One fetch: pages of a file on their way from its store into frames.
//!
//! ```text
//!   first        first + whole                  first + frames.len()
//!     |== whole ======|== cut =|== nothing =======|
//!     |<-- Arrived -->|<-------- Failed --------->|
//! ```
//!
//! The last page of a file may be partial: what is beyond the end is zero and nobody's.
//!
//! # Invariants
//! - A page counts as arrived only if all its bytes within the file came.
//! - A store that says it moved more than it was asked for is believed nothing, and an
//!   errno that is none becomes `EIO`.
//! - A store that ends before the file did when it was opened is an error, never zeros.

use std::sync::Arc;

use forerun_core::units::{FileId, FrameId, PageIndex};
use forerun_io::{
    frames::Frames,
    store::{Done, Op, OpKind, Store},
};

use crate::{
    background::Background,
    error::{EIO, SHRUNK},
    queues::Queues,
};

/// An open file: its store, and the ways to it.
pub(crate) struct File {
    pub(crate) id: FileId,
    pub(crate) store: Arc<dyn Store>,
    /// Its length when it was opened.
    pub(crate) bytes: u64,
    pub(crate) page_bytes: u32,
    /// For readers.
    pub(crate) queues: Queues,
    /// For readahead.
    pub(crate) background: Background,
}

impl File {
    /// Its pages, the last one perhaps in part.
    pub(crate) fn pages(&self) -> u64 {
        self.bytes.div_ceil(u64::from(self.page_bytes))
    }
}

/// See the module.
pub(crate) struct Fetch {
    pub(crate) file: Arc<File>,
    pub(crate) first: PageIndex,
    /// Where the pages go, in order.
    pub(crate) frames: Vec<FrameId>,
    /// Nobody waits for it: it goes to the file's background, and is counted there.
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
}

impl Fetch {
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.frames.len()).expect("at most request_pages_max")
    }

    /// Takes the frames out and makes the store's operation of them.
    pub(crate) fn op(&self, token: u64, frames: &Frames) -> Op {
        let (offset, bytes) = (self.offset(), self.bytes());
        let frames = self.frames.iter().map(|&frame| frames.take(frame)).collect();
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
            assert_eq!(frame.id(), Some(id), "an operation keeps their order");
            frames.put(frame);
        }
    }

    /// What came. Asks the store for its length when less came than should have.
    pub(crate) fn outcome(&self, done: &Done) -> Outcome {
        let asked = self.bytes();
        match done.result {
            Ok(moved) if moved == asked => {
                Outcome { whole: self.count(), errno: 0, bytes: moved as u64 }
            }
            Ok(moved) if moved > asked => Outcome { whole: 0, errno: EIO, bytes: 0 },
            Ok(moved) => {
                let whole = moved / self.file.page_bytes as usize;
                let whole = u32::try_from(whole).expect("at most the fetch's pages");
                let length = self.file.store.bytes();
                let shrank = length.is_ok_and(|bytes| bytes < self.file.bytes);
                let errno = if shrank { SHRUNK } else { EIO };
                Outcome { whole, errno, bytes: moved as u64 }
            }
            Err(errno) => {
                let errno = if (1..SHRUNK).contains(&errno) { errno } else { EIO };
                Outcome { whole: 0, errno, bytes: 0 }
            }
        }
    }
}
