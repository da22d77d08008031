//! Files that have readers or had some, and which of them has changed.
//!
//! ```text
//!   (device, inode) --> FileId --> version, source while a reader is open
//! ```
//! # Invariants
//! - What the planner knows of a file is of the version that was seen last. A file that comes back
//!   in another version is forgotten before; one that changes its size is resized.
//! - At most [`FILES_MAX`] files beyond those with readers are remembered.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use forerun_core::planner::{FILES_MAX, PlannedFile};
use forerun_core::units::FileId;

use super::workers::Source;
use crate::kernel::{Stat, stat};
use crate::open::is_regular;

/// See the module.
#[derive(Default)]
pub(super) struct Files {
    rows: BTreeMap<FileId, FileRow>,
    by_inode: BTreeMap<(u64, u64), FileId>,
    seen: u32,
}

/// A file that has readers, or had some.
struct FileRow {
    inode: (u64, u64),
    version: Version,
    /// While a reader is open.
    source: Option<Arc<Source>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    bytes: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

/// A file with a reader more.
pub(super) struct OpenFile {
    pub(super) file: PlannedFile,
    /// Files of which all that is known is of no use any more.
    pub(super) forgotten: Vec<FileId>,
    /// What is not needed: a file system may block closing it.
    pub(super) unused: (Option<File>, Option<Arc<Source>>),
}

impl Files {
    /// Files that were seen so far.
    pub(super) fn seen(&self) -> u64 {
        u64::from(self.seen)
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }

    #[cfg(test)]
    pub(super) fn all_closed(&self) -> bool {
        self.rows.values().all(|row| row.source.is_none())
    }

    /// The descriptor of `file`, while a reader is open.
    pub(super) fn source(&self, file: FileId) -> Option<&Arc<Source>> {
        self.rows.get(&file)?.source.as_ref()
    }

    /// `file` gets a reader, for which calls fetch `request_bytes` each.
    pub(super) fn open(&mut self, file: File, stat: &Stat, request_bytes: u64) -> OpenFile {
        let (inode, version) = ((stat.st_dev, stat.st_ino), Version::of(stat));
        let mut forgotten = Vec::new();
        let id = self.by_inode.get(&inode).copied().unwrap_or_else(|| {
            forgotten.extend(self.forget_one());
            self.seen += 1;
            FileId(self.seen)
        });
        self.by_inode.insert(inode, id);
        let row = self.rows.entry(id).or_insert(FileRow { inode, version, source: None });
        let closed = row.source.take_if(|source| source.is_closed());
        if row.source.is_none() && row.version != version {
            row.version = version;
            forgotten.push(id);
        }
        assert!((1..=self.seen).contains(&id.0), "numbers of files are given in order");
        let mut file = Some(file);
        row.source.get_or_insert_with(|| {
            let file = file.take().expect("it is needed once");
            Arc::new(Source::new(file, stat.st_dev, request_bytes))
        });
        let (device, bytes) = (inode.0, row.version.bytes);
        let planned = PlannedFile { file: id, device, bytes, request_bytes };
        OpenFile { file: planned, forgotten, unused: (file, closed) }
    }

    /// Makes room for the row of one more file.
    fn forget_one(&mut self) -> Option<FileId> {
        if self.rows.len() < FILES_MAX {
            return None;
        }
        let (&id, row) = self.rows.iter().find(|(_, row)| row.source.is_none())?;
        let named = self.by_inode.remove(&row.inode);
        assert_eq!(named, Some(id), "an inode has one number");
        self.rows.remove(&id);
        Some(id)
    }

    /// The size that `file` has now, if it can be told.
    pub(super) fn resize(&mut self, file: FileId) -> Option<u64> {
        let row = self.rows.get_mut(&file)?;
        let stat = stat(&row.source.as_ref()?.file).ok().filter(is_regular)?; // It may be released.
        row.version = Version::of(&stat);
        Some(row.version.bytes)
    }

    /// `file` has no reader any more.
    pub(super) fn close(&mut self, file: FileId) {
        if let Some(source) = self.rows.get_mut(&file).and_then(|row| row.source.take()) {
            source.close();
        }
    }
}

impl Version {
    fn of(stat: &Stat) -> Self {
        Self { bytes: stat.st_size, modified: stat.st_mtime, changed: stat.st_ctime }
    }
}
