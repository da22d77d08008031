//! The measured command: its build, its runs, and the parsing of its output and records.
//!
//! # Invariants
//! - A failed command is an error with its output; no bench continues without a figure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Cargo's target folder.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from)
}

/// The program to measure: the named one, or the release build.
pub(crate) fn release(root: &Path, named: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = named {
        return Ok(path.to_path_buf());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(cargo);
    cargo.args(["build", "--release", "--package", "forerun-cli"]).current_dir(root);
    ensure!(cargo.status().context("cargo build")?.success(), "the release build failed");
    Ok(target(root).join("release/forerun"))
}

/// The default folder of a bench's records.
pub(crate) fn place(root: &Path, bench: &str) -> Result<PathBuf> {
    let word = |program: &str, words: &[&str]| {
        output_of(Command::new(program).args(words).current_dir(root))
            .map(|text| text.trim().to_owned())
    };
    let (day, machine) = (word("date", &["-u", "+%F"])?, word("uname", &["-n"])?);
    let commit = word("git", &["rev-parse", "--short", "HEAD"])?;
    Ok(root.join("bench/runs").join(format!("{day}-{machine}-{commit}")).join(bench))
}

/// The version of `forerun`, and this machine in words.
pub(crate) fn machine(forerun: &Path) -> Result<[String; 2]> {
    let word = |program: &Path, words: &[&str]| {
        output_of(Command::new(program).args(words)).map(|text| text.trim().to_owned())
    };
    let version = word(forerun, &["--version"])?;
    let (count, system) = (word("nproc".as_ref(), &[])?, word("uname".as_ref(), &["-srm"])?);
    Ok([version, format!("{count} processors, {system}")])
}

/// The stdout of `command`, which must succeed.
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
    let text = fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

/// Writes `record` as JSON.
pub(crate) fn write(path: &Path, record: &Value) -> Result<()> {
    put(path, &format!("{record}\n"))
}

/// Writes `text`.
pub(crate) fn put(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// `path`, which is a folder from now on.
pub(crate) fn folder(path: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
    Ok(path)
}
