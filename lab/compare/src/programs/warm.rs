//! `forerun warm` on a tree, beside threads of a program that has all paths, and beside `xargs`.
//!
//! ```text
//!   warm      forerun warm TREE
//!   threads   32 threads that open each path and request it whole: the bound
//!   cat       xargs -P32 cat
//! ```
//! The headers on `cloud` and on the machine's own disk, a tenth of them elsewhere.
//!
//! # Invariants
//! - Each run is cold: by unmounting, and on the own disk by dropping all caches of the machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
#[expect(clippy::disallowed_types, reason = "programs are timed")]
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use forerun_report::Summary;
use forerun_report::quantity::float;
use serde_json::{Value, json};

use super::Bench;
use crate::args::in_turns;
use crate::bed::Folios;
use crate::device::Device;
use crate::forerun::{output_of, put};

/// The name of these rows.
pub(super) const NAME: &str = "warm trees";
/// The machine's own disk, in the place of a device.
pub(super) const OWN: &str = "own";

/// Seconds and bytes of the device.
type Taken = (f64, f64);

/// All ways on `device`, or on the machine's own disk: an object.
pub(super) fn measured(bench: &mut Bench<'_>, device: Option<&Device>) -> Result<Value> {
    let name = device.map_or(OWN, |device| device.name);
    let tree = if matches!(name, "cloud" | OWN) { "headers" } else { "repo" };
    let folder = match device {
        Some(_) => bench.bed.fresh(Folios::Large)?,
        None => bench.contents.join("files"),
    };
    let ways = Ways::new(bench, &folder.join(tree))?;
    let taken = in_turns(bench.args.rounds, ways.commands.len(), |_, way| {
        if let Some(device) = device {
            bench.bed.fresh(Folios::Large)?;
            bench.bed.on(device, bench.args.read_ahead_kib.get())?;
        } else {
            output_of(&mut Command::new("sync"))?;
            put(Path::new("/proc/sys/vm/drop_caches"), "3")?;
        }
        let before = device.map(|_| bench.bed.bytes()).transpose()?;
        let seconds = ways.once(way)?;
        let bytes = before.map(|before| anyhow::Ok(bench.bed.bytes()? - before)).transpose()?;
        anyhow::Ok((seconds, bytes.map_or(f64::NAN, float)))
    })?;
    Ok(record([name, tree], &taken))
}

/// The commands, each with what it has as input.
struct Ways {
    commands: [Vec<String>; 3],
    input: PathBuf,
}

impl Ways {
    fn new(bench: &Bench<'_>, tree: &Path) -> Result<Self> {
        let [all, files] = ["paths", "paths-of-files"].map(|name| bench.contents.join(name));
        let (mut every, mut plain) = (String::new(), String::new());
        list(tree, &mut every, &mut plain)?;
        put(&all, &every)?;
        put(&files, &plain)?;
        let text = |path: &Path| path.display().to_string();
        let reader = text(&bench.contents.join("bin/reader"));
        let forerun = text(&bench.forerun);
        let words = |words: &[&str]| words.iter().map(|&it| it.to_owned()).collect();
        let commands = [
            words(&[&forerun, "warm", &text(tree)]),
            words(&[&reader, "ahead", &text(&all), "32"]),
            words(&["xargs", "-P32", "-n", "32", "cat"]),
        ];
        Ok(Self { commands, input: files })
    }

    #[expect(clippy::disallowed_types, reason = "programs are timed")]
    fn once(&self, way: usize) -> Result<f64> {
        let words = &self.commands[way];
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(File::open(&self.input)?);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let begun = Instant::now();
        let ended = command.status().with_context(|| words[0].clone())?;
        let seconds = begun.elapsed().as_secs_f64();
        ensure!(ended.success(), "{} failed: {ended}", words.join(" "));
        Ok(seconds)
    }
}

/// Appends the paths of `folder` and of all below it, and those of files alone, in the order of
/// listings.
fn list(folder: &Path, all: &mut String, files: &mut String) -> Result<()> {
    let line = |path: &Path| format!("{}\n", path.display());
    all.push_str(&line(folder));
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let (path, kind) = entry.and_then(|it| Ok((it.path(), it.file_type()?)))?;
        if kind.is_dir() {
            list(&path, all, files)?;
        } else if kind.is_file() {
            all.push_str(&line(&path));
            files.push_str(&line(&path));
        }
    }
    Ok(())
}

fn record([device, tree]: [&str; 2], taken: &[Vec<Taken>]) -> Value {
    let of = |way: usize, figure: fn(&Taken) -> f64| -> Vec<f64> {
        taken[way].iter().map(figure).collect()
    };
    let spread = |samples: &[f64]| json!(Summary::of(samples.iter().copied()));
    let [warm, threads, cat] = [0, 1, 2].map(|way| of(way, |it| it.0));
    let bytes = Summary::of_ratios(&of(0, |it| it.1), &of(1, |it| it.1)).median;
    json!({
        "device": device, "tree": tree, "warm_seconds": spread(&warm),
        "threads_seconds": spread(&threads), "cat_seconds": spread(&cat),
        "to_threads": Summary::of_ratios(&warm, &threads).median,
        "to_cat": Summary::of_ratios(&warm, &cat).median,
        "bytes_to_threads": bytes,
    })
}

/// The line of a table.
pub(super) fn row(run: &Value) -> String {
    let spread = |name: &str| {
        let [median, min, max] =
            ["median", "min", "max"].map(|part| run[name][part].as_f64().unwrap_or(f64::NAN));
        format!("{median:.2} ({min:.2} to {max:.2})")
    };
    let plain = |name: &str| {
        run[name].as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
    };
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} |",
        run["device"].as_str().unwrap_or("?"),
        run["tree"].as_str().unwrap_or("?"),
        spread("warm_seconds"),
        spread("threads_seconds"),
        spread("cat_seconds"),
        plain("to_threads"),
        plain("to_cat"),
        plain("bytes_to_threads"),
    )
}

pub(super) const HEADER: &str = "\
| device | tree | warm s | 32 threads s | xargs -P32 cat s | warm / threads | warm / cat \
| bytes: warm / threads |
|---|---|---|---|---|---|---|---|";

#[cfg(test)]
mod tests {
    use forerun_testkit::Scratch;

    use super::*;

    #[test]
    fn a_row_compares_with_each_way_in_the_same_round() {
        let taken = [
            vec![(1.0, 100.0), (3.0, 100.0)],
            vec![(2.0, 100.0), (2.0, 50.0)],
            vec![(4.0, 100.0), (4.0, 100.0)],
        ];
        assert_eq!(
            row(&record(["cloud", "headers"], &taken)),
            "| cloud | headers | 2.00 (1.00 to 3.00) | 2.00 (2.00 to 2.00) | 4.00 (4.00 to 4.00) \
             | 1.00 | 0.50 | 1.50 |"
        );
        let own = taken.map(|way| way.into_iter().map(|(it, _)| (it, f64::NAN)).collect());
        assert!(row(&record(["own", "headers"], &own)).ends_with("| 0.50 | - |"));
    }

    #[test]
    fn a_list_has_directories_and_files() {
        let scratch = Scratch::new("warm-list");
        fs::create_dir(scratch.join("in")).expect("there is room");
        fs::write(scratch.join("in/file"), "").expect("there is room");
        let (mut all, mut files) = (String::new(), String::new());
        list(&scratch, &mut all, &mut files).expect("it is there");
        assert_eq!((all.lines().count(), files.lines().count()), (3, 1));
    }
}
