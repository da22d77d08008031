//! Whether a page is in memory, for a file of which the kernel tells this process nothing else.
//!
//! ```text
//!   program's file --readahead(2)--> own descriptor
//!                  --one byte, RWF_NOWAIT--> probe, a descriptor of its own, FADV_RANDOM
//! ```
//! The probe reads one byte without waiting for it. A page that is absent is fetched by that; with
//! the readahead state of an ordinary descriptor the kernel would fetch a whole window behind the
//! pages that are cached before it.
//!
//! # Invariants
//! - A probe fetches one page at most, and no other descriptor's readahead state is touched.
//! # Sources
//! Linux `mm/readahead.c`: `page_cache_sync_ra` (history behind cached pages; `FMODE_RANDOM`).

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::{open_again, stand_for, stat};

/// A descriptor that serves for probing alone.
#[derive(Debug)]
pub struct Probe {
    file: File,
}

impl Probe {
    /// Opens `file` once more; `None` where the system refuses that or the advice.
    #[must_use]
    pub fn new(file: &File) -> Option<Self> {
        let file = open_again(file).ok()?;
        fadvise(&file, 0, None, Advice::Random).ok()?;
        Some(Self { file })
    }

    /// Closes the file: see [`stand_for`].
    pub(crate) fn release(&self, nothing: &OwnedFd) {
        let _ = stand_for(&self.file, nothing);
    }

    /// Whether the last page before `end` can be read without waiting; `None` where the file
    /// system does not tell, and for an empty file.
    #[must_use]
    pub fn is_ready(&self, end: u64) -> Option<bool> {
        let mut byte = [0];
        let mut bytes = [IoSliceMut::new(&mut byte)];
        let last = end.min(stat(&self.file).ok()?.st_size).checked_sub(1)?;
        match preadv2(&self.file, &mut bytes, last, ReadWriteFlags::NOWAIT) {
            Ok(count) => Some(count > 0),
            Err(Errno::AGAIN) => Some(false),
            Err(_) => None,
        }
    }
}
