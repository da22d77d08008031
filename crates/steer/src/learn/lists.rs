//! The lists of a start: the one that is learned, and those that are named.
//!
//! # Invariants
//! - A list that cannot be used is named with the reason, and the others are used.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use forerun_core::learned::LearnedList;

use super::format::{LearnedFile, Program};
use super::store::{self, Store, StoreError};
use super::{LearnSettings, LearnedStats, Learning, Started};

/// A list that a run adds to.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) store: Store,
    pub(super) name: String,
    pub(super) program: Program,
}

impl Target {
    /// The list that is learned.
    fn of(learning: &Learning, started: &Started) -> Result<Option<Self>, StoreError> {
        let named = match learning {
            Learning::Off => return Ok(None),
            Learning::Auto => None,
            Learning::Named(name) => Some(name.clone()),
        };
        let folder = started.folder.as_deref();
        let program = folder.and_then(|folder| Program::of(&started.words, folder));
        let name = named.or_else(|| program.as_ref().map(Program::list_name));
        let Some(name) = name else { return Ok(None) };
        store::check_name(&name)?;
        let store = Store::of_user()?;
        Ok(Some(Self { store, name, program: program.unwrap_or_default() }))
    }
}

/// What a start of `words` would be given by its lists: their name, how much of what they have is
/// trusted, and what is wrong with them.
#[must_use]
pub fn planned(settings: &LearnSettings, words: &[OsString]) -> PlannedLists {
    let (_, list, LearnedStats { name, trouble, .. }) = lists_of(settings, &Started::here(words));
    let sizes: Vec<u64> = list.trusted().map(|entry| entry.bytes()).collect();
    PlannedLists { name, entries: sizes.len() as u64, bytes: sizes.iter().sum(), trouble }
}

/// See [`planned`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedLists {
    /// That of the list that is learned; empty where none is.
    pub name: String,
    /// Paths that are looked up ahead.
    pub entries: u64,
    /// Of their files.
    pub bytes: u64,
    /// Why a list is not used; empty where all is well.
    pub trouble: String,
}

/// The list that is learned, what it and the named ones have, and what was wrong with them.
pub(super) fn lists_of(
    settings: &LearnSettings,
    started: &Started,
) -> (Option<Target>, LearnedList, LearnedStats) {
    let mut stats = LearnedStats::default();
    let (mut list, mut target) = (LearnedList::default(), None);
    match Target::of(&settings.learning, started) {
        Ok(found) => target = found,
        Err(why) => stats.trouble = why.to_string(),
    }
    if let Some(target) = &target {
        stats.name.clone_from(&target.name);
        match target.store.load(&target.name) {
            Ok(file) => list = file.map(|file| file.list).unwrap_or_default(),
            Err(why) => stats.trouble = why.to_string(),
        }
    }
    for path in &settings.files {
        let path = started.folder.as_deref().unwrap_or(Path::new("")).join(path);
        match read_file(&path) {
            Ok(file) => list.merge_list(&file.list),
            Err(why) => stats.trouble = why.to_string(),
        }
    }
    (target, list, stats)
}

/// Reads the list in the file at `path`.
///
/// # Errors
/// It cannot be read, or is no list.
pub fn read_file(path: &Path) -> Result<LearnedFile, StoreError> {
    let file = File::open(path);
    let file = file.map_err(|error| StoreError::Io(path.to_owned(), error))?;
    LearnedFile::read(file).map_err(|why| StoreError::Format(path.to_owned(), why))
}
