//! `forerun-compare virtual`: readahead in virtual time against floors, the same on any machine.
//!
//! ```text
//!   row x device x length x seed --> forerun sim --online-limit, a few at once
//!        --> mean (worst): share of the plain limit, of the online limit; the floor; met or not
//!        --> a record a device, summary.md
//! ```
//! The plain limit is the device's throughput in order; the online limit is that of perfect
//! readahead on the same reads.
//!
//! # Invariants
//! - Figures depend on the options alone: not on the machine, nor on how many runs go at once.
//! - The summary has every row; a figure below its floor is bold.

mod judge;
mod row;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::args::{Places, chosen, names};
use crate::device::{DEVICES, Device, VIRTUALLY};
use crate::forerun::{output_of, put, read, write};
use judge::{Mean, SimOutput, VirtualRun, judge, shares};
use row::{Aim, ROWS, Row};

/// The options of the command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    places: Places,
    /// One length and one seed of each row
    #[arg(long)]
    quick: bool,
    /// Devices [default: all]
    #[arg(long = "device", value_name = "D,...", value_delimiter = ',',
        value_parser = names(&DEVICES, |device| device.name))]
    devices: Vec<String>,
    /// Rows [default: all]
    #[arg(long = "row", value_name = "R,...", value_delimiter = ',',
        value_parser = names(&ROWS, |row| row.name))]
    rows: Vec<String>,
    /// Readahead policies; repeated, as a policy has commas of its own
    #[arg(long = "readahead", value_name = "R", default_value = "streams")]
    readaheads: Vec<String>,
    /// Seeds of rows that draw [default: 1,2,3; 1 with --quick]
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        hide_default_value = true,
        default_value = "1,2,3",
        default_value_if("quick", "true", "1")
    )]
    seeds: Vec<u64>,
    // Nothing fits one length by chance.
    /// Lengths, in per cent of the rows' own [default: 70,100,130; 100 with --quick]
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', hide_default_value = true,
        default_value = "70,100,130", default_value_if("quick", "true", "100"),
        value_parser = clap::value_parser!(u32).range(1..))]
    lengths: Vec<u32>,
    /// Run perfect readahead on long rows too
    #[arg(long)]
    all_limits: bool,
    /// Runs at once [default: one a processor]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

impl Args {
    fn jobs(&self) -> usize {
        self.jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, usize::from)
    }
}

/// Runs everything and writes the records and the summary.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let (forerun, out) = args.places.open(root, "virtual")?;
    let cases = cases(args);
    let runs = all(&forerun, &out, args, &cases)?;
    let mut first = Value::Null;
    let all: Vec<(&Case<'_>, &Outcome)> = cases.iter().zip(&runs).collect();
    for device in &DEVICES {
        let own = all.iter().copied().filter(|(case, _)| case.device.name == device.name);
        let own: Vec<_> = own.collect();
        let Some((_, one)) = own.first() else { continue };
        let record = record(&one.record, device, args, &own);
        write(&out.join(format!("{}.json", device.name)), &record)?;
        if first.is_null() {
            first = record;
        }
    }
    let name = |case: &Case<'_>| (case.row.name, case.device.name);
    // The cases of a row on a device follow each other.
    let groups = all.chunk_by(|(a, _), (b, _)| name(a) == name(b));
    let lines = groups.flat_map(|own| {
        let (case, done): (_, Vec<&Outcome>) = (own[0].0, own.iter().map(|it| it.1).collect());
        summary_lines(case.row, case.device, &args.readaheads, &done)
    });
    let text = summary(&first, args, &lines.collect::<Vec<_>>());
    put(&out.join("summary.md"), &text)?;
    println!("{text}\nrecords and summary: {}", out.display());
    Ok(())
}

/// One run of the simulator: all policies on the same reads.
struct Case<'a> {
    row: &'a Row,
    device: &'static Device,
    per_cent: u32,
    seed: u64,
}

/// The result of a case.
struct Outcome {
    /// A run a policy: the judged policies, then the rivals.
    figures: Vec<VirtualRun>,
    record: Value,
}

fn cases(args: &Args) -> Vec<Case<'static>> {
    let mut cases = Vec::new();
    for row in chosen(&ROWS, &args.rows, |row| row.name) {
        for device in chosen(&DEVICES, &args.devices, |device| device.name) {
            for &per_cent in &args.lengths {
                for &seed in row.seeds(&args.seeds) {
                    cases.push(Case { row, device, per_cent, seed });
                }
            }
        }
    }
    cases
}

/// Every case, a few at once, in the order of `cases`.
fn all(forerun: &Path, out: &Path, args: &Args, cases: &[Case<'_>]) -> Result<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let work = |worker: usize| {
        let scratch = out.join(format!("scratch-{worker}.json"));
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(at) else { return Ok(done) };
            let ran = case.run(forerun, &scratch, args).with_context(|| case.name());
            println!("{} of {}: {}", at + 1, cases.len(), case.name());
            // Cases after a failed one do not run.
            done.push((at, ran.inspect_err(|_| next.store(cases.len(), Ordering::Relaxed))?));
        }
    };
    let done = thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs()).map(|at| scope.spawn(move || work(at))).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| worker.join().expect("no panic");
        workers.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let done: BTreeMap<usize, Outcome> = done.into_iter().flatten().collect();
    Ok(done.into_values().collect())
}

impl Case<'_> {
    fn name(&self) -> String {
        let (row, device) = (self.row.name, self.device.name);
        format!("{row} on {device}, length {} %, seed {}", self.per_cent, self.seed)
    }

    fn run(&self, forerun: &Path, scratch: &Path, args: &Args) -> Result<Outcome> {
        let rivals = self.row.aim.rivals().iter().map(|&name| name.to_owned());
        let readaheads: Vec<String> = args.readaheads.iter().cloned().chain(rivals).collect();
        let mut command = Command::new(forerun);
        command.args(["sim", &self.row.workload(self.per_cent, self.seed)]).args(VIRTUALLY);
        command.args(["--device", self.device.virtually, "--size", self.row.memory]);
        command.args(["--readahead", &readaheads.join(","), "--json"]);
        let has_limit = matches!(self.row.aim, Aim::Plain(_) | Aim::Online(_));
        if has_limit && (args.all_limits || !self.row.is_long) {
            command.arg("--online-limit");
        }
        if self.row.is_remembered {
            command.arg("--remembered");
        }
        let text = output_of(command.arg("-o").arg(scratch))?;
        let told: SimOutput = serde_json::from_str(&text).context("the JSON of sim")?;
        let figures: Vec<VirtualRun> = told.runs.into_iter().map(|run| run.device).collect();
        ensure!(figures.len() == readaheads.len(), "a run of each policy");
        let record = read(scratch)?;
        fs::remove_file(scratch).with_context(|| scratch.display().to_string())?;
        Ok(Outcome { figures, record: self.marked(record) })
    }

    /// The record with the row, length and seed of its runs, without single requests.
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
fn record(one: &Value, device: &Device, args: &Args, own: &[(&Case<'_>, &Outcome)]) -> Value {
    let mut whole = one.clone();
    let runs = own.iter().filter_map(|(_, done)| done.record["runs"].as_array());
    whole["runs"] = runs.flatten().cloned().collect();
    whole["device"] = json!(device.name);
    whole["command"] = json!(std::env::args().collect::<Vec<String>>());
    whole["settings"] = json!({
        "readahead": args.readaheads.join(","),
        "seeds": show(&args.seeds),
        "lengths": show(&args.lengths),
    });
    whole
}

/// A line for each policy that is judged.
fn summary_lines(
    row: &Row,
    device: &Device,
    readaheads: &[String],
    done: &[&Outcome],
) -> Vec<String> {
    let of = |policy: usize| -> Vec<VirtualRun> {
        done.iter().map(|done| done.figures[policy].clone()).collect()
    };
    let rivals = (readaheads.len()..).zip(row.aim.rivals());
    let rivals: Vec<(&str, Vec<VirtualRun>)> =
        rivals.map(|(policy, &name)| (name, of(policy))).collect();
    let line = |(policy, readahead): (usize, &String)| {
        let ours = of(policy);
        let (plain, online) = shares(&ours, device.limit_mb_per_second);
        let verdict = judge(row.aim, device, (plain, online), &ours, &rivals);
        let rate = Mean::of(ours.iter().map(|run| run.mb_per_second));
        let bytes = Mean::of(ours.iter().map(|run| run.bytes_read / run.bytes_wanted));
        let bytes = match row.bytes_max.filter(|&most| bytes.value > most) {
            Some(most) => format!("**{}** of {most}", bytes.highest()),
            None => bytes.highest(),
        };
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
            bytes,
            verdict.aim,
        )
    };
    readaheads.iter().enumerate().map(line).collect()
}

fn summary(record: &Value, args: &Args, lines: &[String]) -> String {
    let count = |what| lines.iter().filter(|line| line.contains(what)).count();
    let (missed, beyond) = (count("**missed**"), count("** of "));
    let commit = record["commit"].as_str().unwrap_or("?");
    let (lengths, seeds) = (show(&args.lengths), show(&args.seeds));
    let lines = lines.join("\n");
    format!(
        "# Readahead in virtual time\n\n\
         - commit {commit}; `forerun-compare virtual` repeats it on any machine\n\
         - means over lengths {lengths} % and seeds {seeds}; in brackets the worst run\n\
         - plain: of what the device gives whoever reads it in order; online: of what perfect \
         readahead reaches\n\
         - {missed} missed\n- {beyond} read more bytes than they should\n\n{HEADER}\n{lines}\n"
    )
}

fn show<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

const HEADER: &str = "\
| row | device | by | MB/s | plain | online | read / wanted | aim | |
|---|---|---|---|---|---|---|---|---|";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;

    #[test]
    fn options_choose_cases_and_refuse_nonsense() {
        let count = |line: &str| parsed::<Args>(line).map(|args| cases(&args).len());
        #[rustfmt::skip]
        let rows = [ // args                                      cases
            ("",                                                     Some((29 * 3 - 2) * 3 * 4)),
            ("--quick",                                              Some(29 * 4)),
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
        let two = parsed::<Args>("--readahead linux-6:max=1M,x=2 --readahead off").unwrap();
        assert_eq!(two.readaheads, ["linux-6:max=1M,x=2", "off"]);
    }

    #[test]
    fn a_line_has_shares_and_a_miss_is_bold() {
        let run = |mb_per_second: f64| {
            json!({ "mb_per_second": mb_per_second,
            "limit_mb_per_second": 100.0, "bytes_read": 3, "bytes_wanted": 2, "requests": 1,
            "p50_us": 0.0, "p99_us": 0.0, "reads_late": 0, "late_max_us": 0.0 })
        };
        let done = [90.0, 110.0].map(|rate| Outcome {
            figures: vec![serde_json::from_value(run(rate)).unwrap()],
            record: Value::Null,
        });
        let done: Vec<&Outcome> = done.iter().collect();
        let lines = summary_lines(&ROWS[0], &DEVICES[1], &["streams".to_owned()], &done);
        let text = "| stream-100M | hdd | streams | 100.00 | 0.500 (0.45) | 1.000 (0.90) | \
                    **1.500 (1.50)** of 1.15 | plain >= 0.95 | **missed** |";
        assert_eq!(lines, [text]);
        let args = parsed("--quick").unwrap();
        assert!(summary(&Value::Null, &args, &lines).contains("- 1 missed\n- 1 read"));
    }
}
