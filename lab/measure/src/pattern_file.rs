//! Files of the pattern: made on request, known again, and compared with at any byte.
//!
//! ```text
//!   make     nameless file -- written, synced --> gets its name      interrupted: nothing is left
//!   unnamed  named file -- loses its name ------> written             the same
//! ```
//!
//! # Invariants
//! - An existing file is never written to.
//! - A named file is whole, where the file system has nameless files; where it has none, an
//!   interrupted command leaves a short file, which is not taken for a whole one.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use forerun_console::failure::usage;
use forerun_console::{interrupt, output};
use forerun_core::params::{Bytes, Param as _};
use forerun_io::store::pattern;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};

/// Makes `path` a file of the first `bytes` of the pattern, unless it is one.
pub fn make(path: &Path, bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Err(usage("--make 0: expected a byte at least"));
    }
    match File::open(path) {
        Ok(file) => return require(&file, path, bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| cannot("open", path)),
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    let Ok(nameless) = open(output::parent(path), flags, mode) else {
        let mut file = File::create_new(path).with_context(|| cannot("make", path))?;
        return write(&mut file, bytes).with_context(|| cannot("write", path));
    };
    let mut file = File::from(nameless);
    write(&mut file, bytes).with_context(|| cannot("write", path))?;
    linkat(CWD, own(&file), CWD, path, AtFlags::SYMLINK_FOLLOW)
        .with_context(|| cannot("name", path))
}

/// A file of the first `bytes` of the pattern in `folder` that the system removes at its close.
pub fn unnamed(folder: &Path, bytes: u64) -> Result<File> {
    let mut file = nameless(folder)?;
    write(&mut file, bytes).with_context(|| cannot("write a file in", folder))?;
    Ok(file)
}

/// An empty file in `folder` that the system removes at its close.
pub fn nameless(folder: &Path) -> Result<File> {
    let path = folder.join(format!("forerun-bench-{}", std::process::id()));
    let made = interrupt::unbroken(|| {
        let made = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        made.and_then(|file| fs::remove_file(&path).map(|()| file))
    });
    made.with_context(|| cannot("make", &path))
}

/// A name of `file`, with or without one of its own, for as long as it is open.
#[must_use]
pub fn own(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Whether `file` of `bytes` is the pattern, by a check of a few places.
#[must_use]
pub fn is_pattern(file: &File, bytes: u64) -> bool {
    let mut look = [0; LOOK_BYTES];
    let last = bytes.saturating_sub(LOOK_BYTES as u64);
    (0..=LOOKS).all(|look_number| {
        let at = u128::from(last) * u128::from(look_number) / u128::from(LOOKS);
        let at = u64::try_from(at).expect("at most the last");
        let room = usize::try_from(bytes - at).map_or(LOOK_BYTES, |left| left.min(LOOK_BYTES));
        let look = &mut look[..room];
        file.read_exact_at(look, at).is_ok() && pattern::verify(at, look).is_ok()
    })
}

fn require(file: &File, path: &Path, bytes: u64) -> Result<()> {
    let found = file.metadata().with_context(|| cannot("look at", path))?.len();
    if found == bytes && is_pattern(file, bytes) {
        return Ok(());
    }
    let (path, size) = (path.display(), Bytes(bytes).show());
    Err(usage(format!("--make {size}: {path} is there and is something else; name another file")))
}

fn write(file: &mut File, bytes: u64) -> std::io::Result<()> {
    let progress = output::progress(bytes, "writing");
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < bytes {
        let room = usize::try_from(bytes - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        pattern::fill(at, &mut chunk[..room]);
        file.write_all(&chunk[..room])?;
        at += room as u64;
        progress.set_position(at);
    }
    progress.finish_and_clear();
    file.sync_all()
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}", path.display())
}

const CHUNK_BYTES: usize = 1 << 20;
/// Bytes and number of the checked places.
const LOOK_BYTES: usize = 4_096;
const LOOKS: u32 = 64;

#[cfg(test)]
mod tests {
    use forerun_testkit::Scratch;

    use super::*;

    #[test]
    fn a_file_is_made_once_and_known_again() {
        let folder = Scratch::new("made");
        for bytes in [1, 4_095, 4_097, (1 << 20) + 5] {
            let path = folder.join(bytes.to_string());
            make(&path, bytes).unwrap();
            let made = fs::read(&path).unwrap();
            assert_eq!(made.len() as u64, bytes);
            assert_eq!(pattern::verify(0, &made), Ok(()));
            make(&path, bytes).unwrap();
            assert!(make(&path, bytes + 1).is_err(), "it is shorter than that");
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4, "nothing else was left");
    }

    #[test]
    fn a_file_of_something_else_stays_as_it_is_and_none_is_made_of_nothing() {
        let folder = Scratch::new("other");
        let path = folder.join("other");
        fs::write(&path, [7; 5_000]).unwrap();
        let error = make(&path, 5_000).unwrap_err().to_string();
        assert!(error.contains("name another file"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), [7; 5_000]);
        let none = folder.join("none");
        assert!(make(&none, 0).is_err() && !none.exists(), "nothing is to be made");
    }

    #[test]
    fn a_file_without_a_name_can_be_opened_again() {
        let folder = Scratch::new("unnamed");
        let file = unnamed(&folder, 10_000).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        let again = File::open(own(&file)).unwrap();
        assert!(is_pattern(&again, 10_000));
        assert!(!is_pattern(&again, 10_001), "it is shorter than that");
    }
}
