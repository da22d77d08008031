//! What a comparison of ways to run a program needs: which files it reads and whether it writes,
//! the page cache without these files, and runs that are timed.
//!
//! ```text
//!   trace   the first run, stopped at each call that opens or changes an entry (calls)
//!     |       `--> files that are read, and the first change, which need not happen
//!   evict   these files leave the page cache, as far as the kernel lets them
//!   timed   a command from its start to its end
//! ```
//! # Invariants
//! - No file is evicted but those that the program reads, and nothing else is dropped unless
//!   [`drop_everything`] is called.
//! - What was started has ended when a call returns: the process group is killed, and what left it
//!   during the first run ends with the thread that traced it.
//! - A change that is not allowed does not happen: the program is killed before the call is made.

mod calls;
mod evict;
mod filter;
mod paths;
mod stops;
mod timed;
mod trace;

use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::kernel::Stat;
use crate::open::is_regular;

pub use crate::aside::descriptors::inherited_for_writing;
pub use evict::{Eviction, RetainedFile, RetainedReason, drop_everything, evict};
pub use timed::{TimedRun, timed};
pub use trace::{Changes, TraceError, Traced, trace};

/// A regular file that a program reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFile {
    /// Its full path.
    pub path: PathBuf,
    /// Its device and inode.
    pub inode: (u64, u64),
    /// Its size when it was opened.
    pub bytes: u64,
}

impl ReadFile {
    /// The file at `path`; nothing where that is no regular file, or is empty.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        let found = Stat::from(statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?);
        let (inode, bytes) = ((found.st_dev, found.st_ino), found.st_size);
        (is_regular(&found) && bytes > 0).then(|| Self { path: path.to_owned(), inode, bytes })
    }
}
