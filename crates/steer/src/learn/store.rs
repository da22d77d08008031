//! The folder of a user's learned lists.
//!
//! ```text
//!   $XDG_STATE_HOME/forerun/learned/NAME.jsonl     else ~/.local/state
//!   save: lock -> read -> merge -> replace (`forerun_io::state`); lists of others are left alone
//! ```
//! # Invariants
//! - A list that another user could have written is refused, and so is such a folder.
//! - A list is whole at any moment: it is replaced by renaming, under a lock of the folder.
//! - At most [`LISTS_MAX`] lists and [`BYTES_MAX`] bytes; those that were saved longest ago go.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forerun_io::state::{StateError, StateFolder};
use rustix::fs::{AtFlags, Dir, unlinkat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::format::{FILE_BYTES_MAX, FormatError, LearnedFile};

/// See the module.
#[derive(Debug)]
pub struct Store(StateFolder);

/// A list of the folder.
#[derive(Clone, Debug)]
pub struct StoredList {
    /// Its name.
    pub name: String,
    /// The bytes of its file.
    pub bytes: u64,
    /// When it was saved, in seconds and nanoseconds since 1970.
    pub saved: (i64, i64),
}

/// Why a list is not there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The environment names no folder.
    #[error("no folder for learned lists: neither XDG_STATE_HOME nor HOME is a full path")]
    NoFolder,
    /// The system refuses it.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// Another user may write there.
    #[error("{}: another user could have written it: not used", .0.display())]
    OfOthers(PathBuf),
    /// It is no list.
    #[error("{}: {}", .0.display(), .1)]
    Format(PathBuf, FormatError),
    /// Others save all the time.
    #[error("{}: others hold the lock", .0.display())]
    Busy(PathBuf),
    /// It cannot be the name of a file.
    #[error("{0:?} is no name of a list: letters, digits, `.`, `_`, `-`, `+` and `@`, at most 128")]
    Name(String),
}

impl Store {
    /// The folder of this user, which is made if there is none.
    ///
    /// # Errors
    /// It cannot be made, or others may write to it.
    pub fn of_user() -> Result<Self, StoreError> {
        Ok(Self(StateFolder::of_user("learned")?))
    }

    /// The folder at `path`.
    ///
    /// # Errors
    /// As of [`Store::of_user`].
    pub fn at(path: &Path) -> Result<Self, StoreError> {
        Ok(Self(StateFolder::at(path)?))
    }

    /// Where the list is kept.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(file_name(name))
    }

    /// The list of this name, if there is one.
    ///
    /// # Errors
    /// It is no list, or not this user's.
    pub fn load(&self, name: &str) -> Result<Option<LearnedFile>, StoreError> {
        check_name(name)?;
        let path = self.path(name);
        let Some(file) = self.0.open(&file_name(name), FILE_BYTES_MAX)? else { return Ok(None) };
        LearnedFile::read(file).map(Some).map_err(|why| StoreError::Format(path, why))
    }

    /// Changes the list of this name, from the one that is there, if it can be read, to what
    /// `change` makes of it. Waits `patience` for others that save.
    ///
    /// # Errors
    /// The system refuses to write, or others hold the lock all the time. The list before stays.
    pub fn update(
        &self,
        name: &str,
        patience: Duration,
        change: impl FnOnce(Option<LearnedFile>) -> LearnedFile,
    ) -> Result<(), StoreError> {
        check_name(name)?;
        let lock = self.0.lock(patience)?;
        let file = change(self.load(name).ok().flatten());
        let written = self.0.replace(&lock, &file_name(name), |mut to| file.write(&mut to));
        self.prune();
        drop(lock);
        Ok(written?)
    }

    /// The lists that are there, those that were saved last first.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn lists(&self) -> Result<Vec<StoredList>, StoreError> {
        let failed = |error: Errno| StoreError::Io(self.0.path().to_owned(), error.into());
        let mut lists = Vec::new();
        for entry in Dir::read_from(self.0.folder()).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_str().ok().and_then(|name| name.strip_suffix(SUFFIX));
            let Some(name) = name.filter(|name| check_name(name).is_ok()) else { continue };
            let Ok(found) = fs::symlink_metadata(self.path(name)) else { continue };
            if found.is_file() {
                let saved = (found.mtime(), found.mtime_nsec());
                lists.push(StoredList { name: name.to_owned(), bytes: found.len(), saved });
            }
        }
        lists.sort_by(|a, b| (b.saved, &a.name).cmp(&(a.saved, &b.name)));
        Ok(lists)
    }

    /// Removes the list of this name. Whether there was one.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn forget(&self, name: &str) -> Result<bool, StoreError> {
        check_name(name)?;
        match unlinkat(self.0.folder(), file_name(name), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(StoreError::Io(self.path(name), error.into())),
        }
    }

    /// Removes the oldest where there are too many, and what runs that were killed have left.
    fn prune(&self) {
        let mut left = BYTES_MAX;
        for (count, list) in (0..).zip(self.lists().unwrap_or_default()) {
            left = left.saturating_sub(list.bytes);
            if count >= LISTS_MAX || left == 0 {
                let _ = self.forget(&list.name);
            }
        }
        let Ok(entries) = Dir::read_from(self.0.folder()) else { return };
        for entry in entries.flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let is_temporary =
                name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(b".tmp");
            let age = || {
                let found = fs::symlink_metadata(self.0.path().join(name)).ok()?;
                Some(clock_gettime(ClockId::Realtime).tv_sec - found.mtime())
            };
            if is_temporary && age().is_some_and(|age| age > TEMPORARY_LASTS) {
                let _ = unlinkat(self.0.folder(), name, AtFlags::empty());
            }
        }
    }
}

impl From<StateError> for StoreError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::NoFolder => Self::NoFolder,
            StateError::Io(path, why) => Self::Io(path, why),
            StateError::OfOthers(path) => Self::OfOthers(path),
            StateError::Busy(path) => Self::Busy(path),
            other => Self::Io(PathBuf::new(), io::Error::other(other)),
        }
    }
}

/// Whether a list may have this name.
///
/// # Errors
/// [`StoreError::Name`].
pub fn check_name(name: &str) -> Result<(), StoreError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+@".contains(&byte);
    let is_sound = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with('.')
        && name.bytes().all(is_plain);
    if is_sound { Ok(()) } else { Err(StoreError::Name(name.to_owned())) }
}

fn file_name(name: &str) -> String {
    format!("{name}{SUFFIX}")
}

/// Lists of a user.
pub const LISTS_MAX: usize = 256;
/// All their bytes.
pub const BYTES_MAX: u64 = 64 << 20;
pub(crate) const NAME_BYTES_MAX: usize = 128;
const SUFFIX: &str = ".jsonl";
/// No run writes its list for so many seconds.
const TEMPORARY_LASTS: i64 = 60;

#[cfg(test)]
mod tests;
