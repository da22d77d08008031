//! The simulators that replay a trace, and their replays, read from their output.
//!
//! ```text
//!   forerun                 forerun sim FILE ... --json            the whole command
//!   libCacheSim, Python     its `process_trace`, called natively   opening the trace, replaying
//!   libCacheSim, cachesim   cachesim FILE oracleGeneral ...        the whole command
//! ```
//! Peak memory is that of the process; for the Python library, less the memory of the interpreter
//! with the library loaded. A mapped trace counts in it.
//! `cachesim` prints four digits of a miss ratio: its misses are known to one in ten thousand.
//!
//! # Invariants
//! - Each runs one thread and counts pages: `cachesim` has the sizes in the trace ignored.
//! - A missing figure is an error, never 0.
//! # Sources
//! libCacheSim 0.3.5: `libCacheSim/bin/cachesim/{cli_parser,sim}.c`.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Job;
use crate::forerun::output_of;

/// A simulator, and how it is run.
#[derive(Debug, PartialEq)]
pub(super) enum Simulator {
    Forerun(PathBuf),
    /// `start_bytes` is the memory of the interpreter with the library loaded.
    Library {
        start_bytes: f64,
    },
    Program(PathBuf),
}

impl Simulator {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Forerun(_) => "forerun",
            Self::Library { .. } => LIBRARY,
            Self::Program(_) => PROGRAM,
        }
    }

    /// Whether the simulator takes `job`: cachesim only reads its own format.
    pub(super) fn takes(&self, job: &Job) -> bool {
        match self {
            Self::Forerun(_) | Self::Library { .. } => true,
            Self::Program(_) => job.form == "oracleGeneral",
        }
    }

    /// One replay.
    pub(super) fn replay(&self, job: &Job, timer: &Timer) -> Result<Replay> {
        self.figures(&timer.timed(&self.words(job, timer))?).with_context(|| self.name())
    }

    fn words(&self, job: &Job, timer: &Timer) -> Vec<String> {
        let Job { form, policies, sizes, .. } = job;
        let file = job.file.display().to_string();
        let (mut words, options) = match self {
            Self::Forerun(program) => (
                vec![program.display().to_string(), "sim".to_owned(), file],
                format!("--format {form} --policy {policies} --size {sizes} --threads 1 --json"),
            ),
            Self::Library { .. } => {
                let mut words = timer.script("libcachesim");
                words.extend([(*form).to_owned(), file]);
                let cells = job.cells.iter().map(|(policy, pages)| format!("{policy}:{pages} "));
                (words, cells.collect())
            }
            // `cachesim` also writes its report to a file.
            Self::Program(program) => (
                vec![program.display().to_string(), file],
                format!(
                    "{form} {policies} {sizes} --ignore-obj-size 1 --num-thread 1 \
                     --print-head-req 0 --output /dev/null"
                ),
            ),
        };
        words.extend(options.split_whitespace().map(str::to_owned));
        words
    }

    fn figures(&self, timed: &Timed) -> Result<Replay> {
        let &Timed { seconds, peak_bytes, ref output } = timed;
        match self {
            Self::Forerun(_) => {
                let (accesses, misses) = (of_runs(output, "accesses")?, of_runs(output, "misses")?);
                let ratios =
                    misses.iter().zip(&accesses).map(|(misses, all)| misses / all.max(1.0));
                let (miss_ratios, accesses) = (ratios.collect(), Some(accesses.iter().sum()));
                Ok(Replay { seconds, peak_bytes, miss_ratios, accesses })
            }
            Self::Library { start_bytes } => Ok(Replay {
                seconds: of_runs(output, "seconds")?.iter().sum(),
                peak_bytes: peak_bytes - start_bytes,
                miss_ratios: of_runs(output, "miss_ratio")?,
                accesses: None,
            }),
            Self::Program(_) => {
                let (accesses, miss_ratio) = of_program(output)?;
                let (miss_ratios, accesses) = (vec![miss_ratio], Some(accesses));
                Ok(Replay { seconds, peak_bytes, miss_ratios, accesses })
            }
        }
    }
}

/// The results of one replay.
#[derive(Debug, PartialEq)]
pub(super) struct Replay {
    pub(super) seconds: f64,
    pub(super) peak_bytes: f64,
    /// A cell each.
    pub(super) miss_ratios: Vec<f64>,
    /// The accesses of all cells, where the simulator prints them.
    pub(super) accesses: Option<f64>,
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s {:.1} MB", self.seconds, self.peak_bytes / 1e6)
    }
}

/// Runs commands and measures their time and memory, by a Python program.
pub(super) struct Timer {
    pub(super) python: String,
    pub(super) script: PathBuf,
}

/// A command's output, time and memory.
pub(super) struct Timed {
    pub(super) seconds: f64,
    pub(super) peak_bytes: f64,
    pub(super) output: String,
}

impl Timer {
    /// The library, loaded and idle.
    pub(super) fn library(&self) -> Result<Simulator> {
        let start_bytes = self.timed(&self.script("start"))?.peak_bytes;
        Ok(Simulator::Library { start_bytes })
    }

    fn script(&self, what: &str) -> Vec<String> {
        vec![self.python.clone(), self.script.display().to_string(), what.to_owned()]
    }

    fn timed(&self, words: &[String]) -> Result<Timed> {
        let mut command = Command::new(&self.python);
        command.arg(&self.script).arg("timed").args(words);
        let json: Value = serde_json::from_str(&output_of(&mut command)?).context("no JSON")?;
        Ok(Timed {
            seconds: json["seconds"].as_f64().context("no time")?,
            peak_bytes: json["peak_bytes"].as_f64().context("no memory")?,
            output: json["output"].as_str().context("no output")?.to_owned(),
        })
    }
}

/// A figure of each run in the JSON of forerun and `lab.py`.
fn of_runs(output: &str, name: &str) -> Result<Vec<f64>> {
    let json: Value = serde_json::from_str(output).context("no JSON")?;
    let runs = json["runs"].as_array().context("no runs")?;
    runs.iter().map(|run| run[name].as_f64().with_context(|| format!("no {name}"))).collect()
}

/// Accesses and the miss ratio of `... cache size 9, 18 req, miss ratio 0.5000, throughput ...`,
/// the last line of `cachesim`.
fn of_program(output: &str) -> Result<(f64, f64)> {
    let fields = || output.trim_end().lines().next_back().unwrap_or_default().split(", ");
    let accesses = fields().find_map(|field| field.strip_suffix(" req"));
    let ratio = fields().find_map(|field| field.strip_prefix("miss ratio "));
    let number = |text: Option<&str>| text.and_then(|text| text.trim().parse().ok());
    let told = number(accesses).zip(number(ratio));
    told.with_context(|| format!("expected requests and their miss ratio: {output}"))
}

pub(super) const LIBRARY: &str = "libCacheSim, Python";
pub(super) const PROGRAM: &str = "libCacheSim, cachesim";

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(output: &str) -> Timed {
        Timed { seconds: 2.0, peak_bytes: 9e6, output: output.to_owned() }
    }

    #[test]
    fn figures_are_read_from_each() {
        let both = r#"{"runs": [{"accesses": 8, "misses": 2, "seconds": 0.5, "miss_ratio": 0.25},
            {"accesses": 8, "misses": 4, "seconds": 0.25, "miss_ratio": 0.5}]}"#;
        let program = "a note\n/a, b/t TwoQ cache size    27517,          16 req, miss ratio \
            0.0781, throughput 5.55 MQPS\n";
        let library = Simulator::Library { start_bytes: 4e6 };
        #[rustfmt::skip]
        let rows = [ // simulator, what it prints, seconds, peak, miss ratios, accesses
            (Simulator::Forerun("f".into()), both,    2.0,  9e6, vec![0.25, 0.5], Some(16.0)),
            (library,                        both,    0.75, 5e6, vec![0.25, 0.5], None),
            (Simulator::Program("p".into()), program, 2.0,  9e6, vec![0.0781],    Some(16.0)),
        ];
        for (simulator, output, seconds, peak_bytes, miss_ratios, accesses) in rows {
            let expected = Replay { seconds, peak_bytes, miss_ratios, accesses };
            assert_eq!(simulator.figures(&timed(output)).unwrap(), expected, "{simulator:?}");
        }
    }

    #[test]
    fn a_figure_that_is_missing_is_an_error() {
        let program = Simulator::Program("p".into());
        #[rustfmt::skip]
        let rows = [
            "",
            "t LRU cache size 9, miss ratio 0.5000",
            "t LRU cache size 9, 18 req",
            "t LRU cache size 9KiB, 18 req, byte miss ratio 0.5000",
            "t LRU cache size 9, x req, miss ratio 0.5000",
        ];
        for output in rows {
            let error = program.figures(&timed(output)).unwrap_err().to_string();
            assert!(error.contains("miss ratio"), "{error}");
        }
        let forerun = Simulator::Forerun("f".into());
        for output in ["", "{}", r#"{"runs": [{"accesses": 8}]}"#] {
            assert!(forerun.figures(&timed(output)).is_err(), "{output}");
        }
    }

    #[test]
    fn each_is_asked_for_the_same_pages_in_one_thread() {
        let job = Job {
            title: "t".to_owned(),
            form: "oracleGeneral",
            file: "/a b/t".into(),
            cells: vec![("2q", 9)],
            policies: "2q".to_owned(),
            sizes: "9".to_owned(),
            rate: 2.0,
        };
        let timer = Timer { python: "py".to_owned(), script: "lab.py".into() };
        #[rustfmt::skip]
        let rows = [
            (Simulator::Forerun("f".into()),
             "f|sim|/a b/t|--format|oracleGeneral|--policy|2q|--size|9|--threads|1|--json"),
            (Simulator::Library { start_bytes: 0.0 },
             "py|lab.py|libcachesim|oracleGeneral|/a b/t|2q:9"),
            (Simulator::Program("c".into()),
             "c|/a b/t|oracleGeneral|2q|9|--ignore-obj-size|1|--num-thread|1|\
              --print-head-req|0|--output|/dev/null"),
        ];
        for (simulator, words) in rows {
            assert_eq!(simulator.words(&job, &timer).join("|"), words);
            assert!(simulator.takes(&job));
        }
        let keys = Job { form: "keys", ..job };
        assert!(!Simulator::Program("c".into()).takes(&keys));
        assert!(Simulator::Library { start_bytes: 0.0 }.takes(&keys));
    }
}
