//! A file that is open: what is common to every store over the kernel's file interfaces.
//!
//! ```text
//!   route(op):  Direct    the device reads into the frames
//!               Buffered  through the kernel's page cache
//! ```
//!
//! # Invariants
//! - A path that is no regular file or block device is refused when it is opened, and opening it
//!   never waits for a writer at the other end of a FIFO.
//! - The length and the version are asked for anew each time: another program may change both.
//! - A transfer that the kernel cuts short or a signal ends is taken up again where it stopped;
//!   only the end of the file makes a read short.
//! # Sources
//! Linux `preadv(2)`: at most 1024 buffers a call; `fdatasync(2)`.

use std::{
    fs::{File, FileType, Metadata, OpenOptions},
    io::{Error, IoSlice, IoSliceMut, Seek, SeekFrom},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{OFlags, fcntl_setfl, fdatasync},
    io::{Errno, preadv, pwritev, retry_on_intr},
};

use super::{Op, Stamp, StoreError, Version};

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
pub(crate) struct Opened {
    pub(crate) buffered: File,
    /// The same file past the page cache, where that works.
    pub(crate) direct: Option<File>,
    path: PathBuf,
}

impl Opened {
    /// Opens the file or block device at `path`, which must be there.
    ///
    /// # Errors
    /// It is missing, may not be opened so, or is neither.
    pub(crate) fn open(path: PathBuf, access: Access) -> Result<Self, StoreError> {
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
        Ok(Self { buffered: file, direct: None, path })
    }

    /// Its length now.
    pub(crate) fn bytes(&self) -> Result<u64, StoreError> {
        self.length(&self.metadata()?)
    }

    /// What it is now.
    pub(crate) fn version(&self) -> Result<Version, StoreError> {
        let found = self.metadata()?;
        Ok(Version {
            device: found.dev(),
            inode: found.ino(),
            bytes: self.length(&found)?,
            modified: Stamp { seconds: found.mtime(), nanos: found.mtime_nsec() },
            changed: Stamp { seconds: found.ctime(), nanos: found.ctime_nsec() },
        })
    }

    /// How `op` is best carried out.
    pub(crate) fn route(&self, _: &Op) -> Route {
        match self.direct {
            Some(_) => Route::Direct,
            None => Route::Buffered,
        }
    }

    /// Makes what was written durable.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        retry_on_intr(|| fdatasync(&self.buffered))
    }

    fn metadata(&self) -> Result<Metadata, StoreError> {
        self.buffered.metadata().map_err(|error| self.failed("stat", &error))
    }

    /// The length of what `found` describes: of a block device, `stat` does not know it.
    fn length(&self, found: &Metadata) -> Result<u64, StoreError> {
        if found.file_type().is_block_device() {
            let mut device = &self.buffered;
            return device.seek(SeekFrom::End(0)).map_err(|error| self.failed("measure", &error));
        }
        Ok(found.len())
    }

    fn failed(&self, what: &'static str, error: &Error) -> StoreError {
        StoreError::System { path: self.path.clone(), what, errno: errno_of(error) }
    }

    /// Carries a read out, blocking.
    pub(crate) fn read(&self, op: &mut Op) -> Result<usize, Errno> {
        let (offset, bytes) = (op.offset, op.bytes);
        let mut slices: Vec<_> = op.pieces_mut().map(IoSliceMut::new).collect();
        let mut left = &mut slices[..];
        let mut moved = 0;
        while moved < bytes {
            let at = offset.checked_add(moved as u64).ok_or(Errno::INVAL)?;
            let count = retry_on_intr(|| preadv(&self.buffered, left, at))?;
            if count == 0 {
                break;
            }
            moved += count;
            IoSliceMut::advance_slices(&mut left, count);
        }
        op.zero_past(moved);
        Ok(moved)
    }

    /// Carries a write out, blocking.
    pub(crate) fn write(&self, op: &Op) -> Result<usize, Errno> {
        let mut slices: Vec<_> = op.pieces().map(IoSlice::new).collect();
        let mut left = &mut slices[..];
        let mut moved = 0;
        while moved < op.bytes {
            let at = op.offset.checked_add(moved as u64).ok_or(Errno::INVAL)?;
            let count = retry_on_intr(|| pwritev(&self.buffered, left, at))?;
            if count == 0 {
                return Err(Errno::IO);
            }
            moved += count;
            IoSlice::advance_slices(&mut left, count);
        }
        Ok(moved)
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
        let opened = Opened::open(running, Access::Read).unwrap();
        let flags = rustix::fs::fcntl_getfl(&opened.buffered).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
    }
}
