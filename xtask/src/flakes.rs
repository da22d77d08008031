//! `cargo xtask flakes`: how often each test fails beside busy loops.
//!
//! ```text
//!   3 threads that spin  |  run 1: binary, binary, ...   run 2: binary, binary, ...   ... run N
//!                           failed --> its output, below target/flakes
//! ```
//! A binary is a program of Rust's tests, the models among them, or pytest with those of Python.
//!
//! A failure is a defect, of the product until shown otherwise: a test waits for an event that the
//! product emits, and has no deadline but the one here, which ends a run that hangs.
//!
//! # Invariants
//! - The busy loops are threads of this process, so they end with it, by Ctrl-C too.
//! - A binary that fails without naming a test counts as a test of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::ci;

/// What `flakes` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Tests by a part of `BINARY::TEST`, such as `limits::` [default: all]
    tests: Vec<String>,
    /// How often each binary runs
    #[arg(long, value_name = "N", default_value = "10")]
    runs: NonZeroU32,
    /// Busy loops beside them
    #[arg(long, value_name = "N", default_value_t = 3)]
    load: usize,
    /// Only tests of these packages, forerun-python for those of Python [default: all]
    #[arg(short, long = "package", value_name = "NAME,...", value_delimiter = ',')]
    packages: Vec<String>,
    /// A run that takes longer has hung
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    limit: u32,
}

/// Runs the tests; whether none failed.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool> {
    let folder = std::path::absolute(crate::target(root).join("flakes"))?;
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    fs::write(folder.join(SKIPPED), "").with_context(|| folder.display().to_string())?;
    let binaries = binaries(root, args)?;
    ensure!(!binaries.is_empty(), "no test has such a name");
    let tests: usize = binaries.iter().map(|binary| binary.tests.len()).sum();
    println!("{tests} tests of {} binaries, {} runs", binaries.len(), args.runs);
    let is_over = AtomicBool::new(false);
    let failures = thread::scope(|scope| {
        for _ in 0..args.load {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let failures = rounds(&binaries, &folder, args);
        is_over.store(true, Ordering::Relaxed);
        failures
    })?;
    let skipped = fs::read_to_string(folder.join(SKIPPED)).unwrap_or_default();
    for skip in skipped.lines().collect::<BTreeSet<_>>() {
        println!("skipped: {skip}");
    }
    for (test, count) in &failures {
        println!("failed in {count} of {} runs: {test}", args.runs);
    }
    let total: u32 = failures.values().sum();
    println!("{tests} tests, {} runs beside {} busy loops: {total} failures", args.runs, args.load);
    if total > 0 {
        println!("outputs: {}", folder.display());
    }
    Ok(total == 0)
}

/// Every run of every binary; how often each test failed.
fn rounds(binaries: &[Binary], folder: &Path, args: &Args) -> Result<BTreeMap<String, u32>> {
    let mut failures = BTreeMap::new();
    for round in 1..=args.runs.get() {
        for binary in binaries {
            let output = binary.run(folder, args)?;
            if output.status.success() {
                continue;
            }
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut failed =
                if binary.is_python { failed_python_tests(&text) } else { failed_tests(&text) };
            if failed.is_empty() {
                failed.push(format!("({})", output.status));
            }
            for test in failed {
                println!("run {round}: {}::{test} failed", binary.name);
                *failures.entry(format!("{}::{test}", binary.name)).or_default() += 1;
            }
            text += &String::from_utf8_lossy(&output.stderr);
            let path = folder.join(format!("{}.{round}.txt", binary.name));
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        println!("run {round} of {} done", args.runs);
    }
    Ok(failures)
}

/// The tests that a binary's output lists last, below `failures:`.
fn failed_tests(output: &str) -> Vec<String> {
    let list = output.rsplit_once("\nfailures:\n").map_or("", |(_, list)| list);
    let names = list.lines().map_while(|line| line.strip_prefix("    "));
    names.map(str::to_owned).collect()
}

/// The tests that pytest lists as failed.
fn failed_python_tests(output: &str) -> Vec<String> {
    let failed = |line: &str| {
        let test = line.strip_prefix("FAILED ").or(line.strip_prefix("ERROR "))?;
        Some(test.split_once(" - ").map_or(test, |(test, _)| test).to_owned())
    };
    output.lines().filter_map(failed).collect()
}

/// A program of tests.
struct Binary {
    /// Of its target, such as `limits`; a library's tests bear the library's.
    name: String,
    path: PathBuf,
    /// It is the interpreter that pytest runs in.
    is_python: bool,
    /// The folder of its package, where cargo runs it.
    package: PathBuf,
    /// Those that are chosen.
    tests: Vec<String>,
    /// Whether they are all that it has.
    is_whole: bool,
}

impl Binary {
    fn run(&self, folder: &Path, args: &Args) -> Result<std::process::Output> {
        let mut command = Command::new("timeout");
        // In the foreground, as Ctrl-C is for all.
        command.args(["--foreground", "--kill-after=5", &args.limit.to_string()]).arg(&self.path);
        match (self.is_python, self.is_whole) {
            (true, true) => command.args(PYTEST).arg(PYTHON_TESTS),
            (true, false) => command.args(PYTEST).args(&self.tests),
            (false, true) => &mut command,
            (false, false) => command.arg("--exact").args(&self.tests),
        };
        command
            .current_dir(&self.package)
            .env("CARGO", crate::cargo())
            .env("CARGO_MANIFEST_DIR", &self.package)
            .env("FORERUN_SKIPPED", folder.join(SKIPPED))
            .stdin(Stdio::null())
            .output()
            .with_context(|| self.path.display().to_string())
    }
}

/// All that is to run.
fn binaries(root: &Path, args: &Args) -> Result<Vec<Binary>> {
    let has = |name: &str| args.packages.is_empty() || args.packages.iter().any(|one| one == name);
    let mut of_rust = vec!["--tests".to_owned()];
    if args.packages.is_empty() {
        of_rust.extend(ci::RUST.iter().map(|&argument| argument.to_owned()));
    }
    let packages = args.packages.iter().filter(|&package| package != PYTHON_PACKAGE);
    of_rust.extend(packages.map(|package| format!("--package={package}")));
    let mut binaries = Vec::new();
    if args.packages.is_empty() || args.packages.iter().any(|one| one != PYTHON_PACKAGE) {
        binaries.extend(built(root, args, of_rust)?);
    }
    if has("forerun-io") || has("forerun-engine") {
        binaries.extend(built(root, args, ci::MODELS.iter().map(|&it| it.to_owned()))?);
    }
    if has(PYTHON_PACKAGE) {
        binaries.extend(of_python(root, args)?);
    }
    Ok(binaries)
}

/// Builds the test binaries that cargo selects by `arguments`, and lists the tests of each that are
/// chosen.
fn built(
    root: &Path,
    args: &Args,
    arguments: impl IntoIterator<Item = String>,
) -> Result<Vec<Binary>> {
    let mut cargo = Command::new(crate::cargo());
    cargo.args(["test", "--no-run", "--message-format=json"]).args(arguments);
    let output = cargo.current_dir(root).stderr(Stdio::inherit()).output().context("cargo test")?;
    ensure!(output.status.success(), "the tests do not build");
    let mut binaries = Vec::new();
    for line in output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let message: Value = serde_json::from_slice(line).context("a message of cargo's")?;
        let Some(path) =
            message["executable"].as_str().filter(|_| message["profile"]["test"] == true)
        else {
            continue;
        };
        let name = message["target"]["name"].as_str().context("a target without a name")?;
        let manifest = message["manifest_path"].as_str().context("a package without a place")?;
        let package = Path::new(manifest).parent().context("a manifest without a folder")?;
        let listed = Command::new(path).args(["--list", "--format=terse"]).output()?;
        let listed = String::from_utf8(listed.stdout)?;
        let all = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        let tests = all.map(str::to_owned).collect();
        let (name, path, package) = (name.to_owned(), path.into(), package.to_path_buf());
        let whole = Binary { name, path, is_python: false, package, tests, is_whole: true };
        binaries.extend(whole.chosen(args));
    }
    Ok(binaries)
}

/// The tests of Python that are chosen, with the package that `make test` has installed.
fn of_python(root: &Path, args: &Args) -> Result<Option<Binary>> {
    let path = std::path::absolute(crate::target(root).join("python-venv/bin/python"))?;
    if !path.exists() {
        println!("no tests of Python: `cargo xtask python` makes their environment");
        return Ok(None);
    }
    let mut collect = Command::new(&path);
    collect.args(PYTEST).args(["--collect-only", PYTHON_TESTS]).current_dir(root);
    let output = collect.output().context("pytest")?;
    ensure!(output.status.success(), "pytest: {}", String::from_utf8_lossy(&output.stdout));
    let listed = String::from_utf8(output.stdout)?;
    let tests = listed.lines().filter(|line| line.starts_with(PYTHON_TESTS));
    let tests: Vec<String> = tests.map(str::to_owned).collect();
    ensure!(!tests.is_empty(), "pytest lists no tests:\n{listed}");
    let (name, package) = ("python".to_owned(), root.to_path_buf());
    let whole = Binary { name, path, is_python: true, package, tests, is_whole: true };
    Ok(whole.chosen(args))
}

impl Binary {
    /// With the tests alone that `args` choose; `None` if that is none.
    fn chosen(mut self, args: &Args) -> Option<Self> {
        let count = self.tests.len();
        self.tests.retain(|test| {
            let test = format!("{}::{test}", self.name);
            args.tests.is_empty() || args.tests.iter().any(|part| test.contains(part.as_str()))
        });
        self.is_whole = self.tests.len() == count;
        (!self.tests.is_empty()).then_some(self)
    }
}

/// How pytest is started, and the folder of its tests.
const PYTEST: &[&str] = &["-m", "pytest", "-q", "-p", "no:cacheprovider"];
const PYTHON_TESTS: &str = "tests/python";
const PYTHON_PACKAGE: &str = "forerun-python";
/// The file that tests append to what they skip.
const SKIPPED: &str = "skipped.txt";

#[cfg(test)]
mod tests {
    use super::{failed_python_tests, failed_tests};

    #[test]
    fn failed_tests_are_those_of_the_last_list() {
        let output = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nfailures:\n    x\n\n\
                      \nfailures:\n    a\n    m::b\n\ntest result: FAILED. 0 passed; 2 failed;\n";
        assert_eq!(failed_tests(output), ["a", "m::b"]);
        assert!(failed_tests("test result: ok. 1 passed;\n").is_empty());
        let output = "F\n=== FAILURES ===\nE  x\nFAILED tests/a.py::b[c d] - assert 0\n1 failed\n";
        assert_eq!(failed_python_tests(output), ["tests/a.py::b[c d]"]);
    }
}
