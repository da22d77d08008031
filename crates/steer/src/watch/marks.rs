//! Marks of fanotify that hold no inode, and the events that they make.
//!
//! ```text
//!   directory --handle--> number              an event names file system, handle and file
//!   groups:  [ marks ] [ marks ] ...          all are full, or take no such directory: the oldest
//!                                             is emptied
//! ```
//! A mark can be taken away only by a handle of its directory, and none is kept, as that would hold
//! it. So what is told by a mark whose watch has ended is dropped, and marks go in bulk. A group
//! has marks of file systems with an id of their own, or of one without (a subvolume of btrfs has
//! one that is not its file system's): of more kinds there are more groups.
//!
//! # Invariants
//! - At most [`GROUPS_MAX`] groups of [`MARKS_MAX`] marks.
//! - A directory has its number in one group.
//! - No lock is held while a file system is asked.
//! # Sources
//! fanotify(7): `struct fanotify_event_metadata`, `struct fanotify_event_info_fid`;
//! fanotify_mark(2): `EXDEV`.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstatvfs, openat2};
use rustix::io::{Errno, read};

use super::{Told, lock, sys};

/// See the module.
#[derive(Debug)]
pub(super) struct Marks {
    /// The one that was begun last comes last.
    groups: Vec<Group>,
    /// The number that was given last; below zero, where inotify has none.
    last: i32,
}

#[derive(Debug)]
struct Group {
    queue: Arc<OwnedFd>,
    numbers: BTreeMap<Directory, i32>,
    marks: usize,
}

/// A directory as events name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Directory {
    /// The id of its file system.
    system: u64,
    /// Type and bytes of its handle.
    handle: Vec<u8>,
}

impl Marks {
    /// None where the system has no such marks for this user.
    pub(super) fn new() -> Option<Self> {
        let first = Group::new()?;
        // Before 5.19 the flag is refused, of whatever file system.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open("/", flags, Mode::empty()).ok()?;
        let has = match sys::mark(&first.queue, ADD, &root) {
            Ok(()) => sys::mark(&first.queue, REMOVE, &root).is_ok(),
            Err(error) => error != Errno::INVAL && error != Errno::PERM,
        };
        has.then_some(Self { groups: vec![first], last: 0 })
    }

    /// Marks `directory`, without the lock of `marks` while the system is asked. Its number.
    pub(super) fn add(marks: &Mutex<Self>, directory: &OwnedFd) -> Result<i32, Errno> {
        let named = Directory::of(directory)?;
        let queues = lock(marks).queues(&named);
        for queue in queues {
            // Also where it has a number: the mark may have gone with its inode.
            match sys::mark(&queue, ADD, directory) {
                Ok(()) => return lock(marks).name(named, &queue),
                Err(Errno::XDEV) => {}
                Err(error) => return Err(error),
            }
        }
        let queue = lock(marks).begin()?;
        sys::mark(&queue, ADD, directory)?;
        lock(marks).name(named, &queue)
    }

    /// Those that may take a mark: that of the group which has this directory, or all with room.
    fn queues(&self, named: &Directory) -> Vec<Arc<OwnedFd>> {
        let has = self.groups.iter().find(|group| group.numbers.contains_key(named));
        let room = self.groups.iter().rev().filter(|group| group.marks < MARKS_MAX);
        let queues = has.map_or_else(|| room.collect(), |group| vec![group]);
        queues.into_iter().map(|group| Arc::clone(&group.queue)).collect()
    }

    /// Begins a group, in the place of the oldest one where there are enough. Its queue.
    fn begin(&mut self) -> Result<Arc<OwnedFd>, Errno> {
        let group = if self.groups.len() < GROUPS_MAX { Group::new() } else { None };
        let group = group.or_else(|| (!self.groups.is_empty()).then(|| self.groups.remove(0)));
        let mut group = group.ok_or(Errno::MFILE)?;
        group.clear();
        let queue = Arc::clone(&group.queue);
        self.groups.push(group);
        assert!(self.groups.len() <= GROUPS_MAX, "groups are bounded");
        Ok(queue)
    }

    /// The number of a directory that has been marked in `queue`.
    fn name(&mut self, named: Directory, queue: &Arc<OwnedFd>) -> Result<i32, Errno> {
        let next = self.last.checked_sub(1).ok_or(Errno::NOSPC)?;
        let group = self.groups.iter_mut().find(|group| Arc::ptr_eq(&group.queue, queue));
        let group = group.ok_or(Errno::AGAIN)?;
        if let Some(&number) = group.numbers.get(&named) {
            return Ok(number);
        }
        if group.marks == MARKS_MAX {
            // Others have come first.
            return Err(Errno::AGAIN);
        }
        group.numbers.insert(named, next);
        group.marks += 1;
        self.last = next;
        assert!(next < 0, "numbers above are those of inotify");
        Ok(next)
    }

    /// What the mark with this number tells from now on is dropped.
    pub(super) fn forget(&mut self, number: i32) {
        for group in &mut self.groups {
            group.numbers.retain(|_, known| *known != number);
            assert!(group.numbers.len() <= group.marks, "what has a number has a mark");
        }
    }

    /// Takes the mark with this number away, if its directory is at `path` and in memory. Whether
    /// it was there.
    pub(super) fn remove(&mut self, number: i32, path: &[u8]) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // No file system is asked.
        let found = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED);
        let handle = found.as_ref().ok().and_then(|found| sys::handle(found).ok());
        let mut was_there = false;
        for group in &self.groups {
            let mut known = group.numbers.iter().filter(|(_, known)| **known == number);
            if let (Ok(found), Some((named, _))) = (&found, known.next())
                && handle.as_ref() == Some(&named.handle)
            {
                was_there |= sys::mark(&group.queue, REMOVE, found).is_ok();
            }
        }
        self.forget(number);
        was_there
    }

    pub(super) fn clear(&mut self) {
        self.groups.truncate(1);
        self.groups.iter_mut().for_each(Group::clear);
    }

    /// Gives `each` what was told, until that wants no more. Whether it does.
    pub(super) fn take(&self, buffer: &mut [u8], each: &mut impl FnMut(Told<'_>) -> bool) -> bool {
        let mut wants_more = true;
        for group in &self.groups {
            while wants_more
                && let Ok(count) = read(&group.queue, &mut *buffer)
                && count > 0
            {
                let mut events = &buffer[..count];
                while let Some((event, rest)) = split(events) {
                    events = rest;
                    let told = match event {
                        Event::Lost => Some(Told::Lost),
                        Event::Read { directory, name } => {
                            let number = group.numbers.get(&directory);
                            number.map(|&number| Told::Read { number, name })
                        }
                        Event::Other => None,
                    };
                    wants_more &= told.is_none_or(&mut *each);
                }
            }
        }
        wants_more
    }
}

impl Group {
    fn new() -> Option<Self> {
        let queue = Arc::new(sys::init().ok()?);
        Some(Self { queue, numbers: BTreeMap::new(), marks: 0 })
    }

    fn clear(&mut self) {
        sys::flush(&self.queue);
        self.numbers.clear();
        self.marks = 0;
    }
}

impl Directory {
    fn of(directory: &OwnedFd) -> Result<Self, Errno> {
        let system = fstatvfs(directory)?.f_fsid;
        Ok(Self { system, handle: sys::handle(directory)? })
    }
}

/// An event of a queue.
#[derive(Debug, PartialEq, Eq)]
enum Event<'a> {
    Read { directory: Directory, name: &'a [u8] },
    Lost,
    Other,
}

/// The first event of what was read of a queue, and what follows it; none where it is cut.
fn split(bytes: &[u8]) -> Option<(Event<'_>, &[u8])> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let length = word(0)? as usize;
    if length < METADATA_BYTES || length > bytes.len() {
        return None;
    }
    let (event, rest) = bytes.split_at(length);
    let mask = u64::from_ne_bytes(event.get(8..16)?.try_into().ok()?);
    if mask & libc::FAN_Q_OVERFLOW != 0 {
        return Some((Event::Lost, rest));
    }
    // Behind the metadata: type, a spare byte, length; file system, handle, name.
    let info = usize::from(half(6)?);
    let is_named = event.get(info) == Some(&libc::FAN_EVENT_INFO_TYPE_DFID_NAME);
    if mask & libc::FAN_ACCESS == 0 || !is_named {
        return Some((Event::Other, rest));
    }
    let end = info + usize::from(half(info + 2)?);
    let system = [word(info + 4)?, word(info + 8)?];
    let handle = event.get(info + 16..info + 20 + word(info + 12)? as usize)?;
    let name = event.get(info + 16 + handle.len()..end)?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    if name.is_empty() || name == b"." {
        return Some((Event::Other, rest));
    }
    let system = u64::from(system[0]) | u64::from(system[1]) << 32;
    let directory = Directory { system, handle: handle.to_vec() };
    Some((Event::Read { directory, name }, rest))
}

const ADD: u32 = libc::FAN_MARK_ADD | libc::FAN_MARK_EVICTABLE;
const REMOVE: u32 = libc::FAN_MARK_REMOVE;
/// Marks of a group: four times the directories that walks watch, and all of a list's.
const MARKS_MAX: usize = 1_024;
const GROUPS_MAX: usize = 4;
const METADATA_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_whole_and_cut_ones_are_not() {
        let mut bytes = Vec::new();
        let name = b"file\0\0\0\0";
        let handle = [1_i32.to_ne_bytes(), 7_u32.to_ne_bytes()].concat();
        let length = u32::try_from(METADATA_BYTES + 16 + handle.len() + name.len()).unwrap();
        let info = u16::try_from(length).unwrap() - 24;
        bytes.extend(length.to_ne_bytes());
        bytes.extend([3, 0]);
        bytes.extend(24_u16.to_ne_bytes());
        bytes.extend(libc::FAN_ACCESS.to_ne_bytes());
        bytes.extend([0xff; 8]);
        bytes.extend([libc::FAN_EVENT_INFO_TYPE_DFID_NAME, 0]);
        bytes.extend(info.to_ne_bytes());
        bytes.extend([5_u32.to_ne_bytes(), 6_u32.to_ne_bytes(), 4_u32.to_ne_bytes()].concat());
        bytes.extend(&handle);
        bytes.extend(name);
        let directory = Directory { system: 5 | 6 << 32, handle };
        for cut in 0..bytes.len() {
            assert_eq!(split(&bytes[..cut]), None, "cut at {cut}");
        }
        let twice = [&bytes[..], &bytes].concat();
        let read = Event::Read { directory, name: b"file" };
        assert_eq!(split(&twice), Some((read, &bytes[..])));
        bytes[8..16].copy_from_slice(&libc::FAN_Q_OVERFLOW.to_ne_bytes());
        assert_eq!(split(&bytes), Some((Event::Lost, &[][..])));
        bytes[8..16].copy_from_slice(&libc::FAN_OPEN.to_ne_bytes());
        assert_eq!(split(&bytes), Some((Event::Other, &[][..])));
    }
}
