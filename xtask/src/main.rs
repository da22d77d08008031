//! Repository chores, run as `cargo xtask COMMAND` from anywhere in the tree.
//!
//! Plain programs and plain code: what can be written as a shell line stays one in `ci`; what
//! needs thought (the tidy checks, the sample of mutants) is a pure function with a table test.
//! Exit codes: 0 done, 1 the chore found something, 2 bad usage.
#![forbid(unsafe_code)]

mod api;
mod ci;
mod flakes;
mod mutants;
mod same;
mod sanitize;
mod tidy;

use std::num::NonZeroU32;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};
use clap::Parser;

/// Repository chores: what a change must pass, and how good it is
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Chore {
    /// The checks that rustc and clippy do not make
    Tidy,
    /// Everything that a change must pass
    Ci(ci::Skips),
    /// The Python package
    Python {
        /// Beside everything that it works with
        #[arg(long)]
        full: bool,
        #[command(flatten)]
        skips: ci::Skips,
    },
    /// The release wheel, into target/wheels
    Wheel,
    /// A sample of small faults in core: do its tests notice?
    Mutants(mutants::Args),
    /// The live engine at full speed, everything checked: 10 minutes and 100M reads unless said
    /// otherwise
    #[command(disable_help_flag = true)]
    Soak {
        /// Options of `forerun soak`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// io, engine and the shim under the address sanitizer, io under valgrind
    Sanitize {
        /// Some of the tools [default: all]
        tools: Vec<sanitize::Tool>,
    },
    /// Whether the list of public items is current
    Api(api::Args),
    /// Whether the working tree decides what an older commit decided
    Same(same::Args),
    /// What programs see under `run` and `explain`, in a table beside what they see alone
    Transparent,
    /// How long `run` outlives its programs, and what it takes of a processor, beside sick file
    /// systems and hostile programs: tables
    Bounds {
        /// Ends of each row
        #[arg(long, value_name = "N", default_value = "1000")]
        ends: NonZeroU32,
        /// What a program runs for
        #[arg(long, value_name = "SECONDS", default_value = "3")]
        seconds: NonZeroU32,
    },
    /// How often tests fail beside busy loops
    Flakes(flakes::Args),
    /// A bench beside peers, by `forerun-compare`: engine, streams, programs, learned, overhead,
    /// virtual, sweep, lab, serve or replay
    #[command(disable_help_flag = true)]
    Bench {
        /// The bench and its options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, default_value = "--help")]
        words: Vec<String>,
    },
}

fn main() -> ExitCode {
    let (root, chore) = (root(), Chore::parse());
    take_interrupts();
    let done = match chore {
        Chore::Tidy => tidy::run(&root),
        Chore::Ci(skips) => ci::run(&root, skips),
        Chore::Python { full, skips } => ci::python(&root, full, skips),
        Chore::Wheel => ci::wheel(&root),
        Chore::Mutants(args) => mutants::run(&root, &args),
        Chore::Soak { options } => {
            become_one(&root, &["--release", "--package", "forerun-cli", "--", "soak"], &options)
        }
        Chore::Sanitize { tools } => sanitize::run(&root, &tools),
        Chore::Api(args) => api::run(&root, &args),
        Chore::Same(args) => same::run(&root, &args),
        Chore::Transparent => transparent(&root),
        Chore::Bounds { ends, seconds } => bounds(&root, ends, seconds),
        Chore::Flakes(args) => flakes::run(&root, &args),
        Chore::Bench { words } => {
            become_one(&root, &["--quiet", "--package", "forerun-compare", "--"], &words)
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Becomes itself with the usual handlers of SIGINT and SIGQUIT where it inherited them ignored, as
/// a script's background job does: its tests interrupt programs. Without an `env` that can, it goes
/// on as it is.
fn take_interrupts() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    if mask & INTERRUPTS == 0 {
        return;
    }
    let usual = || {
        let mut env = Command::new("env");
        env.arg("--default-signal=INT,QUIT");
        env
    };
    let can = usual().arg("true").stderr(Stdio::null()).status().is_ok_and(|it| it.success());
    if let (true, Ok(itself)) = (can, std::env::current_exe()) {
        let error = usual().arg(itself).args(std::env::args_os().skip(1)).exec();
        eprintln!("cargo xtask: SIGINT stays ignored: {error}");
    }
}

/// SIGINT and SIGQUIT in a mask of signals.
const INTERRUPTS: u64 = 0b110;

/// Builds the program that `run` has cargo run, and becomes it with `words`: a signal meets no
/// process in between, and the exit status is the program's.
fn become_one(root: &Path, run: &[&str], words: &[String]) -> Result<bool> {
    let mut cargo = Command::new(cargo());
    cargo.args(["run", "--manifest-path"]).arg(root.join("Cargo.toml")).args(run).args(words);
    Err(cargo.exec()).context("cargo run")
}

/// Becomes the tests that compare programs alone with programs under `run`, which print a table.
fn transparent(root: &Path) -> Result<bool> {
    let mut cargo = Command::new(cargo());
    cargo.args(["test", "--package", "forerun-cli", "--test", "transparent", "--manifest-path"]);
    let cargo = cargo.arg(root.join("Cargo.toml")).args(["--", "--nocapture", "--test-threads=1"]);
    Err(cargo.exec()).context("cargo test")
}

/// Becomes the tests of the bounds of `run`, in series that are long enough for a table.
fn bounds(root: &Path, ends: NonZeroU32, seconds: NonZeroU32) -> Result<bool> {
    let mut cargo = Command::new(cargo());
    cargo.args(["test", "--release", "--package", "forerun-cli", "--test", "run"]);
    cargo.arg("--manifest-path").arg(root.join("Cargo.toml"));
    cargo.args(["--", "ends::", "hostile::", "--nocapture", "--test-threads=1"]);
    let long = ("FORERUN_TEST_SECONDS_MAX", (ends.get() * ENDS_SECONDS_MAX).to_string());
    let all = [("FORERUN_ENDS", ends.to_string()), ("FORERUN_SECONDS", seconds.to_string()), long];
    Err(cargo.envs(all).exec()).context("cargo test")
}

/// What one end of each row takes at most.
const ENDS_SECONDS_MAX: u32 = 10;

/// The root of the repository: this package lies one folder below it.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package lies in a folder of the repository").to_path_buf()
}

/// The cargo that runs this program, so that every step uses one toolchain.
fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Where cargo puts what it builds.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::root;
    use std::process::Command;

    /// Targets of the Makefile that only other targets call, and `help` itself.
    const INNER: [&str; 3] = ["help", "tools", "release"];

    #[test]
    fn make_help_names_each_target_that_people_call() {
        let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
        let mut make = Command::new("make");
        let output =
            make.args(["--no-print-directory", "help"]).current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let help = String::from_utf8(output.stdout).unwrap();
        let makefile = makefile.replace("\\\n", " ");
        let targets = makefile.lines().find_map(|line| line.strip_prefix(".PHONY:")).unwrap();
        for target in targets.split_whitespace().filter(|target| !INNER.contains(target)) {
            let named = help.lines().any(|line| line.starts_with(&format!("make {target} ")));
            assert!(named, "make help does not name {target}");
        }
    }
}
