//! Writes of dirty pages to a store, and syncs: what the background of a file carries out beside
//! readahead.
//!
//! ```text
//!   Action::Write --> frames are shared with the operation --> Written, WriteFailed
//!   Action::Sync  ------------------------------------------> Synced
//! ```
//!
//! # Invariants
//! - A frame that is written is pinned until the operation has completed: no writer changes the
//!   bytes meanwhile, and readers go on reading them.
//! - A page is written only if all its bytes within the file are, so a short write fails from its
//!   first incomplete page on.
//! - An own write never ends the version of its file (`version.rs`).

use std::sync::Arc;

use forerun_core::units::{FrameId, PageIndex};
use forerun_io::{
    frames::Frames,
    store::{Completion, Op, OpKind},
};

use super::{Fetch, File, valid};
use crate::error::EIO;

/// An operation of a file's background.
pub(crate) enum Job {
    /// Readahead.
    Fetch(Fetch),
    /// A write or a sync.
    Write(Writeback),
}

/// One write of pages, or one sync.
pub(crate) struct Writeback {
    pub(crate) file: Arc<File>,
    first: PageIndex,
    /// The frames of the pages, in order; none: a sync.
    frames: Vec<FrameId>,
    bytes: usize,
}

/// A write or a sync that is not submitted yet, and its operation.
pub(crate) struct Unsubmitted {
    pub(crate) writeback: Writeback,
    pub(crate) op: Op,
}

/// The result of a write or a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Pages from the first on that the store took, and the errno of the others.
    Pages { first: FrameId, whole: u32, count: u32, errno: i32 },
    /// The errno of a sync; 0: it succeeded.
    Sync { errno: i32 },
}

impl Writeback {
    /// A write of `ids` from page `first` on; under the state's lock.
    pub(crate) fn pages(
        file: Arc<File>,
        first: PageIndex,
        ids: &[FrameId],
        frames: &Frames,
    ) -> Unsubmitted {
        let page_bytes = u64::from(file.page_bytes);
        let (offset, room) = (first * page_bytes, page_bytes * ids.len() as u64);
        let bytes = room.min(file.bytes().saturating_sub(offset));
        assert!(bytes > room - page_bytes, "every page that is written lies within the file");
        let bytes = usize::try_from(bytes).expect("frames fit in memory");
        let token = u64::from(ids[0].0);
        let shared = ids.iter().map(|&id| frames.share(id)).collect();
        let op = Op { token, kind: OpKind::Write, offset, bytes, frames: shared };
        Unsubmitted { writeback: Self { file, first, frames: ids.to_vec(), bytes }, op }
    }

    /// A sync of `file`. One at a time of each file is in flight.
    pub(crate) fn sync(file: Arc<File>) -> Unsubmitted {
        let token = SYNCS_FROM + u64::from(file.id.0);
        let op = Op { token, kind: OpKind::Sync, offset: 0, bytes: 0, frames: Vec::new() };
        Unsubmitted { writeback: Self { file, first: 0, frames: Vec::new(), bytes: 0 }, op }
    }

    /// The frame of the `nth` page.
    pub(crate) fn frame(&self, nth: u32) -> Option<FrameId> {
        self.frames.get(nth as usize).copied()
    }

    /// The result of the completed operation, whose frames are no longer shared; `None`: the store
    /// has lost it.
    pub(crate) fn outcome(&self, done: Option<Completion>) -> Written {
        let result = done.map_or(Err(EIO), |Completion { result, .. }| result);
        let Some(&first) = self.frames.first() else {
            return Written::Sync { errno: result.map_or_else(valid, |_| 0) };
        };
        let count = u32::try_from(self.frames.len()).expect("at most request_pages_max");
        let (moved, errno) = match result {
            Ok(moved) if moved <= self.bytes => (moved, EIO),
            Ok(_) => (0, EIO),
            Err(errno) => (0, valid(errno)),
        };
        let page_bytes = self.file.page_bytes as usize;
        let whole = if moved == self.bytes { self.frames.len() } else { moved / page_bytes };
        let whole = u32::try_from(whole).expect("at most the frames");
        if moved > 0 {
            let offset = self.first * u64::from(self.file.page_bytes);
            self.file.length.write_stored(offset + moved as u64);
        }
        Written::Pages { first, whole, count, errno }
    }
}

/// Tokens of syncs; those of other operations are the number of their first frame.
const SYNCS_FROM: u64 = 1 << 32;
