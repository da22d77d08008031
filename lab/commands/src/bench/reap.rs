//! `forerun bench reap`: the time and the processor time of each way of waiting for I/O.
//!
//! ```text
//!   round   1 (not counted)         2                       3
//!           interrupt spin nio ..   spin nio .. interrupt   nio .. interrupt spin    at each size
//!                                   |<- ratios within the round ->|
//!
//!   quiet       one thread, the machine to itself
//!   contended   one thread beside 2 that never rest; then 13 threads; on 2 processors
//! ```
//!
//! # Invariants
//! - All policies read in the same run, in turns, and keep their estimates from round to round.
//! - The results state the machine's other load; where it was too high, there is no verdict.
//! - A file is only read, and past the page cache, or there is no figure.
//! # Sources
//! The bounds of the verdict are goals of this project, not taken from what was measured.

mod rows;
mod workers;

use std::path::PathBuf;

use anyhow::Result;
use forerun_console::failure::note;
use forerun_console::noise::Noise;
use forerun_console::reap_target::ReapTarget;
use forerun_console::{output, reap_reads};
use forerun_core::params::{Param as _, Share};
use forerun_core::units::Nanos;
use forerun_io::reaper::ReaperSettings;
use forerun_measure::record;
use forerun_report::quantity;
use forerun_report::quantity::read;

use super::Io;
use crate::specs::{self, Output};

use rows::{Ratios, Row};
use workers::{Load, Schedule};

const LISTER: &str = "forerun bench reap --help";

/// What `bench reap` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forerun bench reap --file /var/tmp/1G --sizes 4K,64K\n  \
    forerun bench reap --device optane --policy interrupt,spin,nio --json")]
pub(crate) struct Args {
    /// Read this file or block device
    #[arg(long, value_name = "F", required_unless_present = "device", conflicts_with = "device")]
    file: Option<PathBuf>,
    /// Read from a model in real time: optane, gen4 or sata
    #[arg(long, value_name = "MODEL")]
    device: Option<String>,
    /// Sizes of a read: a run for each
    #[arg(long, value_name = "SIZE,...", default_value = "4K,8K,16K,32K,64K,128K")]
    sizes: String,
    /// Reads that must all complete; above 1 their sizes are drawn from --sizes
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=GROUP_MAX))]
    group: u32,
    /// Policies, NAME[:key=value,...] [default: all]
    #[arg(long, value_name = "NAME,...")]
    policy: Option<String>,
    /// What else runs
    #[arg(long, value_enum, default_value = "quiet")]
    load: Loads,
    /// By which interface of the system a file is read
    #[arg(long, value_enum, default_value = "auto")]
    io: Io,
    /// The share of one processor that may be spun, for policies that ask
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = read::<Share>)]
    spin: Share,
    /// Seconds that all measurements take together
    #[arg(long, value_name = "S", default_value = "30", value_parser = super::seconds)]
    seconds: Nanos,
    /// How often each is measured
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=REPEATS_MAX))]
    repeats: u32,
    /// Decides where is read, and the model's times
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

/// What else runs.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Loads {
    /// Nothing of ours
    Quiet,
    /// 2 threads that never rest; then 13 threads that read 4 to 8 KB
    Contended,
}

/// Measures and prints the results.
pub(super) fn run(args: &Args) -> Result<()> {
    if let Some(path) = &args.output.path {
        output::require_place(path)?;
        let both: Vec<_> = args.file.iter().chain([path]).map(PathBuf::as_path).collect();
        output::require_apart(&both)?;
    }
    let policies = specs::reapers(args.policy.as_deref(), LISTER)?;
    // Others cannot be read past the page cache.
    let sizes = specs::io_sizes(&args.sizes, PAGE_BYTES, "multiple of 4K from 4K to 1M")?;
    let target = if let Some(name) = &args.device {
        ReapTarget::model(name, args.seed)?
    } else {
        let path = args.file.clone().expect("required without --device");
        ReapTarget::file(path, args.io.backend())?
    };
    if let Some(unpolled) = target.unpolled() {
        note(&unpolled);
    }
    let loads = loads(args, &sizes);
    let cells = loads.iter().map(|load| load.shapes.len() * policies.len()).sum::<usize>();
    let each = args.seconds.0 / (cells as u64 * u64::from(args.repeats + 1));
    let all: Vec<u64> = loads.iter().flat_map(|load| load.shapes.concat()).collect();
    let known = reap_reads::calibrate(&target, &all, args.seed)?;
    let settings = |policy| ReaperSettings { policy, calibration: known, spin_share: args.spin };
    let schedule = Schedule {
        target: &target,
        policies: policies.iter().cloned().map(settings).collect(),
        rounds: args.repeats + 1,
        each: Nanos(each.max(1)),
        seed: args.seed,
    };
    let mut rows = Vec::new();
    let mut noises = Vec::new();
    let progress = output::progress(loads.len() as u64 * u64::from(schedule.rounds), "rounds");
    for load in &loads {
        let before = Noise::now();
        let cells = schedule.run(load, &progress)?;
        let mut noise = Noise::now().since(&before, load.name, load.is_quiet());
        noise.unsteady(&rows::unsteady(&cells));
        rows.extend(rows::rows(load, &policies, cells));
        noises.push(noise);
    }
    progress.finish_and_clear();
    let truth = target.lateness();
    for said in rows.iter().filter_map(|row| row.fallen.as_deref()) {
        note(said);
    }
    let verdicts = rows::verdicts(&rows, &noises);
    // A failed output does not lose the record.
    let json = serde_json::json!({
        "target": target.name(), "io": target.io(), "runs": rows, "ratios": Ratios::all(&rows),
        "machine": noises, "verdicts": verdicts, "model": truth,
        "discarded": discarded(&schedule),
    });
    let record = || Ok(recorded(args, &target, &schedule, &rows, &noises));
    let written = args.output.record(&json, record);
    let notes = || notes(&target, &noises, &verdicts, &schedule);
    let shown = args.output.form.print(&json, &["runs"], || rows::table(&rows) + "\n" + &notes());
    written.and(shown)
}

/// The loads, in order of the runs.
fn loads(args: &Args, sizes: &[u64]) -> Vec<Load> {
    let each = || sizes.iter().map(|&size| vec![size]).collect();
    let shapes: Vec<Vec<u64>> = if args.group > 1 { vec![sizes.to_vec()] } else { each() };
    let load = |name, threads, hogs, shapes, group| Load { name, threads, hogs, shapes, group };
    match args.load {
        Loads::Quiet => vec![load("quiet", 1, 0, shapes, args.group)],
        Loads::Contended => vec![
            load("hogs", 1, HOGS, shapes, args.group),
            load("threads", THREADS, 0, vec![vec![4 << 10, 8 << 10]], 1),
        ],
    }
}

/// The lines below the table.
fn notes(
    target: &ReapTarget,
    noises: &[Noise],
    verdicts: &[String],
    schedule: &Schedule<'_>,
) -> String {
    let mut lines = vec![format!("{}, by {}", target.name(), target.io()), discarded(schedule)];
    lines.extend(noises.iter().map(Noise::describe));
    lines.extend(target.lateness().map(|late| late.describe()));
    lines.extend(verdicts.iter().cloned());
    lines.join("\n") + "\n"
}

fn discarded(schedule: &Schedule<'_>) -> String {
    let rounds = schedule.rounds;
    let millis = quantity::seconds(schedule.each) * 1e3;
    format!(
        "discarded: the first of {rounds} rounds of {millis:.0} ms each; of the others, in trimmed \
         means, the slowest hundredth"
    )
}

/// The record: the policy stands where readahead does, the size where streams do.
fn recorded(
    args: &Args,
    target: &ReapTarget,
    schedule: &Schedule<'_>,
    rows: &[Row],
    noises: &[Noise],
) -> forerun_report::RunRecord {
    let mut settings = vec![
        ("io", target.io().to_owned()),
        ("spin", args.spin.show()),
        ("seconds", quantity::seconds(args.seconds).to_string()),
        ("discarded", discarded(schedule)),
    ];
    let noise: Vec<String> = noises.iter().map(Noise::describe).collect();
    settings.push(("machine", noise.join("; ")));
    settings.extend(target.lateness().map(|late| ("model", late.describe())));
    let empty = record::empty(target.name(), args.seed, &settings);
    let runs = rows.iter().map(|row| row.recorded(&target.name(), target.is_model())).collect();
    forerun_report::RunRecord { repeats: args.repeats, warm_up: 1, runs, ..empty }
}

/// What contends: threads that never rest, and threads that read.
const HOGS: u32 = 2;
const THREADS: u32 = 13;
const PAGE_BYTES: u64 = 4_096;
const GROUP_MAX: i64 = 1_024;
const REPEATS_MAX: i64 = 1_000;
