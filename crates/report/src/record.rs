//! The record of a run: what was measured, on what, and how to do it again.
//!
//! A record is one JSON object whose `schema` says its version. A reader of this version takes
//! version 1 only; a field that it does not know is passed over, one that is missing is an error
//! unless it is optional here.
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
use crate::window::Window;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The version that this crate writes, and the only one that it reads.
pub const SCHEMA: &str = "forerun-run/1";

/// What was measured in one go on one machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The version of this format.
    pub schema: Schema,
    /// The commit that was built.
    pub commit: String,
    /// Where it ran.
    pub machine: Machine,
    /// When it began, in seconds since 1970, UTC.
    pub date: u64,
    /// The command line, a word each.
    pub command: Vec<String>,
    /// The device that was asked for: a model's name or a path.
    pub device: String,
    /// Every setting that was in force, by name.
    pub settings: BTreeMap<String, String>,
    /// The seed of everything random.
    pub seed: u64,
    /// Repeats that were run first and not counted.
    pub warm_up: u32,
    /// Repeats that were counted, for each run.
    pub repeats: u32,
    /// What was measured, in the order in which it ran.
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
    /// Bytes that readers asked for.
    pub bytes_wanted: u64,
    /// The most that the device could give on this workload, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_mb_per_second: Option<f64>,
    /// `mb_per_second` as a share of that limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_limit: Option<f64>,
    /// The median time of a read.
    pub p50_us: f64,
    /// The time that one read in a hundred exceeds.
    pub p99_us: f64,
    /// The most that the bytes of a paced read came after it was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_max_seconds: Option<f64>,
    /// The slowest and the fastest repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// How it was waited for I/O, where that was measured: `readahead` is the policy's name then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// What the device was asked, in order of arrival; may be empty or cut short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<DeviceRequest>,
    /// Requests that `requests` leaves out, all of them later than those it holds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub requests_left_out: u64,
    /// The readahead windows, in the order in which they were opened, where they were asked for;
    /// may be cut short.
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
    /// Why it was made.
    pub kind: RequestKind,
}

/// Why a request was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestKind {
    /// A reader waits for it.
    Demand,
    /// No reader waits for it yet.
    Readahead,
    /// It takes dirty pages to the device.
    Write,
    /// A read of the device's own log: whether a reader waits is not known there.
    Read,
}

/// The version in a record: always [`SCHEMA`], no other can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schema;

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(SCHEMA)
    }
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let found = String::deserialize(from)?;
        if found == SCHEMA {
            return Ok(Self);
        }
        Err(de::Error::custom(format_args!("schema {found:?} instead of {SCHEMA:?}")))
    }
}

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file is missing or cannot be read.
    #[error("cannot read {path:?}: {source}")]
    File {
        /// The record's file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is longer than any record.
    #[error("{path:?} is no run record: it is longer than {bytes_max} bytes")]
    TooLong {
        /// The record's file.
        path: PathBuf,
        /// The most that is read.
        bytes_max: u64,
    },
    /// A newer or foreign version: a newer forerun may read it.
    #[error("{path:?} is a record of schema {found:?}; this forerun reads {SCHEMA:?}")]
    Version {
        /// The record's file.
        path: PathBuf,
        /// What the file says.
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
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
}

/// Why a record could not be written. The target is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The system refused.
    #[error("cannot write {path:?}: {source}")]
    File {
        /// The record's file.
        path: PathBuf,
        /// What the system said.
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

/// What every version has.
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The longest file that is read: some millions of requests.
const RECORD_BYTES_MAX: u64 = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::Folder;
    use crate::window::Cause;
    use std::fs;

    fn full() -> RunRecord {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect()
        };
        RunRecord {
            schema: Schema,
            commit: "8fd6de2".to_owned(),
            machine: Machine {
                cpu: "Core \"2\" \\ \u{fc}".to_owned(),
                cores: 2,
                memory_bytes: u64::MAX,
                kernel: "Linux 6.18".to_owned(),
            },
            date: 1_795_203_000,
            command: vec!["forerun".to_owned(), "bench".to_owned()],
            device: "t7k250".to_owned(),
            settings: map(&[("cache", "64M")]),
            seed: u64::MAX,
            warm_up: 1,
            repeats: 3,
            runs: vec![Run {
                readahead: "linux-2.6.24".to_owned(),
                params: map(&[("max", "1M")]),
                device: "t7k250".to_owned(),
                emulated: true,
                drive_cache: Some(false),
                streams: 10,
                workload: "workload:streams,n=10".to_owned(),
                mb_per_second: 21.78,
                delay_seconds: 0.1 + 0.2,
                device_requests: 2_000,
                mean_request_bytes: 524_288,
                bytes_read: u64::MAX,
                bytes_wanted: 1,
                limit_mb_per_second: Some(28.5),
                ratio_to_limit: Some(0.764),
                p50_us: 1.5,
                p99_us: 1e300,
                late_max_seconds: Some(0.5),
                spread: Some(Spread { min: 21.0, max: 22.0 }),
                waits: Some(Waits {
                    mean_us: 11.0,
                    trimmed_mean_us: 10.5,
                    cpu_us_per_io: 0.1,
                    late_share: 0.05,
                    quantiles_us: vec![9.0, 10.0],
                }),
                requests: [RequestKind::Demand, RequestKind::Readahead, RequestKind::Write]
                    .map(|kind| DeviceRequest { at_us: 1, done_us: 2, offset: 3, bytes: 4, kind })
                    .to_vec(),
                requests_left_out: 7,
                windows: vec![Window {
                    at_us: 1,
                    last_use_us: 2,
                    handle: 3,
                    stream: Some(4),
                    cause: Cause::AsyncRecovered,
                    offset: 5,
                    bytes: u64::MAX,
                    tail_bytes: 6,
                    fresh_bytes: 7,
                    used_bytes: 8,
                    late_bytes: 9,
                    wasted_bytes: 10,
                    failed_bytes: 11,
                    unread_bytes: 12,
                }],
                windows_left_out: 9,
            }],
        }
    }

    #[test]
    fn a_record_comes_back_equal_whether_full_or_bare() {
        let folder = Folder::new("round-trip");
        let path = folder.0.join("run.json");
        let bare = RunRecord { runs: vec![Run::default()], ..RunRecord::default() };
        for record in [full(), bare, RunRecord::default()] {
            record.write(&path).unwrap();
            assert_eq!(RunRecord::read(&path).unwrap(), record);
        }
    }

    #[test]
    fn the_json_has_the_documented_names() {
        let json = serde_json::to_value(full()).unwrap();
        assert_eq!(json["schema"], "forerun-run/1");
        assert_eq!(json["runs"][0]["requests"][1]["kind"], "readahead");
        assert_eq!(json["runs"][0]["requests_left_out"], 7);
        let bare = serde_json::to_value(Run::default()).unwrap();
        let windows = &json["runs"][0]["windows"];
        assert_eq!(
            (&windows[0]["cause"], &windows[0]["stream"]),
            (&"async-recovered".into(), &4.into())
        );
        let optional = ["requests", "requests_left_out", "windows", "windows_left_out", "spread"];
        for field in optional.into_iter().chain(["limit_mb_per_second"]) {
            assert!(bare.get(field).is_none(), "{field} is left out when there is none");
        }
    }

    #[test]
    fn what_is_no_record_of_this_version_is_refused_in_one_line_that_names_the_file() {
        let folder = Folder::new("refused-records");
        let path = folder.0.join("two\nlines.json");
        let whole = serde_json::to_string(&full()).unwrap();
        #[rustfmt::skip]
        let rows = [ // why                  content                                  the error says
            ("a future version",       whole.replace("run/1", "run/2"),
                       "schema \"forerun-run/2\""),
            ("another version shape",  r#"{"schema":"x","runs":5}"#.to_owned(), "schema \"x\""),
            ("no schema",              r#"{"runs":[]}"#.to_owned(),
                           "it has no \"schema\""),
            ("a schema of no text",    r#"{"schema":1}"#.to_owned(),
                          "it has no \"schema\""),
            ("cut short",              whole[..whole.len() / 2].to_owned(),    "line 1 column"),
            ("empty",                  String::new(),                          "line 1 column 0"),
            ("no object",              "[1,2]".to_owned(),
                                    "no whole run record"),
            ("a field is missing",     r#"{"schema":"forerun-run/1"}"#.to_owned(),
                "missing field `commit`"),
            ("a wrong kind of value",  whole.replace("\"seed\":", "\"seed\":-"), "line 1 column"),
        ];
        for (why, content, expected) in rows {
            fs::write(&path, content).unwrap();
            let error = RunRecord::read(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{why}: {error}");
            assert!(error.contains("lines.json") && !error.contains('\n'), "{why}: {error}");
        }
        let missing = folder.0.join("missing.json");
        let error = RunRecord::read(&missing).unwrap_err().to_string();
        assert!(error.contains("missing.json") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn a_field_of_the_same_version_that_is_not_known_is_passed_over() {
        let text = serde_json::to_string(&full()).unwrap().replacen('{', "{\"later\":[1],", 1);
        assert_eq!(RunRecord::parse(Path::new("x"), text.as_bytes()).unwrap(), full());
    }

    #[test]
    fn a_run_alone_says_by_its_record_which_schema_it_follows() {
        assert!(serde_json::from_str::<Schema>("\"forerun-run/1\"").is_ok());
        assert!(serde_json::from_str::<Schema>("\"forerun-run/9\"").is_err());
    }

    #[test]
    fn a_file_too_long_for_a_record_is_refused() {
        let folder = Folder::new("too-long");
        let path = folder.0.join("long.json");
        full().write(&path).unwrap();
        let length = fs::metadata(&path).unwrap().len();
        assert_eq!(RunRecord::read_up_to(&path, length).unwrap(), full());
        let error = RunRecord::read_up_to(&path, length - 1).unwrap_err();
        assert!(matches!(error, ReadError::TooLong { .. }), "{error}");
        const { assert!(RECORD_BYTES_MAX >= 100 << 20, "a million requests are 100 MB") };
    }

    #[test]
    fn figures_that_json_cannot_hold_are_refused_and_the_old_record_stays() {
        type Spoil = fn(&mut Run);
        let folder = Folder::new("not-finite");
        let path = folder.0.join("run.json");
        full().write(&path).unwrap();
        #[rustfmt::skip]
        let rows: [(&str, Spoil); 8] = [
            ("mb_per_second",       |r| r.mb_per_second = f64::NAN),
            ("delay_seconds",       |r| r.delay_seconds = f64::INFINITY),
            ("limit_mb_per_second", |r| r.limit_mb_per_second = Some(f64::NAN)),
            ("ratio_to_limit",      |r| r.ratio_to_limit = Some(f64::NEG_INFINITY)),
            ("p50_us",              |r| r.p50_us = f64::NAN),
            ("p99_us",              |r| r.p99_us = f64::NAN),
            ("spread",              |r| r.spread = Some(Spread { min: f64::NAN, max: 1.0 })),
            ("spread",              |r| r.spread = Some(Spread { min: 1.0, max: f64::NAN })),
        ];
        for (field, spoil) in rows {
            let mut record = full();
            spoil(&mut record.runs[0]);
            let error = record.write(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("{field} of run 0")), "{error}");
            assert_eq!(RunRecord::read(&path).unwrap(), full());
        }
    }

    #[test]
    fn a_record_that_cannot_be_written_says_where() {
        let folder = Folder::new("unwritable");
        let error = full().write(&folder.0.join("missing/run.json")).unwrap_err().to_string();
        assert!(error.contains("missing/run.json"), "{error}");
    }

    #[test]
    fn requests_are_cut_at_the_end_and_counted() {
        let mut run = full().runs.remove(0);
        run.cut_requests(3);
        assert_eq!((run.requests.len(), run.requests_left_out), (3, 7));
        run.cut_requests(1);
        assert_eq!((run.requests.len(), run.requests_left_out), (1, 9));
        assert_eq!(run.requests[0].kind, RequestKind::Demand);
    }
}
