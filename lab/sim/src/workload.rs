//! Workloads made from their names: readers, their reads, and when these come, without a trace.
//!
//! ```text
//!   workload:NAME,key=value,...
//!     --> files, handles (each on one file), readers (each one read after the other)
//! ```
//! A [`Reader`] is an iterator of [`Access`]es; the driver schedules each by two rules: not before
//! its own time, and after the reader's last read and the computation that follows it. Readers
//! are independent.
//!
//! To add a workload: write `workload/NAME.rs` and add its line to `workloads!` below.
//!
//! # Invariants
//! - Memory grows with the number of streams, never with the length of the workload; `mail` alone
//!   holds its requests, which are bounded.
//! - Same text, same accesses, on every machine.
//! - Every access lies inside its file, and their bytes sum up to `bytes_wanted`.

mod interleave;
mod span;

use forerun_core::params::{self, ParamError, Params};
use forerun_core::units::Nanos;

use crate::trace::Op;

/// One read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The handle that reads.
    pub handle: u32,
    /// The file that the handle is open on.
    pub file: u32,
    /// The first byte.
    pub offset: u64,
    /// Bytes; at least 1.
    pub bytes: u32,
    /// The earliest time of the read; 0: at once.
    pub not_before: Nanos,
    /// The time that the reader computes on the bytes.
    pub think: Nanos,
    /// The operation. A cache fetches the pages for both.
    pub op: Op,
}

impl Access {
    /// A read of the first file through the first handle, by a reader that does nothing else.
    pub(crate) fn read(offset: u64, bytes: u32) -> Self {
        let (not_before, think) = (Nanos(0), Nanos(0));
        Self { handle: 0, file: 0, offset, bytes, not_before, think, op: Op::Read }
    }
}

/// A reader: one read after the other.
pub struct Reader(Box<dyn Iterator<Item = Access> + Send>);

/// A workload made from its text.
#[derive(Default)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// Its parameters as they are in force.
    pub params: Vec<(&'static str, String)>,
    /// A description in one line.
    pub title: String,
    /// The size of each file in bytes, by its number.
    pub files: Vec<u64>,
    /// The file of each handle, by the handle's number.
    pub handles: Vec<u32>,
    /// The readers, each one read after the other.
    pub readers: Vec<Reader>,
    /// The sequential streams among the reads: what an oracle may know.
    pub streams: Vec<Stream>,
    /// Bytes of all reads of all readers.
    pub bytes_wanted: u64,
}

/// Bytes of one file that are read from the first to the last, in one piece or in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The file, by its number.
    pub file: u32,
    /// The first byte.
    pub start: u64,
    /// How many are read.
    pub bytes: u64,
    /// Bytes of a piece; the last one is what is left.
    pub piece: u64,
    /// Bytes from the start of a piece to the start of the next.
    pub every: u64,
}

impl Stream {
    /// A stream without gaps.
    #[must_use]
    pub const fn whole(file: u32, start: u64, bytes: u64) -> Self {
        Self { file, start, bytes, piece: bytes, every: bytes }
    }
}

impl Reader {
    /// A reader that does what `accesses` say.
    #[must_use]
    pub fn new(accesses: impl Iterator<Item = Access> + Send + 'static) -> Self {
        Self(Box::new(accesses))
    }
}

impl Iterator for Reader {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        self.0.next()
    }
}

/// A workload's entry in the list.
trait Entry: Params {
    /// The name in reports and on the command line. Never changed once released.
    const NAME: &'static str;
    /// One line of help.
    const SUMMARY: &'static str;
    /// Checks the parameters against each other and makes the workload, still without its name
    /// and parameters.
    fn parts(&self) -> Result<Workload, ParamError>;
}

macro_rules! workloads {
    ($($module:ident::$params:ident),+ $(,)?) => {
        $(pub mod $module;)+

        /// Every workload's name and its one line of help, in the order of reports.
        pub const NAMES: &[(&str, &str)] = &[
            $((<$module::$params as Entry>::NAME, <$module::$params as Entry>::SUMMARY)),+
        ];

        /// The workload that `text` (`NAME[,key=value...]`, with or without `workload:` before
        /// it) describes.
        ///
        /// # Errors
        /// The name or a parameter is unknown, a value does not parse or is out of its bounds.
        pub fn make(text: &str) -> Result<Workload, ParamError> {
            let text = text.strip_prefix(PREFIX).unwrap_or(text);
            let (name, pairs) = text.split_once(',').unwrap_or((text, ""));
            $(if name == <$module::$params as Entry>::NAME {
                return build::<$module::$params>(pairs);
            })+
            let known = NAMES.iter().map(|(name, _)| *name).collect();
            Err(ParamError::UnknownName { name: name.into(), known })
        }
    };
}

workloads! {
    streams::Streams,
    disturb::Disturb,
    thrash::Thrash,
    compute::Compute,
    backward::Backward,
    stride::Stride,
    parquet::Parquet,
    random::Random,
    mail::Mail,
}

fn build<P: Entry>(pairs: &str) -> Result<Workload, ParamError> {
    let mut given = P::default();
    params::apply(&mut given, pairs)?;
    let workload = given.parts()?;
    let Workload { files, handles, .. } = &workload;
    assert!(handles.iter().all(|&file| (file as usize) < files.len()));
    Ok(Workload { name: P::NAME, params: given.show(), ..workload })
}

/// The time that `bytes` take at `rate` bytes a second, rounded down. Exact from the start of a
/// stream, so that a long one does not drift.
fn time_of(bytes: u64, rate: u64) -> Nanos {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
    Nanos(u64::try_from(nanos).expect("checked against the longest run"))
}

pub use interleave::{Interleaving, Layout, Start};

/// The prefix of a workload in place of a trace.
pub const PREFIX: &str = "workload:";

/// Bounds of parameters: they keep every sum below 2^63.
const STREAMS_MAX: u32 = 65_536;
const BYTES_MAX: u64 = 1 << 42;
const REQUEST_MAX: u64 = 1 << 30;
const GAP_MAX: Nanos = Nanos(1_000_000_000_000);
const RATE_MIN: u64 = 1_024;
const STREAMS_FORM: &str = "1 to 65536 streams";
const BYTES_FORM: &str = "a size from 1 to 4T";
const REQUEST_FORM: &str = "a size from 1 to 1G";
const RATE_FORM: &str = "at least 1K bytes a second";

#[cfg(test)]
mod tests;
