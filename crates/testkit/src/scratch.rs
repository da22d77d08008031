//! Folders of tests, removed at the end.
//!
//! # Invariants
//! - No two folders have one path: neither in a process nor in two that run at the same time.

use std::{
    ffi::OsStr,
    fs::{self, File},
    ops::Deref,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::fs::{Advice, fadvise};

use crate::until;

/// Has a type used as its path.
macro_rules! path {
    ($($type:ident: $path:tt),*) => {$(
        impl Deref for $type {
            type Target = Path;

            fn deref(&self) -> &Path {
                &self.$path
            }
        }

        impl AsRef<Path> for $type {
            fn as_ref(&self) -> &Path {
                self
            }
        }

        impl AsRef<OsStr> for $type {
            fn as_ref(&self) -> &OsStr {
                self.as_os_str()
            }
        }
    )*};
}

/// A folder of one test: empty at first, its own in every run, removed with all that is in it.
///
/// It is used as a path: `scratch.join("data")`.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A folder for temporary files, which may be memory.
    #[must_use]
    pub fn new(test: &str) -> Self {
        Self::within(&std::env::temp_dir(), test)
    }

    /// A folder on the disk that the build is on, whose files can be dropped from the page cache.
    #[must_use]
    pub fn on_disk(test: &str) -> Self {
        Self::within(&crate::target_dir().join("tmp"), test)
    }

    /// A folder that no disk delays, where the system has one.
    #[must_use]
    pub fn in_memory(test: &str) -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::within(memory, test) } else { Self::new(test) }
    }

    /// A folder in `parent`.
    ///
    /// # Panics
    /// When `parent` takes no folder.
    #[must_use]
    pub fn within(parent: &Path, test: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("forerun-{test}-{}-{count}", std::process::id()));
        // A run with the same process number was killed: what it left is no one's.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the parent takes a folder");
        Self(path)
    }

    /// A temporary folder with these files, each a name and what it holds.
    #[must_use]
    pub fn of(test: &str, files: &[(&str, &str)]) -> Self {
        let scratch = Self::new(test);
        for (name, text) in files {
            scratch.file(name, text);
        }
        scratch
    }

    /// A file of this folder that holds `contents`; its path.
    ///
    /// # Panics
    /// When the folder takes no file.
    pub fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        let parent = path.parent().expect("it lies in the folder");
        fs::create_dir_all(parent).expect("the folder takes a folder");
        fs::write(&path, contents).expect("the folder takes a file");
        path
    }
}

path! { Scratch: 0, ScratchFile: path }

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The path of one file in a folder of its own, removed with that folder.
#[derive(Debug)]
pub struct ScratchFile {
    path: PathBuf,
    _folder: Scratch,
}

impl ScratchFile {
    /// A path among the temporary files that nothing is at.
    #[must_use]
    pub fn new(test: &str) -> Self {
        Self::within(&std::env::temp_dir(), test)
    }

    /// A path below `parent` that nothing is at.
    #[must_use]
    pub fn within(parent: &Path, test: &str) -> Self {
        let folder = Scratch::within(parent, test);
        Self { path: folder.join("data"), _folder: folder }
    }

    /// A temporary file that holds `contents`.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn holding(test: &str, contents: impl AsRef<[u8]>) -> Self {
        let file = Self::new(test);
        fs::write(&file, contents).expect("the folder takes a file");
        file
    }
}

/// Writes back what is dirty of `file`, and asks the kernel to drop its cached pages; a file system
/// in memory keeps them.
///
/// # Panics
/// When `file` is no regular file that can be synced.
pub fn drop_from_cache(file: &File) {
    file.sync_all().expect("it can be synced");
    fadvise(file, 0, None, Advice::DontNeed).expect("a regular file takes advice");
}

/// Returns once a write has a later time than the last change of `path`: two changes within one
/// tick of the file system's clock look like one. Leaves a file beside `path`.
///
/// # Panics
/// When `path` does not exist, or takes no file beside it.
pub fn until_tick(path: &Path) {
    let changed = |path: &Path| {
        let now = fs::metadata(path).expect("it is there");
        (now.ctime(), now.ctime_nsec())
    };
    let beside = path.with_extension("tick");
    until(|| {
        fs::write(&beside, "").expect("the folder takes a file");
        changed(&beside) > changed(path)
    });
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Scratch, until_tick};

    #[test]
    fn after_a_tick_a_change_shows_in_the_time() {
        let scratch = Scratch::new("tick");
        let path = scratch.file("data", "one");
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        until_tick(&path);
        fs::write(&path, "two").unwrap();
        assert!(fs::metadata(&path).unwrap().modified().unwrap() > before);
    }

    #[test]
    fn folders_of_one_name_are_apart_and_are_removed_with_their_files() {
        for make in [Scratch::new, Scratch::on_disk] {
            let (one, other) = (make("scratch"), make("scratch"));
            assert_ne!(*one, *other);
            let file = one.file("below/data", "text");
            assert_eq!(fs::read(&file).unwrap(), b"text");
            assert!(fs::read_dir(&other).unwrap().next().is_none());
            let path = one.to_path_buf();
            drop(one);
            assert!(!path.exists() && other.exists());
        }
    }
}
