//! Fetches whole files into the page cache, before a program reads them.
//!
//! ```text
//!   paths --list----> files, and what of each is missing
//!         --plan----> those that fit a budget, the most missing first  | skipped: the others
//!                     in the order in which they lie on their device
//!         --fetch---> requested, waited for, examined                  | skipped: what failed
//!         --examine-> what is still there; what is not, once more      | skipped: what was evicted
//! ```
//! A file is fetched whole or not at all: half a file in memory saves a reader of all of it less
//! than half, and takes the room of one that could be whole.
//!
//! # Invariants
//! - Every file that was named, or found below a folder that was named, is in memory at the end or
//!   among [`Report::skipped`], with the reason.
//! - What is fetched fits the budget; a file whose residency is unknown counts with all its bytes.
//! - At most [`IN_FLIGHT_BYTES`] are in flight.
//! - Only regular files are opened, and none is changed.

mod fetch;
mod file;
mod list;
mod plan;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::memory::Memory;
use file::File;

pub use fetch::IN_FLIGHT_BYTES;
pub use list::ENTRIES_MAX;

/// Files, and what of them is missing in memory.
#[derive(Debug, Default)]
pub struct Listing {
    files: Vec<File>,
    skipped: Vec<SkippedFile>,
    /// There are more entries than are listed.
    is_cut: bool,
}

/// How far the fetching is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were fetched, and are there as far as known.
    pub bytes: u64,
    /// Bytes to fetch in all.
    pub bytes_all: u64,
    /// Files of which nothing is missing any more.
    pub files: u64,
    /// Files to fetch in all.
    pub files_all: u64,
}

/// The outcome.
#[derive(Debug, Default)]
pub struct Report {
    /// Regular files with bytes in them, each once.
    pub files: u64,
    /// Their bytes, without holes.
    pub bytes: u64,
    /// Bytes of them that were in memory before, as far as the kernel tells.
    pub bytes_before: u64,
    /// Bytes that were missing and are in memory now.
    pub bytes_fetched: u64,
    /// Files that are not, or not wholly, in memory.
    pub skipped: Vec<SkippedFile>,
    /// More files were found than are listed at once, and these were not examined.
    pub is_cut: bool,
}

/// A file or a folder that is not in memory.
#[derive(Debug)]
pub struct SkippedFile {
    /// Its path, as it was named or found.
    pub path: PathBuf,
    /// Its bytes that are missing, as far as known.
    pub bytes: u64,
    /// The reason.
    pub why: SkipReason,
}

/// Why a file is not in memory.
#[non_exhaustive]
#[derive(Debug)]
pub enum SkipReason {
    /// The file does not fit the rest of the budget.
    TooLarge,
    /// Other programs took the memory meanwhile.
    NoMemory,
    /// The kernel evicted the file again.
    Evicted,
    /// The path cannot be listed, opened, or examined.
    Closed(io::Error),
    /// The path is of neither a file nor a folder.
    NotAFile,
    /// The file is shorter than it was, or another file.
    Changed,
    /// The device failed, at this byte.
    Unreadable(u64, io::Error),
    /// The kernel caches nothing of the file, as where it is not on a device.
    NotKept,
}

impl SkipReason {
    /// Why the kernel does not tell what of a file is in memory: not of one that cannot be mapped.
    fn of_untold(error: io::Error) -> Self {
        let is_unmappable = Errno::from_io_error(&error) == Some(Errno::NODEV);
        if is_unmappable { Self::NotKept } else { Self::Closed(error) }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => f.write_str("does not fit the budget"),
            Self::NoMemory => f.write_str("memory became short"),
            Self::Evicted => f.write_str("evicted again by the kernel"),
            Self::Closed(error) => error.fmt(f),
            Self::NotAFile => f.write_str("not a file or a folder"),
            Self::Changed => f.write_str("changed meanwhile"),
            Self::Unreadable(at, error) => write!(f, "unreadable at byte {at}: {error}"),
            Self::NotKept => f.write_str("the kernel keeps nothing of it in memory"),
        }
    }
}

impl Listing {
    /// Examines `paths`: files, and folders with all that is below them on the same file system.
    /// Symbolic links are followed only where they are named.
    #[must_use]
    pub fn of(paths: &[impl AsRef<Path>]) -> Self {
        list::list(paths, ENTRIES_MAX)
    }

    /// The bytes that are missing in memory, with all of files whose residency is unknown.
    #[must_use]
    pub fn bytes_missing(&self) -> u64 {
        total(&self.files, |file| file.missing)
    }

    /// Fetches as many files as fit into memory, and waits until they are there. Fetching stops
    /// early when `memory` becomes short. `progress` is called after every piece.
    #[must_use]
    pub fn fetch(self, budget: u64, memory: &Memory, progress: &mut dyn FnMut(Progress)) -> Report {
        let mut report = Report {
            files: self.files.len() as u64,
            bytes: total(&self.files, |file| file.bytes),
            bytes_before: total(&self.files, |file| file.bytes - file.missing),
            bytes_fetched: 0,
            skipped: self.skipped,
            is_cut: self.is_cut,
        };
        let (chosen, others) = plan::choose(self.files, budget);
        assert!(total(&chosen, |file| file.missing) <= budget, "what is chosen fits the budget");
        let skipped = others.into_iter().map(|file| file.skipped(SkipReason::TooLarge));
        report.skipped.extend(skipped);
        let mut chosen = plan::order(chosen);
        let (files_all, not_chosen) = (chosen.len() as u64, report.skipped.len());
        for round in 1..=ROUNDS_MAX {
            let failed = report.skipped.len() - not_chosen;
            let (bytes, files) =
                (report.bytes_fetched, files_all - chosen.len() as u64 - failed as u64);
            let fetched = fetch::fetch(&chosen, memory, &mut |now| {
                // What an earlier round fetched, and is still there, counts on.
                progress(Progress {
                    bytes: bytes + now.bytes,
                    bytes_all: bytes + now.bytes_all,
                    files: files + now.files,
                    files_all,
                });
            });
            assert!(fetched.outcomes.len() == chosen.len(), "each file has an outcome");
            report.bytes_fetched += fetched.bytes;
            chosen = report.settle(chosen, fetched.outcomes);
            if chosen.is_empty() {
                break;
            }
            let is_no_memory = |file: &SkippedFile| matches!(file.why, SkipReason::NoMemory);
            let is_short = report.skipped.iter().any(is_no_memory);
            if is_short || round == ROUNDS_MAX {
                let skipped = chosen.into_iter().map(|file| file.skipped(SkipReason::Evicted));
                report.skipped.extend(skipped);
                break;
            }
        }
        report
    }
}

impl Report {
    /// Examines files that were fetched, since what came first may be gone by now. The files of
    /// which something is missing again; those that failed are skipped.
    fn settle(&mut self, files: Vec<File>, outcomes: Vec<Result<(), SkipReason>>) -> Vec<File> {
        let mut again = Vec::new();
        let examined = list::examine_again(&files);
        for ((file, outcome), now) in files.into_iter().zip(outcomes).zip(examined) {
            match outcome.and(now) {
                Ok(now) if now.missing == 0 || !now.is_known => {}
                Ok(now) => {
                    self.bytes_fetched = self.bytes_fetched.saturating_sub(now.missing);
                    again.push(now);
                }
                Err(why) => self.skipped.push(file.skipped(why)),
            }
        }
        again
    }
}

/// The sum over all files; some file systems report files of any size.
fn total(files: &[File], bytes: impl Fn(&File) -> u64) -> u64 {
    files.iter().map(bytes).fold(0, u64::saturating_add)
}

/// How often what was evicted meanwhile is fetched again, as some machines reclaim pages at random.
const ROUNDS_MAX: u32 = 3;
