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

use super::{Job, Source};
use crate::bed::Bed;
use crate::device::DEVICES;
use crate::forerun::output_of;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Forerun,
    NbdkitFile,
    NbdkitMemory,
    /// The file plugin behind the filter that prefetches, and the cache that this needs.
    NbdkitReadahead,
    /// The file plugin behind the cache alone.
    NbdkitCache,
    /// The file itself, past the kernel's cache.
    Raw,
}

/// Where and how long.
pub(crate) struct Place<'a> {
    pub(crate) forerun: &'a Path,
    pub(crate) file: &'a Path,
    /// The emulated device, where the machine has one.
    pub(crate) bed: Option<&'a Bed>,
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
            Self::NbdkitReadahead => "nbdkit file, readahead filter",
            Self::NbdkitCache => "nbdkit file, cache filter",
            Self::Raw => "fio, raw file",
        }
    }

    /// Measures `job`.
    pub(crate) fn measure(self, job: &Job, place: &Place<'_>, round: usize) -> Result<Measurement> {
        if job.from == Source::Cloud {
            let cloud = DEVICES.iter().find(|device| device.name == "cloud").context("cloud")?;
            place.bed.context("no emulated device")?.cold(cloud, READ_AHEAD_KIB)?;
        }
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
        if job.from == Source::Memory {
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
                let cache = if job.from == Source::Disk { "32M" } else { "512M" };
                command.args(["serve", "--cache", cache, "--socket"]);
                command.arg(place.socket).arg(place.file);
            }
            Self::NbdkitFile => {
                command.args(["-f", "-r", "-U"]).arg(place.socket).arg("file").arg(place.file);
            }
            Self::NbdkitReadahead => {
                command.args(["-f", "-r", "--filter=readahead", "--filter=cache", "-U"]);
                command.arg(place.socket).arg("file").arg(place.file).arg("cache-on-read=true");
            }
            Self::NbdkitCache => {
                command.args(["-f", "-r", "--filter=cache", "-U"]);
                command.arg(place.socket).arg("file").arg(place.file).arg("cache-on-read=true");
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
    let bytes = fs::metadata(place.file).map_or(0, |there| there.len()) / u64::from(job.readers);
    let bytes = bytes / ALIGN * ALIGN;
    let words = format!(
        "--name={} --rw={} --bs={} --iodepth={} --size={bytes} --offset_increment={bytes} \
         --numjobs={} --group_reporting --runtime={} --time_based \
         --norandommap --randseed={} --readonly --output-format=json",
        job.name,
        job.order,
        job.request,
        job.depth,
        job.readers,
        place.seconds,
        round + 1
    );
    command.args(words.split_whitespace());
    command
}

/// Parts of a file begin at multiples of it.
const ALIGN: u64 = 1 << 20;
/// The kernel's default.
const READ_AHEAD_KIB: u32 = 128;

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
