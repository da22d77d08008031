//! A folder of a user's own state: files that are whole at any moment, and no other user's.
//!
//! ```text
//!   $XDG_STATE_HOME/forerun[/FOLDER]     else ~/.local/state
//!   replace: lock -> .NAME.PID.tmp -> rename     open: whose is it, is it too long?
//! ```
//! # Invariants
//! - A file that another user could have written is refused, and so is such a folder.
//! - A file is replaced by renaming: a reader sees the one before or the one after.
//! - The folder is open, and its file system in use, during a call and while its lock is held, no
//!   longer.
//! # Locking
//! `flock` of the folder's `.lock`, which ends with the process.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, thread};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::{geteuid, getpid};

/// See the module.
#[derive(Debug)]
pub struct StateFolder(PathBuf);

/// Why a folder or a file of it is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The environment names no folder.
    #[error("no folder for state: neither XDG_STATE_HOME nor HOME is a full path")]
    NoFolder,
    /// The system refuses it.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// Another user may write there.
    #[error("{}: another user could have written it: not used", .0.display())]
    OfOthers(PathBuf),
    /// Others save all the time.
    #[error("{}: others hold the lock", .0.display())]
    Busy(PathBuf),
}

/// The folder's lock, while it is held.
#[derive(Debug)]
pub struct StateLock {
    folder: File,
    #[expect(dead_code, reason = "closing it unlocks")]
    lock: File,
}

impl StateFolder {
    /// The folder of this user that is called `name`, or all of it if that is empty; it is made if
    /// there is none, but not below a folder of another user, as root may run with the `HOME` of
    /// one, and no home is made.
    ///
    /// # Errors
    /// It cannot be made, or others may write to it.
    pub fn of_user(name: &str) -> Result<Self, StateError> {
        let full = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let (base, below) = if let Some(state) = full("XDG_STATE_HOME") {
            (state, "")
        } else {
            let home = full("HOME").ok_or(StateError::NoFolder)?;
            fs::metadata(&home).map_err(|error| StateError::Io(home.clone(), error))?;
            (home, ".local/state")
        };
        check_base(&base)?;
        Self::at(&base.join(below).join("forerun").join(name))
    }

    /// The folder at `path`.
    ///
    /// # Errors
    /// As of [`StateFolder::of_user`].
    pub fn at(path: &Path) -> Result<Self, StateError> {
        let state = Self(path.to_owned());
        match state.folder() {
            Err(StateError::Io(_, error)) if error.kind() == io::ErrorKind::NotFound => {
                let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
                made.map_err(|error| StateError::Io(path.to_owned(), error))?;
                state.folder()?;
            }
            opened => drop(opened?),
        }
        Ok(state)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Opens the folder.
    ///
    /// # Errors
    /// It is not there any more, or others may write to it.
    pub fn folder(&self) -> Result<File, StateError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&self.0, flags, Mode::empty());
        let folder =
            File::from(folder.map_err(|error| StateError::Io(self.0.clone(), error.into()))?);
        check_owner(&self.0, &folder, u64::MAX)?;
        Ok(folder)
    }

    /// The file `name`, if there is one.
    ///
    /// # Errors
    /// It is not this user's alone, or of more than `bytes_max`.
    pub fn open(&self, name: &str, bytes_max: u64) -> Result<Option<File>, StateError> {
        let path = self.0.join(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(self.folder()?, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(StateError::Io(path, error.into())),
        };
        check_owner(&path, &file, bytes_max)?;
        Ok(Some(file))
    }

    /// Replaces the file `name` by what `write` writes. The one before stays where that fails.
    ///
    /// # Errors
    /// The system refuses to write.
    pub fn replace(
        &self,
        lock: &StateLock,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), StateError> {
        assert!(!name.contains('/'), "a file lies in the folder: {name}");
        let temporary = format!(".{name}.{}.tmp", getpid().as_raw_nonzero());
        let written = lock.write(&temporary, write).and_then(|()| {
            renameat(&lock.folder, &temporary, &lock.folder, name)?;
            Ok(())
        });
        if written.is_err() {
            let _ = lock.remove(&temporary);
        }
        written.map_err(|error| StateError::Io(self.0.join(name), error))
    }

    /// The folder's lock. Waits `patience` for others that hold it.
    ///
    /// # Errors
    /// Others hold it all the time, or the system refuses it.
    pub fn lock(&self, patience: Duration) -> Result<StateLock, StateError> {
        let path = self.0.join(LOCK);
        let folder = self.folder()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&folder, LOCK, flags, Mode::RUSR | Mode::WUSR);
        let lock = lock.map_err(|error| StateError::Io(path.clone(), error.into()))?;
        let mut waits = patience.as_nanos() / LOCK_EVERY.as_nanos();
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(StateLock { folder, lock: File::from(lock) }),
                Err(Errno::WOULDBLOCK | Errno::INTR) if waits > 0 => {
                    waits -= 1;
                    thread::sleep(LOCK_EVERY);
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => return Err(StateError::Busy(path)),
                Err(error) => return Err(StateError::Io(path, error.into())),
            }
        }
    }
}

impl StateLock {
    /// The folder that it locks.
    #[must_use]
    pub fn folder(&self) -> &File {
        &self.folder
    }

    /// Removes the file `name` of the folder.
    ///
    /// # Errors
    /// There is none, or the system refuses it.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        Ok(unlinkat(&self.folder, name.as_ref(), AtFlags::empty())?)
    }

    fn write(
        &self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::TRUNC
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let opened = openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut to = BufWriter::new(File::from(opened));
        write(&mut to)?;
        to.flush()
    }
}

/// Whether what is made at `base`, or in the nearest folder above it that is there, is made in a
/// folder of this user or of the system.
fn check_base(base: &Path) -> Result<(), StateError> {
    let mut found = base.ancestors().filter_map(|it| Some((it, fs::metadata(it).ok()?)));
    let of_others = found.next().filter(|(_, is)| ![0, geteuid().as_raw()].contains(&is.uid()));
    of_others.map_or(Ok(()), |(path, _)| Err(StateError::OfOthers(path.to_owned())))
}

/// Whether nothing but this user writes to `file`.
fn check_owner(path: &Path, file: &File, bytes_max: u64) -> Result<(), StateError> {
    let found = file.metadata().map_err(|error| StateError::Io(path.to_owned(), error))?;
    let is_own = found.uid() == geteuid().as_raw() && found.mode() & OTHERS_WRITE == 0;
    if !is_own || !found.is_dir() && !found.is_file() {
        return Err(StateError::OfOthers(path.to_owned()));
    }
    if found.is_file() && found.len() > bytes_max {
        let why = format!("it has {} bytes, {bytes_max} at most are read: not used", found.len());
        return Err(StateError::Io(path.to_owned(), io::Error::other(why)));
    }
    Ok(())
}

/// The name of the lock.
const LOCK: &str = ".lock";
const LOCK_EVERY: Duration = Duration::from_millis(1);
const OTHERS_WRITE: u32 = 0o022;

#[cfg(test)]
mod tests {
    use forerun_testkit::Scratch;

    use super::*;

    #[test]
    fn the_folder_is_not_held_open() {
        let scratch = Scratch::new("state");
        let path = scratch.canonicalize().unwrap().join("a/b");
        let state = StateFolder::at(&path).unwrap();
        let is_open = || {
            let links = fs::read_dir("/proc/self/fd").unwrap();
            links.flatten().any(|link| fs::read_link(link.path()).is_ok_and(|to| to == path))
        };
        assert!(!is_open());
        let lock = state.lock(Duration::ZERO).unwrap();
        assert!(is_open(), "while its lock is held");
        state.replace(&lock, "file", |to| to.write_all(b"text")).unwrap();
        drop(lock);
        assert!(state.open("file", 4).unwrap().is_some());
        assert!(!is_open());
    }

    #[test]
    fn a_folder_that_was_removed_is_not_made_again() {
        let scratch = Scratch::new("state-gone");
        let state = StateFolder::at(&scratch.join("a/b")).unwrap();
        fs::remove_dir(scratch.join("a/b")).unwrap();
        assert!(matches!(state.open("file", 4), Err(StateError::Io(..))));
        assert!(matches!(state.lock(Duration::ZERO), Err(StateError::Io(..))));
        assert!(!scratch.join("a/b").exists());
    }
}
