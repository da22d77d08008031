//! `forerun-compare lab`: the lab's simulator beside libCacheSim, on this machine.
//!
//! ```text
//!   trace --convert--> a list of keys, oracleGeneral     the same file for all
//!   round 1   forerun   Python   cachesim                each policy, a tenth of the blocks
//!   round 2   Python   cachesim   forerun                (cachesim: oracleGeneral alone)
//!             ratio of each round -> median, spread -> summary.md, lab.json
//! ```
//! forerun and `cachesim`, libCacheSim's own program, are timed as whole commands; the library is
//! timed alone, called natively by a Python program.
//!
//! # Invariants
//! - The bench installs and builds no peer: a missing peer is left out, by name.
//! - A peer with other misses or accesses is not compared: see `rounds`.
//! - A ratio is of figures of the same round. Targets are judged in the summary alone.

mod rounds;
mod simulator;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::args::{Places, in_turns};
use crate::forerun::{self, folder, output_of, put, read, write};
use crate::table::{self, Row};
use rounds::Rounds;
use simulator::{LIBRARY, PROGRAM, Replay, Simulator, Timer};

/// The options of the command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    places: Places,
    /// The Python that may know the library
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// libCacheSim's program
    #[arg(long, value_name = "PROGRAM")]
    cachesim: Option<PathBuf>,
    /// Where recorded traces lie [default: `FORERUN_TRACES`]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Rounds, in turns
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: NonZeroUsize,
    /// Traces, or the sweep [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = NAMES,
        default_values = NAMES, hide_default_value = true)]
    only: Vec<String>,
    /// Forms of a trace [default: all]
    #[arg(long = "form", value_name = "FORM,...", value_delimiter = ',', value_parser = FORMS,
        default_values = FORMS, hide_default_value = true)]
    forms: Vec<String>,
}

impl Args {
    fn has(&self, name: &str) -> bool {
        self.only.iter().any(|only| only == name)
    }

    fn has_form(&self, form: &str) -> bool {
        self.forms.iter().any(|named| named == form)
    }
}

/// Measures everything and writes the record and the summary.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let (forerun, out) = args.places.open(root, "lab")?;
    let folder = folder(forerun::target(root).join("bench/lab"))?;
    let timer = Timer { python: args.python.clone(), script: root.join("bench/python/lab.py") };
    let simulators = simulators(args, &forerun, &timer)?;
    let mut bench = Bench { forerun, timer, simulators, args, folder, rounds: Vec::new() };
    let traces = bench.traces(root);
    for trace in traces.iter().filter(|trace| args.has(&trace.name)) {
        for form in FORMS.into_iter().filter(|form| args.has_form(form)) {
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
    if let Some(smallest) = traces.last().filter(|_| args.has(SWEEP) && args.has_form("keys")) {
        bench.sweep(smallest)?;
    }
    bench.close(&out)
}

/// A trace and its name.
struct Trace {
    name: String,
    source: String,
}

/// One replay for every simulator.
struct Job {
    title: String,
    form: &'static str,
    file: PathBuf,
    /// Policies and sizes, each with each.
    cells: Vec<(&'static str, u64)>,
    policies: String,
    sizes: String,
    /// The target: forerun is so many times as fast.
    rate: f64,
}

struct Bench<'a> {
    forerun: PathBuf,
    timer: Timer,
    /// forerun first.
    simulators: Vec<Simulator>,
    args: &'a Args,
    folder: PathBuf,
    rounds: Vec<Rounds>,
}

/// The simulators of this machine, forerun first.
fn simulators(args: &Args, forerun: &Path, timer: &Timer) -> Result<Vec<Simulator>> {
    let mut simulators = vec![Simulator::Forerun(forerun.to_path_buf())];
    match timer.library() {
        Ok(library) => simulators.push(library),
        Err(error) => {
            println!("left out: {LIBRARY}: {} cannot load it: {error:#}", args.python);
        }
    }
    if let Some(program) = &args.cachesim {
        ensure!(program.is_file(), "--cachesim {}: there is no such program", program.display());
        simulators.push(Simulator::Program(program.clone()));
    } else {
        println!("left out: {PROGRAM}: --cachesim names it");
    }
    Ok(simulators)
}

impl Bench<'_> {
    /// The mail workload, which needs no file, and the recorded traces of this machine.
    fn traces(&self, root: &Path) -> Vec<Trace> {
        let named = self.args.traces.clone();
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
            output_of(&mut command)?;
        }
        Ok(file)
    }

    /// A share of the trace's blocks, in pages.
    fn pages(&self, file: &Path, form: &str, share: &str) -> Result<u64> {
        let mut command = Command::new(&self.forerun);
        command.arg("sim").arg(file).args(["--format", form, "--policy", "fifo", "--json"]);
        command.args(["--size", share]);
        let json: Value = serde_json::from_str(&output_of(&mut command)?).context("no JSON")?;
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
        println!("\n== {}", job.title);
        let simulators: Vec<_> = self.simulators.iter().filter(|one| one.takes(&job)).collect();
        let samples = in_turns(self.args.rounds, simulators.len(), |round, at| {
            let replay = simulators[at].replay(&job, &self.timer)?;
            println!("round {}: {}: {replay}", round + 1, simulators[at].name());
            Ok(replay)
        })?;
        let rounds = simulators.iter().map(|one| one.name()).zip(samples).collect();
        self.rounds.push(Rounds::new(job, rounds)?);
        Ok(())
    }

    /// The summary and the record.
    fn close(&self, out: &Path) -> Result<()> {
        let path = out.join("lab.json");
        let record = self.record(&path)?;
        write(&path, &record)?;
        let rows: Vec<Row> = self.rounds.iter().flat_map(Rounds::rows).collect();
        let mut text = format!(
            "# The lab beside libCacheSim\n\n- {}\n- {}\n- {} rounds, in turns; ratios are within \
             a round: median (min to max)\n",
            table::commit(&record),
            table::machine(&record),
            self.args.rounds
        );
        for (name, measured) in PEERS {
            let is_here = self.simulators.iter().any(|one| one.name() == name);
            let told = if is_here { measured } else { "not measured" };
            writeln!(text, "- {name}: {told}").expect("a string takes all");
        }
        text.push_str(&table::table(&rows));
        put(&out.join("summary.md"), &text)?;
        println!("\n{text}\nrecord and summary: {}", out.display());
        Ok(())
    }

    /// A run for each job and each measured simulator, in a record of this machine.
    fn record(&self, scratch: &Path) -> Result<Value> {
        let mut command = Command::new(&self.forerun);
        command.args(["sim", "workload:streams,n=1,each=1M", "--device", "ssd", "-o"]);
        output_of(command.arg(scratch))?;
        let mut record = read(scratch)?;
        let mut settings = BTreeMap::new();
        let mut runs = Vec::new();
        for job in &self.rounds {
            for (name, rounds) in &job.sides {
                runs.push(job.run(name, rounds));
                let told: Vec<String> = rounds.iter().map(Replay::to_string).collect();
                settings.insert(format!("samples.{}.{name}", job.job.title), told.join(", "));
            }
        }
        record["device"] = json!("none");
        record["settings"] = json!(settings);
        record["runs"] = json!(runs);
        record["repeats"] = json!(self.args.rounds.get());
        record["command"] = json!(std::env::args().collect::<Vec<String>>());
        Ok(record)
    }
}

const POLICIES: [&str; 5] = ["lru", "arc", "2q", "lirs", "s3-fifo"];
const FORMS: [&str; 2] = ["keys", "oracleGeneral"];
/// The peers, and the measured part of each.
const PEERS: [(&str, &str); 2] = [
    (LIBRARY, "`process_trace` and the opening of the trace; memory without the interpreter's"),
    (PROGRAM, "its program, the whole command, on oracleGeneral"),
];
/// Sizes of the sweep.
const SHARES: [&str; 6] = ["1%", "2%", "5%", "10%", "20%", "40%"];
/// Two and a half million requests, without a file.
const MAIL: &str = "workload:mail,model=m1";
/// Recorded traces, the smallest last: the sweep is made on it.
const RECORDED: [(&str, &str); 2] =
    [("w106", "cloudphysics_w106.u32le.zst"), ("cloudphysics", "cloudphysics_io.vscsi.zst")];
/// Six sizes of each policy at once.
const SWEEP: &str = "sweep";
const NAMES: [&str; 4] = ["mail", "w106", "cloudphysics", SWEEP];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;

    #[test]
    fn options_have_defaults() {
        let parsed = |line: &str| parsed::<Args>(line);
        let plain = parsed("").unwrap();
        assert_eq!(
            (plain.rounds.get(), plain.python.as_str(), &plain.places.out),
            (5, "python3", &None)
        );
        let all = parsed("--out o --python p --traces t --rounds 3 --forerun f").unwrap();
        assert_eq!((all.rounds.get(), all.python.as_str()), (3, "p"));
        assert_eq!(all.places.forerun, Some("f".into()));
        assert!(plain.has("w106") && plain.has(SWEEP) && plain.has_form("keys"));
        assert_eq!(plain.cachesim, None);
        let only = parsed("--only mail,sweep").unwrap();
        assert!(only.has("mail") && only.has(SWEEP) && !only.has("w106"));
        let theirs = parsed("--cachesim c --form oracleGeneral").unwrap();
        assert_eq!(theirs.cachesim, Some("c".into()));
        assert!(theirs.has_form("oracleGeneral") && !theirs.has_form("keys"));
        for wrong in ["--rounds 0", "--strange 1", "--only nothing", "--form csv", "--cachesim"] {
            assert!(parsed(wrong).is_none(), "{wrong}");
        }
    }
}
