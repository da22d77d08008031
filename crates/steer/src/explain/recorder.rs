//! The access recorder: what observers report of readers, recorded by file.
//!
//! # Invariants
//! - At most [`FILES_MAX`] files, [`CURSORS_MAX`] readers at a time and [`SAMPLES_MAX`] access
//!   samples of a file; where samples become too many they are joined, and what is left over is
//!   counted.
//! - A wait counts once: for the entry that the thread is blocked on, as `entries` says, or for the
//!   file that the process that waited is next observed to read.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forerun_core::observed::streams::FileStreams;
use forerun_core::units::Nanos;

use super::entries::{EntryRecords, ThreadId, Wait};
use super::residency::{self, Residencies};
use super::summary::{AccessSample, FileSummary, InitialResidency};
use super::sums::share;
use crate::kernel::Stat;
use crate::observe::access::{AccessSink, CursorId, EntryAccess};
use crate::wire::wire;

/// Receives accesses, and holds the files that have readers.
#[derive(Debug)]
pub(super) struct AccessRecorder {
    /// What was in memory before the program's start.
    residencies: Residencies,
    records: Records,
    entries: EntryRecords,
    open: BTreeMap<usize, File>,
}

/// The accesses of a program, which another thread may read: nothing blocks while they are locked.
#[derive(Clone, Debug, Default)]
pub(super) struct Records(Arc<Mutex<Table>>);

/// The accesses of a program, by file.
#[derive(Debug, Default)]
struct Table {
    files: Vec<FileRecord>,
    /// By device and inode, the place in `files`.
    by_inode: BTreeMap<(u64, u64), usize>,
    cursors: Vec<Option<OpenCursor>>,
    /// The process of the reports.
    process: i32,
    /// How long processes waited since they were last observed to read.
    waits: BTreeMap<i32, Nanos>,
    /// When the poll before this one was, and when this one is.
    polls: (Nanos, Nanos),
    /// When the last access was observed.
    accessed: Nanos,
    /// When the first read began of a file that was not all in memory.
    began: Option<Nanos>,
    bytes_read: u64,
    files_left_out: u64,
}

/// What was recorded.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// Bytes of all accesses.
    pub(super) bytes_read: u64,
    /// When the first read began of a file that was not all in memory, and when the last access was
    /// observed.
    pub(super) reading: (Nanos, Nanos),
    pub(super) files: Vec<FileSummary>,
    /// Files that were too many.
    pub(super) files_left_out: u64,
}

wire! { Recorded { bytes_read, reading, files, files_left_out } }

/// A reader.
#[derive(Clone, Copy, Debug)]
struct OpenCursor {
    file: usize,
    /// Its last access sample, of the file's.
    sample: Option<usize>,
}

/// A file.
#[derive(Debug)]
struct FileRecord {
    path: PathBuf,
    device: u64,
    bytes: u64,
    readers: usize,
    bytes_read: u64,
    is_mapped: bool,
    waited: Nanos,
    residency: Option<InitialResidency>,
    streams: FileStreams,
    samples: Vec<AccessSample>,
    samples_left_out: u64,
    /// Samples so close together are joined.
    grain: Nanos,
    /// Joining samples frees hardly any room.
    is_full: bool,
}

impl AccessRecorder {
    pub(super) fn new(residencies: Residencies, records: Records, entries: EntryRecords) -> Self {
        Self { residencies, records, entries, open: BTreeMap::new() }
    }

    /// Storage blocked `thread` until `now`.
    pub(super) fn waited(&mut self, now: Nanos, thread: ThreadId, wait: Wait) {
        if self.entries.waited(now, thread, wait) {
            return;
        }
        let pid = thread.pid;
        let waits = &mut self.records.lock().waits;
        if waits.len() < PROCESSES_MAX || waits.contains_key(&pid) {
            *waits.entry(pid).or_default() += wait.lost;
        }
    }

    /// Bytes of all accesses.
    pub(super) fn bytes_read(&self) -> u64 {
        self.records.lock().bytes_read
    }

    /// Closes all files.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }
}

impl Records {
    /// All that was recorded so far, the files that were read first by the time that the program
    /// waited for them, then by the bytes read. Their waits are as they were sampled.
    pub(super) fn recorded(&self) -> Recorded {
        let table = self.lock();
        let files = table.files.iter().filter(|file| file.bytes_read > 0);
        let mut files: Vec<FileSummary> = files.map(FileRecord::summary).collect();
        files.sort_by(|a, b| {
            (b.waited, b.bytes_read, &a.path).cmp(&(a.waited, a.bytes_read, &b.path))
        });
        Recorded {
            bytes_read: table.bytes_read,
            reading: (table.began.unwrap_or(table.accessed), table.accessed),
            files,
            files_left_out: table.files_left_out,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorded {
    /// The files. Their waits, which sum up to `sampled`, are scaled to `waited`, the measured
    /// time.
    pub(super) fn files(mut self, waited: Nanos, sampled: Nanos) -> Vec<FileSummary> {
        for file in &mut self.files {
            let streams = file.streams.iter_mut().map(|stream| &mut stream.waited);
            for time in streams.chain([&mut file.waited]) {
                *time = share(waited, *time, sampled);
            }
        }
        self.files
    }
}

impl Table {
    fn add(&mut self, file: usize) -> Option<CursorId> {
        let free = self.cursors.iter().position(Option::is_none);
        let at = free.unwrap_or(self.cursors.len());
        if at >= CURSORS_MAX {
            return None;
        }
        if free.is_none() {
            self.cursors.push(None);
        }
        self.cursors[at] = Some(OpenCursor { file, sample: None });
        self.files[file].readers += 1;
        Some(CursorId(u32::try_from(at).expect("below CURSORS_MAX")))
    }

    fn cursor(&self, cursor: CursorId) -> Option<&OpenCursor> {
        self.cursors.get(cursor.0 as usize)?.as_ref()
    }

    /// The place of the record of a file; `new` where there is none.
    fn record(
        &mut self,
        inode: (u64, u64),
        bytes: u64,
        new: impl FnOnce() -> FileRecord,
    ) -> Option<usize> {
        let at = match self.by_inode.get(&inode) {
            Some(&at) => at,
            None if self.files.len() >= FILES_MAX => {
                self.files_left_out += 1;
                return None;
            }
            None => {
                self.files.push(new());
                self.by_inode.insert(inode, self.files.len() - 1);
                self.files.len() - 1
            }
        };
        assert!(self.by_inode.len() == self.files.len(), "each file has one record");
        self.files[at].bytes = self.files[at].bytes.max(bytes);
        Some(at)
    }

    /// The poll at `now` begins, or calls are reported after the last one.
    fn polled(&mut self, now: Nanos) {
        if now > self.polls.1 {
            self.polls = (self.polls.1, now);
        }
    }

    fn read(&mut self, now: Nanos, cursor: CursorId, range: &Range<u64>) {
        self.polled(now);
        self.accessed = self.accessed.max(now);
        let Some(Some(cursor)) = self.cursors.get_mut(cursor.0 as usize) else { return };
        assert!(!range.is_empty(), "an access has bytes");
        let record = &mut self.files[cursor.file];
        let waited = self.waits.remove(&self.process).unwrap_or_default();
        if !record.residency.is_some_and(InitialResidency::is_whole) {
            // It is observed when it is over.
            self.began.get_or_insert(now.since(waited));
        }
        self.bytes_read += range.end - range.start;
        let from = self.polls.0.min(now.since(waited));
        cursor.sample = record.read(now, from, range, waited, cursor.sample);
        if record.samples.len() == SAMPLES_MAX && !record.is_full {
            record.join_samples(now);
            // The places of samples have changed.
            self.cursors.iter_mut().flatten().for_each(|cursor| cursor.sample = None);
        }
    }
}

impl AccessSink for AccessRecorder {
    fn polled(&mut self, now: Nanos) {
        self.records.lock().polled(now);
    }

    fn process(&mut self, pid: i32, _processor: Option<Nanos>) {
        self.records.lock().process = pid;
    }

    fn open(&mut self, _now: Nanos, file: File, stat: &Stat, _position: u64) -> Option<CursorId> {
        let inode = (stat.st_dev, stat.st_ino);
        let bytes = stat.st_size;
        let is_known = self.records.lock().by_inode.contains_key(&inode);
        let before = self.residencies.get(&inode).copied();
        let first =
            before.or_else(|| if is_known { None } else { residency::of(&file, stat, false) });
        let mut table = self.records.lock();
        let at =
            table.record(inode, bytes, || FileRecord::new(&file, stat.st_dev, bytes, first))?;
        let cursor = table.add(at)?;
        drop(table);
        self.open.entry(at).or_insert(file);
        Some(cursor)
    }

    fn open_again(&mut self, cursor: CursorId, _position: u64) -> Option<CursorId> {
        let mut table = self.records.lock();
        let file = table.cursor(cursor)?.file;
        table.add(file)
    }

    fn mapped(&mut self, cursor: CursorId) {
        let mut table = self.records.lock();
        if let Some(&OpenCursor { file, .. }) = table.cursor(cursor) {
            table.files[file].is_mapped = true;
        }
    }

    fn file(&self, cursor: CursorId) -> Option<&File> {
        let at = self.records.lock().cursor(cursor)?.file;
        self.open.get(&at)
    }

    fn seek(&mut self, _now: Nanos, _cursor: CursorId, _position: u64) {}

    fn read(&mut self, now: Nanos, cursor: CursorId, range: &Range<u64>, _follows: bool) {
        self.records.lock().read(now, cursor, range);
    }

    fn close(&mut self, _now: Nanos, cursor: CursorId) {
        let mut table = self.records.lock();
        let gone = table.cursors.get_mut(cursor.0 as usize).and_then(Option::take);
        let Some(OpenCursor { file, .. }) = gone else { return };
        let record = &mut table.files[file];
        assert!(record.readers > 0, "a cursor is a reader of its file");
        record.readers -= 1;
        if record.readers == 0 {
            drop(table);
            self.open.remove(&file);
        }
    }

    fn entry(&mut self, now: Nanos, access: &EntryAccess<'_>) {
        self.entries.add(now, access);
    }
}

impl FileRecord {
    fn new(file: &File, device: u64, bytes: u64, residency: Option<InitialResidency>) -> Self {
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        Self {
            path: std::fs::read_link(link).unwrap_or_default(),
            device,
            bytes,
            readers: 0,
            bytes_read: 0,
            is_mapped: false,
            waited: Nanos(0),
            residency,
            streams: FileStreams::default(),
            samples: Vec::new(),
            samples_left_out: 0,
            grain: Nanos(0),
            is_full: false,
        }
    }

    /// Records an access to `range` between the polls at `from` and `now`, after a wait of
    /// `waited`, by a reader with the sample `last`. The place of its sample.
    fn read(
        &mut self,
        now: Nanos,
        from: Nanos,
        range: &Range<u64>,
        waited: Nanos,
        last: Option<usize>,
    ) -> Option<usize> {
        let bytes = range.end - range.start;
        self.bytes_read += bytes;
        self.waited += waited;
        self.streams.read(now, range, waited);
        let offset = range.start;
        let sample = AccessSample { from, to: now, offset, bytes, waited };
        if let Some(at) = last
            && self.samples[at].join(&sample, self.grain)
        {
            return last;
        }
        if self.samples.len() >= SAMPLES_MAX {
            self.samples_left_out += 1;
            return None;
        }
        self.samples.push(sample);
        assert!(self.samples.len() <= SAMPLES_MAX, "more samples than are allowed");
        Some(self.samples.len() - 1)
    }

    /// Makes room: from now on samples are longer.
    fn join_samples(&mut self, now: Nanos) {
        self.grain = Nanos(self.grain.0 * 2).max(Nanos(now.0 / GRAINS));
        let mut joined: Vec<AccessSample> = Vec::new();
        for sample in std::mem::take(&mut self.samples) {
            let recent = joined.iter_mut().rev().take(RECENT);
            let mut before = recent.filter(|before| before.offset + before.bytes == sample.offset);
            if !before.next().is_some_and(|before| before.join(&sample, self.grain)) {
                joined.push(sample);
            }
        }
        self.is_full = joined.len() > SAMPLES_MAX / 4 * 3;
        self.samples = joined;
    }

    fn summary(&self) -> FileSummary {
        let (streams, streams_left_out) = self.streams.clone().end();
        FileSummary {
            path: self.path.clone(),
            device: self.device,
            bytes: self.bytes,
            bytes_read: self.bytes_read,
            is_mapped: self.is_mapped,
            waited: self.waited,
            residency: self.residency,
            streams,
            streams_left_out,
            samples: self.samples.clone(),
            samples_left_out: self.samples_left_out,
        }
    }
}

const FILES_MAX: usize = 256;
/// Readers of all files.
const CURSORS_MAX: usize = 1024;
const PROCESSES_MAX: usize = 256;
const SAMPLES_MAX: usize = 2048;
/// The samples of one sequential reader at most, where samples are too many.
const GRAINS: u64 = 256;
/// Of so many samples back one may continue.
const RECENT: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::blocked::BlockedIn;

    #[test]
    fn all_accesses_and_waits_are_counted_in_bounded_room() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let stat = crate::kernel::stat(&file).unwrap();
        let records = Records::default();
        let mut recorder =
            AccessRecorder::new(Residencies::new(), records.clone(), EntryRecords::default());
        let cursor = recorder.open(Nanos(0), file, &stat, 0).unwrap();
        recorder.process(7, None);
        let times = 3 * SAMPLES_MAX as u64;
        for at in 0..times {
            let now = Nanos::from_millis(at + 1);
            if at % 3 == 0 {
                let wait = |nanos, met| Wait { lost: Nanos(nanos), blocked: Nanos(9), met };
                recorder.waited(now, ThreadId { pid: 7, tid: 7 }, wait(5, BlockedIn::Nothing));
                recorder.waited(now, ThreadId { pid: 8, tid: 8 }, wait(1, BlockedIn::Other));
            }
            // Two readers in turn, the second of them here and there.
            recorder.read(now, cursor, &(at * 4096..at * 4096 + 4096), true);
            let apart = at * at * 8192 % 999_999_999;
            recorder.read(now, cursor, &(apart..apart + 100), false);
        }
        recorder.close(Nanos(0), cursor);
        assert!(recorder.file(cursor).is_none());
        let bytes = recorder.bytes_read();
        let files = records.recorded().files(Nanos(1), Nanos(1));
        let [file] = &files[..] else { panic!("{files:?}") };
        assert_eq!((file.bytes_read, bytes), (times * 4196, times * 4196));
        assert_eq!(file.waited, Nanos(times.div_ceil(3) * 5), "of its own process alone");
        assert!(file.samples.len() <= SAMPLES_MAX && file.samples_left_out > 0);
        assert!(file.samples.iter().all(|sample| sample.from <= sample.to && sample.bytes > 0));
    }

    #[test]
    fn a_file_that_is_opened_late_is_not_read_before() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let stat = crate::kernel::stat(&file).unwrap();
        let records = Records::default();
        let mut recorder =
            AccessRecorder::new(Residencies::new(), records.clone(), EntryRecords::default());
        let millis = Nanos::from_millis;
        recorder.polled(millis(900));
        let cursor = recorder.open(millis(900), file, &stat, 0).unwrap();
        recorder.read(millis(902), cursor, &(0..4096), true);
        recorder.polled(millis(950));
        recorder.seek(millis(950), cursor, 8192);
        recorder.read(millis(954), cursor, &(8192..9000), false);
        recorder.close(millis(990), cursor);
        let all = records.recorded();
        assert_eq!(all.reading.1, millis(954), "the last access");
        let [file] = &all.files[..] else { panic!("{:?}", all.files) };
        let times: Vec<_> = file.samples.iter().map(|sample| (sample.from, sample.to)).collect();
        assert_eq!(times, [(millis(900), millis(902)), (millis(950), millis(954))]);
    }
}
