//! Why a file could not be opened or read.
//!
//! # Invariants
//! - Every error names its place and has an errno: [`ReadError::errno`] and [`OpenError::errno`]
//!   are the only such tables here; an error of the core keeps the core's.

use std::io;

use forerun_core::{
    cache::{self, SettingsError},
    event,
};
use forerun_io::{
    files::BackendError,
    frames::NoMemory,
    store::{EOPNOTSUPP, StoreError},
};

/// Why a read gave no bytes. The contents of its buffer are unspecified; the cache is intact, and
/// the next read tries again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The store failed.
    #[error("cannot read the page at byte {offset}: {}", io::Error::from_raw_os_error(*errno))]
    Store {
        /// Where the page begins.
        offset: u64,
        /// The store's reason.
        errno: i32,
    },
    /// Another program wrote, replaced or deleted the file since it was opened. Open it anew.
    #[error("the file changed since it was opened: open it again")]
    Changed,
    /// As `Changed`, and the file is shorter.
    #[error("the file shrank since it was opened, when it had {file_bytes} bytes: open it again")]
    Shrunk {
        /// The file's length when it was opened.
        file_bytes: u64,
    },
    /// The read was cancelled.
    #[error("the read was cancelled")]
    Cancelled,
    /// No frame came free in time. Use fewer readers or a larger cache.
    #[error("no frame came free: all {capacity} are pinned or in flight")]
    NoFrames {
        /// The number of frames.
        capacity: u32,
    },
    /// Too many reads at once. Try again.
    #[error("too many reads at once: at most {bound} {what}")]
    Busy {
        /// The resource that ran out.
        what: &'static str,
        /// Its bound.
        bound: u32,
    },
    /// The cache was closed.
    #[error("the cache is closed")]
    Closed,
    /// Any other answer of the core.
    #[error(transparent)]
    Core(event::Error),
}

impl ReadError {
    /// The errno of this error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Store { errno, .. } => *errno,
            Self::Shrunk { .. } => EIO,
            Self::Changed => ESTALE,
            Self::Cancelled => ECANCELED,
            Self::NoFrames { .. } | Self::Busy { .. } => EAGAIN,
            Self::Closed => EBADF,
            Self::Core(error) => error.errno(),
        }
    }

    /// Converts the core's answer to a read.
    pub(crate) fn of(error: event::Error, page_bytes: u32) -> Self {
        match error {
            event::Error::Store { page, errno: CUT } => {
                Self::Core(event::Error::PastEnd { page: page.index, file_pages: page.index })
            }
            event::Error::Store { page, errno } => {
                Self::Store { offset: page.index * u64::from(page_bytes), errno }
            }
            event::Error::NoFrames { capacity } => Self::NoFrames { capacity },
            event::Error::Busy { bound } => Self::Busy { what: "pages waited for", bound },
            event::Error::Changed { .. } => Self::Changed,
            event::Error::Cancelled => Self::Cancelled,
            error => Self::Core(error),
        }
    }
}

/// Why a write or a flush failed. Bytes that a write has been answered for stay in the cache until
/// they are durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The handle was opened to be read.
    #[error("the handle was opened for reading only")]
    ReadOnly,
    /// The write reaches beyond what a file can hold.
    #[error("the write ends beyond the longest file")]
    TooLong,
    /// The write ends beyond what the store can ever hold, as a block device does not grow. Nothing
    /// was written.
    #[error("the write ends beyond the {bytes_max} bytes of the store, which does not grow")]
    NoRoom {
        /// The most bytes that the store can have.
        bytes_max: u64,
    },
    /// The store cannot do this without moving the bytes. Nothing has changed.
    #[error("the store cannot change its length, or a range without writing it")]
    Unsupported,
    /// The store failed to change the length or a range.
    #[error("the store cannot change the file: {}", io::Error::from_raw_os_error(*errno))]
    Change {
        /// The store's reason.
        errno: i32,
    },
    /// Written bytes could not be made durable. They are kept and written again; flush again.
    #[error("written bytes are not durable yet: {}", io::Error::from_raw_os_error(*errno))]
    Writeback {
        /// The store's reason.
        errno: i32,
    },
    /// A page that the write covers in part could not be read.
    #[error("cannot read the page at byte {offset} to change a part of it: {}",
        io::Error::from_raw_os_error(*errno))]
    Store {
        /// Where the page begins.
        offset: u64,
        /// The store's reason.
        errno: i32,
    },
    /// A page stayed pinned: drop the pins on it first.
    #[error("a page stayed pinned: drop what pins it before it is written")]
    Pinned,
    /// Another program wrote, replaced or deleted the file. Open it anew.
    #[error("the file changed since it was opened: open it again")]
    Changed,
    /// No frame came free in time. Use fewer readers or a larger cache.
    #[error("no frame came free: all {capacity} are pinned, dirty or in flight")]
    NoFrames {
        /// The number of frames.
        capacity: u32,
    },
    /// Files whose store fails hold all pages that may be dirty: no room until a flush of theirs
    /// succeeds or they are closed.
    #[error("all {bound} pages that may be dirty belong to files whose store fails")]
    DirtyFull {
        /// The pages that may be dirty.
        bound: u32,
    },
    /// Too many requests at once. Try again.
    #[error("too many requests at once: at most {bound} {what}")]
    Busy {
        /// The resource that ran out.
        what: &'static str,
        /// Its bound.
        bound: u32,
    },
    /// The cache was closed.
    #[error("the cache is closed")]
    Closed,
    /// Any other answer of the core.
    #[error(transparent)]
    Core(event::Error),
}

impl WriteError {
    /// The errno of this error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Writeback { errno } | Self::Store { errno, .. } | Self::Change { errno } => {
                *errno
            }
            Self::NoRoom { .. } => ENOSPC,
            Self::Unsupported => EOPNOTSUPP,
            Self::ReadOnly | Self::Closed => EBADF,
            Self::TooLong => EFBIG,
            Self::Changed => ESTALE,
            Self::Pinned | Self::NoFrames { .. } | Self::DirtyFull { .. } | Self::Busy { .. } => {
                EAGAIN
            }
            Self::Core(error) => error.errno(),
        }
    }

    /// Converts the core's answer to a write or a flush.
    pub(crate) fn of(error: event::Error, page_bytes: u32) -> Self {
        match error {
            event::Error::Writeback { errno } => Self::Writeback { errno },
            event::Error::DirtyFull { bound } => Self::DirtyFull { bound },
            error => ReadError::of(error, page_bytes).into(),
        }
    }
}

/// What a read fails with, a write that needs the bytes of its pages fails with too.
impl From<ReadError> for WriteError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store { offset, errno } => Self::Store { offset, errno },
            ReadError::Changed | ReadError::Shrunk { .. } => Self::Changed,
            ReadError::NoFrames { capacity } => Self::NoFrames { capacity },
            ReadError::Busy { what, bound } => Self::Busy { what, bound },
            ReadError::Closed => Self::Closed,
            ReadError::Cancelled => Self::Core(event::Error::Cancelled),
            ReadError::Core(error) => Self::Core(error),
        }
    }
}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        let kind = Self::from_raw_os_error(error.errno()).kind();
        Self::new(kind, error)
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        let kind = Self::from_raw_os_error(error.errno()).kind();
        Self::new(kind, error)
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        let kind = Self::from_raw_os_error(error.errno()).kind();
        Self::new(kind, error)
    }
}

/// Why a live cache cannot be built; one line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A page is read at once, and counted in few bits.
    #[error("a page of {bytes} bytes: at most {bound}")]
    PageBytes {
        /// The page.
        bytes: u32,
        /// The largest.
        bound: u32,
    },
    /// A bound is 0, a window does not fit, or a policy is unknown.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The system refuses the memory for frames.
    #[error(transparent)]
    Memory(#[from] NoMemory),
    /// The system does not offer the requested interface.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The file of [`Builder::open`](crate::Builder::open) could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Why a file or a store could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file is missing, not readable or not a file, or the store fails to give its length.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Drop all handles of a file first.
    #[error("too many files: at most {bound} may be open")]
    Files {
        /// Its bound.
        bound: u32,
    },
    /// Drop a handle first.
    #[error("too many handles: at most {bound} may be open")]
    Handles {
        /// Its bound.
        bound: u32,
    },
    /// The cache was closed.
    #[error("the cache is closed")]
    Closed,
}

impl From<cache::OpenError> for OpenError {
    fn from(error: cache::OpenError) -> Self {
        match error {
            cache::OpenError::Handles { bound } => Self::Handles { bound },
            cache::OpenError::Files { bound } => Self::Files { bound },
        }
    }
}

impl OpenError {
    /// The errno of this error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Store(error) => error.errno(),
            Self::Files { .. } | Self::Handles { .. } => ENFILE,
            Self::Closed => EBADF,
        }
    }
}

/// The errno that the core gets for a short read, or for a store's error without a valid errno.
pub(crate) const EIO: i32 = 5;
/// In place of an errno: an own cut of the file has taken what a fetch was to bring. Its reader
/// looks at the length again.
pub(crate) const CUT: i32 = i32::MAX;
const EBADF: i32 = 9;
const EAGAIN: i32 = 11;
const EFBIG: i32 = 27;
const ENFILE: i32 = 23;
const ENOSPC: i32 = 28;
const ESTALE: i32 = 116;
const ECANCELED: i32 = 125;

#[cfg(test)]
mod tests {
    use forerun_core::units::PageId;

    use super::*;

    #[test]
    fn each_error_of_the_core_says_where_and_which_errno() {
        let page = PageId { index: 3, ..PageId::default() };
        #[rustfmt::skip]
        let rows = [
            (event::Error::Store { page, errno: 28 }, 28, ReadError::Store { offset: 12_288,
                errno: 28 }),
            (event::Error::NoFrames { capacity: 7 }, 11, ReadError::NoFrames { capacity: 7 }),
            (event::Error::Busy { bound: 2 }, 11, ReadError::Busy { what: "pages waited for",
                bound: 2 }),
            (event::Error::Changed { page: 1 }, 116,
                ReadError::Changed),
            (event::Error::Cancelled, 125, ReadError::Cancelled),
            (event::Error::TooLarge { pages: 3, bound: 2 }, 22,
                ReadError::Core(event::Error::TooLarge { pages: 3, bound: 2 })),
        ];
        for (error, errno, expected) in rows {
            let found = ReadError::of(error, 4096);
            assert_eq!((found.errno(), &found), (errno, &expected));
            assert!(!found.to_string().contains('\n'));
        }
        let full = WriteError::of(event::Error::DirtyFull { bound: 4 }, 4096);
        assert_eq!((full.errno(), full), (11, WriteError::DirtyFull { bound: 4 }));
        assert_eq!(ReadError::Closed.errno(), 9);
        assert_eq!(OpenError::Closed.errno(), 9);
        assert_eq!(OpenError::Files { bound: 1 }.errno(), 23);
    }
}
