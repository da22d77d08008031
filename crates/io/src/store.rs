//! What a store is: the operations it takes, how they are handed over and how they come back.
//!
//! A [`Store`] holds bytes. A [`Queue`] of it takes operations and gives each back once, done. An
//! [`Op`] owns its frames while it is in flight:
//!
//! ```text
//!   offset          offset + bytes
//!     |================|............|     frames: page, page, page
//!     |<---- bytes --->|<- beyond ->|     the last page may count in part
//!
//!   a read that moved fewer bytes than were asked met the end of the store:
//!     |== moved ==|0000000000000000|     every byte of the frames past `moved` is zero
//! ```
//!
//! # Invariants
//! - Every operation comes back exactly once, by its token, with all of its frames, in order; after
//!   a panic of its store without them, as failed.
//! - After a read that succeeded, every byte of its frames past the bytes moved is zero, also
//!   those of the last frame that do not count. After one that failed they may hold anything.
//! - [`Queue::reap`] with [`Wait::One`] comes back with nothing only when nothing is in flight.
//! - Operations are not ordered: a sync covers the writes that were reaped before it was
//!   submitted, no others.

pub mod file;
pub mod memory;
pub mod pattern;
pub mod threads;
pub(crate) mod uring;

use std::{io, path::PathBuf, sync::Arc};

use rustix::io::Errno;

use crate::frames::Frame;

/// The errno of an operation that a closed queue gave back.
pub const ECANCELED: i32 = Errno::CANCELED.raw_os_error();

/// The errno of a change that a store cannot make.
pub const EOPNOTSUPP: i32 = Errno::OPNOTSUPP.raw_os_error();

/// What holds the bytes: a file, a device, memory, a formula.
///
/// A store and its queues answer with errors. One that panics fails the operations that it has:
/// with `EIO`, or without an answer, and its queue is used no more.
pub trait Store: Send + Sync {
    /// Its length now.
    ///
    /// # Errors
    /// The system would not say.
    fn bytes(&self) -> Result<u64, StoreError>;

    /// A new queue of its own. It outlives the store.
    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue>;

    /// The length that it cannot grow beyond, if there is one.
    fn bytes_max(&self) -> Option<u64> {
        self.inner().and_then(Store::bytes_max)
    }

    /// Changes bytes without moving them. The caller sees to it that no operation on them is in
    /// flight; a sync that is submitted later covers the change.
    ///
    /// # Errors
    /// An errno; [`EOPNOTSUPP`] and no change where the store cannot do that.
    fn change(&self, change: Change) -> Result<(), i32> {
        self.inner().map_or(Err(EOPNOTSUPP), |inner| inner.change(change))
    }

    /// The store that this one is around, if it is: its versions are this one's.
    fn inner(&self) -> Option<&dyn Store> {
        None
    }

    /// The version of the bytes, which changes with them. Constant unless the store knows better.
    ///
    /// # Errors
    /// The system would not say.
    fn version(&self) -> Result<Version, StoreError> {
        self.inner().map_or_else(|| Ok(Version::default()), Store::version)
    }

    /// Whether every change of the bytes changes the version, as far as the system's clocks tell.
    /// Of a block device it does not: it may be written by another name, or be another device.
    fn version_tells_all(&self) -> bool {
        self.inner().is_none_or(Store::version_tells_all)
    }

    /// As [`Store::version`], for a caller that takes bytes as those of that version: no write that
    /// the version tells of is still in progress.
    ///
    /// # Errors
    /// The system would not say.
    fn settled_version(&self) -> Result<Version, StoreError> {
        self.inner().map_or_else(|| self.version(), Store::settled_version)
    }
}

/// A change of a store's bytes that moves none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has this many bytes from now on; new ones are zero.
    Length(u64),
    /// A range is zero from now on.
    Zero {
        /// Its first byte.
        offset: u64,
        /// How many; at least 1, and within the length.
        bytes: u64,
        /// Its room on the device stays allocated.
        allocated: bool,
    },
    /// A range is not needed until it is written again; it reads as zeros.
    Discard {
        /// Its first byte.
        offset: u64,
        /// How many; at least 1, and within the length.
        bytes: u64,
    },
}

/// What carries operations out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// The thread that reaps: no hand-over, and no progress unless a thread reaps. Readers' demand.
    Caller,
    /// Other threads, or the kernel. More operations than `depth` wait in the order of submission,
    /// and behind demand at a device that both share. Readahead.
    Background {
        /// Operations in flight at most; at least 1.
        depth: u32,
    },
}

/// Takes operations, gives them back done. Any thread may submit and reap.
pub trait Queue: Send + Sync {
    /// Hands `op` over. Never waits for a device. On a closed queue `op` is cancelled.
    ///
    /// # Panics
    /// `op` asks for more bytes than its frames hold.
    fn submit(&self, op: Op);

    /// Appends operations that are done to `out`. On a queue of [`QueueKind::Caller`] a call
    /// carries out one operation that waits, whichever `wait` says.
    fn reap(&self, wait: Wait, out: &mut Vec<Completion>);

    /// Ends the queue: what waits is cancelled ([`ECANCELED`]), what is in flight ends with its
    /// result or cancelled, reapers wake, threads end. All of it can still be reaped.
    fn close(&self);

    /// From the next submission on, `depth` operations are in flight at once, at most, where others
    /// carry out ([`QueueKind::Background`]). What is in flight beyond that stays so.
    ///
    /// # Panics
    /// `depth` is 0.
    fn set_depth(&self, depth: u32) {
        assert!(depth > 0, "a queue of depth 0 starts nothing");
    }

    /// Hands what was submitted to the system now, where only the next [`Queue::reap`] would: for
    /// a submitter that has other work to do before. The thread that starts also reaps.
    fn start(&self) {}

    /// The queue whose `reap` gives back this one's operations, where several share one; `reap`
    /// of this one is then not to be used. Tokens are the caller's to keep apart.
    fn reaper(&self) -> Option<Arc<dyn Queue>> {
        None
    }
}

/// Whether [`Queue::reap`] may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Comes back at once with what is done.
    Never,
    /// Blocks until at least one operation is done or none is in flight.
    One,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Moves bytes from the store into the frames.
    Read,
    /// Moves bytes from the frames to the store.
    Write,
    /// Makes what was written durable.
    Sync,
}

/// An operation and the frames it owns while it is in flight.
#[derive(Debug)]
pub struct Op {
    /// The caller's name for it.
    pub token: u64,
    /// What it does.
    pub kind: OpKind,
    /// Where in the store it begins; nothing to a sync.
    pub offset: u64,
    /// Bytes to move: at most what the frames hold.
    pub bytes: usize,
    /// Where the bytes go or come from, in order.
    pub frames: Vec<Frame>,
}

impl Op {
    /// Bytes that the frames hold.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.frames.iter().map(|frame| frame.len()).sum()
    }

    /// The parts of the frames that count, in order: `bytes` in all.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut left = self.bytes;
        self.frames.iter().map_while(move |frame| {
            let bytes = left.min(frame.len());
            left -= bytes;
            (bytes > 0).then(|| &frame[..bytes])
        })
    }

    /// As [`Op::pieces`], to write to.
    pub fn pieces_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let mut left = self.bytes;
        self.frames.iter_mut().map_while(move |frame| {
            let bytes = left.min(frame.len());
            left -= bytes;
            (bytes > 0).then(|| &mut frame[..bytes])
        })
    }

    /// Zeroes every byte of the frames past the first `moved`: the end of a read.
    pub fn zero_past(&mut self, moved: usize) {
        assert!(moved <= self.bytes, "more bytes moved than were asked for");
        let mut kept = moved;
        for frame in &mut self.frames {
            let from = kept.min(frame.len());
            frame[from..].fill(0);
            kept -= from;
        }
    }

    /// The operation as a closed queue gives it back.
    #[must_use]
    pub fn cancelled(self) -> Completion {
        Completion { op: self, result: Err(ECANCELED) }
    }

    /// Asserts what every queue requires of a submission.
    pub(crate) fn check(&self) {
        let capacity = self.capacity_bytes();
        assert!(self.bytes <= capacity, "{} bytes do not fit {capacity} of frames", self.bytes);
    }
}

#[cfg(test)]
impl Op {
    /// A sync, which has neither bytes nor frames.
    pub(crate) fn sync(token: u64) -> Self {
        Self { token, kind: OpKind::Sync, offset: 0, bytes: 0, frames: Vec::new() }
    }
}

/// An operation that came back.
#[derive(Debug)]
pub struct Completion {
    /// The operation, its frames included.
    pub op: Op,
    /// The bytes moved, or an errno.
    pub result: Result<usize, i32>,
}

/// The version of a file's contents: two contents of one version are the same, as far as the
/// system's clocks tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Version {
    /// The device that holds the file.
    pub device: u64,
    /// The file's number there.
    pub inode: u64,
    /// Its length.
    pub bytes: u64,
    /// When its bytes last changed.
    pub modified: Stamp,
    /// When its bytes or its attributes last changed; a program cannot set this back.
    pub changed: Stamp,
}

/// A moment of the file system's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Seconds since 1970; negative before.
    pub seconds: i64,
    /// Nanoseconds after that.
    pub nanos: i64,
}

/// Why a store cannot be opened or described.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The system refused, for instance as the file is missing or may not be read.
    #[error("cannot {what} {}: {}", path.display(), io::Error::from_raw_os_error(*errno))]
    System {
        /// The file.
        path: PathBuf,
        /// What was tried: `open` or `stat`.
        what: &'static str,
        /// The system's reason.
        errno: i32,
    },
    /// Neither a regular file nor a block device: there are no bytes at offsets.
    #[error("cannot read {}: it is {what}, not a file or a block device", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
        /// What it is, with its article.
        what: &'static str,
        /// The errno that fits.
        errno: i32,
    },
}

impl StoreError {
    /// The errno that says the same.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::System { errno, .. } | Self::NotAFile { errno, .. } => *errno,
        }
    }
}
