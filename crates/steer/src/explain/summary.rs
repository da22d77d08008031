//! What `explain` finds out about a program: plain values, in bounded tables.
//!
//! # Invariants
//! - What is left out of a table is counted beside it.

use std::path::PathBuf;

use forerun_core::device::waits::WaitEstimate;
use forerun_core::observed::streams::{Pattern, StreamSummary};
use forerun_core::units::Nanos;

use super::causes::CauseTimes;
use super::entries::Entries;
use super::timeline::SmallReads;
use super::trees::TreeSummary;
use crate::wire::{Wire, wire};

/// What a program did.
#[derive(Clone, Debug, Default)]
pub struct ProgramSummary {
    /// The exit status, as a shell reports it.
    pub status: u8,
    /// For [`end_as`](crate::end_as).
    pub key: Option<i32>,
    /// The run time.
    pub ran: Nanos,
    /// Processor time of the program and of the children that it waited for.
    pub processor: Nanos,
    /// The time that it lost to waits for storage: where a thread is blocked, what the program
    /// would have run more.
    pub waited: Nanos,
    /// How that was measured.
    pub basis: WaitBasis,
    /// The time in which its main threads were runnable and had no processor, where the kernel
    /// tells.
    pub queued: Option<Nanos>,
    /// Bytes that came from devices on its behalf, as the kernel counts them.
    pub device_bytes: u64,
    /// Bytes of all accesses that were observed.
    pub bytes_read: u64,
    /// When the first read began of a file that was not all in memory, and when the last one ended.
    pub read_from: Nanos,
    /// See `read_from`.
    pub read_until: Nanos,
    /// The best rate of a quarter of a second, in bytes a second.
    pub rate: Option<u64>,
    /// What its waits in calls on files and directories tell of the device.
    pub answers: Option<WaitEstimate>,
    /// Processes that were followed, and of these, those that could not be looked into.
    pub processes: u64,
    /// See `processes`.
    pub processes_skipped: u64,
    /// Records of the shim that were lost.
    pub records_lost: u64,
    /// Polls of the observers.
    pub polls: u64,
    /// Processor time of polling.
    pub polling: Nanos,
    /// Calls on file systems that had not returned at the program's end, and were given up.
    pub calls_given_up: u64,
    /// The message of a bug of forerun.
    pub bug: Option<String>,
    /// The time that the program waited for storage, by cause.
    pub causes: CauseTimes,
    /// Calls on files and directories that threads were met in.
    pub entries_met: u64,
    /// Of these, those that were too many to be looked at afterwards.
    pub entries_left_out: u64,
    /// Processes whose calls could not be observed: the system does not allow it.
    pub calls_refused: u64,
    /// How often a call of a 32-bit program was met, which is not decoded.
    pub calls_foreign: u64,
    /// The device that it waited for most in these calls, and a directory there.
    pub entries_on: Option<(u64, PathBuf)>,
    /// Where in directory trees it waited, once that was looked for; `None` as well where file
    /// systems did not answer in time.
    pub trees: Option<TreeSummary>,
    /// The calls, and the sum of all sampled waits.
    pub(super) entries: Entries,
    pub(super) sampled: Nanos,
    /// Its files: first by the time that the program waited for them, then by the bytes read.
    pub files: Vec<FileSummary>,
    /// Files that are not in the table.
    pub files_left_out: u64,
}

/// What a device can do, by its profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceFacts {
    /// Bytes a second, in order.
    pub bytes_per_second: u64,
    /// Small random reads.
    pub small: Option<SmallReads>,
}

/// How the time that a program waited was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitBasis {
    /// By the kernel's delay accounting.
    DelayAccounting,
    /// By sampling the state of its threads.
    #[default]
    SampledState,
}

/// A file that the program read.
#[derive(Clone, Debug, Default)]
pub struct FileSummary {
    /// Its name at the first access.
    pub path: PathBuf,
    /// The device that it lies on (`st_dev`).
    pub device: u64,
    /// Its size.
    pub bytes: u64,
    /// Bytes of all accesses that were observed.
    pub bytes_read: u64,
    /// Whether it was read by page faults.
    pub is_mapped: bool,
    /// The time that the program waited for storage before it went on here.
    pub waited: Nanos,
    /// How much of it was in memory at first, where the kernel tells.
    pub residency: Option<InitialResidency>,
    /// Its streams, in the order of their beginnings.
    pub streams: Vec<StreamSummary>,
    /// Streams that are not in the table.
    pub streams_left_out: u64,
    /// Its accesses over time.
    pub samples: Vec<AccessSample>,
    /// Accesses that are not in the table.
    pub samples_left_out: u64,
}

/// How much of a file was in memory at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialResidency {
    /// Pages in memory.
    pub pages: u64,
    /// Pages of the file.
    pub pages_all: u64,
    /// Whether that was before the program's start, as for its arguments and its input; else it was
    /// at the poll after its opening, when some may have been read.
    pub is_before: bool,
}

impl InitialResidency {
    /// Whether all of the file was.
    pub(super) fn is_whole(self) -> bool {
        self.pages >= self.pages_all
    }
}

/// An access, or several joined ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessSample {
    /// At the poll before, none of it was read.
    pub from: Nanos,
    /// At this one all of it was.
    pub to: Nanos,
    /// Its first byte.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// The time that the program waited for storage meanwhile.
    pub waited: Nanos,
}

wire! {
    FileSummary {
        path, device, bytes, bytes_read, is_mapped, waited, residency, streams, streams_left_out,
        samples, samples_left_out,
    }
    InitialResidency { pages, pages_all, is_before }
    StreamSummary { pattern, bytes, range, from, to, waited }
    AccessSample { from, to, offset, bytes, waited }
}

impl Wire for Pattern {
    fn put(&self, bytes: &mut Vec<u8>) {
        (*self as u8).put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let number = u8::take(bytes)?;
        Self::ALL.into_iter().find(|&pattern| pattern as u8 == number)
    }
}

impl ProgramSummary {
    /// Looks for walks, on a device with these facts; without any it has no limit.
    pub fn look_for_walks(&mut self, facts: Option<DeviceFacts>) {
        let small = facts.and_then(|facts| facts.small);
        let small = small.filter(|small| small.best > 0 && small.alone > 0);
        self.trees = TreeSummary::of(&self.entries, [self.waited, self.sampled], small);
    }
}

impl FileSummary {
    /// The pattern of most of its bytes.
    #[must_use]
    pub fn pattern(&self) -> Pattern {
        let mut all = Pattern::ALL;
        all.sort_by_key(|&pattern| std::cmp::Reverse(self.bytes_of(pattern)));
        all[0]
    }

    /// Bytes of its streams of `pattern`.
    #[must_use]
    pub fn bytes_of(&self, pattern: Pattern) -> u64 {
        let same = self.streams.iter().filter(|stream| stream.pattern == pattern);
        same.map(|stream| stream.bytes).sum()
    }
}

impl AccessSample {
    /// Continues with `next`, if both are one within `grain`. Whether it did.
    pub(super) fn join(&mut self, next: &Self, grain: Nanos) -> bool {
        let is_alike = (self.waited > Nanos(0)) == (next.waited > Nanos(0));
        let continues = self.offset + self.bytes == next.offset && is_alike;
        let joins = continues && next.to.since(self.from) <= grain;
        if joins {
            (self.to, self.bytes) = (next.to, self.bytes + next.bytes);
            self.waited += next.waited;
        }
        joins
    }
}
