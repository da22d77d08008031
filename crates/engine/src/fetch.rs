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
//! - The file's version is compared after the bytes came. Of another version nothing has arrived,
//!   and a store that ends before the file did when it was opened is an error, never zeros.

use std::sync::Arc;

use forerun_core::units::{FrameId, PageIndex};
use forerun_io::{
    frames::Frames,
    store::{Done, Op, OpKind},
};

use crate::{
    error::EIO,
    file::{File, Standing},
};

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
    /// What has become of the file, if it is no longer what it was.
    pub(crate) standing: Option<Standing>,
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
            assert_eq!(frame.id(), Some(id), "an operation keeps the order of its frames");
            frames.put(frame);
        }
    }

    /// What came, after a look at the file's version.
    pub(crate) fn outcome(&self, done: &Done) -> Outcome {
        let moved = self.moved(done);
        let bytes = moved.unwrap_or(0) as u64;
        let failed = |errno, standing| Outcome { whole: 0, errno, bytes, standing };
        match (moved, self.file.compare()) {
            (_, Ok(standing)) if standing != Standing::Current => failed(EIO, Some(standing)),
            (Err(errno), _) | (Ok(_), Err(errno)) => failed(errno, None),
            (Ok(moved), Ok(_)) if moved == self.bytes() => {
                Outcome { whole: self.count(), errno: 0, bytes, standing: None }
            }
            (Ok(moved), Ok(_)) => {
                let whole = moved / self.file.page_bytes as usize;
                let whole = u32::try_from(whole).expect("at most the fetch's pages");
                let length = self.file.store.bytes();
                let shrank = length.is_ok_and(|bytes| bytes < self.file.bytes);
                let standing = shrank.then_some(Standing::Shrunk);
                Outcome { whole, errno: EIO, bytes, standing }
            }
        }
    }

    /// The bytes that moved, or an errno in earnest.
    fn moved(&self, done: &Done) -> Result<usize, i32> {
        match done.result {
            Ok(moved) if moved <= self.bytes() => Ok(moved),
            Ok(_) => Err(EIO),
            Err(errno) => Err(if errno > 0 && errno < i32::MAX { errno } else { EIO }),
        }
    }
}
