//! An export's bytes: a file through the cache, and what of it is allocated.
//!
//! # Invariants
//! - The file stays claimed, against writers of other processes and against all others where it is
//!   written, as long as it is exported.
//! - What cannot be found out about a range is told as data, and so is what was written: the file
//!   may still have a hole where the cache has bytes.

use std::{
    fs::File,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use forerun_engine::{Access, Cache, Handle, OpenError};
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

/// What clients may do to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Read it.
    ReadOnly,
    /// Write it; every write is durable before it is answered.
    WriteThrough,
    /// Write it; a write is durable once a flush after it is answered.
    WriteBack,
}

/// A file behind the cache.
pub struct Disk {
    cache: Cache,
    path: Option<PathBuf>,
    handle: Handle,
    mode: Mode,
    written: Written,
    /// Carries the claim, and tells what is allocated; a store of another kind has none.
    file: Option<File>,
}

impl Disk {
    /// Opens the file or block device at `path`.
    ///
    /// # Errors
    /// See [`DiskError`].
    pub fn open(cache: &Cache, path: &Path, mode: Mode) -> Result<Self, DiskError> {
        let file = File::open(path)?;
        let wanted = if mode == Mode::ReadOnly { Claim::Read } else { Claim::Write };
        match claim(&file, wanted) {
            // Some file systems have no locks; what changes is still noticed by the cache.
            Ok(()) | Err(ClaimError::NoLocks(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let handle = cache.open_with(path, mode.access())?;
        let path = Some(path.to_owned());
        Ok(Self { path, file: Some(file), ..Self::of(cache, handle, mode) })
    }

    /// The contents of `store`, all of it allocated.
    ///
    /// # Errors
    /// The cache cannot open it.
    pub fn open_store(cache: &Cache, store: Arc<dyn Store>, mode: Mode) -> Result<Self, DiskError> {
        Ok(Self::of(cache, cache.open_store_with(store, mode.access())?, mode))
    }

    fn of(cache: &Cache, handle: Handle, mode: Mode) -> Self {
        let written = Written::new(if mode == Mode::ReadOnly { 0 } else { handle.len() });
        Self { cache: cache.clone(), path: None, handle, mode, written, file: None }
    }

    /// What clients may do to it.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Notes that `range` is about to be written.
    pub(super) fn writes(&self, range: Range<u64>) {
        self.written.add(range);
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.handle.len()
    }

    /// A reader of its own, for one connection of `client`.
    pub(super) fn handle(&self, client: &str) -> Result<Handle, OpenError> {
        self.cache.client(client).share(&self.handle, self.path.as_deref())
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
            return match self.written.first(at..hole_end) {
                None => (hole_end, STATE_HOLE | STATE_ZERO),
                Some(written) if written.start > at => (written.start, STATE_HOLE | STATE_ZERO),
                Some(written) => (written.end.min(hole_end), 0),
            };
        }
        let hole = seek(file, SeekFrom::Hole(data)).unwrap_or(end);
        (hole.next_multiple_of(align).min(end).max(at + 1), 0)
    }
}

impl Mode {
    fn access(self) -> Access {
        match self {
            Self::ReadOnly => Access::Read,
            Self::WriteThrough | Self::WriteBack => Access::ReadWrite,
        }
    }
}

/// Where an export was written since it was opened, in chunks: a bit each, never cleared.
#[derive(Debug)]
struct Written {
    bits: Box<[AtomicU64]>,
    chunk_bytes: u64,
}

impl Written {
    fn new(bytes: u64) -> Self {
        let chunk_bytes = bytes.div_ceil(CHUNKS_MAX).next_power_of_two().max(CHUNK_BYTES_MIN);
        let chunks = bytes.div_ceil(chunk_bytes);
        assert!(chunks <= CHUNKS_MAX, "{chunks} chunks");
        let words = (0..chunks.div_ceil(64)).map(|_| AtomicU64::new(0));
        Self { bits: words.collect(), chunk_bytes }
    }

    fn add(&self, range: Range<u64>) {
        for chunk in self.chunks(range) {
            let (word, bit) = place(chunk);
            self.bits[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The first written chunk that `range` touches.
    fn first(&self, range: Range<u64>) -> Option<Range<u64>> {
        let is_written = |&chunk: &u64| {
            let (word, bit) = place(chunk);
            self.bits.get(word).is_some_and(|word| word.load(Ordering::Relaxed) & bit > 0)
        };
        let chunk = self.chunks(range).find(is_written)?;
        Some(chunk * self.chunk_bytes..(chunk + 1) * self.chunk_bytes)
    }

    fn chunks(&self, range: Range<u64>) -> Range<u64> {
        range.start / self.chunk_bytes..range.end.div_ceil(self.chunk_bytes)
    }
}

/// The word and the bit of a chunk.
fn place(chunk: u64) -> (usize, u64) {
    (usize::try_from(chunk / 64).expect("chunks are bounded"), 1 << (chunk % 64))
}

const CHUNKS_MAX: u64 = 1 << 16;
const CHUNK_BYTES_MIN: u64 = 64 << 10;

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
        let disk = Disk::open(&cache, &path, Mode::ReadOnly).unwrap();
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

    #[test]
    fn what_was_written_is_data_where_the_file_still_has_a_hole() {
        let scratch = Scratch::new("extents");
        let path = scratch.join("f");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let cache = Cache::builder().memory(4 << 20).build().unwrap();
        let disk = Disk::open(&cache, &path, Mode::WriteBack).unwrap();
        if !has_holes_all(disk.file.as_ref().unwrap()) {
            return;
        }
        disk.writes((128 << 10) + 5..(128 << 10) + 6);
        let all = disk.extents(0, 1 << 20, false, 512);
        let all: Vec<(u32, u32)> = all.iter().map(|it| (it.bytes, it.state)).collect();
        assert_eq!(all, [(128 << 10, 3), (64 << 10, 0), ((1 << 20) - (192 << 10), 3)]);
    }

    /// Whether the file system of temporary files tells that `file` is one hole.
    fn has_holes_all(file: &File) -> bool {
        seek(file, SeekFrom::Data(0)) == Err(Errno::NXIO)
    }

    #[test]
    fn a_written_range_is_found_by_the_chunks_that_it_touches() {
        let written = Written::new(1 << 40);
        let chunk = written.chunk_bytes;
        assert_eq!((chunk, written.bits.len()), (1 << 24, 1024));
        written.add(3 * chunk - 1..3 * chunk + 1);
        let rows = [
            (0..2 * chunk, None),
            (0..3 * chunk, Some(2 * chunk..3 * chunk)),
            (3 * chunk + 7..3 * chunk + 8, Some(3 * chunk..4 * chunk)),
            (4 * chunk..1 << 40, None),
        ];
        for (range, found) in rows {
            assert_eq!(written.first(range.clone()), found, "{range:?}");
        }
        assert_eq!(Written::new(0).first(0..1 << 30), None, "of a disk that is read");
    }
}
