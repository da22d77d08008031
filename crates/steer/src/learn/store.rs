//! The folder of a user's learned lists.
//!
//! ```text
//!   $XDG_STATE_HOME/forerun/learned/NAME.jsonl     else ~/.local/state
//!   save: lock -> read -> merge -> replace (`forerun_io::state`); lists of others are left alone
//! ```
//! # Invariants
//! - A list that another user could have written is refused, and so is such a folder.
//! - A list is whole at any moment: it is replaced by renaming, under a lock of the folder, which a
//!   list is removed under as well.
//! - A list that is there and cannot be read for now, or not by this version, is left alone by
//!   runs.
//! - At most [`LISTS_MAX`] lists and [`BYTES_MAX`] bytes; those that were saved longest ago go. One
//!   of more than [`LIST_BYTES_MAX`] is not saved, and takes no other's place.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forerun_io::state::{StateError, StateFolder, StateLock};
use rustix::fs::Dir;
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
    /// It is there, and what a run has taught cannot be added to it.
    #[error("not saved, and left as it is: {0}")]
    Unread(Box<StoreError>),
    /// It would take the place of too many others.
    #[error("not saved: the list would have more than {} MiB", LIST_BYTES_MAX >> 20)]
    TooLarge,
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

    /// Changes the list of this name, from the one that is there to what `change` makes of it; one
    /// that is damaged, or not this user's alone, is begun anew. Waits `patience` for others that
    /// save.
    ///
    /// # Errors
    /// The one that is there cannot be read now or by this version, the new one is too large, the
    /// system refuses to write, or others hold the lock all the time. The list before stays.
    pub fn update(
        &self,
        name: &str,
        patience: Duration,
        change: impl FnOnce(Option<LearnedFile>) -> LearnedFile,
    ) -> Result<(), StoreError> {
        check_name(name)?;
        let lock = self.0.lock(patience)?;
        let before = match self.load(name) {
            Ok(before) => before,
            Err(why) if why.is_damage() => None,
            Err(why) => return Err(StoreError::Unread(Box::new(why))),
        };
        self.replace(&lock, name, &change(before))
    }

    /// Replaces the list of this name by `file`, whatever is there. Waits `patience` for others
    /// that save.
    ///
    /// # Errors
    /// As of [`Store::update`], but for the list that is there.
    pub fn put(
        &self,
        name: &str,
        patience: Duration,
        file: &LearnedFile,
    ) -> Result<(), StoreError> {
        check_name(name)?;
        self.replace(&self.0.lock(patience)?, name, file)
    }

    fn replace(&self, lock: &StateLock, name: &str, file: &LearnedFile) -> Result<(), StoreError> {
        let mut is_too_large = false;
        let written = self.0.replace(lock, &file_name(name), |to| {
            let mut to = Bounded { to, left: LIST_BYTES_MAX };
            let written = file.write(&mut to);
            is_too_large = to.left == 0;
            written
        });
        if is_too_large {
            return Err(StoreError::TooLarge);
        }
        self.prune(lock);
        Ok(written?)
    }

    /// The lists that are there, those that were saved last first.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn lists(&self) -> Result<Vec<StoredList>, StoreError> {
        let failed = |error: Errno| StoreError::Io(self.0.path().to_owned(), error.into());
        let mut lists = Vec::new();
        for entry in Dir::read_from(self.0.folder()?).map_err(failed)? {
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

    /// Removes the list of this name. Whether there was one. Waits `patience` for others that save.
    ///
    /// # Errors
    /// The system refuses it, or others hold the lock all the time.
    pub fn forget(&self, name: &str, patience: Duration) -> Result<bool, StoreError> {
        check_name(name)?;
        self.remove(&self.0.lock(patience)?, name)
    }

    fn remove(&self, lock: &StateLock, name: &str) -> Result<bool, StoreError> {
        match lock.remove(file_name(name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::Io(self.path(name), error)),
        }
    }

    /// Removes the oldest where there are too many, and what runs that were killed have left.
    fn prune(&self, lock: &StateLock) {
        let mut bytes = 0_u64;
        for (count, list) in (0..).zip(self.lists().unwrap_or_default()) {
            bytes = bytes.saturating_add(list.bytes);
            if count >= LISTS_MAX || bytes > BYTES_MAX {
                let _ = self.remove(lock, &list.name);
            }
        }
        let Ok(entries) = Dir::read_from(lock.folder()) else { return };
        for entry in entries.flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let is_temporary =
                name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(b".tmp");
            let age = || {
                let found = fs::symlink_metadata(self.0.path().join(name)).ok()?;
                Some(clock_gettime(ClockId::Realtime).tv_sec - found.mtime())
            };
            if is_temporary && age().is_some_and(|age| age > TEMPORARY_LASTS) {
                let _ = lock.remove(name);
            }
        }
    }
}

impl StoreError {
    /// Whether no reader of any version would take what is there for a list of this user's, at any
    /// time.
    fn is_damage(&self) -> bool {
        match self {
            // A link is not followed; what the system did not refuse is too long.
            Self::Io(_, error) => {
                error.raw_os_error().is_none_or(|it| it == Errno::LOOP.raw_os_error())
            }
            Self::NoFolder
            | Self::Format(_, FormatError::Io(_) | FormatError::Version(_))
            | Self::Busy(_)
            | Self::Unread(_)
            | Self::TooLarge
            | Self::Name(_) => false,
            Self::Format(..) | Self::OfOthers(_) => true,
        }
    }
}

/// What is written to `to`, up to a bound.
struct Bounded<'a> {
    to: &'a mut dyn Write,
    /// None once the bound was met.
    left: u64,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.saturating_sub(bytes.len() as u64);
        if self.left == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.to.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
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
/// Those of one, so that it leaves room for others.
pub const LIST_BYTES_MAX: u64 = BYTES_MAX / 2;
pub(crate) const NAME_BYTES_MAX: usize = 128;
const SUFFIX: &str = ".jsonl";
/// No run writes its list for so many seconds.
const TEMPORARY_LASTS: i64 = 60;

#[cfg(test)]
mod tests;
