//! The files below the paths that were named.
//!
//! # Invariants
//! - A folder and a file are examined once, however many names lead there, so every walk ends.
//! - Another file system is entered only where it is named; symbolic links likewise.
//! - At most as many entries are kept as the caller allows.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

use super::file::{File, Id, Links, OpenFile};
use super::{Listing, SkipReason, SkippedFile};

/// Files and folders of one listing: some hundred bytes each.
pub const ENTRIES_MAX: usize = 1 << 20;

/// Lists `paths` and what is below them, up to `entries_max` entries.
pub(super) fn list(paths: &[impl AsRef<Path>], entries_max: usize) -> Listing {
    let mut walk =
        Walk { found: Listing::default(), seen: BTreeSet::new(), folders: Vec::new(), entries_max };
    for path in paths.iter().map(AsRef::as_ref) {
        if let Err(why) = walk.named(path) {
            walk.skip(path, why);
        }
        while let Some((folder, device)) = walk.folders.pop() {
            if let Err(why) = walk.below(&folder, device) {
                walk.skip(&folder, why);
            }
        }
    }
    walk.found
}

struct Walk {
    found: Listing,
    seen: BTreeSet<Id>,
    /// Folders that are still to be listed, with the device that is not left.
    folders: Vec<(PathBuf, u64)>,
    entries_max: usize,
}

impl Walk {
    /// A path of the command line.
    fn named(&mut self, path: &Path) -> Result<(), SkipReason> {
        let found = fs::metadata(path).map_err(SkipReason::Closed)?;
        if found.is_dir() {
            self.folder(path, &found);
            return Ok(());
        }
        if !found.is_file() {
            return Err(SkipReason::NotAFile);
        }
        self.file(path, None)
    }

    /// What is in a folder.
    fn below(&mut self, folder: &Path, device: u64) -> Result<(), SkipReason> {
        for entry in fs::read_dir(folder).map_err(SkipReason::Closed)? {
            let entry = entry.map_err(SkipReason::Closed)?;
            if let Err(why) = self.entry(&entry, device) {
                self.skip(&entry.path(), why);
            }
            if self.found.is_cut {
                break;
            }
        }
        Ok(())
    }

    fn entry(&mut self, entry: &DirEntry, device: u64) -> Result<(), SkipReason> {
        let kind = entry.file_type().map_err(SkipReason::Closed)?;
        if kind.is_dir() {
            let found = entry.metadata().map_err(SkipReason::Closed)?;
            if found.is_dir() && Id::of(&found).device == device {
                self.folder(&entry.path(), &found);
            }
            return Ok(());
        }
        if kind.is_file() { self.file(&entry.path(), Some(device)) } else { Ok(()) }
    }

    fn folder(&mut self, path: &Path, found: &fs::Metadata) {
        let id = Id::of(found);
        if self.is_new(id) {
            self.folders.push((path.to_owned(), id.device));
        }
    }

    /// A file that was named, or found in a folder on the device `within`.
    fn file(&mut self, path: &Path, within: Option<u64>) -> Result<(), SkipReason> {
        let links = if within.is_none() { Links::Followed } else { Links::Refused };
        let opened = OpenFile::new(path, links)?;
        let id = opened.id();
        if within.is_none_or(|device| device == id.device) && self.is_new(id) {
            let file = File::examine(path, &opened, opened.bytes())?;
            if file.bytes > 0 {
                self.found.files.push(file);
            }
        }
        Ok(())
    }

    /// Whether `id` is to be examined: not if it was, and not if there are too many.
    fn is_new(&mut self, id: Id) -> bool {
        if self.seen.contains(&id) {
            return false;
        }
        if self.seen.len() == self.entries_max {
            self.found.is_cut = true;
            return false;
        }
        self.seen.insert(id);
        assert!(self.seen.len() <= self.entries_max, "more entries than are allowed");
        true
    }

    fn skip(&mut self, path: &Path, why: SkipReason) {
        if self.found.skipped.len() == self.entries_max {
            self.found.is_cut = true;
            return;
        }
        self.found.skipped.push(SkippedFile { path: path.to_owned(), bytes: 0, why });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_bounded_and_says_so() {
        let root = forerun_testkit::Scratch::new("list");
        for name in ["a", "b", "inner/c"] {
            root.file(name, name);
        }
        #[rustfmt::skip]
        let rows = [ // entries at most  files          is cut
            (5,                          3..4,          false),
            (4,                          2..4,          true),
            (1,                          0..1,          true),
            (0,                          0..1,          true),
        ];
        for (entries_max, files, is_cut) in rows {
            let listing = list(&[&root], entries_max);
            assert!(files.contains(&listing.files.len()), "{entries_max}: {listing:?}");
            assert_eq!(listing.is_cut, is_cut, "{entries_max}");
        }
        let missing = list(&[root.join("x"), root.join("y"), root.join("z")], 2);
        assert_eq!((missing.skipped.len(), missing.is_cut), (2, true));
    }
}
