//! `forerun sim prefetch`: the paper on prefetching threads in the lab, its Table 3 and Figs 3-6.
//!
//! ```text
//!   2 machines x 8 files x 2 kernels x ( no thread + 3 rules x 18 limits )
//!
//!   printed   the paper's loop as it is printed: 16 MB between two polls of the distance
//!   looks     the same loop, which polls after as many bytes as the limit, at most 16 MB
//!   adaptive  forerun's rule
//! ```
//! The printed loop reads a burst of 16 MB whatever the limit is, so limits below 16 MB cannot make
//! the difference that the paper's figures show; `looks` is the least change with which they do.
//!
//! # Invariants
//! - The same arguments give the same results.
//! # Sources
//! `paper.rs` states which values are from the paper, derived from it, or assumed.

mod paper;

use anyhow::{Result, anyhow};
use forerun_console::{object, output};
use forerun_core::cache::Settings;
use forerun_core::device;
use forerun_core::params::{Bytes, Param as _};
use forerun_core::units::Nanos;
use forerun_measure::record;
use forerun_report::quantity;
use forerun_report::{Run, RunRecord};
use forerun_sim::driver::{self, RunOutcome, Setup};
use forerun_sim::host::RequestOrder;
use forerun_sim::prefetch::Prefetch;
use forerun_sim::workload;
use serde::Serialize;

use super::rows::run_of;
use crate::specs::{Output, PAGE_BYTES};
use crate::{parallel, specs};

use paper::{FILES, File, KERNELS, Kernel, MACHINES, Machine, RULES, Rule};

/// What `sim prefetch` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  forerun sim prefetch\n  \
                        forerun sim prefetch --scale 16 --nap 1ms -o run.json\n\n\
                        It takes some minutes; with --scale 16 a sixteenth.")]
pub(super) struct Args {
    /// Files so many times smaller; seconds are scaled to the whole
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(SCALE_MAX)))]
    scale: u32,
    /// How far the threads may lead [default: 4K to 512M in powers of two]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = limit)]
    limit: Vec<u64>,
    /// How long the threads nap: a tick of the kernel's timer, 1, 4 or 10 ms on Linux then
    #[arg(long, value_name = "TIME", default_value = "4ms", value_parser = nap)]
    nap: Nanos,
    #[command(flatten)]
    output: Output,
}

impl Args {
    fn limits(&self) -> Vec<u64> {
        if self.limit.is_empty() {
            LIMITS.map(|power| 1 << power).collect()
        } else {
            self.limit.clone()
        }
    }
}

fn limit(text: &str) -> Result<u64, String> {
    let limit = Bytes::parse(text).filter(|limit| limit.0 > 0);
    limit.map(|limit| limit.0).ok_or_else(|| format!("{}, at least a byte", Bytes::FORM))
}

fn nap(text: &str) -> Result<Nanos, String> {
    let nap = Nanos::parse(text).ok_or_else(|| Nanos::FORM.to_owned())?;
    Prefetch::make(&format!("paper:nap={text}")).map_err(|error| error.to_string()).map(|_| nap)
}

/// Runs everything and prints the tables.
pub(super) fn run(args: &Args) -> Result<()> {
    args.output.path.as_deref().map_or(Ok(()), output::require_place)?;
    let rows = all(args)?;
    // Neither the tables nor the record are lost with the other.
    let nap_ms = quantity::seconds(args.nap) * 1e3;
    let runs: Vec<_> = rows.iter().flat_map(|row| row.json_runs(args.scale)).collect();
    let json = object! { scale: args.scale, nap_ms: nap_ms, runs: runs };
    let written = args.output.record(&json, || record_of(&rows, args));
    written.and(args.output.form.print(&json, &["runs"], || tables(&rows, args.scale)))
}

/// A run, as `--json` prints it.
#[derive(Serialize)]
struct JsonRun {
    machine: &'static str,
    /// As in the paper, from 1.
    file: usize,
    kernel: &'static str,
    prefetch: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_bytes: Option<u64>,
    seconds: f64,
}

/// One file on one machine with one kernel: the program alone, and with each thread.
struct Row {
    machine: &'static Machine,
    kernel: &'static Kernel,
    /// By its number in the paper, less 1.
    number: usize,
    alone: RunOutcome,
    /// By rule, then by limit.
    fast: Vec<Vec<RunOutcome>>,
    limits: Vec<u64>,
}

impl Row {
    fn run(
        machine: &'static Machine,
        kernel: &'static Kernel,
        number: usize,
        args: &Args,
    ) -> Result<Self> {
        let run = |thread: Option<&str>| outcome(machine, kernel, number, thread, args.scale);
        let limits = args.limits();
        let with = |rule: &Rule| -> Result<Vec<RunOutcome>> {
            limits.iter().map(|&limit| run(Some(&rule.thread(limit, args.nap)))).collect()
        };
        let fast = RULES.iter().map(with).collect::<Result<_>>()?;
        Ok(Self { machine, kernel, number, alone: run(None)?, fast, limits })
    }

    fn file(&self) -> File {
        self.machine.files[self.number]
    }

    /// The gain: the extra time of the program alone over that with the thread, in hundredths.
    fn gain(&self, rule: usize, limit: usize) -> f64 {
        let [alone, fast] = [&self.alone, &self.fast[rule][limit]].map(|it| it.elapsed);
        (quantity::seconds(alone) / quantity::seconds(fast) - 1.0) * 100.0
    }

    /// The gain at the best limit.
    fn gain_max(&self, rule: usize) -> f64 {
        (0..self.fast[rule].len()).map(|limit| self.gain(rule, limit)).fold(f64::MIN, f64::max)
    }

    /// Each run with the name of its rule and its limit.
    fn runs(&self) -> impl Iterator<Item = (&'static str, Option<u64>, &RunOutcome)> {
        let fast = RULES.iter().zip(&self.fast).flat_map(|(rule, outcomes)| {
            let limits = self.limits.iter().zip(outcomes);
            limits.map(|(&limit, outcome)| (rule.name, Some(limit), outcome))
        });
        std::iter::once((specs::NONE, None, &self.alone)).chain(fast)
    }

    fn json_runs(&self, scale: u32) -> impl Iterator<Item = JsonRun> {
        self.runs().map(move |(prefetch, limit_bytes, outcome)| JsonRun {
            machine: self.machine.name,
            file: self.number + 1,
            kernel: self.kernel.name,
            prefetch,
            limit_bytes,
            seconds: quantity::seconds(outcome.elapsed) * f64::from(scale),
        })
    }
}

/// One run: a program that computes as long as the paper's.
fn outcome(
    machine: &Machine,
    kernel: &Kernel,
    number: usize,
    thread: Option<&str>,
    scale: u32,
) -> Result<RunOutcome> {
    let device = device::make(machine.device, 1).map_err(|error| anyhow!("{error}"))?;
    let frames = Bytes(machine.memory_bytes).pages(PAGE_BYTES);
    let mut cache = Settings::new(frames, "lru", kernel.readahead);
    cache.request_pages_max = Bytes(device.request_bytes_max()).pages(PAGE_BYTES);
    let mut setup = Setup::new(cache, Some(device));
    (setup.order, setup.depth) = (RequestOrder::Elevator, 1);
    // Copying is a part of the time that the rate is derived from.
    setup.page_cost = Nanos(0);
    let make = |spec| Prefetch::make(spec).map_err(|error| anyhow!("{spec}: {error}"));
    setup.prefetch = thread.map(make).transpose()?;
    let reads = machine.files[number].reads(scale);
    let mut workload = workload::make(&reads).map_err(|error| anyhow!("{reads}: {error}"))?;
    driver::run(setup, &mut workload).map_err(|error| anyhow!("{reads}: {error}"))
}

/// Every row, on all processors: by machine, then by kernel, then by file.
fn all(args: &Args) -> Result<Vec<Row>> {
    let kernels = |machine| KERNELS.iter().map(move |kernel| (machine, kernel));
    let files = |(machine, kernel)| (0..FILES).map(move |number| (machine, kernel, number));
    let rows: Vec<_> = MACHINES.iter().flat_map(kernels).flat_map(files).collect();
    let progress = output::progress(rows.len() as u64, "files");
    let done = parallel::map(&rows, |&(machine, kernel, number)| {
        let row = Row::run(machine, kernel, number, args);
        progress.inc(1);
        row
    });
    progress.finish_and_clear();
    done.into_iter().collect()
}

fn tables(rows: &[Row], scale: u32) -> String {
    let tables = MACHINES.iter().map(|machine| {
        let name = machine.name;
        let rows: Vec<&Row> = rows.iter().filter(|row| row.machine.name == name).collect();
        let (table_3, figures) = (table_3(&rows, scale), figures(&rows));
        format!(
            "Table 3, machine {name}: seconds alone, and gains in % at the best limit\n{table_3}\n\
             Figs {}, machine {name}: mean gains in % by limit\n{figures}\n",
            machine.figures
        )
    });
    tables.collect()
}

/// A line a file: the paper's, then those of each kernel.
fn table_3(rows: &[&Row], scale: u32) -> String {
    let mut header = vec!["file".to_owned(), "GB".into(), "MB/s".into()];
    header.extend(["paper: s".into(), "gain".into()]);
    for kernel in &KERNELS {
        header.push(format!("{}: s", kernel.name));
        header.extend(RULES.iter().map(|rule| rule.name.to_owned()));
    }
    let lines: Vec<Vec<String>> = (0..FILES)
        .map(|number| {
            let own: Vec<&&Row> = rows.iter().filter(|row| row.number == number).collect();
            let file = own[0].file();
            let mut cells = vec![(number + 1).to_string(), file.gigabytes(), file.megabytes()];
            let [alone, fast] = file.seconds();
            cells.extend([format!("{alone:.2}"), percent((alone / fast - 1.0) * 100.0)]);
            for row in own {
                let alone = quantity::seconds(row.alone.elapsed) * f64::from(scale);
                cells.push(format!("{alone:.2}"));
                cells.extend((0..RULES.len()).map(|rule| percent(row.gain_max(rule))));
            }
            cells
        })
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    output::table(&header, &lines, 1)
}

/// A line a limit: the mean over the files of each rule, for each kernel.
fn figures(rows: &[&Row]) -> String {
    let mut header = vec!["limit".to_owned()];
    for kernel in &KERNELS {
        header.extend(RULES.iter().map(|rule| format!("{}: {}", kernel.name, rule.name)));
    }
    let lines: Vec<Vec<String>> = (0..)
        .zip(&rows[0].limits)
        .map(|(at, &limit)| {
            let mean = |kernel: &Kernel, rule: usize| {
                let own = rows.iter().filter(|row| row.kernel.name == kernel.name);
                own.map(|row| row.gain(rule, at)).sum::<f64>() / MEAN_OF
            };
            let cells =
                KERNELS.iter().flat_map(|kernel| (0..RULES.len()).map(move |rule| (kernel, rule)));
            let cells = cells.map(|(kernel, rule)| percent(mean(kernel, rule)));
            std::iter::once(Bytes(limit).show()).chain(cells).collect()
        })
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    output::table(&header, &lines, 1)
}

fn percent(hundredths: f64) -> String {
    format!("{hundredths:.1}")
}

/// All runs as a record: one group of the page a file, machine and size of the scale.
fn record_of(rows: &[Row], args: &Args) -> Result<RunRecord> {
    let settings = [
        ("page", PAGE_BYTES.to_string()),
        ("policy", "lru".to_owned()),
        ("nap", args.nap.show()),
        ("scale", args.scale.to_string()),
        ("time", "virtual".to_owned()),
    ];
    let mut record = record::empty("t7k250".to_owned(), 1, &settings);
    for row in rows {
        let (readahead, params) = record::policy(row.kernel.readahead)?;
        let file = row.file();
        let workload = format!("{}{}", workload::PREFIX, file.reads(args.scale));
        for (prefetch, limit, outcome) in row.runs() {
            let mut params = params.clone();
            params.insert("prefetch".to_owned(), prefetch.to_owned());
            params.extend(limit.map(|limit| ("limit".to_owned(), Bytes(limit).show())));
            record.runs.push(Run {
                readahead: readahead.clone(),
                params,
                device: row.machine.device.to_owned(),
                drive_cache: Some(true),
                streams: 1,
                workload: workload.clone(),
                ..run_of(outcome)
            });
        }
    }
    Ok(record)
}

#[expect(clippy::cast_precision_loss, reason = "eight")]
const MEAN_OF: f64 = FILES as f64;
const SCALE_MAX: u32 = 1 << 10;
/// 4 KB to 512 MB in powers of two, as in Figs 3-6.
const LIMITS: std::ops::Range<u32> = 12..30;
