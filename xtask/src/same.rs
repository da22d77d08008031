//! `cargo xtask same REV`: whether the working tree decides what the commit REV decided.
//!
//! ```text
//!   REV           --worktree below target/--> forerun, digests --\
//!                                                                 same words --> JSON --> equal?
//!   working tree  --------------------------> forerun, digests --/
//! ```
//! Compared are the digests of seeds (every event and action of the core on a faulty device), the
//! recorded vectors, misses of every replacement policy, the simulator on every workload x policy
//! x readahead x device, with the requests and the windows of some runs, and the rows of
//! `bench virtual`. Words that were renamed since REV are in `renames`; all else is equal to the
//! last digit, but for clocks, dates and machines.
//!
//! # Invariants
//! - Both sides are built by one compiler and one profile, and get the same words.
//! - What both sides refuse is counted: a comparison of two errors proves nothing.
//! - The working tree is only read; REV lies in a worktree of its own.

mod comparisons;
mod json;
mod renames;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use comparisons::{Comparison, Program, Virtual};

/// What `same` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The commit to compare with
    rev: String,
    /// Fewer seeds, one length and seed of each row of `bench virtual`, no figures of papers
    #[arg(long)]
    quick: bool,
    /// How many seeds [default: 10000; 1000 with --quick]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Only comparisons whose name contains one of these
    #[arg(long, value_name = "TEXT,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Comparisons at once [default: one a processor]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

impl Args {
    fn chooses(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| name.contains(text))
    }
}

/// Builds both sides and compares them; whether they are equal.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool> {
    let folder = crate::target(root).join("same");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let folder = folder.canonicalize()?;
    let sides = [Side::of_commit(root, &folder, &args.rev)?, Side::of_tree(root, &folder)?];
    let seeds = args.seeds.unwrap_or(if args.quick { 1_000 } else { 10_000 });
    let mut all = comparisons::all(root, &sides[0], seeds, args.quick)?;
    all.retain(|comparison| args.chooses(&comparison.name));
    let jobs = args.jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, usize::from);
    let mut tally = Tally::default();
    let next = AtomicUsize::new(0);
    let (sender, verdicts) = channel();
    thread::scope(|scope| {
        for job in 0..jobs.min(all.len()) {
            let scratch = folder.join(format!("record-{job}.json"));
            let (next, all, sides, sender) = (&next, &all, &sides, sender.clone());
            scope.spawn(move || {
                while let Some(comparison) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = compare(sides, comparison, &scratch);
                    sender.send((&comparison.name, verdict)).expect("all are received");
                }
            });
        }
        drop(sender);
        for (name, verdict) in verdicts {
            tally.note(name, verdict);
        }
    });
    let rows = Virtual { root, folder: &folder, quick: args.quick, jobs };
    if args.chooses("bench virtual") {
        rows.compare(&sides, &mut tally);
    }
    Ok(tally.close(&sides))
}

/// Both answers of one comparison.
fn compare(sides: &[Side; 2], comparison: &Comparison, scratch: &Path) -> Result<Verdict> {
    let [old, new] = sides;
    let (old, new) = (old.run(comparison, scratch)?, new.run(comparison, scratch)?);
    Ok(match (old, new) {
        (Answer::Refused(old), Answer::Refused(new)) if old == new => Verdict::Refused(old),
        (Answer::Said(old), Answer::Said(new)) => match json::first_difference(&old, &new) {
            None => Verdict::Same,
            Some(difference) => Verdict::Differs(difference),
        },
        (old, new) => Verdict::Differs(format!("{old:?}\n    now: {new:?}")),
    })
}

/// One commit, or the working tree, built.
struct Side {
    name: String,
    forerun: PathBuf,
    digests: PathBuf,
}

impl Side {
    /// REV in a worktree; built once.
    fn of_commit(root: &Path, folder: &Path, rev: &str) -> Result<Self> {
        let spec = format!("{rev}^{{commit}}");
        let commit = git(root, &["rev-parse", "--verify", "--short=12", &spec])?;
        let tree = folder.join("tree");
        let bin = folder.join("bin").join(&commit);
        let side = Self::at(&bin, format!("{rev} ({commit})"));
        if side.forerun.is_file() && side.digests.is_file() {
            return Ok(side);
        }
        if tree.join(".git").is_file() {
            git(&tree, &["checkout", "--quiet", "--force", "--detach", &commit])?;
        } else {
            let tree = tree.to_str().context("a path that is not UTF-8")?;
            git(root, &["worktree", "prune"])?;
            git(root, &["worktree", "add", "--quiet", "--detach", tree, &commit])?;
        }
        side.build(&tree, folder, &bin)?;
        Ok(side)
    }

    fn of_tree(root: &Path, folder: &Path) -> Result<Self> {
        let bin = folder.join("bin/tree");
        let side = Self::at(&bin, "the working tree".to_owned());
        side.build(root, folder, &bin)?;
        Ok(side)
    }

    fn at(bin: &Path, name: String) -> Self {
        Self { name, forerun: bin.join("forerun"), digests: bin.join("digests") }
    }

    /// Builds `forerun` of `tree`, and the program that prints its digests.
    fn build(&self, tree: &Path, folder: &Path, bin: &Path) -> Result<()> {
        println!("building {}", self.name);
        fs::create_dir_all(bin).with_context(|| bin.display().to_string())?;
        let target = folder.join("build");
        build(&tree.join("Cargo.toml"), "forerun-cli", &target)?;
        let probe = folder.join("digests");
        fs::create_dir_all(probe.join("src"))?;
        let sim = SIMULATORS.iter().map(|place| tree.join(place)).find(|place| place.is_dir());
        let sim = sim.with_context(|| format!("no simulator in {}", tree.display()))?;
        fs::write(probe.join("Cargo.toml"), renames::probe_manifest(&sim))?;
        fs::write(probe.join("src/main.rs"), renames::PROBE)?;
        fs::copy(tree.join("Cargo.lock"), probe.join("Cargo.lock"))?;
        build(&probe.join("Cargo.toml"), "digests", &target)?;
        for program in [&self.forerun, &self.digests] {
            let built = target.join("release").join(program.file_name().expect("a program"));
            fs::copy(&built, program).with_context(|| built.display().to_string())?;
        }
        Ok(())
    }

    /// Runs one comparison's program. Words that this side does not know are tried by their new
    /// names.
    fn run(&self, comparison: &Comparison, scratch: &Path) -> Result<Answer> {
        let output = self.output(comparison, &comparison.words, scratch)?;
        let renamed: Vec<String> =
            comparison.words.iter().map(|word| renames::word(word)).collect();
        let output = if output.status.code() == Some(2) && renamed != comparison.words {
            self.output(comparison, &renamed, scratch)?
        } else {
            output
        };
        if !output.status.success() {
            return Ok(Answer::Refused(output.status.code()));
        }
        let text = if comparison.record { fs::read(scratch)? } else { output.stdout };
        let value = match comparison.program {
            Program::Digests => Value::String(String::from_utf8(text)?),
            Program::Forerun => serde_json::from_slice(&text).context("no JSON")?,
        };
        Ok(Answer::Said(json::plain(value)))
    }

    fn output(&self, comparison: &Comparison, words: &[String], scratch: &Path) -> Result<Output> {
        let program = match comparison.program {
            Program::Digests => &self.digests,
            Program::Forerun => &self.forerun,
        };
        let mut command = Command::new(program);
        command.args(words);
        if comparison.record {
            command.arg("--output").arg(scratch);
        }
        command.stdin(Stdio::null()).output().with_context(|| program.display().to_string())
    }
}

/// What a program came back with.
#[derive(Debug)]
enum Answer {
    Said(Value),
    /// It failed, with this exit code.
    Refused(Option<i32>),
}

/// What a comparison came to.
enum Verdict {
    Same,
    Differs(String),
    /// Both sides failed alike.
    Refused(Option<i32>),
}

/// What all comparisons came to.
#[derive(Default)]
struct Tally {
    same: usize,
    refused: usize,
    differ: usize,
}

impl Tally {
    fn note(&mut self, name: &str, verdict: Result<Verdict>) {
        let difference = match verdict {
            Ok(Verdict::Same) => {
                self.same += 1;
                return;
            }
            Ok(Verdict::Refused(code)) => {
                println!("both refuse: {name} (exit code {code:?})");
                self.refused += 1;
                return;
            }
            Ok(Verdict::Differs(difference)) => difference,
            Err(error) => format!("{error:#}"),
        };
        println!("differs: {name}\n    {difference}");
        self.differ += 1;
    }

    fn close(&self, [old, new]: &[Side; 2]) -> bool {
        let Self { same, refused, differ } = self;
        println!(
            "{} and {}: {same} comparisons the same, {refused} refused by both, {differ} differ",
            old.name, new.name
        );
        *differ == 0 && *same > 0
    }
}

/// Builds `package` without what makes only the program faster.
fn build(manifest: &Path, package: &str, target: &Path) -> Result<()> {
    let status = Command::new(crate::cargo())
        .args(["build", "--quiet", "--release", "--package", package, "--manifest-path"])
        .arg(manifest)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        // Of both, so that their records differ in nothing else.
        .env("FORERUN_COMMIT", "same")
        .stdin(Stdio::null())
        .status()
        .context("cargo build")?;
    ensure!(status.success(), "{} does not build", manifest.display());
    Ok(())
}

fn git(folder: &Path, words: &[&str]) -> Result<String> {
    let output = Command::new("git").args(words).current_dir(folder).output().context("git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", words.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Where the simulator lies, in today's tree and in older ones.
const SIMULATORS: &[&str] = &["lab/sim", "crates/sim"];
