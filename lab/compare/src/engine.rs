//! `forerun-compare engine`: the live engine beside fio and the kernel, on this machine.
//!
//! ```text
//!   round 1   forerun   fio io_uring   fio libaio      of the same file, in turns
//!   round 2   fio io_uring   fio libaio   forerun
//!             ratio of each round -> median, spread -> summary.md, a record a job, page.html
//! ```
//!
//! # Invariants
//! - `--quick` takes a smaller file and shorter measurements: a test, without figures to keep.

mod contender;
mod fio;
mod job;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::args::{Places, in_turns};
use crate::forerun::{self, folder, output_of, put, read, release, write};
use crate::table::{self, Row};
use contender::{Contender, Measurement};
use job::{JOBS, Job};

/// The options of the command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    places: Places,
    /// The file to read [default: one is made]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Rounds, in turns
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: NonZeroUsize,
    /// A smaller file and shorter measurements: to see that all works
    #[arg(long)]
    quick: bool,
}

impl Args {
    /// Seconds of each measurement.
    fn seconds(&self) -> u32 {
        if self.quick { 1 } else { 5 }
    }

    /// The file to read; made if none was named.
    fn file(&self, forerun: &Path, folder: &Path) -> Result<PathBuf> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let size = if self.quick { "512M" } else { "4G" };
        let file = folder.join(format!("pattern-{size}"));
        println!("\n== {} of {size}", file.display());
        let mut command = Command::new(forerun);
        command.args(["bench", "file"]).arg(&file).args(["--make", size, "--seconds", "0.1"]);
        output_of(&mut command)?;
        Ok(file)
    }
}

/// Measures everything and writes the records.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let engines = fio::engines()?;
    let bench = folder(forerun::target(root).join("bench"))?;
    let out = folder(args.places.out.clone().unwrap_or_else(|| bench.join("engine")))?;
    let forerun = release(root, args.places.forerun.as_deref())?;
    let file = args.file(&forerun, &bench)?;
    let bench = Bench { forerun, out, args, engines };
    let mut rows = Vec::new();
    let mut records = Vec::new();
    for job in &JOBS {
        println!("\n== {}", job.title);
        records.push(bench.job(job, &file, &mut rows)?);
    }
    println!("\n== hits");
    records.push(bench.hits(&mut rows)?);
    bench.close(&records, &file, &rows)
}

/// The state of one bench.
struct Bench<'a> {
    forerun: PathBuf,
    out: PathBuf,
    args: &'a Args,
    /// The engines that fio lists.
    engines: Vec<String>,
}

impl Bench<'_> {
    /// All rounds of one job; the path of its record.
    fn job(&self, job: &Job, file: &Path, rows: &mut Vec<Row>) -> Result<PathBuf> {
        let path = self.out.join(format!("{}.json", job.name));
        let contenders = job.contenders(&self.engines);
        let taken = in_turns(self.args.rounds, contenders.len(), |round, at| {
            let measurement = self.measured(&contenders[at], job, file, round, &path)?;
            println!("round {}: {}: {measurement}", round + 1, contenders[at].name());
            Ok(measurement)
        })?;
        rows.extend(job.rows(&contenders, &taken));
        let mut record = read(&path)?;
        job.record(&mut record, &contenders, &taken);
        write(&path, &record)?;
        Ok(path)
    }

    fn measured(
        &self,
        contender: &Contender,
        job: &Job,
        file: &Path,
        round: usize,
        record: &Path,
    ) -> Result<Measurement> {
        let seconds = self.args.seconds();
        let mut command = match contender {
            Contender::Forerun => {
                let mut command = Command::new(&self.forerun);
                command.args(job.forerun(seconds, round)).arg(file).arg("-o").arg(record);
                command
            }
            Contender::Fio(engine) => {
                let mut command = Command::new("fio");
                command.args(fio::words(job, engine, file, seconds, round));
                command
            }
        };
        let text = output_of(&mut command)?;
        let measurement = match contender {
            Contender::Forerun => Measurement::of_forerun(&text),
            Contender::Fio(_) => Measurement::of_fio(&text),
        };
        measurement.with_context(|| format!("measurement of {}", contender.name()))
    }

    /// Hits beside `pread`; the path of the record.
    fn hits(&self, rows: &mut Vec<Row>) -> Result<PathBuf> {
        let path = self.out.join("hit.json");
        let (rounds, seconds) = (self.args.rounds.to_string(), 6 * self.args.seconds());
        let mut command = Command::new(&self.forerun);
        command.args(["bench", "hit", "--size", "64M", "--threads", "1,2", "--json"]);
        command.args(["--repeats", &rounds, "--seconds", &seconds.to_string(), "-o"]).arg(&path);
        let text = output_of(&mut command)?;
        let runs: Value = serde_json::from_str(&text).context("hits are no JSON")?;
        rows.extend(table::of_hits(&runs)?);
        Ok(path)
    }

    /// The summary and the page.
    fn close(&self, records: &[PathBuf], file: &Path, rows: &[Row]) -> Result<()> {
        let record = read(&records[0])?;
        let text = table::text(&record, file, &file_system(file), self.args.rounds, rows);
        put(&self.out.join("summary.md"), &text)?;
        let page = self.out.join("page.html");
        output_of(Command::new(&self.forerun).arg("report").args(records).arg("-o").arg(&page))?;
        println!("\n{text}\nrecords and page: {}", self.out.display());
        Ok(())
    }
}

/// The device and the file system that hold `file`, where `findmnt` knows them.
fn file_system(file: &Path) -> String {
    let mut command = Command::new("findmnt");
    let output = command.args(["-no", "SOURCE,FSTYPE", "-T"]).arg(file).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}
