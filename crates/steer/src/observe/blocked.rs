//! The observer of blocked calls: what the threads of a process wait for.
//!
//! ```text
//!   has the process run?   its processor time, at each poll
//!   task/TID/syscall       the call of each thread, by `call`
//!   path, descriptor       by `memory` and `path` --> entry, once for each call
//!   moves of bytes         `take_moves`, at each poll: to be followed while they last
//! ```
//! A program that reads many small files on a slow device is blocked nearly all the time, so polls
//! meet most of its calls; what they miss was there already. To come to the next call a thread
//! needs processor time: where none was used since the last poll, nothing is new.
//!
//! # Invariants
//! - A call that is met by several polls in a row is reported once.
//! - What the system does not allow is counted once a process, and not tried again.
//! - At most [`THREADS_MAX`] threads of a process; of all processes [`KEPT_MAX`] descriptors are
//!   kept open.
//! - No file system is asked: all comes from `/proc` and from the memory of the process.
//! # Sources
//! proc(5); Linux `lib/syscall.c` (`task_current_syscall`): a thread that runs is told apart;
//! `Documentation/admin-guide/LSM/Yama.rst`.

use std::fs::{self, File};
use std::os::fd::BorrowedFd;

use forerun_core::units::Nanos;
use rustix::fs::{AtFlags, FileType, StatxFlags, statx};
use rustix::io::{Errno, pread};
use rustix::thread::{CapabilitySet, capabilities};

use super::access::{AccessSink, EntryAccess, EntryCall, FileRead};
use super::moves::Move;
use super::poll::Allowance;
use super::procfs::{self, text};
use crate::kernel::Stat;
use call::{Call, Decoded, MoveCall, Offset, Place, Registers};

mod call;
mod memory;
mod path;

/// The blocked calls of a process.
#[derive(Debug, Default)]
pub(crate) struct BlockedCalls {
    threads: Vec<Thread>,
    /// Links of the folder of its threads, when they were listed.
    links: u32,
    /// What the process had used of a processor at the last whole poll.
    polled: Option<Nanos>,
    /// The thread that the next poll goes on with.
    next: usize,
    is_refused: bool,
    moves: Vec<(i32, BlockedMove)>,
}

/// A move of bytes that a thread was met in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockedMove {
    pub(crate) call: Move,
    /// Whether it moves the position of the descriptor that it reads.
    pub(crate) by_position: bool,
}

/// What was met, of all processes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockedCounts {
    /// Processes that may not be observed.
    pub(crate) refused: u64,
    /// Calls of another interface than that of 64 bits.
    pub(crate) foreign: u64,
}

/// A process, and what it used of a processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polled<'a> {
    pub(crate) pid: i32,
    pub(crate) process: BorrowedFd<'a>,
    pub(crate) processor: Option<Nanos>,
    /// See [`may_attach`].
    pub(crate) may_attach: bool,
}

/// What a thread was met in by the last poll of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BlockedIn {
    /// It ran, or was not looked at.
    #[default]
    Nothing,
    /// A call that uses an entry.
    Entry(EntryCall),
    /// No call: where it is blocked, by a page fault.
    Fault,
    /// Another call.
    Other,
}

#[derive(Debug)]
struct Thread {
    id: i32,
    /// `syscall`, where it is kept open.
    file: Option<File>,
    last: Option<Reported>,
    met: BlockedIn,
}

/// The call that was met last.
#[derive(Debug, PartialEq, Eq)]
struct Reported {
    registers: Registers,
    path: Vec<u8>,
    call: EntryCall,
}

impl BlockedCalls {
    /// Descriptors that are kept open.
    pub(crate) fn kept(&self) -> usize {
        self.threads.iter().filter(|thread| thread.file.is_some()).count()
    }

    /// What each thread was met in.
    pub(crate) fn met(&self) -> impl Iterator<Item = (i32, BlockedIn)> {
        self.threads.iter().map(|thread| (thread.id, thread.met))
    }

    /// The moves of bytes that threads were met in since the last call, by the descriptor that they
    /// read.
    pub(crate) fn take_moves(&mut self) -> Vec<(i32, BlockedMove)> {
        std::mem::take(&mut self.moves)
    }

    /// Reports the calls that threads are newly blocked in, as far as `allowance` goes; the next
    /// poll goes on from there. `room` is how many descriptors more may be kept. Whether any was
    /// reported, and whether all threads were looked at.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        polled: Polled<'_>,
        room: &mut usize,
        allowance: Allowance,
        counts: &mut BlockedCounts,
        sink: &mut dyn AccessSink,
    ) -> (bool, bool) {
        let has_run = polled.processor.is_none() || self.polled != polled.processor;
        if self.is_refused || !has_run {
            return (false, true);
        }
        let mut moved = false;
        if !polled.may_attach || self.list(polled.process, room).is_err() {
            self.refuse(counts);
        }
        let count = self.threads.len();
        for step in 0..count {
            if step > 0 && allowance.is_over() {
                return (moved, false);
            }
            let at = self.next % count;
            self.next = (at + 1) % count;
            match self.threads[at].poll(now, polled, &mut self.moves, counts, sink) {
                Ok(is_reported) => moved |= is_reported,
                Err(why) if is_refusal(why) => {
                    self.refuse(counts);
                    return (moved, true);
                }
                // The thread has ended: they are listed anew.
                Err(_) => self.links = 0,
            }
        }
        self.polled = polled.processor;
        (moved, true)
    }

    /// The process is not looked at again.
    fn refuse(&mut self, counts: &mut BlockedCounts) {
        assert!(!self.is_refused, "a process is counted once");
        *self = Self { is_refused: true, ..Self::default() };
        counts.refused += 1;
    }

    /// Lists the threads, where some may have come or gone.
    ///
    /// # Errors
    /// They may not be seen.
    fn list(&mut self, process: BorrowedFd<'_>, room: &mut usize) -> Result<(), Errno> {
        let links = match procfs::thread_links(process) {
            Ok(links) => links,
            Err(why) if is_refusal(why) => return Err(why),
            Err(_) => 0,
        };
        if links == self.links && links != 0 {
            return Ok(());
        }
        self.links = links;
        let mut before = std::mem::take(&mut self.threads);
        for id in procfs::threads(process, THREADS_MAX) {
            let known = before.iter().position(|thread| thread.id == id);
            let thread = known.map(|at| before.swap_remove(at));
            self.threads.push(thread.unwrap_or_else(|| Thread::new(process, id, room)));
        }
        self.next = 0;
        assert!(self.threads.len() <= THREADS_MAX, "more threads than are allowed");
        Ok(())
    }
}

impl Thread {
    /// A thread that was just found; its file is kept open where there is `room`.
    fn new(process: BorrowedFd<'_>, id: i32, room: &mut usize) -> Self {
        let file = (*room > 0).then(|| procfs::open_in(process, &name(id))).flatten();
        *room -= usize::from(file.is_some());
        Self { id, file, last: None, met: BlockedIn::Nothing }
    }

    /// Reports the call that it is blocked in. Whether there is a new one.
    fn poll(
        &mut self,
        now: Nanos,
        polled: Polled<'_>,
        moves: &mut Vec<(i32, BlockedMove)>,
        counts: &mut BlockedCounts,
        sink: &mut dyn AccessSink,
    ) -> Result<bool, Errno> {
        let (registers, met) = self.registers(polled.process)?;
        self.met = met;
        let Some(registers) = registers else { return Ok(false) };
        if let Some(call) = registers.moves() {
            moves.extend(met_move(polled, call).map(|met| (call.from.0, met)));
        }
        let call = match registers.decode() {
            Decoded::Entry(call) => call,
            Decoded::Other => return Ok(false),
            Decoded::Foreign => {
                counts.foreign += 1;
                return Ok(false);
            }
        };
        let Some(Entry { path, call, read }) = entry(polled, call)? else { return Ok(false) };
        self.met = BlockedIn::Entry(call);
        let met = Reported { registers, path, call };
        if self.last.as_ref() == Some(&met) {
            return Ok(false);
        }
        let (Polled { pid, process, .. }, thread) = (polled, self.id);
        let path = &met.path;
        sink.entry(now, &EntryAccess { pid, thread, process, path, call, read });
        self.last = Some(met);
        Ok(true)
    }

    /// What the kernel tells of the call, if it is in one.
    fn registers(&self, process: BorrowedFd<'_>) -> Result<(Option<Registers>, BlockedIn), Errno> {
        let mut bytes = [0; TEXT_BYTES_MAX];
        let count = match &self.file {
            Some(file) => pread(file, &mut bytes, 0)?,
            None => pread(procfs::try_open_in(process, &name(self.id))?, &mut bytes, 0)?,
        };
        assert!(count <= bytes.len(), "a read fills no more than its buffer");
        let text = str::from_utf8(&bytes[..count]).unwrap_or_default();
        let registers = Registers::parse(text);
        let met = match &registers {
            Some(_) => BlockedIn::Other,
            None if text.starts_with("-1 ") => BlockedIn::Fault,
            None => BlockedIn::Nothing,
        };
        Ok((registers, met))
    }
}

/// The move that `call` is, as far as it can be told; `None` where it has returned by now.
fn met_move(polled: Polled<'_>, call: MoveCall) -> Option<BlockedMove> {
    let offset = |(number, offset)| match offset {
        Offset::At(address) => memory::word_at(polled.pid, address).ok(),
        Offset::Position => {
            let info = procfs::open_in(polled.process, &format!("fdinfo/{number}"))?;
            procfs::read(&info, text::descriptor).map(|descriptor| descriptor.position)
        }
    };
    let (start, to_offset) = (offset(call.from)?, offset(call.to)?);
    let by_position = call.from.1 == Offset::Position;
    let call = Move::new(start, call.bytes, call.to.0, to_offset)?;
    Some(BlockedMove { call, by_position })
}

/// The entry of a call.
struct Entry {
    path: Vec<u8>,
    call: EntryCall,
    read: Option<FileRead>,
}

/// The path and the use of the entry of `call`; `None` where it uses none that can be named.
fn entry(polled: Polled<'_>, call: Call) -> Result<Option<Entry>, Errno> {
    let process = polled.process;
    let mut read = None;
    let (place, call) = match call {
        Call::Stat(place) => (place, EntryCall::Stat),
        Call::Open(place) => (place, EntryCall::Open),
        Call::Execute(place) => (place, EntryCall::Read { to_end: false }),
        Call::List(number) => (Place::Descriptor(number), EntryCall::List),
        Call::Read { descriptor, offset, bytes } => {
            let Some((call, of)) = reading(process, descriptor, offset, bytes) else {
                return Ok(None);
            };
            read = Some(of);
            (Place::Descriptor(descriptor), call)
        }
    };
    let path = match place {
        Place::Descriptor(number) => path::of_descriptor(process, number),
        Place::Path { directory, address } => match path_at(polled.pid, address)? {
            Some(path) => path::of_path(process, directory, &path),
            None => None,
        },
    };
    Ok(path.map(|path| Entry { path, call, read }))
}

/// The path at `address` in the memory of the process `pid`: none stands for one without a name.
///
/// # Errors
/// The memory may not be read at all.
fn path_at(pid: i32, address: u64) -> Result<Option<Vec<u8>>, Errno> {
    if address == 0 {
        return Ok(Some(Vec::new()));
    }
    match memory::text_at(pid, address) {
        Err(why) if is_refusal(why) => Err(why),
        // It is changed or gone by now.
        Err(_) => Ok(None),
        Ok(path) => Ok(path),
    }
}

/// The use of a descriptor that is read from `offset` on, or from its position, and what is
/// read; `None` where it is no regular file's.
fn reading(
    process: BorrowedFd<'_>,
    number: i32,
    offset: Option<u64>,
    bytes: Option<u64>,
) -> Option<(EntryCall, FileRead)> {
    // What is known of it here: a file system that would have to be asked may not answer.
    let how = AtFlags::STATX_DONT_SYNC;
    let stat = statx(process, format!("fd/{number}"), how, StatxFlags::BASIC_STATS).ok()?;
    let stat = Stat::from(stat);
    if stat.kind() != FileType::RegularFile {
        return None;
    }
    let (file_bytes, moves) = (stat.st_size, offset.is_none());
    let Some(bytes) = bytes else {
        let read = FileRead { file_bytes, offset: 0, bytes: 0, moves };
        return Some((EntryCall::Read { to_end: false }, read));
    };
    // A call that reads as much as there is ends there wherever it begins.
    let from = if bytes >= stat.st_size { Some(0) } else { offset };
    let from = from.or_else(|| {
        let info = procfs::open_in(process, &format!("fdinfo/{number}"))?;
        procfs::read(&info, text::descriptor).map(|descriptor| descriptor.position)
    });
    let end = from.map(|from| from.saturating_add(bytes));
    let to_end = end.is_some_and(|end| end >= file_bytes);
    let offset = from.unwrap_or(0).min(file_bytes);
    let bytes = end.map_or(0, |end| end.min(file_bytes).saturating_sub(offset));
    Some((EntryCall::Read { to_end }, FileRead { file_bytes, offset, bytes, moves }))
}

/// Whether the system does not allow, or does not have, what was tried.
fn is_refusal(why: Errno) -> bool {
    matches!(why, Errno::PERM | Errno::ACCESS | Errno::NOSYS)
}

fn name(thread: i32) -> String {
    format!("task/{thread}/syscall")
}

/// Whether this process may attach to others of its user, as observing their calls requires. Where
/// Yama restricts that, each try is told to the administrator: none is made.
pub(crate) fn may_attach() -> bool {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let own = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    allows_attaching(scope.as_deref(), own.contains(CapabilitySet::SYS_PTRACE))
}

/// Whether `scope`, that of Yama where there is one, lets a process attach that is no ancestor.
fn allows_attaching(scope: Option<&str>, is_capable: bool) -> bool {
    match scope.map(str::trim) {
        None | Some("0") => true,
        Some("1" | "2") => is_capable,
        Some(_) => false,
    }
}

/// Threads of a process that are looked at.
const THREADS_MAX: usize = 64;
/// Descriptors that are kept open, of all processes.
pub(crate) const KEPT_MAX: usize = 128;
/// A number of 20 digits and eight words of 18.
const TEXT_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests;
