//! `forerun run`: a program as it is, with the kernel's page cache kept ahead of it.
//!
//! # Invariants
//! - The exit status is the program's, as a shell tells it; 127 and 126 where it did not start.
//! - Nothing is written to stdout: that is the program's. What there is to tell comes after its
//!   end, on stderr or in a file.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use forerun_console::failure::{note, usage};
use forerun_console::machine::seconds;
use forerun_console::{output, specs};
use forerun_core::params::{Bytes, Param as _};
use forerun_steer::run::{self, Ended, Observe, RunError, Settings, Stats};
use forerun_steer::shim;
use serde::Serialize;

/// The flags.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  forerun run --stats -- gzip -3k backup.tar")]
pub(crate) struct Args {
    /// How far the kernel is led ahead of a reader
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = bytes)]
    limit: Bytes,
    /// How much is asked for at a time
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = bytes)]
    burst: Bytes,
    /// How much may be ahead of all readers together [default: 256M, less where memory is short]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    budget: Option<Bytes>,
    /// The readahead policy, as NAME:key=value,...
    #[arg(long, value_name = "NAME", default_value = "streams:first=1M")]
    readahead: String,
    /// Where it is seen what the program reads: proc, or preload, a shim that it loads
    #[arg(long, value_name = "HOW", default_value = "auto")]
    observe: How,
    /// Say on stderr what was done, after the program's end
    #[arg(long)]
    stats: bool,
    /// Write the same to a file, as JSON
    #[arg(long, value_name = "FILE")]
    stats_json: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

/// What `--observe` takes.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum How {
    /// What works for every program: proc
    Auto,
    /// Positions of open files, pages of mapped ones
    Proc,
    /// Every call, by a library that the program loads; see `make install`
    Preload,
}

impl How {
    /// Where it is looked.
    pub(crate) fn observe(self) -> Result<Observe> {
        Ok(match self {
            Self::Auto | Self::Proc => Observe::Proc,
            Self::Preload => Observe::Preload(library()?),
        })
    }
}

/// Runs the program, and gives its exit status.
pub(crate) fn run(args: &Args) -> Result<u8> {
    let settings = args.settings()?;
    if let Some(path) = &args.stats_json {
        output::require_place(path)?;
    }
    let Ended { status, stats } = match run::run(&settings, &args.words) {
        Ok(ended) => ended,
        Err(RunError::Start(error)) => {
            note(&error.to_string());
            return Ok(error.status());
        }
        Err(error) => return Err(error.into()),
    };
    if args.stats {
        for line in told(&stats) {
            note(&line);
        }
    }
    if let Some(path) = &args.stats_json {
        let text = serde_json::to_string_pretty(&Record::new(status, &stats));
        let text = text.context("cannot write JSON")? + "\n";
        // The program's own status says how it went; this is only about it.
        if let Err(error) = output::file(path, text.as_bytes()) {
            note(&format!("{error:#}"));
        }
    }
    Ok(status)
}

impl Args {
    fn settings(&self) -> Result<Settings> {
        let spec = specs::readaheads(&self.readahead)?;
        let [readahead] = &spec[..] else {
            return Err(usage(format!("--readahead {}: name one policy", self.readahead)));
        };
        let default = Settings::default();
        Ok(Settings {
            limit_bytes: self.limit.0,
            burst_bytes: self.burst.0,
            budget_bytes: self.budget.map_or(default.budget_bytes, |bytes| bytes.0),
            readahead: readahead.clone(),
            observe: self.observe.observe()?,
        })
    }
}

/// Where the shim lies.
fn library() -> Result<PathBuf> {
    let chosen = env::var_os("FORERUN_PRELOAD").map(PathBuf::from);
    let own = env::current_exe().context("cannot find this program's own folder")?;
    shim::library(chosen.as_deref(), &own).context("--observe preload")
}

/// What was done, for people.
fn told(stats: &Stats) -> Vec<String> {
    let ran = seconds(stats.ran);
    let share = 100.0 * seconds(stats.processor) / ran.max(f64::MIN_POSITIVE);
    let bytes = |bytes: u64| Bytes(bytes).show();
    let mut lines = vec![
        format!(
            "{ran:.3} s; {} processes, {} files, {} streams; {} looks, {share:.1} % of a processor",
            stats.processes, stats.files, stats.streams, stats.looks
        ),
        format!(
            "read {}; asked for {} in {} calls, at most {} ahead; {} were cached already",
            bytes(stats.bytes_read),
            bytes(stats.bytes_asked),
            stats.asks,
            bytes(stats.lead_bytes_max),
            bytes(stats.bytes_cached)
        ),
    ];
    if stats.processes_skipped > 0 {
        let skipped = stats.processes_skipped;
        lines.push(format!(
            "{skipped} processes could not be looked into: other user, setuid or not dumpable"
        ));
    }
    if stats.records_lost > 0 {
        lines.push(format!("{} reads that the shim told of were lost", stats.records_lost));
    }
    if stats.readers_refused > 0 {
        lines.push(format!("{} readers were too many to follow", stats.readers_refused));
    }
    lines
}

/// The same for programs.
#[derive(Serialize)]
struct Record {
    status: u8,
    seconds: f64,
    processor_seconds: f64,
    looks: u64,
    processes: u64,
    processes_skipped: u64,
    files: u64,
    records_lost: u64,
    readers_refused: u64,
    streams: u64,
    bytes_read: u64,
    bytes_asked: u64,
    asks: u64,
    bytes_cached: u64,
    bytes_given_up: u64,
    lead_bytes_max: u64,
    pages_used: u64,
    pages_late: u64,
    pages_unused: u64,
}

impl Record {
    fn new(exit: u8, stats: &Stats) -> Self {
        Self {
            status: exit,
            seconds: seconds(stats.ran),
            processor_seconds: seconds(stats.processor),
            looks: stats.looks,
            processes: stats.processes,
            processes_skipped: stats.processes_skipped,
            files: stats.files,
            records_lost: stats.records_lost,
            readers_refused: stats.readers_refused,
            streams: stats.streams,
            bytes_read: stats.bytes_read,
            bytes_asked: stats.bytes_asked,
            asks: stats.asks,
            bytes_cached: stats.bytes_cached,
            bytes_given_up: stats.bytes_given_up,
            lead_bytes_max: stats.lead_bytes_max,
            pages_used: stats.core.ahead_used,
            pages_late: stats.core.late_hits,
            pages_unused: stats.core.ahead_wasted + stats.core.ahead_unread,
        }
    }
}

fn bytes(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text)
        .filter(|bytes| bytes.0 > 0)
        .ok_or_else(|| format!("expected {}, and more than 0", Bytes::FORM))
}
