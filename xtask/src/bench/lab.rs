//! `cargo xtask bench lab`: the lab's simulator beside libCacheSim, on this machine.
//!
//! ```text
//!   trace --convert--> a list of keys, oracleGeneral     the same file for both
//!   round 1   forerun   libCacheSim                      each policy, a tenth of the blocks
//!   round 2   libCacheSim   forerun
//!             ratio of each round -> median, spread -> summary.md, lab.json
//! ```
//! Ours is the time of the whole command, theirs that of the library alone, which a Python program
//! calls natively. Peak memory is what the kernel tells of each process; of theirs, what the
//! interpreter takes with the library loaded is left out.
//!
//! # Invariants
//! - Nothing is installed: without the library its figures are left out, which is said.
//! - Both must agree on the misses to .2 points, or nothing is compared; to 5 for LIRS, whose rules
//!   are others there.
//! - A ratio is of figures of the same round. Targets are judged in the summary alone.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::summary::{self, Row, Spread, Target};
use super::{options, place, read, release, target, told, write};

/// What the command line chooses.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    out: Option<PathBuf>,
    /// The program that may know the library.
    python: String,
    /// Where recorded traces lie.
    traces: Option<PathBuf>,
    rounds: u32,
    /// Traces, or [`SWEEP`]; all unless named.
    only: Vec<String>,
    forerun: Option<PathBuf>,
}

impl Options {
    /// Options from `--name value` pairs.
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let python = "python3".to_owned();
        let (only, traces, forerun) = (Vec::new(), None, None);
        let mut options = Self { out: None, python, traces, rounds: ROUNDS, only, forerun };
        options::each(words, &[], |name, value| {
            match name {
                "--out" => options.out = Some(value.into()),
                "--python" => value.clone_into(&mut options.python),
                "--traces" => options.traces = Some(value.into()),
                "--rounds" => options.rounds = options::count(name, value)?,
                "--only" => options.only = options::known(value, &NAMES)?,
                "--forerun" => options.forerun = Some(value.into()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(options)
    }

    fn has(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// Measures everything and writes the record and the summary.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let out = options.out.clone().map_or_else(|| place(root, "lab"), Ok)?;
    let folder = target(root).join("bench/lab");
    for folder in [&folder, &out] {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let forerun = release(root, options.forerun.as_deref())?;
    let script = root.join("bench/python/lab.py");
    let mut bench = Bench { forerun, script, options, folder, start: None, taken: Vec::new() };
    bench.find_library();
    let traces = bench.traces(root);
    for trace in traces.iter().filter(|trace| options.has(&trace.name)) {
        for form in FORMS {
            let file = bench.converted(trace, form)?;
            let pages = bench.pages(&file, form, "10%")?;
            for policy in POLICIES {
                bench.measure(Job {
                    title: format!("{}, {form}: {policy}", trace.name),
                    form,
                    file: file.clone(),
                    cells: vec![(policy, pages)],
                    policies: policy.to_owned(),
                    sizes: pages.to_string(),
                    rate: if form == "keys" { 4.0 } else { 2.0 },
                })?;
            }
        }
    }
    if let Some(smallest) = traces.last().filter(|_| options.has(SWEEP)) {
        bench.sweep(smallest)?;
    }
    bench.close(&out)
}

/// A trace, and what it is called.
struct Trace {
    name: String,
    source: String,
}

/// What both do.
struct Job {
    title: String,
    form: &'static str,
    file: PathBuf,
    /// Policies and sizes, each with each.
    cells: Vec<(&'static str, u64)>,
    policies: String,
    sizes: String,
    /// How many times as fast we are to be.
    rate: f64,
}

/// What one of them came to in a round.
struct Figures {
    seconds: f64,
    peak_bytes: f64,
    miss_ratios: Vec<f64>,
    accesses: f64,
}

/// A job's rounds: ours, and theirs if there are any.
struct Taken {
    job: Job,
    ours: Vec<Figures>,
    theirs: Vec<Figures>,
}

struct Bench<'a> {
    forerun: PathBuf,
    script: PathBuf,
    options: &'a Options,
    folder: PathBuf,
    /// Memory of the interpreter with the library loaded, where there is one.
    start: Option<f64>,
    taken: Vec<Taken>,
}

impl Bench<'_> {
    fn find_library(&mut self) {
        let script = self.script.display().to_string();
        let found = self.timed(&[&self.options.python, &script, "start"]);
        match found {
            Ok(found) => self.start = found["peak_bytes"].as_f64(),
            Err(error) => {
                println!(
                    "left out: libCacheSim: {} cannot load it: {error:#}",
                    self.options.python
                );
            }
        }
    }

    /// The mail workload, which anybody has, and the recorded traces that are there.
    fn traces(&self, root: &Path) -> Vec<Trace> {
        let named = self.options.traces.clone();
        let named = named.or_else(|| std::env::var_os("FORERUN_TRACES").map(PathBuf::from));
        let folder = named.unwrap_or_else(|| root.join("../shared/traces"));
        let mail = Trace { name: "mail".to_owned(), source: MAIL.to_owned() };
        let mut traces = vec![mail];
        for (name, file) in RECORDED {
            let path = folder.join(file);
            if path.exists() {
                let source = path.display().to_string();
                traces.push(Trace { name: name.to_owned(), source });
            } else {
                println!("left out: {name}: there is no {}", path.display());
            }
        }
        traces
    }

    fn converted(&self, trace: &Trace, form: &str) -> Result<PathBuf> {
        let file = self.folder.join(format!("{}.{form}", trace.name));
        if !file.exists() {
            let mut command = Command::new(&self.forerun);
            command.args(["trace", "convert", &trace.source]).arg(&file).args(["--to", form]);
            told(&mut command)?;
        }
        Ok(file)
    }

    /// What a share of the trace's blocks is in pages.
    fn pages(&self, file: &Path, form: &str, share: &str) -> Result<u64> {
        let mut command = Command::new(&self.forerun);
        command.arg("sim").arg(file).args(["--format", form, "--policy", "fifo", "--json"]);
        command.args(["--size", share]);
        let json: Value = serde_json::from_str(&told(&mut command)?).context("no JSON")?;
        json.pointer("/runs/0/cache_pages").and_then(Value::as_u64).context("no cache_pages")
    }

    /// Six sizes of five policies at once.
    fn sweep(&mut self, trace: &Trace) -> Result<()> {
        let form = "keys";
        let file = self.converted(trace, form)?;
        let mut sizes = Vec::new();
        for share in SHARES {
            sizes.push(self.pages(&file, form, share)?);
        }
        let cells =
            POLICIES.iter().flat_map(|&policy| sizes.iter().map(move |&size| (policy, size)));
        let cells = cells.collect();
        let sizes = sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let title = format!("{}, {form}: {} x {}", trace.name, POLICIES.len(), SHARES.len());
        let policies = POLICIES.join(",");
        self.measure(Job { title, form, file, cells, policies, sizes, rate: 8.0 })
    }

    /// All rounds of one job.
    fn measure(&mut self, job: Job) -> Result<()> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        println!("\n== {}", job.title);
        for round in 0..self.options.rounds {
            // Who goes first changes with the round.
            let turns = if round % 2 == 0 { [true, false] } else { [false, true] };
            for is_ours in turns {
                if is_ours {
                    ours.push(self.ours(&job)?);
                } else if self.start.is_some() {
                    theirs.push(self.theirs(&job)?);
                }
            }
            let theirs = theirs.last().map_or(String::new(), |it| format!(", libCacheSim {it}"));
            println!("round {}: forerun {}{theirs}", round + 1, ours[ours.len() - 1]);
        }
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let ratios = ours.miss_ratios.iter().zip(&theirs.miss_ratios);
            for (cell, (a, b)) in job.cells.iter().zip(ratios) {
                let apart = if cell.0 == "lirs" { LIRS_APART } else { APART };
                ensure!((a - b).abs() <= apart, "{}: {cell:?}: misses {a} and {b}", job.title);
            }
        }
        self.taken.push(Taken { job, ours, theirs });
        Ok(())
    }

    fn ours(&self, job: &Job) -> Result<Figures> {
        let (forerun, file) = (self.forerun.display().to_string(), job.file.display().to_string());
        let found = self.timed(&[
            &forerun,
            "sim",
            &file,
            "--format",
            job.form,
            "--policy",
            &job.policies,
            "--size",
            &job.sizes,
            "--threads",
            "1",
            "--json",
        ])?;
        let runs = found.pointer("/output/runs").and_then(Value::as_array).context("no runs")?;
        let figure = |run: &Value, name: &str| run[name].as_f64().context("no figure");
        let accesses = runs.iter().map(|run| figure(run, "accesses")).sum::<Result<f64>>()?;
        let ratio = |run: &Value| Ok(figure(run, "misses")? / figure(run, "accesses")?.max(1.0));
        Ok(Figures {
            seconds: found["seconds"].as_f64().context("no time")?,
            peak_bytes: found["peak_bytes"].as_f64().context("no memory")?,
            miss_ratios: runs.iter().map(ratio).collect::<Result<_>>()?,
            accesses,
        })
    }

    fn theirs(&self, job: &Job) -> Result<Figures> {
        let cells: Vec<String> =
            job.cells.iter().map(|(policy, pages)| format!("{policy}:{pages}")).collect();
        let (script, file) = (self.script.display().to_string(), job.file.display().to_string());
        let mut words = vec![self.options.python.as_str(), &script, "libcachesim", job.form, &file];
        words.extend(cells.iter().map(String::as_str));
        let found = self.timed(&words)?;
        let runs = found.pointer("/output/runs").and_then(Value::as_array).context("no runs")?;
        let of = |name: &str| -> Result<Vec<f64>> {
            runs.iter().map(|run| run[name].as_f64().context("no figure")).collect()
        };
        let peak = found["peak_bytes"].as_f64().context("no memory")?;
        Ok(Figures {
            seconds: of("seconds")?.iter().sum(),
            peak_bytes: peak - self.start.unwrap_or(0.0),
            miss_ratios: of("miss_ratio")?,
            accesses: 0.0,
        })
    }

    /// Runs `words`, with time and memory.
    fn timed(&self, words: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.options.python);
        command.arg(&self.script).arg("timed").args(words);
        serde_json::from_str(&told(&mut command)?).context("no JSON")
    }

    /// The summary and the record.
    fn close(&self, out: &Path) -> Result<bool> {
        let path = out.join("lab.json");
        let record = self.record(&path)?;
        write(&path, &record)?;
        let rows: Vec<Row> = self.taken.iter().flat_map(Taken::rows).collect();
        let mut text = format!(
            "# The lab beside libCacheSim\n\n- {}\n- {}\n- {} rounds, in turns; ratios are within \
             a round: median (min to max)\n",
            summary::commit(&record),
            summary::machine(&record),
            self.options.rounds
        );
        text.push_str(&summary::table(&rows));
        let path = out.join("summary.md");
        std::fs::write(&path, &text).with_context(|| path.display().to_string())?;
        println!("\n{text}\nrecord and summary: {}", out.display());
        Ok(true)
    }

    /// A run for each job and each of the two, in a record of this machine.
    fn record(&self, scratch: &Path) -> Result<Value> {
        let mut command = Command::new(&self.forerun);
        command.args(["sim", "workload:streams,n=1,each=1M", "--device", "ssd", "-o"]);
        told(command.arg(scratch))?;
        let mut record = read(scratch)?;
        let mut settings = BTreeMap::new();
        let mut runs = Vec::new();
        for taken in &self.taken {
            for (name, rounds) in [("forerun", &taken.ours), ("libCacheSim", &taken.theirs)] {
                if rounds.is_empty() {
                    continue;
                }
                runs.push(taken.run(name, rounds));
                let told: Vec<String> = rounds.iter().map(Figures::to_string).collect();
                settings.insert(format!("samples.{}.{name}", taken.job.title), told.join(", "));
            }
        }
        record["device"] = json!("none");
        record["settings"] = json!(settings);
        record["runs"] = json!(runs);
        record["repeats"] = json!(self.options.rounds);
        record["command"] = json!(std::env::args().collect::<Vec<String>>());
        Ok(record)
    }
}

impl Taken {
    /// Speed and memory against the library.
    fn rows(&self) -> Vec<Row> {
        let Self { job, ours, theirs } = self;
        if theirs.is_empty() {
            return Vec::new();
        }
        let accesses = ours[0].accesses;
        let rate = |rounds: &[Figures]| -> Vec<f64> {
            rounds.iter().map(|it| accesses / it.seconds / 1e6).collect()
        };
        let peak = |rounds: &[Figures]| -> Vec<f64> {
            rounds.iter().map(|it| it.peak_bytes / 1e6).collect()
        };
        let row = |what: &str, of: &dyn Fn(&[Figures]) -> Vec<f64>, target: Target| Row {
            what: format!("{}: {what}", job.title),
            peer: "libCacheSim".to_owned(),
            ours: Spread::of(&of(ours)),
            theirs: Spread::of(&of(theirs)),
            ratio: Spread::of_ratios(&of(ours), &of(theirs)),
            target: Some(target),
            note: String::new(),
        };
        let has_tables = job.cells.iter().all(|(policy, _)| !matches!(*policy, "lru" | "arc"));
        let share = if has_tables { 0.25 } else { 0.5 };
        vec![
            row("M accesses/s", &rate, Target::AtLeast(job.rate)),
            row("peak MB", &peak, Target::AtMost(share)),
        ]
    }

    /// The medians of `rounds`, as a run of a record: what was missed is what a device would read.
    fn run(&self, name: &str, rounds: &[Figures]) -> Value {
        let accesses = self.ours[0].accesses;
        let of =
            |value: fn(&Figures) -> f64| Spread::of(&rounds.iter().map(value).collect::<Vec<_>>());
        let (seconds, peak) = (of(|it| it.seconds), of(|it| it.peak_bytes));
        let rate = |seconds: f64| accesses * PAGE_BYTES / seconds / 1e6;
        let cells = f64::from(u32::try_from(self.job.cells.len()).expect("a handful"));
        let missed: f64 = rounds[0].miss_ratios.iter().map(|ratio| ratio * accesses / cells).sum();
        json!({
            "readahead": name,
            "params": {
                "policy": self.job.policies,
                "cache_pages": self.job.sizes,
                "seconds": format!("{:.4}", seconds.median),
                "peak_mb": format!("{:.1}", peak.median / 1e6),
            },
            "device": "none",
            "emulated": true,
            "streams": 1,
            "workload": self.job.title,
            "mb_per_second": rate(seconds.median),
            "delay_seconds": 0.0,
            "device_requests": missed.round(),
            "mean_request_bytes": PAGE_BYTES,
            "bytes_read": missed.round() * PAGE_BYTES,
            "bytes_wanted": accesses * PAGE_BYTES,
            "p50_us": 0.0,
            "p99_us": 0.0,
            "spread": { "min": rate(seconds.max), "max": rate(seconds.min) },
        })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s {:.1} MB", self.seconds, self.peak_bytes / 1e6)
    }
}

const POLICIES: [&str; 5] = ["lru", "arc", "2q", "lirs", "s3-fifo"];
const FORMS: [&str; 2] = ["keys", "oracleGeneral"];
/// Sizes of the sweep.
const SHARES: [&str; 6] = ["1%", "2%", "5%", "10%", "20%", "40%"];
/// Two and a half million requests that anybody can make.
const MAIL: &str = "workload:mail,model=m1";
/// Recorded traces, the smallest last: the sweep is made on it.
const RECORDED: [(&str, &str); 2] =
    [("w106", "cloudphysics_w106.u32le.zst"), ("cloudphysics", "cloudphysics_io.vscsi.zst")];
/// Six sizes of each policy at once.
const SWEEP: &str = "sweep";
const NAMES: [&str; 4] = ["mail", "w106", "cloudphysics", SWEEP];
/// Both count misses alike but for details of ARC, LIRS and S3-FIFO.
const APART: f64 = 0.002;
/// Their LIRS is not that of the paper's authors, which ours follows.
const LIRS_APART: f64 = 0.05;
const PAGE_BYTES: f64 = 4096.0;
const ROUNDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(seconds: f64, peak_bytes: f64) -> Figures {
        Figures { seconds, peak_bytes, miss_ratios: vec![0.5], accesses: 2e6 }
    }

    fn taken(policy: &'static str) -> Taken {
        let job = Job {
            title: "t".to_owned(),
            form: "keys",
            file: PathBuf::new(),
            cells: vec![(policy, 9)],
            policies: policy.to_owned(),
            sizes: "9".to_owned(),
            rate: 4.0,
        };
        let ours = vec![figures(0.5, 1e6), figures(0.4, 1e6), figures(1.0, 3e6)];
        let theirs = vec![figures(1.0, 4e6), figures(2.0, 4e6), figures(2.0, 4e6)];
        Taken { job, ours, theirs }
    }

    #[test]
    fn options_have_defaults() {
        let parsed = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Options::parse(&words).ok()
        };
        let plain = parsed("").unwrap();
        assert_eq!((plain.rounds, plain.python.as_str(), &plain.out), (5, "python3", &None));
        let all = parsed("--out o --python p --traces t --rounds 3 --forerun f").unwrap();
        assert_eq!((all.rounds, all.python.as_str()), (3, "p"));
        assert_eq!(all.forerun, Some("f".into()));
        assert!(plain.has("w106") && plain.has(SWEEP));
        let only = parsed("--only mail,sweep").unwrap();
        assert!(only.has("mail") && only.has(SWEEP) && !only.has("w106"));
        for wrong in ["--rounds 0", "--strange 1", "--only nothing"] {
            assert_eq!(parsed(wrong), None);
        }
    }

    #[test]
    fn ratios_are_within_a_round_and_memory_has_its_own_target() {
        for (policy, share) in [("lru", 0.5), ("2q", 0.25)] {
            let rows = taken(policy).rows();
            assert_eq!(rows[0].ratio, Spread { median: 2.0, min: 2.0, max: 5.0 });
            assert!((rows[0].ours.median - 4.0).abs() < 1e-9, "million accesses a second");
            assert_eq!(rows[1].ratio, Spread { median: 0.25, min: 0.25, max: 0.75 });
            assert_eq!(rows[1].target, Some(Target::AtMost(share)));
        }
        let alone = Taken { theirs: Vec::new(), ..taken("lru") };
        assert!(alone.rows().is_empty());
    }

    #[test]
    fn a_run_tells_the_medians() {
        let taken = taken("lru");
        let run = taken.run("libCacheSim", &taken.theirs);
        assert_eq!(run["params"]["seconds"], "2.0000");
        assert_eq!(run["device_requests"], 1e6);
        assert_eq!(run["mb_per_second"], 4096.0);
        assert_eq!(run["spread"]["max"], 8192.0);
    }
}
