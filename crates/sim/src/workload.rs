//! Workloads made from their names: who reads what, and when, without a trace.
//!
//! ```text
//!   workload:NAME,key=value,...
//!     --> files, handles (each on one file), readers (each one read after the other)
//! ```
//! A [`Reader`] is an iterator of [`Access`]es; the driver decides when each is carried out, by
//! two rules: not before its own time, and after the reader's last read and the thinking that
//! follows it. Readers know nothing of each other.
//!
//! To add a workload: write `workload/NAME.rs` and add its line to `workloads!` below.
//!
//! # Invariants
//! - Memory grows with the number of streams, never with the length of the workload.
//! - Same text, same accesses, on every machine.
//! - Every access lies inside its file, and their bytes sum up to `bytes_wanted`.

mod span;

use forerun_core::params::{self, Param, ParamError, Params};
use forerun_core::units::Nanos;

/// One read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Through which handle.
    pub handle: u32,
    /// The file that the handle is open on.
    pub file: u32,
    /// The first byte.
    pub offset: u64,
    /// Bytes; at least 1.
    pub bytes: u32,
    /// The moment before which the reader does not ask; 0: at once.
    pub not_before: Nanos,
    /// How long the reader computes once it has the bytes.
    pub think: Nanos,
}

/// A reader: one read after the other.
pub struct Reader(Box<dyn Iterator<Item = Access> + Send>);

/// A workload made from its text.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// Its parameters as they are in force.
    pub params: Vec<(&'static str, String)>,
    /// What it is, in one line for people.
    pub title: String,
    /// The size of each file in bytes, by its number.
    pub files: Vec<u64>,
    /// The file of each handle, by the handle's number.
    pub handles: Vec<u32>,
    /// Who reads.
    pub readers: Vec<Reader>,
    /// Bytes of all reads of all readers.
    pub bytes_wanted: u64,
}

impl Reader {
    /// A reader that does what `accesses` say.
    fn new(accesses: impl Iterator<Item = Access> + Send + 'static) -> Self {
        Self(Box::new(accesses))
    }
}

impl Iterator for Reader {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        self.0.next()
    }
}

/// What a workload consists of, without its name and parameters.
struct Parts {
    title: String,
    files: Vec<u64>,
    handles: Vec<u32>,
    readers: Vec<Reader>,
    bytes_wanted: u64,
}

/// What the list needs to know of a workload.
trait Named: Params {
    /// The name in reports and on the command line. Never changed once released.
    const NAME: &'static str;
    /// One line of help.
    const SUMMARY: &'static str;
    /// Checks the parameters against each other and makes the workload.
    fn parts(&self) -> Result<Parts, ParamError>;
}

macro_rules! workloads {
    ($($module:ident::$params:ident),+ $(,)?) => {
        $(pub mod $module;)+

        /// Every workload's name and its one line of help, in the order of reports.
        pub const NAMES: &[(&str, &str)] = &[
            $((<$module::$params as Named>::NAME, <$module::$params as Named>::SUMMARY)),+
        ];

        /// The workload that `text` (`NAME[,key=value...]`, with or without `workload:` before
        /// it) describes.
        ///
        /// # Errors
        /// The name or a parameter is unknown, a value does not parse or is out of its bounds.
        pub fn make(text: &str) -> Result<Workload, ParamError> {
            let text = text.strip_prefix(PREFIX).unwrap_or(text);
            let (name, pairs) = text.split_once(',').unwrap_or((text, ""));
            $(if name == <$module::$params as Named>::NAME {
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
}

fn build<P: Named>(pairs: &str) -> Result<Workload, ParamError> {
    let mut given = P::default();
    params::apply(&mut given, pairs)?;
    let Parts { title, files, handles, readers, bytes_wanted } = given.parts()?;
    assert!(handles.iter().all(|&file| (file as usize) < files.len()));
    Ok(Workload {
        name: P::NAME,
        params: given.show(),
        title,
        files,
        handles,
        readers,
        bytes_wanted,
    })
}

/// The refusal of a value that parses but makes no workload.
fn check(holds: bool, key: &str, value: &impl Param, form: &str) -> Result<(), ParamError> {
    if holds {
        return Ok(());
    }
    Err(ParamError::BadValue { key: key.into(), value: value.show(), form: form.into() })
}

/// The time that `bytes` take at `rate` bytes a second, rounded down. Exact from the start of a
/// stream, so that a long one does not drift.
fn time_of(bytes: u64, rate: u64) -> Nanos {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
    Nanos(u64::try_from(nanos).expect("checked against the longest run"))
}

/// Declares a parameter that is one of some words.
macro_rules! choice {
    (
        $(#[$doc:meta])*
        pub enum $name:ident ($form:literal) {
            $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl forerun_core::params::Param for $name {
            const FORM: &'static str = $form;

            fn parse(text: &str) -> Option<Self> {
                match text {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            fn show(&self) -> String {
                match self {
                    $(Self::$variant => $word.into(),)+
                }
            }
        }
    };
}
use choice;

/// What stands before a workload where a trace is asked for.
pub const PREFIX: &str = "workload:";

/// Bounds on what may be asked for: they keep every sum below 2^63.
const STREAMS_MAX: u32 = 65_536;
const BYTES_MAX: u64 = 1 << 42;
const REQUEST_MAX: u64 = 1 << 30;
const GAP_MAX: Nanos = Nanos(1_000_000_000_000);
const RATE_MIN: u64 = 1_024;
const STREAMS_FORM: &str = "1 to 65536 streams";
const BYTES_FORM: &str = "a size from 1 to 4T";
const REQUEST_FORM: &str = "a size from 1 to 1G";
const RATE_FORM: &str = "at least 1K bytes a second";
