//! `forerun bench hit`: the cost of a hit, beside the kernel's cost of the same bytes.
//!
//! The command reads a file through the engine and by `pread`, so that both cache it; then each way
//! reads the same pages in the same random order, in turns:
//!
//! ```text
//!   round   1 (not counted)      2                     3
//!           pread copy pin       copy pin pread        pin pread copy       each: all threads
//!                                |<-- ratio within the round -->|
//! ```
//!
//! # Invariants
//! - Before the measurement every byte that the engine serves is compared with `pread`'s, and in
//!   it a word of each page: a sum that must come out.
//! - A read that was no hit ends the command: there is no figure.

mod race;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use forerun_console::failure::usage;
use forerun_console::target::Target;
use forerun_console::{object, output};
use forerun_core::params::{Bytes, Param as _};
use forerun_core::units::Nanos;
use forerun_engine::{Cache, Handle, Settings};
use forerun_io::files::Backend;
use forerun_measure::cache::refused;
use forerun_measure::journal;
use forerun_report::quantity;
use forerun_report::quantity::read;
use forerun_report::{Run, RunRecord, Spread, Summary};
use forerun_steer::memory::Memory;
use rustix::fs::statvfs;
use serde::Serialize;

use forerun_measure::{pattern_file, record};

use race::{PAGE_BYTES, PageOrder, Sample, WAYS, Way};

/// What `bench hit` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
        forerun bench hit\n  \
        forerun bench hit --size 64M --threads 1,2,4 --seconds 60 -o hit.json")]
pub(crate) struct Args {
    /// Threads that read at once: a run for each number
    #[arg(long, value_name = "N,...", default_value = "1,2", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=THREADS_MAX))]
    threads: Vec<u32>,
    /// Bytes that are read, in whole pages: a run for each size [default: 64M,1G,6G, without those
    /// that three times do not fit in the memory that is free, or once in the temporary folder]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = read::<Bytes>)]
    size: Vec<Bytes>,
    /// Read this file's first bytes [default: a file in the temporary folder]
    #[arg(long, value_name = "F")]
    file: Option<PathBuf>,
    /// Seconds that all measurements take together
    #[arg(long, value_name = "S", default_value = "10", value_parser = super::seconds)]
    seconds: Nanos,
    /// How often each is measured
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=REPEATS_MAX))]
    repeats: u32,
    /// Decides the order of the pages
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    results: super::Results,
}

/// Measures and prints the results.
pub(super) fn run(args: &Args) -> Result<()> {
    args.results.require_places(args.file.as_deref())?;
    let sizes = sizes(args)?;
    sizes.iter().try_for_each(|&bytes| super::check(&settings(bytes)))?;
    let each = Nanos(args.seconds.0 / sizes.len() as u64);
    let runs = args.results.journal.keep(|journal| {
        let mut runs = Vec::new();
        for &size in &sizes {
            let opened = opened(args, size)?;
            let cache = journal::cache(settings(opened.bytes), journal).map_err(refused)?;
            let measured = measured(args, each, &cache, &opened);
            runs.extend(measured.with_context(|| name(args))?);
        }
        Ok(runs)
    })?;
    let json = object! { runs: runs.iter().map(json_row).collect::<Vec<_>>() };
    args.results.output.form.print(&json, &["runs"], || table(&runs))?;
    args.results.output.record(&json, || Ok(recorded(args, &runs)))
}

/// The sizes, of the file's bytes, without what comes twice.
fn sizes(args: &Args) -> Result<Vec<u64>> {
    let mut sizes = args.size.clone();
    if sizes.is_empty() {
        let free = Memory::here().room().free_bytes.unwrap_or(0);
        let disk = statvfs(std::env::temp_dir()).map_or(0, |it| it.f_bavail * it.f_frsize);
        let fits = |size: &Bytes| size.0 * 3 <= free && (args.file.is_some() || size.0 <= disk);
        sizes.extend(SIZES.into_iter().filter(|size| *size == SIZES[0] || fits(size)));
    }
    let known = args.file.clone().map(|path| Target::file(path, Backend::Auto)).transpose()?;
    let file_bytes = known.map_or(u64::MAX, |target| target.bytes());
    let mut all: Vec<u64> = Vec::new();
    for size in sizes {
        if !(PAGE_BYTES as u64..=SIZE_MAX.0).contains(&size.0) {
            let (size, max) = (size.show(), SIZE_MAX.show());
            return Err(usage(format!("--size {size}: expected {PAGE_BYTES} to {max}")));
        }
        let bytes = file_bytes.min(size.0) / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        if !all.contains(&bytes) {
            all.push(bytes);
        }
    }
    Ok(all)
}

/// The runs, of pages that are all in `cache`, which take together so long.
fn measured(args: &Args, time: Nanos, cache: &Cache, opened: &Opened) -> Result<Vec<WayResult>> {
    let Opened { file, path, bytes, .. } = opened;
    let handle = cache.open(path)?;
    let order = PageOrder::new(warmed(file, &handle, *bytes)?, args.seed);
    let absent = cache.stats().core.misses;
    let runs = race(args, time, &order, &handle, opened)?;
    if cache.stats().core.misses != absent {
        bail!("pages left the cache while hits were measured: give more memory or less --size");
    }
    Ok(runs)
}

/// The file.
struct Opened {
    file: File,
    /// Where it can be opened again.
    path: PathBuf,
    /// Whole pages, from its start.
    bytes: u64,
}

fn opened(args: &Args, bytes: u64) -> Result<Opened> {
    let Some(path) = args.file.clone() else {
        let file = pattern_file::unnamed(&std::env::temp_dir(), bytes)?;
        return Ok(Opened { path: pattern_file::own(&file), file, bytes });
    };
    if bytes == 0 {
        let name = name(args);
        return Err(usage(format!("--file {name}: it has no whole page of {PAGE_BYTES} bytes")));
    }
    let file = File::open(&path).with_context(|| format!("cannot open {}", name(args)))?;
    Ok(Opened { file, path, bytes })
}

/// The name of the file, in a record.
fn name(args: &Args) -> String {
    let made = || format!("a file in {}", std::env::temp_dir().display());
    args.file.as_ref().map_or_else(made, |path| path.display().to_string())
}

/// A cache that holds `bytes` and a window more.
fn settings(bytes: u64) -> Settings {
    Settings { cache_bytes: bytes + bytes / 4 + ROOM_BYTES, ..Settings::default() }
}

/// Reads all through the engine and by `pread`, compares, and gives the word of each page that
/// the race adds up.
fn warmed(file: &File, handle: &Handle, bytes: u64) -> Result<Vec<u64>> {
    let mut words = Vec::new();
    // The second pass finds the first one's pages, so both are compared.
    for _ in 0..2 {
        words.clear();
        let (mut plain, mut ours) = (race::page(), race::page());
        for offset in (0..bytes).step_by(PAGE_BYTES) {
            file.read_exact_at(&mut plain.0, offset).context("cannot read the file")?;
            let count = handle.read_at(&mut ours.0, offset)?;
            if count < PAGE_BYTES || plain.0 != ours.0 || *handle.pin(offset)? != plain.0 {
                bail!("the engine serves another page at {offset} than pread: please report it");
            }
            words.push(race::word(&plain.0, offset));
        }
    }
    Ok(words)
}

/// The measurements of one way with a number of threads.
struct WayResult {
    way: Way,
    bytes: u64,
    threads: u32,
    wall: Summary,
    cpu: Summary,
    /// To `pread` of the same round.
    ratio: Summary,
    /// Nanoseconds a hit, and ratios, in the order of the rounds.
    samples_ns: Vec<f64>,
    ratios: Vec<f64>,
}

/// All rounds, and their summary.
fn race(
    args: &Args,
    time: Nanos,
    order: &PageOrder,
    handle: &Handle,
    opened: &Opened,
) -> Result<Vec<WayResult>> {
    let cells = args.threads.len() * WAYS.len();
    let rounds = args.repeats + 1;
    let each = Nanos((time.0 / (u64::from(rounds) * cells as u64)).max(1));
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); cells];
    let progress = output::progress(u64::from(rounds), "rounds");
    for round in 0..rounds as usize {
        for (row, &threads) in args.threads.iter().enumerate() {
            for turn in 0..WAYS.len() {
                let way = (turn + round) % WAYS.len();
                let sample = order.run(WAYS[way], threads, handle, &opened.path, each)?;
                if round > 0 {
                    samples[row * WAYS.len() + way].push(sample);
                }
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    let mut results = Vec::new();
    for (samples, &threads) in samples.chunks(WAYS.len()).zip(&args.threads) {
        let pread = &samples[Way::Pread as usize];
        for (way, own) in WAYS.into_iter().zip(samples) {
            let ratios = own.iter().zip(pread).map(|(own, pread)| own.wall_ns / pread.wall_ns);
            let ratios: Vec<f64> = ratios.collect();
            let samples_ns: Vec<f64> = own.iter().map(|sample| sample.wall_ns).collect();
            results.push(WayResult {
                way,
                bytes: opened.bytes,
                threads,
                wall: Summary::of(samples_ns.iter().copied()),
                cpu: Summary::of(own.iter().map(|sample| sample.cpu_ns)),
                ratio: Summary::of(ratios.iter().copied()),
                samples_ns,
                ratios,
            });
        }
    }
    Ok(results)
}

fn table(runs: &[WayResult]) -> String {
    let header = [
        "path", "size", "threads", "ns/hit", "min", "max", "cpu ns", "to pread", "min", "max",
        "target",
    ];
    let row = |result: &WayResult| {
        let (wall, ratio) = (&result.wall, &result.ratio);
        let target = result
            .way
            .ratio_max()
            .map(forerun_report::Target::AtMost)
            .map_or("-".to_owned(), |bound| format!("{bound:.1} {}", bound.judge(ratio.median)));
        let (name, size) = (result.way.name().to_owned(), Bytes(result.bytes).show());
        let mut cells = vec![name, size, result.threads.to_string()];
        let nanos = [wall.median, wall.min, wall.max, result.cpu.median];
        cells.extend(nanos.map(|nanos| format!("{nanos:.1}")));
        cells.extend([ratio.median, ratio.min, ratio.max].map(|ratio| format!("{ratio:.3}")));
        cells.push(target);
        cells
    };
    output::table(&header, &runs.iter().map(row).collect::<Vec<_>>(), 1)
}

/// One way with so many threads, as `--json` prints it. What is not known is null.
fn json_row(result: &WayResult) -> impl Serialize {
    let (wall, ratio) = (&result.wall, &result.ratio);
    object! {
        path: result.way.name(),
        bytes: result.bytes,
        threads: result.threads,
        ns_per_hit: wall.median,
        min_ns: wall.min,
        max_ns: wall.max,
        cpu_ns_per_hit: result.cpu.median,
        ratio_to_pread: ratio.median,
        ratio_min: ratio.min,
        ratio_max: ratio.max,
        ratio_target: result.way.ratio_max(),
        samples_ns: &result.samples_ns,
        ratios: &result.ratios,
    }
}

/// The record: the way stands where a policy does, and p50 and p99 are of the samples' means. The
/// engine's settings are those of the first size.
fn recorded(args: &Args, results: &[WayResult]) -> RunRecord {
    let name = name(args);
    let mut sizes: Vec<u64> = results.iter().map(|result| result.bytes).collect();
    sizes.dedup();
    let shown: Vec<String> = sizes.iter().map(|&bytes| Bytes(bytes).show()).collect();
    let mut settings = record::settings(&settings(sizes[0]));
    settings.push(("size", shown.join(",")));
    settings.push(("seconds", quantity::seconds(args.seconds).to_string()));
    let empty = record::empty(name.clone(), args.seed, &settings);
    let mut samples = empty.settings.clone();
    for result in results {
        let (way, size) = (result.way.name(), Bytes(result.bytes).show());
        let key = format!("samples_ns.{way}.{size}.{}", result.threads);
        let listed: Vec<String> =
            result.samples_ns.iter().map(|sample| format!("{sample:.2}")).collect();
        samples.insert(key, listed.join(","));
    }
    let runs = results.iter().map(|result| {
        // A pin serves the whole page, however much of it the reader uses.
        let rate = |ns: f64| PAGE_FLOAT * f64::from(result.threads) / ns * 1e3;
        let (wall, way) = (&result.wall, result.way.name());
        Run {
            readahead: way.to_owned(),
            device: name.clone(),
            streams: result.threads,
            workload: format!("hit,size={}", Bytes(result.bytes).show()),
            mb_per_second: rate(wall.median),
            p50_us: wall.median / 1e3,
            p99_us: wall.max / 1e3,
            spread: Some(Spread { min: rate(wall.max), max: rate(wall.min) }),
            ..Run::default()
        }
    });
    let runs = runs.collect();
    RunRecord { settings: samples, repeats: args.repeats, warm_up: 1, runs, ..empty }
}

const PAGE_FLOAT: f64 = 4096.0;
const THREADS_MAX: i64 = 64;
const REPEATS_MAX: i64 = 1_000;
/// Page numbers fit 32 bits, and the file a temporary folder.
const SIZE_MAX: Bytes = Bytes(16 << 30);
/// Beyond the caches of most processors, beyond what their TLBs reach, and far beyond.
const SIZES: [Bytes; 3] = [Bytes(64 << 20), Bytes(1 << 30), Bytes(6 << 30)];
/// More than any window.
const ROOM_BYTES: u64 = 4 << 20;
