//! Files that are never half written.
//!
//! The bytes go to a new file next to the target, are synced, and take the target's name at the
//! end. Whoever looks at the target sees the old file or the new one.
//!
//! ```text
//!   create .NAME.PID-N.part  ->  write  ->  fsync  ->  rename to NAME
//!            |                     |          |            |
//!            +-- on any failure: remove the part, the target is as it was
//! ```
//!
//! # Invariants
//! - After an error no part is left behind and the target is untouched.
//! - A symbolic link stays one: the file that it points to is replaced.
//! - What is not a regular file (`/dev/stdout`, a pipe) is written in place: it cannot be renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Writes `bytes` as the whole content of `path`: at any moment the old file or the new one.
///
/// # Errors
/// The system's error; the target is then as it was.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&target).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return OpenOptions::new().write(true).open(&target)?.write_all(bytes);
    }
    let part = part_beside(&target)?;
    let written = fill(&part, bytes).and_then(|()| fs::rename(&part, &target));
    if written.is_err() {
        // The first error says more than a failed removal would.
        let _ = fs::remove_file(&part);
    }
    written
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

fn fill(part: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(part)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A folder of its own for one test, removed at the end.
    pub(crate) struct Folder(pub(crate) PathBuf);

    impl Folder {
        pub(crate) fn new(test: &str) -> Self {
            let name = format!("forerun-report-{}-{test}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).expect("the temporary folder takes a folder");
            Self(path)
        }

        pub(crate) fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("the folder is there");
            let mut names: Vec<String> =
                entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_new_file_and_a_replaced_one_hold_just_the_new_bytes() {
        let folder = Folder::new("replace");
        let path = folder.0.join("a.json");
        write_whole(&path, b"a long first content").unwrap();
        write_whole(&path, b"short").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"short");
        assert_eq!(folder.names(), ["a.json"], "no part is left behind");
    }

    #[test]
    fn a_failed_write_leaves_the_target_and_no_part() {
        let folder = Folder::new("failed");
        let target = folder.0.join("taken");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("inside"), b"kept").unwrap();
        assert!(write_whole(&target, b"new").is_err(), "a folder cannot be replaced by a file");
        assert_eq!(fs::read(target.join("inside")).unwrap(), b"kept");
        assert_eq!(folder.names(), ["taken"]);
    }

    #[test]
    fn a_reader_who_opened_the_old_file_keeps_the_whole_old_content() {
        use std::io::Read;
        let folder = Folder::new("reader");
        let path = folder.0.join("a.json");
        write_whole(&path, b"old content").unwrap();
        let mut reader = File::open(&path).unwrap();
        write_whole(&path, b"new").unwrap();
        let mut seen = Vec::new();
        reader.read_to_end(&mut seen).unwrap();
        assert_eq!(seen, b"old content", "replaced by name, not overwritten");
    }

    #[test]
    fn a_link_stays_a_link_and_its_file_is_replaced() {
        let folder = Folder::new("link");
        let (file, link) = (folder.0.join("file"), folder.0.join("link"));
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
        let folder = Folder::new("refused");
        assert!(write_whole(Path::new("/"), b"").is_err());
        assert!(write_whole(&folder.0.join("missing").join("a"), b"").is_err());
        assert!(folder.names().is_empty());
    }
}
