//! The terms of walks: directories and their entries, how a program uses these, what is requested
//! of them.
//!
//! # Invariants
//! - A request names an entry by its place in the listing that the driver gave.

use crate::units::Nanos;

/// A directory. Dense from 0; a number that is given again belongs to another directory then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryId(pub u32);

/// The name of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WalkRequestId(pub u64);

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file with bytes.
    File,
    /// A directory.
    Directory,
    /// A link, device, socket or pipe.
    Other,
}

/// An entry of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its name, without a path.
    pub name: &'a [u8],
    /// Its inode's number.
    pub inode: u64,
    /// What it is.
    pub kind: EntryKind,
}

/// How a program uses an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It asks for the inode's facts, or opens the entry.
    Stat,
    /// It reads or maps bytes.
    Read {
        /// Whether it has read up to the end of the file.
        to_end: bool,
    },
}

/// What is requested of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Its inode.
    Inode,
    /// The entries of the directory: the driver registers it and gives its listing before it
    /// completes the request.
    Listing,
    /// Inode and bytes, up to [`head_bytes`](super::WalkSettings::head_bytes).
    Head,
    /// Inode and bytes, up to [`whole_bytes`](super::WalkSettings::whole_bytes).
    Whole,
}

/// An entry to be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkRequest {
    /// Its name.
    pub id: WalkRequestId,
    /// The directory.
    pub dir: DirectoryId,
    /// The entry, by its place in the listing; `None` for the directory itself.
    pub index: Option<u32>,
    /// How much of it.
    pub want: Want,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkOutcome {
    /// It is there.
    Fetched {
        /// Bytes of the file that were fetched.
        bytes: u64,
        /// What a program that uses it does not have to wait for any more; 0: not known.
        saves: Nanos,
    },
    /// It could not be fetched, or is no longer there.
    Failed,
}
