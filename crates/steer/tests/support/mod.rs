//! What the tests on the real page cache share: files that are not cached, skips by name.
//!
//! # Invariants
//! - A skip is never silent: it goes to stderr, and to the file that `FORERUN_SKIPPED` names.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

/// Says that `test` did not run, and why.
pub(crate) fn skip(test: &str, why: &str) {
    let line = format!("SKIPPED {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("FORERUN_SKIPPED") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("it can be appended to");
    }
}

/// A file of a test, removed at the end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    /// A file of `bytes` whose pages are not in the cache, where they can be dropped.
    pub(crate) fn cold(name: &str, bytes: usize) -> Option<(Self, File)> {
        let name = format!("{name}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, vec![7; bytes]).expect("the build's folder takes a file");
        let (scratch, file) = (Self(path.clone()), File::open(&path).expect("it is there"));
        file.sync_all().expect("it can be written");
        fadvise(&file, 0, None, Advice::DontNeed).expect("a regular file takes advice");
        // No reader of a test brings in more than it reads.
        fadvise(&file, 0, None, Advice::Random).expect("a regular file takes advice");
        let all = 0..bytes as u64;
        let cached = forerun_steer::kernel::cached(&file, &all).expect("a regular file");
        (cached == forerun_steer::kernel::Residency::Pages(0)).then_some((scratch, file))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
