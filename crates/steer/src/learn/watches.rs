//! Watches of directories: which of their files are read, by whichever process.
//!
//! ```text
//!   directory --watch--> inotify: IN_ACCESS, name --take--> the path that was read
//! ```
//! The kernel reports each read of a file in a directory with a watch, however short it was;
//! polls miss those that wait for nothing, as those of what was fetched ahead do. What forerun
//! requests of the kernel is no read. A mapping is none either, but programs read the head of
//! what they map.
//!
//! # Invariants
//! - At most 1,024 directories; one whose files are read over and over is left, as each
//!   read costs its reader a note.
//! - Once notes were lost no directory is watched any more, and [`Notes::left`] has them all.
//! # Sources
//! inotify(7); Linux `fs/notify/inotify/inotify_fsnotify.c`: equal notes in a row are one.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

/// See the module.
#[derive(Debug)]
pub(super) struct Watches {
    /// `None` where the system has no more of them.
    queue: Option<OwnedFd>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    directories: BTreeMap<i32, Directory>,
    /// The paths of those that are or were watched.
    paths: BTreeSet<Vec<u8>>,
    /// Notes were lost.
    is_over: bool,
    buffer: Vec<MaybeUninit<u8>>,
}

#[derive(Debug)]
struct Directory {
    path: Vec<u8>,
    /// Calls of [`Watches::take`] that found notes of a file that was known before.
    repeats: u32,
    /// Files that were read.
    names: BTreeSet<Vec<u8>>,
}

/// What notes tell.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Paths that were read.
    pub(super) paths: Vec<Vec<u8>>,
    /// Directories that are watched no more: what is not in `paths` may have been read.
    pub(super) left: Vec<Vec<u8>>,
}

impl Watches {
    pub(super) fn new() -> Self {
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        let buffer = vec![MaybeUninit::uninit(); NOTES_BYTES];
        Self { queue, state: Mutex::new(State { buffer, ..State::default() }) }
    }

    /// Watches the directory at `path`, of which `handle` is one. Whether it is watched now.
    pub(super) fn watch(&self, path: &[u8], handle: &OwnedFd) -> bool {
        let Some(queue) = &self.queue else { return false };
        assert!(path.starts_with(b"/"), "a directory is watched by its full path");
        let own = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let mut state = self.lock();
        if state.is_over || state.paths.len() >= WATCHES_MAX {
            return false;
        }
        // The handle holds the directory in memory: no file system is asked.
        let flags = WatchFlags::ACCESS | WatchFlags::ONLYDIR | WatchFlags::EXCL_UNLINK;
        let Ok(number) = inotify::add_watch(queue, own, flags) else { return false };
        let row = state.directories.entry(number).or_insert_with(|| Directory {
            path: path.to_vec(),
            repeats: 0,
            names: BTreeSet::new(),
        });
        // Reads by another path are reported by the first.
        let is_first = row.path == path;
        if is_first {
            state.paths.insert(path.to_vec());
        }
        is_first
    }

    /// Whether the directory at `path` is watched, or was.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.lock().paths.contains(path)
    }

    /// What was read since the last call.
    pub(super) fn take(&self) -> Notes {
        let mut notes = Notes::default();
        let Some(queue) = &self.queue else { return notes };
        let mut state = self.lock();
        let State { directories, is_over, buffer, .. } = &mut *state;
        if directories.is_empty() {
            return notes;
        }
        let (mut reader, mut repeated) = (Reader::new(queue, buffer), BTreeSet::new());
        for _ in 0..NOTES_MAX {
            let Ok(event) = reader.next() else { break };
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                *is_over = true;
                break;
            }
            if flags.contains(ReadFlags::IGNORED) {
                notes.left.extend(directories.remove(&event.wd()).map(|row| row.path));
                continue;
            }
            let Some(name) = event.file_name().filter(|_| !flags.contains(ReadFlags::ISDIR)) else {
                continue;
            };
            let Some(row) = directories.get_mut(&event.wd()) else { continue };
            let name = name.to_bytes();
            if row.names.len() >= NAMES_MAX || !row.names.insert(name.to_vec()) {
                repeated.insert(event.wd());
                continue;
            }
            notes.paths.push([&row.path, name].join(&b'/'));
        }
        for number in repeated {
            let Some(row) = directories.get_mut(&number) else { continue };
            row.repeats += 1;
            if row.repeats >= REPEATS_MAX {
                let _ = inotify::remove_watch(queue, number);
                notes.left.extend(directories.remove(&number).map(|row| row.path));
            }
        }
        assert!(directories.len() <= WATCHES_MAX, "watches have a bound");
        if *is_over {
            for (number, row) in std::mem::take(directories) {
                let _ = inotify::remove_watch(queue, number);
                notes.left.push(row.path);
            }
        }
        notes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const WATCHES_MAX: usize = 1_024;
/// Notes of one call.
const NOTES_MAX: usize = 4_096;
/// Files of one directory.
const NAMES_MAX: usize = 8_192;
const NOTES_BYTES: usize = 16 << 10;
/// A directory is left after so many calls that found known files read again.
const REPEATS_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Read as _;

    use forerun_testkit::Scratch;
    use rustix::fs::{Mode, OFlags, open};

    use super::*;

    fn read(path: impl AsRef<std::path::Path>) {
        let mut byte = [0];
        File::open(path).unwrap().read_exact(&mut byte).unwrap();
    }

    fn watched(scratch: &Scratch) -> Watches {
        let watches = Watches::new();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = open(scratch.join(""), flags, Mode::empty()).unwrap();
        assert!(watches.watch(b"/w", &handle));
        watches
    }

    #[test]
    fn reads_are_told_once_a_file_and_opens_and_requests_are_not() {
        let scratch = Scratch::new("learned-watches");
        for name in ["a", "b", "c"] {
            fs::write(scratch.join(name), "1").unwrap();
        }
        fs::create_dir(scratch.join("d")).unwrap();
        let watches = watched(&scratch);
        let file = File::open(scratch.join("a")).unwrap();
        crate::kernel::prefetch(&file, &(0..1), 4096).unwrap();
        let _ = fs::read_dir(scratch.join("d")).unwrap().count();
        assert_eq!(watches.take().paths, [b""; 0]);
        for name in ["b", "c", "b"] {
            read(scratch.join(name));
        }
        assert_eq!(watches.take().paths, [b"/w/b", b"/w/c"]);
        assert_eq!(watches.take().paths, [b""; 0]);
    }

    #[test]
    fn a_directory_whose_files_are_read_over_and_over_is_left() {
        let scratch = Scratch::new("learned-hammered");
        for name in ["a", "b"] {
            fs::write(scratch.join(name), "1").unwrap();
        }
        let watches = watched(&scratch);
        let mut left = Vec::new();
        for _ in 0..=REPEATS_MAX {
            read(scratch.join("a"));
            read(scratch.join("b"));
            left.extend(watches.take().left);
        }
        assert_eq!(left, [b"/w"]);
        assert!(watches.lock().directories.is_empty());
    }

    #[test]
    fn lost_notes_are_told() {
        let scratch = Scratch::new("learned-lost");
        for name in ["a", "b"] {
            fs::write(scratch.join(name), "1").unwrap();
        }
        let watches = watched(&scratch);
        let max = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let max: usize = max.trim().parse().unwrap();
        if max > 1 << 16 {
            return forerun_testkit::skip("lost_notes_are_told", "a queue that long");
        }
        for _ in 0..=max / 2 {
            read(scratch.join("a"));
            read(scratch.join("b"));
        }
        let mut left = Vec::new();
        for _ in 0..max {
            left.extend(watches.take().left);
            if !left.is_empty() {
                break;
            }
        }
        assert_eq!(left, [b"/w"], "left as it is read over and over, or as notes were lost");
    }
}
