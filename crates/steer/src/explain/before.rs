//! What is in memory before a program starts: of the files that it is told to read.
//!
//! # Invariants
//! - Regular files alone are opened, for reading, and closed again; at most [`WORDS_MAX`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;

use rustix::fs::{FileType, Stat, fstat, stat};

use super::Start;
use crate::files::open_for_reading;
use crate::kernel::{self, Residency};

/// By device and inode.
pub(super) type Starts = BTreeMap<(u64, u64), Start>;

/// Looks at the arguments that name files, and at the input if it is one.
pub(super) fn look(words: &[OsString]) -> Starts {
    let named = words.iter().skip(1).take(WORDS_MAX).filter_map(|word| {
        // Looked at before it is opened: opening something else could do something.
        is_regular(&stat(word).ok()?).then(|| open_for_reading(word)).flatten()
    });
    let input = rustix::io::dup(io::stdin()).ok().map(File::from);
    let all = named.chain(input);
    all.filter_map(|file| {
        let found = fstat(&file).ok().filter(is_regular)?;
        Some(((found.st_dev, found.st_ino), start(&file, &found, true)?))
    })
    .collect()
}

/// How much of `file` is in memory now.
pub(super) fn start(file: &File, stat: &Stat, is_before: bool) -> Option<Start> {
    let all = 0..u64::try_from(stat.st_size).ok()?;
    match kernel::cached(file, &all) {
        Ok(Residency::Pages(pages)) => {
            Some(Start { pages, pages_all: kernel::pages(&all), is_before })
        }
        Ok(Residency::Unknown) | Err(_) => None,
    }
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

const WORDS_MAX: usize = 256;
