//! What observers tell of readers, written down by file.
//!
//! # Invariants
//! - At most [`FILES_MAX`] files, [`LANES_MAX`] readers at a time and [`MOMENTS_MAX`] moments of a
//!   file; where moments become too many they are joined, and what is left over is counted.
//! - A wait is told once: of the file where the process that waited was next seen to read.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use forerun_core::units::Nanos;
use rustix::fs::Stat;

use super::before::{self, Starts};
use super::patterns::Patterns;
use super::waits::share;
use super::{FileTold, Moment, Start};
use crate::readers::{CursorId, Readers};

/// See the module.
#[derive(Debug)]
pub(super) struct Notes {
    starts: Starts,
    files: Vec<Note>,
    /// By device and inode, where in `files`.
    known: BTreeMap<(u64, u64), usize>,
    lanes: Vec<Option<Lane>>,
    /// The process that is looked at.
    process: i32,
    /// How long processes waited since they were seen to read.
    waits: BTreeMap<i32, Nanos>,
    /// When the look before this one was, and when this one is.
    looked: (Nanos, Nanos),
    /// When the first read began of what was not all in memory.
    began: Option<Nanos>,
    bytes_read: u64,
    files_left_out: u64,
}

/// A reader.
#[derive(Clone, Copy, Debug)]
struct Lane {
    file: usize,
    /// Its last moment, of the file's.
    moment: Option<usize>,
}

/// A file.
#[derive(Debug)]
struct Note {
    path: PathBuf,
    device: u64,
    bytes: u64,
    /// While somebody reads it.
    file: Option<File>,
    readers: usize,
    bytes_read: u64,
    is_mapped: bool,
    waited: Nanos,
    start: Option<Start>,
    patterns: Patterns,
    moments: Vec<Moment>,
    moments_left_out: u64,
    /// Moments so close together are one.
    grain: Nanos,
    /// To join moments makes hardly any room.
    is_full: bool,
}

impl Notes {
    pub(super) fn new(starts: Starts) -> Self {
        Self {
            starts,
            files: Vec::new(),
            known: BTreeMap::new(),
            lanes: Vec::new(),
            process: 0,
            waits: BTreeMap::new(),
            looked: (Nanos(0), Nanos(0)),
            began: None,
            bytes_read: 0,
            files_left_out: 0,
        }
    }

    /// The process `pid` waited for storage.
    pub(super) fn waited(&mut self, pid: i32, time: Nanos) {
        if self.waits.len() < PROCESSES_MAX || self.waits.contains_key(&pid) {
            *self.waits.entry(pid).or_default() += time;
        }
    }

    /// Bytes that were seen to be read.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// When somebody began to read what was not all in memory, and when somebody was seen to read
    /// last.
    pub(super) fn reading(&self) -> [Nanos; 2] {
        [self.began.unwrap_or(self.looked.1), self.looked.1]
    }

    /// Files that were too many.
    pub(super) fn files_left_out(&self) -> u64 {
        self.files_left_out
    }

    /// All files: those first that were waited for most, then those of which most was read.
    /// Of what was `noted` as waited for, all in all, `waited` is the truth.
    pub(super) fn end(self, waited: Nanos, noted: Nanos) -> Vec<FileTold> {
        let files = self.files.into_iter().map(Note::end);
        let mut files: Vec<FileTold> = files.collect();
        for file in &mut files {
            let streams = file.streams.iter_mut().map(|stream| &mut stream.waited);
            for time in streams.chain([&mut file.waited]) {
                *time = share(waited, *time, noted);
            }
        }
        files.retain(|file| file.bytes_read > 0);
        files.sort_by(|a, b| {
            (b.waited, b.bytes_read, &a.path).cmp(&(a.waited, a.bytes_read, &b.path))
        });
        files
    }

    fn add(&mut self, file: usize) -> Option<CursorId> {
        let free = self.lanes.iter().position(Option::is_none);
        let at = free.unwrap_or(self.lanes.len());
        if at >= LANES_MAX {
            return None;
        }
        if free.is_none() {
            self.lanes.push(None);
        }
        self.lanes[at] = Some(Lane { file, moment: None });
        self.files[file].readers += 1;
        Some(CursorId(u32::try_from(at).expect("below LANES_MAX")))
    }

    fn lane(&self, lane: CursorId) -> Option<&Lane> {
        self.lanes.get(lane.0 as usize)?.as_ref()
    }

    /// The row of a file, which is looked at where it is new.
    fn row(&mut self, file: File, stat: &Stat) -> Option<usize> {
        let key = (stat.st_dev, stat.st_ino);
        let bytes = u64::try_from(stat.st_size).ok()?;
        let at = match self.known.get(&key) {
            Some(&at) => at,
            None if self.files.len() >= FILES_MAX => {
                self.files_left_out += 1;
                return None;
            }
            None => {
                let link = format!("/proc/self/fd/{}", file.as_raw_fd());
                let told_before = self.starts.get(&key).copied();
                self.files.push(Note {
                    path: std::fs::read_link(link).unwrap_or_default(),
                    device: stat.st_dev,
                    bytes,
                    file: None,
                    readers: 0,
                    bytes_read: 0,
                    is_mapped: false,
                    waited: Nanos(0),
                    start: told_before.or_else(|| before::start(&file, stat, false)),
                    patterns: Patterns::default(),
                    moments: Vec::new(),
                    moments_left_out: 0,
                    grain: Nanos(0),
                    is_full: false,
                });
                self.known.insert(key, self.files.len() - 1);
                self.files.len() - 1
            }
        };
        let row = &mut self.files[at];
        row.bytes = row.bytes.max(bytes);
        row.file.get_or_insert(file);
        Some(at)
    }
}

impl Readers for Notes {
    fn process(&mut self, pid: i32, _processor: Option<Nanos>) {
        self.process = pid;
    }

    fn open(&mut self, _now: Nanos, file: File, stat: &Stat, _main: u64) -> Option<CursorId> {
        let row = self.row(file, stat)?;
        self.add(row)
    }

    fn again(&mut self, lane: CursorId, _main: u64) -> Option<CursorId> {
        self.add(self.lane(lane)?.file)
    }

    fn maps(&mut self, lane: CursorId) {
        if let Some(&Lane { file, .. }) = self.lane(lane) {
            self.files[file].is_mapped = true;
        }
    }

    fn file(&self, lane: CursorId) -> Option<&File> {
        self.files[self.lane(lane)?.file].file.as_ref()
    }

    fn seek(&mut self, _now: Nanos, _lane: CursorId, _to: u64) {}

    fn read(&mut self, now: Nanos, lane: CursorId, range: &Range<u64>, _follows: bool) {
        if now > self.looked.1 {
            self.looked = (self.looked.1, now);
        }
        let Some(Some(lane)) = self.lanes.get_mut(lane.0 as usize) else { return };
        let note = &mut self.files[lane.file];
        let waited = self.waits.remove(&self.process).unwrap_or_default();
        if note.start.is_none_or(|start| start.pages < start.pages_all) {
            // It is seen when it is over.
            self.began.get_or_insert(now.since(waited));
        }
        let bytes = range.end - range.start;
        self.bytes_read += bytes;
        note.bytes_read += bytes;
        note.waited += waited;
        note.patterns.read(now, range, waited);
        let (offset, waited) = (range.start, waited > Nanos(0));
        let moment = Moment { from: self.looked.0, to: now, offset, bytes, waited };
        lane.moment = note.keep(moment, lane.moment);
        if note.moments.len() == MOMENTS_MAX && !note.is_full {
            note.join(now);
            // Places among the moments are others now.
            self.lanes.iter_mut().flatten().for_each(|lane| lane.moment = None);
        }
    }

    fn close(&mut self, _now: Nanos, lane: CursorId) {
        let gone = self.lanes.get_mut(lane.0 as usize).and_then(Option::take);
        let Some(Lane { file, .. }) = gone else { return };
        let note = &mut self.files[file];
        note.readers -= 1;
        if note.readers == 0 {
            note.file = None;
        }
    }
}

impl Note {
    /// Keeps `moment`, as a part of the reader's `last` one if it goes on there. Where it is kept.
    fn keep(&mut self, moment: Moment, last: Option<usize>) -> Option<usize> {
        if let Some(at) = last
            && self.moments[at].takes_in(&moment, self.grain)
        {
            return last;
        }
        if self.moments.len() >= MOMENTS_MAX {
            self.moments_left_out += 1;
            return None;
        }
        self.moments.push(moment);
        Some(self.moments.len() - 1)
    }

    /// Makes room: from now on moments are longer.
    fn join(&mut self, now: Nanos) {
        self.grain = Nanos(self.grain.0 * 2).max(Nanos(now.0 / GRAINS));
        let mut joined: Vec<Moment> = Vec::new();
        for moment in std::mem::take(&mut self.moments) {
            let recent = joined.iter_mut().rev().take(RECENT);
            let mut before = recent.filter(|before| before.offset + before.bytes == moment.offset);
            if !before.next().is_some_and(|before| before.takes_in(&moment, self.grain)) {
                joined.push(moment);
            }
        }
        self.is_full = joined.len() > MOMENTS_MAX / 4 * 3;
        self.moments = joined;
    }

    fn end(self) -> FileTold {
        let (streams, streams_left_out) = self.patterns.end();
        FileTold {
            path: self.path,
            device: self.device,
            bytes: self.bytes,
            bytes_read: self.bytes_read,
            is_mapped: self.is_mapped,
            waited: self.waited,
            start: self.start,
            streams,
            streams_left_out,
            moments: self.moments,
            moments_left_out: self.moments_left_out,
        }
    }
}

impl Moment {
    /// Goes on with `next`, if both are as one within `grain`. Whether it did.
    fn takes_in(&mut self, next: &Self, grain: Nanos) -> bool {
        let goes_on = self.offset + self.bytes == next.offset && self.waited == next.waited;
        let takes_in = goes_on && next.to.since(self.from) <= grain;
        if takes_in {
            (self.to, self.bytes) = (next.to, self.bytes + next.bytes);
        }
        takes_in
    }
}

const FILES_MAX: usize = 256;
const LANES_MAX: usize = 1024;
const PROCESSES_MAX: usize = 256;
const MOMENTS_MAX: usize = 2048;
/// Where moments are too many, one reader in order has so many at most.
const GRAINS: u64 = 256;
/// So many moments back it is looked for one that goes on.
const RECENT: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;

    #[test]
    fn what_was_read_and_waited_for_is_all_told_in_bounded_room() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let stat = fstat(&file).unwrap();
        let mut notes = Notes::new(Starts::new());
        let lane = notes.open(Nanos(0), file, &stat, 0).unwrap();
        notes.process(7, None);
        let times = 3 * MOMENTS_MAX as u64;
        for at in 0..times {
            let now = Nanos::from_millis(at + 1);
            if at % 3 == 0 {
                notes.waited(7, Nanos(5));
                notes.waited(8, Nanos(1));
            }
            // Two readers in turn, the second of them here and there.
            notes.read(now, lane, &(at * 4096..at * 4096 + 4096), true);
            let apart = at * at * 8192 % 999_999_999;
            notes.read(now, lane, &(apart..apart + 100), false);
        }
        notes.close(Nanos(0), lane);
        assert!(notes.file(lane).is_none());
        let bytes = notes.bytes_read();
        let files = notes.end(Nanos(1), Nanos(1));
        let [file] = &files[..] else { panic!("{files:?}") };
        assert_eq!((file.bytes_read, bytes), (times * 4196, times * 4196));
        assert_eq!(file.waited, Nanos(times.div_ceil(3) * 5), "of its own process alone");
        assert!(file.moments.len() <= MOMENTS_MAX && file.moments_left_out > 0);
        assert!(file.moments.iter().all(|moment| moment.from <= moment.to && moment.bytes > 0));
    }
}
