//! The files below the paths that were named.
//!
//! ```text
//!   named --> tasks: a folder          --> threads --> tasks: its folders, its files in groups
//!                    a group of files  -->         --> files, skipped
//! ```
//! Each look at a folder or a file is a read of its metadata, which has to wait for the device. So
//! many are under way, folders first, as only they bring more; the files of a folder go by inode,
//! whose blocks hold several.
//!
//! # Invariants
//! - A folder and a file are examined once, however many names lead there, so every walk ends.
//! - Another file system is entered only where it is named; symbolic links likewise.
//! - At most as many entries are kept as the caller allows, and at most as many names wait.
//! # Locking
//! What was found and the tasks have one lock, which is held over no look at a folder or file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};

use super::file::{File, Id, Links, OpenFile};
use super::{Listing, SkipReason, SkippedFile};

/// Files and folders of one listing: some hundred bytes each.
pub const ENTRIES_MAX: usize = 1 << 20;

/// Lists `paths` and what is below them, up to `entries_max` entries, by path.
pub(super) fn list(paths: &[impl AsRef<Path>], entries_max: usize) -> Listing {
    let walk = Walk { state: Mutex::default(), changed: Condvar::new(), entries_max };
    for path in paths.iter().map(AsRef::as_ref) {
        if let Err(why) = walk.named(path) {
            walk.lock().skip(path, why, entries_max);
        }
    }
    thread::scope(|scope| walk.work(scope));
    let state = walk.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(state.folders.is_empty() && state.groups.is_empty(), "every task was carried out");
    let mut found = state.found;
    found.files.sort_by(|a, b| a.path.cmp(&b.path));
    found.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Examines `files` as they are now, in their order.
pub(super) fn examine_again(files: &[File]) -> Vec<Result<File, SkipReason>> {
    let groups: Vec<&[File]> = files.chunks(GROUP).collect();
    let next = AtomicUsize::new(0);
    let take = || groups.get(next.fetch_add(1, Ordering::Relaxed));
    let examined = Mutex::new(Vec::with_capacity(files.len()));
    let work = || {
        while let Some(group) = take() {
            let found: Vec<_> = group.iter().map(|file| (file.id, file.examine_again())).collect();
            lock(&examined).extend(found);
        }
    };
    thread::scope(|scope| {
        for _ in 1..groups.len().min(THREADS) {
            let thread = thread::Builder::new().name("warm-examine".into());
            // Without it the others do the work.
            let _ = thread.spawn_scoped(scope, work);
        }
        work();
    });
    let mut examined: BTreeMap<Id, _> =
        examined.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect();
    let found = |file: &File| examined.remove(&file.id).expect("each file is examined once");
    files.iter().map(found).collect()
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Walk {
    state: Mutex<State>,
    /// There are more tasks, or all are carried out.
    changed: Condvar,
    entries_max: usize,
}

#[derive(Default)]
struct State {
    found: Listing,
    seen: BTreeSet<Id>,
    folders: Vec<Folder>,
    groups: Vec<Group>,
    /// Names in the tasks that wait.
    waiting: usize,
    /// Tasks that are carried out now.
    running: usize,
    threads: usize,
    idle: usize,
}

/// A folder, with the device that is not left; one that was named has none yet.
struct Folder {
    path: PathBuf,
    within: Option<u64>,
}

/// Files of a folder on the device `within`.
struct Group {
    paths: Vec<PathBuf>,
    within: u64,
}

enum Task {
    Folder(Folder),
    Group(Group),
}

impl Walk {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A path of the command line.
    fn named(&self, path: &Path) -> Result<(), SkipReason> {
        let found = fs::metadata(path).map_err(SkipReason::Closed)?;
        if found.is_file() {
            return self.file(path, None);
        }
        if !found.is_dir() {
            return Err(SkipReason::NotAFile);
        }
        let mut state = self.lock();
        state.waiting += 1;
        state.folders.push(Folder { path: path.to_owned(), within: None });
        Ok(())
    }

    /// Carries out tasks until none is left. A thread starts where a task waits for one.
    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut state = self.lock();
        state.threads += 1;
        loop {
            let Some(task) = state.take(self.entries_max) else {
                if state.running == 0 {
                    self.changed.notify_all();
                    return;
                }
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            state.running += 1;
            if state.has_tasks() && state.idle == 0 && state.threads < THREADS {
                let thread = thread::Builder::new().name("warm-list".into());
                // Without it the others do the work.
                let _ = thread.spawn_scoped(scope, || self.work(scope));
            }
            drop(state);
            match task {
                Task::Folder(Folder { path, within }) => {
                    let listed = self.folder(&path, within);
                    listed.unwrap_or_else(|why| self.skip(&path, why));
                }
                Task::Group(Group { paths, within }) => {
                    for path in paths {
                        let found = self.file(&path, Some(within));
                        found.unwrap_or_else(|why| self.skip(&path, why));
                    }
                }
            }
            state = self.lock();
            assert!(state.running > 0, "this task runs");
            state.running -= 1;
        }
    }

    fn skip(&self, path: &Path, why: SkipReason) {
        self.lock().skip(path, why, self.entries_max);
    }

    /// Lists a folder, if it is on the device `within` and was not listed.
    fn folder(&self, folder: &Path, within: Option<u64>) -> Result<(), SkipReason> {
        let found = match within {
            None => fs::metadata(folder),
            Some(_) => fs::symlink_metadata(folder),
        };
        let found = found.map_err(SkipReason::Closed)?;
        let id = Id::of(&found);
        let is_within = within.is_none_or(|device| device == id.device);
        if !found.is_dir() || !is_within || !self.lock().is_new(id, self.entries_max) {
            return Ok(());
        }
        let (mut folders, mut files) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(folder).map_err(SkipReason::Closed)? {
            let entry = entry.map_err(SkipReason::Closed)?;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push((entry.ino(), entry.path())),
                Ok(_) => {}
                Err(error) => self.skip(&entry.path(), SkipReason::Closed(error)),
            }
            if folders.len() + files.len() >= BATCH
                && !self.add(&mut folders, &mut files, id.device)
            {
                break;
            }
        }
        self.add(&mut folders, &mut files, id.device);
        Ok(())
    }

    /// Adds tasks for what was found on `device`. Whether there was room for all.
    fn add(
        &self,
        folders: &mut Vec<PathBuf>,
        files: &mut Vec<(u64, PathBuf)>,
        device: u64,
    ) -> bool {
        files.sort_unstable();
        let mut files = files.drain(..).map(|(_, path)| path).peekable();
        let mut state = self.lock();
        for path in folders.drain(..) {
            if state.has_room(1, self.entries_max) {
                state.folders.push(Folder { path, within: Some(device) });
            }
        }
        while files.peek().is_some() {
            let paths: Vec<PathBuf> = files.by_ref().take(GROUP).collect();
            if state.has_room(paths.len(), self.entries_max) {
                state.groups.push(Group { paths, within: device });
            }
        }
        self.changed.notify_all();
        !state.found.is_cut
    }

    /// A file that was named, or found in a folder on the device `within`.
    fn file(&self, path: &Path, within: Option<u64>) -> Result<(), SkipReason> {
        let links = if within.is_none() { Links::Followed } else { Links::Refused };
        let opened = OpenFile::new(path, links)?;
        let id = opened.id();
        let is_within = within.is_none_or(|device| device == id.device);
        if is_within && self.lock().is_new(id, self.entries_max) {
            let file = File::examine(path, &opened, opened.bytes())?;
            if file.bytes > 0 {
                self.lock().found.files.push(file);
            }
        }
        Ok(())
    }
}

impl State {
    fn has_tasks(&self) -> bool {
        !self.folders.is_empty() || !self.groups.is_empty()
    }

    /// The next task: folders first, until many names wait.
    fn take(&mut self, entries_max: usize) -> Option<Task> {
        if self.waiting > entries_max / 2
            && let Some(group) = self.groups.pop()
        {
            return Some(self.taken(Task::Group(group)));
        }
        let folder = self.folders.pop().map(Task::Folder);
        let task = folder.or_else(|| self.groups.pop().map(Task::Group))?;
        Some(self.taken(task))
    }

    fn taken(&mut self, task: Task) -> Task {
        let names = match &task {
            Task::Folder(_) => 1,
            Task::Group(group) => group.paths.len(),
        };
        assert!(names <= self.waiting, "what is taken has waited");
        self.waiting -= names;
        task
    }

    /// Whether so many more names may wait; they do then.
    fn has_room(&mut self, names: usize, entries_max: usize) -> bool {
        let has_room = !self.found.is_cut && self.waiting + names <= entries_max;
        self.found.is_cut |= !has_room;
        self.waiting += if has_room { names } else { 0 };
        has_room
    }

    /// Whether `id` is to be examined: not if it was, and not if there are too many.
    fn is_new(&mut self, id: Id, entries_max: usize) -> bool {
        if self.seen.contains(&id) {
            return false;
        }
        if self.seen.len() == entries_max {
            self.found.is_cut = true;
            return false;
        }
        self.seen.insert(id);
        assert!(self.seen.len() <= entries_max, "more entries than are allowed");
        true
    }

    fn skip(&mut self, path: &Path, why: SkipReason, entries_max: usize) {
        if self.found.skipped.len() == entries_max {
            self.found.is_cut = true;
            return;
        }
        self.found.skipped.push(SkippedFile { path: path.to_owned(), bytes: 0, why });
    }
}

/// As many looks are under way: what a store with round trips of 50 ms takes at a time.
const THREADS: usize = 32;
/// Files that one thread looks at in turn: as many inodes as a block of ext4 holds.
const GROUP: usize = 16;
/// Names of a folder that are sorted by inode together.
const BATCH: usize = 4096;

#[cfg(test)]
mod tests;
