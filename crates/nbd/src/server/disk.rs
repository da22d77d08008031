//! An export's bytes: a file through the cache, and what of it is allocated.
//!
//! # Invariants
//! - The file stays claimed, against writers of other processes, as long as it is exported.
//! - What cannot be found out about a range is told as data.

use std::{fs::File, io, path::Path, sync::Arc};

use forerun_engine::{Cache, Handle, OpenError};
use forerun_io::{
    lock::{Claim, ClaimError, claim},
    store::Store,
};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

use crate::{
    reply::{EXTENTS_MAX, Extent},
    wire::{STATE_HOLE, STATE_ZERO},
};

/// Why a file is not exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// It cannot be opened.
    #[error("cannot open it: {0}")]
    File(#[from] io::Error),
    /// The cache cannot open it.
    #[error(transparent)]
    Cache(#[from] OpenError),
    /// Another process uses it.
    #[error(transparent)]
    Claim(#[from] ClaimError),
}

/// A file behind the cache.
#[derive(Debug)]
pub struct Disk {
    handle: Handle,
    /// Carries the claim, and tells what is allocated; a store of another kind has none.
    file: Option<File>,
}

impl Disk {
    /// Opens the file or block device at `path` for reading.
    ///
    /// # Errors
    /// See [`DiskError`].
    pub fn open(cache: &Cache, path: &Path) -> Result<Self, DiskError> {
        let file = File::open(path)?;
        match claim(&file, Claim::Read) {
            // Some file systems have no locks; what changes is still noticed by the cache.
            Ok(()) | Err(ClaimError::NoLocks(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self { handle: cache.open(path)?, file: Some(file) })
    }

    /// The contents of `store`, all of it allocated.
    ///
    /// # Errors
    /// The cache cannot open it.
    pub fn open_store(cache: &Cache, store: Arc<dyn Store>) -> Result<Self, DiskError> {
        Ok(Self { handle: cache.open_store(store)?, file: None })
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.handle.len()
    }

    /// A reader of its own, for one connection.
    pub(super) fn handle(&self) -> Result<Handle, OpenError> {
        self.handle.try_clone()
    }

    /// The extents of `length` bytes from `offset` on, or of a beginning of these: at least one
    /// byte, and one extent where `one` is set. Ends of extents are multiples of `align` but for
    /// those of the range.
    pub(super) fn extents(&self, offset: u64, length: u32, one: bool, align: u32) -> Vec<Extent> {
        assert!(length > 0, "a range has bytes");
        let end = offset + u64::from(length);
        let mut extents = Vec::new();
        let mut at = offset;
        while at < end && extents.len() < if one { 1 } else { EXTENTS_MAX } {
            let (next, state) = self.extent(at, end, u64::from(align));
            let bytes = u32::try_from(next - at).expect("within a range of 32 bits");
            extents.push(Extent { bytes, state });
            at = next;
        }
        extents
    }

    /// The end of the extent that holds byte `at`, `end` at most, and its state.
    fn extent(&self, at: u64, end: u64, align: u64) -> (u64, u32) {
        let Some(file) = &self.file else { return (end, 0) };
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => end,
            Err(_) => return (end, 0),
        };
        let hole_end = (data.min(end) / align * align).min(end);
        let hole_end = if data >= end { end } else { hole_end };
        if hole_end > at {
            return (hole_end, STATE_HOLE | STATE_ZERO);
        }
        let hole = seek(file, SeekFrom::Hole(data)).unwrap_or(end);
        (hole.next_multiple_of(align).min(end).max(at + 1), 0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use forerun_testkit::Scratch;

    use super::*;

    /// Whether the file system of temporary files has holes.
    fn has_holes(file: &File) -> bool {
        seek(file, SeekFrom::Data(0)).is_ok_and(|data| data > 0)
    }

    #[test]
    fn extents_are_data_and_holes_in_turn_and_end_with_the_range() {
        let scratch = Scratch::new("extents");
        let path = scratch.join("f");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[7; 4096], 256 << 10).unwrap();
        file.write_all_at(&[7; 4096], (1 << 20) - 4096).unwrap();
        let cache = Cache::builder().memory(1 << 20).build().unwrap();
        let disk = Disk::open(&cache, &path).unwrap();
        if !has_holes(disk.file.as_ref().unwrap()) {
            assert_eq!(disk.extents(0, 1 << 20, false, 512), [Extent { bytes: 1 << 20, state: 0 }]);
            return;
        }
        let extents = |offset, length, one| -> Vec<(u32, u32)> {
            let all = disk.extents(offset, length, one, 512);
            all.iter().map(|extent| (extent.bytes, extent.state)).collect()
        };
        let rest = (1 << 20) - (256 << 10) - 8192;
        let all = [(256 << 10, 3), (4096, 0), (rest, 3), (4096, 0)];
        assert_eq!(extents(0, 1 << 20, false), all);
        assert_eq!(extents(0, 1 << 20, true), all[..1]);
        assert_eq!(extents(0, 1000, false), [(1000, 3)], "an end in a hole");
        assert_eq!(extents(256 << 10, 1000, false), [(1000, 0)], "an end in data");
        assert_eq!(extents((256 << 10) + 4095, 2, false), [(1, 0), (1, 3)]);
    }
}
