//! Watches of directories: the kernel tells which of their files are read, by whichever process.
//!
//! ```text
//!   directory --watch--> number                     worker threads
//!   a file in it is read --(queue)--> number, name  the thread that polls
//! ```
//! A watch of inotify holds the inode of its directory: a subvolume that was deleted, or an
//! encrypted folder that is to be locked, stays in use as long as there is one. Marks of fanotify
//! need not: the kernel may evict the inode, and the mark goes with it. So those are taken where
//! there are any, and inotify where the kernel or the file system has none.
//!
//! # Invariants
//! - The same directory has the same number until its watch ends; no number comes twice.
//! - What forerun requests of the kernel is no read, and a mapping is none either.
//! - [`WatchQueue::take`] tells a read in a directory whose number is still on its way to the
//!   listener again, once; at most [`EARLY_MAX`] are kept for that.
//! - [`WatchQueue::end_at`] tells at the end which marks an evicted inode has taken along.
//! - No call but [`WatchQueue::watch`] waits for a file system.
//! # Sources
//! inotify(7), fanotify(7), `fanotify_mark(2)` (`FAN_MARK_EVICTABLE`, from 5.19 on).

mod marks;
mod sys;

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::open::own_path;
use marks::Marks;

/// See the module.
#[derive(Debug)]
pub(crate) struct WatchQueue {
    /// Made with the first watch; none where the system has none.
    marks: OnceLock<Option<Mutex<Marks>>>,
    /// Made once a directory takes no mark.
    inotify: OnceLock<OwnedFd>,
    buffer: Mutex<Vec<u8>>,
    early: Mutex<VecDeque<EarlyRead>>,
}

/// A read that came before its directory was known: its number, the name, the process.
type EarlyRead = (i32, Vec<u8>, Option<i32>);

/// What the kernel tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told<'a> {
    /// The file `name` in the directory with this number was read; also one that is gone by now.
    /// By this process, where the system tells: marks do, to root.
    Read { number: i32, name: &'a [u8], process: Option<i32> },
    /// The watch has ended, as its directory is gone, or as others have taken its place.
    Ended(i32),
    /// The kernel has dropped events.
    Lost,
}

/// The answer of a listener to [`Told`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Taken,
    /// The number is of no directory that is known yet.
    Early,
    /// It was taken, and the rest is left to the next call.
    Enough,
}

impl WatchQueue {
    /// A queue without watches.
    pub(crate) fn new() -> Self {
        let (marks, inotify, early) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        Self { marks, inotify, buffer: Mutex::new(vec![0; BUFFER_BYTES]), early }
    }

    /// One that holds the directories in memory.
    #[cfg(test)]
    pub(crate) fn of_inotify() -> Self {
        Self { marks: OnceLock::from(None), ..Self::new() }
    }

    /// Watches `directory`, of which this is any handle. Its number.
    ///
    /// # Errors
    /// The system has no watch for it.
    pub(crate) fn watch(&self, directory: &OwnedFd) -> Result<i32, Errno> {
        if let Some(marks) = self.marks.get_or_init(|| Marks::new().map(Mutex::new))
            && let Ok(number) = Marks::add(marks, directory)
        {
            return Ok(number);
        }
        let queue = self.inotify()?;
        let mask = WatchFlags::ACCESS | WatchFlags::ONLYDIR | WatchFlags::EXCL_UNLINK;
        // The handle holds the directory in memory: no file system is asked.
        let number = inotify::add_watch(queue, own_path(directory), mask)?;
        assert!(number > 0, "numbers below are those of marks");
        Ok(number)
    }

    /// The marks, if any was made.
    fn marks(&self) -> Option<&Mutex<Marks>> {
        self.marks.get()?.as_ref()
    }

    fn inotify(&self) -> Result<&OwnedFd, Errno> {
        if let Some(queue) = self.inotify.get() {
            return Ok(queue);
        }
        let new = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(self.inotify.get_or_init(|| new))
    }

    /// Ends a watch. What it tells from now on is dropped.
    pub(crate) fn end(&self, number: i32) {
        if number < 0 {
            self.marks().iter().for_each(|marks| lock(marks).forget(number));
        } else if let Some(queue) = self.inotify.get() {
            // It may have ended by itself.
            let _ = inotify::remove_watch(queue, number);
        }
    }

    /// Ends the watch of the directory at `path`, if that is in memory. Whether it has told all
    /// that was read until now.
    pub(crate) fn end_at(&self, number: i32, path: &[u8]) -> bool {
        if number >= 0 {
            self.end(number);
            return true;
        }
        self.marks().is_some_and(|marks| lock(marks).remove(number, path))
    }

    /// Ends all watches of marks, and drops what they have told.
    pub(crate) fn clear(&self) {
        self.marks().iter().for_each(|marks| lock(marks).clear());
    }

    /// Gives `each` what the kernel has reported since the last call, until that has enough and was
    /// given what was read of the kernel by then.
    pub(crate) fn take(&self, mut each: impl FnMut(Told<'_>) -> Reply) {
        let mut early = lock(&self.early);
        assert!(early.len() <= EARLY_MAX, "what waits is bounded");
        for (number, name, process) in std::mem::take(&mut *early) {
            each(Told::Read { number, name: &name, process });
        }
        let mut each = |told: Told<'_>| {
            let reply = each(told);
            if let (Reply::Early, Told::Read { number, name, process }) = (reply, told)
                && early.len() < EARLY_MAX
            {
                early.push_back((number, name.to_vec(), process));
            }
            reply != Reply::Enough && early.len() < EARLY_MAX
        };
        let mut buffer = lock(&self.buffer);
        if let Some(marks) = self.marks()
            && !lock(marks).take(&mut buffer, &mut each)
        {
            return;
        }
        let Some(queue) = self.inotify.get() else { return };
        let mut room = [MaybeUninit::uninit(); INOTIFY_BYTES];
        let mut reader = Reader::new(queue, &mut room);
        let mut wants_more = true;
        while (wants_more || !reader.is_buffer_empty())
            && let Ok(event) = reader.next()
        {
            let flags = event.events();
            let told = if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                Told::Lost
            } else if flags.contains(ReadFlags::IGNORED) {
                Told::Ended(event.wd())
            } else {
                let name = event.file_name().map_or(&b""[..], |name| name.to_bytes());
                let is_read =
                    flags.contains(ReadFlags::ACCESS) && !flags.contains(ReadFlags::ISDIR);
                if !is_read || name.is_empty() {
                    continue;
                }
                Told::Read { number: event.wd(), name, process: None }
            };
            wants_more &= each(told);
        }
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is read of a queue at a time.
const BUFFER_BYTES: usize = 16 << 10;
const INOTIFY_BYTES: usize = 4 << 10;
const EARLY_MAX: usize = 1_024;

#[cfg(test)]
mod tests;
