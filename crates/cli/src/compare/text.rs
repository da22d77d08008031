//! A comparison as text and as JSON.
//!
//! # Invariants
//! - What was not cold, or cannot be known to have been, is said below the figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use forerun_report::quantity::{self, ratio, seconds};
use forerun_report::{Summary, plain};
use forerun_steer::compare::{RetainedFile, RetainedReason, TimedRun};
use serde::Serialize;
use serde_json::{Value, json};

use super::statistics::{Ratio, median, outliers};
use super::{Args, Comparison, FindBy, Way};

impl Way {
    fn seconds(&self) -> Vec<f64> {
        self.runs.iter().map(|run| seconds(run.time)).collect()
    }

    fn median_of(&self, what: fn(&TimedRun) -> f64) -> f64 {
        median(self.runs.iter().map(what))
    }

    fn user(&self) -> f64 {
        self.median_of(|run| seconds(run.user))
    }

    fn system(&self) -> f64 {
        self.median_of(|run| seconds(run.system))
    }

    /// What a run read from devices.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of counts")]
    fn device_bytes(&self) -> u64 {
        self.median_of(|run| quantity::float(run.device_bytes)).round() as u64
    }

    /// The same as text; nothing where the kernel counts none.
    fn device(&self) -> Option<String> {
        let bytes = self.device_bytes();
        (bytes > 0).then(|| format!("{} read from devices", quantity::bytes(bytes)))
    }
}

/// The comparison as text.
pub(super) fn text(args: &Args, comparison: &Comparison) -> String {
    let words: Vec<_> = args.words.iter().map(|word| word.to_string_lossy()).collect();
    let program = forerun_console::failure::plain(&plain::command(&words));
    let runs = match args.runs {
        1 => "1 run of each way".to_owned(),
        runs => format!("{runs} runs of each way, in turns: median (min to max)"),
    };
    let mut text = format!("{program}\n{runs}\n\n");
    text += &figures(&comparison.ways);
    text += "\n";
    text += &summary(&comparison.ways);
    text += "\n";
    for line in cold(args, comparison) {
        text += &line;
        text += "\n";
    }
    text
}

/// A line for each way, its columns under those of the others.
fn figures(ways: &[Way]) -> String {
    let cells = |way: &Way| {
        let [user, system] = [way.user(), way.system()].map(|one| Unit::of(one).show(one));
        let (user, system) = (format!("user {user}"), format!("system {system}"));
        let device = way.device().unwrap_or_default();
        [way.name.to_owned(), time(&way.seconds()), user, system, device]
    };
    let lines: Vec<[String; 5]> = ways.iter().map(cells).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().enumerate();
        let cells = cells.map(|(column, cell)| format!("{cell:<0$}", width(column)));
        text += cells.collect::<Vec<_>>().join("   ").trim_end();
        text += "\n";
    }
    for way in ways {
        let far = outliers(&way.seconds());
        if far > 0 {
            let (name, runs) = (way.name, if far == 1 { "run is" } else { "runs are" });
            let _ = writeln!(
                text,
                "warning: {name}: {far} {runs} far off the others: did another program use the \
                 device?"
            );
        }
    }
    text
}

/// The times of a way: their median and ends, where there is more than one.
fn time(all: &[f64]) -> String {
    let summary = Summary::of(all.iter().copied());
    let unit = Unit::of(summary.median);
    if all.len() == 1 { unit.show(summary.median) } else { unit.summary(summary) }
}

fn summary(ways: &[Way]) -> String {
    let mut text = String::new();
    for (way, ratio) in ratios(ways) {
        let (name, Ratio { times, rounds }) = (way.name, ratio);
        let figure = if rounds == 1 { format!("{:.2}", times.median) } else { times.show(2) };
        let doubt = match (rounds, ratio.is_open()) {
            (1, _) => "; one run tells no spread",
            (_, true) => "; within the spread",
            (_, false) => "",
        };
        let _ = writeln!(text, "{name} is {figure} times as fast as alone{doubt}");
    }
    text
}

/// How many times as fast as the first way the others are.
fn ratios(ways: &[Way]) -> impl Iterator<Item = (&Way, Ratio)> {
    let alone = ways[0].seconds();
    ways[1..].iter().map(move |way| (way, Ratio::of(&alone, &way.seconds())))
}

/// How cold the runs were.
fn cold(args: &Args, comparison: &Comparison) -> Vec<String> {
    let Comparison { first, eviction, .. } = comparison;
    let opened = together(eviction.files, eviction.bytes);
    let mut lines = vec![if args.drop_caches {
        format!("cold     the machine's page cache was emptied before each run; {opened}")
    } else {
        format!("cold     {opened}, evicted before each run")
    }];
    for (why, kept) in by_reason(&eviction.kept) {
        let bytes: u64 = kept.iter().map(|kept| kept.bytes).sum();
        let mut names: Vec<_> =
            kept.iter().take(NAMED).map(|kept| kept.path.display().to_string()).collect();
        if kept.len() > NAMED {
            names.push("\u{2026}".to_owned());
        }
        let (count, bytes) = (kept.len(), quantity::bytes(bytes));
        let names = names.join(", ");
        let files = files(count as u64);
        lines.push(format!("stayed   {bytes} of {files}, {why}: {names}"));
    }
    if eviction.files_unknown > 0 {
        lines.push(format!(
            "unknown  {} of {} of other users: evicted as well, but the kernel does not tell what \
             is left",
            quantity::bytes(eviction.bytes_unknown),
            files(eviction.files_unknown)
        ));
    }
    if is_warm(comparison) {
        lines.push("warning  more than a tenth stayed in memory: these runs were not cold".into());
    }
    if !args.drop_caches {
        lines.push(
            "warm     inodes and directory entries stay cached without --drop-caches, as does what \
             a device or a server caches"
                .to_owned(),
        );
    }
    if first.found_by == FindBy::Samples {
        lines.push("missed   files were found by samples: small ones were not evicted".to_owned());
    }
    if first.status != 0 {
        let status = first.status;
        lines.push(format!("status   {status} in every run: did the program do what it should?"));
    }
    if let Some(entries) = comparison.learned_entries {
        lines.push(format!("list     learned of one run, entries: {entries}; gone now"));
    }
    lines.iter().map(|line| forerun_console::failure::plain(line)).collect()
}

/// `count` files and their sizes, in words.
pub(super) fn together(count: u64, bytes: u64) -> String {
    let (files, bytes) = (files(count), quantity::bytes(bytes));
    if count == 1 { format!("{files}, {bytes}") } else { format!("{files}, {bytes} together") }
}

/// `count` files, in words.
pub(super) fn files(count: u64) -> String {
    quantity::counted(count, "file", "files")
}

fn by_reason(kept: &[RetainedFile]) -> BTreeMap<RetainedReason, Vec<&RetainedFile>> {
    let mut by_reason: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for kept in kept {
        by_reason.entry(kept.why).or_default().push(kept);
    }
    by_reason
}

/// Whether too much stayed in memory, beside what running programs always keep there.
fn is_warm(comparison: &Comparison) -> bool {
    let kept = comparison.eviction.kept.iter().filter(|kept| kept.why != RetainedReason::Program);
    ratio(kept.map(|kept| kept.bytes).sum(), comparison.eviction.bytes) > WARM_SHARE
}

/// Whether little stayed in memory; nothing where the kernel does not tell.
fn is_cold(comparison: &Comparison) -> Option<bool> {
    let unknown = ratio(comparison.eviction.bytes_unknown, comparison.eviction.bytes);
    let is_warm = is_warm(comparison);
    (is_warm || unknown <= WARM_SHARE).then_some(!is_warm)
}

/// The unit of a way's times.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Millis,
    Seconds,
}

impl Unit {
    pub(super) fn of(seconds: f64) -> Self {
        if seconds < 1.0 { Self::Millis } else { Self::Seconds }
    }

    pub(super) fn show(self, seconds: f64) -> String {
        let (scale, decimals, name) = self.form();
        format!("{:.decimals$} {name}", seconds * scale)
    }

    fn summary(self, Summary { median, min, max }: Summary) -> String {
        let (scale, decimals, name) = self.form();
        let [median, min, max] = [median, min, max].map(|seconds| seconds * scale);
        format!("{} {name}", Summary { median, min, max }.show(decimals))
    }

    /// How many a second has, the decimals that are shown, and the name.
    fn form(self) -> (f64, usize, &'static str) {
        match self {
            Self::Millis => (1e3, 1, "ms"),
            Self::Seconds => (1.0, 3, "s"),
        }
    }
}

/// The comparison, as `--json` prints it.
pub(super) fn record(args: &Args, comparison: &Comparison) -> impl Serialize {
    let Comparison { first, eviction, ways, learned_entries } = comparison;
    let text = |word: &std::ffi::OsString| word.to_string_lossy().into_owned();
    let way = |way: &Way| {
        let Summary { median, min, max } = Summary::of(way.seconds());
        json!({
            "way": way.name,
            "command": way.words.iter().map(text).collect::<Vec<_>>(),
            "median_seconds": median,
            "min_seconds": min,
            "max_seconds": max,
            "user_seconds": way.user(),
            "system_seconds": way.system(),
            "device_bytes": way.device_bytes(),
            "seconds": way.seconds(),
            "outliers": outliers(&way.seconds()),
        })
    };
    let ratio = |(way, ratio): (&Way, Ratio)| {
        json!({
            "way": way.name,
            "times_as_fast": ratio.times.median,
            "times_as_fast_min": ratio.times.min,
            "times_as_fast_max": ratio.times.max,
            "is_open": ratio.is_open(),
        })
    };
    let kept = |kept: &RetainedFile| {
        let path = kept.path.display().to_string();
        json!({ "path": path, "bytes": kept.bytes, "why": kept.why.to_string() })
    };
    json!({
        "program": args.words.iter().map(text).collect::<Vec<_>>(),
        "runs": args.runs,
        "status": first.status,
        "first": {
            "seconds": seconds(first.time),
            "files": first.files.len(),
            "file_bytes": first.file_bytes(),
            "files_left_out": first.files_left_out,
            "found_by": if first.found_by == FindBy::Calls { "calls" } else { "samples" },
            "change": first.change,
        },
        "cold": {
            "by": if args.drop_caches { "drop_caches" } else { "eviction" },
            "files": eviction.files,
            "bytes": eviction.bytes,
            "bytes_kept": eviction.bytes_kept,
            "files_unknown": eviction.files_unknown,
            "is_cold": is_cold(comparison),
            "bytes_unknown": eviction.bytes_unknown,
            "kept": eviction.kept.iter().map(kept).collect::<Vec<Value>>(),
        },
        "learned_entries": learned_entries,
        "ways": ways.iter().map(way).collect::<Vec<Value>>(),
        "ratios": ratios(ways).map(ratio).collect::<Vec<Value>>(),
    })
}

/// Files that are named in a line.
const NAMED: usize = 3;
/// Of what the program reads, more than this in memory is not cold.
const WARM_SHARE: f64 = 0.1;

#[cfg(test)]
mod tests;
