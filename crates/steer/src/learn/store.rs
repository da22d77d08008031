//! The folder of a user's learned lists.
//!
//! ```text
//!   $XDG_STATE_HOME/forerun/learned/NAME.jsonl     else ~/.local/state
//!   save: lock -> read -> merge -> NAME.PID.tmp -> rename      lists of others are left alone
//! ```
//! # Invariants
//! - A list that another user could have written is refused, and so is such a folder.
//! - A list is whole at any moment: it is replaced by renaming, under a lock of the folder.
//! - At most [`LISTS_MAX`] lists and [`BYTES_MAX`] bytes; those that were saved longest ago go.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, thread};

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, flock, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::{geteuid, getpid};
use rustix::time::{ClockId, clock_gettime};

use super::format::{FILE_BYTES_MAX, FormatError, LearnedFile};
use crate::clock::Clock;

/// See the module.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    folder: File,
}

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
        let full = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = full("XDG_STATE_HOME").or_else(|| Some(full("HOME")?.join(".local/state")));
        Self::at(&state.ok_or(StoreError::NoFolder)?.join("forerun/learned"))
    }

    /// The folder at `path`.
    ///
    /// # Errors
    /// As of [`Store::of_user`].
    pub fn at(path: &Path) -> Result<Self, StoreError> {
        let failed = |error: io::Error| StoreError::Io(path.to_owned(), error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::open(path, flags, Mode::empty());
        let folder = match open() {
            Err(Errno::NOENT) => {
                DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
                open()
            }
            opened => opened,
        };
        let folder = File::from(folder.map_err(|error| failed(error.into()))?);
        check_owner(path, &folder)?;
        Ok(Self { path: path.to_owned(), folder })
    }

    /// Where the list is kept.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(file_name(name))
    }

    /// The list of this name, if there is one.
    ///
    /// # Errors
    /// It is no list, or not this user's.
    pub fn load(&self, name: &str) -> Result<Option<LearnedFile>, StoreError> {
        check_name(name)?;
        let path = self.path(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.folder, file_name(name), flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(StoreError::Io(path, error.into())),
        };
        check_owner(&path, &file)?;
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
        let lock = self.lock(patience)?;
        let file = change(self.load(name).ok().flatten());
        assert!(!name.contains('/'), "a list lies in the folder");
        let temporary = format!(".{name}.{}.tmp", getpid().as_raw_nonzero());
        let failed = |error: io::Error| StoreError::Io(self.path(name), error);
        let written = self.write(&temporary, &file).and_then(|()| {
            renameat(&self.folder, &temporary, &self.folder, file_name(name))?;
            Ok(())
        });
        if written.is_err() {
            let _ = unlinkat(&self.folder, &temporary, AtFlags::empty());
        }
        self.prune();
        drop(lock);
        written.map_err(failed)
    }

    fn write(&self, name: &str, file: &LearnedFile) -> io::Result<()> {
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::TRUNC
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let opened = openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut to = BufWriter::new(File::from(opened));
        file.write(&mut to)?;
        to.flush()
    }

    fn lock(&self, patience: Duration) -> Result<File, StoreError> {
        let path = self.path.join(LOCK);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&self.folder, LOCK, flags, Mode::RUSR | Mode::WUSR);
        let lock = lock.map_err(|error| StoreError::Io(path.clone(), error.into()))?;
        let clock = Clock::start();
        let is_early = || u128::from(clock.now().0) < patience.as_nanos();
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(File::from(lock)),
                Err(Errno::WOULDBLOCK | Errno::INTR) if is_early() => {
                    thread::sleep(LOCK_EVERY);
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => return Err(StoreError::Busy(path)),
                Err(error) => return Err(StoreError::Io(path, error.into())),
            }
        }
    }

    /// The lists that are there, those that were saved last first.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn lists(&self) -> Result<Vec<StoredList>, StoreError> {
        let failed = |error: Errno| StoreError::Io(self.path.clone(), error.into());
        let mut lists = Vec::new();
        for entry in Dir::read_from(&self.folder).map_err(failed)? {
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
        match unlinkat(&self.folder, file_name(name), AtFlags::empty()) {
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
        let Ok(entries) = Dir::read_from(&self.folder) else { return };
        for entry in entries.flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let is_temporary =
                name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(b".tmp");
            let age = || {
                let found = fs::symlink_metadata(self.path.join(name)).ok()?;
                Some(clock_gettime(ClockId::Realtime).tv_sec - found.mtime())
            };
            if is_temporary && age().is_some_and(|age| age > TEMPORARY_LASTS) {
                let _ = unlinkat(&self.folder, name, AtFlags::empty());
            }
        }
    }
}

/// Whether nothing but this user writes to `file`.
fn check_owner(path: &Path, file: &File) -> Result<(), StoreError> {
    let found = file.metadata().map_err(|error| StoreError::Io(path.to_owned(), error))?;
    let is_own = found.uid() == geteuid().as_raw() && found.mode() & OTHERS_WRITE == 0;
    let is_sound = found.is_dir() || found.is_file() && found.len() <= FILE_BYTES_MAX;
    if is_own && is_sound { Ok(()) } else { Err(StoreError::OfOthers(path.to_owned())) }
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
const LOCK: &str = ".lock";
const LOCK_EVERY: Duration = Duration::from_millis(1);
/// No run writes its list for so many seconds.
const TEMPORARY_LASTS: i64 = 60;
const OTHERS_WRITE: u32 = 0o022;

#[cfg(test)]
mod tests;
