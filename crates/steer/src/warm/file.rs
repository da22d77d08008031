//! A file that may be in memory: its identity, where its data lies, what is missing.
//!
//! ```text
//!   file   |####....####|......hole......|########|
//!   data    0..12                         29..37       a hole costs no request and is not fetched
//! ```
//!
//! # Invariants
//! - A name that leads to another file than before, or to a shorter one, is a changed file.
//! - At most [`PIECES_MAX`] pieces of data are kept apart; what follows them counts as data.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, OFlags, SeekFrom, fadvise, seek};
use rustix::io::Errno;

use super::{SkipReason, SkippedFile};
use crate::kernel::{self, Residency};

/// A file as it was when it was examined.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) id: Id,
    /// Its length at that time.
    pub(super) end: u64,
    /// Bytes of data.
    pub(super) bytes: u64,
    /// Of these, bytes that are not in memory; all where the residency is unknown.
    pub(super) missing: u64,
    /// Whether the kernel tells this process what is in memory.
    pub(super) is_known: bool,
    /// Where its first byte lies on the device, if something is missing and the file system tells.
    pub(super) place: Option<u64>,
}

/// The identity of a file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Id {
    pub(super) fn of(found: &fs::Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}

/// A file that is open, with its metadata.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: fs::File,
    found: fs::Metadata,
}

impl File {
    /// Examines the file that was opened by `path`, up to `end`.
    pub(super) fn examine(path: &Path, opened: &OpenFile, end: u64) -> Result<Self, SkipReason> {
        let (mut bytes, mut missing, mut is_known) = (0, 0, true);
        for piece in opened.data(end) {
            let piece_bytes = piece.end - piece.start;
            bytes += piece_bytes;
            match kernel::cached(&opened.file, &piece).map_err(SkipReason::of_untold)? {
                Residency::Pages(cached) => missing += absent_bytes(&piece, cached),
                Residency::Unknown => {
                    missing += piece_bytes;
                    is_known = false;
                }
            }
        }
        assert!(missing <= bytes && bytes <= end, "what is missing is a part of the file");
        let place = if missing > 0 { kernel::place(&opened.file) } else { None };
        Ok(Self { path: path.to_owned(), id: opened.id(), end, bytes, missing, is_known, place })
    }

    /// Examines it again, as it is now.
    pub(super) fn examine_again(&self) -> Result<Self, SkipReason> {
        Self::examine(&self.path, &self.open()?, self.end)
    }

    /// Opens it again.
    pub(super) fn open(&self) -> Result<OpenFile, SkipReason> {
        let opened = OpenFile::new(&self.path, Links::Followed).map_err(|error| match error {
            SkipReason::NotAFile => SkipReason::Changed,
            error => error,
        })?;
        let is_same = opened.id() == self.id && opened.bytes() >= self.end;
        if is_same { Ok(opened) } else { Err(SkipReason::Changed) }
    }

    /// Where its data lies, of what it had when it was examined.
    pub(super) fn data(&self, opened: &OpenFile) -> Vec<Range<u64>> {
        opened.data(self.end)
    }

    pub(super) fn skipped(self, why: SkipReason) -> SkippedFile {
        SkippedFile { path: self.path, bytes: self.missing, why }
    }
}

/// What opening does with a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    Followed,
    Refused,
}

impl OpenFile {
    /// Opens a regular file, without waiting.
    pub(super) fn new(path: &Path, links: Links) -> Result<Self, SkipReason> {
        let how = match links {
            Links::Followed => OFlags::empty(),
            Links::Refused => OFlags::NOFOLLOW,
        };
        let opened = kernel::open_for_reading(path, how);
        let file = opened.map_err(|error| SkipReason::Closed(error.into()))?;
        let found = file.metadata().map_err(SkipReason::Closed)?;
        if !found.is_file() {
            return Err(SkipReason::NotAFile);
        }
        // Reads fetch no window of the kernel's readahead.
        let _ = fadvise(&file, 0, None, Advice::Random);
        Ok(Self { file, found })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.found.len()
    }

    pub(super) fn id(&self) -> Id {
        Id::of(&self.found)
    }

    /// Where data lies before `end`.
    fn data(&self, end: u64) -> Vec<Range<u64>> {
        // Blocks are of 512 bytes, whatever the file system's are.
        let has_holes = self.found.blocks().saturating_mul(512) < end;
        let from = |at: SeekFrom| seek(&self.file, at);
        pieces(end, |at| {
            if !has_holes {
                return Ok(Some(at..end));
            }
            match from(SeekFrom::Data(at)) {
                Ok(start) => Ok(Some(start..from(SeekFrom::Hole(start))?)),
                Err(Errno::NXIO) => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }
}

#[cfg(test)]
impl File {
    /// A file that does not exist, of which all is missing.
    pub(super) fn example(inode: usize, missing: u64) -> Self {
        let id = Id { device: 0, inode: inode as u64 };
        let path = PathBuf::from(format!("/dev/null/{inode}"));
        Self { path, id, end: missing, bytes: missing, missing, is_known: true, place: None }
    }
}

/// The pieces before `end` that `next` finds, from a byte on. Where it fails the rest is one piece.
fn pieces(
    end: u64,
    mut next: impl FnMut(u64) -> io::Result<Option<Range<u64>>>,
) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < end {
        let piece = if found.len() + 1 < PIECES_MAX { next(at) } else { Ok(Some(at..end)) };
        let piece = match piece {
            Ok(Some(piece)) if piece.start >= at && !piece.is_empty() => piece,
            Ok(None) => break,
            // An answer that cannot be.
            Ok(Some(_)) | Err(_) => at..end,
        };
        at = piece.end;
        if piece.start < end {
            found.push(piece.start..piece.end.min(end));
        }
    }
    found
}

/// The bytes of `range` that are not in memory when `cached` of its pages are.
pub(super) fn absent_bytes(range: &Range<u64>, cached: u64) -> u64 {
    let page = rustix::param::page_size() as u64;
    let absent = kernel::pages(range).saturating_sub(cached);
    absent.saturating_mul(page).min(range.end - range.start)
}

/// Pieces of one file.
const PIECES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_with_the_file_and_are_bounded() {
        type Next = fn(u64) -> io::Result<Option<Range<u64>>>;
        type Row = (&'static str, Next, &'static [(u64, u64)]);
        #[rustfmt::skip]
        let rows: &[Row] = &[
            ("all of it",           |at| Ok(Some(at..100)),                      &[(0, 100)]),
            ("it grew",             |at| Ok(Some(at..900)),                      &[(0, 100)]),
            ("a hole at its head",  |at| Ok(Some(at.max(60)..100)),              &[(60, 100)]),
            ("nothing but a hole",  |_| Ok(None),                                &[]),
            ("data beyond its end", |_| Ok(Some(200..300)),                      &[]),
            ("two pieces",          |at| Ok((at < 40).then(|| at + 10..at + 20)),
                                                                 &[(10, 20), (30, 40)]),
            ("it cannot be told",   |_| Err(Errno::INVAL.into()),                &[(0, 100)]),
            ("nonsense",            |at| Ok(Some(at..at)),                       &[(0, 100)]),
        ];
        for (why, next, expected) in rows {
            let found: Vec<_> = pieces(100, next).iter().map(|r| (r.start, r.end)).collect();
            assert_eq!(found, *expected, "{why}");
        }
        let many = pieces(u64::MAX, |at| Ok(Some(at + 1..at + 2)));
        assert_eq!(many.len(), PIECES_MAX);
        assert_eq!(many.last().map(|last| last.end), Some(u64::MAX));
    }

    #[test]
    fn missing_bytes_are_whole_pages_but_at_the_end() {
        let page = rustix::param::page_size() as u64;
        #[rustfmt::skip]
        let rows = [ // why           range               cached  missing
            ("nothing is there",      0..2 * page + 5,    0,      2 * page + 5),
            ("a page is there",       0..2 * page + 5,    1,      2 * page),
            ("all is there",          0..2 * page + 5,    3,      0),
            ("more than there was",   0..page,            9,      0),
        ];
        for (why, range, cached, expected) in rows {
            assert_eq!(absent_bytes(&range, cached), expected, "{why}");
        }
    }
}
