//! What is in memory before a program starts, of the files that its arguments name.
//!
//! # Invariants
//! - Only regular files are opened, for reading, and closed again; at most [`WORDS_MAX`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;

use rustix::fs::{Stat, fstat, stat};

use super::summary::InitialResidency;
use crate::kernel::{self, Residency};
use crate::observe::procfs::{is_regular, open_for_reading};

/// By device and inode.
pub(super) type Residencies = BTreeMap<(u64, u64), InitialResidency>;

/// The residency of the arguments that name files, and of the input if it is a file.
pub(super) fn before(words: &[OsString]) -> Residencies {
    let named = words.iter().skip(1).take(WORDS_MAX).filter_map(|word| {
        // Opening anything else could have an effect.
        is_regular(&stat(word).ok()?).then(|| open_for_reading(word)).flatten()
    });
    let input = rustix::io::dup(io::stdin()).ok().map(File::from);
    let all = named.chain(input);
    all.filter_map(|file| {
        let found = fstat(&file).ok().filter(is_regular)?;
        Some(((found.st_dev, found.st_ino), of(&file, &found, true)?))
    })
    .collect()
}

/// How much of `file` is in memory now.
pub(super) fn of(file: &File, stat: &Stat, is_before: bool) -> Option<InitialResidency> {
    let all = 0..u64::try_from(stat.st_size).ok()?;
    match kernel::cached(file, &all) {
        Ok(Residency::Pages(pages)) => {
            Some(InitialResidency { pages, pages_all: kernel::pages(&all), is_before })
        }
        Ok(Residency::Unknown) | Err(_) => None,
    }
}

const WORDS_MAX: usize = 256;
