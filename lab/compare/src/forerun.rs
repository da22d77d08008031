//! The command that is measured: built, run, and what it printed or wrote read back.
//!
//! # Invariants
//! - A command that fails is an error with what it printed; no bench goes on without a figure.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Where cargo puts what it builds.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from)
}

/// The program to measure: the one that was named, or the release build, which knows its commit.
pub(crate) fn release(root: &Path, named: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = named {
        return Ok(path.to_path_buf());
    }
    let mut git = Command::new("git");
    let commit = git.args(["rev-parse", "--short", "HEAD"]).current_dir(root).output();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(cargo);
    cargo.args(["build", "--release", "--package", "forerun-cli"]).current_dir(root);
    if let Ok(commit) = commit
        && commit.status.success()
    {
        cargo.env("FORERUN_COMMIT", String::from_utf8_lossy(&commit.stdout).trim());
    }
    ensure!(cargo.status().context("cargo build")?.success(), "the release build failed");
    Ok(target(root).join("release/forerun"))
}

/// Where the records of a bench go unless a folder is named.
pub(crate) fn place(root: &Path, bench: &str) -> Result<PathBuf> {
    let word = |program: &str, words: &[&str]| {
        output_of(Command::new(program).args(words).current_dir(root))
            .map(|text| text.trim().to_owned())
    };
    let (day, machine) = (word("date", &["-u", "+%F"])?, word("uname", &["-n"])?);
    let commit = word("git", &["rev-parse", "--short", "HEAD"])?;
    Ok(root.join("bench/runs").join(format!("{day}-{machine}-{commit}")).join(bench))
}

/// What `command` prints on stdout; it must succeed.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| name.clone())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{name} failed ({}): {}", output.status, text.trim());
    Ok(text)
}

/// The JSON of a file.
pub(crate) fn read(path: &Path) -> Result<Value> {
    let text = std::fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

/// Writes `record` as JSON.
pub(crate) fn write(path: &Path, record: &Value) -> Result<()> {
    std::fs::write(path, format!("{record}\n")).with_context(|| path.display().to_string())
}
