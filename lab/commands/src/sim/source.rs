//! Sources of accesses: a file, stdin, a workload, or what a caller has.
//!
//! ```text
//!   requests()   batches, with times and operations           trace info, trace convert
//!   keys()       one page after the other                     replacement alone
//!   survey()     how many, how many distinct, the largest     shares, and the length of a file
//!   workload()   reads of a file                              readahead and devices
//! ```
//! Where a command is called as a function (`call`), a trace may also be the caller's.
//! To readahead, the keys of a trace are pages of one file.

mod requests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use forerun_console::failure::note;
use forerun_console::{names, ranges};
use forerun_core::params::Share;
use forerun_core::units::Nanos;
use forerun_sim::replay::{Accesses, Full, Numbering};
use forerun_sim::trace::{
    self, AUTO, Addresses, BATCH_REQUESTS, Facts, Op, Request, Trace, TraceError,
};
use forerun_sim::workload::{self, Access, Reader, Workload};
use indicatif::ProgressBar;

use crate::given::{Columns, Control, Input};
use crate::specs::PAGE_BYTES;

use requests::Origin;
pub(crate) use requests::Requests;

/// One trace.
pub(crate) enum Source {
    /// Made as it is read.
    Workload(String),
    /// Read.
    File(PathBuf),
    /// Read once.
    Stdin,
    /// Of a caller, and no name alone.
    Given(Input),
}

/// How traces are read.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Reading {
    /// The traces' format: auto, or one of `sim --list-formats` such as lis:unit=512
    #[arg(long, default_value = AUTO)]
    pub(crate) format: String,
    /// Pass over so many broken records of each trace
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) skip_bad: u64,
    /// Stop after so many accesses of each trace
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Leave out what writes: hits are those of a cache that writes pass by. A trace that does not
    /// say what writes is refused
    #[arg(long)]
    reads: bool,
    /// Where the command is called as a function.
    #[arg(skip)]
    control: Option<Control>,
}

impl Reading {
    /// The same under `control`: nothing is printed, and readings end early once that stops.
    pub(crate) fn controlled(&self, control: &Control) -> Self {
        Self { control: Some(control.clone()), ..self.clone() }
    }

    /// Whether a caller controls the command.
    pub(crate) fn is_controlled(&self) -> bool {
        self.control.is_some()
    }

    /// `bar`, shown to the caller where one controls the command.
    pub(crate) fn shown(&self, bar: ProgressBar) -> ProgressBar {
        match &self.control {
            Some(control) => control.follow(bar),
            None => bar,
        }
    }

    /// Refuses an unknown format.
    pub(crate) fn check(&self) -> Result<()> {
        trace::check_format(&self.format)
            .map_err(|error| names::refused("--format", &error, names::FORMATS))
    }

    /// Accesses of each trace.
    fn accesses_max(&self) -> u64 {
        self.limit.unwrap_or(u64::MAX)
    }
}

/// Pages, one after the other, some at a time.
pub(crate) struct Keys {
    requests: Requests,
    /// Whether sizes are wanted, and whether the requests have some.
    sizes: bool,
    is_sized: bool,
    batch: Vec<Request>,
    /// Requests of the batch that were sent whole, and pages of the next one.
    sent: usize,
    pages_sent: u32,
}

impl Keys {
    /// Appends the next pages to `out`, a bounded number; false when there are no more.
    pub(crate) fn more(&mut self, out: &mut Accesses) -> Result<bool, TraceError> {
        if self.sent == self.batch.len() {
            self.sent = 0;
            if !self.requests.next_batch(&mut self.batch)? {
                return Ok(false);
            }
            self.is_sized = self.sizes && self.requests.facts().sizes;
        }
        let most = out.keys.len() + KEYS_AT_ONCE;
        while let Some(request) = self.batch.get(self.sent)
            && out.keys.len() < most
        {
            if request.count == 1 {
                out.keys.push(request.first);
                if self.is_sized {
                    out.bytes.push(request.bytes);
                }
                self.sent += 1;
                continue;
            }
            let left = request.count - self.pages_sent;
            let room = u32::try_from(most - out.keys.len()).expect("at most `KEYS_AT_ONCE`");
            let pages = self.pages_sent..self.pages_sent + left.min(room);
            out.keys.extend(pages.clone().map(|page| request.first + u64::from(page)));
            if self.is_sized {
                out.bytes.extend(pages.map(|page| request.page_bytes(page)));
            }
            if left > room {
                self.pages_sent += room;
            } else {
                (self.sent, self.pages_sent) = (self.sent + 1, 0);
            }
        }
        Ok(true)
    }
}

/// Pages that are sent at once: a request may have very many.
const KEYS_AT_ONCE: usize = BATCH_REQUESTS;

/// The counts of a whole trace.
pub(crate) struct Survey {
    /// Pages requested, of the sample.
    pub(crate) accesses: u64,
    /// Distinct pages.
    pub(crate) unique: u64,
    /// The page after the largest.
    pub(crate) end: u64,
}

/// The distinct pages need more than the memory that may be taken.
pub(crate) struct TooMany {
    /// Bytes for those so far, and one more.
    pub(crate) bytes: u64,
    /// Those so far.
    pub(crate) keys: u32,
}

/// A workload that reads a trace, and the error that ended it early, if one did.
pub(crate) struct Timed {
    pub(crate) workload: Workload,
    pub(crate) broken: Arc<Mutex<Option<TraceError>>>,
}

impl Source {
    /// The traces that `texts` name: of a workload with ranges, one for each value.
    pub(crate) fn all(texts: &[String]) -> Result<Vec<Self>> {
        let mut sources = Vec::new();
        for text in texts {
            match text.split_once(',') {
                Some((name, pairs)) if name.starts_with(workload::PREFIX) => {
                    let refused = |error| names::refused(text, &error, names::WORKLOADS);
                    let all = ranges::expand(&format!("{name},"), pairs, workload::make);
                    for one in all.map_err(refused)? {
                        sources.push(Self::new(&one)?);
                    }
                }
                _ => sources.push(Self::new(text)?),
            }
        }
        Ok(sources)
    }

    /// What its contents depend on: the name, and of a file how long it is and since when.
    pub(crate) fn identity(&self) -> String {
        let found = match self {
            Self::File(path) => path.metadata().ok(),
            Self::Workload(_) | Self::Stdin | Self::Given(_) => None,
        };
        let file = found.map(|it| (it.len(), it.mtime(), it.mtime_nsec()));
        format!("{} {file:?}", self.name())
    }

    /// The trace that `text` names.
    pub(crate) fn new(text: &str) -> Result<Self> {
        if text == "-" {
            return Ok(Self::Stdin);
        }
        if text.starts_with(workload::PREFIX) {
            workload::make(text).map_err(|error| names::refused(text, &error, names::WORKLOADS))?;
            return Ok(Self::Workload(text.to_owned()));
        }
        Ok(Self::File(text.into()))
    }

    /// Its name in reports.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Workload(text) => text.clone(),
            Self::File(path) => path.display().to_string(),
            Self::Stdin => "-".to_owned(),
            Self::Given(input) => input.name().to_owned(),
        }
    }

    /// Its name in titles: without the folders.
    pub(crate) fn title(&self) -> String {
        let name = self.name();
        match self {
            Self::Workload(_) => name,
            _ => match Path::new(&name).file_name() {
                Some(last) => last.to_string_lossy().into_owned(),
                None => name,
            },
        }
    }

    /// Whether a second reading gives the same again.
    pub(crate) fn can_be_read_again(&self) -> bool {
        match self {
            Self::Workload(_) | Self::Given(_) => true,
            // A missing file is an error when it is opened.
            Self::File(path) => path.metadata().map_or(true, |found| !is_stream(&found)),
            Self::Stdin => false,
        }
    }

    /// Prints the guessed format on stderr.
    pub(crate) fn tell_guess(&self, reading: &Reading) -> Result<()> {
        if reading.is_controlled() {
            return Ok(());
        }
        if let (Self::File(_), true) = (self, self.can_be_read_again()) {
            tell_guess(&self.name(), &self.open(reading, &ProgressBar::hidden())?);
        }
        Ok(())
    }

    /// Its requests; of the last one as many pages as `reading.limit` allows.
    pub(crate) fn requests(&self, reading: &Reading) -> Result<Requests> {
        self.requests_told(reading, &ProgressBar::hidden())
    }

    /// The same; `bar` shows how much of a file was read.
    fn requests_told(&self, reading: &Reading, bar: &ProgressBar) -> Result<Requests> {
        let from = match self {
            Self::Workload(text) => {
                Origin::Made(Box::new(requests_in_time(workload_of(text))), WORKLOADS)
            }
            Self::Given(Input::Columns { columns, .. }) => {
                bar.set_length(columns.pages.len() as u64);
                let (bar, facts) = (bar.clone(), columns.facts());
                let counted = columns_of(columns).inspect(move |_| bar.inc(1));
                Origin::Made(Box::new(counted), facts)
            }
            _ => {
                let trace = self.open(reading, bar)?;
                if !self.can_be_read_again() {
                    tell_guess(&self.name(), &trace);
                }
                Origin::Trace(Box::new(trace))
            }
        };
        Ok(Requests::new(from, self.name(), reading))
    }

    /// Its pages, at most `reading.limit`, with their `sizes` if there are some; `bar` shows how
    /// much of a file was read.
    pub(crate) fn keys(&self, reading: &Reading, sizes: bool, bar: &ProgressBar) -> Result<Keys> {
        let requests = self.requests_told(reading, bar)?;
        let (batch, is_sized) = (Vec::new(), false);
        Ok(Keys { requests, sizes, is_sized, batch, sent: 0, pages_sent: 0 })
    }

    /// A first reading. Follows `sample`, in `memory` bytes.
    pub(crate) fn survey(
        &self,
        reading: &Reading,
        memory: u64,
        sample: Share,
        bar: &ProgressBar,
    ) -> Result<Result<Survey, TooMany>> {
        let (mut numbering, mut end, mut accesses) = (Numbering::default(), 0, 0);
        let (mut keys, mut numbers) = (self.keys(reading, false, bar)?, Vec::new());
        let mut batch = Accesses::default();
        while keys.more(&mut batch)? {
            end = batch.keys.iter().fold(end, |end, key| key.saturating_add(1).max(end));
            batch.keep_sample(sample);
            accesses += batch.keys.len() as u64;
            if let Err(Full) = numbering.number_all(&batch.keys, memory, &mut numbers) {
                let bytes = numbering.bytes().saturating_mul(2);
                return Ok(Err(TooMany { bytes, keys: numbering.len() }));
            }
            batch.clear();
            numbers.clear();
        }
        let unique = u64::from(numbering.len()) * 1_000_000 / u64::from(sample.ppm);
        Ok(Ok(Survey { accesses, unique, end }))
    }

    /// Its reads. A trace becomes one reader of one file of `end` pages.
    pub(crate) fn workload(&self, reading: &Reading, end: u64) -> Result<Timed> {
        let broken = Arc::new(Mutex::new(None));
        if let Self::Workload(text) = self {
            let workload = limited(workload_of(text), reading);
            return Ok(Timed { workload, broken });
        }
        let page = u64::from(PAGE_BYTES);
        if end > FILE_PAGES_MAX {
            bail!(
                "{}: key {} is too large to be a page of a file: readahead needs block numbers; \
                 of several files or devices `forerun replay TRACE --device MODEL` reads each",
                self.name(),
                end - 1
            );
        }
        let file_bytes = end * page;
        let slot = Arc::clone(&broken);
        let mut requests: Box<dyn Iterator<Item = Result<Request, TraceError>> + Send> = match self
        {
            Self::Given(Input::Columns { columns, .. }) => Box::new(columns_of(columns).map(Ok)),
            _ => Box::new(self.open(reading, &ProgressBar::hidden())?),
        };
        let (reads, name) = (reading.reads, self.name());
        let told = move |request| if reads { requests::told(request, &name) } else { Ok(request) };
        let reads = std::iter::from_fn(move || match requests.next()?.and_then(&told) {
            Ok(Request { first, count, op, .. }) => {
                let bytes = u64::from(count) * page;
                let bytes = u32::try_from(bytes).expect("requests are at most 1 GiB");
                let (handle, file, offset) = (0, 0, first * page);
                let (not_before, think) = (Nanos(0), Nanos(0));
                Some(Access { handle, file, offset, bytes, not_before, think, op })
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
        Ok(Timed { workload: limited(workload, reading), broken })
    }

    fn open(&self, reading: &Reading, bar: &ProgressBar) -> Result<Trace> {
        let name = self.name();
        let bytes: Box<dyn Read + Send> = match self {
            Self::File(path) => {
                let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
                // A pipe is as long as it is.
                let bytes = file.metadata().map_or(0, |found| found.len());
                bar.set_length(bytes);
                Box::new(bar.wrap_read(file))
            }
            Self::Stdin => Box::new(bar.wrap_read(io::stdin())),
            Self::Given(Input::Opened { open, .. }) => {
                let bytes = open().with_context(|| format!("cannot open {name}"))?;
                Box::new(bar.wrap_read(bytes))
            }
            Self::Workload(_) | Self::Given(_) => unreachable!("it has no bytes"),
        };
        Ok(Trace::new(&name, bytes, &reading.format, reading.skip_bad)?)
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

fn workload_of(text: &str) -> Workload {
    workload::make(text).expect("checked when it was named")
}

/// The accesses of the readers, in the order of a run in which only their own computation takes
/// time.
fn requests_in_time(workload: Workload) -> impl Iterator<Item = Request> + Send {
    let (mut readers, mut now) = (workload.readers, Nanos(0));
    let first = readers.iter_mut().enumerate().filter_map(|(index, reader)| {
        reader.next().map(|access| ((access.not_before, index), (index, access)))
    });
    // By time, then by order.
    let mut due: BTreeMap<(Nanos, usize), (usize, Access)> = first.collect();
    let mut order = readers.len();
    std::iter::from_fn(move || {
        let ((at, _), (index, access)) = due.pop_first()?;
        now = now.max(at);
        if let Some(after) = readers[index].next() {
            order += 1;
            due.insert((after.not_before.max(now + access.think), order), (index, after));
        }
        let request = Request::blocks(access.file, access.offset, access.bytes.into());
        let request = request.expect("workloads bound their files").expect("reads have bytes");
        Some(request.at(now, access.op))
    })
}

/// The first page of an access, and the one after its last.
fn pages(access: &Access) -> (u64, u64) {
    let page = u64::from(PAGE_BYTES);
    let end = access.offset + u64::from(access.bytes);
    (access.offset / page, end.div_ceil(page))
}

fn is_stopped(control: Option<&Control>) -> bool {
    control.is_some_and(Control::is_stopped)
}

fn columns_of(columns: &Arc<Columns>) -> impl Iterator<Item = Request> + Send + use<> {
    let columns = Arc::clone(columns);
    (0..columns.pages.len()).filter_map(move |at| columns.request(at))
}

/// `workload` with readers that stop after as many pages in total as `reading` allows, or with its
/// control.
fn limited(mut workload: Workload, reading: &Reading) -> Workload {
    let left = Arc::new(AtomicU64::new(reading.accesses_max()));
    let readers = std::mem::take(&mut workload.readers);
    let stopping = |reader| stopping(reader, &left, reading);
    workload.readers = readers.into_iter().map(stopping).collect();
    workload
}

fn stopping(mut reader: Reader, left: &Arc<AtomicU64>, reading: &Reading) -> Reader {
    let (left, control, reads) = (Arc::clone(left), reading.control.clone(), reading.reads);
    Reader::new(std::iter::from_fn(move || {
        // One thread drives all readers, so the count is exact.
        let before = left.load(Ordering::Relaxed);
        let ends = before == 0 || is_stopped(control.as_ref());
        let mut next = || reader.find(|access| !reads || access.op != Op::Write);
        let mut access = if ends { return None } else { next()? };
        let (first, end) = pages(&access);
        let taken = (end - first).min(before);
        left.store(before - taken, Ordering::Relaxed);
        let bytes = (first + taken) * u64::from(PAGE_BYTES) - access.offset;
        access.bytes = access.bytes.min(u32::try_from(bytes).unwrap_or(u32::MAX));
        Some(access)
    }))
}

/// All is known of workloads.
const WORKLOADS: Facts =
    Facts { addresses: Addresses::Blocks, times: true, ops: true, sizes: true };
/// The pages of the largest file that a trace may stand for: 2^50 bytes.
const FILE_PAGES_MAX: u64 = 1 << 38;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use forerun_testkit::Scratch;

    use super::*;

    fn reading(limit: u64) -> Reading {
        Reading {
            format: AUTO.into(),
            skip_bad: 0,
            limit: Some(limit),
            reads: false,
            control: None,
        }
    }

    fn keys(text: &str, limit: u64) -> Vec<u64> {
        let source = Source::new(text).expect("a workload");
        let keys = source.keys(&reading(limit), true, &ProgressBar::hidden());
        let (mut keys, mut all) = (keys.unwrap(), Accesses::default());
        while keys.more(&mut all).expect("no trace") {}
        assert_eq!(all.keys.len(), all.bytes.len(), "a workload has sizes");
        all.keys
    }

    #[test]
    fn a_page_that_is_read_in_part_has_the_size_of_that_part() {
        let source = Source::new("workload:streams,n=1,each=10K,request=6K").unwrap();
        let keys = source.keys(&reading(u64::MAX), true, &ProgressBar::hidden());
        let (mut keys, mut all) = (keys.unwrap(), Accesses::default());
        while keys.more(&mut all).expect("no trace") {}
        assert_eq!((all.keys, all.bytes), (vec![0, 1, 1, 2], vec![4_096, 2_048, 2_048, 2_048]));
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
        let files: Vec<u64> = all.iter().map(|key| key >> 44).collect();
        let mut first = files[..3].to_vec();
        first.sort_unstable();
        assert_eq!(first.len(), 3);
        assert_eq!(all.len(), 30);
        assert_eq!(keys("workload:thrash,streams=3,each=40K", u64::MAX), all);
    }

    #[test]
    fn reads_alone_are_those_that_a_trace_calls_so() {
        let text = "0,Read,0,4096\n1,Write,8192,4096\n2,Write,4096,8192\n3,Read,8192,8192\n";
        let scratch = Scratch::new("reads");
        let trace = |name, heading: &str| scratch.file(name, format!("{heading}\n{text}"));
        let told = trace("told.csv", "time,op,offset,size");
        let untold = trace("untold.csv", "time,other,offset,size");
        let read = |trace: &Path, reads, limit| -> Result<(Vec<u64>, Vec<u64>)> {
            let source = Source::File(trace.to_owned());
            let reading = Reading { reads, ..reading(limit) };
            let mut keys = source.keys(&reading, false, &ProgressBar::hidden())?;
            let mut all = Accesses::default();
            while keys.more(&mut all)? {}
            let Timed { workload, broken } = source.workload(&reading, 4)?;
            let pages_of = |access: Access| pages(&access).0..pages(&access).1;
            let on_device = workload.readers.into_iter().flatten().flat_map(pages_of).collect();
            let broken = broken.lock().unwrap().take();
            broken.map_or(Ok((all.keys, on_device)), |error| Err(error.into()))
        };
        #[rustfmt::skip]
        let rows: [(bool, u64, &[u64]); 4] = [ // reads alone, limit, pages
            (false, u64::MAX, &[0, 2, 1, 2, 2, 3]),
            (true,  u64::MAX, &[0, 2, 3]),
            (true,  2,        &[0, 2]),
            (true,  1,        &[0]),
        ];
        for (reads, limit, expected) in rows {
            let (keys, on_device) = read(&told, reads, limit).unwrap();
            assert_eq!((&keys[..], &on_device[..]), (expected, expected), "{reads} {limit}");
        }
        assert_eq!(read(&untold, false, u64::MAX).unwrap().0, [0, 2, 1, 2, 2, 3]);
        let refused = read(&untold, true, u64::MAX).unwrap_err().to_string();
        assert!(refused.contains("does not say of each request whether it writes"), "{refused}");
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
        let (whole, bar) = (Share::percent(100), ProgressBar::hidden());
        let survey = source.survey(&reading(7), 1 << 20, whole, &bar).unwrap().ok().unwrap();
        assert_eq!(survey.unique, 7);
    }
}
