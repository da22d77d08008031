//! What is in memory before a program starts, of the files that its arguments name.
//!
//! # Invariants
//! - Only regular files are opened, for reading, and closed again; at most [`WORDS_MAX`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use forerun_core::units::Nanos;
use rustix::fs::FileType;

use super::summary::InitialResidency;
use crate::aside::descriptors::detach;
use crate::aside::within;
use crate::kernel::{self, Residency, Stat};
use crate::open::{is_regular, open_named};
use crate::wire::{from_bytes, to_bytes};

/// By device and inode.
pub(super) type Residencies = BTreeMap<(u64, u64), InitialResidency>;

/// The residency of the arguments that name files, and of the input if it is a file, as far as file
/// systems tell before the program has to wait.
pub(super) fn before(words: &[OsString]) -> Residencies {
    if has_namespace_for_children() {
        return Residencies::new();
    }
    let bytes = within(WAITS_MAX, || {
        let input = input();
        detach();
        to_bytes(&of_all(words, input))
    });
    let all: Vec<((u64, u64), InitialResidency)> =
        bytes.and_then(|bytes| from_bytes(&bytes)).unwrap_or_default();
    all.into_iter().collect()
}

/// Whether the first process that this one starts is the first of a namespace, which ends with it:
/// that has to be the program.
fn has_namespace_for_children() -> bool {
    let name = |link: &str| fs::read_link(Path::new("/proc/self/ns").join(link)).ok();
    name("pid") != name("pid_for_children")
}

fn of_all(words: &[OsString], input: Option<File>) -> Vec<((u64, u64), InitialResidency)> {
    let named = words.iter().skip(1).take(WORDS_MAX).filter_map(|word| {
        let (file, _) = open_named(Path::new(word)).ok()?;
        Some(file)
    });
    let all = named.chain(input);
    all.filter_map(|file| {
        let found = kernel::stat(&file).ok().filter(is_regular)?;
        Some(((found.st_dev, found.st_ino), of(&file, &found, true)?))
    })
    .collect()
}

/// The input, where it is a file.
fn input() -> Option<File> {
    let is_file = kernel::stat(io::stdin()).ok()?.kind() == FileType::RegularFile;
    let copy = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3);
    is_file.then_some(copy).and_then(Result::ok).map(File::from)
}

/// How much of `file` is in memory now.
pub(super) fn of(file: &File, stat: &Stat, is_before: bool) -> Option<InitialResidency> {
    let all = 0..stat.st_size;
    match kernel::cached(file, &all) {
        Ok(Residency::Pages(pages)) => {
            Some(InitialResidency { pages, pages_all: kernel::pages(&all), is_before })
        }
        Ok(Residency::Unknown) | Err(_) => None,
    }
}

const WORDS_MAX: usize = 256;
/// A file system that takes longer is not asked: the program starts.
const WAITS_MAX: Nanos = Nanos::from_millis(200);
