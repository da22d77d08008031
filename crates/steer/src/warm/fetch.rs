//! Carries a plan out: pieces are asked for, waited for, and looked at.
//!
//! ```text
//!   files --> pieces of 2 MiB, in order --> 16 threads, a piece each:
//!                                             what is missing of it?      mincore
//!                                             ask for that                readahead
//!                                             wait for the last of it     a read of one byte
//!                                             missing still? read that    certain, or an error
//! ```
//! Where nothing is told of a file it is asked for as well, and then read, which is certain and
//! costs a copy. Threads wait, so that whatever blocks (a full queue, extents that have to be read
//! first, a network) holds up one piece and not all of them.
//!
//! # Invariants
//! - A piece counts as fetched when its bytes are in memory, not when they were asked for.
//! - A file that fails loses its further pieces, and no other file does.
//! # Locking
//! The desk that hands out pieces is locked while the next file is opened, and over no read.

use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::{fs, io};

use rustix::io::Errno;

use super::file::{File, Opened};
use super::{Progress, Why};
use crate::kernel;
use crate::memory::Memory;

/// What came of each file, in their order, and of all of them.
pub(super) struct Fetched {
    pub(super) bytes: u64,
    pub(super) ends: Vec<Result<(), Why>>,
}

/// Brings `files` into memory, unless that becomes short.
pub(super) fn fetch(files: &[File], memory: &Memory, told: &mut dyn FnMut(Progress)) -> Fetched {
    let desk = Desk::new(files);
    // Nobody runs ahead of what is counted: memory is looked at in time.
    let (landed, landings) = mpsc::sync_channel(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let landed = landed.clone();
            let desk = &desk;
            scope.spawn(move || work(desk, &landed));
        }
        drop(landed);
        gather(files, &desk, &landings, memory, told)
    })
}

/// A piece that is in memory, or will never be.
struct Landing {
    file: usize,
    result: Result<u64, Why>,
}

/// Collects what the threads bring until all of them have ended.
fn gather(
    files: &[File],
    desk: &Desk<'_>,
    landings: &Receiver<Landing>,
    memory: &Memory,
    told: &mut dyn FnMut(Progress),
) -> Fetched {
    let bytes_all = files.iter().map(|file| file.missing).sum();
    let mut ends: Vec<Result<(), Why>> = files.iter().map(|_| Ok(())).collect();
    let (mut bytes, mut looked_at) = (0_u64, 0);
    for Landing { file, result } in landings {
        match result {
            Ok(landed) => bytes += landed,
            Err(why) => {
                if ends[file].is_ok() {
                    ends[file] = Err(why);
                }
            }
        }
        told(Progress { bytes, bytes_all });
        if bytes - looked_at >= LOOK_BYTES {
            looked_at = bytes;
            // What was fetched counts as free, since nobody uses it yet.
            if memory.room().bytes_to_use() < bytes {
                desk.close();
            }
        }
    }
    for file in desk.not_ended() {
        if ends[file].is_ok() {
            ends[file] = Err(Why::NoMemory);
        }
    }
    Fetched { bytes, ends }
}

/// Takes pieces until there are none.
fn work(desk: &Desk<'_>, landed: &SyncSender<Landing>) {
    let mut room = Vec::new();
    while let Some(task) = desk.next() {
        let Task { file, what } = task;
        let result = what.and_then(|piece| {
            let result = piece.fetch(&mut room);
            if result.is_err() {
                piece.source.has_failed.store(true, Ordering::Relaxed);
            }
            result
        });
        if landed.send(Landing { file, result }).is_err() {
            return;
        }
    }
}

/// Hands out the pieces of all files in order.
struct Desk<'a> {
    files: &'a [File],
    at: Mutex<At>,
}

/// Where the desk is.
struct At {
    /// The file whose pieces are handed out; those before it have ended.
    file: usize,
    source: Option<Arc<Source>>,
    /// What of its data is left.
    left: Vec<Range<u64>>,
    is_closed: bool,
}

/// A file that is being fetched.
struct Source {
    opened: Opened,
    chunk_bytes: u64,
    is_told: bool,
    has_failed: AtomicBool,
}

/// A piece of the file with this number, or why it cannot be opened.
struct Task {
    file: usize,
    what: Result<Piece, Why>,
}

struct Piece {
    source: Arc<Source>,
    range: Range<u64>,
}

impl<'a> Desk<'a> {
    fn new(files: &'a [File]) -> Self {
        let at = At { file: 0, source: None, left: Vec::new(), is_closed: false };
        Self { files, at: Mutex::new(at) }
    }

    /// The next piece, unless there is none or the desk was closed.
    fn next(&self) -> Option<Task> {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        while !at.is_closed && at.file < self.files.len() {
            let file = at.file;
            let source = match at.source.clone() {
                Some(source) => source,
                None => match self.open(file) {
                    Ok((source, left)) => {
                        at.left = left;
                        at.source.insert(source).clone()
                    }
                    Err(why) => {
                        at.file += 1;
                        return Some(Task { file, what: Err(why) });
                    }
                },
            };
            let has_failed = source.has_failed.load(Ordering::Relaxed);
            if let Some(range) = at.left.pop().filter(|_| !has_failed) {
                let end = range.end.min(range.start + PIECE_BYTES);
                if end < range.end {
                    at.left.push(end..range.end);
                }
                return Some(Task { file, what: Ok(Piece { source, range: range.start..end }) });
            }
            at.source = None;
            at.file += 1;
        }
        None
    }

    /// Opens a file; its data, the last of it first.
    fn open(&self, file: usize) -> Result<(Arc<Source>, Vec<Range<u64>>), Why> {
        let file = &self.files[file];
        let opened = file.open()?;
        let mut left = file.data(&opened);
        left.reverse();
        let chunk_bytes = kernel::chunk_bytes(file.id.device);
        let has_failed = AtomicBool::new(false);
        Ok((Arc::new(Source { opened, chunk_bytes, is_told: file.is_told, has_failed }), left))
    }

    /// No more pieces are handed out.
    fn close(&self) {
        self.at.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
    }

    /// The files of which there still are pieces here.
    fn not_ended(&self) -> Range<usize> {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let has_ended = at.source.is_some() && at.left.is_empty();
        at.file + usize::from(has_ended)..self.files.len()
    }
}

impl Piece {
    /// Brings it into memory; the bytes of it that were missing.
    fn fetch(&self, room: &mut Vec<u8>) -> Result<u64, Why> {
        let file = &self.source.opened.file;
        if !self.source.is_told {
            self.ask(&self.range)?;
            read(file, &self.range, room)?;
            return Ok(self.range.end - self.range.start);
        }
        let missing = self.absent()?;
        for part in &missing {
            self.ask(part)?;
        }
        for part in &missing {
            read(file, &(part.end - 1..part.end), room)?;
        }
        // What a failed request left, or what was evicted at once.
        let still = self.absent()?;
        for part in &still {
            read(file, part, room)?;
        }
        if !still.is_empty() && self.absent()? == missing {
            return Err(Why::NotKept);
        }
        Ok(missing.iter().map(|part| part.end - part.start).sum())
    }

    fn ask(&self, range: &Range<u64>) -> Result<(), Why> {
        kernel::prefetch(&self.source.opened.file, range, self.source.chunk_bytes)
            .map_err(Why::Closed)
    }

    /// What of it is missing, if that is told; all of it else.
    fn absent(&self) -> Result<Vec<Range<u64>>, Why> {
        let absent = kernel::absent(&self.source.opened.file, &self.range).map_err(|error| {
            let is_unmappable = Errno::from_io_error(&error) == Some(Errno::NODEV);
            if is_unmappable { Why::NotKept } else { Why::Closed(error) }
        })?;
        Ok(absent.unwrap_or_else(|| Vec::from([self.range.clone()])))
    }
}

/// Reads `range`, which waits for it or says why it cannot come.
fn read(file: &fs::File, range: &Range<u64>, room: &mut Vec<u8>) -> Result<(), Why> {
    room.resize(ROOM_BYTES, 0);
    let mut at = range.start;
    while at < range.end {
        let bytes = usize::try_from(range.end - at).map_or(ROOM_BYTES, |left| left.min(ROOM_BYTES));
        match file.read_at(&mut room[..bytes], at) {
            Ok(0) => return Err(Why::Changed),
            Ok(read) => at += read as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Why::Unreadable(at, error)),
        }
    }
    Ok(())
}

/// What is asked for and not there yet, at most: what a store of 600 MB/s has on its way while an
/// answer takes 50 ms, and what a disk reads in a sixth of a second.
pub const IN_FLIGHT_BYTES: u64 = PIECE_BYTES * THREADS as u64;
const PIECE_BYTES: u64 = 2 << 20;
const THREADS: usize = 16;
/// What a read takes at a time.
const ROOM_BYTES: usize = 256 << 10;
/// How often the memory is looked at.
const LOOK_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::super::Listing;
    use super::*;
    use forerun_testkit::{Scratch, skip};
    use rustix::fs::{FallocateFlags, fallocate};

    #[test]
    fn it_stops_when_memory_becomes_short() {
        let root = Scratch::new("short");
        root.file("proc/meminfo", "MemAvailable: 1 kB\n");
        let memory = Memory::below(&root);
        // More than is in flight and counted when memory is looked at first. Blocks that were
        // never written are missing in memory, and cost the device nothing.
        let bytes = 2 * (IN_FLIGHT_BYTES + LOOK_BYTES);
        let file = fs::File::create(root.join("large")).unwrap();
        let has_room = fallocate(&file, FallocateFlags::empty(), 0, bytes).is_ok();
        let listing = Listing::of(&[root.join("large")]);
        if has_room && listing.bytes_missing() == bytes {
            let mut most = 0;
            let report = listing.fetch(u64::MAX, &memory, &mut |progress| most = progress.bytes);
            assert!((LOOK_BYTES..bytes).contains(&most), "{most} of {bytes}");
            let [left] = &report.left[..] else { panic!("{:?}", report.left) };
            assert!(matches!(left.why, Why::NoMemory), "{left:?}");
        } else {
            let test = "it_stops_when_memory_becomes_short";
            skip(test, "no blocks without bytes in the temp folder");
        }
    }
}
