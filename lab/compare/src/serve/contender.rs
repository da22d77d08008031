//! The servers, and fio as their client.
//!
//! # Invariants
//! - A server is ready when its socket takes a connection, and ends with its measurement.
//! - A missing figure is an error, never 0.
//! # Sources
//! fio's `HOWTO`, engine `nbd`, JSON; `nbdkit-file-plugin(1)`, `nbdkit-memory-plugin(1)`.

use std::fmt;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Job;
use crate::forerun::output_of;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Forerun,
    NbdkitFile,
    NbdkitMemory,
    /// The file itself, past the kernel's cache.
    Raw,
}

/// Where and how long.
pub(crate) struct Place<'a> {
    pub(crate) forerun: &'a Path,
    pub(crate) file: &'a Path,
    pub(crate) socket: &'a Path,
    pub(crate) seconds: u32,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measurement {
    pub(crate) requests_per_second: f64,
    pub(crate) mean_us: f64,
}

impl Contender {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Forerun => "forerun",
            Self::NbdkitFile => "nbdkit file",
            Self::NbdkitMemory => "nbdkit memory",
            Self::Raw => "fio, raw file",
        }
    }

    /// Measures `job`.
    pub(crate) fn measure(self, job: &Job, place: &Place<'_>, round: usize) -> Result<Measurement> {
        let Some(mut command) = self.server(job, place) else {
            let mut fio = fio(job, place, round);
            fio.args(["--ioengine=io_uring", "--direct=1"]);
            fio.arg(format!("--filename={}", place.file.display()));
            return Measurement::of_fio(&output_of(&mut fio)?);
        };
        let _ = fs::remove_file(place.socket);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let name = command.get_program().display().to_string();
        let mut server = Server(command.spawn().with_context(|| name.clone())?);
        while UnixStream::connect(place.socket).is_err() {
            ensure!(server.0.try_wait()?.is_none(), "{name} ended before it served");
            thread::sleep(Duration::from_millis(5));
        }
        let uri = format!("nbd+unix:///?socket={}", place.socket.display());
        if self == Self::NbdkitMemory {
            output_of(Command::new("nbdcopy").arg(place.file).arg(&uri))?;
        }
        if job.hits {
            output_of(Command::new("nbdcopy").args([&uri, "null:"]))?;
        } else if self == Self::NbdkitFile {
            drop_from_cache(place.file)?;
        }
        let mut fio = fio(job, place, round);
        fio.arg("--ioengine=nbd").arg(format!("--uri={uri}"));
        Measurement::of_fio(&output_of(&mut fio)?)
    }

    /// The server; none for the file itself.
    fn server(self, job: &Job, place: &Place<'_>) -> Option<Command> {
        let mut command = Command::new(if self == Self::Forerun {
            place.forerun.as_os_str()
        } else {
            "nbdkit".as_ref()
        });
        match self {
            Self::Raw => return None,
            Self::Forerun => {
                let cache = if job.hits { "512M" } else { "32M" };
                command.args(["serve", "--cache", cache, "--socket"]);
                command.arg(place.socket).arg(place.file);
            }
            Self::NbdkitFile => {
                command.args(["-f", "-r", "-U"]).arg(place.socket).arg("file").arg(place.file);
            }
            Self::NbdkitMemory => {
                let bytes = fs::metadata(place.file).map_or(0, |there| there.len());
                command.args(["-f", "-U"]).arg(place.socket).arg("memory").arg(bytes.to_string());
            }
        }
        Some(command)
    }
}

/// A server, until it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// fio for `job`, without its engine.
fn fio(job: &Job, place: &Place<'_>, round: usize) -> Command {
    let mut command = Command::new("fio");
    let bytes = fs::metadata(place.file).map_or(0, |there| there.len());
    let words = format!(
        "--name={} --rw={} --bs={} --iodepth={} --size={bytes} --runtime={} --time_based \
         --norandommap --randseed={} --readonly --output-format=json",
        job.name,
        job.order,
        job.request,
        job.depth,
        place.seconds,
        round + 1
    );
    command.args(words.split_whitespace());
    command
}

/// Drops the pages of `file` from the kernel's cache, by `dd`.
fn drop_from_cache(file: &Path) -> Result<()> {
    let mut command = Command::new("dd");
    command.arg(format!("if={}", file.display())).args(["iflag=nocache", "count=0", "status=none"]);
    output_of(&mut command).map(drop)
}

impl Measurement {
    /// The measurement in fio's output: JSON, after any notes.
    fn of_fio(text: &str) -> Result<Self> {
        let from = text.find('{').context("fio: no JSON")?;
        let json: Value = serde_json::from_str(&text[from..]).context("fio: no JSON")?;
        let read = json.pointer("/jobs/0/read").context("fio: no job")?;
        let figure = |path: &str| {
            let found = read.pointer(path).and_then(Value::as_f64);
            found.with_context(|| format!("fio: no {path}"))
        };
        Ok(Self { requests_per_second: figure("/iops")?, mean_us: figure("/lat_ns/mean")? / 1e3 })
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} IO/s, mean {:.1} us", self.requests_per_second, self.mean_us)
    }
}

#[cfg(test)]
mod tests {
    use super::Measurement;

    #[test]
    fn a_missing_figure_is_an_error() {
        let text = r#"note {"jobs": [{"read": {"iops": 12.5, "lat_ns": {"mean": 2000.0}}}]}"#;
        let expected = Measurement { requests_per_second: 12.5, mean_us: 2.0 };
        assert_eq!(Measurement::of_fio(text).unwrap(), expected);
        assert!(Measurement::of_fio(&text.replace("mean", "x")).is_err());
        assert!(Measurement::of_fio("nothing").is_err());
    }
}
