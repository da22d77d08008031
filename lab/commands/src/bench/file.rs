//! `forerun bench file`: cold reads of a real file through the engine.
//!
//! ```text
//!   seq   |--- thread 1 --->|--- thread 2 --->|     each its part, once, in order
//!   rand  each thread its own seeded offsets, until the time is over
//! ```
//!
//! # Invariants
//! - The command asks the kernel to drop the file before; the share read from the device is
//!   counted by the kernel; a note says so where it was not all.
//! - Words of each page are checked while it is read: against the pattern, where the file is one,
//!   else against plain reads of the same bytes afterwards.

mod reads;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use forerun_console::failure::{note, usage};
use forerun_console::profile::flag::ProfileFlag;
use forerun_console::target::Target;
use forerun_console::{object, output};
use forerun_core::params::{Bytes, Param as _};
use forerun_core::units::Nanos;
use forerun_engine::journal::JournalFile;
use forerun_engine::{Histogram, Settings, Stats};
use forerun_measure::journal;
use forerun_report::quantity;
use forerun_report::quantity::read;
use forerun_report::quantity::{float, micros, ratio};
use forerun_report::{Run, RunRecord};
use forerun_sim::driver::rate;

use forerun_measure::cache::{failed, opened_cold, refused};
use forerun_measure::{pattern_file, record};

use forerun_measure::verify::Against;

use reads::{Pattern, Plan};

use crate::{process, specs};
use serde::Serialize;

/// What `bench file` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
        forerun bench file disk.img\n  \
        forerun bench file /var/tmp/pattern --make 4G --pattern rand --threads 16")]
pub(crate) struct Args {
    /// The file or block device
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Make FILE first: so many bytes of which each can be checked
    #[arg(long, value_name = "SIZE", value_parser = read::<Bytes>)]
    make: Option<Bytes>,
    /// The order of the reads
    #[arg(long, value_enum, default_value = "seq")]
    pattern: Pattern,
    /// Bytes of a read [default: 1M, or 4K at random]
    #[arg(long, value_name = "SIZE", value_parser = read::<Bytes>)]
    size: Option<Bytes>,
    /// Threads that read at once
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=THREADS_MAX))]
    threads: u32,
    /// Seconds after which no read begins
    #[arg(long, value_name = "S", default_value = "10", value_parser = super::seconds)]
    seconds: Nanos,
    /// Memory for pages
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = read::<Bytes>)]
    cache: Bytes,
    /// The readahead policy, NAME[:key=value,...] [default: streams]
    #[arg(long, value_name = "NAME")]
    readahead: Option<String>,
    #[command(flatten)]
    profile: ProfileFlag,
    /// How the file is read
    #[arg(long, value_enum, default_value = "auto")]
    io: super::Io,
    /// Decides every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    results: super::Results,
}

impl Pattern {
    fn name(self) -> &'static str {
        match self {
            Self::Seq => "seq",
            Self::Rand => "rand",
        }
    }
}

/// Reads and prints the results.
pub(super) fn run(args: &Args) -> Result<()> {
    args.results.require_places(Some(&args.file))?;
    let size = args.size.unwrap_or(match args.pattern {
        Pattern::Seq => Bytes(1 << 20),
        Pattern::Rand => Bytes(4 << 10),
    });
    if !(1..=SIZE_MAX.0).contains(&size.0) {
        return Err(usage(format!("--size {}: expected 1 to {}", size.show(), SIZE_MAX.show())));
    }
    let mut settings = Settings { cache_bytes: args.cache.0, ..Settings::default() };
    settings.files.backend = args.io.backend();
    if let Some(readahead) = &args.readahead {
        specs::readaheads(readahead)?;
        settings.readahead.clone_from(readahead);
    }
    super::check(&settings)?;
    if let Some(bytes) = args.make {
        pattern_file::make(&args.file, bytes.0)?;
    }
    let target = Target::file(args.file.clone(), args.io.backend())?;
    settings.device = args.profile.facts(&target)?;
    let measured = args
        .results
        .journal
        .keep(|journal| measured(args, &target, (settings.clone(), journal), size))?;
    let json = object! { runs: [json_row(args, size, &measured)] };
    args.results.output.form.print(&json, &["runs"], || table(args, size, &measured))?;
    if measured.device_bytes < measured.stats.store_bytes / 100 * 95 {
        note("not all was cold: the kernel held a part of the file, or it lies in memory");
    }
    args.results.output.record(&json, || recorded(args, size, &settings, &measured))
}

/// The results of the run.
struct FileResult {
    elapsed: Nanos,
    bytes: u64,
    times: Histogram,
    stats: Stats,
    /// Bytes read from devices, as the kernel counts them.
    device_bytes: u64,
    /// The interface by which the engine reads files.
    io: String,
}

impl FileResult {
    fn mb_per_second(&self) -> f64 {
        rate(self.bytes, self.elapsed)
    }

    fn io_per_second(&self) -> f64 {
        float(self.times.count()) / quantity::seconds(self.elapsed).max(f64::MIN_POSITIVE)
    }

    /// Pages that were resident at the request.
    fn hit_ratio(&self) -> f64 {
        let stats = &self.stats;
        ratio(stats.hits(), stats.pages())
    }

    /// Pages that were in flight at the request.
    fn late_ratio(&self) -> f64 {
        let stats = &self.stats;
        ratio(stats.late_hits(), stats.pages())
    }
}

fn measured(
    args: &Args,
    target: &Target,
    (settings, journal): (Settings, Option<&JournalFile>),
    size: Bytes,
) -> Result<FileResult> {
    let Target::File(file) = target else { unreachable!("it was made of a path") };
    let around = file.plainly()?;
    let bytes = target.bytes();
    let is_pattern = pattern_file::is_pattern(&around, bytes);
    let plan = Plan {
        pattern: args.pattern,
        seed: args.seed,
        size: usize::try_from(size.0).expect("bounded"),
        threads: args.threads,
        file_bytes: bytes,
        time_max: args.seconds,
        against: if is_pattern { Against::Pattern } else { Against::Later },
    };
    let cache = journal::cache(settings, journal).map_err(refused)?;
    let handle = opened_cold(file, &cache)?;
    let device_before = process::device_bytes();
    let ran = plan.run(&handle).map_err(|error| failed(file, error))?;
    let device_bytes = process::device_bytes().saturating_sub(device_before);
    let (stats, io) = (cache.stats(), cache.chosen().to_string());
    drop((handle, cache));
    if !is_pattern {
        plan.compare(&around, &ran).map_err(|error| failed(file, error))?;
    }
    file.require_unchanged()?;
    let bytes = ran.threads.iter().map(|thread| thread.bytes).sum();
    let mut times = Histogram::new(3);
    ran.threads
        .iter()
        .flat_map(|thread| &thread.times)
        .for_each(|&time| times.add(Nanos(time.into())));
    Ok(FileResult { elapsed: ran.elapsed, bytes, times, stats, device_bytes, io })
}

fn table(args: &Args, size: Bytes, measured: &FileResult) -> String {
    let micros = |time: Duration| format!("{:.1}", micros(time));
    let header = [
        "pattern", "size", "threads", "MB/s", "IO/s", "mean us", "p50", "p90", "p99", "max",
        "hits %", "late %", "requests", "cold %",
    ];
    let (times, stats) = (&measured.times, &measured.stats);
    let row = vec![
        args.pattern.name().to_owned(),
        size.show(),
        args.threads.to_string(),
        format!("{:.1}", measured.mb_per_second()),
        format!("{:.0}", measured.io_per_second()),
        format!("{:.1}", micros(times.mean())),
        micros(times.quantile(500)),
        micros(times.quantile(900)),
        micros(times.quantile(990)),
        micros(times.quantile(1_000)),
        format!("{:.1}", measured.hit_ratio() * 100.0),
        format!("{:.1}", measured.late_ratio() * 100.0),
        stats.store_requests.to_string(),
        // A device moves whole blocks, a short file has less.
        format!("{:.0}", ratio(measured.device_bytes, stats.store_bytes).min(1.0) * 100.0),
    ];
    output::table(&header, &[row], 1)
}

/// The run, as `--json` prints it.
fn json_row(args: &Args, size: Bytes, measured: &FileResult) -> impl Serialize {
    let times = &measured.times;
    let quantile = |per_mille| micros(times.quantile(per_mille));
    object! {
        pattern: args.pattern,
        size: size.0,
        threads: args.threads,
        reads: times.count(),
        seconds: quantity::seconds(measured.elapsed),
        mb_per_second: measured.mb_per_second(),
        io_per_second: measured.io_per_second(),
        mean_us: micros(times.mean()),
        p50_us: quantile(500),
        p90_us: quantile(900),
        p99_us: quantile(990),
        p999_us: quantile(999),
        max_us: quantile(1_000),
        hit_ratio: measured.hit_ratio(),
        late_ratio: measured.late_ratio(),
        bytes_wanted: measured.bytes,
        bytes_read: measured.stats.store_bytes,
        device_requests: measured.stats.store_requests,
        device_bytes: measured.device_bytes,
    }
}

fn recorded(
    args: &Args,
    size: Bytes,
    engine: &Settings,
    measured: &FileResult,
) -> Result<RunRecord> {
    let device = args.file.display().to_string();
    let mut settings = record::settings(engine);
    settings.push(("seconds", quantity::seconds(args.seconds).to_string()));
    settings.push(("io", measured.io.clone()));
    let (readahead, params) = record::policy(&engine.readahead)?;
    let (times, stats) = (&measured.times, &measured.stats);
    let mb_per_second = measured.mb_per_second();
    let pattern = args.pattern.name();
    let run = Run {
        readahead,
        params,
        device: device.clone(),
        streams: args.threads,
        workload: format!("file,pattern={pattern},size={},threads={}", size.show(), args.threads),
        mb_per_second,
        delay_seconds: quantity::seconds(stats.waited),
        device_requests: stats.store_requests,
        mean_request_bytes: stats.store_bytes / stats.store_requests.max(1),
        bytes_read: stats.store_bytes,
        bytes_wanted: measured.bytes,
        p50_us: micros(times.quantile(500)),
        p99_us: micros(times.quantile(990)),
        ..Run::default()
    };
    Ok(RunRecord { runs: vec![run], ..record::empty(device, args.seed, &settings) })
}

/// Each thread has a buffer of its own, and the engine's bound on reads at once is above this.
const THREADS_MAX: i64 = 256;
const SIZE_MAX: Bytes = Bytes(16 << 20);
