//! `forerun warm`: fetches files and folders into the kernel's page cache, within a budget.
//!
//! ```text
//!   --budget 8G | 10%     at most what is free
//!   none                  half of what is free
//! ```
//! # Invariants
//! - What is not in memory at the end is named on stdout with the reason, and the exit status is 1;
//!   as text 20 paths and how many more there are.
//! - A signal ends the command at once, with what was fetched until then, which stays in memory.

use std::path::PathBuf;

use anyhow::{Result, bail};
use forerun_console::failure::usage;
use forerun_console::form::Output;
use forerun_console::{interrupt, machine, output};
use forerun_core::learned::LearnedList;
use forerun_core::params::{Bytes, Param as _, Share};
use forerun_core::units::Nanos;
use forerun_report::quantity::{self, mb_per_second, seconds};
use forerun_steer::learn::store::Store;
use forerun_steer::learn::{self, ListReport};
use forerun_steer::memory::Memory;
use forerun_steer::warm::{Listing, Progress, Report, SkipReason, SkippedFile};
use serde::Serialize;

use crate::learned;

/// The flags and paths.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  forerun warm --budget 8G model-00001.safetensors data/\n  \
                        forerun warm --json /srv/images\n  \
                        forerun warm --learned train.py-1f0c9a44e2b7d053\n\n\
                        Exit status: 0 if all of it is in memory, 1 if something is not.")]
pub(crate) struct Args {
    /// Files, and folders with all that is below them on the same file system
    #[arg(value_name = "PATH", required_unless_present_any = ["learned", "learned_files"])]
    paths: Vec<PathBuf>,
    /// What a program used in its last runs: a name of `forerun learned list`
    #[arg(long, value_name = "NAME", conflicts_with = "paths")]
    learned: Option<String>,
    /// The same, as `forerun learned export` wrote it
    #[arg(long = "learned-file", value_name = "FILE", conflicts_with = "paths")]
    learned_files: Vec<PathBuf>,
    /// Take paths of lists below OLD from below NEW
    #[arg(long, value_name = "NEW=OLD", value_parser = learned::root, conflicts_with = "paths")]
    root: Option<(String, String)>,
    /// The most to fetch: a size, or a share of the memory that is free [default: 50%]
    #[arg(long, value_name = "SIZE", value_parser = Budget::parse)]
    budget: Option<Budget>,
    #[command(flatten)]
    output: Output,
}

/// How much may be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Budget {
    Bytes(u64),
    /// Of what is free, in millionths of a hundredth.
    Share(Share),
}

impl Budget {
    /// The bytes that it allows: no more than what is free.
    fn bytes(self, free: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.min(free),
            Self::Share(percent) => {
                let part = u128::from(free) * u128::from(percent.ppm) / 100_000_000;
                u64::try_from(part).map_or(free, |part| part.min(free))
            }
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let parsed = match Share::percent_of(text) {
            Some(percent) => {
                Share::parse(percent).filter(|share| share.ppm <= 100_000_000).map(Self::Share)
            }
            None => Bytes::parse(text).map(|bytes| Self::Bytes(bytes.0)),
        };
        parsed.ok_or_else(|| format!("expected {} or a share such as 10%", Bytes::FORM))
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.output.check()?;
    let memory = Memory::here();
    let free_bytes = memory.room().bytes_to_use();
    let budget_bytes = args.budget.unwrap_or(DEFAULT).bytes(free_bytes);
    if args.paths.is_empty() {
        return lists(args, &Room { free_bytes, budget_bytes });
    }
    let listing_bar = output::waiting("listing the files");
    let listing = Listing::of(&args.paths);
    listing_bar.finish_and_clear();
    let bar = output::transfer(listing.bytes_missing().min(budget_bytes), "warm");
    let shown = bar.clone();
    interrupt::tells(move || {
        let (done, all) = (shown.position(), shown.length().unwrap_or(0));
        format!(
            "{} of {} are fetched, and stay in memory",
            quantity::bytes(done),
            quantity::bytes(all)
        )
    });
    let begun = machine::now();
    let report = listing.fetch(budget_bytes, &memory, &mut |progress| {
        let Progress { bytes, bytes_all, files, files_all } = progress;
        bar.set_length(bytes_all);
        bar.set_position(bytes);
        bar.set_message(format!("warm: {files} of {files_all} files"));
    });
    let time = machine::now().since(begun);
    bar.finish_and_clear();
    let room = Room { free_bytes, budget_bytes };
    let record = WarmRecord::new(&room, &report, time);
    args.output.print(&record, &["skipped"], || text(&room, &report, time))?;
    judge(&report)
}

/// Fetches learned lists.
fn lists(args: &Args, room: &Room) -> Result<()> {
    let mut list = LearnedList::default();
    if let Some(name) = &args.learned {
        list.merge_list(&learned::named(&Store::of_user()?, name)?.list);
    }
    for path in &args.learned_files {
        list.merge_list(&learn::read_file(path)?.list);
    }
    if let Some((new, old)) = &args.root {
        list = learn::rebased(&list, old.as_bytes(), new.as_bytes()).map_err(usage)?;
    }
    let bar = output::progress(list.trusted().count() as u64, "warm");
    let shown = bar.clone();
    interrupt::tells(move || {
        let (done, all) = (shown.position(), shown.length().unwrap_or(0));
        format!("{done} of {all} entries are done; what was fetched stays in memory")
    });
    let begun = machine::now();
    let report =
        learn::warm(&list, room.budget_bytes, &mut |report| bar.set_position(done(report)));
    let time = machine::now().since(begun);
    bar.finish_and_clear();
    let ListReport { entries, fetched, bytes_fetched, cached, absent, gone, failed, beyond } =
        report;
    let record = serde_json::json!({
        "budget_bytes": room.budget_bytes, "entries": entries, "fetched": fetched,
        "bytes_fetched": bytes_fetched, "cached": cached, "absent": absent, "gone": gone,
        "failed": failed, "beyond_budget": beyond, "seconds": seconds(time),
    });
    args.output.print(&record, &[""], || {
        format!(
            "entries  {entries}\nfetched  {fetched} files with {} in {}\n\
             before   {cached} in memory, {absent} absent as ever\n\
             left     {gone} gone, {failed} failed, {beyond} beyond the budget\n",
            quantity::bytes(bytes_fetched),
            quantity::time(seconds(time))
        )
    })?;
    match (failed, beyond) {
        (0, 0) if gone > 0 && gone + absent == entries => {
            bail!("nothing of the list is there: of {entries} entries {gone} are gone")
        }
        (0, 0) => Ok(()),
        (0, _) => bail!("{beyond} entries are beyond the budget: give a larger --budget"),
        _ => bail!("{failed} entries could not be fetched"),
    }
}

/// Entries that were worked off.
fn done(report: &ListReport) -> u64 {
    let ListReport { fetched, cached, absent, gone, failed, beyond, .. } = report;
    fetched + cached + absent + gone + failed + beyond
}

/// The memory that could be used.
struct Room {
    free_bytes: u64,
    budget_bytes: u64,
}

/// Whether all is in memory, and what to do where it is not.
fn judge(report: &Report) -> Result<()> {
    let is_short = |file: &SkippedFile| {
        matches!(file.why, SkipReason::TooLarge | SkipReason::NoMemory | SkipReason::Evicted)
    };
    let what = if report.skipped.iter().all(is_short) {
        "give a larger --budget if more is free, or name fewer files"
    } else {
        "what can be read is in memory"
    };
    match &report.skipped[..] {
        [] if report.is_cut => bail!("there are more files than are listed at once: name fewer"),
        [] => Ok(()),
        [SkippedFile { path, why, .. }] => {
            bail!("{} is not in memory: {why}: {what}", path.display())
        }
        many => {
            let count = quantity::count(many.len() as u64);
            bail!("{count} paths are not in memory, as stdout says: {what}")
        }
    }
}

/// The report as text.
fn text(room: &Room, report: &Report, time: Nanos) -> String {
    let rate = mb_per_second(report.bytes_fetched, time);
    let rate = rate.map_or(String::new(), |rate| format!(", {rate:.0} MB/s"));
    let mut text = format!(
        "budget   {} of {} that are free\nfiles    {} with {}\nbefore   {} in memory\n\
         fetched  {} in {}{rate}\n",
        quantity::bytes(room.budget_bytes),
        quantity::bytes(room.free_bytes),
        report.files,
        quantity::bytes(report.bytes),
        quantity::bytes(report.bytes_before),
        quantity::bytes(report.bytes_fetched),
        quantity::time(seconds(time)),
    );
    // Of a path that cannot be opened the bytes are not known.
    let known = |bytes: u64| (bytes > 0).then(|| quantity::bytes(bytes));
    if !report.skipped.is_empty() {
        let row = |file: &SkippedFile| {
            let bytes = known(file.bytes).unwrap_or_else(|| "-".to_owned());
            vec![file.path.display().to_string(), file.why.to_string(), bytes]
        };
        let (named, others) = report.skipped.split_at(report.skipped.len().min(NAMED));
        let rows: Vec<Vec<String>> = named.iter().map(row).collect();
        text += "\n";
        text += &output::table(&["not in memory", "why", "missing"], &rows, 2);
        if !others.is_empty() {
            let bytes = others.iter().map(|file| file.bytes).sum();
            let count = quantity::count(others.len() as u64);
            let with = known(bytes).map_or(String::new(), |bytes| format!(" with {bytes}"));
            let line = format!("and {count} more{with}: --csv and --json name them\n");
            text.push_str(&line);
        }
    }
    if report.is_cut {
        text += "\nmore files than are listed at once: the others were not examined\n";
    }
    text
}

/// The report, as `--json` prints it.
#[derive(Serialize)]
struct WarmRecord {
    free_bytes: u64,
    budget_bytes: u64,
    files: u64,
    bytes: u64,
    bytes_before: u64,
    bytes_fetched: u64,
    seconds: f64,
    /// 10^6 bytes a second; none where nothing was fetched.
    mb_per_second: Option<f64>,
    skipped: Vec<SkippedRecord>,
    is_cut: bool,
}

/// A path that is not in memory.
#[derive(Serialize)]
struct SkippedRecord {
    path: String,
    bytes: u64,
    why: String,
}

impl WarmRecord {
    fn new(room: &Room, report: &Report, time: Nanos) -> Self {
        let skipped = report.skipped.iter().map(|file| SkippedRecord {
            path: file.path.display().to_string(),
            bytes: file.bytes,
            why: file.why.to_string(),
        });
        Self {
            free_bytes: room.free_bytes,
            budget_bytes: room.budget_bytes,
            files: report.files,
            bytes: report.bytes,
            bytes_before: report.bytes_before,
            bytes_fetched: report.bytes_fetched,
            seconds: seconds(time),
            mb_per_second: mb_per_second(report.bytes_fetched, time),
            skipped: skipped.collect(),
            is_cut: report.is_cut,
        }
    }
}

/// Paths that are not in memory, as text: so many are named.
const NAMED: usize = 20;

/// Leaves as much for other programs.
const DEFAULT: Budget = Budget::Share(Share::percent(50 * 100));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_size_or_a_share_of_what_is_free_and_no_more() {
        #[rustfmt::skip]
        let rows = [ // text  of 1,000 bytes that are free
            ("0",         Some(0)),
            ("400",       Some(400)),
            ("8G",        Some(1_000)),
            ("10%",       Some(100)),
            ("0.15%",     Some(1)),
            ("100%",      Some(1_000)),
            ("10 %",      Some(100)),
            ("101%",      None),
            ("-1",        None),
            ("8 GiB",     Some(1_000)),
            ("0.5K",      Some(512)),
            ("8  G",      None),
            ("%",         None),
            ("",          None),
            ("all",       None),
        ];
        for (text, expected) in rows {
            assert_eq!(Budget::parse(text).ok().map(|b| b.bytes(1_000)), expected, "{text}");
        }
        assert_eq!(DEFAULT.bytes(1_000), 500);
        assert_eq!(DEFAULT.bytes(u64::MAX), u64::MAX / 2);
    }
}
