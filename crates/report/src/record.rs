//! The record of a run: its results, its machine, and the steps to repeat it.
//!
//! A record is one JSON object with its version in `schema`. This reader accepts version 1 only; it
//! ignores an unknown field; a missing field is an error unless it is optional here.
//!
//! ```text
//!   { "schema": "forerun-run/1", "commit": ..., "machine": {...}, "date": ..., "command": [...],
//!     "device": ..., "settings": {...}, "seed": ..., "warm_up": ..., "repeats": ...,
//!     "runs": [ { "readahead": ..., "streams": ..., "mb_per_second": ..., "requests": [...],
//!                 "windows": [...] } ] }
//! ```
//!
//! # Invariants
//! - What [`RunRecord::write`] wrote, [`RunRecord::read`] gives back, equal in every field.
//! - A record on disk holds finite numbers only: JSON has no others.
//! - Every error is one line that names the file.

use crate::file::write_whole;
use crate::waits::Waits;
use crate::window::{Window, is_zero};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The version that this crate writes and reads.
pub const SCHEMA: &str = "forerun-run/1";

/// The runs of one command on one machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The version of this format.
    pub schema: Schema,
    /// The commit that was built.
    pub commit: String,
    /// The machine of the runs.
    pub machine: Machine,
    /// When it began, in seconds since 1970, UTC.
    pub date: u64,
    /// The command line, a word each.
    pub command: Vec<String>,
    /// The device of the command line: a model's name or a path.
    pub device: String,
    /// Every setting in force, by name.
    pub settings: BTreeMap<String, String>,
    /// The seed of everything random.
    pub seed: u64,
    /// Repeats that were run first and not counted.
    pub warm_up: u32,
    /// Repeats that were counted, for each run.
    pub repeats: u32,
    /// The runs, in their order.
    pub runs: Vec<Run>,
}

/// The machine of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub cpu: String,
    /// Its cores, as the system counts them.
    pub cores: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's name and version.
    pub kernel: String,
}

/// One policy on one workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The readahead policy.
    pub readahead: String,
    /// Its parameters, by name.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
    /// The device: a model's name or a path.
    pub device: String,
    /// Whether the device was a model (its service times computed) instead of hardware.
    pub emulated: bool,
    /// Whether the drive's own cache was on, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive_cache: Option<bool>,
    /// Streams read at the same time.
    pub streams: u32,
    /// What was read, in words or as a workload's name with parameters.
    pub workload: String,
    /// Bytes wanted by the reader, in units of 10^6, a second.
    pub mb_per_second: f64,
    /// Time that readers waited for the device, beyond the time of cached reads.
    pub delay_seconds: f64,
    /// Requests that the device served.
    pub device_requests: u64,
    /// Their mean size.
    pub mean_request_bytes: u64,
    /// Bytes read from the device.
    pub bytes_read: u64,
    /// Bytes that readers requested.
    pub bytes_wanted: u64,
    /// The device's limit on this workload, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_mb_per_second: Option<f64>,
    /// `mb_per_second` as a share of that limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_limit: Option<f64>,
    /// The median time of a read.
    pub p50_us: f64,
    /// The time that one read in a hundred exceeds.
    pub p99_us: f64,
    /// The largest delay between the due time of a paced read and the arrival of its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_max_seconds: Option<f64>,
    /// The slowest and the fastest repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// The waits for I/O, where they were measured: `readahead` is then the name of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// The device's requests, in order of arrival; may be empty or cut short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<DeviceRequest>,
    /// Requests that `requests` leaves out, all of them later than those it holds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub requests_left_out: u64,
    /// The readahead windows, in order of opening, where the run kept them; may be cut short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// Windows that `windows` leaves out, all of them later than those it holds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub windows_left_out: u64,
}

impl Run {
    /// Keeps the first `count_max` requests and counts the others as left out.
    pub fn cut_requests(&mut self, count_max: usize) {
        let cut = self.requests.len().saturating_sub(count_max);
        self.requests.truncate(count_max);
        self.requests_left_out += cut as u64;
    }
}

/// The throughput of the slowest and of the fastest repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// MB/s of the slowest.
    pub min: f64,
    /// MB/s of the fastest.
    pub max: f64,
}

/// One request to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRequest {
    /// When it was submitted, since the run began.
    pub at_us: u64,
    /// When it was complete.
    pub done_us: u64,
    /// Its first byte.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// The reason of the request.
    pub kind: RequestKind,
}

/// The reason of a request; the page's script knows each by its place in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestKind {
    /// A reader waits for it.
    Demand,
    /// No reader waits for it yet.
    Readahead,
    /// The request writes dirty pages back.
    Write,
    /// A read of the device's own log: whether a reader waits is not known there.
    Read,
}

/// The version in a record: always [`SCHEMA`], no other can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Schema {
    /// Its only version so far.
    #[default]
    #[serde(rename = "forerun-run/1")]
    First,
}

/// The reason why a record could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file is missing or cannot be read.
    #[error("cannot read {path:?}: {source}")]
    File {
        /// The record's file.
        path: PathBuf,
        /// The system's message.
        source: io::Error,
    },
    /// The file is longer than any record.
    #[error("{path:?} is no run record: it is longer than {bytes_max} bytes")]
    TooLong {
        /// The record's file.
        path: PathBuf,
        /// The bound.
        bytes_max: u64,
    },
    /// A newer or foreign version: a newer forerun may read it.
    #[error("{path:?} is a record of schema {found:?}; this forerun reads {SCHEMA:?}")]
    Version {
        /// The record's file.
        path: PathBuf,
        /// The version in the file.
        found: String,
    },
    /// The file is JSON, but says no schema: it is something else.
    #[error("{path:?} is no run record: it has no \"schema\": {SCHEMA:?}")]
    NoSchema {
        /// The record's file.
        path: PathBuf,
    },
    /// Not JSON, cut short, or a field is missing or of the wrong kind.
    #[error("{path:?} is no whole run record: {source}")]
    Malformed {
        /// The record's file.
        path: PathBuf,
        /// The violation, with line and column.
        source: serde_json::Error,
    },
}

/// The reason why a record could not be written. The target is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The system refused.
    #[error("cannot write {path:?}: {source}")]
    File {
        /// The record's file.
        path: PathBuf,
        /// The system's message.
        source: io::Error,
    },
    /// A measurement is infinite or not a number, which JSON cannot hold.
    #[error("cannot write {path:?}: {field} of run {run} is not a finite number")]
    NotFinite {
        /// The record's file.
        path: PathBuf,
        /// Counted from 0.
        run: usize,
        /// The field's name.
        field: &'static str,
    },
}

impl RunRecord {
    /// Reads the record in the file `path`.
    ///
    /// # Errors
    /// One line that names the file and says why it is not a record of this version.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::read_up_to(path, RECORD_BYTES_MAX)
    }

    fn read_up_to(path: &Path, bytes_max: u64) -> Result<Self, ReadError> {
        let mut text = Vec::new();
        File::open(path)
            .and_then(|file| file.take(bytes_max + 1).read_to_end(&mut text))
            .map_err(|source| ReadError::File { path: path.to_owned(), source })?;
        if text.len() as u64 > bytes_max {
            return Err(ReadError::TooLong { path: path.to_owned(), bytes_max });
        }
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &[u8]) -> Result<Self, ReadError> {
        let malformed = |source| ReadError::Malformed { path: path.to_owned(), source };
        // The version first, by itself: another version may differ in every other field.
        let head: Head = serde_json::from_slice(text).map_err(malformed)?;
        match head.schema.as_ref().map(serde_json::Value::as_str) {
            Some(Some(SCHEMA)) => serde_json::from_slice(text).map_err(malformed),
            Some(Some(found)) => {
                Err(ReadError::Version { path: path.to_owned(), found: found.to_owned() })
            }
            Some(None) | None => Err(ReadError::NoSchema { path: path.to_owned() }),
        }
    }

    /// Writes the record as the whole content of the file `path`.
    ///
    /// # Errors
    /// One line that names the file; the target is then as it was.
    pub fn write(&self, path: &Path) -> Result<(), WriteError> {
        for (run, figures) in self.runs.iter().enumerate() {
            if let Some(field) = not_finite(figures) {
                return Err(WriteError::NotFinite { path: path.to_owned(), run, field });
            }
        }
        let mut text = serde_json::to_vec(self).expect("all keys are strings, all numbers finite");
        text.push(b'\n');
        write_whole(path, &text)
            .map_err(|source| WriteError::File { path: path.to_owned(), source })
    }
}

/// The fields of every version.
#[derive(Deserialize)]
struct Head {
    schema: Option<serde_json::Value>,
}

/// The first figure that JSON cannot hold.
fn not_finite(run: &Run) -> Option<&'static str> {
    [
        ("mb_per_second", Some(run.mb_per_second)),
        ("delay_seconds", Some(run.delay_seconds)),
        ("limit_mb_per_second", run.limit_mb_per_second),
        ("ratio_to_limit", run.ratio_to_limit),
        ("p50_us", Some(run.p50_us)),
        ("p99_us", Some(run.p99_us)),
        ("spread", run.spread.map(|s| s.min)),
        ("spread", run.spread.map(|s| s.max)),
    ]
    .into_iter()
    .find_map(|(field, value)| value.is_some_and(|v| !v.is_finite()).then_some(field))
    .or_else(|| run.waits.as_ref().is_some_and(Waits::not_finite).then_some("waits"))
}

/// The longest file that is read: some millions of requests.
const RECORD_BYTES_MAX: u64 = 512 << 20;

#[cfg(test)]
mod tests;
