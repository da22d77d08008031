//! The table of known files: open ones, and closed ones with cached pages.
//!
//! ```text
//!   open: handles > 0 --- last handle closes ---> known by its version, pages cached
//!     ^                                             | opened again, unchanged: the pages serve
//!     +---------------------------------------------+ changed, or row reused: invalidated
//! ```
//!
//! Only files opened by path have a version to be found by. The last handle of any other store
//! invalidates its pages; so does that of a block device, whose version does not cover all writes.
//!
//! # Invariants
//! - A row is reused only when no handle and no operation refers to it, and all bytes of its file
//!   are written.
//! - The table has at most `max` rows; files without handles are replaced first, oldest first.

use std::sync::Arc;

use forerun_core::units::FileId;
use forerun_io::store::Version;

use crate::{error::OpenError, file::File};

/// See the module.
pub(crate) struct Files {
    rows: Vec<Row>,
    max: u32,
    closings: u64,
}

/// One file.
#[derive(Default)]
pub(crate) struct Row {
    /// The open file, while it has handles or operations, or is left over.
    file: Option<Arc<File>>,
    handles: u32,
    /// Of these, those that are about to close.
    closing: u32,
    /// Fetches, writes and syncs in flight.
    operations: u32,
    /// Its last handle has closed, but bytes of it could not be written.
    left_over: bool,
    /// The version of its pages, if the file can be found by it.
    version: Option<Version>,
    /// When its last handle closed, as a count of closings.
    closed: u64,
}

impl Files {
    pub(crate) fn new(max: u32) -> Self {
        Self { rows: Vec::new(), max, closings: 0 }
    }

    /// The file with the inode of `version`, and the version of its pages.
    pub(crate) fn find(&self, version: &Version) -> Option<(FileId, Version)> {
        self.rows.iter().zip(0..).find_map(|(row, id)| {
            let known = row
                .version
                .filter(|known| (known.device, known.inode) == (version.device, version.inode));
            known.map(|known| (FileId(id), known))
        })
    }

    /// A row for another file, and whether cached pages of a closed file must be invalidated.
    pub(crate) fn place(&mut self) -> Result<(FileId, bool), OpenError> {
        let id = |at: usize| FileId(u32::try_from(at).expect("at most `max`"));
        if let Some(at) = self.rows.iter().position(Row::is_empty) {
            return Ok((id(at), false));
        }
        if self.rows.len() < self.max as usize {
            self.rows.push(Row::default());
            return Ok((id(self.rows.len() - 1), false));
        }
        let idle = self.rows.iter().enumerate().filter(|(_, row)| row.idle());
        let oldest = idle.min_by_key(|(_, row)| row.closed).map(|(at, _)| at);
        let at = oldest.ok_or(OpenError::Files { bound: self.max })?;
        self.rows[at] = Row::default();
        Ok((id(at), true))
    }

    /// Counts a handle of `file`; `version` if the file can be found by it.
    pub(crate) fn open(&mut self, file: &Arc<File>, version: Option<Version>) {
        let row = self.row(file.id);
        row.handles += 1;
        row.left_over = false;
        row.file = Some(Arc::clone(file));
        row.version = version.or(row.version);
    }

    /// Whether the file has handles, or bytes that could not be written before the last closed.
    pub(crate) fn is_kept(&self, id: FileId) -> bool {
        let row = &self.rows[id.0 as usize];
        row.handles > 0 || row.left_over
    }

    /// Every file that may be written.
    pub(crate) fn written_files(&self) -> Vec<Arc<File>> {
        let files = self.rows.iter().filter_map(|row| row.file.as_ref());
        files.filter(|file| file.writer.get().is_some()).cloned().collect()
    }

    /// Whether a file without handles was kept for bytes that are all written now; it is kept no
    /// longer.
    pub(crate) fn leftover_written(&mut self, id: FileId, unwritten: bool) -> bool {
        let row = self.row(id);
        let last = row.left_over && row.handles == 0 && !unwritten;
        row.left_over &= unwritten;
        last
    }

    /// Whether no later open finds the file.
    pub(crate) fn is_forgotten(&self, id: FileId) -> bool {
        self.rows[id.0 as usize].version.is_none()
    }

    /// Takes the version of a file after a write, if the file can be found by it.
    pub(crate) fn wrote(&mut self, id: FileId, version: Version) {
        let row = self.row(id);
        row.version = row.version.map(|_| version);
    }

    pub(crate) fn row(&mut self, id: FileId) -> &mut Row {
        &mut self.rows[id.0 as usize]
    }

    /// The open file with this number.
    pub(crate) fn file(&self, id: FileId) -> Option<&Arc<File>> {
        self.rows.get(id.0 as usize).and_then(|row| row.file.as_ref())
    }

    /// Whether the row of `file` is still its own: the file has handles or operations, or the row's
    /// pages are of its version.
    pub(crate) fn has_place(&self, file: &Arc<File>) -> bool {
        let row = &self.rows[file.id.0 as usize];
        let own = row.file.as_ref().is_some_and(|own| Arc::ptr_eq(own, file));
        own || row.version == Some(file.version.get())
    }

    /// Every open file; with `found_again`, only those with a version to be found by.
    pub(crate) fn open_files(&self, found_again: bool) -> Vec<Arc<File>> {
        let rows = self.rows.iter().filter(|row| row.handles > 0);
        let rows = rows.filter(|row| !found_again || row.version.is_some());
        rows.filter_map(|row| row.file.clone()).collect()
    }

    /// Removes the version of a file: no later open finds its pages.
    pub(crate) fn forget(&mut self, id: FileId) {
        self.row(id).version = None;
        self.drop_unused(id);
    }

    /// A handle of a file is about to close: whether no other one stays. Those that are about to
    /// close as well wrote what they wrote before.
    pub(crate) fn handle_closes(&mut self, id: FileId) -> bool {
        let row = self.row(id);
        row.closing += 1;
        assert!(row.closing <= row.handles, "a handle closes once");
        row.closing == row.handles
    }

    /// Counts a closed handle. Returns whether the file is to be closed, as its last handle is and
    /// no byte is `unwritten`, and whether its pages must be invalidated.
    pub(crate) fn handle_closed(&mut self, id: FileId, unwritten: bool) -> (bool, bool) {
        self.closings += 1;
        let closings = self.closings;
        let row = self.row(id);
        (row.handles, row.closing) = (row.handles - 1, row.closing - 1);
        row.closed = closings;
        let lasting = row.file.as_ref().is_some_and(|file| file.store.version_tells_all());
        if row.handles == 0 && !lasting {
            row.version = None;
        }
        let last = row.handles == 0;
        row.left_over = last && unwritten;
        (last && !unwritten, last && row.version.is_none())
    }

    pub(crate) fn operation_started(&mut self, id: FileId) -> Arc<File> {
        let row = self.row(id);
        row.operations += 1;
        Arc::clone(row.file.as_ref().expect("a file stays until its last operation has ended"))
    }

    pub(crate) fn operation_ended(&mut self, id: FileId) {
        self.row(id).operations -= 1;
        self.drop_unused(id);
    }

    /// Drops a file without handles and operations.
    pub(crate) fn drop_unused(&mut self, id: FileId) {
        let row = self.row(id);
        if row.idle() {
            row.file = None;
        }
    }
}

impl Row {
    fn idle(&self) -> bool {
        self.handles == 0 && self.operations == 0 && !self.left_over
    }

    fn is_empty(&self) -> bool {
        self.idle() && self.version.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use forerun_io::store::{Queue, QueueKind, Store, StoreError, pattern::Pattern};

    use super::*;
    use crate::{
        background::Backgrounds,
        file::{FileStateCell, Length},
        queues::Queues,
        version::VersionCell,
    };

    /// A pattern whose version does not cover all writes.
    struct Unsure(Pattern);

    impl Store for Unsure {
        fn bytes(&self) -> Result<u64, StoreError> {
            self.0.bytes()
        }

        fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
            self.0.queue(kind)
        }

        fn version_tells_all(&self) -> bool {
            false
        }
    }

    fn file(id: FileId, store: Arc<dyn Store>) -> Arc<File> {
        let ahead = store.queue(QueueKind::Background { depth: 1 });
        Arc::new(File {
            id,
            version: VersionCell::new(Version::default()),
            length: Length::new(1),
            bytes_max: u64::MAX,
            page_bytes: 512,
            writer: OnceLock::new(),
            queues: Queues::new(Arc::clone(&store), 1),
            background: Backgrounds::default().of(&ahead),
            ahead,
            store,
            state: FileStateCell::default(),
        })
    }

    #[test]
    fn pages_stay_after_the_last_handle_only_where_a_change_would_be_seen() {
        let version = Version { inode: 7, ..Version::default() };
        let (sure, unsure) = (Pattern::new(1), || Unsure(Pattern::new(1)));
        #[rustfmt::skip]
        let rows = [ // why            store                            known          pages go
            ("a file by its path", Arc::new(sure) as Arc<dyn Store>,  Some(version), false),
            ("a block device",     Arc::new(unsure()),                Some(version), true),
            ("another store",      Arc::new(sure),                    None,          true),
        ];
        for (why, store, known, pages_go) in rows {
            let mut files = Files::new(2);
            let (id, _) = files.place().unwrap();
            let file = file(id, store);
            files.open(&file, known);
            files.open(&file, None);
            assert_eq!(files.find(&version).is_some(), known.is_some(), "{why}: while it is open");
            // The second is the last one though the first is still there.
            assert_eq!([0, 1].map(|_| files.handle_closes(id)), [false, true], "{why}");
            assert_eq!(
                files.handle_closed(id, false),
                (false, false),
                "{why}: the first of two handles"
            );
            assert_eq!(files.handle_closed(id, false), (true, pages_go), "{why}");
            assert_eq!(files.find(&version).is_some(), !pages_go, "{why}");
        }
    }
}
