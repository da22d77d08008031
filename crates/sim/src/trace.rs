//! Traces: accesses that were recorded somewhere, read as a stream.
//!
//! ```text
//!   bytes --zstd?--> Input (records counted) --Format--> Request --> one access a 4 KiB block
//! ```
//! A [`Trace`] is an iterator of [`Request`]s. Compression is seen by the content. The format is
//! named, or guessed from the name and the first line; [`Trace::guess`] tells what was guessed.
//!
//! To add a format: write `trace/NAME.rs` and add its line to `formats!` below.
//!
//! # Invariants
//! - Memory does not grow with the length of a trace.
//! - A broken record is an error that names the file, the record and its byte offset; up to
//!   `skip_bad` of them are passed over and counted.
//! - Requests that are given out have at least one block, and at most [`REQUEST_BLOCKS_MAX`].

mod guess;
mod input;

use std::io::{self, Read};

use forerun_core::params::{self, ParamError, Params};

pub use guess::NoGuess;
use input::Input;

/// Consecutive blocks that were asked for together: of 4 KiB, or keys of any meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The first block.
    pub first: u64,
    /// Blocks; at least 1.
    pub count: u64,
}

/// Why a trace cannot be read, or not on.
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
        /// What it said.
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
        /// What was expected, and what is there.
        what: String,
    },
    /// No format was named, and the trace does not tell.
    #[error("{name}: {why}")]
    Unknown {
        /// The trace.
        name: String,
        /// What it looks like, and what there is.
        why: NoGuess,
    },
    /// The format that was named is none, or does not have the parameter.
    #[error("--format: {0}")]
    Format(#[from] ParamError),
}

/// One format: how its records become requests.
trait Format {
    /// The next request; `None` at the end. Empty requests, comments and the like are passed over.
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, Fault>;
}

/// What the list needs to know of a format.
trait Named: Format + Sized + 'static {
    /// The name on the command line. Never changed once released.
    const NAME: &'static str;
    /// One line of help.
    const SUMMARY: &'static str;
    /// What may be set.
    type Params: Params;
    /// A reader of this format.
    fn new(params: Self::Params) -> Self;
}

/// Why a format gives no request.
enum Fault {
    /// The bytes do not come.
    Read(io::Error),
    /// The record that was just taken is broken; the next one can be tried.
    Record(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

macro_rules! formats {
    ($($module:ident::$format:ident),+ $(,)?) => {
        $(mod $module;)+

        /// Every format's name and its one line of help.
        pub const FORMATS: &[(&str, &str)] = &[
            $((<$module::$format as Named>::NAME, <$module::$format as Named>::SUMMARY)),+
        ];

        /// The format that `spec` (`NAME:key=value,...`) describes.
        fn make(spec: &str) -> Result<Box<dyn Format + Send>, ParamError> {
            let (name, pairs) = params::split(spec);
            $(if name == <$module::$format as Named>::NAME {
                let mut given = <$module::$format as Named>::Params::default();
                params::apply(&mut given, pairs)?;
                return Ok(Box::new(<$module::$format as Named>::new(given)));
            })+
            let known = FORMATS.iter().map(|(name, _)| *name).collect();
            Err(ParamError::UnknownName { name: name.into(), known })
        }
    };
}

formats! {
    keys::Keys,
    lis::Lis,
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
    format: Box<dyn Format + Send>,
    guess: Option<String>,
    skip_bad: u64,
    skipped: u64,
    ended: bool,
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
            let start = input.start().to_vec();
            let guessed = guess::guess(name, &start)
                .map_err(|why| TraceError::Unknown { name: name.into(), why })?;
            guess.insert(guessed).as_str()
        } else {
            format
        };
        let format = make(spec)?;
        Ok(Self { name: name.into(), input, format, guess, skip_bad, skipped: 0, ended: false })
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
}

impl Iterator for Trace {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let fault = match self.format.next(&mut self.input) {
                Ok(Some(request)) => {
                    assert!((1..=REQUEST_BLOCKS_MAX).contains(&request.count), "{request:?}");
                    return Some(Ok(request));
                }
                Ok(None) => {
                    self.ended = true;
                    return None;
                }
                Err(fault) => fault,
            };
            let (name, record) = (self.name.clone(), self.input.record());
            match fault {
                Fault::Record(_) if self.skipped < self.skip_bad => self.skipped += 1,
                Fault::Record(what) => {
                    self.ended = true;
                    let offset = self.input.record_offset();
                    return Some(Err(TraceError::Broken { name, record, offset, what }));
                }
                Fault::Read(source) => {
                    self.ended = true;
                    let offset = self.input.offset();
                    return Some(Err(TraceError::Read { name, record, offset, source }));
                }
            }
        }
        None
    }
}

/// The format that stands for a guess.
pub const AUTO: &str = "auto";

/// Blocks of one request at most: 1 GiB. A longer one is a broken record.
pub const REQUEST_BLOCKS_MAX: u64 = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &[u8], format: &str, skip: u64) -> Result<Vec<(u64, u64)>, String> {
        let trace = Trace::new(name, io::Cursor::new(text.to_vec()), format, skip);
        let trace = trace.map_err(|error| error.to_string())?;
        trace
            .map(|request| request.map(|r| (r.first, r.count)).map_err(|error| error.to_string()))
            .collect()
    }

    /// Why, the name, the format, the text, and the requests in it.
    type Row<'a> = (&'a str, &'a str, &'a str, &'a str, &'a [(u64, u64)]);

    #[test]
    fn records_become_requests() {
        #[rustfmt::skip]
        let rows: &[Row] = &[
            // why  name  format  text  requests
            ("a key a line", "a.txt", "auto", "7\n7\n0\n", &[(7, 1), (7, 1), (0, 1)]),
            ("no newline at the end", "a.txt", "auto", "7\n8", &[(7, 1), (8, 1)]),
            ("comments, blanks", "a", "auto", "# x\n\n*\n 7 \n* 9\r\n8\r\n", &[(7, 1), (8, 1)]),
            ("the largest key", "a", "keys", "18446744073709551615", &[(u64::MAX, 1)]),
            ("nothing", "a", "auto", "", &[]),
            ("nothing but comments", "a", "auto", "# a\n", &[]),
            ("blocks of 4 KiB", "OLTP.lis", "auto", "3 2 0 0\n9 1 0 1\n", &[(3, 2), (9, 1)]),
            ("sectors, by the name", "arc_P3.lis", "auto", "7 2 0 0\n8 8 0 1\n", &[(0, 2), (1, 1)]),
            ("sectors, by parameter", "x", "lis:unit=512", "16 17 0 0\n", &[(2, 3)]),
            ("larger units", "x", "lis:unit=8K", "1 2 0 0\n", &[(2, 4)]),
            ("empty requests are none", "x.lis", "auto", "1 0 0 0\n2 1 0 0\n", &[(2, 1)]),
        ];
        for (why, name, format, text, requests) in rows {
            assert_eq!(read(name, text.as_bytes(), format, 0), Ok(requests.to_vec()), "{why}");
            let packed = zstd::encode_all(text.as_bytes(), 3).expect("in memory");
            let name = format!("{name}.zst");
            assert_eq!(read(&name, &packed, format, 0), Ok(requests.to_vec()), "{why}, packed");
        }
    }

    #[test]
    fn broken_records_are_named_and_may_be_skipped() {
        #[rustfmt::skip]
        let rows = [ // name  format  text  skip  says
            ("k", "keys", "1\nx\n", 0, "k: record 2 at byte 2 is broken: `x`"),
            ("k", "keys", "# a\n\n1\n18446744073709551616\n", 0, "k: record 2 at byte 7 is broken"),
            ("k", "keys", "-1\n", 0, "k: record 1 at byte 0 is broken: `-1`"),
            ("k", "keys", "+1\n", 0, "`+1`"),
            ("k", "keys", "1 2\n", 0, "`1 2`"),
            ("k", "keys", "a\nb\n", 1, "k: record 2 at byte 2 is broken: `b`"),
            ("l", "lis", "1 1 0\n", 0, "l: record 1"),
            ("l", "lis", "1 1 0 0 0\n", 0, "l: record 1"),
            ("l", "lis", "1 x 0 0\n", 0, "l: record 1"),
            ("l", "lis", "1 262145 0 0\n", 0, "more than 262144 blocks"),
            ("l", "lis", "18446744073709551615 9 0 0\n", 0, "l: record 1"),
        ];
        for (name, format, text, skip, says) in rows {
            let error = read(name, text.as_bytes(), format, skip).expect_err(text);
            assert!(error.contains(says), "{text:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        assert_eq!(read("k", b"a\n1\nb\n2\n", "keys", 2), Ok(vec![(1, 1), (2, 1)]));
        assert_eq!(read("l", b"1 262144 0 0\n", "lis", 0), Ok(vec![(1, 1 << 18)]));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let packed = zstd::encode_all(&b"1\n2\n3\n"[..], 3).expect("in memory");
        #[rustfmt::skip]
        let rows: &[(&str, &[u8], &str, &str)] = &[ // name  bytes  format  says
            ("a.vscsi", b"\0\0\0\0", "auto", "not yet"),
            ("a.disksim.zst", b"1 2 3 4 5\n", "auto", "there are: keys lis"),
            ("a", b"1 2 3\n", "auto", "there are: keys lis"),
            ("a", b"\x01\x00\x00", "auto", "not text"),
            ("a.gz", b"\x1f\x8b\x08\0", "auto", "gzip"),
            ("a.gz", b"\x1f\x8b\x08\0", "keys", "gzip"),
            ("a.xz", b"\xfd7zXZ\0", "auto", "xz"),
            ("a", &packed[..8], "keys", "a: "),
            ("a", b"1\n", "keyz", "no `keyz`; there are: keys lis"),
            ("a", b"1\n", "lis:unit=0", "unit"),
            ("a", b"1\n", "keys:x=1", "no parameter `x`"),
        ];
        for (name, bytes, format, says) in rows {
            let error = read(name, bytes, format, 9).expect_err(name);
            assert!(error.contains(says), "{name} {format}: {error}");
        }
        assert!(check_format("auto").is_ok() && check_format("lis:unit=512").is_ok());
        assert!(check_format("lis:unit=513").is_err());
    }

    #[test]
    fn a_line_without_an_end_is_refused_before_it_fills_the_memory() {
        let text = vec![b'1'; 1 << 20];
        let error = read("a", &text, "keys", 0).expect_err("a long line");
        assert!(error.contains("longer than"), "{error}");
    }

    #[test]
    fn guesses_are_told() {
        let guessed = |name: &str, text: &'static str| {
            let trace = Trace::new(name, text.as_bytes(), AUTO, 0).expect("readable");
            trace.guess().map(str::to_owned)
        };
        assert_eq!(guessed("dir/P6.lis.zst", "1 1 0 0\n"), Some("lis:unit=512".into()));
        assert_eq!(guessed("P6/OLTP.lis", "1 1 0 0\n"), Some("lis:unit=4K".into()));
        assert_eq!(guessed("-", "1 1 0 0\n"), Some("lis:unit=4K".into()));
        assert_eq!(guessed("-", "1\n"), Some("keys".into()));
        let named = Trace::new("a", &b"1\n"[..], "keys", 0).expect("readable");
        assert_eq!(named.guess(), None);
    }
}
