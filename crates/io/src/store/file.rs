//! A file that is open: what is common to every store over the kernel's file interfaces.
//!
//! It is open twice where that works: through the kernel's page cache, and past it (`O_DIRECT`).
//! The route of an operation is decided when it is submitted:
//!
//! ```text
//!   route(op):  Direct    the device reads into the frames: all is aligned, nothing is cached
//!               Buffered  through the kernel's page cache: it has all of the pages already,
//!                         or something is not aligned, or the file cannot be read past it
//! ```
//!
//! # Invariants
//! - A path that is no regular file or block device is refused when it is opened, and opening it
//!   never waits for a writer at the other end of a FIFO.
//! - The length and the version are asked for anew each time: another program may change both.
//! - A transfer that the kernel cuts short or a signal ends is taken up again where it stopped;
//!   only the end of the file makes a read short (`transfer.rs`).
//! - The kernel reads nothing ahead: its readahead is off on the descriptor that goes through its
//!   page cache.
//! - A direct read that fails with `EINVAL` is done again buffered, and nothing more is read
//!   directly from that file.
//! # Sources
//! Linux `preadv(2)`: at most 1024 buffers a call; `fdatasync(2)`, `fallocate(2)`,
//! `posix_fadvise(2)`.

mod align;
mod cached;
mod transfer;

use std::{
    fs::{File, FileType, OpenOptions},
    io::{Error, Seek, SeekFrom},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    fs::{
        Advice, FallocateFlags, OFlags, Stat, fadvise, fallocate, fcntl_setfl, fdatasync, fstat,
        ftruncate, seek,
    },
    io::{Errno, retry_on_intr},
};

pub(crate) use self::transfer::{Call, Next, Transfer};
use self::{align::Align, cached::CachedSample};
use super::{Change, Op, OpKind, Stamp, StoreError, Version};

/// What may be done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads. Writes fail with `EBADF`.
    Read,
    /// Reads, writes and syncs.
    ReadWrite,
}

/// How an operation reaches the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Past the kernel's page cache.
    Direct,
    /// Through it.
    Buffered,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) buffered: File,
    /// The same file past the page cache, where that works.
    pub(crate) direct: Option<File>,
    /// What operations on `direct` have to keep to.
    align: Align,
    /// The kernel refused a direct operation that was aligned.
    direct_refused: AtomicBool,
    cached: CachedSample,
    path: PathBuf,
}

impl OpenFile {
    /// Opens the file or block device at `path`, which must be there, to go through the kernel's
    /// page cache.
    ///
    /// # Errors
    /// It is missing, may not be opened so, or is neither.
    pub(crate) fn open(path: PathBuf, access: Access) -> Result<Self, StoreError> {
        let refused = |errno| StoreError::System { path: path.clone(), what: "open", errno };
        let file = match open_as(&path, access, OFlags::NONBLOCK) {
            // A directory cannot be opened to write, a socket not at all: say what it is.
            Err(error) => {
                if let Ok(found) = std::fs::metadata(&path) {
                    require_offsets(found.file_type(), &path)?;
                }
                return Err(refused(errno_of(&error)));
            }
            Ok(file) => file,
        };
        let found = file.metadata().map_err(|error| refused(errno_of(&error)))?;
        require_offsets(found.file_type(), &path)?;
        fcntl_setfl(&file, OFlags::empty()).map_err(|errno| refused(errno.raw_os_error()))?;
        // A file system that takes no advice reads ahead as it likes; the bytes are the same.
        let _ = fadvise(&file, 0, None, Advice::Random);
        Ok(Self {
            buffered: file,
            direct: None,
            align: Align::NONE,
            direct_refused: AtomicBool::new(false),
            cached: CachedSample::new(),
            path,
        })
    }

    /// As [`OpenFile::open`], to go past the page cache where the file system can.
    ///
    /// # Errors
    /// As of [`OpenFile::open`].
    pub(crate) fn open_direct(path: PathBuf, access: Access) -> Result<Self, StoreError> {
        let mut opened = Self::open(path, access)?;
        let Ok(direct) = open_as(&opened.path, access, OFlags::DIRECT | OFlags::NONBLOCK) else {
            return Ok(opened);
        };
        // Another program may have put another file there in between.
        let same = opened.same_as(&direct) && fcntl_setfl(&direct, OFlags::DIRECT).is_ok();
        if let Some(align) = same.then(|| Align::of(&direct)).flatten() {
            assert!(align.offset.is_power_of_two(), "an alignment is a power of two");
            opened.align = align;
            opened.direct = Some(direct);
            opened.cached.sample(&opened.buffered, opened.bytes().unwrap_or(0));
        }
        Ok(opened)
    }

    /// Its length now.
    pub(crate) fn bytes(&self) -> Result<u64, StoreError> {
        self.length(&self.stat()?)
    }

    /// What it is now.
    pub(crate) fn version(&self) -> Result<Version, StoreError> {
        let found = self.stat()?;
        let stamp = |seconds, nanos: u64| Stamp { seconds, nanos: nanos.cast_signed() };
        Ok(Version {
            device: found.st_dev,
            inode: found.st_ino,
            bytes: self.length(&found)?,
            modified: stamp(found.st_mtime, found.st_mtime_nsec),
            changed: stamp(found.st_ctime, found.st_ctime_nsec),
        })
    }

    /// What it is now, once no write that this tells of is in progress. Linux changes the times at
    /// the start of a write and moves the bytes afterwards, both under the inode's lock, which
    /// ext4, tmpfs and others take to look for data too.
    pub(crate) fn settled_version(&self) -> Result<Version, StoreError> {
        let version = self.version()?;
        // Behind any end: an error at once, after the lock.
        let _ = seek(&self.buffered, rustix::fs::SeekFrom::Data(i64::MAX.unsigned_abs()));
        Ok(version)
    }

    /// How `op` is best carried out.
    pub(crate) fn route(&self, op: &Op) -> Route {
        let direct = self.direct.is_some() && !self.direct_refused.load(Ordering::Relaxed);
        if !direct || !self.align.fits(op) {
            return Route::Buffered;
        }
        match op.kind {
            OpKind::Read if self.is_cached(op) => Route::Buffered,
            OpKind::Read | OpKind::Write => Route::Direct,
            OpKind::Sync => Route::Buffered,
        }
    }

    /// Where an operation that goes past the page cache may begin: a multiple of this.
    pub(crate) fn offset_align(&self) -> usize {
        self.align.offset
    }

    /// The file as `route` has it.
    pub(crate) fn by(&self, route: Route) -> &File {
        match (route, &self.direct) {
            (Route::Direct, Some(direct)) => direct,
            (Route::Direct, None) => unreachable!("no route leads past the cache then"),
            (Route::Buffered, _) => &self.buffered,
        }
    }

    /// Routes all that comes through the page cache: the kernel refused what was aligned.
    pub(crate) fn refuse_direct(&self) {
        self.direct_refused.store(true, Ordering::Relaxed);
    }

    /// Makes what was written durable.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        retry_on_intr(|| fdatasync(&self.buffered))
    }

    /// Changes bytes without moving them.
    pub(crate) fn change(&self, change: Change) -> Result<(), i32> {
        let file = &self.buffered;
        let allocate = |mode, offset, bytes| {
            retry_on_intr(|| fallocate(file, mode | FallocateFlags::KEEP_SIZE, offset, bytes))
        };
        let changed = match change {
            Change::Length(bytes) => retry_on_intr(|| ftruncate(file, bytes)),
            Change::Zero { offset, bytes, allocated: true } => {
                allocate(FallocateFlags::ZERO_RANGE, offset, bytes)
            }
            Change::Zero { offset, bytes, allocated: false }
            | Change::Discard { offset, bytes } => {
                allocate(FallocateFlags::PUNCH_HOLE, offset, bytes)
            }
        };
        changed.map_err(Errno::raw_os_error)
    }

    /// The length that it cannot grow beyond: that of a block device.
    pub(crate) fn bytes_max(&self) -> Option<u64> {
        let found = self.stat().ok().filter(is_block_device)?;
        self.length(&found).ok()
    }

    /// Whether the kernel's page cache has all that `op` reads.
    fn is_cached(&self, op: &Op) -> bool {
        if self.cached.is_due() {
            self.cached.sample(&self.buffered, self.bytes().unwrap_or(0));
        }
        self.cached.all_of(&self.buffered, op.offset, op.bytes)
    }

    fn same_as(&self, other: &File) -> bool {
        let (Ok(ours), Ok(theirs)) = (self.buffered.metadata(), other.metadata()) else {
            return false;
        };
        (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino())
    }

    /// Asks the system: each fetch does, and this call is the shortest.
    fn stat(&self) -> Result<Stat, StoreError> {
        fstat(&self.buffered).map_err(|errno| self.failed("stat", &errno.into()))
    }

    /// Whether it is a block device.
    pub(crate) fn is_device(&self) -> bool {
        self.stat().is_ok_and(|found| is_block_device(&found))
    }

    /// The length of what `found` describes: of a block device, `stat` does not know it.
    fn length(&self, found: &Stat) -> Result<u64, StoreError> {
        if is_block_device(found) {
            let mut device = &self.buffered;
            return device.seek(SeekFrom::End(0)).map_err(|error| self.failed("measure", &error));
        }
        u64::try_from(found.st_size).map_err(|_| self.failed("measure", &Errno::OVERFLOW.into()))
    }

    fn failed(&self, what: &'static str, error: &Error) -> StoreError {
        StoreError::System { path: self.path.clone(), what, errno: errno_of(error) }
    }
}

/// Opens with `flags`. Without `NONBLOCK` the open of a FIFO would wait for a writer.
fn open_as(path: &Path, access: Access, flags: OFlags) -> Result<File, Error> {
    let flags = i32::try_from(flags.bits()).expect("flags are small");
    let write = access == Access::ReadWrite;
    OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)
}

fn is_block_device(found: &Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(found.st_mode).is_block_device()
}

/// Refuses what has no bytes at offsets.
fn require_offsets(kind: FileType, path: &Path) -> Result<(), StoreError> {
    let (what, errno) = if kind.is_file() || kind.is_block_device() {
        return Ok(());
    } else if kind.is_dir() {
        ("a directory", Errno::ISDIR)
    } else if kind.is_fifo() {
        ("a FIFO", Errno::SPIPE)
    } else if kind.is_socket() {
        ("a socket", Errno::SPIPE)
    } else {
        ("a character device", Errno::SPIPE)
    };
    Err(StoreError::NotAFile { path: path.into(), what, errno: errno.raw_os_error() })
}

/// The errno of the system; `EINVAL` where the standard library never asked it.
fn errno_of(error: &Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error())
}

#[cfg(test)]
mod tests;
