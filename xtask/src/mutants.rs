//! `cargo xtask mutants`: does a small fault in core, or in the engine, make a test fail?
//!
//! cargo-mutants lists every fault that it can make in a crate; a seeded sample of them is made,
//! each in a copy of the tree, and the tests that judge the crate are run on it: of core its own
//! and those of the simulator, which runs core; of the engine its own. What survives shows a
//! decision that no test pins. Survivors that were judged harmless are explained in
//! `docs/mutants.md`.
//!
//! cargo-mutants finds a file by its `mod` line and does not see those that core's lists of
//! policies write. So it works on a copy of the tree in which these lines are written out.
//!
//! # Invariants
//! - The sample depends on the list, the files named, the count and the seed alone.
//! - A mutant that hangs is caught: its tests would not have passed. One that does not compile
//!   counts neither way.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// What `mutants` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The crate that mutants are made in
    #[arg(long, value_enum, default_value = "core")]
    of: Crate,
    /// How many mutants are drawn
    #[arg(long, value_name = "N", default_value = "300")]
    count: NonZeroUsize,
    /// The seed of the draw
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Draw of the files with this in their path alone; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Mutants at once
    #[arg(long, value_name = "N", default_value = "2")]
    jobs: NonZeroUsize,
}

/// A crate whose mutants are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Crate {
    /// Decisions
    Core,
    /// The live cache
    Engine,
}

impl Crate {
    fn package(self) -> &'static str {
        match self {
            Self::Core => "forerun-core",
            Self::Engine => "forerun-engine",
        }
    }

    /// The packages whose tests judge it.
    fn judges(self) -> &'static [&'static str] {
        match self {
            Self::Core => &["forerun-core", "forerun-sim"],
            Self::Engine => &["forerun-engine"],
        }
    }
}

/// Makes and judges the sample; whether enough of it was caught.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool> {
    let tool = Tool::find(root)?;
    let mut all = tool.list(args.of)?;
    let is_of = |name: &str, text: &String| {
        name.split(':').next().is_some_and(|file| file.contains(text.as_str()))
    };
    all.retain(|name| args.only.is_empty() || args.only.iter().any(|text| is_of(name, text)));
    ensure!(!all.is_empty(), "no mutant is of these files: {}", args.only.join(", "));
    let sample = sample(&all, args.count.get(), args.seed);
    let package = args.of.package();
    println!("{} of {} mutants of {package}, seed {}", sample.len(), all.len(), args.seed);
    let tally = Tally::of(&tool.run(args.of, &sample, args.jobs)?, &sample)?;
    ensure!(
        tally.total() == sample.len(),
        "{} mutants were drawn, {} of them were made",
        sample.len(),
        tally.total()
    );
    print!("{tally}");
    Ok(tally.passes())
}

/// cargo-mutants, and where it works.
struct Tool {
    /// The copy of the tree.
    root: PathBuf,
    program: PathBuf,
    /// Its configuration and results.
    folder: PathBuf,
}

impl Tool {
    /// The program on the path or of an earlier run; else it is installed below `target`.
    fn find(root: &Path) -> Result<Self> {
        let folder = root.join("target/mutants");
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let tools = root.join("target/tools");
        let ours = tools.join("bin/cargo-mutants");
        let theirs = PathBuf::from("cargo-mutants");
        let program = if works(&theirs) { theirs } else { ours };
        if !works(&program) {
            println!("installing cargo-mutants into {}", tools.display());
            let status = Command::new(crate::cargo())
                .args(["install", "--locked", "--root"])
                .arg(&tools)
                .arg("cargo-mutants")
                .status()
                .context("cargo install")?;
            ensure!(status.success(), "cargo install cargo-mutants failed");
        }
        let tree = std::path::absolute(folder.join("tree"))?;
        copy_tree(root, &tree)?;
        Ok(Self { root: tree, program, folder: std::path::absolute(folder)? })
    }

    /// The names of every mutant of a crate.
    fn list(&self, of: Crate) -> Result<Vec<String>> {
        let output = Command::new(&self.program)
            .args(["mutants", "--list", "--json", "--no-config", "--package", of.package()])
            .current_dir(&self.root)
            .stderr(Stdio::inherit())
            .output()
            .context("cargo mutants --list")?;
        ensure!(output.status.success(), "cargo mutants --list failed");
        let list: Value = serde_json::from_slice(&output.stdout).context("the list of mutants")?;
        let list = list.as_array().context("the list of mutants is not a list")?;
        let name = |mutant: &Value| mutant["name"].as_str().map(str::to_owned);
        list.iter().map(name).collect::<Option<_>>().context("a mutant without a name")
    }

    /// Makes the mutants of these names; its account of what came of them.
    fn run(&self, of: Crate, sample: &[&str], jobs: NonZeroUsize) -> Result<Value> {
        let config = self.folder.join("sample.toml");
        std::fs::write(&config, configuration(sample)).context("sample.toml")?;
        // A mutant may allocate without end: the limit makes it fail, not the machine.
        let status = Command::new("sh")
            .args(["-c", "ulimit -v 8388608; exec \"$@\"", "sh"])
            .arg(&self.program)
            .args(["mutants", "--package", of.package()])
            .args(of.judges().iter().flat_map(|judge| ["--test-package", judge]))
            .arg("--config")
            .arg(&config)
            .arg("--output")
            .arg(&self.folder)
            .args(["--jobs", &jobs.to_string()])
            .args(["--minimum-test-timeout", "60", "--timeout-multiplier", "8"])
            .args(["--build-timeout", "300"])
            .args(files_of(sample).into_iter().flat_map(|file| ["--file", file]))
            .args(["--", "--lib", "--tests"])
            // Debug information is most of the linker's work, and a mutant is not debugged.
            .env("CARGO_PROFILE_TEST_DEBUG", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env_remove("CARGO_TARGET_DIR")
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .status()
            .context("cargo mutants")?;
        // 2: some were missed; 3: some timed out. Both are in the account.
        ensure!(
            matches!(status.code(), Some(0 | 2 | 3)),
            "cargo mutants failed ({status}): do the tests pass without it?"
        );
        let account = self.folder.join("mutants.out/outcomes.json");
        let account = std::fs::read(&account).with_context(|| account.display().to_string())?;
        serde_json::from_slice(&account).context("outcomes.json")
    }
}

/// Copies what git tracks to `tree`, with the lists of policies written out.
fn copy_tree(root: &Path, tree: &Path) -> Result<()> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let listed = listed.context("git ls-files")?;
    ensure!(listed.status.success(), "git ls-files failed");
    if tree.exists() {
        std::fs::remove_dir_all(tree).with_context(|| tree.display().to_string())?;
    }
    let listed = String::from_utf8(listed.stdout)?;
    // The test of how policies are listed would find them written out.
    for file in listed.split_terminator('\0').filter(|file| !file.ends_with(LIST_TEST)) {
        let (from, to) = (root.join(file), tree.join(file));
        let folder = to.parent().context("a tracked file lies in a folder")?;
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        std::fs::copy(&from, &to).with_context(|| from.display().to_string())?;
    }
    for list in LISTS {
        let path = tree.join(list);
        let text = std::fs::read_to_string(&path).with_context(|| list.to_string())?;
        std::fs::write(&path, written_out(&text).with_context(|| list.to_string())?)?;
    }
    Ok(())
}

/// `text` of a list's file with a `mod` line for each entry in place of the macro's.
fn written_out(text: &str) -> Result<String> {
    let without = text.replacen(MOD_LINE, "", 1);
    ensure!(without != text, "no line {MOD_LINE}");
    let start = without.rfind("! {").context("no list")?;
    let entries = without[start..].lines().skip(1).map_while(|line| line.trim().split_once("::"));
    let mods: Vec<String> = entries.map(|entry| format!("pub mod {};\n", entry.0)).collect();
    ensure!(!mods.is_empty(), "an empty list");
    Ok(format!("{without}\n{}", mods.concat()))
}

fn works(program: &Path) -> bool {
    let version = Command::new(program).args(["mutants", "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}

/// `count` of `all`, or all if there are no more, in their order.
fn sample(all: &[String], count: usize, seed: u64) -> Vec<&str> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    let mut state = seed;
    for last in (1..order.len()).rev() {
        let bound = u128::try_from(last + 1).expect("a length fits 128 bits");
        let drawn = (u128::from(draw(&mut state)) * bound) >> 64;
        order.swap(last, usize::try_from(drawn).expect("below a length"));
    }
    order.truncate(count);
    order.sort_unstable();
    order.into_iter().map(|index| all[index].as_str()).collect()
}

/// `SplitMix64` (Steele, Lea, Flood 2014).
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The files of these mutants, each once. cargo-mutants 27 makes those that delete a field of a
/// struct whatever its configuration says: no use to make them in files that none is drawn of.
fn files_of<'a>(names: &[&'a str]) -> BTreeSet<&'a str> {
    names.iter().filter_map(|name| name.split(':').next()).collect()
}

/// A configuration of cargo-mutants that names exactly these mutants.
fn configuration(names: &[&str]) -> String {
    // JSON strings are TOML strings.
    let pattern = |name: &&str| Value::String(format!("^{}$", escape(name))).to_string();
    let patterns: Vec<String> = names.iter().map(pattern).collect();
    format!("examine_re = [\n    {}\n]\n", patterns.join(",\n    "))
}

/// A regular expression that matches `name` alone.
fn escape(name: &str) -> String {
    let mut escaped = String::new();
    for c in name.chars() {
        if c.is_ascii_punctuation() && !"<>_'\"/:,;=!%@`".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// What came of the sample.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    caught: usize,
    timeout: usize,
    unviable: usize,
    missed: Vec<String>,
}

impl Tally {
    /// Counts the mutants of the sample: those made beside it (see [`files_of`]) would tilt the
    /// ratio.
    fn of(account: &Value, sample: &[&str]) -> Result<Self> {
        let mut tally = Self::default();
        let outcomes = account["outcomes"].as_array().context("an account without outcomes")?;
        for outcome in outcomes {
            let Some(name) = outcome["scenario"]["Mutant"]["name"].as_str() else { continue };
            if !sample.contains(&name) {
                continue;
            }
            match outcome["summary"].as_str().unwrap_or("nothing") {
                "CaughtMutant" => tally.caught += 1,
                "Timeout" => tally.timeout += 1,
                "Unviable" => tally.unviable += 1,
                "MissedMutant" => tally.missed.push(name.to_owned()),
                other => bail!("{name}: {other}"),
            }
        }
        tally.missed.sort();
        Ok(tally)
    }

    fn total(&self) -> usize {
        self.caught + self.timeout + self.unviable + self.missed.len()
    }

    /// Caught and judged, timeouts being caught.
    fn ratio(&self) -> (usize, usize) {
        let caught = self.caught + self.timeout;
        (caught, caught + self.missed.len())
    }

    fn passes(&self) -> bool {
        let (caught, judged) = self.ratio();
        judged > 0 && caught * 100 >= judged * CAUGHT_PERCENT_MIN
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for name in &self.missed {
            writeln!(f, "survived: {name}")?;
        }
        writeln!(
            f,
            "{} caught, {} missed, {} timeout, {} unviable",
            self.caught,
            self.missed.len(),
            self.timeout,
            self.unviable
        )?;
        let (caught, judged) = self.ratio();
        let tenths = (caught * 1_000).checked_div(judged).unwrap_or(0);
        let percent = format!("{}.{} %", tenths / 10, tenths % 10);
        let wanted = format!("at least {CAUGHT_PERCENT_MIN} % wanted");
        writeln!(f, "{caught} of {judged} caught: {percent}, {wanted}")
    }
}

/// Where policies are listed.
const LISTS: &[&str] = &["crates/core/src/eviction.rs", "crates/core/src/readahead.rs"];
const LIST_TEST: &str = "adding_a_policy.rs";
/// How a list's macro declares its modules.
const MOD_LINE: &str = "$(pub mod $module;)+";
const CAUGHT_PERCENT_MIN: usize = 90;

#[cfg(test)]
mod tests;
