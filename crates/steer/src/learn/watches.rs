//! Which files of the directories of a list are read, by whichever process.
//!
//! ```text
//!   directory --watch--> queue: number, name --take--> the path that was read
//! ```
//! The kernel reports each read of a file in a directory with a watch, however short it was;
//! polls miss those that wait for nothing, as those of what was fetched ahead do.
//!
//! # Invariants
//! - At most 1,024 directories; one whose files are read over and over is left, as each
//!   read costs its reader a note.
//! - Once notes were lost no directory is watched any more, and [`Notes::left`] has them all.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::watch::{Reply, Told, WatchQueue};

/// See the module.
#[derive(Debug)]
pub(super) struct Watches {
    queue: WatchQueue,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    directories: BTreeMap<i32, Directory>,
    /// The paths of those that are or were watched.
    paths: BTreeSet<Vec<u8>>,
    /// Notes were lost.
    is_over: bool,
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
    /// Paths that were read, and by which process, where the system tells.
    pub(super) paths: Vec<(Vec<u8>, Option<i32>)>,
    /// Directories that are watched no more: what is not in `paths` may have been read.
    pub(super) left: Vec<Vec<u8>>,
}

impl Watches {
    pub(super) fn new(queue: WatchQueue) -> Self {
        Self { queue, state: Mutex::default() }
    }

    /// Watches the directory at `path`, of which `handle` is one. Whether it is watched now.
    pub(super) fn watch(&self, path: &[u8], handle: &OwnedFd) -> bool {
        assert!(path.starts_with(b"/"), "a directory is watched by its full path");
        let is_full = |state: &State| state.is_over || state.paths.len() >= WATCHES_MAX;
        if is_full(&self.lock()) {
            return false;
        }
        let Ok(number) = self.queue.watch(handle) else { return false };
        let mut state = self.lock();
        if is_full(&state) {
            drop(state);
            self.queue.end(number);
            return false;
        }
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
        let mut state = self.lock();
        let State { directories, is_over, .. } = &mut *state;
        if directories.is_empty() {
            return notes;
        }
        let (mut repeated, mut ended, mut left) = (BTreeSet::new(), Vec::new(), NOTES_MAX);
        self.queue.take(|event| {
            left = left.saturating_sub(1);
            match event {
                Told::Lost => *is_over = true,
                Told::Ended(number) => ended.extend(directories.remove(&number)),
                Told::Read { number, name, process } => {
                    let Some(row) = directories.get_mut(&number) else { return Reply::Early };
                    if row.names.len() >= NAMES_MAX || !row.names.insert(name.to_vec()) {
                        repeated.insert(number);
                    } else {
                        notes.paths.push(([&row.path, name].join(&b'/'), process));
                    }
                }
            }
            if left > 0 && !*is_over { Reply::Taken } else { Reply::Enough }
        });
        notes.left.extend(ended.into_iter().map(|row| row.path));
        for number in repeated {
            let Some(row) = directories.get_mut(&number) else { continue };
            row.repeats += 1;
            if row.repeats >= REPEATS_MAX {
                let row = directories.remove(&number).expect("it is there");
                self.queue.end_at(number, &row.path);
                notes.left.push(row.path);
            }
        }
        assert!(directories.len() <= WATCHES_MAX, "watches have a bound");
        if *is_over {
            for (number, row) in std::mem::take(directories) {
                self.queue.end(number);
                notes.left.push(row.path);
            }
            self.queue.clear();
        }
        notes
    }

    /// The last notes: all watches end. Directories whose mark has gone before are among
    /// [`Notes::left`].
    pub(super) fn end(&self) -> Notes {
        let mut notes = Notes::default();
        for _ in 0..ENDS_MAX {
            let Notes { paths, left } = self.take();
            if paths.is_empty() && left.is_empty() {
                break;
            }
            notes.paths.extend(paths);
            notes.left.extend(left);
        }
        let directories = std::mem::take(&mut self.lock().directories);
        for (number, row) in directories {
            if !self.queue.end_at(number, &row.path) {
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
/// Notes of one call, and calls at the end: as many as the system keeps.
const NOTES_MAX: usize = 4_096;
const ENDS_MAX: usize = 8;
/// Files of one directory.
const NAMES_MAX: usize = 8_192;
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

    fn watched(scratch: &Scratch, queue: WatchQueue) -> Watches {
        let watches = Watches::new(queue);
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
        let watches = watched(&scratch, WatchQueue::new());
        let file = File::open(scratch.join("a")).unwrap();
        crate::kernel::prefetch(&file, &(0..1), 4096).unwrap();
        let _ = fs::read_dir(scratch.join("d")).unwrap().count();
        let paths = || watches.take().paths.into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        assert_eq!(paths(), [b""; 0]);
        for name in ["b", "c", "b"] {
            read(scratch.join(name));
        }
        assert_eq!(paths(), [b"/w/b", b"/w/c"]);
        assert_eq!(paths(), [b""; 0]);
    }

    #[test]
    fn a_directory_whose_files_are_read_over_and_over_is_left() {
        let scratch = Scratch::new("learned-hammered");
        for name in ["a", "b"] {
            fs::write(scratch.join(name), "1").unwrap();
        }
        let watches = watched(&scratch, WatchQueue::new());
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
        let queues = [("inotify", WatchQueue::of_inotify()), ("fanotify", WatchQueue::new())];
        for (kind, queue) in queues {
            let max = fs::read_to_string(format!("/proc/sys/fs/{kind}/max_queued_events"));
            let max = max.ok().and_then(|max| max.trim().parse().ok());
            let Some(max) = max.filter(|max: &usize| *max <= 1 << 15) else {
                return forerun_testkit::skip("lost_notes_are_told", "a queue of that length");
            };
            let scratch = Scratch::new("learned-lost");
            fs::write(scratch.join("0"), "1").unwrap();
            let watches = watched(&scratch, queue);
            // Notes that are equal may be one.
            for at in 1..=max + 1 {
                let name = scratch.join(at.to_string());
                fs::hard_link(scratch.join("0"), &name).unwrap();
                read(name);
            }
            let mut left = Vec::new();
            for _ in 0..max {
                left.extend(watches.take().left);
                if !left.is_empty() {
                    break;
                }
            }
            assert_eq!(left, [b"/w"], "as notes were lost, or there were too many names");
        }
    }
}
