//! Fetches files: requests their pieces, waits for them, and examines them.
//!
//! ```text
//!   files --> queue: pieces of 2 MiB --> 16 threads, a piece each:
//!                                          what of it is absent?        mincore
//!                                          request that                 readahead
//!                                          wait for its last page       a read of one byte
//!                                          still absent? read that      certain, or an error
//! ```
//! A file whose residency is unknown is requested and then read, which is certain and costs a copy.
//! Threads wait, so that anything that blocks (a full queue, extents that have to be read first, a
//! network) delays one piece and not all of them.
//!
//! # Invariants
//! - A piece counts as fetched when its bytes are in memory, not when they are requested.
//! - A file that fails loses its further pieces, and no other file does.
//! # Locking
//! The queue of pieces is locked while the next file is opened, and over no read.

use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::{fs, io};

use rustix::io::Errno;

use super::file::{File, OpenFile};
use super::{Progress, SkipReason};
use crate::kernel;
use crate::memory::Memory;

/// The bytes fetched, and the outcome of each file, in their order.
pub(super) struct Outcome {
    pub(super) bytes: u64,
    pub(super) outcomes: Vec<Result<(), SkipReason>>,
}

/// Fetches `files` into memory, until that becomes short.
pub(super) fn fetch(
    files: &[File],
    memory: &Memory,
    progress: &mut dyn FnMut(Progress),
) -> Outcome {
    let queue = PieceQueue::new(files);
    // No thread runs ahead of what is counted, so that free memory is read in time.
    let (completed, completions) = mpsc::sync_channel(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let completed = completed.clone();
            let queue = &queue;
            scope.spawn(move || work(queue, &completed));
        }
        drop(completed);
        gather(files, &queue, &completions, memory, progress)
    })
}

/// The completion of a piece: its bytes that were missing, or why it is not in memory.
struct Completion {
    file: usize,
    result: Result<u64, SkipReason>,
}

/// Collects the completions until all threads have ended.
fn gather(
    files: &[File],
    queue: &PieceQueue<'_>,
    completions: &Receiver<Completion>,
    memory: &Memory,
    progress: &mut dyn FnMut(Progress),
) -> Outcome {
    let bytes_all = files.iter().map(|file| file.missing).sum();
    let mut outcomes: Vec<Result<(), SkipReason>> = files.iter().map(|_| Ok(())).collect();
    let (mut bytes, mut checked_at) = (0_u64, 0);
    for Completion { file, result } in completions {
        match result {
            Ok(fetched) => bytes += fetched,
            Err(why) if outcomes[file].is_ok() => outcomes[file] = Err(why),
            Err(_) => {}
        }
        progress(Progress { bytes, bytes_all });
        if bytes - checked_at >= CHECK_BYTES {
            checked_at = bytes;
            // What was fetched counts as free, since no program uses it yet.
            if memory.room().bytes_to_use() < bytes {
                queue.close();
            }
        }
    }
    for file in queue.not_taken() {
        if outcomes[file].is_ok() {
            outcomes[file] = Err(SkipReason::NoMemory);
        }
    }
    Outcome { bytes, outcomes }
}

/// Fetches pieces until there are none.
fn work(queue: &PieceQueue<'_>, completed: &SyncSender<Completion>) {
    let mut buffer = Vec::new();
    while let Some(Task { file, piece }) = queue.take() {
        let result = piece.and_then(|piece| {
            let result = piece.fetch(&mut buffer);
            if result.is_err() {
                piece.source.has_failed.store(true, Ordering::Relaxed);
            }
            result
        });
        if completed.send(Completion { file, result }).is_err() {
            return;
        }
    }
}

/// The pieces of all files, in order.
struct PieceQueue<'a> {
    files: &'a [File],
    at: Mutex<QueuePosition>,
}

/// The next piece.
struct QueuePosition {
    /// The file whose pieces are taken; those of files before it are.
    file: usize,
    source: Option<Arc<Source>>,
    /// Its data that was not taken, the last of it first.
    left: Vec<Range<u64>>,
    is_closed: bool,
}

/// A file that is being fetched.
struct Source {
    opened: OpenFile,
    chunk_bytes: u64,
    is_known: bool,
    has_failed: AtomicBool,
}

/// A piece of the file with this number, or why that cannot be opened.
struct Task {
    file: usize,
    piece: Result<Piece, SkipReason>,
}

struct Piece {
    source: Arc<Source>,
    range: Range<u64>,
}

impl<'a> PieceQueue<'a> {
    fn new(files: &'a [File]) -> Self {
        let at = QueuePosition { file: 0, source: None, left: Vec::new(), is_closed: false };
        Self { files, at: Mutex::new(at) }
    }

    fn lock(&self) -> MutexGuard<'_, QueuePosition> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next piece, unless there is none or the queue was closed.
    fn take(&self) -> Option<Task> {
        let mut at = self.lock();
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
                        return Some(Task { file, piece: Err(why) });
                    }
                },
            };
            let has_failed = source.has_failed.load(Ordering::Relaxed);
            if let Some(range) = at.left.pop().filter(|_| !has_failed) {
                let end = range.end.min(range.start + PIECE_BYTES);
                assert!(range.start < end, "a piece has bytes");
                if end < range.end {
                    at.left.push(end..range.end);
                }
                return Some(Task { file, piece: Ok(Piece { source, range: range.start..end }) });
            }
            at.source = None;
            at.file += 1;
        }
        None
    }

    /// Opens a file. The file, and its data, the last of it first.
    fn open(&self, file: usize) -> Result<(Arc<Source>, Vec<Range<u64>>), SkipReason> {
        let file = &self.files[file];
        let opened = file.open()?;
        let mut left = file.data(&opened);
        left.reverse();
        let chunk_bytes = kernel::chunk_bytes(file.id.device);
        let has_failed = AtomicBool::new(false);
        Ok((Arc::new(Source { opened, chunk_bytes, is_known: file.is_known, has_failed }), left))
    }

    /// No more pieces can be taken.
    fn close(&self) {
        self.lock().is_closed = true;
    }

    /// The files that have pieces which were not taken.
    fn not_taken(&self) -> Range<usize> {
        let at = self.lock();
        let is_taken = at.source.is_some() && at.left.is_empty();
        let first = at.file + usize::from(is_taken);
        assert!(first <= self.files.len(), "pieces are of files");
        first..self.files.len()
    }
}

impl Piece {
    /// Fetches it into memory. Its bytes that were missing.
    fn fetch(&self, buffer: &mut Vec<u8>) -> Result<u64, SkipReason> {
        let file = &self.source.opened.file;
        if !self.source.is_known {
            self.request(&self.range)?;
            read(file, &self.range, buffer)?;
            return Ok(self.range.end - self.range.start);
        }
        let missing = self.absent()?;
        for part in &missing {
            self.request(part)?;
        }
        for part in &missing {
            read(file, &(part.end - 1..part.end), buffer)?;
        }
        // A request failed, or its pages were evicted at once.
        let still = self.absent()?;
        for part in &still {
            read(file, part, buffer)?;
        }
        if !still.is_empty() && self.absent()? == missing {
            return Err(SkipReason::NotKept);
        }
        Ok(missing.iter().map(|part| part.end - part.start).sum())
    }

    fn request(&self, range: &Range<u64>) -> Result<(), SkipReason> {
        kernel::prefetch(&self.source.opened.file, range, self.source.chunk_bytes)
            .map_err(SkipReason::Closed)
    }

    /// What of it is absent, where the kernel tells; else all of it.
    fn absent(&self) -> Result<Vec<Range<u64>>, SkipReason> {
        let absent = kernel::absent(&self.source.opened.file, &self.range).map_err(|error| {
            let is_unmappable = Errno::from_io_error(&error) == Some(Errno::NODEV);
            if is_unmappable { SkipReason::NotKept } else { SkipReason::Closed(error) }
        })?;
        Ok(absent.unwrap_or_else(|| Vec::from([self.range.clone()])))
    }
}

/// Reads `range`, which waits for it.
fn read(file: &fs::File, range: &Range<u64>, buffer: &mut Vec<u8>) -> Result<(), SkipReason> {
    buffer.resize(READ_BYTES, 0);
    let mut at = range.start;
    while at < range.end {
        let bytes = usize::try_from(range.end - at).map_or(READ_BYTES, |left| left.min(READ_BYTES));
        match file.read_at(&mut buffer[..bytes], at) {
            Ok(0) => return Err(SkipReason::Changed),
            Ok(read) => at += read as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(SkipReason::Unreadable(at, error)),
        }
    }
    Ok(())
}

/// Bytes in flight, at most: what a store of 600 MB/s delivers in a latency of 50 ms, and a disk in
/// a sixth of a second.
pub const IN_FLIGHT_BYTES: u64 = PIECE_BYTES * THREADS as u64;
const PIECE_BYTES: u64 = 2 << 20;
const THREADS: usize = 16;
/// The bytes of one read.
const READ_BYTES: usize = 256 << 10;
/// After so many bytes free memory is read again.
const CHECK_BYTES: u64 = 16 << 20;

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
        // More than is in flight and counted when free memory is read first. Blocks that were never
        // written are missing in memory, and cost the device nothing.
        let bytes = 2 * (IN_FLIGHT_BYTES + CHECK_BYTES);
        let file = fs::File::create(root.join("large")).unwrap();
        let has_room = fallocate(&file, FallocateFlags::empty(), 0, bytes).is_ok();
        let listing = Listing::of(&[root.join("large")]);
        if has_room && listing.bytes_missing() == bytes {
            let mut most = 0;
            let report = listing.fetch(u64::MAX, &memory, &mut |progress| most = progress.bytes);
            assert!((CHECK_BYTES..bytes).contains(&most), "{most} of {bytes}");
            let [file] = &report.skipped[..] else { panic!("{:?}", report.skipped) };
            assert!(matches!(file.why, SkipReason::NoMemory), "{file:?}");
        } else {
            let test = "it_stops_when_memory_becomes_short";
            skip(test, "no blocks without bytes in the temp folder");
        }
    }
}
