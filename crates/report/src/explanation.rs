//! What `forerun explain` found out about a program, for JSON and for the page.
//!
//! ```text
//!   where its time went      seconds: computing, waiting for storage, for a processor, otherwise
//!   its files, their streams bytes, pattern, waits, how much was in memory at first
//!   what reading ahead would gain, and why
//! ```
//! # Invariants
//! - A figure that is not known is `null`, and what says how one is known stands beside it.
//! - Seconds are of real time; `*_share` is of 1; MB/s are 10^6 bytes.

use serde::Serialize;

/// See the module.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Explanation {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The program's exit status.
    pub status: u8,
    /// How long it ran.
    pub seconds: f64,
    /// Processor time of it and of the children that it waited for.
    pub processor_seconds: f64,
    /// So long it waited for storage.
    pub storage_seconds: f64,
    /// How that was found.
    pub storage_basis: String,
    /// So long it could have run and had no processor.
    pub queue_seconds: Option<f64>,
    /// Bytes that it was seen to read.
    pub bytes_read: u64,
    /// Bytes that came from devices.
    pub device_bytes: u64,
    /// The observers: `proc` or `preload`.
    pub observer: String,
    /// Processes that were followed.
    pub processes: u64,
    /// Of these, those that could not be looked into.
    pub processes_skipped: u64,
    /// Records of the shim that were lost.
    pub records_lost: u64,
    /// Polls of the observers.
    pub polls: u64,
    /// Processor time of polling.
    pub polling_seconds: f64,
    /// What reading ahead would gain.
    pub prediction: Forecast,
    /// Its files, those first that it waited for most.
    pub files: Vec<ExplainedFile>,
    /// Files that are left out.
    pub files_left_out: u64,
}

/// What reading ahead would gain.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Forecast {
    /// `gain`, `nothing` or `unknown`.
    pub verdict: &'static str,
    /// Why, in a word.
    pub reason: &'static str,
    /// Why, in a sentence.
    pub why: String,
    /// How long the program would run.
    pub seconds: f64,
    /// So much less than it did.
    pub gain_seconds: f64,
    /// The same as a share of its time.
    pub gain_share: f64,
    /// The gain if the device had no limit, where that is not known.
    pub gain_seconds_max: f64,
    /// What the device delivers.
    pub limit_mb_per_second: Option<f64>,
    /// How that is known: `profile`, or `run`, which is a lower bound.
    pub limit_basis: Option<&'static str>,
}

/// A file that was read.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExplainedFile {
    /// Its name.
    pub path: String,
    /// Its device, `major:minor`.
    pub device: String,
    /// Its size.
    pub bytes: u64,
    /// Bytes that were seen to be read.
    pub bytes_read: u64,
    /// The pattern of most of them: `sequential`, `backward`, `stride` or `random`.
    pub pattern: &'static str,
    /// Whether it was read by page faults.
    pub mapped: bool,
    /// The share of the bytes that was read in order.
    pub sequential_share: f64,
    /// So long storage was waited for before the reads of this file.
    pub storage_seconds: f64,
    /// `cold`, `warm`, `part`, or `unknown`.
    pub start: &'static str,
    /// The share of its pages that was in memory at first.
    pub start_share: Option<f64>,
    /// When that was: `before` the program began, or at its `opening`, a little after it.
    pub start_basis: Option<&'static str>,
    /// Its streams, as they began.
    pub streams: Vec<ExplainedStream>,
    /// Streams that are left out.
    pub streams_left_out: u64,
    /// For the page: when what was read.
    #[serde(skip)]
    pub moments: Vec<ReadMoment>,
    /// More moments than are kept.
    #[serde(skip)]
    pub moments_left_out: u64,
}

/// Reads that go on from each other; those that do not are one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExplainedStream {
    /// How.
    pub pattern: &'static str,
    /// Bytes that were read.
    pub bytes: u64,
    /// The lowest byte.
    pub offset: u64,
    /// Behind the highest.
    pub end: u64,
    /// When it was first seen.
    pub from_seconds: f64,
    /// When it was last seen.
    pub to_seconds: f64,
    /// So long storage was waited for before its reads.
    pub storage_seconds: f64,
}

/// An access, or several joined ones, between two polls.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadMoment {
    /// The poll before.
    pub from_us: u64,
    /// The poll that observed it.
    pub to_us: u64,
    /// Where.
    pub offset: u64,
    /// How much.
    pub bytes: u64,
    /// Whether storage was waited for meanwhile.
    pub waited: bool,
}
