//! Why a request failed, and the errno that front ends answer with.
//!
//! # Invariants
//! - [`Error::errno`] is the only table from errors to errnos.

use core::fmt;

use crate::units::{PageId, PageIndex};

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
    /// Files whose store fails hold all pages that may be dirty, so waiting makes no room.
    DirtyFull {
        /// The pages that may be dirty.
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
            Self::NoFrames { .. } | Self::Busy { .. } | Self::DirtyFull { .. } => EAGAIN,
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
            Self::DirtyFull { bound } => {
                write!(f, "all {bound} pages that may be dirty belong to files whose store fails")
            }
            Self::TooLarge { pages, bound } => {
                write!(f, "a request of {pages} pages; at most {bound} fit")
            }
            Self::Cancelled => write!(f, "cancelled"),
        }
    }
}

impl core::error::Error for Error {}

const EAGAIN: i32 = 11;
const EINVAL: i32 = 22;
const ESTALE: i32 = 116;
const ECANCELED: i32 = 125;
