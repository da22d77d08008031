//! Files that are never half written.
//!
//! The bytes go to a new file next to the target, are synced, and take the target's name at the
//! end. A reader of the target sees the old file or the new one.
//!
//! ```text
//!   create .NAME.PID-N.part  ->  write  ->  fsync  ->  rename to NAME
//!            |                     |          |            |
//!            +-- on any failure: remove the part, the target is as it was
//! ```
//! A handler that ends the process at a signal removes the parts by [`remove_parts`]: they are
//! listed from before they are made.
//!
//! # Invariants
//! - After an error no part is left behind and the target is untouched.
//! - A symbolic link stays one: the file that it points to is replaced.
//! - What is not a regular file (`/dev/stdout`, a pipe) is written in place: it cannot be renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Writes `bytes` as the whole content of `path`: at any moment the old file or the new one.
///
/// # Errors
/// The system's error; the target is then as it was.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = NewFile::create(path)?;
    file.write_all(bytes)?;
    file.keep()
}

/// A file in the making, which takes its name when it is kept. Dropped before, it is gone.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    /// Where it is written, and what it will be called; none where it is written in place.
    names: Option<(PathBuf, PathBuf)>,
}

/// Removes the parts of files in the making, which then cannot be kept: for a handler that is about
/// to end the process.
pub fn remove_parts() {
    // Taken before the first removal: the lock of the list is never held over a system call.
    let parts = std::mem::take(&mut *parts());
    for part in parts {
        // A failure here has no remedy.
        let _ = fs::remove_file(part);
    }
}

impl NewFile {
    /// A file that will be called `path`.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(path: &Path) -> io::Result<Self> {
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if fs::metadata(&target).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            let file = OpenOptions::new().write(true).open(&target)?;
            return Ok(Self { file, names: None });
        }
        let part = part_beside(&target)?;
        parts().push(part.clone());
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&part);
        let file = file.inspect_err(|_| unlist(&part))?;
        Ok(Self { file, names: Some((part, target)) })
    }

    /// Where it is written until it is kept; none where that is in place: what is no file can be
    /// written once only.
    #[must_use]
    pub fn part(&self) -> Option<&Path> {
        self.names.as_ref().map(|(part, _)| part.as_path())
    }

    /// The file, while it is being made.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives the file its name, for good.
    ///
    /// # Errors
    /// The system's error; the target is then unchanged.
    pub fn keep(mut self) -> io::Result<()> {
        let Some((part, target)) = &self.names else { return self.file.flush() };
        self.file.sync_all()?;
        fs::rename(part, target)?;
        unlist(part);
        self.names = None;
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.names {
            // The first error says more than a failed removal would.
            let _ = fs::remove_file(part);
            unlist(part);
        }
    }
}

/// Those of this process that are there, or about to be.
fn parts() -> MutexGuard<'static, Vec<PathBuf>> {
    static PARTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unlist(part: &Path) {
    parts().retain(|listed| listed != part);
}

/// A name in the target's folder that no other call uses.
fn part_beside(target: &Path) -> io::Result<PathBuf> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let Some(name) = target.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
    };
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let mut part = std::ffi::OsString::from(".");
    part.push(name);
    part.push(format!(".{}-{call}.part", std::process::id()));
    Ok(target.with_file_name(part))
}

#[cfg(test)]
mod tests {
    use forerun_testkit::Scratch;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("the folder is there");
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_file_and_a_replaced_one_hold_just_the_new_bytes() {
        let folder = Scratch::new("replace");
        let path = folder.join("a.json");
        write_whole(&path, b"a long first content").unwrap();
        write_whole(&path, b"short").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"short");
        assert_eq!(names(&folder), ["a.json"], "no part is left behind");
    }

    #[test]
    fn a_file_that_is_not_kept_is_gone() {
        let folder = Scratch::new("dropped");
        let path = folder.join("a.bin");
        fs::write(&path, b"old").unwrap();
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert!(file.part().is_some() && names(&folder).len() == 2);
        drop(file);
        assert_eq!(
            (names(&folder), fs::read(&path).unwrap()),
            (vec!["a.bin".into()], b"old".into())
        );
    }

    #[test]
    fn a_failed_write_leaves_the_target_and_no_part() {
        let folder = Scratch::new("failed");
        let target = folder.join("taken");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("inside"), b"kept").unwrap();
        assert!(write_whole(&target, b"new").is_err(), "a folder cannot be replaced by a file");
        assert_eq!(fs::read(target.join("inside")).unwrap(), b"kept");
        assert_eq!(names(&folder), ["taken"]);
    }

    #[test]
    fn a_reader_who_opened_the_old_file_keeps_the_whole_old_content() {
        use std::io::Read;
        let folder = Scratch::new("reader");
        let path = folder.join("a.json");
        write_whole(&path, b"old content").unwrap();
        let mut reader = File::open(&path).unwrap();
        write_whole(&path, b"new").unwrap();
        let mut seen = Vec::new();
        reader.read_to_end(&mut seen).unwrap();
        assert_eq!(seen, b"old content", "replaced by name, not overwritten");
    }

    #[test]
    fn a_link_stays_a_link_and_its_file_is_replaced() {
        let folder = Scratch::new("link");
        let (file, link) = (folder.join("file"), folder.join("link"));
        fs::write(&file, b"old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_whole(&link, b"new").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_device_is_written_in_place() {
        write_whole(Path::new("/dev/null"), b"gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn a_path_without_a_name_or_a_folder_is_refused() {
        let folder = Scratch::new("refused");
        assert!(write_whole(Path::new("/"), b"").is_err());
        assert!(write_whole(&folder.join("missing").join("a"), b"").is_err());
        assert!(names(&folder).is_empty());
    }
}
