//! `cargo xtask bench engine`: the live engine beside fio and the kernel, on this machine.
//! (`bench streams` and `bench virtual` compare readahead: see `streams` and `floors`; `bench lab`
//! compares simulators: see `lab`.)
//!
//! ```text
//!   round 1   forerun   fio io_uring   fio libaio      of the same file, in turns
//!   round 2   fio io_uring   fio libaio   forerun
//!             ratio of each round -> median, spread -> summary.md, a record a job, page.html
//! ```
//!
//! # Invariants
//! - A ratio is of figures of the same round; no figure is left out.
//! - Targets are judged in the summary alone: a machine that misses them is no failed run.

mod bed;
mod contender;
mod device;
mod fio;
pub(crate) mod floors;
mod job;
pub(crate) mod lab;
pub(crate) mod options;
pub(crate) mod programs;
pub(crate) mod streams;
mod summary;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use contender::{Contender, Figures};
use job::{JOBS, Job};
use summary::Row;

/// What the command line chooses.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    out: Option<PathBuf>,
    file: Option<PathBuf>,
    rounds: u32,
    /// A smaller file and shorter measurements: to see that all works.
    quick: bool,
}

impl Options {
    /// Options from `--quick` and `--name value` pairs.
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self { out: None, file: None, rounds: ROUNDS, quick: false };
        options::each(words, &["--quick"], |name, value| {
            match name {
                "--quick" => options.quick = true,
                "--out" => options.out = Some(value.into()),
                "--file" => options.file = Some(value.into()),
                "--rounds" => options.rounds = options::count(name, value)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(options)
    }

    /// Seconds of each measurement.
    fn seconds(&self) -> u32 {
        if self.quick { 1 } else { 5 }
    }

    /// The file that is made where none is named.
    fn file_size(&self) -> &'static str {
        if self.quick { "512M" } else { "4G" }
    }
}

/// Measures everything and writes the records.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let engines = fio::engines()?;
    let folder = crate::target(root).join("bench");
    let out = options.out.clone().unwrap_or_else(|| folder.join("engine"));
    for folder in [&folder, &out] {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let bench = Bench { forerun: release(root, None)?, out, options, engines };
    let file = bench.file(&folder)?;
    let mut rows = Vec::new();
    let mut records = Vec::new();
    for job in &JOBS {
        println!("\n== {}", job.title);
        records.push(bench.job(job, &file, &mut rows)?);
    }
    println!("\n== hits");
    records.push(bench.hits(&mut rows)?);
    bench.close(&records, &file, &rows)?;
    Ok(true)
}

/// What all jobs share.
struct Bench<'a> {
    forerun: PathBuf,
    out: PathBuf,
    options: &'a Options,
    /// fio's, as it lists them.
    engines: Vec<String>,
}

impl Bench<'_> {
    /// The file to read; made if none was named.
    fn file(&self, folder: &Path) -> Result<PathBuf> {
        if let Some(file) = &self.options.file {
            return Ok(file.clone());
        }
        let size = self.options.file_size();
        let file = folder.join(format!("pattern-{size}"));
        println!("\n== {} of {size}", file.display());
        let mut command = Command::new(&self.forerun);
        command.args(["bench", "file"]).arg(&file).args(["--make", size, "--seconds", "0.1"]);
        told(&mut command)?;
        Ok(file)
    }

    /// All rounds of one job; the path of its record.
    fn job(&self, job: &Job, file: &Path, rows: &mut Vec<Row>) -> Result<PathBuf> {
        let path = self.out.join(format!("{}.json", job.name));
        let contenders = job.contenders(&self.engines);
        let mut taken: Vec<Vec<Figures>> = vec![Vec::new(); contenders.len()];
        let rounds = self.options.rounds as usize;
        for round in 0..rounds {
            for turn in 0..contenders.len() {
                let at = (round + turn) % contenders.len();
                let figures = self.measured(&contenders[at], job, file, round, &path)?;
                println!("round {} of {rounds}: {}: {figures}", round + 1, contenders[at].name());
                taken[at].push(figures);
            }
        }
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
    ) -> Result<Figures> {
        let seconds = self.options.seconds();
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
        let text = told(&mut command)?;
        let figures = match contender {
            Contender::Forerun => Figures::of_forerun(&text),
            Contender::Fio(_) => Figures::of_fio(&text),
        };
        figures.with_context(|| format!("figures of {}", contender.name()))
    }

    /// Hits beside `pread`; the path of the record.
    fn hits(&self, rows: &mut Vec<Row>) -> Result<PathBuf> {
        let path = self.out.join("hit.json");
        let (rounds, seconds) = (self.options.rounds.to_string(), 6 * self.options.seconds());
        let mut command = Command::new(&self.forerun);
        command.args(["bench", "hit", "--threads", "1,2", "--json", "--repeats", &rounds]);
        command.args(["--seconds", &seconds.to_string(), "-o"]).arg(&path);
        let text = told(&mut command)?;
        let runs: Value = serde_json::from_str(&text).context("hits are no JSON")?;
        rows.extend(summary::of_hits(&runs)?);
        Ok(path)
    }

    /// The summary and the page.
    fn close(&self, records: &[PathBuf], file: &Path, rows: &[Row]) -> Result<()> {
        let record = read(&records[0])?;
        let file_system = file_system(file);
        let text = summary::text(&record, file, &file_system, self.options.rounds, rows);
        let path = self.out.join("summary.md");
        std::fs::write(&path, &text).with_context(|| path.display().to_string())?;
        let page = self.out.join("page.html");
        told(Command::new(&self.forerun).arg("report").args(records).arg("-o").arg(&page))?;
        println!("\n{text}\nrecords and page: {}", self.out.display());
        Ok(())
    }
}

/// The program to measure: the one that was named, or the release build, which knows its commit.
fn release(root: &Path, named: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = named {
        return Ok(path.to_path_buf());
    }
    let mut git = Command::new("git");
    let commit = git.args(["rev-parse", "--short", "HEAD"]).current_dir(root).output();
    let mut cargo = Command::new(crate::cargo());
    cargo.args(["build", "--release", "--package", "forerun-cli"]).current_dir(root);
    if let Ok(commit) = commit
        && commit.status.success()
    {
        cargo.env("FORERUN_COMMIT", String::from_utf8_lossy(&commit.stdout).trim());
    }
    ensure!(cargo.status().context("cargo build")?.success(), "the release build failed");
    Ok(crate::target(root).join("release/forerun"))
}

/// Where the records of a bench go unless a folder is named.
fn place(root: &Path, bench: &str) -> Result<PathBuf> {
    let word = |program: &str, words: &[&str]| {
        told(Command::new(program).args(words).current_dir(root)).map(|text| text.trim().to_owned())
    };
    let (day, machine) = (word("date", &["-u", "+%F"])?, word("uname", &["-n"])?);
    let commit = word("git", &["rev-parse", "--short", "HEAD"])?;
    Ok(root.join("bench/runs").join(format!("{day}-{machine}-{commit}")).join(bench))
}

/// What `command` prints on stdout; it must succeed.
fn told(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| name.clone())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{name} failed ({}): {}", output.status, text.trim());
    Ok(text)
}

/// The device and the file system that hold `file`, where the system tells.
fn file_system(file: &Path) -> String {
    let mut command = Command::new("findmnt");
    let output = command.args(["-no", "SOURCE,FSTYPE", "-T"]).arg(file).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn read(path: &Path) -> Result<Value> {
    let text = std::fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

fn write(path: &Path, record: &Value) -> Result<()> {
    std::fs::write(path, format!("{record}\n")).with_context(|| path.display().to_string())
}

const ROUNDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn options_have_defaults() {
        let parsed = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Options::parse(&words).ok()
        };
        let plain = || Options { out: None, file: None, rounds: 5, quick: false };
        assert_eq!(parsed(""), Some(plain()));
        assert_eq!(parsed("--quick"), Some(Options { quick: true, ..plain() }));
        let all = Options { out: Some("o".into()), file: Some("f".into()), rounds: 7, quick: true };
        assert_eq!(parsed("--out o --quick --file f --rounds 7"), Some(all));
        assert_eq!(parsed("--rounds 0"), None);
    }
}
