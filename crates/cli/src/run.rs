//! `forerun run`: a program as it is, with the kernel's page cache kept ahead of it.
//!
//! # Invariants
//! - The exit status is the program's, as a shell reports it; 127 and 126 where it did not start.
//! - Nothing is written to stdout: that is the program's. Statistics come after its end, on stderr
//!   or in a file.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use forerun_console::failure::{note, usage};
use forerun_console::{output, specs};
use forerun_core::params::{Bytes, Param as _};
use forerun_core::units::Nanos;
use forerun_report::quantity::{ratio, seconds};
use forerun_steer::abilities::{Abilities, abilities};
use forerun_steer::learn::{self, LearnSettings, LearnedStats, Learning, store};
use forerun_steer::run::{self, Ended, RunError, Settings, Stats};
use forerun_steer::{ObserverKind, SessionError, shim};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// The flags.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  forerun run --stats -- gzip -3k backup.tar")]
pub(crate) struct Args {
    /// The prefetch distance of a reader, at most
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = bytes)]
    limit: Bytes,
    /// The bytes that are requested at a time, at most
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = bytes)]
    burst: Bytes,
    /// The prefetch distances of all readers together [default: 256M, less where memory is short]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    budget: Option<Bytes>,
    /// The readahead policy, as NAME:key=value,...
    #[arg(long, value_name = "NAME", default_value = "streams:first=1M")]
    readahead: String,
    /// How the program's reads are observed: by /proc, or also by a shim that it loads
    #[arg(long, value_name = "HOW", default_value = "auto")]
    observe: ObserveFlag,
    /// What is learned of the program for its next start: auto, off, or the name of a list; off
    /// where `FORERUN_LEARN` says so [default: auto]
    #[arg(long, value_name = "HOW", value_parser = learning)]
    learn: Option<Learning>,
    /// Use this learned list as well, as `forerun learned export` writes it
    #[arg(long = "learned-file", value_name = "FILE")]
    learned_files: Vec<PathBuf>,
    /// Print statistics on stderr, after the program's end
    #[arg(long)]
    stats: bool,
    /// Write the same to a file, as JSON
    #[arg(long, value_name = "FILE")]
    stats_json: Option<PathBuf>,
    /// Print what would be observed and fetched ahead, and run nothing
    #[arg(long, conflicts_with_all = ["stats", "stats_json"])]
    dry_run: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

/// The values of `--observe`.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum ObserveFlag {
    /// The one that works for every program: proc
    Auto,
    /// Positions of open files, pages of mapped ones
    Proc,
    /// Also every read call, by a library that the program loads; see `make install`
    Preload,
}

impl ObserveFlag {
    /// The observers that it stands for.
    pub(crate) fn kind(self) -> Result<ObserverKind> {
        Ok(match self {
            Self::Auto | Self::Proc => ObserverKind::Proc,
            Self::Preload => ObserverKind::Preload(library()?),
        })
    }
}

/// Runs the program, and returns its exit status.
pub(crate) fn run(args: &Args) -> Result<u8> {
    let settings = args.settings()?;
    if args.dry_run {
        return output::print(&plan(&settings, &args.words, abilities())).map(|()| 0);
    }
    // This process leaves its folder to the program.
    let stats_json = args.stats_json.as_deref().map(output::absolute);
    if let Some(path) = &args.stats_json {
        output::require_place(path)?;
    }
    let is_reported = args.stats || args.stats_json.is_some();
    let Ended { status, stats, is_observed, bug } =
        match run::run(&settings, &args.words, is_reported) {
            Ok(ended) => ended,
            Err(RunError::Session(SessionError::Start(error))) => {
                note(&error.to_string());
                return Ok(error.status());
            }
            Err(error) => return Err(error.into()),
        };
    if let Some(bug) = bug {
        note(&bug);
    }
    if is_reported && !is_observed {
        note("the program was not observed: the process for that did not start, or was killed");
    }
    if args.stats {
        for line in lines(&stats) {
            note(&line);
        }
    }
    if let Some(path) = &stats_json {
        let text = serde_json::to_string_pretty(&Record::new(status, &stats));
        let text = text.context("cannot write JSON")? + "\n";
        // The exit status is the program's, whatever becomes of its statistics.
        if let Err(error) = output::file(path, text.as_bytes()) {
            note(&format!("{error:#}"));
        }
    }
    Ok(status)
}

impl Args {
    /// Which lists are used and learned. A file that is named has to be a list.
    fn learn(&self) -> Result<LearnSettings> {
        for path in &self.learned_files {
            learn::read_file(path)?;
        }
        let learning = match (&self.learn, env::var("FORERUN_LEARN")) {
            (Some(learning), _) => learning.clone(),
            (None, Ok(text)) => {
                learning(&text).map_err(|error| usage(format!("FORERUN_LEARN: {error}")))?
            }
            (None, Err(_)) => Learning::Auto,
        };
        Ok(LearnSettings { learning, files: self.learned_files.clone() })
    }

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
            observe: self.observe.kind()?,
            learn: self.learn()?,
        })
    }
}

/// What `--learn` stands for.
fn learning(text: &str) -> Result<Learning, String> {
    match text {
        "off" => Ok(Learning::Off),
        "auto" => Ok(Learning::Auto),
        name => {
            let named = Learning::Named(name.to_owned());
            store::check_name(name).map(|()| named).map_err(|error| error.to_string())
        }
    }
}

/// The path of the shim.
fn library() -> Result<PathBuf> {
    let chosen = env::var_os("FORERUN_PRELOAD").map(PathBuf::from);
    let own = env::current_exe().context("cannot find this program's own folder")?;
    shim::library(chosen.as_deref(), &own).context("--observe preload")
}

/// What a run would observe and fetch ahead, as lines of text.
fn plan(settings: &Settings, words: &[OsString], can: Abilities) -> String {
    let mut observed = vec!["positions of open files"];
    observed.push(if can.scans_pages { "pages of mappings" } else { "pages of mappings, slowly" });
    if can.sees_calls {
        observed.push("blocked calls");
    }
    if matches!(settings.observe, ObserverKind::Preload(_)) {
        observed.push("every read call, by the shim");
    }
    let show = |bytes| Bytes(bytes).show();
    let walks = if can.sees_calls {
        "entries of directories ahead of a program that walks them"
    } else {
        "none: blocked calls are not seen; `forerun doctor` says how to get them"
    };
    let lists = learn::planned(&settings.learn, words);
    let learned = match &lists {
        _ if settings.learn.is_off() => "off".to_owned(),
        lists if !lists.trouble.is_empty() => lists.trouble.clone(),
        lists if lists.name.is_empty() && lists.entries == 0 => {
            "nothing: there is no such program".to_owned()
        }
        lists if lists.entries == 0 => format!("nothing yet; this run as {}", lists.name),
        lists => format!("{} paths with {}, of {}", lists.entries, show(lists.bytes), lists.name),
    };
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    format!(
        "program   {}\nobserved  {}\nstreams   {}: at most {} ahead of a reader, {} at a time, {} \
         in all\nwalks     {walks}\nlearned   {learned}\n",
        words.join(" "),
        observed.join(", "),
        settings.readahead,
        show(settings.limit_bytes),
        show(settings.burst_bytes),
        show(settings.budget_bytes),
    )
}

/// The statistics as lines of text.
fn lines(stats: &Stats) -> Vec<String> {
    let (planner, bytes) = (&stats.planner, |bytes: u64| Bytes(bytes).show());
    let mut lines = vec![
        format!(
            "{:.3} s; {} processes, {} files, {} streams; {} polls, {}",
            seconds(stats.ran),
            stats.processes,
            stats.files,
            planner.streams,
            stats.polls,
            processor(stats)
        ),
        format!(
            "read {}; requested {} in {} calls, at most {} ahead; {} were cached already",
            bytes(planner.bytes_read),
            bytes(planner.bytes_requested),
            planner.requests,
            bytes(planner.distance_bytes_max),
            bytes(planner.bytes_cached)
        ),
    ];
    let entries = &stats.entries;
    if entries.requested > 0 {
        lines.push(format!(
            "{} walks; {} entries requested with {} of files, {} seen to be used, {} of them late; \
             {} passed by, {} not used with {}, {} not fetched",
            entries.walks,
            entries.requested,
            bytes(entries.bytes),
            entries.used,
            entries.late,
            entries.passed,
            entries.unused,
            bytes(entries.unused_bytes),
            entries.failed
        ));
    }
    lines.extend(learned(&stats.learned));
    lines.extend(not_observed(stats.processes_skipped, stats.records_lost));
    if stats.files_refused > 0 {
        lines.push(format!(
            "{} files were not opened: not the program's to open, locked or replaced",
            stats.files_refused
        ));
    }
    if stats.calls_refused > 0 {
        lines.push(format!("calls of {} processes could not be observed", stats.calls_refused));
    }
    if stats.calls_foreign > 0 {
        lines.push(format!("{} calls of 32-bit programs were skipped", stats.calls_foreign));
    }
    if stats.readers_skipped > 0 {
        lines.push(format!("{} readers were too many to follow", stats.readers_skipped));
    }
    lines.extend(given_up(stats.calls_given_up));
    lines
}

/// The processor time that forerun used: a share, where the program ran long enough for one.
fn processor(stats: &Stats) -> String {
    let (used, ran) = (seconds(stats.processor), seconds(stats.ran));
    if stats.ran < SHARE_FROM {
        format!("{:.1} ms of a processor", 1e3 * used)
    } else {
        format!("{:.1} % of a processor", 100.0 * used / ran)
    }
}

/// What became of a learned list, as lines of text.
fn learned(stats: &LearnedStats) -> Vec<String> {
    let mut lines = Vec::new();
    if stats.entries > 0 {
        lines.push(format!(
            "learned: {} of {} entries requested with {} of files, {} seen to be used, {} not \
             used with {}",
            stats.requested,
            stats.entries,
            Bytes(stats.bytes).show(),
            stats.used,
            stats.unused,
            Bytes(stats.unused_bytes).show()
        ));
    }
    if !stats.name.is_empty() {
        lines.push(format!("learned: {} paths as {}", stats.seen, stats.name));
    }
    if !stats.trouble.is_empty() {
        lines.push(format!("learned: {}", stats.trouble));
    }
    lines
}

/// The share of `part` in `all`; none of nothing.
fn share(part: u64, all: u64) -> Value {
    if all == 0 { Value::Null } else { ratio(part, all).into() }
}

/// What the observers could not see, as lines of text.
pub(crate) fn not_observed(processes_skipped: u64, records_lost: u64) -> Vec<String> {
    let mut lines = Vec::new();
    if processes_skipped > 0 {
        lines.push(format!(
            "{processes_skipped} processes could not be looked into: other user, setuid or not \
             dumpable"
        ));
    }
    if records_lost > 0 {
        lines.push(format!("{records_lost} reads that the shim recorded were lost"));
    }
    lines
}

/// What file systems did not answer, as a line of text.
pub(crate) fn given_up(calls: u64) -> Option<String> {
    (calls > 0).then(|| format!("{calls} calls were given up: a file system did not answer"))
}

/// The statistics as JSON, in this order.
struct Record(Vec<(&'static str, Value)>);

impl Record {
    fn new(exit: u8, stats: &Stats) -> Self {
        let planner = &stats.planner;
        Self(vec![
            ("status", exit.into()),
            ("seconds", seconds(stats.ran).into()),
            ("processor_seconds", seconds(stats.processor).into()),
            ("looks", stats.polls.into()),
            ("processes", stats.processes.into()),
            ("processes_skipped", stats.processes_skipped.into()),
            ("files", stats.files.into()),
            ("files_refused", stats.files_refused.into()),
            ("records_lost", stats.records_lost.into()),
            ("calls_refused", stats.calls_refused.into()),
            ("calls_foreign", stats.calls_foreign.into()),
            ("readers_skipped", stats.readers_skipped.into()),
            ("streams", planner.streams.into()),
            ("bytes_read", planner.bytes_read.into()),
            ("bytes_asked", planner.bytes_requested.into()),
            ("asks", planner.requests.into()),
            ("bytes_cached", planner.bytes_cached.into()),
            ("bytes_dropped", planner.bytes_dropped.into()),
            ("distance_bytes_max", planner.distance_bytes_max.into()),
            ("pages_used", stats.pages_used.into()),
            ("pages_late", stats.pages_late.into()),
            ("pages_unused", stats.pages_unused.into()),
            ("calls_given_up", stats.calls_given_up.into()),
            ("walks", stats.entries.walks.into()),
            ("entries_requested", stats.entries.requested.into()),
            ("entries_used", stats.entries.used.into()),
            ("entries_late", stats.entries.late.into()),
            ("entries_passed", stats.entries.passed.into()),
            ("entries_unused", stats.entries.unused.into()),
            ("entries_failed", stats.entries.failed.into()),
            ("entries_bytes", stats.entries.bytes.into()),
            ("entries_unused_bytes", stats.entries.unused_bytes.into()),
            ("learned", learned_record(&stats.learned)),
        ])
    }
}

/// What became of a learned list.
fn learned_record(stats: &LearnedStats) -> Value {
    serde_json::json!({
        "name": stats.name,
        "entries": stats.entries,
        "requested": stats.requested,
        "seen": stats.seen,
        "used": stats.used,
        "precision": share(stats.used, stats.used + stats.unused),
        "recall": share(stats.used, stats.seen),
        "bytes": stats.bytes,
        "wasted_bytes": stats.unused_bytes,
        "trouble": stats.trouble,
    })
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

fn bytes(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text)
        .filter(|bytes| bytes.0 > 0)
        .ok_or_else(|| format!("expected {}, and more than 0", Bytes::FORM))
}

/// The start of forerun alone is a large share of less.
const SHARE_FROM: Nanos = Nanos::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_has_no_share_of_a_processor() {
        let millis = Nanos::from_millis;
        #[rustfmt::skip]
        let rows = [ // ran      used          told
            (millis(2),     Nanos(2_880_000), "2.9 ms of a processor"),
            (millis(99),    millis(3),        "3.0 ms of a processor"),
            (millis(100),   millis(3),        "3.0 % of a processor"),
            (millis(2_000), millis(5),        "0.2 % of a processor"),
            (Nanos(0),      Nanos(0),         "0.0 ms of a processor"),
        ];
        for (ran, used, told) in rows {
            assert_eq!(processor(&Stats { ran, processor: used, ..Stats::default() }), told);
        }
    }
}
