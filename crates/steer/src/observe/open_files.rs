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

use super::access::{AccessSink, CursorId, is_cached, is_written};
use super::blocked::MetMove;
use super::copies::Copies;
use super::counts::{Counted, Counter, MovedBy};
use super::moves::Move;
use super::poll::Allowance;
use super::procfs::{self, text};
use crate::kernel::Stat;
use crate::open::{Found, Name, Refusal, open, reads_page_cache, writes};
use others::Others;

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

#[derive(Debug)]
struct OpenFile {
    info: File,
    inode: Inode,
    position: u64,
    /// What was reported of it last, in order.
    run: Range<u64>,
    cursor: Option<CursorId>,
    /// Writes may have moved its position, too: what was read before it stood there has not.
    read_before: Option<u64>,
    /// Its position cannot be followed.
    is_left: bool,
    /// The call that moves its bytes from its position on.
    moving: Option<Move>,
    /// The call that does so from an offset of its own.
    aside: Option<Aside>,
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

/// A call that moves bytes from an offset of its own, and the reader that it is.
#[derive(Debug)]
struct Aside {
    call: Move,
    cursor: Option<CursorId>,
    /// It begins where the call before it was known to be.
    follows: bool,
}

/// A file's device and inode number.
pub(crate) type Inode = (u64, u64);

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
        let before = self.count(process);
        let mut moved = Vec::new();
        self.is_cut = false;
        let mut shown = Vec::new();
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
    pub(crate) fn moving(&mut self, number: i32, met: MetMove) {
        let Some(file) = self.open.get_mut(&number).filter(|file| !file.is_left) else { return };
        let MetMove { call, by_position } = met;
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

impl OpenFile {
    /// Whether it was read up to `position`, or another place was sought. The first bytes alone do
    /// not count: so the dynamic loader reads the header of a library, before it maps it.
    fn has_moved_to(&self, position: u64) -> bool {
        let is_header = self.cursor.is_none() && position < HEADER_BYTES;
        position != self.position && !self.is_left && !is_header
    }

    /// Where a reader at `position` is: within a call that moves bytes from there on.
    fn at(&mut self, process: BorrowedFd<'_>, position: u64) -> u64 {
        // It has returned where the position is another.
        self.moving.take_if(|call| call.start() != position);
        let is_header = self.cursor.is_none() && position < HEADER_BYTES;
        match &self.moving {
            Some(call) if self.position == call.at() => call.reached(process),
            Some(call) if is_header => {
                self.position = position;
                call.reached(process)
            }
            // What was read before the call comes first.
            Some(_) | None => position,
        }
    }

    /// Reports how far the call is that has an offset of its own. Whether it has gone on.
    fn go_on(
        &mut self,
        process: BorrowedFd<'_>,
        number: i32,
        now: Nanos,
        sink: &mut dyn AccessSink,
    ) -> bool {
        let Some(Aside { call, cursor, follows }) = &mut self.aside else { return false };
        let to = call.reached(process);
        if to == call.at() {
            return false;
        }
        let Some(reader) = cursor.or_else(|| follow(process, number, self.inode, now, sink)) else {
            self.aside = None;
            return false;
        };
        *cursor = Some(reader);
        let Some(moved) = call.advance(to, reader, sink) else { return false };
        sink.read(now, reader, &moved, *follows);
        *follows = true;
        true
    }

    fn may_write(&self) -> bool {
        self.read_before.is_some()
    }

    /// It stands where it does since the process had read so much, or longer; its last move has
    /// `shown` bytes of what was read.
    fn has_stood_since(&mut self, read: u64, shown: u64) {
        self.read_before = self.read_before.map(|before| read.max(before.saturating_add(shown)));
    }

    /// What has moved its position to `to`.
    fn moved_by(&self, to: u64, counted: Option<&mut Counted>) -> MovedBy {
        let bytes = to.saturating_sub(self.position);
        match counted {
            // No count has the bytes of a call before it returns.
            _ if self.call_to(to).is_some() => MovedBy::uncounted(bytes, false),
            Some(counted) => counted.moved_by(bytes, self.read_before),
            None => MovedBy::uncounted(bytes, self.may_write()),
        }
    }

    /// The call that moves its bytes, where that has gone on to `to`.
    fn call_to(&self, to: u64) -> Option<&Move> {
        self.moving.as_ref().filter(|call| call.at() == self.position && call.start() < to)
    }

    /// Its position moves to `to`; reports that.
    fn move_to(
        &mut self,
        process: BorrowedFd<'_>,
        number: i32,
        to: u64,
        by: MovedBy,
        now: Nanos,
        sink: &mut dyn AccessSink,
    ) {
        let (from, calls) = (self.position, self.call_to(to).is_some());
        self.position = to;
        if self.cursor.is_none() {
            self.cursor = follow(process, number, self.inode, now, sink);
            self.is_left = self.cursor.is_none();
            if let Some(cursor) = self.cursor.filter(|_| self.may_write() && from > 0) {
                sink.seek(now, cursor, from);
            }
        }
        let Some(cursor) = self.cursor else { return };
        // By another process that has the descriptor, or by calls that are not counted.
        let is_written = by.reads && self.may_write() && is_written(cursor, &(from..to), sink);
        let by = if is_written { MovedBy::NOTHING_READ } else { by };
        match self.moving.as_mut().filter(|_| calls) {
            Some(call) => match call.advance(to, cursor, sink) {
                Some(moved) => {
                    sink.read(now, cursor, &moved, true);
                    self.has_read(moved);
                }
                None => self.position = from,
            },
            None => self.has_read(report(cursor, from..to, by, now, sink)),
        }
    }

    /// Its position is `to`, and nothing is reported.
    fn stands_at(&mut self, to: u64) {
        (self.position, self.run) = (to, to..to);
    }

    /// `range` was reported.
    fn has_read(&mut self, range: Range<u64>) {
        self.run = if self.run.end == range.start { self.run.start..range.end } else { range };
    }

    fn close(&mut self, now: Nanos, sink: &mut dyn AccessSink) {
        let aside = self.aside.take().and_then(|aside| aside.cursor);
        for cursor in self.cursor.take().into_iter().chain(aside) {
            sink.close(now, cursor);
        }
    }
}

/// Reports a position that went from one end of `range` to the other, as a read or as a seek. What
/// is reported as read.
fn report(
    cursor: CursorId,
    range: Range<u64>,
    by: MovedBy,
    now: Nanos,
    sink: &mut dyn AccessSink,
) -> Range<u64> {
    if by.reads && is_cached(cursor, &range, sink) != Some(false) {
        sink.read(now, cursor, &range, true);
        return range;
    }
    sink.seek(now, cursor, range.end);
    // All that is known of a read is where it ended. But it may still come after the seek: then the
    // page before is not cached.
    let page = range.end.saturating_sub(1) / 4096 * 4096;
    let last = page..range.end;
    if by.last_read && !last.is_empty() && is_cached(cursor, &last, sink) == Some(true) {
        sink.read(now, cursor, &last, false);
        return last;
    }
    range.end..range.end
}

/// Opens a file of the process anew, and begins to follow a reader of it from its head.
pub(crate) fn follow(
    process: BorrowedFd<'_>,
    number: i32,
    inode: Inode,
    now: Nanos,
    sink: &mut dyn AccessSink,
) -> Option<CursorId> {
    let is_it = |found: &Found<'_>| {
        (found.stat.st_dev, found.stat.st_ino) == inode && procfs::is_followed(&found.stat)
    };
    match open(process, Name::Descriptor(number), is_it) {
        Ok((file, stat)) => sink.open(now, file, &stat, 0),
        // It stands for another file by now, or for one that is not followed.
        Err(Refusal::Absent(_) | Refusal::Changed | Refusal::Kind) => None,
        Err(why) => {
            sink.refused(why);
            None
        }
    }
}

/// The descriptor that `info` describes, if it still stands for the same file.
fn descriptor(info: &File, inode: Inode) -> Option<text::Descriptor> {
    let same = |found: &text::Descriptor| found.inode.is_none_or(|number| number == inode.1);
    procfs::read(info, text::descriptor).filter(same)
}

/// Files of a process that are followed.
const FILES_MAX: usize = 256;
/// A file is followed once more than this was read of it.
const HEADER_BYTES: u64 = 4096;
/// Descriptors of a process that are looked at, the first by number: as many as the shim knows.
const DESCRIPTORS_MAX: usize = 4096;
/// Descriptors between two looks at the allowance.
const STEPS: usize = 32;

#[cfg(test)]
mod tests;
