//! Fetches files: requests their pieces, waits for them, and examines them.
//!
//! ```text
//!   files --> queue: small files, pieces of 2 MiB of others --> threads, one each:
//!                                          what of it is absent?        mincore
//!                                          request that                 readahead
//!                                          wait for its last page       a read of one byte
//!                                          still absent? read that      certain, or an error
//! ```
//! A small file is opened by the thread that fetches it, as opening may have to wait as well.
//! A file whose residency is unknown is requested and then read, which is certain and costs a copy;
//! so is a small one, which takes less time to copy than to map and to look at.
//! Threads wait, so that anything that blocks (a full queue, extents that have to be read first, a
//! network) delays one piece and not all of them.
//!
//! # Invariants
//! - A piece counts as fetched when its bytes are in memory, not when they are requested.
//! - At most [`IN_FLIGHT_BYTES`] are in flight, which they are until they are counted.
//! - A file that fails loses its further pieces, and no other file does.
//! # Locking
//! The queue of pieces is locked while the next large file is opened, and over no read.

use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::{fs, io};

use super::file::{File, OpenFile, absent_bytes};
use super::{Progress, SkipReason};
use crate::kernel::{self, Devices, Residency};
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
        for _ in 0..queue.pieces().min(THREADS) {
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
    let mut left: Vec<u64> = files.iter().map(|file| file.missing).collect();
    let (mut files_done, mut bytes, mut checked_at) = (0, 0_u64, 0);
    for Completion { file, result } in completions {
        match result {
            Ok(fetched) => {
                bytes += fetched;
                files_done += u64::from(left[file] > 0 && fetched >= left[file]);
                left[file] = left[file].saturating_sub(fetched);
            }
            Err(why) if outcomes[file].is_ok() => outcomes[file] = Err(why),
            Err(_) => {}
        }
        assert!(files_done <= files.len() as u64, "a file is done once");
        let files_all = files.len() as u64;
        progress(Progress { bytes, bytes_all, files: files_done, files_all });
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
    while let Some(Task { file, part, bytes }) = queue.take() {
        let result = part.and_then(|piece| match piece {
            Some(piece) => {
                let result = piece.fetch(&mut buffer);
                piece.source.has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
                result
            }
            None => queue.fetch_whole(file, &mut buffer),
        });
        let is_received = completed.send(Completion { file, result }).is_ok();
        // What is not counted yet is in flight.
        queue.release(bytes);
        if !is_received {
            return;
        }
    }
}

/// The pieces of all files, in order.
struct PieceQueue<'a> {
    files: &'a [File],
    devices: Devices,
    at: Mutex<QueuePosition>,
    /// There is room for more in flight, or the queue was closed.
    released: Condvar,
}

/// The next piece.
struct QueuePosition {
    /// The file whose pieces are taken; those of files before it are.
    file: usize,
    source: Option<Arc<Source>>,
    /// Its data that was not taken, the last of it first.
    left: Vec<Range<u64>>,
    /// Bytes in flight.
    in_flight: u64,
    is_closed: bool,
}

/// A file that is being fetched.
struct Source {
    opened: OpenFile,
    chunk_bytes: u64,
    is_known: bool,
    has_failed: AtomicBool,
}

/// A part of the file with this number, or why that cannot be opened.
struct Task {
    file: usize,
    /// None: all of it, not opened yet.
    part: Result<Option<Piece>, SkipReason>,
    /// Bytes that count as in flight.
    bytes: u64,
}

struct Piece {
    source: Arc<Source>,
    range: Range<u64>,
}

impl<'a> PieceQueue<'a> {
    fn new(files: &'a [File]) -> Self {
        let (source, left) = (None, Vec::new());
        let at = QueuePosition { file: 0, source, left, in_flight: 0, is_closed: false };
        let devices = Devices::default();
        Self { files, devices, at: Mutex::new(at), released: Condvar::new() }
    }

    /// Pieces that files without holes have.
    fn pieces(&self) -> usize {
        let pieces = self.files.iter().map(|file| file.end.div_ceil(PIECE_BYTES));
        usize::try_from(pieces.fold(0, u64::saturating_add)).unwrap_or(usize::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, QueuePosition> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next part once there is room in flight, unless there is none or the queue was
    /// closed.
    fn take(&self) -> Option<Task> {
        let is_full =
            |at: &mut QueuePosition| !at.is_closed && at.in_flight + PIECE_BYTES > IN_FLIGHT_BYTES;
        let waited = self.released.wait_while(self.lock(), is_full);
        let mut at = waited.unwrap_or_else(PoisonError::into_inner);
        let Some(task) = self.next(&mut at) else {
            // The others that wait have nothing to wait for, and a release wakes one of them.
            self.released.notify_all();
            return None;
        };
        at.in_flight += task.bytes;
        assert!(at.in_flight <= IN_FLIGHT_BYTES, "no more is in flight than is allowed");
        Some(task)
    }

    fn next(&self, at: &mut QueuePosition) -> Option<Task> {
        while !at.is_closed && at.file < self.files.len() {
            let file = at.file;
            let bytes = self.files[file].end;
            if at.source.is_none() && bytes <= PIECE_BYTES {
                at.file += 1;
                return Some(Task { file, part: Ok(None), bytes });
            }
            let source = match at.source.clone() {
                Some(source) => source,
                None => match self.open(file) {
                    Ok((source, left)) => {
                        at.left = left;
                        at.source.insert(source).clone()
                    }
                    Err(why) => {
                        at.file += 1;
                        return Some(Task { file, part: Err(why), bytes: 0 });
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
                let (range, bytes) = (range.start..end, end - range.start);
                return Some(Task { file, part: Ok(Some(Piece { source, range })), bytes });
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
        let chunk_bytes = self.devices.chunk_bytes(file.id.device);
        let has_failed = AtomicBool::new(false);
        Ok((Arc::new(Source { opened, chunk_bytes, is_known: file.is_known, has_failed }), left))
    }

    /// Opens a file and fetches all of it. Its bytes that were missing.
    fn fetch_whole(&self, file: usize, buffer: &mut Vec<u8>) -> Result<u64, SkipReason> {
        let (source, mut left) = self.open(file)?;
        let mut bytes = 0;
        while let Some(range) = left.pop() {
            bytes += Piece { source: Arc::clone(&source), range }.fetch(buffer)?;
        }
        Ok(bytes)
    }

    /// So many bytes are no longer in flight.
    fn release(&self, bytes: u64) {
        let mut at = self.lock();
        assert!(bytes <= at.in_flight, "what is released was in flight");
        at.in_flight -= bytes;
        self.released.notify_one();
    }

    /// No more pieces can be taken.
    fn close(&self) {
        self.lock().is_closed = true;
        self.released.notify_all();
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
        let bytes = self.range.end - self.range.start;
        if !self.source.is_known || bytes <= COPIED_BYTES {
            return self.fetch_by_copy(buffer);
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

    fn fetch_by_copy(&self, buffer: &mut Vec<u8>) -> Result<u64, SkipReason> {
        let file = &self.source.opened.file;
        let missing = || match kernel::cached(file, &self.range).map_err(SkipReason::of_untold)? {
            Residency::Pages(cached) => Ok(Some(absent_bytes(&self.range, cached))),
            Residency::Unknown => Ok(None),
        };
        let before = missing()?;
        if before != Some(0) {
            self.request(&self.range)?;
        }
        // Pages that count as cached may be on their way.
        let is_whole = match read(file, &self.range, buffer) {
            Ok(()) => true,
            // A file that is made as it is read may be shorter than it says.
            Err(SkipReason::Changed) => false,
            Err(why) => return Err(why),
        };
        match before {
            Some(before) if before > 0 && missing()? == Some(before) => Err(SkipReason::NotKept),
            _ if !is_whole => Err(SkipReason::Changed),
            Some(before) => Ok(before),
            None => Ok(self.range.end - self.range.start),
        }
    }

    fn request(&self, range: &Range<u64>) -> Result<(), SkipReason> {
        kernel::prefetch(&self.source.opened.file, range, self.source.chunk_bytes)
            .map_err(SkipReason::Closed)
    }

    /// What of it is absent, where the kernel tells; else all of it.
    fn absent(&self) -> Result<Vec<Range<u64>>, SkipReason> {
        let absent =
            kernel::absent(&self.source.opened.file, &self.range).map_err(SkipReason::of_untold)?;
        Ok(absent.unwrap_or_else(|| Vec::from([self.range.clone()])))
    }
}

/// Reads `range`, which waits for it.
fn read(file: &fs::File, range: &Range<u64>, buffer: &mut Vec<u8>) -> Result<(), SkipReason> {
    let wanted =
        usize::try_from(range.end - range.start).map_or(READ_BYTES, |all| all.min(READ_BYTES));
    if buffer.len() < wanted {
        buffer.resize(wanted, 0);
    }
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
pub const IN_FLIGHT_BYTES: u64 = 16 * PIECE_BYTES;
const PIECE_BYTES: u64 = 2 << 20;
/// Parts under way, at most: small files take more at a time than bytes.
const THREADS: usize = 64;
/// The longest piece that is read to be certain that it is there: the copy takes some 10 us, as
/// much as two mappings.
const COPIED_BYTES: u64 = 64 << 10;
/// The bytes of one read.
const READ_BYTES: usize = 256 << 10;
/// After so many bytes free memory is read again.
const CHECK_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::super::Listing;
    use super::*;
    use forerun_testkit::{Scratch, skip};
    use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
    use std::num::NonZero;

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

    #[test]
    fn what_is_evicted_meanwhile_is_fetched_once_more_and_progress_goes_on() {
        let test = "what_is_evicted_meanwhile_is_fetched_once_more_and_progress_goes_on";
        let root = Scratch::on_disk("again");
        let path = root.file("large", vec![7; usize::try_from(4 * PIECE_BYTES).unwrap()]);
        let file = fs::File::open(&path).unwrap();
        file.sync_all().unwrap();
        let evict = |range: Range<u64>| {
            let bytes = NonZero::new(range.end - range.start);
            fadvise(&file, range.start, bytes, Advice::DontNeed).unwrap();
        };
        evict(0..4 * PIECE_BYTES);
        let listing = Listing::of(&[&path]);
        let bytes = listing.bytes_missing();
        if bytes < 4 * PIECE_BYTES {
            return skip(test, "the temp folder keeps its files in memory");
        }
        let mut seen: Vec<Progress> = Vec::new();
        let report = listing.fetch(u64::MAX, &Memory::here(), &mut |progress| {
            let is_first = seen.iter().all(|before| before.bytes < bytes);
            seen.push(progress);
            if is_first && progress.bytes == bytes {
                evict(0..PIECE_BYTES);
            }
        });
        assert!(report.skipped.is_empty(), "{report:?}");
        let last = seen.last().expect("pieces came");
        assert_eq!((last.bytes, last.files, report.bytes_fetched), (bytes, 1, bytes));
        assert!(seen.iter().all(|at| (at.bytes_all, at.files_all) == (bytes, 1)), "{seen:?}");
        let before = seen.iter().position(|at| at.bytes == bytes).expect("all came");
        let again = &seen[before + 1..];
        assert!(!again.is_empty(), "what was evicted came once more: {seen:?}");
        assert!(again.iter().all(|at| at.bytes >= bytes - PIECE_BYTES), "{seen:?}");
    }
}
