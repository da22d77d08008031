//! Marks of fanotify that hold no inode, and the events that they make.
//!
//! ```text
//!   directory --handle--> number              an event names file system, handle and file
//!   groups:  [ marks ] [ marks ] ...          all are full: the oldest is emptied
//! ```
//! A mark can be taken away only by a handle of its directory, and none is kept, as that would hold
//! it. So events of a mark whose watch has ended are dropped, and marks go in bulk. A group
//! has marks of file systems with an id of their own, or of one without (a subvolume of btrfs has
//! one that is not its file system's): of more kinds there are more groups, while there is room.
//!
//! The system is asked for the id of a file system with each mark. Marks are made on those alone
//! that answer from memory, so that nothing waits for a device or a server.
//!
//! # Invariants
//! - At most [`GROUPS_MAX`] groups of [`MARKS_MAX`] marks.
//! - A directory has one number, and it has it before its mark can tell anything.
//! - [`Marks::take`] reports numbers that have ended with their group once.
//! # Sources
//! fanotify(7): `struct fanotify_event_metadata`, `struct fanotify_event_info_fid`;
//! `fanotify_mark(2)`: `EXDEV`; Linux `fs/notify/fanotify/fanotify_user.c`.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstatfs, fstatvfs, openat2};
use rustix::io::{Errno, read};

use super::{Told, lock, sys};
use crate::kernel;

/// See the module.
#[derive(Debug)]
pub(super) struct Marks {
    /// The one that was begun last comes last.
    groups: Vec<Group>,
    /// The number that was given last; below zero, where inotify has none.
    last: i32,
    /// Devices by their numbers: whether marks may be made there, as far as was looked.
    devices: BTreeMap<u64, bool>,
    /// Numbers that have ended with their group, and are not told yet.
    ended: Vec<i32>,
}

#[derive(Debug)]
struct Group {
    queue: Arc<OwnedFd>,
    rows: BTreeMap<Directory, Row>,
    /// Marks that were made; some of directories that have no row any more.
    marks: usize,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    number: i32,
    /// Two file systems may have the same id.
    device: u64,
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
        let (devices, ended) = (BTreeMap::new(), Vec::new());
        has.then_some(Self { groups: vec![first], last: 0, devices, ended })
    }

    /// Marks `directory`, without the lock of `marks` while the system is asked. Its number.
    pub(super) fn add(marks: &Mutex<Self>, directory: &OwnedFd) -> Result<i32, Errno> {
        let device = kernel::stat(directory)?.st_dev;
        if !Self::takes(marks, device, directory)? {
            return Err(Errno::OPNOTSUPP);
        }
        let named = Directory::of(directory)?;
        let queues = lock(marks).queues(&named, device)?;
        for queue in queues {
            if let Some(number) = Self::try_in(marks, &queue, &named, device, directory)? {
                return Ok(number);
            }
        }
        // Those that there are take no such directory, or are full.
        let Some(queue) = lock(marks).begin() else { return Err(Errno::XDEV) };
        let number = Self::try_in(marks, &queue, &named, device, directory)?;
        if number.is_none() {
            // Subvolumes are taken from 6.8 on.
            lock(marks).refuse(device);
        }
        number.ok_or(Errno::XDEV)
    }

    /// Whether marks may be made on the device of `directory`.
    fn takes(marks: &Mutex<Self>, device: u64, directory: &OwnedFd) -> Result<bool, Errno> {
        if let Some(&known) = lock(marks).devices.get(&device) {
            return Ok(known);
        }
        let system = fstatfs(directory)?.f_type;
        let takes = SYSTEMS.iter().any(|known| i128::from(*known) == i128::from(system));
        let mut marks = lock(marks);
        if marks.devices.len() == DEVICES_MAX {
            marks.devices.pop_first();
        }
        marks.devices.insert(device, takes);
        assert!(marks.devices.len() <= DEVICES_MAX, "devices are bounded");
        Ok(takes)
    }

    /// Marks `directory` in the group of `queue`. Its number; none where that takes no such one.
    fn try_in(
        marks: &Mutex<Self>,
        queue: &Arc<OwnedFd>,
        named: &Directory,
        device: u64,
        directory: &OwnedFd,
    ) -> Result<Option<i32>, Errno> {
        let Some((number, is_new)) = lock(marks).name(queue, named, device)? else {
            return Ok(None);
        };
        // Also where it has a number: the mark may have gone with its inode.
        let marked = sys::mark(queue, ADD, directory);
        if marked.is_err() && is_new {
            lock(marks).withdraw(queue, named);
        }
        match marked {
            Ok(()) => Ok(Some(number)),
            Err(Errno::XDEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Those that may take a mark: that of the group which has this directory, or all with room.
    fn queues(&self, named: &Directory, device: u64) -> Result<Vec<Arc<OwnedFd>>, Errno> {
        let groups = match self.groups.iter().find(|group| group.rows.contains_key(named)) {
            Some(group) if group.rows[named].device == device => vec![group],
            // Another file system has the same id.
            Some(_) => return Err(Errno::XDEV),
            None => self.groups.iter().rev().filter(|group| group.marks < MARKS_MAX).collect(),
        };
        Ok(groups.into_iter().map(|group| Arc::clone(&group.queue)).collect())
    }

    /// The queue of a new group; of the oldest one that is full, emptied, where there is no room
    /// for more; none where there is no such.
    fn begin(&mut self) -> Option<Arc<OwnedFd>> {
        let new = if self.groups.len() < GROUPS_MAX { Group::new() } else { None };
        let group = new.or_else(|| {
            let full = self.groups.iter().position(|group| group.marks >= MARKS_MAX)?;
            let mut group = self.groups.remove(full);
            self.ended.extend(group.clear());
            Some(group)
        })?;
        let queue = Arc::clone(&group.queue);
        self.groups.push(group);
        assert!(self.groups.len() <= GROUPS_MAX, "groups are bounded");
        Some(queue)
    }

    /// The device takes no marks: a group that was begun for it goes, as it has none.
    fn refuse(&mut self, device: u64) {
        self.devices.insert(device, false);
        self.groups.retain(|group| group.marks > 0);
    }

    /// The number of a directory that is to be marked in the group of `queue`, and whether it is
    /// new; none where that group has no room, or is gone.
    fn name(
        &mut self,
        queue: &Arc<OwnedFd>,
        named: &Directory,
        device: u64,
    ) -> Result<Option<(i32, bool)>, Errno> {
        let next = self.last.checked_sub(1).ok_or(Errno::NOSPC)?;
        let group = self.groups.iter_mut().find(|group| Arc::ptr_eq(&group.queue, queue));
        let Some(group) = group else { return Ok(None) };
        if let Some(row) = group.rows.get(named) {
            return Ok(Some((row.number, false)));
        }
        if group.marks >= MARKS_MAX {
            return Ok(None);
        }
        group.rows.insert(named.clone(), Row { number: next, device });
        group.marks += 1;
        self.last = next;
        assert!(next < 0, "numbers above are those of inotify");
        Ok(Some((next, true)))
    }

    /// The mark for which `named` got a number in the group of `queue` was not made.
    fn withdraw(&mut self, queue: &Arc<OwnedFd>, named: &Directory) {
        let group = self.groups.iter_mut().find(|group| Arc::ptr_eq(&group.queue, queue));
        if let Some(group) = group
            && group.rows.remove(named).is_some()
        {
            group.marks -= 1;
        }
    }

    /// What the mark with this number tells from now on is dropped.
    pub(super) fn forget(&mut self, number: i32) {
        for group in &mut self.groups {
            group.rows.retain(|_, row| row.number != number);
            assert!(group.rows.len() <= group.marks, "what has a number has a mark");
        }
        self.ended.retain(|ended| *ended != number);
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
            let mut known = group.rows.iter().filter(|(_, row)| row.number == number);
            if let (Ok(found), Some((named, _))) = (&found, known.next())
                && handle.as_ref() == Some(&named.handle)
            {
                was_there |= sys::mark(&group.queue, REMOVE, found).is_ok();
            }
        }
        self.forget(number);
        was_there
    }

    /// Takes all marks away. The groups stay: the system waits for others as one goes.
    pub(super) fn clear(&mut self) {
        for group in &mut self.groups {
            drop(group.clear());
        }
        self.ended.clear();
    }

    /// Gives `each` what the kernel has reported, until that wants no more. Whether it does.
    pub(super) fn take(
        &mut self,
        buffer: &mut [u8],
        each: &mut impl FnMut(Told<'_>) -> bool,
    ) -> bool {
        let mut wants_more = true;
        for number in std::mem::take(&mut self.ended) {
            wants_more &= each(Told::Ended(number));
        }
        for group in &self.groups {
            for _ in 0..READS_MAX {
                let count = if wants_more { read(&group.queue, &mut *buffer) } else { Ok(0) };
                let Some(count) = count.ok().filter(|count| *count > 0) else { break };
                let mut events = &buffer[..count];
                while let Some((event, rest)) = split(events) {
                    events = rest;
                    let told = match event {
                        Event::Lost => Some(Told::Lost),
                        Event::Read { directory, name, process } => {
                            let row = group.rows.get(&directory);
                            row.map(|row| Told::Read { number: row.number, name, process })
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
        Some(Self { queue, rows: BTreeMap::new(), marks: 0 })
    }

    /// Takes all its marks away. The numbers that end with them.
    fn clear(&mut self) -> Vec<i32> {
        sys::flush(&self.queue);
        self.marks = 0;
        std::mem::take(&mut self.rows).into_values().map(|row| row.number).collect()
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
    Read { directory: Directory, name: &'a [u8], process: Option<i32> },
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
    // 0 for users that may not know.
    let process = i32::try_from(word(20)?).ok().filter(|pid| *pid > 0);
    Some((Event::Read { directory, name, process }, rest))
}

const ADD: u32 = libc::FAN_MARK_ADD | libc::FAN_MARK_EVICTABLE;
const REMOVE: u32 = libc::FAN_MARK_REMOVE;
/// Marks of a group: four times the directories that walks watch, and all of a list's.
const MARKS_MAX: usize = 1_024;
const GROUPS_MAX: usize = 4;
/// Devices of which it is known whether they take marks.
const DEVICES_MAX: usize = 256;
/// What is read of a group's queue in one go, in buffers.
const READS_MAX: usize = 8;
/// Those on disks, which tell their id from memory: ext2 to ext4, XFS, btrfs, F2FS, bcachefs.
const SYSTEMS: [u32; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0xca45_1a4e];
const METADATA_BYTES: usize = 24;

#[cfg(test)]
mod tests;
