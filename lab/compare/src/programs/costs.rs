//! The cost of `forerun run` for a program without a possible gain. No device is needed.
//!
//! ```text
//!   start      /bin/true                  milliseconds more to start and end
//!   warm       md5sum of a cached file    seconds, and forerun's share of a processor
//!   warm tar   tar and grep -r of a cached tree    the same
//!   computes   awk, which counts          the same
//! ```
//!
//! # Invariants
//! - Turns alternate, and so does the side that begins; a difference is of one turn.
//! - A program succeeds and prints the same under `run`: else the bench fails.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
#[expect(clippy::disallowed_types, reason = "programs are timed")]
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use forerun_report::Summary;
use serde_json::{Value, json};

use crate::forerun::read;

/// A program without a possible gain.
pub(super) struct Cost {
    pub(super) name: &'static str,
    /// `{file}` is a file that is in memory.
    words: &'static [&'static str],
    turns: u32,
    /// Whether forerun also writes its statistics, which is work at the end.
    has_stats: bool,
}

/// Every such program.
pub(super) const COSTS: [Cost; 5] = [
    Cost { name: "start", words: &["/bin/true"], turns: 200, has_stats: false },
    Cost { name: "warm", words: &["md5sum", "{file}"], turns: 11, has_stats: true },
    Cost { name: "warm tar", words: &["sh", "-c", TAR], turns: 11, has_stats: true },
    Cost { name: "warm grep -r", words: &["sh", "-c", GREP], turns: 11, has_stats: true },
    Cost { name: "computes", words: &["awk", COUNTS], turns: 11, has_stats: true },
];

/// Trees that every system has; the first run loads them into memory.
const TAR: &str = "tar cf - -C /usr include | md5sum";
const GREP: &str = "grep -rc size_t /usr/include | md5sum";
const COUNTS: &str = "BEGIN { for (i = 0; i < 40000000; i++) sum += i; print sum }";

/// Measures `costs` with a file of `mib` below `folder`: an object for each.
pub(super) fn measured(
    costs: &[&Cost],
    forerun: &Path,
    folder: &Path,
    mib: u32,
) -> Result<Vec<Value>> {
    let file = folder.join("warm");
    let bench = Bench { forerun, file: &file, stats: folder.join("stats.json") };
    let write = || {
        let mut out = File::create(&file)?;
        let block: Vec<u8> = (0..1_u32 << 20).map(|at| (at % 251).to_le_bytes()[0]).collect();
        (0..mib).try_for_each(|_| out.write_all(&block))?;
        // The kernel would write dirty pages back while programs are timed.
        out.sync_all()
    };
    write().with_context(|| file.display().to_string())?;
    let runs = costs.iter().map(|cost| bench.cost(cost)).collect();
    fs::remove_file(&file).with_context(|| file.display().to_string())?;
    runs
}

/// The state of one bench.
struct Bench<'a> {
    forerun: &'a Path,
    file: &'a Path,
    stats: PathBuf,
}

impl Bench<'_> {
    fn cost(&self, cost: &Cost) -> Result<Value> {
        let (mut alone, mut ours, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        // The first run loads the programs and their libraries into memory.
        for turn in 0..=cost.turns {
            let [mut plain, mut run] = [None, None];
            for is_run in if turn % 2 == 0 { [false, true] } else { [true, false] } {
                let taken = self.once(cost, is_run)?;
                *(if is_run { &mut run } else { &mut plain }) = Some(taken);
            }
            let (plain, run) = plain.zip(run).expect("each ran");
            ensure!(plain.1 == run.1, "{} printed something else under run", cost.name);
            if turn > 0 {
                alone.push(plain.0);
                ours.push(run.0);
                shares.extend(cost.has_stats.then(|| self.share(run.0)).transpose()?);
            }
        }
        Ok(record(cost.name, &alone, &ours, &shares))
    }

    /// Its seconds and its output.
    #[expect(clippy::disallowed_types, reason = "programs are timed")]
    fn once(&self, cost: &Cost, is_run: bool) -> Result<(f64, Vec<u8>)> {
        let file = self.file.display().to_string();
        let words = cost.words.iter().map(|word| word.replace("{file}", &file));
        let words: Vec<String> = words.collect();
        let mut command = Command::new(if is_run { self.forerun } else { Path::new(&words[0]) });
        if is_run {
            command.arg("run");
            if cost.has_stats {
                command.arg("--stats-json").arg(&self.stats);
            }
            command.arg("--").arg(&words[0]);
        }
        command.args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::inherit());
        let begun = Instant::now();
        let output = command.output().with_context(|| words[0].clone())?;
        let seconds = begun.elapsed().as_secs_f64();
        ensure!(output.status.success(), "{} failed: {}", cost.name, output.status);
        Ok((seconds, output.stdout))
    }

    /// The share of a processor that forerun took in the last run of `seconds`.
    fn share(&self, seconds: f64) -> Result<f64> {
        let told = read(&self.stats)?["processor_seconds"].as_f64();
        Ok(told.context("forerun told no processor time")? / seconds)
    }
}

fn record(name: &str, alone: &[f64], ours: &[f64], shares: &[f64]) -> Value {
    let spread = |samples: &[f64]| json!(Summary::of(samples.iter().copied()));
    let more: Vec<f64> = alone.iter().zip(ours).map(|(alone, ours)| ours - alone).collect();
    let ratio = Summary::of_ratios(ours, alone).median;
    json!({
        "program": name, "turns": alone.len(), "alone_seconds": spread(alone),
        "run_seconds": spread(ours), "more_seconds": spread(&more), "ratio": ratio,
        "processor_share": if shares.is_empty() { Value::Null } else { spread(shares) },
    })
}

/// The line of a table.
pub(super) fn row(run: &Value) -> String {
    let ms = |name: &str, part: &str| 1e3 * run[name][part].as_f64().unwrap_or(f64::NAN);
    let share = run["processor_share"]["median"].as_f64();
    format!(
        "| {} | {} | {:.2} | {:.2} | {:.2} ({:.2} to {:.2}) | {:.3} | {} |",
        run["program"].as_str().unwrap_or("?"),
        run["turns"],
        ms("alone_seconds", "median"),
        ms("run_seconds", "median"),
        ms("more_seconds", "median"),
        ms("more_seconds", "min"),
        ms("more_seconds", "max"),
        run["ratio"].as_f64().unwrap_or(f64::NAN),
        share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", 100.0 * share)),
    )
}

pub(super) const HEADER: &str = "\
| program | turns | alone ms | run ms | difference ms | run / alone | forerun's processor |
|---|---|---|---|---|---|---|";

#[cfg(test)]
mod tests {
    use forerun_testkit::Scratch;

    use super::*;

    #[test]
    fn a_row_tells_what_run_adds_turn_by_turn() {
        let run = record("warm", &[1.0, 2.0, 4.0], &[1.5, 2.1, 4.4], &[0.02, 0.01, 0.03]);
        assert_eq!(
            row(&run),
            "| warm | 3 | 2000.00 | 2100.00 | 400.00 (100.00 to 500.00) | 1.100 | 2.0 % |"
        );
        let untold = record("start", &[0.001], &[0.003], &[]);
        assert_eq!(row(&untold), "| start | 1 | 1.00 | 3.00 | 2.00 (2.00 to 2.00) | 3.000 | - |");
    }

    #[test]
    fn programs_run_alone_and_under_another_in_turns() {
        let folder = Scratch::new("costs");
        // In the place of forerun: it runs what follows `run --`. Another process writes it, as a
        // child of another test could inherit a descriptor of this one, and keep the file busy.
        let other = folder.join("other");
        let script = r#"echo '#!/bin/sh
shift 2; exec "$@"' >"$0" && chmod +x "$0""#;
        let written = Command::new("sh").args(["-c", script]).arg(&other).status().unwrap();
        assert!(written.success());
        let same =
            Cost { name: "same", words: &["wc", "-c", "{file}"], turns: 4, has_stats: false };
        let runs = measured(&[&same], &other, &folder, 1).unwrap();
        assert_eq!(
            (runs[0]["turns"].as_u64(), &runs[0]["processor_share"]),
            (Some(4), &Value::Null)
        );
        for (instead, why) in [("/bin/false", "failed"), ("/bin/echo", "printed something else")] {
            let refused = measured(&[&same], Path::new(instead), &folder, 1).unwrap_err();
            assert!(refused.to_string().contains(why), "{instead}: {refused}");
        }
    }
}
