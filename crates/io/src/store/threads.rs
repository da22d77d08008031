//! A file by its path, read and written with `preadv` and `pwritev`.
//!
//! Works wherever files do, the kernel's page cache included: the store of last resort, and the
//! one that others are compared with. A transfer that the kernel cuts short or a signal ends is
//! taken up again where it stopped; only the end of the file makes a read short.
//!
//! # Invariants
//! - A path that is no regular file or block device is refused when it is opened, and opening it
//!   never waits for a writer at the other end of a FIFO.
//! - The length and the version are asked for anew each time: another program may change both.
//! # Sources
//! Linux `preadv(2)`: at most 1024 buffers a call; `fdatasync(2)`.

use std::{
    fs::{File, FileType, Metadata, OpenOptions},
    io::{Error, IoSlice, IoSliceMut, Seek, SeekFrom},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{OFlags, fcntl_setfl, fdatasync},
    io::{Errno, preadv, pwritev, retry_on_intr},
};

use super::{Done, Op, OpKind, Queue, QueueKind, Stamp, Store, StoreError, Version};
use crate::queue::{Carry, open};

/// A file that is open.
#[derive(Clone, Debug)]
pub struct Threads {
    file: Arc<File>,
    path: Arc<Path>,
}

/// What may be done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads. Writes fail with `EBADF`.
    Read,
    /// Reads, writes and syncs.
    ReadWrite,
}

impl Threads {
    /// Opens the file or block device at `path`, which must be there.
    ///
    /// # Errors
    /// It is missing, may not be opened so, or is neither.
    pub fn open(path: impl Into<PathBuf>, access: Access) -> Result<Self, StoreError> {
        let path = path.into();
        let refused = |errno| StoreError::System { path: path.clone(), what: "open", errno };
        // Without `NONBLOCK` a FIFO would keep us here until somebody writes to it.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("flags are small");
        let write = access == Access::ReadWrite;
        let file = OpenOptions::new().read(true).write(write).custom_flags(flags).open(&path);
        let file = match file {
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
        Ok(Self { file: Arc::new(file), path: path.into() })
    }

    fn metadata(&self) -> Result<Metadata, StoreError> {
        self.file.metadata().map_err(|error| self.failed("stat", &error))
    }

    /// The length of what `found` describes: of a block device, `stat` does not know it.
    fn length(&self, found: &Metadata) -> Result<u64, StoreError> {
        if found.file_type().is_block_device() {
            let mut device = &*self.file;
            return device.seek(SeekFrom::End(0)).map_err(|error| self.failed("measure", &error));
        }
        Ok(found.len())
    }

    fn failed(&self, what: &'static str, error: &Error) -> StoreError {
        StoreError::System { path: self.path.to_path_buf(), what, errno: errno_of(error) }
    }

    fn read(&self, op: &mut Op) -> Result<usize, Errno> {
        let (offset, bytes) = (op.offset, op.bytes);
        let mut slices: Vec<_> = op.pieces_mut().map(IoSliceMut::new).collect();
        let mut left = &mut slices[..];
        let mut moved = 0;
        while moved < bytes {
            let at = offset.checked_add(moved as u64).ok_or(Errno::INVAL)?;
            let count = retry_on_intr(|| preadv(&self.file, left, at))?;
            if count == 0 {
                break;
            }
            moved += count;
            IoSliceMut::advance_slices(&mut left, count);
        }
        op.zero_past(moved);
        Ok(moved)
    }

    fn write(&self, op: &Op) -> Result<usize, Errno> {
        let mut slices: Vec<_> = op.pieces().map(IoSlice::new).collect();
        let mut left = &mut slices[..];
        let mut moved = 0;
        while moved < op.bytes {
            let at = op.offset.checked_add(moved as u64).ok_or(Errno::INVAL)?;
            let count = retry_on_intr(|| pwritev(&self.file, left, at))?;
            if count == 0 {
                return Err(Errno::IO);
            }
            moved += count;
            IoSlice::advance_slices(&mut left, count);
        }
        Ok(moved)
    }
}

impl Store for Threads {
    fn bytes(&self) -> Result<u64, StoreError> {
        self.length(&self.metadata()?)
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        open(self.clone(), kind)
    }

    fn version(&self) -> Result<Version, StoreError> {
        let found = self.metadata()?;
        Ok(Version {
            device: found.dev(),
            inode: found.ino(),
            bytes: self.length(&found)?,
            modified: Stamp { seconds: found.mtime(), nanos: found.mtime_nsec() },
            changed: Stamp { seconds: found.ctime(), nanos: found.ctime_nsec() },
        })
    }
}

impl Carry for Threads {
    type Plan = ();

    fn plan(&self, _: &Op) {}

    fn carry(&self, mut op: Op, (): ()) -> Done {
        let result = match op.kind {
            OpKind::Read => self.read(&mut op),
            OpKind::Write => self.write(&op),
            OpKind::Sync => retry_on_intr(|| fdatasync(&self.file)).map(|()| 0),
        };
        Done { op, result: result.map_err(Errno::raw_os_error) }
    }
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

/// The errno that the system gave; `EINVAL` where the standard library never asked it.
fn errno_of(error: &Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_not_left_in_the_mode_that_it_was_opened_in() {
        let running = std::env::current_exe().unwrap();
        let store = Threads::open(running, Access::Read).unwrap();
        let flags = rustix::fs::fcntl_getfl(&store.file).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
    }
}
