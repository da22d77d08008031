//! `cargo xtask bench virtual`: readahead in virtual time against floors, the same on any machine.
//!
//! ```text
//!   row x device x length x seed --> forerun sim --online-limit, a few at once
//!        --> mean (worst): share of the plain limit, of the online limit; the floor; met or not
//!        --> a record a device, summary.md
//! ```
//! The plain limit is what the device gives whoever reads it in order; the online limit what
//! perfect readahead reaches on the very reads.
//!
//! # Invariants
//! - Figures depend on the options alone: not on the machine, nor on how many runs go at once.
//! - No row is left out of the summary; what misses its floor is bold.

mod judge;
mod row;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::device::{self, DEVICES, Device, VIRTUALLY};
use super::{options, place, read, release, told, write};
use judge::{Figures, Mean, judge, shares};
use row::{Aim, ROWS, Row};

/// What the command line chooses.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    devices: Vec<String>,
    rows: Vec<String>,
    /// Ours.
    readaheads: Vec<String>,
    seeds: Vec<u64>,
    /// Of the rows' own, in per cent.
    lengths: Vec<u32>,
    out: Option<PathBuf>,
    /// The program to measure; otherwise the release build.
    forerun: Option<PathBuf>,
    /// Whether perfect readahead is run on long rows too.
    all_limits: bool,
    /// Runs at once.
    jobs: Option<u32>,
}

impl Options {
    /// Options from `--quick` and `--name value` pairs; a list has commas, but `--readahead` is
    /// repeated, as a policy has commas of its own.
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let mut options = Self {
            devices: owned(device::names()),
            rows: owned(row::names()),
            readaheads: Vec::new(),
            seeds: SEEDS.to_vec(),
            lengths: LENGTHS.to_vec(),
            out: None,
            forerun: None,
            all_limits: false,
            jobs: None,
        };
        options::each(words, &["--quick", "--all-limits"], |name, value| {
            match name {
                "--quick" => (options.seeds, options.lengths) = (vec![1], vec![100]),
                "--all-limits" => options.all_limits = true,
                "--device" => options.devices = options::known(value, &device::names())?,
                "--row" => options.rows = options::known(value, &row::names())?,
                "--readahead" => options.readaheads.push(value.to_owned()),
                "--seeds" => options.seeds = options::list(name, value)?,
                "--lengths" => options.lengths = options::list(name, value)?,
                "--out" => options.out = Some(value.into()),
                "--forerun" => options.forerun = Some(value.into()),
                "--jobs" => options.jobs = Some(options::count(name, value)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if options.readaheads.is_empty() {
            options.readaheads.push(READAHEAD.to_owned());
        }
        ensure!(!options.lengths.contains(&0), "--lengths 0 reads nothing");
        Ok(options)
    }

    fn jobs(&self) -> usize {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        self.jobs.map_or_else(cores, |jobs| jobs as usize)
    }
}

/// Runs everything and writes the records and the summary.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let forerun = release(root, options.forerun.as_deref())?;
    let out = options.out.clone().map_or_else(|| place(root, "virtual"), Ok)?;
    fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    let cases = cases(options);
    let runs = all(&forerun, &out, options, &cases)?;
    let mut first = Value::Null;
    let mut lines = Vec::new();
    for (at, device) in DEVICES.iter().enumerate() {
        let own: Vec<(&Case<'_>, &Done)> =
            cases.iter().zip(&runs).filter(|(case, _)| case.device == at).collect();
        let Some((_, one)) = own.first() else { continue };
        let record = record(&one.record, device, options, &own);
        write(&out.join(format!("{}.json", device.name)), &record)?;
        if first.is_null() {
            first = record;
        }
    }
    for row in ROWS.iter().filter(|row| options.rows.iter().any(|name| name == row.name)) {
        for (at, device) in DEVICES.iter().enumerate() {
            let is_own =
                |(case, _): &(&Case<'_>, &Done)| case.device == at && std::ptr::eq(case.row, row);
            let own: Vec<&Done> = cases.iter().zip(&runs).filter(is_own).map(|it| it.1).collect();
            if !own.is_empty() {
                lines.extend(summary_lines(row, at, device, &options.readaheads, &own));
            }
        }
    }
    let text = summary(&first, options, &lines);
    let path = out.join("summary.md");
    fs::write(&path, &text).with_context(|| path.display().to_string())?;
    println!("{text}\nrecords and summary: {}", out.display());
    Ok(true)
}

/// What is run at once: all policies on the same reads.
struct Case<'a> {
    row: &'a Row,
    /// Its index.
    device: usize,
    per_cent: u32,
    seed: u64,
}

/// What that came to.
struct Done {
    /// Of each policy: ours, then the rivals.
    figures: Vec<Figures>,
    record: Value,
}

fn cases(options: &Options) -> Vec<Case<'static>> {
    let mut cases = Vec::new();
    for row in ROWS.iter().filter(|row| options.rows.iter().any(|name| name == row.name)) {
        for (device, one) in DEVICES.iter().enumerate() {
            if !options.devices.iter().any(|name| name == one.name) {
                continue;
            }
            for &per_cent in &options.lengths {
                for &seed in row.seeds(&options.seeds) {
                    cases.push(Case { row, device, per_cent, seed });
                }
            }
        }
    }
    cases
}

/// Every case, a few at once, in the order of `cases`.
fn all(forerun: &Path, out: &Path, options: &Options, cases: &[Case<'_>]) -> Result<Vec<Done>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<Done>>>> = Mutex::new(cases.iter().map(|_| None).collect());
    let held = || done.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        for worker in 0..options.jobs() {
            let scratch = out.join(format!("scratch-{worker}.json"));
            let (next, held) = (&next, &held);
            scope.spawn(move || {
                while let Some((at, case)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    cases.get(at).map(|case| (at, case))
                } {
                    let ran = case.run(forerun, &scratch, options);
                    let is_broken = ran.is_err();
                    held()[at] = Some(ran.with_context(|| case.name()));
                    if is_broken {
                        next.store(cases.len(), Ordering::Relaxed);
                    }
                    println!("{} of {}: {}", at + 1, cases.len(), case.name());
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Where one failed, those after it were not run: the failure comes first.
    done.into_iter().map_while(|one| one).collect()
}

impl Case<'_> {
    fn name(&self) -> String {
        let (row, device) = (self.row.name, DEVICES[self.device].name);
        format!("{row} on {device}, length {} %, seed {}", self.per_cent, self.seed)
    }

    fn run(&self, forerun: &Path, scratch: &Path, options: &Options) -> Result<Done> {
        let rivals = self.row.aim.rivals().iter().map(|&name| name.to_owned());
        let readaheads: Vec<String> = options.readaheads.iter().cloned().chain(rivals).collect();
        let mut command = Command::new(forerun);
        command.args(["sim", &self.row.workload(self.per_cent, self.seed)]).args(VIRTUALLY);
        command.args(["--device", DEVICES[self.device].virtually, "--size", self.row.memory]);
        command.args(["--readahead", &readaheads.join(","), "--json"]);
        let has_limit = matches!(self.row.aim, Aim::Plain(_) | Aim::Online(_));
        if has_limit && (options.all_limits || !self.row.is_long) {
            command.arg("--online-limit");
        }
        let text = told(command.arg("-o").arg(scratch))?;
        let json: Value = serde_json::from_str(&text).context("sim prints no JSON")?;
        let runs = json["runs"].as_array().context("sim without runs")?;
        let figures: Vec<Figures> = runs.iter().map(Figures::of).collect::<Result<_>>()?;
        ensure!(figures.len() == readaheads.len(), "a run of each policy");
        let record = read(scratch)?;
        fs::remove_file(scratch).with_context(|| scratch.display().to_string())?;
        Ok(Done { figures, record: self.marked(record) })
    }

    /// The record with what tells its runs apart, and without each request.
    fn marked(&self, mut record: Value) -> Value {
        for run in record["runs"].as_array_mut().into_iter().flatten() {
            run["params"]["row"] = json!(self.row.name);
            run["params"]["length"] = json!(format!("{} %", self.per_cent));
            run["params"]["seed"] = json!(self.seed.to_string());
            let fields = run.as_object_mut().expect("a run is an object");
            fields.remove("requests");
            fields.remove("requests_left_out");
        }
        record
    }
}

/// All runs on `device` in one record.
fn record(one: &Value, device: &Device, options: &Options, own: &[(&Case<'_>, &Done)]) -> Value {
    let mut whole = one.clone();
    let runs = own.iter().filter_map(|(_, done)| done.record["runs"].as_array());
    whole["runs"] = runs.flatten().cloned().collect();
    whole["device"] = json!(device.name);
    whole["command"] = json!(std::env::args().collect::<Vec<String>>());
    whole["settings"] = json!({
        "readahead": options.readaheads.join(","),
        "seeds": show(&options.seeds),
        "lengths": show(&options.lengths),
    });
    whole
}

/// A line for each policy of ours.
fn summary_lines(
    row: &Row,
    at: usize,
    device: &Device,
    readaheads: &[String],
    done: &[&Done],
) -> Vec<String> {
    let of = |policy: usize| -> Vec<Figures> {
        done.iter().map(|done| done.figures[policy].clone()).collect()
    };
    let rivals = (readaheads.len()..).zip(row.aim.rivals());
    let rivals: Vec<(&str, Vec<Figures>)> =
        rivals.map(|(policy, &name)| (name, of(policy))).collect();
    let line = |(policy, readahead): (usize, &String)| {
        let ours = of(policy);
        let (plain, online) = shares(&ours, device.limit_mb_per_second);
        let verdict = judge(row.aim, at, (plain, online), &ours, &rivals);
        let rate = Mean::of(ours.iter().map(|run| run.mb_per_second));
        let bytes = Mean::of(ours.iter().map(|run| run.bytes_read / run.bytes_wanted));
        let is_met = match verdict.is_met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "",
        };
        format!(
            "| {} | {} | {readahead} | {:.2} | {} | {} | {} | {} | {is_met} |",
            row.name,
            device.name,
            rate.value,
            plain.lowest(),
            online.map_or_else(String::new, Mean::lowest),
            bytes.highest(),
            verdict.aim,
        )
    };
    readaheads.iter().enumerate().map(line).collect()
}

fn summary(record: &Value, options: &Options, lines: &[String]) -> String {
    let missed = lines.iter().filter(|line| line.contains("**missed**")).count();
    let commit = record["commit"].as_str().unwrap_or("?");
    let (lengths, seeds) = (show(&options.lengths), show(&options.seeds));
    let lines = lines.join("\n");
    format!(
        "# Readahead in virtual time\n\n\
         - commit {commit}; `cargo xtask bench virtual` repeats it on any machine\n\
         - means over lengths {lengths} % and seeds {seeds}; in brackets the worst run\n\
         - plain: of what the device gives whoever reads it in order; online: of what perfect \
         readahead reaches\n\
         - {missed} missed\n\n{HEADER}\n{lines}\n"
    )
}

fn show<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

const HEADER: &str = "\
| row | device | by | MB/s | plain | online | read / wanted | aim | |
|---|---|---|---|---|---|---|---|---|";
const READAHEAD: &str = "streams";
const SEEDS: [u64; 3] = [1, 2, 3];
/// Of a row's own, in per cent: nothing is to fit one length by chance.
const LENGTHS: [u32; 3] = [70, 100, 130];

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words)
    }

    #[test]
    fn options_choose_cases_and_refuse_nonsense() {
        let count = |line: &str| parsed(line).map(|options| cases(&options).len()).ok();
        #[rustfmt::skip]
        let rows = [ // options                                      cases
            ("",                                                     Some((20 * 3 - 2) * 3 * 4)),
            ("--quick",                                              Some(20 * 4)),
            ("--row parquet-8,turns-2 --device hdd",                 Some(3 + 3 * 3)),
            ("--row turns-2 --device hdd --seeds 4,5 --lengths 50",  Some(2)),
            ("--row turns-3",                                        None),
            ("--device floppy",                                      None),
            ("--lengths 0",                                          None),
            ("--seeds x",                                            None),
            ("--jobs 0",                                             None),
        ];
        for (line, expected) in rows {
            assert_eq!(count(line), expected, "{line}");
        }
        let two = parsed("--readahead linux-6:max=1M,x=2 --readahead off").unwrap();
        assert_eq!(two.readaheads, ["linux-6:max=1M,x=2", "off"]);
    }

    #[test]
    fn a_line_has_shares_and_a_miss_is_bold() {
        let run = |mb_per_second: f64| {
            json!({ "device": { "mb_per_second": mb_per_second,
            "limit_mb_per_second": 100.0, "bytes_read": 3, "bytes_wanted": 2, "requests": 1,
            "p50_us": 0.0, "p99_us": 0.0, "reads_late": 0, "late_max_us": 0.0 } })
        };
        let done = [90.0, 110.0].map(|rate| Done {
            figures: vec![Figures::of(&run(rate)).unwrap()],
            record: Value::Null,
        });
        let done: Vec<&Done> = done.iter().collect();
        let lines = summary_lines(&ROWS[0], 1, &DEVICES[1], &["streams".to_owned()], &done);
        let text = "| stream-100M | hdd | streams | 100.00 | 0.500 (0.45) | 1.000 (0.90) | \
                    1.500 (1.50) | plain >= 0.95 | **missed** |";
        assert_eq!(lines, [text]);
        let options = parsed("--quick").unwrap();
        assert!(summary(&Value::Null, &options, &lines).contains("- 1 missed\n"));
    }
}
