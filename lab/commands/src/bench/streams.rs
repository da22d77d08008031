//! `forerun bench streams`: streams through the engine in real time, every byte verified; or the
//! same reads of a file through the kernel's page cache, to compare.
//!
//! # Invariants
//! - The command refuses bad arguments before the first read, and writes the record at the end.
//! - A run that fails has no figure, and ends the command.

use std::path::PathBuf;

use anyhow::Result;
use forerun_console::failure::usage;
use forerun_console::profile::flag::ProfileFlag;
use forerun_console::target::Target;
use forerun_console::{object, output};
use forerun_core::params::Bytes;
use forerun_core::units::Nanos;
use forerun_engine::Settings;
use forerun_engine::journal::JournalFile;
use forerun_measure::kernel::Kernel;
use forerun_measure::live::LiveRun;
use forerun_measure::windows::WINDOWS_MAX;
use forerun_measure::{cache, record};
use forerun_report::quantity::read;
use forerun_report::{Run, RunRecord, table};
use serde::Serialize;

use forerun_measure::pattern::{Reads, Shape};
use forerun_measure::verify::{self, Against};

use crate::{sim, specs};

/// What `bench streams` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
        forerun bench streams --device t7k250 --readahead linux-2.6.22,linux-2.6.24\n  \
        forerun bench streams --file disk.img --streams 4 --each 64M --json\n  \
        forerun bench streams --device hdd -o run.json --explain-readahead")]
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
    #[command(flatten)]
    shape: Shape,
    /// Seconds after which no read begins [default: all is read]
    #[arg(long, value_name = "S", value_parser = super::seconds)]
    seconds: Option<Nanos>,
    /// By what the file is read
    #[arg(long, value_enum, default_value = "engine")]
    through: Through,
    /// Readahead policies, NAME[:key=value,...]: a run each [default: streams]
    #[arg(long, value_name = "NAME,...")]
    readahead: Option<String>,
    /// The largest request to the store [default: as the device model takes them, at most 1M]
    #[arg(long, value_name = "SIZE", value_parser = read::<Bytes>)]
    request_max: Option<Bytes>,
    /// Readahead requests of a file under way at once [default: 8, up to 64 as far as the device is
    /// seen to use them; 1 on a model of a disk without a queue]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=DEPTH_MAX))]
    depth: Option<u32>,
    #[command(flatten)]
    profile: ProfileFlag,
    /// Memory for pages
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = read::<Bytes>)]
    cache: Bytes,
    /// How a file is read
    #[arg(long, value_enum, default_value = "auto", conflicts_with = "device")]
    io: super::Io,
    /// Decides every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Keep in the record why each readahead window was opened, its size and its outcome
    #[arg(long, requires = "output")]
    explain_readahead: bool,
    #[command(flatten)]
    results: super::Results,
}

/// By what a file is read.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Through {
    /// The engine, past the kernel's page cache
    Engine,
    /// Plain `pread`: the kernel's page cache and readahead; the engine's flags say nothing
    Kernel,
}

/// The checked plan of the runs.
struct Plan<'a> {
    args: &'a Args,
    target: Target,
    reads: Reads,
    readaheads: Vec<String>,
    settings: Settings,
}

impl<'a> Plan<'a> {
    fn new(args: &'a Args) -> Result<Self> {
        args.results.require_places(args.file.as_deref())?;
        let readaheads = specs::readaheads(args.readahead.as_deref().unwrap_or(DEFAULT_READAHEAD))?;
        let target = match (&args.device, &args.file) {
            (Some(spec), _) => Target::model(&sim::device_spec(spec, args.drive_cache), args.seed)?,
            (None, Some(path)) => Target::file(path.clone(), args.io.backend())?,
            (None, None) => return Err(usage("give --file F or --device MODEL")),
        };
        args.require_possible(&target)?;
        let reads = args.shape.reads(target.bytes(), args.seed)?;
        let mut settings = cache::settings(&target, args.cache.0);
        if let Some(Bytes(bytes)) = args.request_max {
            settings.request_bytes_max = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
        settings.windows_max = if args.explain_readahead { WINDOWS_MAX } else { 0 };
        if let Some(depth) = args.depth {
            (settings.background_depth, settings.background_depth_max) = (depth, depth);
        }
        settings.device = args.profile.facts(&target)?;
        for readahead in &readaheads {
            let settings = Settings { readahead: readahead.clone(), ..settings.clone() };
            super::check(&settings)?;
        }
        Ok(Self { args, target, reads, readaheads, settings })
    }

    /// Runs every policy; `ended` sees each run.
    fn run(
        &self,
        journal: Option<&JournalFile>,
        mut ended: impl FnMut(&Run) -> Result<()>,
    ) -> Result<Vec<Run>> {
        if self.args.through == Through::Kernel {
            let run = self.through_the_kernel()?;
            ended(&run)?;
            return Ok(vec![run]);
        }
        let core = self.settings.core().map_err(usage)?;
        let known = self.reads.known.as_ref();
        let limit = known.map(|known| record::limit(&self.target, known, &core)).transpose()?;
        let (reads, streams) = (self.reads.text.as_str(), self.reads.streams);
        let mut runs = Vec::new();
        for readahead in &self.readaheads {
            let live = LiveRun {
                target: &self.target,
                reads,
                settings: Settings { readahead: readahead.clone(), ..self.settings.clone() },
                time_max: self.args.seconds,
                log_max: if self.args.results.output.path.is_some() { LOG_MAX } else { 0 },
                journal,
            };
            let progress = output::progress(self.reads.bytes_wanted()?, readahead);
            let run = live.record(streams, limit.flatten(), &mut |bytes| {
                progress.set_position(bytes);
            });
            progress.finish_and_clear();
            let run = run?;
            ended(&run)?;
            runs.push(run);
        }
        Ok(runs)
    }

    fn through_the_kernel(&self) -> Result<Run> {
        let Target::File(file) = &self.target else { unreachable!("a model was refused") };
        let reads = self.reads.text.as_str();
        let kernel = Kernel { file, reads, time_max: self.args.seconds };
        let progress = output::progress(self.reads.bytes_wanted()?, KERNEL);
        let measured = kernel.run(&mut |bytes| progress.set_position(bytes));
        progress.finish_and_clear();
        let named = (KERNEL.to_owned(), kernel.params()?);
        Ok(record::run(&self.target, named, reads, self.reads.streams, None, measured?))
    }
}

impl Args {
    /// Refuses what contradicts itself on this target.
    fn require_possible(&self, target: &Target) -> Result<()> {
        if self.through == Through::Kernel {
            let wrong = [
                (self.file.is_none(), "reads a file: give --file"),
                (self.readahead.is_some(), "has its own readahead: leave out --readahead"),
                (self.profile.is_some(), "asks no profile: leave out --profile"),
                (self.explain_readahead, "explains nothing: leave out --explain-readahead"),
            ];
            if let Some((_, why)) = wrong.iter().find(|(is_so, _)| *is_so) {
                return Err(usage(format!("--through kernel {why}")));
            }
        }
        if self.seconds.is_some() && verify::against(target)? == Against::Later {
            return Err(usage(
                "--seconds: only a file of the pattern can be checked in part; make one with \
                 `forerun bench file FILE --make SIZE`",
            ));
        }
        Ok(())
    }
}

/// Runs the plan and prints the results.
pub(super) fn run(args: &Args) -> Result<()> {
    let plan = Plan::new(args)?;
    let form = &args.results.output.form;
    let tell = |text: String| if form.is_text() { output::print(&text) } else { Ok(()) };
    tell(table::header())?;
    let runs =
        args.results.journal.keep(|journal| plan.run(journal, |run| tell(table::row(run))))?;
    let rows = || object! { runs: runs.iter().map(json_row).collect::<Vec<_>>() };
    if !form.is_text() {
        form.print(&rows(), &["runs"], String::new)?;
    }
    args.results.output.record(&rows(), || {
        let mut settings = record::settings(&plan.settings);
        settings.push(("workload", plan.reads.text.clone()));
        let empty = record::empty(plan.target.name(), args.seed, &settings);
        Ok(RunRecord { runs: runs.clone(), ..empty })
    })
}

/// One run, as `--json` prints it. What is not known is null.
pub(crate) fn json_row(run: &Run) -> impl Serialize {
    object! {
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

/// The name of the kernel's readahead in tables and records.
const KERNEL: &str = "kernel";
/// More requests in flight help no known device.
const DEPTH_MAX: i64 = 1_024;
const DEFAULT_READAHEAD: &str = "streams";
/// Requests that a record keeps of each run.
const LOG_MAX: usize = 20_000;
