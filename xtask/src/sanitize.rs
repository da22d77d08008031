//! `cargo xtask sanitize`: do the crates that hold memory touch any that they do not?
//!
//! Two tools look, each from its side. `AddressSanitizer` is compiled in, so it sees every access
//! of Rust code, and leaks; it does not see what the kernel writes. valgrind runs the ordinary
//! program, and knows which memory a system call reads and writes. Neither suppresses anything.
//!
//! ```text
//!   address    nightly: io, engine and their tests
//!   shim       nightly: the shim   <-- loaded into programs by the ordinary tests of steer
//!   valgrind   the ordinary tests of io
//! ```
//!
//! A tool that is not installed is left out, by name.
//!
//! # Invariants
//! - The closing line is the last one printed, on success and on failure.
//! - What is left out of a tool's run is in a list here, each with its reason.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clap::ValueEnum as _;

/// A tool that looks for faults of memory.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Tool {
    Address,
    Shim,
    Valgrind,
}

/// Runs `tools`, or all where none is named; whether none found anything.
pub(crate) fn run(root: &Path, tools: &[Tool]) -> Result<bool> {
    let (mut passed, mut failed) = (0, 0);
    let tools = if tools.is_empty() { Tool::value_variants() } else { tools };
    for tool in tools {
        let value = tool.to_possible_value().expect("no tool is hidden");
        let name = value.get_name();
        println!("\n== {name}");
        let outcome = match tool {
            Tool::Address => address(root),
            Tool::Shim => shim(root),
            Tool::Valgrind => valgrind(root),
        };
        match outcome? {
            Outcome::LeftOut(what) => println!("left out: {what}"),
            Outcome::Clean => {
                println!("-- {name}: ok");
                passed += 1;
            }
            Outcome::Found => {
                println!("-- {name}: FAILED");
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// What came of a tool.
pub(crate) enum Outcome {
    Clean,
    Found,
    LeftOut(&'static str),
}

/// The tests of io and engine with `AddressSanitizer` compiled in, which takes a nightly compiler.
fn address(root: &Path) -> Result<Outcome> {
    let mut cargo = match instrumented("test")? {
        Ok(cargo) => cargo,
        Err(lacking) => return Ok(Outcome::LeftOut(lacking)),
    };
    cargo
        .args(["--lib", "--tests", "--package", "forerun-io", "--package", "forerun-engine"])
        .arg("--no-fail-fast")
        .env("ASAN_OPTIONS", ADDRESS_OPTIONS);
    leave_out(cargo.arg("--"), NOT_FOR_ADDRESS);
    outcome(root, &mut cargo)
}

/// The shim with `AddressSanitizer` compiled in: its own tests, and those that load it into
/// programs. A library has no runtime of the sanitizer within, and brings none that a program
/// could load, so the C compiler's goes before it.
pub(crate) fn shim(root: &Path) -> Result<Outcome> {
    let Some(runtime) = runtime() else {
        let what = "the shim: the C compiler has no libasan.so; on Debian: libasan8";
        return Ok(Outcome::LeftOut(what));
    };
    let (mut tests, mut build) = match (instrumented("test")?, instrumented("build")?) {
        (Ok(test), Ok(build)) => (test, build),
        (Err(lacking), _) | (_, Err(lacking)) => return Ok(Outcome::LeftOut(lacking)),
    };
    tests.args(["--lib", "--package", "forerun-preload"]).env("ASAN_OPTIONS", ADDRESS_OPTIONS);
    build.args(["--lib", "--package", "forerun-preload"]);
    for command in [&mut tests, &mut build] {
        if let Outcome::Found = outcome(root, command)? {
            return Ok(Outcome::Found);
        }
    }
    let library = Path::new(SANITIZED).join(host()?).join("debug/libforerun_preload.so");
    // The tests themselves, and what they start, are ordinary programs.
    let mut cargo = Command::new(crate::cargo());
    cargo
        .args(["test", "--package", "forerun-steer", "--test", "shim", "--no-fail-fast"])
        .env("FORERUN_TEST_SHIM", root.join(library))
        .env("FORERUN_TEST_BEFORE_SHIM", runtime)
        .env("ASAN_OPTIONS", SHIM_OPTIONS);
    outcome(root, &mut cargo)
}

/// `cargo COMMAND` of the nightly compiler, whose builds have `AddressSanitizer` in them; or what
/// is lacking.
fn instrumented(command: &str) -> Result<Result<Command, &'static str>> {
    let host = host()?;
    if !ADDRESS_TARGETS.contains(&host.as_str()) {
        return Ok(Err("AddressSanitizer: not for this machine"));
    }
    if !answers(Command::new("rustup").args(["run", "nightly", "rustc", "--version"])) {
        return Ok(Err(
            "AddressSanitizer: no nightly compiler; `rustup toolchain install nightly`",
        ));
    }
    let mut cargo = Command::new("rustup");
    cargo
        .args(["run", "nightly", "cargo", command, "--target", &host])
        // A folder of its own: the flags would have all other builds begin anew.
        .args(["--target-dir", SANITIZED])
        .env("RUSTFLAGS", "-Zsanitizer=address -Cforce-frame-pointers=yes");
    Ok(Ok(cargo))
}

/// The C compiler's `AddressSanitizer`, as a library that a program can load.
fn runtime() -> Option<PathBuf> {
    let output = Command::new("cc").arg("-print-file-name=libasan.so").output().ok()?;
    // Only a name, where there is none.
    PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()).canonicalize().ok()
}

/// The tests of io under valgrind's memcheck.
fn valgrind(root: &Path) -> Result<Outcome> {
    if !answers(Command::new("valgrind").arg("--version")) {
        let what = "valgrind: not installed; on Debian: apt-get install valgrind";
        return Ok(Outcome::LeftOut(what));
    }
    let mut cargo = Command::new(crate::cargo());
    cargo
        .args(["test", "--lib", "--tests", "--package", "forerun-io", "--no-fail-fast"])
        .env(runner_variable(&host()?), MEMCHECK)
        .args(["--", "--test-threads=1"]);
    leave_out(&mut cargo, NOT_FOR_VALGRIND);
    outcome(root, &mut cargo)
}

/// Has the tests left out, each with its reason.
fn leave_out(cargo: &mut Command, tests: &[(&str, &str)]) {
    for (test, why) in tests {
        println!("left out: {test}: {why}");
        cargo.args(["--skip", test]);
    }
}

/// An allocation that cannot be had is refused, as the system does, and not an error by itself:
/// tests ask for more memory than any machine has.
const ADDRESS_OPTIONS: &str =
    "detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1";

/// The same for programs of other authors, which may leave memory unfreed.
const SHIM_OPTIONS: &str = "detect_leaks=0:detect_stack_use_after_return=1";

/// Cargo puts it before each test program.
const MEMCHECK: &str = "valgrind --quiet --error-exitcode=9 --fair-sched=yes \
    --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite";

/// Parts of names of tests that valgrind does not run, each with the reason.
const NOT_FOR_VALGRIND: &[(&str, &str)] = &[
    (
        "what_the_system_refuses_is_said_with_its_reason",
        "the program that runs is valgrind, so the file of the test is not busy",
    ),
    (
        "what_cannot_be_opened_is_the_same_error_on_every_interface",
        "the program that runs is valgrind, so the file of the test is not busy",
    ),
    (
        "memory_that_cannot_be_had_is_an_error",
        "valgrind itself ends where more memory is asked for than it can count",
    ),
    (
        "where_io_uring_is_refused_the_next_best_is_used_and_says_why",
        "the filter of system calls is for valgrind's own calls too",
    ),
    FORKED,
];

/// What `AddressSanitizer` cannot run.
const NOT_FOR_ADDRESS: &[(&str, &str)] = &[FORKED];

const FORKED: (&str, &str) = (
    "a_child_reads_for_itself_and_leaves_the_rings_of_its_parent_alone",
    "a child of a fork finds the locks of the tool as other threads held them",
);

const SANITIZED: &str = "target/sanitize";

/// Where the compiler has `AddressSanitizer`, of the machines that this was tried on.
const ADDRESS_TARGETS: &[&str] = &["x86_64-unknown-linux-gnu"];

fn outcome(root: &Path, command: &mut Command) -> Result<Outcome> {
    let status = command.current_dir(root).stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("{}", command.get_program().display()))?;
    Ok(if status.success() { Outcome::Clean } else { Outcome::Found })
}

/// Whether a tool is there.
fn answers(command: &mut Command) -> bool {
    let output = command.stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}

/// The name of this machine, as the compiler has it.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("rustc -vV")?;
    let text = String::from_utf8(output.stdout).context("rustc -vV")?;
    host_in(&text).context("rustc -vV names no host")
}

fn host_in(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}

/// The variable that names what cargo runs programs with.
fn runner_variable(host: &str) -> String {
    format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace(['-', '.'], "_"))
}

#[cfg(test)]
mod tests {
    use super::{host_in, runner_variable};

    #[test]
    fn the_compilers_machine_names_cargos_variable() {
        let text = "rustc 1.88.0\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\nrelease: 1\n";
        let host = host_in(text).unwrap();
        assert_eq!(runner_variable(&host), "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER");
        assert_eq!(host_in("error\n"), None);
    }
}
