//! `forerun demo`: programs on a slow volume with today's kernel and with forerun; then interleaved
//! streams from the model of a slow disk, under three readahead policies: legacy, the paper's and
//! the best; tables of the runs, and a page.
//!
//! ```text
//!   programs       gzip, columns, grep x today's kernel, forerun   a volume by FUSE, or emulated
//!   real time      1 2 3 10 streams x legacy, demand, best   live engine, every byte verified
//!   virtual time   1 .. 10 streams x legacy, demand          the paper's sizes, in the simulator
//!                  disturbed stream x legacy, demand
//! ```
//!
//! # Invariants
//! - The disk is a model in both parts, and both say so; time, threads and bytes are real.
//! - The command writes only the page, at the end, whole, and leaves nothing mounted.
//! # Sources
//! Wu, Xi, Xu, "File Prefetching Algorithm for Concurrent Streams" (2010): Figs 6, 7 and 10
//! (requests over time), 11 (throughput by streams) and 12 (delay by streams).

mod budget;
mod emulated;
mod paper;
mod programs;
mod volume;
mod watch;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use forerun_console::failure::usage;
use forerun_console::form::Form;
use forerun_console::target::Target;
use forerun_console::{machine, object, output};
use forerun_core::params::{Bytes, Param as _};
use forerun_engine::Settings;
use forerun_engine::journal::JournalFile;
use forerun_measure::journal::Journal;
use forerun_measure::live::LiveRun;
use forerun_measure::{cache, record};
use forerun_report::quantity;
use forerun_report::{Gain, Gains, Run, RunRecord, page, table};
use serde::Serialize;

use budget::Budget;

use crate::bench::json_row;

/// What `demo` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  forerun demo\n  forerun demo --seconds 10 -o page.html")]
pub struct Args {
    /// About how long the experiment with streams takes; the programs take as long, at most 12 s
    #[arg(long, value_name = "S", default_value = "12", value_parser = seconds)]
    seconds: u32,
    /// Mount no volume: the programs' reads are emulated
    #[arg(long)]
    no_mount: bool,
    /// Read some columns of FILE, as the demo's reader of a table does
    #[arg(long, hide = true, value_name = "FILE", exclusive = true)]
    read_columns: Option<PathBuf>,
    /// The page to write
    #[arg(short, long, value_name = "PAGE.html", default_value = "forerun-report.html")]
    output: PathBuf,
    #[command(flatten)]
    journal: Journal,
    #[command(flatten)]
    form: Form,
}

/// A run as `--json` prints it.
#[derive(Serialize)]
struct Timed<T> {
    time: &'static str,
    #[serde(flatten)]
    row: T,
}

/// Runs the demo.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(path) = &args.read_columns {
        return programs::read_columns(path);
    }
    args.journal.require_places(Some(&args.output), None)?;
    output::require_page_name(&args.output)?;
    let tell = |text: &str| if args.form.is_text() { output::print(text) } else { Ok(()) };
    let gains = programs_part(args, &tell)?;
    tell(OPENING)?;
    let live = args.journal.keep(|journal| live_part(args.seconds, journal, &tell))?;
    let verified: u64 = live.runs.iter().map(|run| run.bytes_wanted).sum();
    tell(&format!("All {} MiB that were read are verified, every byte.\n\n", verified >> 20))?;
    let paper = virtual_part(&tell)?;
    let html = page::gains(&gains, &[live.clone(), paper.clone()], TITLE, FOLD)
        .context("cannot draw a page")?;
    output::file(&args.output, html.as_bytes())?;
    let place = std::path::absolute(&args.output).unwrap_or_else(|_| args.output.clone());
    let page = place.display().to_string();
    let timed = |time| move |run| Timed { time, row: json_row(run) };
    let runs = live.runs.iter().map(timed("real"));
    let runs: Vec<_> = runs.chain(paper.runs.iter().map(timed("virtual"))).collect();
    let text = || format!("\nThe page with all charts: {page}\n");
    let all = object! { programs: gains, runs: runs, verified_bytes: verified, page: &page };
    args.form.print(&all, &["programs.rows", "runs"], text)
}

/// Programs on a volume of the demo's own, or their reads on an emulated store.
fn programs_part(args: &Args, tell: &impl Fn(&str) -> Result<()>) -> Result<Gains> {
    tell(&gain_row("", ["today's kernel", "forerun", ""]))?;
    let row = |gain: &Gain| {
        let [kernel, forerun] =
            [&gain.kernel, &gain.forerun].map(|run| quantity::time(run.seconds));
        let times = format!("{} times", quantity::figure(gain.times()));
        tell(&gain_row(&gain.what, [&kernel, &forerun, &times]))
    };
    let mounted = if args.no_mount {
        Err(anyhow::anyhow!("--no-mount was given"))
    } else {
        programs::run(args.seconds, &row)
    };
    let gains = mounted.or_else(|error| {
        let why = format!(
            "no slow volume can be mounted ({error:#}); it takes root, or fusermount3 \
                           and /dev/fuse"
        );
        emulated::run(&why, &row)
    })?;
    tell(&format!("\n{}\n", gains.place.replace('`', "")))?;
    for sentence in &gains.left_out {
        tell(&format!("{}\n", sentence.replace('`', "")))?;
    }
    tell("\n")?;
    Ok(gains)
}

/// Whole seconds, for the command line.
fn seconds(text: &str) -> Result<u32, String> {
    let time = crate::bench::seconds(text).ok().filter(|time| time.0.is_multiple_of(SECOND));
    let whole = time.and_then(|time| u32::try_from(time.0 / SECOND).ok());
    let whole = whole.filter(|seconds| (1..=3600).contains(seconds));
    whole.ok_or_else(|| "expected whole seconds from 1 to 3600, or a time such as 1m".to_owned())
}

/// A line of the programs' table.
fn gain_row(what: &str, cells: [&str; 3]) -> String {
    let [kernel, forerun, times] = cells;
    format!("{what:<50} {kernel:>14} {forerun:>9}   {times}").trim_end().to_owned() + "\n"
}

/// Every number of streams with every policy in real time; a row as each ends.
fn live_part(
    seconds: u32,
    journal: Option<&JournalFile>,
    tell: &impl Fn(&str) -> Result<()>,
) -> Result<RunRecord> {
    let target = model()?;
    let settings = cache::settings(&target, CACHE_BYTES);
    let mut settings_shown = record::settings(&settings);
    settings_shown.push(("time", "real".to_owned()));
    let mut record = record::empty(target.name(), SEED, &settings_shown);
    let each = Bytes((EACH_SECOND_BYTES * u64::from(seconds)).next_multiple_of(64 << 10));
    let policies = [LEGACY, DEMAND, BEST];
    let count = STREAMS.len() * policies.len();
    let mut budget = Budget::new(machine::now(), seconds, count as u64);
    let run_max = quantity::seconds(budget.run_max);
    let progress = output::progress(count as u64, "runs in real time");
    tell(&table::header())?;
    for streams in STREAMS {
        let reads = format!("streams,n={streams},each={},seed={SEED}", each.show());
        let limit = record::limit(&target, &reads, &settings.core().map_err(usage)?)?;
        for readahead in policies {
            let live = LiveRun {
                target: &target,
                reads: &reads,
                settings: Settings { readahead: readahead.to_owned(), ..settings.clone() },
                time_max: Some(budget.next(machine::now())),
                log_max: if STREAMS_DRAWN.contains(&streams) { LOG_MAX } else { 0 },
                journal,
            };
            progress.tick();
            let run = live.record(streams, limit, &mut |_| progress.tick())?;
            progress.suspend(|| tell(&table::row(&run)))?;
            progress.inc(1);
            let workload = format!("real time, at most {run_max} s a run: {}", run.workload);
            record.runs.push(Run { workload, ..run });
        }
    }
    progress.finish_and_clear();
    Ok(record)
}

/// The paper's experiments; the table has those that the live part runs too.
fn virtual_part(tell: &impl Fn(&str) -> Result<()>) -> Result<RunRecord> {
    tell(BETWEEN)?;
    let record = paper::record()?;
    let both = |run: &&Run| STREAMS.contains(&run.streams) && run.workload.contains(":streams");
    let rows: String = record.runs.iter().filter(both).map(table::row).collect();
    tell(&(table::header() + &rows))?;
    Ok(record)
}

/// The disk.
fn model() -> Result<Target> {
    Target::model(DEVICE, SEED)
}

const SECOND: u64 = 1_000_000_000;
/// The disk of the paper, with its cache off and commands of 512 KB.
const DEVICE: &str = "t7k250:cache=off";
const OPENING: &str = "\
Streams of 4 KB reads, interleaved at random on one handle, in real time. The disk is emulated:
a model of the Hitachi Deskstar T7K250 (7200 rpm, 2005), its cache off. No disk is read.

";
const BETWEEN: &str = "\
The same disk in virtual time (simulated), at the size of the paper: 100 MB a stream.

";
const TITLE: &str = "forerun demo: slow storage, with and without it";
const FOLD: &str = "The experiment of the paper: interleaved streams on a slow disk";
const LEGACY: &str = "linux-2.6.22";
const DEMAND: &str = "linux-2.6.24";
const BEST: &str = "streams";
const STREAMS: [u32; 4] = [1, 2, 3, 10];
/// The runs with requests on the page.
const STREAMS_DRAWN: [u32; 2] = [2, 10];
/// Bytes of each stream for each second of the demo: a good policy then needs about half of its
/// time, and the legacy one is stopped with 3 and 10 streams.
const EACH_SECOND_BYTES: u64 = (10 << 20) / 30;
const CACHE_BYTES: u64 = 64 << 20;
const SEED: u64 = 1;
/// Requests that the page draws of a run.
const LOG_MAX: usize = 2_000;
