//! The contenders, forerun and fio, and their measurements, read from their output.
//!
//! # Invariants
//! - A missing figure is an error, never 0.
//! # Sources
//! fio's JSON: `HOWTO`, "Output"; `bw_bytes` is bytes a second, `lat_ns` from submission to
//! completion.

use std::fmt;

use anyhow::{Context, Result};
use forerun_report::quantity::float;
use serde::Deserialize;
use serde_json::Value;

/// The program that reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    Forerun,
    /// fio by this engine.
    Fio(&'static str),
}

impl Contender {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Forerun => "forerun".to_owned(),
            Self::Fio(engine) => format!("fio {engine}"),
        }
    }
}

/// One measurement, by the names of `forerun bench file --json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Measurement {
    pub(super) mb_per_second: f64,
    pub(super) io_per_second: f64,
    pub(super) mean_us: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Bytes that the reader got.
    pub(super) bytes_wanted: u64,
    pub(super) device_requests: u64,
    /// Bytes requested from the device.
    pub(super) bytes_read: u64,
    /// The share of pages that the engine had cached.
    pub(super) hit_ratio: f64,
    /// Bytes that came from a device, not from memory.
    pub(super) device_bytes: u64,
}

impl Measurement {
    /// The measurement that `forerun bench file --json` printed.
    pub(super) fn of_forerun(text: &str) -> Result<Self> {
        let json: Value = serde_json::from_str(text).context("no JSON")?;
        Ok(Self::deserialize(json.pointer("/runs/0").context("no run")?)?)
    }

    /// The share of the requested bytes that came from a device.
    pub(super) fn cold_ratio(&self) -> f64 {
        float(self.device_bytes) / float(self.bytes_read.max(1))
    }

    /// The measurement in fio's output: JSON, after any notes.
    pub(super) fn of_fio(text: &str) -> Result<Self> {
        let from = text.find('{').context("no JSON")?;
        let json: Value = serde_json::from_str(&text[from..]).context("no JSON")?;
        let read = json.pointer("/jobs/0/read").context("no job")?;
        let at = |path: &str| read.pointer(path).with_context(|| format!("no {path}"));
        let float = |path: &str| at(path)?.as_f64().with_context(|| format!("no {path}"));
        let count = |path: &str| at(path)?.as_u64().with_context(|| format!("no {path}"));
        let bytes = count("/io_bytes")?;
        Ok(Self {
            mb_per_second: float("/bw_bytes")? / 1e6,
            io_per_second: float("/iops")?,
            mean_us: float("/lat_ns/mean")? / 1e3,
            p50_us: float("/lat_ns/percentile/50.000000")? / 1e3,
            p99_us: float("/lat_ns/percentile/99.000000")? / 1e3,
            bytes_wanted: bytes,
            device_requests: count("/total_ios")?,
            bytes_read: bytes,
            hit_ratio: 0.0,
            device_bytes: bytes,
        })
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} MB/s, {:.0} IO/s, mean {:.1} us, p50 {:.1}, p99 {:.1}",
            self.mb_per_second, self.io_per_second, self.mean_us, self.p50_us, self.p99_us
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Measurement;

    #[test]
    fn figures_are_read_from_both_and_a_missing_one_is_an_error() {
        let fio = r#"fio: a note
            {"jobs": [{"read": {"io_bytes": 8192, "bw_bytes": 4000000, "iops": 976.5,
            "total_ios": 2, "lat_ns": {"mean": 90000.0,
            "percentile": {"50.000000": 80000, "99.000000": 200000}}}}]}"#;
        let expected = Measurement {
            mb_per_second: 4.0,
            io_per_second: 976.5,
            mean_us: 90.0,
            p50_us: 80.0,
            p99_us: 200.0,
            bytes_wanted: 8_192,
            device_requests: 2,
            bytes_read: 8_192,
            hit_ratio: 0.0,
            device_bytes: 8_192,
        };
        assert_eq!(Measurement::of_fio(fio).unwrap(), expected);
        assert!((expected.cold_ratio() - 1.0).abs() < 1e-9);
        let forerun = r#"{"runs": [{"mb_per_second": 4.0, "io_per_second": 976.5, "mean_us": 90,
            "p50_us": 80, "p99_us": 200, "bytes_wanted": 8192, "device_requests": 2,
            "bytes_read": 8192, "device_bytes": 8192, "hit_ratio": 0}]}"#;
        assert_eq!(Measurement::of_forerun(forerun).unwrap(), expected);
        let error = Measurement::of_fio(&fio.replace("iops", "ops")).unwrap_err().to_string();
        assert!(error.contains("/iops"), "{error}");
        let error =
            Measurement::of_forerun(&forerun.replace("p99_us", "x")).unwrap_err().to_string();
        assert!(error.contains("p99_us"), "{error}");
        assert!(Measurement::of_fio("nothing").is_err());
    }
}
