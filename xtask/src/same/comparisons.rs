//! What is compared: every program and its words, and the rows of `bench virtual`.
//!
//! The names of policies, workloads and devices come from REV itself, by its lists: what is new
//! since has nothing to be compared with, and what went is a difference.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Answer, Side, Tally, Verdict, json};

/// One program, and what it is asked.
pub(super) struct Comparison {
    pub(super) name: String,
    pub(super) program: Program,
    pub(super) words: Vec<String>,
    /// Whether the record that it writes is compared, instead of what it prints.
    pub(super) record: bool,
}

pub(super) enum Program {
    Forerun,
    Digests,
}

/// All but the rows of `bench virtual`, with the lists that `side` prints.
pub(super) fn all(root: &Path, side: &Side, seeds: u64, quick: bool) -> Result<Vec<Comparison>> {
    let lists = Lists::of(side)?;
    let mut all = Vec::new();
    for first in (0..seeds).step_by(SEEDS_AT_ONCE) {
        let count = (seeds - first).min(SEEDS_AT_ONCE as u64);
        let words = [first, count].map(|number| number.to_string()).to_vec();
        let name = format!("digests of seeds {first} to {}", first + count - 1);
        all.push(Comparison { name, program: Program::Digests, words, record: false });
    }
    let vectors = root.join("lab/sim/tests/data/readahead-vectors.json");
    all.push(forerun(&format!("vectors {} --json", vectors.display()), false));
    lists.simulations(quick, &mut all);
    traces(root, &mut all)?;
    if !quick {
        all.push(forerun("sim figures --limit 100000 --json", false));
        all.push(forerun("sim prefetch --scale 16 --json", false));
    }
    Ok(all)
}

fn forerun(line: &str, record: bool) -> Comparison {
    let words = line.split_whitespace().map(str::to_owned).collect();
    Comparison { name: line.to_owned(), program: Program::Forerun, words, record }
}

/// The names that `forerun sim` lists.
struct Lists {
    /// Names and kinds.
    policies: Vec<(String, String)>,
    workloads: Vec<String>,
    devices: Vec<String>,
}

impl Lists {
    fn of(side: &Side) -> Result<Self> {
        let list = |flag: &str| -> Result<Vec<(String, String)>> {
            let output = Command::new(&side.forerun).args(["sim", flag]).output()?;
            ensure!(output.status.success(), "{}: sim {flag} failed", side.name);
            let text = String::from_utf8(output.stdout)?;
            let rows = text.lines().map(|line| {
                let mut words = line.split_whitespace().map(str::to_owned);
                Some((words.next()?, words.next()?))
            });
            rows.collect::<Option<_>>().context("a list without names")
        };
        let names = |rows: Vec<(String, String)>| rows.into_iter().map(|row| row.0).collect();
        Ok(Self {
            policies: list("--list-policies")?,
            workloads: names(list("--list-workloads")?),
            devices: names(list("--list-devices")?),
        })
    }

    /// The policies of a kind, with commas.
    fn kind(&self, kind: &str) -> String {
        let own = self.policies.iter().filter(|row| row.1 == kind && row.0 != "belady");
        own.map(|row| row.0.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Every workload x policy x readahead x device, and what stands beside them.
    fn simulations(&self, quick: bool, all: &mut Vec<Comparison>) {
        let (policies, readaheads) = (self.kind("replacement"), self.kind("readahead"));
        let accesses = if quick { ACCESSES / 5 } else { ACCESSES };
        let sizes = if quick { "4M" } else { "4M,64M" };
        for workload in &self.workloads {
            // A model of a mail store takes as long as it has requests.
            let cut = if workload == "mail" { ",requests=20000" } else { "" };
            let base = format!("sim workload:{workload}{cut} --limit {accesses} --json");
            all.push(forerun(&format!("{base} --policy all --size 1M,10%,50%"), false));
            let grid =
                format!("{base} --size {sizes} --policy {policies} --readahead {readaheads}");
            all.push(forerun(&grid, false));
            for device in &self.devices {
                all.push(forerun(&format!("{grid} --device {device}"), false));
                let one = format!("{base} --size 8M --device {device} --online-limit");
                let each = format!("{one} --readahead {readaheads}");
                all.push(forerun(&format!("{each} --host demand-first"), false));
                all.push(forerun(&format!("{each} --explain-readahead"), true));
                // A prefetching thread needs one reader from the head to the end.
                if workload == "compute" {
                    let ahead = self.kind("prefetch");
                    let line = format!("{base} --size 64M --device {device} --readahead off");
                    all.push(forerun(&format!("{line} --prefetch none,{ahead}"), false));
                }
            }
        }
        for costs in ["paper", "metal", "vm"] {
            for device in ["optane", "gen4", "sata"] {
                let base =
                    format!("sim reap --count 5000 --json --costs {costs} --device {device}");
                for mode in ["", " --phases", " --group 8"] {
                    all.push(forerun(&format!("{base}{mode}"), false));
                }
            }
        }
    }
}

/// Misses on the recorded traces, where there are any.
fn traces(root: &Path, all: &mut Vec<Comparison>) -> Result<()> {
    let named = std::env::var_os("FORERUN_TRACES").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| root.join("../shared/traces"));
    if !folder.is_dir() {
        println!("left out: recorded traces: name their folder in FORERUN_TRACES");
        return Ok(());
    }
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.retain(|path| Path::new(path).extension().is_some_and(|end| end == "zst"));
    paths.sort();
    for path in paths {
        let line = format!("sim {path} --limit 50000 --policy all --size 1%,10% --json");
        all.push(forerun(&line, false));
    }
    Ok(())
}

/// The rows of `bench virtual`, whose records are compared.
pub(super) struct Virtual<'a> {
    pub(super) root: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) quick: bool,
    pub(super) jobs: usize,
}

impl Virtual<'_> {
    /// Runs the bench on each side; a comparison a device.
    pub(super) fn compare(&self, sides: &[Side; 2], tally: &mut Tally) {
        let records = sides.iter().map(|side| self.run(side)).collect::<Result<Vec<_>>>();
        let records = match records {
            Ok(records) => records,
            Err(error) => return tally.note("bench virtual", Err(error)),
        };
        for (old, new) in records[0].iter().zip(&records[1]) {
            let difference = json::first_difference(&old.1, &new.1);
            let verdict = difference.map_or(Verdict::Same, Verdict::Differs);
            tally.note(&format!("bench virtual on {}", old.0), Ok(verdict));
        }
        if records[0].len() != records[1].len() {
            let differs = format!("{} and {} records", records[0].len(), records[1].len());
            tally.note("bench virtual", Ok(Verdict::Differs(differs)));
        }
    }

    /// The records by device.
    fn run(&self, side: &Side) -> Result<Vec<(String, Value)>> {
        println!("bench virtual by {}", side.name);
        let out = self.folder.join("virtual");
        if out.exists() {
            std::fs::remove_dir_all(&out).with_context(|| out.display().to_string())?;
        }
        let mut bench = Command::new(crate::cargo());
        bench.args(["run", "--quiet", "--package", "forerun-compare", "virtual"]);
        bench.args(["--jobs", &self.jobs.to_string(), "--forerun"]);
        bench.arg(&side.forerun).arg("--out").arg(&out).current_dir(self.root);
        if self.quick {
            bench.arg("--quick");
        }
        let output = bench.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
        ensure!(
            output.status.success(),
            "bench virtual failed: {:?}",
            Answer::Refused(output.status.code())
        );
        let mut records = Vec::new();
        for entry in std::fs::read_dir(&out)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let record = serde_json::from_slice(&std::fs::read(&path)?)?;
                records.push((name, json::plain(record)));
            }
        }
        records.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(records)
    }
}

/// Of each trace and workload: enough for every cache to fill and every stream to run.
const ACCESSES: u32 = 20_000;
const SEEDS_AT_ONCE: usize = 250;
