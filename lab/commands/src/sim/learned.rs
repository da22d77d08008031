//! `forerun sim learned`: recorded programs that start again and again, with the list of their last
//! runs.
//!
//! ```text
//!   trace --> run 1 --learned--> list --> run 2 --learned--> list --> ...     a row each
//!        upgrade:DIR, below:NAME: what has changed before the runs that follow
//! ```
//! # Invariants
//! - The same arguments print the same results on each machine.
//! - A run knows what the runs before it have taught, and nothing of the trace that it is.

use std::fs::File;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, Result};
use forerun_console::failure::usage;
use forerun_console::form::Output;
use forerun_console::output;
use forerun_core::learned::LearnedList;
use forerun_report::quantity::{bytes, seconds};
use forerun_sim::walks::{
    AccessTrace, Ahead, WalkSetup, names, precision_and_recall, run, run_listed,
};
use serde::Serialize;

use super::walks::{Virtually, name};

/// What `sim learned` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forerun trace record -o app.jsonl -- python3 app.py\n  \
    forerun sim learned --runs 3 app.jsonl upgrade:lib/pandas app.jsonl --device hdd\n  \
    forerun sim learned --runs 2 app.jsonl other-arguments.jsonl app.jsonl below:copy app.jsonl")]
pub(super) struct Args {
    /// What happens in turn: a trace of accesses with paths runs; `upgrade:DIR`, the files below
    /// DIR are others; `below:NAME`, all lies in another folder
    #[arg(required = true, value_name = "TRACE|CHANGE")]
    steps: Vec<Step>,
    /// How often each trace runs in its turn
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    #[command(flatten)]
    virtually: Virtually,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Debug)]
enum Step {
    Run(PathBuf),
    Upgrade(String),
    Below(String),
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = |text: &str| {
            let parts = || text.split('/').filter(|part| !part.is_empty());
            let is_sound = parts().next().is_some() && parts().all(|it| !matches!(it, "." | ".."));
            let path = parts().map(|part| names::encoded(part.as_bytes()));
            let path = path.collect::<Vec<_>>().join("/");
            if is_sound {
                Ok(path)
            } else {
                Err("expected a folder below the top of the tree".to_owned())
            }
        };
        Ok(match text.split_once(':') {
            Some(("upgrade", folder)) => Self::Upgrade(path(folder)?),
            Some(("below", folder)) => Self::Below(path(folder)?),
            _ => Self::Run(text.into()),
        })
    }
}

/// The results of a run.
#[derive(Serialize)]
struct Row {
    run: usize,
    trace: String,
    /// What has changed since the run before.
    changes: String,
    entries: u64,
    listed: u64,
    requested: u64,
    used: u64,
    precision: f64,
    recall: f64,
    wasted_bytes: u64,
    alone_bytes: u64,
    alone_s: f64,
    listed_s: f64,
    known_s: f64,
}

/// Runs the steps.
pub(super) fn run_all(args: &Args) -> Result<()> {
    args.output.check()?;
    let setup = args.virtually.setup()?;
    let (mut changes, mut list, mut rows) = (Vec::new(), LearnedList::default(), Vec::new());
    let mut since: Vec<String> = Vec::new();
    for step in &args.steps {
        let path = match step {
            Step::Run(path) => path,
            Step::Upgrade(folder) => {
                changes.push(step);
                since.push(format!("upgrade {folder}"));
                continue;
            }
            Step::Below(folder) => {
                changes.push(step);
                since.push(format!("below {folder}"));
                continue;
            }
        };
        let trace = changed(read(path)?, &changes)?;
        for _ in 0..args.runs {
            let row = row(&trace, &setup, &mut list);
            let (run, trace) = (rows.len() + 1, name(path));
            rows.push(Row { run, trace, changes: std::mem::take(&mut since).join(", "), ..row });
        }
    }
    let json = serde_json::json!({ "device": args.virtually.device, "runs": rows });
    args.output.print(&json, &["runs"], || table(&rows))
}

fn read(path: &PathBuf) -> Result<AccessTrace> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    AccessTrace::read(file).with_context(|| format!("{shown}"))
}

/// `trace` after all that has changed.
fn changed(mut trace: AccessTrace, changes: &[&Step]) -> Result<AccessTrace> {
    for change in changes {
        trace = match change {
            Step::Run(_) => trace,
            Step::Upgrade(folder) => trace
                .upgraded(folder)
                .ok_or_else(|| usage(format!("upgrade:{folder}: no such folder in the tree")))?,
            Step::Below(folder) => trace.below(folder),
        };
    }
    Ok(trace)
}

/// A run with `list`, which learns of it.
fn row(trace: &AccessTrace, setup: &WalkSetup, list: &mut LearnedList) -> Row {
    let [alone, known] = [Ahead::Nothing, Ahead::Known].map(|ahead| run(trace, setup, ahead));
    let (listed, judged, learned) = run_listed(trace, setup, list);
    let (precision, recall) = precision_and_recall(&listed);
    let count = list.trusted().count() as u64;
    list.judge(judged);
    list.merge(learned);
    Row {
        run: 0,
        trace: String::new(),
        changes: String::new(),
        entries: listed.entries,
        listed: count,
        requested: listed.requested,
        used: listed.useful,
        precision,
        recall,
        wasted_bytes: listed.unused_bytes,
        alone_bytes: alone.data_bytes,
        alone_s: seconds(alone.elapsed),
        listed_s: seconds(listed.elapsed),
        known_s: seconds(known.elapsed),
    }
}

fn table(rows: &[Row]) -> String {
    let header = [
        "run",
        "trace",
        "entries",
        "alone s",
        "listed s",
        "known s",
        "listed",
        "requested",
        "precision",
        "recall",
        "wasted",
        "of",
        "before it",
    ];
    let cells = |row: &Row| {
        let mut cells = vec![row.run.to_string(), row.trace.clone(), row.entries.to_string()];
        cells.extend([row.alone_s, row.listed_s, row.known_s].map(|time| format!("{time:.3}")));
        cells.extend([row.listed, row.requested].map(|count| count.to_string()));
        cells.extend([row.precision, row.recall].map(|share| format!("{share:.2}")));
        cells.extend([row.wasted_bytes, row.alone_bytes].map(bytes));
        cells.push(row.changes.clone());
        cells
    };
    output::table(&header, &rows.iter().map(cells).collect::<Vec<_>>(), 2)
}
