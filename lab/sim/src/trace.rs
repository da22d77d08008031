//! Traces: recorded accesses, read as a stream.
//!
//! ```text
//!   file --unpack--> Input (a window) --Format--> batches of Requests --> pages of 4 KiB
//! ```
//! A [`Trace`] gives [`Request`]s in batches, or one by one as an iterator. Compression is seen by
//! the content. The format is named, or guessed from the content and the name; [`Trace::guess`]
//! tells what was guessed. `write` turns requests into files of other formats.
//!
//! To add a format: write `trace/NAME.rs`, add its line to `formats!` below and a record to the
//! samples of `trace/tests.rs`; if its content tells, add a line to `guess.rs`.
//!
//! # Invariants
//! - Memory does not grow with the length of a trace, nor with what a record claims.
//! - A broken record is an error that names the trace, the record and its byte offset; up to
//!   `skip_bad` of them are passed over and counted. The requests before it are given out first.

mod accesses;
mod blkparse;
mod blktrace;
mod columns;
mod csv;
mod devices;
mod fio;
mod fiu;
mod guess;
mod input;
mod keys;
mod lcs;
mod oracle_general;
mod reader;
mod records;
mod request;
mod scan;
mod srt;
pub mod survey;
mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod unpack;
mod vscsi;
mod words;
pub mod write;

use std::io::{self, Read};

use forerun_core::params::{ParamError, by_name};

use blkparse::EventParams;
pub use guess::NoGuess;
use input::Input;
use reader::Reader;
use records::Fault;
pub use request::{Addresses, BLOCK_BYTES, Facts, Misplaced, Op, REQUEST_BLOCKS_MAX, Request};
use words::Words;

/// The reason why a trace cannot be read further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The system, or the decompressor, refused.
    #[error("{name}: {source} (record {record}, byte {offset})")]
    Read {
        /// The trace.
        name: String,
        /// Records before, counted from 1.
        record: u64,
        /// Bytes before, decompressed.
        offset: u64,
        /// Its message.
        source: io::Error,
    },
    /// A record is not what the format says.
    #[error(
        "{name}: record {record} at byte {offset} is broken: {what}; \
         --skip-bad N passes over N such records, --format names another format"
    )]
    Broken {
        /// The trace.
        name: String,
        /// The record, counted from 1.
        record: u64,
        /// Where it begins, in bytes of what was decompressed.
        offset: u64,
        /// The expected and the actual content.
        what: String,
    },
    /// No format was named, and the trace does not tell.
    #[error("{name}: {why}")]
    Unknown {
        /// The trace.
        name: String,
        /// The apparent content, and the known formats.
        why: NoGuess,
    },
    /// Reads alone were asked for.
    #[error("{name}: it does not say of each request whether it writes: leave out --reads")]
    NoOperations {
        /// The trace.
        name: String,
    },
    /// The named format or its parameter is unknown.
    #[error("--format: {0}")]
    Format(#[from] ParamError),
}

/// Declares the formats: name, line of help, parameters, and the reader that `params` describe.
macro_rules! formats {
    ($params:ident: $($name:literal, $summary:literal, $type:ty => $reader:expr;)+) => {
        /// Every format's name and its one line of help.
        pub const FORMATS: &[(&str, &str)] = &[$(($name, $summary)),+];

        /// The format that `spec` (`NAME:key=value,...`) describes.
        fn make(spec: &str) -> Result<Box<dyn Reader>, ParamError> {
            by_name! { spec, [$($name),+], $params: $($name, $type => Box::new($reader);)+ }
        }
    };
}

formats! { params:
    "keys", "text, a key a line in decimal; lines of * and # are comments", () => keys::Keys;
    "csv", "text in columns, named by a heading or by time=, key=, device=, offset=, size=, op= \
            (a name or a number)", csv::CsvParams => csv::Csv::new(params)?;
    "lis", "text, lines of \"start count ignored request\"; unit=512 or unit=4K bytes",
        tables::Blocks => tables::lis(&params)?;
    "disksim", "text, lines of \"time device block blocks flag\"; blocks of 512 bytes, \
                flag 1 = read", () => tables::disksim();
    "sandrain", "text, lines of \"block count R|W\"; unit=4K bytes",
        tables::Blocks => tables::sandrain(&params)?;
    "spc", "csv of UMass: unit,block,bytes,op,seconds; blocks of 512 bytes", () => tables::spc();
    "msr", "csv of MSR Cambridge: time,host,disk,type,offset,bytes,response", () => tables::msr();
    "alibaba", "csv of Alibaba: device,op,offset,bytes,microseconds", () => tables::alibaba();
    "tencent", "csv of Tencent: seconds,offset,size,op,volume; sectors of 512 bytes, op 0 = read",
        () => tables::tencent();
    "fiu", "text of FIU, lines of \"time pid process sector sectors R|W major minor md5\"",
        () => fiu::Fiu::default();
    "blkparse", "text of blkparse(1); event=Q takes what was asked for, event=C what was completed",
        EventParams => blkparse::Blkparse::new(&params);
    "blktrace", "binary of blktrace(8); event=Q or event=C as of blkparse",
        EventParams => blktrace::Blktrace::new(&params);
    "fio", "text of fio's iolog, versions 2 and 3", () => fio::Fio::default();
    "accesses", "what `forerun trace record` writes of a program; a file is a device",
        () => accesses::Accesses::default();
    "vscsi", "binary of VMware's vscsi traces, versions 1 and 2", () => vscsi::Vscsi::default();
    "srt", "binary of Hewlett-Packard, SRT 1.3", () => srt::Srt::default();
    "oracleGeneral", "binary of libCacheSim: seconds, object, bytes, next use",
        () => oracle_general::OracleGeneral;
    "lcs", "binary of libCacheSim with a header, versions 1 to 8", () => lcs::Lcs::default();
    "u32le", "binary, a key every 4 bytes, low byte first",
        () => Words(|word| u32::from_le_bytes(word).into());
    "u32be", "binary, a key every 4 bytes, high byte first",
        () => Words(|word| u32::from_be_bytes(word).into());
    "i64le", "binary, a key every 8 bytes, low byte first", () => Words(u64::from_le_bytes);
    "i64be", "binary, a key every 8 bytes, high byte first", () => Words(u64::from_be_bytes);
}

/// Refuses a format that is not there or has no such parameter.
///
/// # Errors
/// As said.
pub fn check_format(spec: &str) -> Result<(), ParamError> {
    if spec == AUTO { Ok(()) } else { make(spec).map(drop) }
}

/// A trace that is being read.
pub struct Trace {
    name: String,
    input: Input,
    format: Box<dyn Reader>,
    guess: Option<String>,
    skip_bad: u64,
    skipped: u64,
    ended: bool,
    /// Ended the last batch early; the next call tells.
    error: Option<TraceError>,
    /// The batch of the iterator, and how much of it was given out.
    batch: Vec<Request>,
    given: usize,
}

impl Trace {
    /// The trace in `bytes`, called `name` (its file's name). `format` is `auto` or
    /// `NAME:key=value,...`; up to `skip_bad` broken records are passed over.
    ///
    /// # Errors
    /// The format is unknown or cannot be guessed, or the first bytes do not come.
    pub fn new(
        name: &str,
        bytes: impl Read + Send + 'static,
        format: &str,
        skip_bad: u64,
    ) -> Result<Self, TraceError> {
        let input = Input::new(Box::new(bytes)).map_err(|source| TraceError::Read {
            name: name.into(),
            record: 0,
            offset: 0,
            source,
        })?;
        let mut guess = None;
        let spec = if format == AUTO {
            let (start, is_whole) = input.window();
            let guessed = guess::guess(name, start, is_whole)
                .map_err(|why| TraceError::Unknown { name: name.into(), why })?;
            guess.insert(guessed).as_str()
        } else {
            format
        };
        let format = make(spec)?;
        Ok(Self {
            name: name.into(),
            input,
            format,
            guess,
            skip_bad,
            skipped: 0,
            ended: false,
            error: None,
            batch: Vec::new(),
            given: 0,
        })
    }

    /// The format that was guessed, if none was named.
    #[must_use]
    pub fn guess(&self) -> Option<&str> {
        self.guess.as_deref()
    }

    /// Broken records passed over so far.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The facts about its requests; certain after the first batch.
    #[must_use]
    pub fn facts(&self) -> Facts {
        self.format.facts()
    }

    /// The name of a device of the requests so far, where the trace has names: the path of a file.
    #[must_use]
    pub fn device_name(&self, device: u32) -> Option<&str> {
        self.format.device_name(device)
    }

    /// Puts the next requests into `out`, which is emptied first; false at the end of the trace.
    ///
    /// # Errors
    /// A record is broken, or bytes do not come. The requests before were given out.
    pub fn next_batch(&mut self, out: &mut Vec<Request>) -> Result<bool, TraceError> {
        out.clear();
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        while !self.ended && out.len() < BATCH_REQUESTS {
            match self.format.fill(&mut self.input, out) {
                Ok(()) => self.ended = out.len() < BATCH_REQUESTS,
                Err(Fault::Record { .. }) if self.skipped < self.skip_bad => self.skipped += 1,
                Err(fault) => {
                    self.ended = true;
                    let error = self.error_of(fault);
                    if out.is_empty() {
                        return Err(error);
                    }
                    self.error = Some(error);
                }
            }
        }
        Ok(!out.is_empty())
    }

    fn error_of(&self, fault: Fault) -> TraceError {
        let name = self.name.clone();
        match fault {
            Fault::Record { record, offset, what } => {
                TraceError::Broken { name, record, offset, what }
            }
            Fault::Read(source) => {
                let (record, offset) = (self.input.records(), self.input.offset());
                TraceError::Read { name, record, offset, source }
            }
        }
    }

    fn next_of_batch(&mut self) -> Result<Option<Request>, TraceError> {
        if self.given == self.batch.len() {
            let mut batch = std::mem::take(&mut self.batch);
            let more = self.next_batch(&mut batch);
            (self.batch, self.given) = (batch, 0);
            if !more? {
                return Ok(None);
            }
        }
        self.given += 1;
        Ok(Some(self.batch[self.given - 1]))
    }
}

impl Iterator for Trace {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_of_batch().transpose()
    }
}

/// The format that stands for a guess.
pub const AUTO: &str = "auto";
/// Requests of a batch: few enough to stay in a core's cache.
pub const BATCH_REQUESTS: usize = 4096;
