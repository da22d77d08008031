//! The observer of open files: the position of each descriptor of a process.
//!
//! ```text
//!   /proc/PID/fd        the descriptors, and the files that they stand for
//!   /proc/PID/fdinfo/N  position and flags: a descriptor of this file is kept
//!   /proc/PID/io        bytes read and written: did reads move it to a new position, or others?
//! ```
//! The position comes from `fdinfo`, and not from a duplicate of the program's own descriptor: that
//! would keep the file open, and its locks held, after the program has closed it.
//!
//! # Invariants
//! - A file is opened once a page of it has been read, for reading alone, and closed when the poll
//!   after its end finds the descriptor gone or used for another file.
//! - A position that reads have moved is never taken for a seek, however late a poll is, but of a
//!   descriptor that may write: where writes explain the move as well, they have moved it.
//! - At most [`FILES_MAX`] files of a process are followed: regular ones of 256 KiB and more, read
//!   through the page cache.
//! # Sources
//! proc(5); Linux `fs/proc/fd.c`.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use forerun_core::units::Nanos;
use rustix::fs::{AtFlags, FileType, StatxFlags, statx};
use rustix::io::Errno;

use super::access::AccessSink;
use super::blocked::BlockedMove;
use super::copies::Copies;
use super::counts::{Counter, MovedBy};
use super::poll::Allowance;
use super::procfs::{self, text};
use crate::kernel::Stat;
use crate::open::{reads_page_cache, writes};
use file::{Aside, OpenFile};
pub(crate) use file::{Inode, follow};
use others::Others;

mod file;
mod others;

/// The open files of a process.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    open: BTreeMap<i32, OpenFile>,
    /// The descriptors whose accesses another observer sees.
    left: BTreeMap<i32, Inode>,
    /// Those that it has seen up to the last list, and that may be about to be closed.
    closing: Vec<(i32, Inode)>,
    /// Descriptors that are no files.
    others: Others,
    /// The descriptor that discovery goes on with.
    discovered: i32,
    /// What the process had used of a processor when that list began.
    listed: Option<Nanos>,
    /// Positions moved that are not reported yet.
    is_cut: bool,
    /// The descriptor whose call with an offset of its own the next poll goes on with.
    asides_from: i32,
    io: Option<File>,
    counter: Counter,
    copies: Copies,
}

/// A position that moved. They are in the order in which counts are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moved {
    may_write: bool,
    /// It was not read before.
    is_new: bool,
    number: i32,
    to: u64,
}

impl OpenFiles {
    /// Those of the process of this number.
    pub(crate) fn new(process: i32) -> Self {
        Self { copies: Copies::new(process), ..Self::default() }
    }

    /// Finds new descriptors of a process that has used so much of a processor. Whether there may
    /// be more: `allowance` is too short for all, or the process ran between two parts of the list.
    /// An error: this process has no permission to look.
    pub(crate) fn discover(
        &mut self,
        process: BorrowedFd<'_>,
        processor: Option<Nanos>,
        allowance: Allowance,
    ) -> Result<bool, Errno> {
        let mut entries = procfs::list_in(process, "fd")?;
        let from = std::mem::take(&mut self.discovered);
        if from == 0 {
            self.listed = processor;
            self.others.begin();
        }
        let mut looked_at = 0;
        for _ in 0..DESCRIPTORS_MAX {
            if self.open.len() >= FILES_MAX {
                break;
            }
            let Some(entry) = entries.read() else { break };
            let entry = entry?;
            let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
            let Some(number) = number.filter(|number| *number >= from) else { continue };
            looked_at += 1;
            if looked_at % STEPS == 0 && allowance.is_over() {
                self.discovered = number;
                return Ok(true);
            }
            if !self.others.is_due(number) || self.open.contains_key(&number) {
                continue;
            }
            // What is known of it here: a file system that would have to be asked may not answer.
            let how = AtFlags::STATX_DONT_SYNC;
            if let Ok(stat) = statx(entries.fd()?, entry.file_name(), how, StatxFlags::BASIC_STATS)
            {
                let stat = Stat::from(stat);
                self.others.set(number, stat.kind() != FileType::RegularFile);
                self.add(process, number, &stat);
            }
        }
        self.others.end();
        assert!(self.open.len() <= FILES_MAX, "more files than are allowed");
        if from == 0 {
            self.closing.clear();
        }
        Ok(from > 0 && self.listed != processor)
    }

    fn add(&mut self, process: BorrowedFd<'_>, number: i32, stat: &Stat) {
        if !procfs::is_followed(stat) {
            return;
        }
        let inode = (stat.st_dev, stat.st_ino);
        if self.left.get(&number) == Some(&inode) {
            return;
        }
        self.left.remove(&number);
        let Some(info) = procfs::open_in(process, &format!("fdinfo/{number}")) else { return };
        let read = |counts: Option<text::Counts>| counts.map(|counts| counts.read);
        let before = read(self.count(process));
        let Some(descriptor) = descriptor(&info, inode) else { return };
        let may_write = writes(descriptor.flags);
        // A process that has read nothing yet has inherited the descriptor as it is. One that may
        // write can have been moved by a child, whose counts are no part of its own before it ends.
        let is_known = self.closing.contains(&(number, inode))
            || before == Some(0) && read(self.count(process)) == Some(0)
            || may_write && procfs::has_children(process);
        let position = if is_known { descriptor.position } else { 0 };
        let shown = descriptor.position - position;
        let read_before = may_write.then(|| before.unwrap_or(0).saturating_sub(shown));
        let is_left = !reads_page_cache(descriptor.flags);
        let (run, cursor, moving, aside) = (0..0, None, None, None);
        let file =
            OpenFile { info, inode, position, run, cursor, read_before, is_left, moving, aside };
        self.compare(number, inode);
        self.open.insert(number, file);
    }

    /// The descriptor `number` stands for a file that others may stand for as well.
    fn compare(&mut self, number: i32, inode: Inode) {
        let Self { open, copies, .. } = self;
        let is_followed = |&(other, file): &(&i32, &OpenFile)| {
            *other != number && file.inode == inode && !copies.is_copy(*other)
        };
        let alike: Vec<i32> = open.iter().filter(is_followed).map(|(&other, _)| other).collect();
        copies.add(number, alike);
    }

    /// Copies stand where those stand that are followed for them, but for one that was opened anew
    /// since, or whose leader was: `shown` has their positions.
    fn keep_copies(&mut self, shown: &[(i32, u64)]) {
        for &(number, position) in shown {
            let Some(followed) = self.copies.followed(number) else { continue };
            let to = self.open.get(&followed).map_or(position, |followed| followed.position);
            let is_parted = to != position && self.copies.is_parted(number);
            let copy = self.open.get_mut(&number).expect("it is retained");
            if !is_parted {
                copy.stands_at(to);
                continue;
            }
            // One that was opened anew begins at its head; that of a leader goes on.
            if position < copy.position {
                copy.stands_at(0);
            }
            let inode = copy.inode;
            self.compare(number, inode);
        }
    }

    /// Reports the positions that moved; what `allowance` is too short for moves later. Whether any
    /// did.
    pub(crate) fn poll(
        &mut self,
        process: BorrowedFd<'_>,
        now: Nanos,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> bool {
        if self.open.is_empty() {
            return false;
        }
        let (before, read) = (self.count(process), self.counter.read());
        self.is_cut = false;
        let (mut moved, shown) = self.look_at_positions(process, now, sink);
        let has_gone_on = self.go_on(process, now, allowance, sink);
        if moved.is_empty() {
            self.keep_copies(&shown);
            return has_gone_on;
        }
        // What only reads has its share of the counts first, then what was read before.
        moved.sort_unstable();
        let after = self.count(process);
        let counts = before.zip(after);
        let mut counted = counts.map(|(before, after)| self.counter.count(before, after));
        // Copies of a descriptor move together. Where the kernel does not tell them, the first one
        // of those that may write counts.
        let mut ranges = Vec::new();
        for (nth, Moved { may_write, number, to, .. }) in moved.into_iter().enumerate() {
            if nth > 0 && allowance.is_over() {
                self.is_cut = true;
                break;
            }
            let file = self.open.get_mut(&number).expect("it is retained");
            assert!(!file.is_left && file.position != to, "a file that is left does not move");
            let range = file.position..to;
            let is_copy = |(of, other): &(Inode, Range<u64>)| {
                *of == file.inode && other.start <= to && range.start <= other.end
            };
            if may_write && !self.copies.are_told() && !range.is_empty() {
                if ranges.iter().any(is_copy) {
                    file.stands_at(to);
                    continue;
                }
                ranges.push((file.inode, range));
            }
            let (from, by) = (file.position, file.moved_by(to, counted.as_mut()));
            file.has_stood_since(read, if by.reads { to - from } else { 0 });
            if may_write && file.cursor.is_none() && by == MovedBy::NOTHING_READ {
                file.stands_at(to);
                continue;
            }
            file.move_to(process, number, to, by, now, sink);
        }
        self.counter.end(counted, self.is_cut);
        self.keep_copies(&shown);
        true
    }

    /// Looks where each descriptor stands now; those that were closed are reported and go. What has
    /// moved, and the positions of those that are copies.
    fn look_at_positions(
        &mut self,
        process: BorrowedFd<'_>,
        now: Nanos,
        sink: &mut dyn AccessSink,
    ) -> (Vec<Moved>, Vec<(i32, u64)>) {
        let (mut moved, mut shown) = (Vec::new(), Vec::new());
        let (copies, read) = (&mut self.copies, self.counter.read());
        self.open.retain(|&number, file| {
            let descriptor = descriptor(&file.info, file.inode);
            match descriptor {
                Some(descriptor) if copies.is_copy(number) => {
                    shown.push((number, descriptor.position));
                }
                Some(descriptor) => {
                    if descriptor.position == file.position {
                        file.has_stood_since(read, 0);
                    }
                    let at = file.at(process, descriptor.position);
                    moved.extend(file.has_moved_to(at).then(|| Moved::of(file, number, at)));
                }
                None => {
                    file.close(now, sink);
                    copies.remove(number);
                }
            }
            descriptor.is_some()
        });
        (moved, shown)
    }

    /// Reports how far the calls are that have an offset of their own, of one file after the other
    /// as far as `allowance` goes; the next poll goes on from there. Whether any has gone on.
    fn go_on(
        &mut self,
        process: BorrowedFd<'_>,
        now: Nanos,
        allowance: Allowance,
        sink: &mut dyn AccessSink,
    ) -> bool {
        let lasts = |(number, file): &(&i32, &OpenFile)| {
            file.aside.is_some() && !self.copies.is_copy(**number)
        };
        let lasting = self.open.iter().filter(lasts).map(|(&number, _)| number).collect();
        allowance.in_turn(lasting, &mut self.asides_from, |number| {
            let file = self.open.get_mut(&number).expect("none was removed");
            file.go_on(process, number, now, sink)
        })
    }

    /// A thread was met in a call that moves bytes of the descriptor `number`.
    pub(crate) fn moving(&mut self, number: i32, met: BlockedMove) {
        let Some(file) = self.open.get_mut(&number).filter(|file| !file.is_left) else { return };
        let BlockedMove { call, by_position } = met;
        if by_position {
            // It was met before where its beginning is the same.
            if file.moving.as_ref().is_none_or(|known| known.start() != call.start()) {
                file.moving = Some(call);
            }
        } else if file.aside.as_ref().is_none_or(|aside| aside.call.start() != call.start()) {
            let before = file.aside.take();
            let call = before.iter().fold(call, |call, before| call.after(&before.call));
            let follows = before.as_ref().is_some_and(|before| before.call.at() == call.at());
            let cursor = before.and_then(|before| before.cursor);
            file.aside = Some(Aside { call, cursor, follows });
        }
    }

    /// Whether files are open here for this process.
    pub(crate) fn holds_any(&self) -> bool {
        let is_held = |file: &OpenFile| {
            file.cursor.is_some() || file.aside.as_ref().is_some_and(|it| it.cursor.is_some())
        };
        !self.left.is_empty() || self.open.values().any(is_held)
    }

    /// Whether positions moved for which the last poll had no time.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Ends following the position of the descriptor `number`, as long as that stands for `inode`:
    /// another observer sees its accesses, which may be from before it has stood for a newer file.
    /// What was reported of its last reads, by its position and by an offset of their own.
    pub(crate) fn leave(
        &mut self,
        number: i32,
        inode: Inode,
        now: Nanos,
        sink: &mut dyn AccessSink,
    ) -> [Range<u64>; 2] {
        self.left.insert(number, inode);
        if self.open.get(&number).is_none_or(|file| file.inode != inode) {
            return [0..0, 0..0];
        }
        let mut file = self.open.remove(&number).expect("it is there");
        self.copies.remove(number);
        let aside = file.aside.as_ref().map_or(0..0, |aside| aside.call.start()..aside.call.at());
        file.close(now, sink);
        assert!(file.run.end <= file.position, "no more was reported than it has read");
        [file.run, aside]
    }

    /// Follows the position of the descriptor `number` again, once it is found. It may be about to
    /// be closed: it is followed from where it is then, as all before was seen.
    pub(crate) fn take_back(&mut self, number: i32) {
        if let Some(inode) = self.left.remove(&number)
            && self.closing.len() < FILES_MAX
        {
            self.closing.push((number, inode));
        }
    }

    /// The process is gone.
    pub(crate) fn close(&mut self, now: Nanos, sink: &mut dyn AccessSink) {
        for (_, mut file) in std::mem::take(&mut self.open) {
            file.close(now, sink);
        }
    }

    fn count(&mut self, process: BorrowedFd<'_>) -> Option<text::Counts> {
        if self.io.is_none() {
            self.io = procfs::open_in(process, "io");
        }
        procfs::read(self.io.as_ref()?, text::counts)
    }
}

impl Moved {
    fn of(file: &OpenFile, number: i32, to: u64) -> Self {
        Self { may_write: file.may_write(), is_new: file.cursor.is_none(), number, to }
    }
}

/// The descriptor that `info` describes, if it still stands for the same file.
fn descriptor(info: &File, inode: Inode) -> Option<text::Descriptor> {
    let same = |found: &text::Descriptor| found.inode.is_none_or(|number| number == inode.1);
    procfs::read(info, text::descriptor).filter(same)
}

/// Files of a process that are followed.
const FILES_MAX: usize = 256;
/// Descriptors of a process that are looked at, the first by number: as many as the shim knows.
const DESCRIPTORS_MAX: usize = 4096;
/// Descriptors between two looks at the allowance.
const STEPS: usize = 32;

#[cfg(test)]
mod tests;
