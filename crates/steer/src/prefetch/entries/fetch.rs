//! What a worker does for one request: an inode, the bytes of a file, or a listing.
//!
//! ```text
//!   directory's handle --> entry's handle --> kind --> inode: done
//!                                              |-----> file: cached? --no--> readahead
//!                                              `-----> directory: its names
//! ```
//! # Invariants
//! - No byte of a file is read into this process.
//! - A listing has no more entries than core follows, and names of no more than a bound of bytes.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forerun_core::units::Nanos;
use forerun_core::walk::{EntryKind, Want};
use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

use super::place::{Handles, Place};
use crate::kernel::{self, Devices, Stat};
use crate::open::entries::{entry, listable, subdirectory};
use crate::open::{LeaseList, OwnDescriptors, Refusal, open_found};
use crate::watch::WatchQueue;

/// What workers share besides their queue.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) handles: Handles,
    pub(super) leases: LeaseList,
    pub(super) devices: Devices,
    pub(super) descriptors: Option<OwnDescriptors>,
    /// Where watches of listed directories go.
    pub(super) watches: Arc<WatchQueue>,
    pub(super) bounds: Bounds,
}

/// How much is fetched.
#[derive(Clone, Copy, Debug)]
pub(in crate::prefetch) struct Bounds {
    /// Of a file that is larger than `whole_bytes`, or of which the program reads the head.
    pub(in crate::prefetch) head_bytes: u64,
    pub(in crate::prefetch) whole_bytes: u64,
    /// Entries of a listing.
    pub(in crate::prefetch) entries_max: usize,
}

/// What a request brought.
#[derive(Debug, Default)]
pub(in crate::prefetch) struct Fetched {
    /// Bytes of a file that were requested of the kernel, or are cached.
    pub(in crate::prefetch) bytes: u64,
    /// All of them were cached.
    pub(in crate::prefetch) is_cached: bool,
    pub(in crate::prefetch) names: Option<Names>,
    /// The number of the watch of the directory with these names.
    pub(in crate::prefetch) watch: Option<i32>,
    /// The directory of the entry is another one than at the last look.
    pub(in crate::prefetch) has_changed: bool,
}

/// The entries of a directory, in the order of readdir.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::prefetch) struct Names {
    /// All names, one after the other.
    bytes: Vec<u8>,
    /// The end of each name, its inode and its kind.
    rows: Vec<(u32, u64, EntryKind)>,
}

impl Names {
    pub(in crate::prefetch) fn count(&self) -> usize {
        self.rows.len()
    }

    /// The name, inode and kind of the entry at `index`.
    pub(in crate::prefetch) fn get(&self, index: usize) -> Option<(&[u8], u64, EntryKind)> {
        let &(end, inode, kind) = self.rows.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.rows[before].0);
        Some((&self.bytes[start as usize..end as usize], inode, kind))
    }

    fn push(&mut self, name: &[u8], inode: u64, kind: EntryKind) {
        self.bytes.extend_from_slice(name);
        let end = u32::try_from(self.bytes.len()).expect("names have a bound");
        self.rows.push((end, inode, kind));
    }

    /// Reads up to `entries_max` entries of `directory`.
    fn read(directory: &OwnedFd, entries_max: usize) -> Result<Self, Errno> {
        let mut names = Self::default();
        let mut buffer = vec![MaybeUninit::uninit(); LISTING_BYTES];
        let mut entries = RawDir::new(directory, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if names.count() == entries_max || names.bytes.len() + name.len() > NAMES_BYTES_MAX {
                break;
            }
            if !matches!(name, b"." | b"..") {
                names.push(name, entry.ino(), kind(entry.file_type()));
            }
        }
        Ok(names)
    }
}

/// What an entry of this type is; some file systems tell no types in listings.
fn kind(kind: FileType) -> EntryKind {
    match kind {
        FileType::RegularFile | FileType::Unknown => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        _ => EntryKind::Other,
    }
}

impl Tools {
    /// Fetches `want` of the entry `name` of `place`, or of `place` itself.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub(super) fn fetch(
        &self,
        place: &Arc<Place>,
        name: Option<&[u8]>,
        want: Want,
        now: Nanos,
    ) -> Result<Fetched, Refusal> {
        let (directory, stat) = self.handles.get(place, now)?;
        let has_changed = stat.is_some_and(|stat| place.note(&stat));
        if has_changed {
            // It may be another directory that is at its path now.
            self.handles.close(place);
        }
        let fetched = match (name, want) {
            (None, _) => self.list(&directory),
            (Some(name), Want::Listing) => self.list(&subdirectory(&*directory, name)?.0),
            (Some(name), Want::Inode) => entry(&*directory, name).map(|_| Fetched::default()),
            (Some(name), Want::Head) => self.read_ahead(&directory, name, self.bounds.head_bytes),
            (Some(name), Want::Whole) => self.read_ahead(&directory, name, self.bounds.whole_bytes),
        };
        Ok(Fetched { has_changed, ..fetched? })
    }

    fn list(&self, place: &OwnedFd) -> Result<Fetched, Refusal> {
        let directory = listable(place, self.descriptors.as_ref())?;
        let names = Names::read(&directory, self.bounds.entries_max).map_err(Refusal::Closed)?;
        // Afterwards: what is told of is not this listing.
        let watch = self.watches.watch(&directory).ok();
        Ok(Fetched { names: Some(names), watch, ..Fetched::default() })
    }

    /// Reads ahead of a file: all of it if it has `bytes_max` or less, else its head.
    fn read_ahead(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        bytes_max: u64,
    ) -> Result<Fetched, Refusal> {
        let (place, stat) = entry(directory, name)?;
        if stat.st_size == 0 || !crate::open::is_regular(&stat) {
            return Ok(Fetched::default());
        }
        let descriptors = self.descriptors.as_ref();
        let (file, stat) = open_found(&place, &stat, &self.leases, descriptors)?;
        let bytes = self.bytes_of(&stat, bytes_max);
        let range = 0..bytes;
        if kernel::cached_untouched(&file, &range) == Some(kernel::pages(&range)) {
            return Ok(Fetched { bytes, is_cached: true, ..Fetched::default() });
        }
        let bytes = kernel::prefetch_written(&file, &range, self.devices.facts(stat.st_dev))
            .map_err(|error| Refusal::Closed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        Ok(Fetched { bytes, ..Fetched::default() })
    }

    fn bytes_of(&self, stat: &Stat, bytes_max: u64) -> u64 {
        if stat.st_size <= bytes_max { stat.st_size } else { self.bounds.head_bytes.min(bytes_max) }
    }
}

/// What one call of `getdents` gives.
const LISTING_BYTES: usize = 64 << 10;
/// Names of one listing.
const NAMES_BYTES_MAX: usize = 4 << 20;
