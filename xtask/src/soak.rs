//! `cargo xtask soak`: builds the commands for release and becomes `forerun soak`.
//!
//! The soak itself is a hidden command, as only the commands may read the clock and listen for
//! signals. It replaces this process, so that a signal meets no process in between and its exit
//! status is that of the chore.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Runs it with `options`; comes back only if it could not be started.
pub(crate) fn run(root: &Path, options: &[String]) -> Result<bool> {
    let words = ["build", "--release", "--package", "forerun-cli"];
    let built = Command::new(crate::cargo()).args(words).current_dir(root).status();
    if !built.context("cargo build")?.success() {
        return Ok(false);
    }
    let program = crate::target(root).join("release/forerun");
    let error = Command::new(&program).arg("soak").args(options).exec();
    Err(error).with_context(|| program.display().to_string())
}
