//! Files that are read or were, and which of them has changed.
//!
//! ```text
//!   (device, inode) --> FileId --> version, source while somebody reads it
//! ```
//! # Invariants
//! - What the core knows of a file is of the version that was seen last. A file that comes back as
//!   another, nobody having read it meanwhile, is forgotten before; one that changes its size is
//!   cut.

use std::fs::File;
use std::sync::Arc;

use forerun_core::event::Event;
use forerun_core::units::{FileId, Nanos};
use rustix::fs::{Stat, fstat};

use super::{CHUNK_BYTES_MAX, Drive, FILES_MAX, pages};
use crate::asks::Source;
use crate::kernel;
use crate::readers::LaneId;

/// A file that is read, or was.
pub(super) struct FileRow {
    pub(super) key: (u64, u64),
    pub(super) version: Version,
    /// While a lane is open.
    pub(super) source: Option<Arc<Source>>,
    pub(super) lanes: u32,
}

/// A file that has another is another file to the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) bytes: u64,
    pub(super) modified: (i64, u64),
    pub(super) changed: (i64, u64),
}

impl Drive {
    /// The file's row, with a source; what is remembered of another version is forgotten.
    pub(super) fn file(&mut self, now: Nanos, file: File, stat: &Stat) -> Option<FileId> {
        let (key, version) = ((stat.st_dev, stat.st_ino), Version::of(stat)?);
        let known = self.known.get(&key).copied();
        let id = known.unwrap_or_else(|| {
            self.forget_one(now);
            self.files_seen += 1;
            self.counts.files += 1;
            FileId(self.files_seen)
        });
        let chunk_bytes = kernel::chunk_bytes(stat.st_dev).min(CHUNK_BYTES_MAX);
        let fresh = || FileRow { key, version, source: None, lanes: 0 };
        let row = self.files.entry(id).or_insert_with(fresh);
        let is_stale = row.lanes == 0 && row.version != version;
        row.source.get_or_insert_with(|| Arc::new(Source::new(file, chunk_bytes)));
        if row.lanes == 0 {
            row.version = version;
        }
        self.known.insert(key, id);
        if is_stale {
            self.forget(now, id);
        }
        Some(id)
    }

    /// Makes room for the row of one more file.
    fn forget_one(&mut self, now: Nanos) {
        if self.files.len() < FILES_MAX {
            return;
        }
        let unused = self.files.iter().find(|(_, row)| row.lanes == 0);
        if let Some((&id, row)) = unused {
            self.known.remove(&row.key);
            self.files.remove(&id);
            self.forget(now, id);
        }
    }

    /// What the core knows of `file` is of no use any more.
    fn forget(&mut self, now: Nanos, file: FileId) {
        if self.core.is_some() {
            self.send(now, Event::Invalidate { file, first: 0, count: u64::MAX });
        }
    }

    /// The file may have another size by now.
    pub(super) fn resize(&mut self, now: Nanos, lane: LaneId) {
        let Some(file) = self.lanes[lane.0 as usize].as_ref().map(|lane| lane.file) else { return };
        let Some(row) = self.files.get_mut(&file) else { return };
        let stat = row.source.as_ref().and_then(|source| fstat(&source.file).ok());
        let Some(version) = stat.and_then(|stat| Version::of(&stat)) else { return };
        let before = std::mem::replace(&mut row.version, version);
        if before.bytes != version.bytes && self.core.is_some() {
            self.send(now, Event::Truncate { file, pages: pages(version.bytes).max(1) });
        }
    }
}

impl Version {
    pub(super) fn of(stat: &Stat) -> Option<Self> {
        Some(Self {
            bytes: u64::try_from(stat.st_size).ok()?,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        })
    }
}
