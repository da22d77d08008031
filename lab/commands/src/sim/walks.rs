//! `forerun sim walks`: recorded programs that go over trees: alone, with walks, with all known.
//!
//! ```text
//!   strace's text, --tree --> trace
//!   trace --> alone | walks | known --> a row
//! ```
//! # Invariants
//! - The same arguments print the same results on each machine.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use forerun_console::form::Output;
use forerun_console::{failure, output};
use forerun_core::params::Param as _;
use forerun_core::units::Nanos;
use forerun_report::quantity::{bytes, seconds};
use forerun_sim::walks::{
    AccessTrace, Ahead, WalkRun, WalkSettings, WalkSetup, precision_and_recall, run,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::source::Source;
use crate::kept::{self, Kept};
use crate::{parallel, specs};

/// What `sim walks` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    strace -f -ttt -T -y -s 0 -o tar.strace tar cf - tree | cat > /dev/null\n  \
    forerun trace convert tar.strace tar.jsonl --to accesses --tree tree\n  \
    forerun sim walks tar.jsonl --device object --observer poll\n  \
    forerun sim walks *.jsonl.zst --json")]
pub(super) struct Args {
    /// Traces of accesses with paths (zstd, gzip, xz are seen by content), or strace's text
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The tree that strace's text is about, as it was when the program began
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    #[command(flatten)]
    virtually: Virtually,
    #[command(flatten)]
    output: Output,
}

/// The device, and what is seen of a program on it.
#[derive(Debug, clap::Args)]
pub(super) struct Virtually {
    /// The device, NAME[:key=value,...]
    #[arg(long, value_name = "MODEL", default_value = "cloud")]
    pub(super) device: String,
    /// What is seen of the program: every call, or those that a poll meets
    #[arg(long, value_name = "all|poll", default_value = "all")]
    observer: Observer,
    /// The time between two polls
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = poll)]
    poll: Nanos,
    /// Requests that are carried out at a time
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// What the recorder added to each call
    #[arg(long, value_name = "TIME", default_value = "30us", value_parser = poll)]
    tracing: Nanos,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Observer {
    All,
    Poll,
}

/// The results of a trace.
#[derive(Serialize, Deserialize)]
struct Row {
    trace: String,
    program: String,
    calls: usize,
    entries: u64,
    alone_s: f64,
    walks_s: f64,
    known_s: f64,
    walks: u64,
    requested: u64,
    used: u64,
    wasted: u64,
    precision: f64,
    recall: f64,
    alone_bytes: u64,
    wasted_bytes: u64,
    hits: u64,
    misses: u64,
    listings: u64,
}

fn poll(text: &str) -> Result<Nanos, String> {
    let time = Nanos::parse(text).filter(|time| (1..=1_000_000_000).contains(&time.0));
    time.ok_or_else(|| format!("{}, from 1ns to 1s", Nanos::FORM))
}

/// Runs each trace.
pub(super) fn run_all(args: &Args) -> Result<()> {
    args.output.check()?;
    let setup = args.virtually.setup()?;
    // What is in a tree is not known by its name: no row is kept for the next run.
    let path = args.output.path.as_deref().filter(|_| args.tree.is_none());
    let kept = Mutex::new(Kept::open(path)?);
    let results = parallel::map(&args.traces, |path| kept_or_run(path, args, &setup, &kept));
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for (path, result) in args.traces.iter().zip(results) {
        match result {
            Ok(row) => rows.push(row),
            Err(error) => failed.push((path.display().to_string(), error)),
        }
    }
    if !rows.is_empty() {
        let json = serde_json::json!({ "device": args.virtually.device, "runs": rows });
        args.output.print(&json, &["runs"], || table(&rows))?;
    }
    failure::all_done(failed, args.traces.len())?;
    kept.into_inner().end()
}

/// The row of a trace: that of an earlier run which was cut, or a new one.
fn kept_or_run(
    path: &Path,
    args: &Args,
    setup: &WalkSetup,
    kept: &Mutex<Kept<Row>>,
) -> Result<Row> {
    let identity = Source::File(path.into()).identity();
    let key = format!("{} {identity} {:?}", kept::build(), args.virtually);
    if let Some(found) = kept.lock().take(&key) {
        return Ok(found);
    }
    let row = row(&name(path), &read(path, args)?, setup);
    kept.lock().add(&key, &row)?;
    Ok(row)
}

impl Virtually {
    pub(super) fn setup(&self) -> Result<WalkSetup> {
        Ok(WalkSetup {
            device: specs::device(&self.device, 1)?,
            settings: WalkSettings::default(),
            workers: usize::from(self.workers),
            poll: matches!(self.observer, Observer::Poll).then_some(self.poll),
            tracing: self.tracing,
        })
    }
}

/// What a trace is called in a row.
pub(super) fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

fn read(path: &Path, args: &Args) -> Result<AccessTrace> {
    let shown = path.display();
    let Some(top) = &args.tree else {
        let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
        return AccessTrace::read(file).with_context(|| format!("{shown}"));
    };
    crate::trace::strace::accesses(path, top, None, name(path))
}

fn row(name: &str, trace: &AccessTrace, setup: &WalkSetup) -> Row {
    let [alone, walks, known] =
        [Ahead::Nothing, Ahead::Walks, Ahead::Known].map(|ahead| run(trace, setup, ahead));
    let (precision, recall) = precision_and_recall(&walks);
    let WalkRun { stats, .. } = walks;
    Row {
        trace: name.to_owned(),
        program: trace.program.clone(),
        calls: trace.calls.len(),
        entries: walks.entries,
        alone_s: seconds(alone.elapsed),
        walks_s: seconds(walks.elapsed),
        known_s: seconds(known.elapsed),
        walks: stats.walks,
        requested: stats.requested,
        used: stats.used,
        wasted: stats.requested - stats.used,
        precision,
        recall,
        alone_bytes: alone.data_bytes,
        wasted_bytes: walks.unused_bytes,
        hits: stats.hits,
        misses: stats.misses,
        listings: stats.listings,
    }
}

fn table(rows: &[Row]) -> String {
    let header = [
        "trace",
        "entries",
        "alone s",
        "walks s",
        "known s",
        "walks",
        "requested",
        "precision",
        "recall",
        "wasted",
        "of",
    ];
    let cells = |row: &Row| {
        let mut cells = vec![row.trace.clone(), row.entries.to_string()];
        cells.extend([row.alone_s, row.walks_s, row.known_s].map(|time| format!("{time:.3}")));
        cells.extend([row.walks, row.requested].map(|count| count.to_string()));
        cells.extend([row.precision, row.recall].map(|share| format!("{share:.2}")));
        cells.extend([row.wasted_bytes, row.alone_bytes].map(bytes));
        cells
    };
    output::table(&header, &rows.iter().map(cells).collect::<Vec<_>>(), 1)
}
