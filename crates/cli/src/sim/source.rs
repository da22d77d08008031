//! Where accesses come from: a file, stdin, or a workload.
//!
//! ```text
//!   keys()       one page after the other                     replacement alone
//!   survey()     how many, how many distinct, the largest     shares, and the length of a file
//!   workload()   reads of a file                              readahead and devices
//! ```
//! To readahead, the keys of a trace are pages of one file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use forerun_core::units::Nanos;
use forerun_sim::replay::Numbering;
use forerun_sim::trace::{Request, Trace, TraceError};
use forerun_sim::workload::{self, Access, Reader, Workload};

use crate::failure::{note, usage};
use crate::specs::PAGE_BYTES;

/// One trace.
pub(super) enum Source {
    /// Made as it is read.
    Workload(String),
    /// Read.
    File(PathBuf),
    /// Read once.
    Stdin,
}

/// How traces are read.
pub(super) struct Reading {
    /// Their format.
    pub(super) format: String,
    /// Broken records that are passed over.
    pub(super) skip_bad: u64,
    /// Accesses of each.
    pub(super) limit: u64,
}

/// Pages, one after the other.
pub(super) type Keys = Box<dyn Iterator<Item = Result<u64, TraceError>>>;

/// What a whole trace holds.
pub(super) struct Survey {
    /// Distinct pages.
    pub(super) unique: u64,
    /// The page after the largest.
    pub(super) end: u64,
}

/// A workload that reads a trace, and the error that ended it early, if one did.
pub(super) struct Timed {
    pub(super) workload: Workload,
    pub(super) broken: Arc<Mutex<Option<TraceError>>>,
}

impl Source {
    /// The trace that `text` names.
    pub(super) fn new(text: &str) -> Result<Self> {
        if text == "-" {
            return Ok(Self::Stdin);
        }
        if text.starts_with(workload::PREFIX) {
            workload::make(text).map_err(|error| usage(format!("{text}: {error}")))?;
            return Ok(Self::Workload(text.to_owned()));
        }
        Ok(Self::File(text.into()))
    }

    /// Its name in reports.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Workload(text) => text.clone(),
            Self::File(path) => path.display().to_string(),
            Self::Stdin => "-".to_owned(),
        }
    }

    /// Whether a second reading gives the same again.
    pub(super) fn can_be_read_again(&self) -> bool {
        match self {
            Self::Workload(_) => true,
            // What is not there is told when it is opened.
            Self::File(path) => path.metadata().map_or(true, |found| !is_stream(&found)),
            Self::Stdin => false,
        }
    }

    /// What the format was taken for, on stderr, if it was guessed.
    pub(super) fn tell_guess(&self, reading: &Reading) -> Result<()> {
        if let (Self::File(_), true) = (self, self.can_be_read_again()) {
            tell_guess(&self.name(), &self.open(reading)?);
        }
        Ok(())
    }

    /// Its pages, at most `reading.limit`.
    pub(super) fn keys(&self, reading: &Reading) -> Result<Keys> {
        let limit = usize::try_from(reading.limit).unwrap_or(usize::MAX);
        if let Self::Workload(text) = self {
            return Ok(Box::new(pages_in_time(made(text)).map(Ok).take(limit)));
        }
        let trace = self.open(reading)?;
        if !self.can_be_read_again() {
            tell_guess(&self.name(), &trace);
        }
        let pages = Told { name: self.name(), trace }.flat_map(|request| {
            match request {
                Ok(Request { first, count }) => (0..count, Ok(first)),
                Err(error) => (0..1, Err(error)),
            }
            .pages()
        });
        Ok(Box::new(pages.take(limit)))
    }

    /// A first reading.
    pub(super) fn survey(&self, reading: &Reading) -> Result<Survey> {
        let (mut numbering, mut end) = (Numbering::default(), 0);
        for key in self.keys(reading)? {
            let key = key?;
            numbering.number(key);
            end = end.max(key.saturating_add(1));
        }
        Ok(Survey { unique: numbering.len(), end })
    }

    /// Its reads. A trace becomes one reader of one file of `end` pages.
    pub(super) fn workload(&self, reading: &Reading, end: u64) -> Result<Timed> {
        let broken = Arc::new(Mutex::new(None));
        if let Self::Workload(text) = self {
            let workload = limited(made(text), reading.limit);
            return Ok(Timed { workload, broken });
        }
        let page = u64::from(PAGE_BYTES);
        if end > FILE_PAGES_MAX {
            bail!(
                "{}: key {} is too large to be a page of a file: readahead needs block numbers",
                self.name(),
                end - 1
            );
        }
        let file_bytes = end * page;
        let slot = Arc::clone(&broken);
        let mut trace = Told { name: self.name(), trace: self.open(reading)? };
        let reads = std::iter::from_fn(move || match trace.next()? {
            Ok(Request { first, count }) => {
                let bytes = u32::try_from(count * page).expect("requests are at most 1 GiB");
                let (offset, at_once) = (first * page, Nanos(0));
                let (handle, file) = (0, 0);
                Some(Access { handle, file, offset, bytes, not_before: at_once, think: at_once })
            }
            Err(error) => {
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                None
            }
        });
        let workload = Workload {
            name: "trace",
            params: Vec::new(),
            title: self.name(),
            files: vec![file_bytes],
            handles: vec![0],
            readers: vec![Reader::new(reads)],
            streams: Vec::new(),
            bytes_wanted: 0,
        };
        Ok(Timed { workload: limited(workload, reading.limit), broken })
    }

    fn open(&self, reading: &Reading) -> Result<Trace> {
        let name = self.name();
        let bytes: Box<dyn Read + Send> = match self {
            Self::File(path) => {
                Box::new(File::open(path).with_context(|| format!("cannot open {name}"))?)
            }
            Self::Stdin => Box::new(io::stdin()),
            Self::Workload(_) => unreachable!("a workload is not opened"),
        };
        Ok(Trace::new(&name, bytes, &reading.format, reading.skip_bad)?)
    }
}

/// A trace that tells at its end how many broken records it passed over.
struct Told {
    name: String,
    trace: Trace,
}

impl Iterator for Told {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.trace.next();
        if next.is_none() && self.trace.skipped() > 0 {
            note(&format!("{}: {} broken records passed over", self.name, self.trace.skipped()));
        }
        next
    }
}

/// Pages of a request, or the error in its place.
trait Pages {
    fn pages(self) -> impl Iterator<Item = Result<u64, TraceError>>;
}

impl Pages for (std::ops::Range<u64>, Result<u64, TraceError>) {
    fn pages(self) -> impl Iterator<Item = Result<u64, TraceError>> {
        let (range, first) = self;
        let (first, mut error) = match first {
            Ok(first) => (first, None),
            Err(error) => (0, Some(error)),
        };
        range.map(move |page| error.take().map_or(Ok(first + page), Err))
    }
}

fn tell_guess(name: &str, trace: &Trace) {
    if let Some(guess) = trace.guess() {
        note(&format!("{name}: read as {guess} (--format names another)"));
    }
}

fn is_stream(found: &std::fs::Metadata) -> bool {
    !found.is_file() && !found.is_dir()
}

fn made(text: &str) -> Workload {
    workload::make(text).expect("checked when it was named")
}

/// The pages that the readers ask for, in the order in which they would if nothing took time but
/// their own thinking.
fn pages_in_time(mut workload: Workload) -> impl Iterator<Item = u64> {
    let mut heap = BinaryHeap::new();
    let mut next = vec![None; workload.readers.len()];
    let mut order = 0_u64;
    let mut now = Nanos(0);
    for (index, reader) in workload.readers.iter_mut().enumerate() {
        next[index] = reader.next();
        if let Some(access) = next[index] {
            heap.push(Reverse((access.not_before, index as u64, index)));
            order = index as u64 + 1;
        }
    }
    std::iter::from_fn(move || {
        let Reverse((at, _, index)) = heap.pop()?;
        now = now.max(at);
        let access: Access = next[index].take()?;
        next[index] = workload.readers[index].next();
        if let Some(after) = next[index] {
            order += 1;
            heap.push(Reverse((after.not_before.max(now + access.think), order, index)));
        }
        let (first, end) = pages(&access);
        let file = u64::from(access.file) << FILE_SHIFT;
        Some((first..end).map(move |page| file | page))
    })
    .flatten()
}

/// The first page of an access, and the one after its last.
fn pages(access: &Access) -> (u64, u64) {
    let page = u64::from(PAGE_BYTES);
    let end = access.offset + u64::from(access.bytes);
    (access.offset / page, end.div_ceil(page))
}

/// `workload`, whose readers stop when they have asked for `limit` pages together.
fn limited(mut workload: Workload, limit: u64) -> Workload {
    let left = Arc::new(AtomicU64::new(limit));
    let readers = std::mem::take(&mut workload.readers);
    workload.readers = readers.into_iter().map(|reader| stopping(reader, &left)).collect();
    workload
}

fn stopping(mut reader: Reader, left: &Arc<AtomicU64>) -> Reader {
    let left = Arc::clone(left);
    Reader::new(std::iter::from_fn(move || {
        // One thread asks all readers, so that nothing comes between.
        let before = left.load(Ordering::Relaxed);
        let mut access = if before > 0 { reader.next()? } else { return None };
        let (first, end) = pages(&access);
        let taken = (end - first).min(before);
        left.store(before - taken, Ordering::Relaxed);
        let bytes = (first + taken) * u64::from(PAGE_BYTES) - access.offset;
        access.bytes = access.bytes.min(u32::try_from(bytes).unwrap_or(u32::MAX));
        Some(access)
    }))
}

/// Files are at most 2^44 pages, as workloads bound their sizes.
const FILE_SHIFT: u32 = 44;
/// The pages of the largest file that a trace may stand for: 2^50 bytes.
const FILE_PAGES_MAX: u64 = 1 << 38;

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(limit: u64) -> Reading {
        Reading { format: "auto".into(), skip_bad: 0, limit }
    }

    fn keys(text: &str, limit: u64) -> Vec<u64> {
        let source = Source::new(text).expect("a workload");
        source.keys(&reading(limit)).unwrap().map(|key| key.expect("no trace")).collect()
    }

    #[test]
    fn a_workload_is_its_pages_in_order() {
        let one = keys("workload:streams,n=1,each=10K,request=6K", u64::MAX);
        assert_eq!(one, [0, 1, 1, 2]);
        let turns = keys("workload:streams,n=2,each=8K,order=alternate", u64::MAX);
        assert_eq!(turns, [0, 2, 1, 3]);
        assert_eq!(keys("workload:streams,n=1,each=10K,request=6K", 3), [0, 1, 1]);
    }

    #[test]
    fn paced_readers_take_turns_by_their_time() {
        let all = keys("workload:thrash,streams=3,each=40K", u64::MAX);
        let files: Vec<u64> = all.iter().map(|key| key >> FILE_SHIFT).collect();
        let mut first = files[..3].to_vec();
        first.sort_unstable();
        assert_eq!(first.len(), 3);
        assert_eq!(all.len(), 30);
        assert_eq!(keys("workload:thrash,streams=3,each=40K", u64::MAX), all);
    }

    #[test]
    fn a_limit_counts_pages_over_all_readers() {
        let source = Source::new("workload:thrash,streams=5,each=40K").unwrap();
        let timed = source.workload(&reading(7), 0).unwrap();
        let total: u64 = timed
            .workload
            .readers
            .into_iter()
            .flatten()
            .map(|access| {
                let (first, end) = pages(&access);
                end - first
            })
            .sum();
        assert_eq!(total, 7);
        let survey = source.survey(&reading(7)).unwrap();
        assert_eq!(survey.unique, 7);
    }
}
