//! Whole files into the page cache, before anybody wants them.
//!
//! ```text
//!   paths --list--> files, and what of each is missing
//!         --plan--> those that fit a budget, the most missing first   | the others: left, by name
//!                   in the order in which they lie on their device
//!         --fetch-> asked for, waited for, looked at                  | what failed: left, by name
//!         --look--> what is still there; what is not, once more       | what was evicted: left
//! ```
//! A file is taken whole or not at all: half a file in memory helps a reader that needs all of it
//! by less than half, and takes the room of one that could be whole.
//!
//! # Invariants
//! - Every file that was named, or found below a folder that was named, is in memory at the end or
//!   is among [`Report::left`], with the reason.
//! - What is fetched fits the budget; of files that the kernel tells nothing of, all counts.
//! - At most [`IN_FLIGHT_BYTES`] are asked for and not there yet.
//! - Only regular files are opened, and none is changed.

mod fetch;
mod file;
mod list;
mod plan;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::memory::Memory;
use file::File;

pub use fetch::IN_FLIGHT_BYTES;
pub use list::ENTRIES_MAX;

/// Files, and what of them is missing in memory.
#[derive(Debug, Default)]
pub struct Listing {
    files: Vec<File>,
    left: Vec<Left>,
    /// There are more entries than are listed.
    is_cut: bool,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were fetched.
    pub bytes: u64,
    /// Bytes that are to be fetched.
    pub bytes_all: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    /// Regular files with bytes in them, each once.
    pub files: u64,
    /// Their bytes, without holes.
    pub bytes: u64,
    /// Bytes of them that were in memory before, where the kernel told.
    pub bytes_before: u64,
    /// Bytes that were missing and are in memory now.
    pub bytes_fetched: u64,
    /// What is not, or not wholly, in memory.
    pub left: Vec<Left>,
    /// More files were found than are listed at once, and these were not looked at.
    pub is_cut: bool,
}

/// A file or a folder that is not in memory.
#[derive(Debug)]
pub struct Left {
    /// As it was named or found.
    pub path: PathBuf,
    /// Its bytes that are missing, as far as known.
    pub bytes: u64,
    /// Why.
    pub why: Why,
}

/// Why a file is not in memory.
#[non_exhaustive]
#[derive(Debug)]
pub enum Why {
    /// It does not fit what is left of the budget.
    TooLarge,
    /// Others took the memory meanwhile.
    NoMemory,
    /// It was in memory, and the kernel evicted it again.
    Evicted,
    /// It cannot be listed, opened, or looked at.
    Closed(io::Error),
    /// It is something else than a file or a folder.
    NotAFile,
    /// It is shorter than it was, or another file.
    Changed,
    /// The device failed, at this byte.
    Unreadable(u64, io::Error),
    /// What is read of it stays nowhere, as of files that are not on a device.
    NotKept,
}

impl fmt::Display for Why {
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
    /// Looks at `paths`: files, and folders with all that is below them on the same file system.
    /// Symbolic links are followed where they were named, and nowhere else.
    #[must_use]
    pub fn of(paths: &[impl AsRef<Path>]) -> Self {
        list::list(paths, ENTRIES_MAX)
    }

    /// The bytes that are missing in memory, those of which nothing is told included.
    #[must_use]
    pub fn bytes_missing(&self) -> u64 {
        total(&self.files, |file| file.missing)
    }

    /// Brings as many as fit into memory and waits until they are there. It stops early when
    /// `memory` becomes short. `told` hears of every piece.
    #[must_use]
    pub fn fetch(self, budget: u64, memory: &Memory, told: &mut dyn FnMut(Progress)) -> Report {
        let mut report = Report {
            files: self.files.len() as u64,
            bytes: total(&self.files, |file| file.bytes),
            bytes_before: total(&self.files, |file| file.bytes - file.missing),
            bytes_fetched: 0,
            left: self.left,
            is_cut: self.is_cut,
        };
        let (chosen, refused) = plan::choose(self.files, budget);
        report.left.extend(refused.into_iter().map(|file| file.left(Why::TooLarge)));
        let mut chosen = plan::order(chosen);
        for round in 1..=ROUNDS_MAX {
            let fetched = fetch::fetch(&chosen, memory, told);
            report.bytes_fetched += fetched.bytes;
            chosen = report.settle(chosen, fetched.ends);
            if chosen.is_empty() {
                break;
            }
            let is_short = report.left.iter().any(|left| matches!(left.why, Why::NoMemory));
            if is_short || round == ROUNDS_MAX {
                report.left.extend(chosen.drain(..).map(|file| file.left(Why::Evicted)));
                break;
            }
        }
        report
    }
}

impl Report {
    /// Looks at files that were fetched, since what came first may be gone by now: the files of
    /// which something is missing again. Those that failed are left.
    fn settle(&mut self, files: Vec<File>, ends: Vec<Result<(), Why>>) -> Vec<File> {
        let mut again = Vec::new();
        for (file, end) in files.into_iter().zip(ends) {
            match end.and_then(|()| file.look_again()) {
                Ok(now) if now.missing == 0 || !now.is_told => {}
                Ok(now) => {
                    self.bytes_fetched = self.bytes_fetched.saturating_sub(now.missing);
                    again.push(now);
                }
                Err(why) => self.left.push(file.left(why)),
            }
        }
        again
    }
}

/// The sum over all files; some file systems tell of files without end.
fn total(files: &[File], bytes: impl Fn(&File) -> u64) -> u64 {
    files.iter().map(bytes).fold(0, u64::saturating_add)
}

/// How often what was evicted meanwhile is fetched again, as some machines reclaim pages at random.
const ROUNDS_MAX: u32 = 3;
