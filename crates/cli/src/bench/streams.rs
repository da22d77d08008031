//! `forerun bench streams`: streams through the engine in real time, every byte verified.
//!
//! # Invariants
//! - All that can be refused is refused before anything is read; a record is written at the end.
//! - A run that fails has no figure, and ends the command.

use std::path::PathBuf;

use anyhow::Result;
use forerun_core::device::Rate;
use forerun_core::params::{Bytes, Param};
use forerun_engine::Settings;
use forerun_engine::journal::JournalFile;
use forerun_report::{Run, RunRecord, table};
use serde::Serialize;

use super::live::Live;
use super::pattern::{Layout, Pattern, Reads, Shape};
use super::record;
use super::target::Target;
use crate::failure::usage;
use crate::{interrupt, output, sim, specs};

/// What `bench streams` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
        forerun bench streams --device t7k250 --readahead linux-2.6.22,linux-2.6.24\n  \
        forerun bench streams --file disk.img --streams 4 --each 64M --json")]
pub(crate) struct Args {
    /// Read this file or block device
    #[arg(long, value_name = "F", conflicts_with_all = ["device", "drive_cache"])]
    file: Option<PathBuf>,
    /// Read a pattern behind this device model, NAME[:key=value,...], in real time
    #[arg(long, value_name = "MODEL")]
    device: Option<String>,
    /// The disk's own cache [default: the model's; off for t7k250]
    #[arg(long, requires = "device", value_name = "on|off")]
    drive_cache: Option<sim::Switch>,
    /// Streams [default: 10]
    #[arg(long, value_name = "N")]
    streams: Option<u32>,
    /// Bytes of a read
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = parse::<Bytes>)]
    request: Bytes,
    /// Bytes of each stream [default: 10M; on a smaller file, what fits]
    #[arg(long, value_name = "SIZE", value_parser = parse::<Bytes>)]
    each: Option<Bytes>,
    /// Bytes a second that each stream is read at [default: as fast as they come]
    #[arg(long, value_name = "BYTES", value_parser = parse::<Rate>)]
    rate: Option<Rate>,
    /// random, round-robin, sequential, backward, stride:A/B, disturb:PERCENT or parquet:COLUMNS
    #[arg(long, value_name = "NAME", default_value = "random")]
    pattern: Pattern,
    /// Where the streams lie
    #[arg(long, value_enum, default_value = "spread")]
    layout: Layout,
    /// Threads that share the streams out
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=READERS_MAX))]
    readers: u32,
    /// Readahead policies, NAME[:key=value,...]: a run each
    #[arg(long, value_name = "NAME,...", default_value = DEFAULT_READAHEAD)]
    readahead: String,
    /// Memory for pages
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse::<Bytes>)]
    cache: Bytes,
    /// How a file is read
    #[arg(long, value_enum, default_value = "auto", conflicts_with = "device")]
    io: super::Io,
    /// Decides every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    results: super::Results,
}

/// What is run, checked.
struct Plan {
    target: Target,
    reads: Reads,
    readaheads: Vec<String>,
    settings: Settings,
    seed: u64,
    log_max: usize,
}

impl Plan {
    fn new(args: &Args) -> Result<Self> {
        args.results.require_places(args.file.as_deref())?;
        let readaheads = specs::readaheads(&args.readahead)?;
        if !(1..=REQUEST_MAX.0).contains(&args.request.0) {
            let max = REQUEST_MAX.show();
            return Err(usage(format!("--request {}: expected 1 to {max}", args.request.show())));
        }
        let target = match (&args.device, &args.file) {
            (Some(spec), _) => Target::model(&sim::device_spec(spec, args.drive_cache), args.seed)?,
            (None, Some(path)) => Target::file(path.clone(), args.io.backend())?,
            (None, None) => return Err(usage("give --file F or --device MODEL")),
        };
        let shape = Shape {
            pattern: args.pattern,
            streams: args.streams,
            each: args.each,
            request: args.request,
            rate: args.rate,
            layout: args.layout,
            readers: args.readers,
            seed: args.seed,
        };
        let reads = shape.reads(target.bytes())?;
        let settings = target.settings(args.cache.0);
        for readahead in &readaheads {
            let settings = Settings { readahead: readahead.clone(), ..settings.clone() };
            super::check(&settings)?;
        }
        let log_max = if args.results.output.is_some() { LOG_MAX } else { 0 };
        Ok(Self { target, reads, readaheads, settings, seed: args.seed, log_max })
    }

    /// Runs every policy; `ended` sees each run.
    fn run(
        &self,
        journal: Option<&JournalFile>,
        mut ended: impl FnMut(&Run) -> Result<()>,
    ) -> Result<Vec<Run>> {
        let core = self.settings.core().map_err(usage)?;
        let known = self.reads.known.as_ref();
        let limit = known.map(|known| record::limit(&self.target, known, &core)).transpose()?;
        let (reads, streams) = (self.reads.text.as_str(), self.reads.streams);
        let mut runs = Vec::new();
        for readahead in &self.readaheads {
            let live = Live {
                target: &self.target,
                reads,
                settings: Settings { readahead: readahead.clone(), ..self.settings.clone() },
                time_max: None,
                log_max: self.log_max,
                journal,
            };
            let progress = output::progress(live.bytes_wanted()?, readahead);
            let measured = live.run(&mut |bytes| progress.set_position(bytes));
            progress.finish_and_clear();
            let limit = limit.flatten();
            let run = record::run(&self.target, readahead, reads, streams, limit, measured?)?;
            ended(&run)?;
            runs.push(run);
        }
        Ok(runs)
    }
}

/// Runs what was asked for and prints the figures.
pub(super) fn run(args: &Args) -> Result<()> {
    let plan = Plan::new(args)?;
    if !args.results.json {
        output::print(&table::header())?;
    }
    let tell = |run: &Run| if args.results.json { Ok(()) } else { output::print(&table::row(run)) };
    let runs = args.results.journal.keep(|journal| plan.run(journal, tell))?;
    if args.results.json {
        let runs = runs.iter().map(Figures::new).collect();
        output::json(&Runs { runs })?;
    }
    let Some(path) = &args.results.output else { return Ok(()) };
    let mut settings = record::settings(&plan.settings);
    settings.push(("workload", plan.reads.text.clone()));
    let empty = record::empty(plan.target.name(), plan.seed, &settings);
    Ok(interrupt::unbroken(|| RunRecord { runs, ..empty }.write(path))?)
}

/// All runs, as `--json` prints them.
#[derive(Serialize)]
struct Runs<'a> {
    runs: Vec<Figures<'a>>,
}

/// One run. What is not known is null.
#[derive(Serialize)]
pub(crate) struct Figures<'a> {
    readahead: &'a str,
    streams: u32,
    mb_per_second: f64,
    delay_seconds: f64,
    device_requests: u64,
    mean_request_bytes: u64,
    bytes_read: u64,
    bytes_wanted: u64,
    limit_mb_per_second: Option<f64>,
    ratio_to_limit: Option<f64>,
    p50_us: f64,
    p99_us: f64,
}

impl<'a> Figures<'a> {
    pub(crate) fn new(run: &'a Run) -> Self {
        Self {
            readahead: &run.readahead,
            streams: run.streams,
            mb_per_second: run.mb_per_second,
            delay_seconds: run.delay_seconds,
            device_requests: run.device_requests,
            mean_request_bytes: run.mean_request_bytes,
            bytes_read: run.bytes_read,
            bytes_wanted: run.bytes_wanted,
            limit_mb_per_second: run.limit_mb_per_second,
            ratio_to_limit: run.ratio_to_limit,
            p50_us: run.p50_us,
            p99_us: run.p99_us,
        }
    }
}

fn parse<P: Param>(text: &str) -> Result<P, String> {
    P::parse(text).ok_or_else(|| format!("expected {}", P::FORM))
}

const DEFAULT_READAHEAD: &str = "linux-6";
/// The engine's bound on reads at once is above this.
const READERS_MAX: i64 = 256;
/// Each reader has a few buffers of this size.
const REQUEST_MAX: Bytes = Bytes(16 << 20);
/// Requests that a record keeps of each run.
const LOG_MAX: usize = 20_000;
