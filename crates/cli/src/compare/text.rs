//! A comparison as text, as hyperfine prints one, and as JSON.
//!
//! # Invariants
//! - What was not cold, or cannot be known to have been, is said below the figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use forerun_report::mean;
use forerun_report::quantity::{self, ratio, seconds};
use forerun_steer::compare::{Kept, KeptReason, TimedRun};
use serde::Serialize;
use serde_json::{Value, json};

use super::statistics::{Ratio, Times, outliers};
use super::{Args, Comparison, FindBy, Way};

impl Way {
    fn seconds(&self) -> Vec<f64> {
        self.runs.iter().map(|run| seconds(run.time)).collect()
    }

    fn mean_of(&self, what: fn(&TimedRun) -> f64) -> f64 {
        mean(&self.runs.iter().map(what).collect::<Vec<_>>())
    }

    fn user(&self) -> f64 {
        self.mean_of(|run| seconds(run.user))
    }

    fn system(&self) -> f64 {
        self.mean_of(|run| seconds(run.system))
    }

    fn device_bytes(&self) -> f64 {
        self.mean_of(|run| quantity::float(run.device_bytes))
    }

    /// What a run read from devices, as text; nothing where the kernel counts none.
    fn device(&self) -> Option<String> {
        let sum: u64 = self.runs.iter().map(|run| run.device_bytes).sum();
        (sum > 0).then(|| quantity::bytes(sum / self.runs.len() as u64))
    }
}

/// The comparison as text.
pub(super) fn text(args: &Args, comparison: &Comparison) -> String {
    let mut text = String::new();
    let words: Vec<_> = args.words.iter().map(|word| word.to_string_lossy()).collect();
    let program = forerun_console::failure::plain(&words.join(" "));
    for (at, way) in comparison.ways.iter().enumerate() {
        let _ = writeln!(text, "Benchmark {}, {}: {program}", at + 1, way.name);
        text += &figures(way);
    }
    text += &summary(&comparison.ways);
    text += "\n";
    for line in cold(args, comparison) {
        text += &line;
        text += "\n";
    }
    text
}

fn figures(way: &Way) -> String {
    let all = way.seconds();
    let Times { mean, stddev, median, min, max } = Times::of(&all);
    let unit = Unit::of(mean);
    let show = |value: f64| unit.show(value);
    let mean_line = match stddev {
        Some(stddev) => {
            let title = "Time (mean \u{b1} \u{3c3}):";
            format!("  {title:20} {} \u{b1} {}", show(mean), show(stddev))
        }
        None => format!("  {:20} {}            ", "Time:", show(mean)),
    };
    let (user, system) = (show(way.user()), show(way.system()));
    let mut text = format!("{mean_line}    [User: {}, System: {}]\n", user.trim(), system.trim());
    if all.len() > 1 {
        let title = "Range (min \u{2026} max):";
        let runs = all.len();
        let _ = writeln!(text, "  {title:20} {} \u{2026} {}    {runs} runs", show(min), show(max));
        let _ = writeln!(text, "  {:20} {}", "Median:", show(median));
    }
    if let Some(device) = way.device() {
        let _ = writeln!(text, "  {:20} {device:>10} read", "Device:");
    }
    let far = outliers(&all);
    if far > 0 {
        let runs = if far == 1 { "run is" } else { "runs are" };
        let _ = writeln!(
            text,
            "\n  Warning: {far} {runs} far off the others: did another program use the device?"
        );
    }
    text + "\n"
}

fn summary(ways: &[Way]) -> String {
    let mut text = "Summary\n".to_owned();
    for (way, ratio) in ratios(ways) {
        let Ratio { ratio: times, spread } = ratio;
        let spread = spread.map_or(String::new(), |spread| format!(" \u{b1} {spread:.2}"));
        let name = way.name;
        let _ = if ratio.is_open() {
            let why =
                if spread.is_empty() { "one run tells no spread" } else { "within the spread" };
            writeln!(text, "  {name}: {times:.2}{spread} times as fast as alone; {why}")
        } else {
            writeln!(text, "  {name}: {times:.2}{spread} times as fast as alone")
        };
    }
    text
}

/// How many times as fast as the first way the others are.
fn ratios(ways: &[Way]) -> impl Iterator<Item = (&Way, Ratio)> {
    let alone = Times::of(&ways[0].seconds());
    ways[1..].iter().map(move |way| (way, Times::of(&way.seconds()).ratio_to(&alone)))
}

/// How cold the runs were.
fn cold(args: &Args, comparison: &Comparison) -> Vec<String> {
    let Comparison { first, eviction, .. } = comparison;
    let (read, bytes) = (files(eviction.files), quantity::bytes(eviction.bytes));
    let mut lines = vec![if args.drop_caches {
        format!("cold     the machine's page cache was emptied before each run: {read} of {bytes}")
    } else {
        format!("cold     {read} of {bytes} evicted before each run")
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

/// `count` files, in words.
pub(super) fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{} files", quantity::count(count)) }
}

fn by_reason(kept: &[Kept]) -> BTreeMap<KeptReason, Vec<&Kept>> {
    let mut by_reason: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for kept in kept {
        by_reason.entry(kept.why).or_default().push(kept);
    }
    by_reason
}

/// Whether too much stayed in memory, beside what running programs always keep there.
fn is_warm(comparison: &Comparison) -> bool {
    let kept = comparison.eviction.kept.iter().filter(|kept| kept.why != KeptReason::Program);
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
    pub(super) fn of(mean: f64) -> Self {
        if mean < 1.0 { Self::Millis } else { Self::Seconds }
    }

    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::Millis => format!("{:7.1} ms", value * 1e3),
            Self::Seconds => format!("{value:7.3} s"),
        }
    }
}

/// The comparison, as `--json` prints it.
pub(super) fn record(args: &Args, comparison: &Comparison) -> impl Serialize {
    let Comparison { first, eviction, ways, learned_entries } = comparison;
    let text = |word: &std::ffi::OsString| word.to_string_lossy().into_owned();
    let way = |way: &Way| {
        let Times { mean, stddev, median, min, max } = Times::of(&way.seconds());
        json!({
            "way": way.name,
            "command": way.words.iter().map(text).collect::<Vec<_>>(),
            "mean_seconds": mean,
            "stddev_seconds": stddev,
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
            "way": way.name, "times_as_fast": ratio.ratio, "spread": ratio.spread,
            "is_open": ratio.is_open(),
        })
    };
    let kept = |kept: &Kept| {
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
            "bytes": first.bytes(),
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
