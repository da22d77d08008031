//! The directories that core knows, by its numbers: where they lie, and the names of their entries.
//!
//! # Invariants
//! - A number that core gave to another directory has that one's place here, and no names.
//! - Names are kept for the listings that core has, no others.

use std::sync::Arc;

use forerun_core::walk::{DirectoryId, Entry, Walks};

use crate::prefetch::entries::Names;
use crate::prefetch::entries::place::Place;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Directories {
    rows: Vec<Option<Directory>>,
}

#[derive(Debug)]
struct Directory {
    place: Arc<Place>,
    names: Option<Names>,
    /// How often its listing was dropped as its entries are others.
    changes: u32,
}

impl Directories {
    /// The number of the top of a tree.
    pub(super) fn top(&mut self, walks: &mut Walks, place: &Arc<Place>) -> DirectoryId {
        let mut rows = (0..).zip(&self.rows);
        let known =
            rows.find(|(_, row)| row.as_ref().is_some_and(|row| Arc::ptr_eq(&row.place, place)));
        if let Some((dir, _)) = known {
            return DirectoryId(dir);
        }
        let dir = walks.directory(None);
        self.set(dir, Arc::clone(place));
        dir
    }

    /// The number of the directory `name` of `parent`; none where that lies too deep, or is gone.
    pub(super) fn below(
        &mut self,
        walks: &mut Walks,
        parent: DirectoryId,
        name: &[u8],
    ) -> Option<DirectoryId> {
        let above = Arc::clone(self.place(parent)?);
        if above.is_deepest() {
            return None;
        }
        let dir = walks.directory(Some((parent, name)));
        if !self.place(dir).is_some_and(|place| place.is_below(&above, name)) {
            self.set(dir, Place::below(&above, name));
        }
        Some(dir)
    }

    /// Where `dir` lies.
    pub(super) fn place(&self, dir: DirectoryId) -> Option<&Arc<Place>> {
        Some(&self.rows.get(dir.0 as usize)?.as_ref()?.place)
    }

    /// Whether `dir` is still the number of `place`.
    pub(super) fn is_at(&self, dir: DirectoryId, place: &Arc<Place>) -> bool {
        self.place(dir).is_some_and(|now| Arc::ptr_eq(now, place))
    }

    /// The name and the inode of an entry of `dir`.
    pub(super) fn entry(&self, dir: DirectoryId, index: u32) -> Option<(&[u8], u64)> {
        let row = self.rows.get(dir.0 as usize)?.as_ref()?;
        row.names.as_ref()?.get(index as usize).map(|(name, inode, _)| (name, inode))
    }

    /// Gives core the listing of `dir`, if it is another one than core has.
    pub(super) fn list(&mut self, walks: &mut Walks, dir: DirectoryId, names: Names) {
        if self.row_mut(dir).names.as_ref() == Some(&names) {
            return;
        }
        let entries = (0..names.count()).map(|index| {
            let (name, inode, kind) = names.get(index).expect("it is below the count");
            Entry { name, inode, kind }
        });
        let (entries, mut dropped) = (entries.collect::<Vec<_>>(), Vec::new());
        walks.listed(dir, &entries, &mut dropped);
        assert!(!dropped.contains(&dir), "a listing is not dropped for itself");
        self.row_mut(dir).names = Some(names);
        for dir in dropped {
            self.row_mut(dir).names = None;
        }
    }

    /// The entries of `dir` are others: its listing is dropped. One that changes all the time keeps
    /// the listing that it has, whose entries may be gone.
    pub(super) fn changed(&mut self, walks: &mut Walks, dir: DirectoryId) {
        let row = self.row_mut(dir);
        if row.names.is_some() && row.changes < CHANGES_MAX {
            row.changes += 1;
            row.names = None;
            walks.changed(dir);
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.rows.iter().flatten().count()
    }

    /// Names that are kept.
    #[cfg(test)]
    pub(super) fn names(&self) -> usize {
        self.rows.iter().flatten().filter_map(|row| Some(row.names.as_ref()?.count())).sum()
    }

    /// How often the listing of one directory was dropped, at most.
    #[cfg(test)]
    pub(super) fn changes_max(&self) -> u32 {
        self.rows.iter().flatten().map(|row| row.changes).max().unwrap_or(0)
    }

    fn row_mut(&mut self, dir: DirectoryId) -> &mut Directory {
        self.rows[dir.0 as usize].as_mut().expect("core knows it by this number")
    }

    fn set(&mut self, dir: DirectoryId, place: Arc<Place>) {
        let at = dir.0 as usize;
        if self.rows.len() <= at {
            self.rows.resize_with(at + 1, || None);
        }
        self.rows[at] = Some(Directory { place, names: None, changes: 0 });
    }
}

/// Listings of a directory that are dropped.
const CHANGES_MAX: u32 = 3;
