//! `cargo xtask api`: is the list of the engine's public items current?
//!
//! ```text
//!   crates/engine --- nightly rustdoc, cargo-public-api ---> items, one a line
//!   crates/engine/public-api.txt --------- compared --------------+
//! ```
//!
//! A change of the surface is a change of the list, which a review sees: `cargo xtask api --bless`
//! writes it. What every type has by derives and blanket impls is left out of it.
//!
//! # Invariants
//! - Where the nightly compiler or cargo-public-api is not installed, the check is left out by
//!   name; it does not pass.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::sanitize::Outcome;

/// The list of public items of the engine, the crate that programs embed
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the list instead of comparing it
    #[arg(long)]
    bless: bool,
}

/// Compares the list, or writes it; whether it is current.
pub(crate) fn run(root: &Path, args: &Args) -> Result<bool> {
    if let Some(lacking) = lacking() {
        anyhow::bail!("{lacking}");
    }
    if args.bless {
        std::fs::write(root.join(LIST), items(root)?).context(LIST)?;
        return Ok(true);
    }
    Ok(matches!(check(root)?, Outcome::Clean))
}

/// As a step of `ci`.
pub(crate) fn check(root: &Path) -> Result<Outcome> {
    if let Some(lacking) = lacking() {
        return Ok(Outcome::LeftOut(lacking));
    }
    let listed = std::fs::read_to_string(root.join(LIST)).context(LIST)?;
    let changes = changes(&listed, &items(root)?);
    if changes.is_empty() {
        return Ok(Outcome::Clean);
    }
    for line in &changes {
        println!("{line}");
    }
    println!("{LIST}: {} lines differ; `cargo xtask api --bless` writes it", changes.len());
    Ok(Outcome::Found)
}

fn lacking() -> Option<&'static str> {
    let has = |args: &[&str]| {
        let output = Command::new("rustup").args(args).stdin(Stdio::null()).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !has(&["run", "nightly", "rustc", "--version"]) {
        return Some("public API: no nightly compiler; `rustup toolchain install nightly`");
    }
    let tool = has(&["run", "nightly", "cargo", "public-api", "--version"]);
    (!tool).then_some("public API: no cargo-public-api; `cargo install cargo-public-api`")
}

/// The public items as they are, one a line.
fn items(root: &Path) -> Result<String> {
    let mut cargo = Command::new("rustup");
    cargo.args(["run", "nightly", "cargo", "public-api", "--package", "forerun-engine"]);
    cargo.args(["--features", "futures", "--color", "never"]);
    cargo.args(["--omit", "blanket-impls,auto-trait-impls,auto-derived-impls"]);
    let output = cargo.current_dir(root).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.context("rustup run nightly cargo public-api")?;
    ensure!(output.status.success(), "cargo public-api: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// What has gone (`-`) and what has come (`+`), in the order of the lists.
fn changes(listed: &str, found: &str) -> Vec<String> {
    let without = |lines: &str, other: &str, sign| -> Vec<String> {
        let other: Vec<_> = other.lines().collect();
        lines.lines().filter(|line| !other.contains(line)).map(|it| format!("{sign}{it}")).collect()
    };
    [without(listed, found, '-'), without(found, listed, '+')].concat()
}

const LIST: &str = "crates/engine/public-api.txt";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_and_what_came_is_named() {
        #[rustfmt::skip]
        let rows: [(&str, &str, &str, &[&str]); 4] = [
            ("the same",    "a\nb\n", "a\nb\n",    &[]),
            ("one came",    "a\nc\n", "a\nb\nc\n", &["+b"]),
            ("one went",    "a\nb\n", "a\n",       &["-b"]),
            ("one changed", "a\nb\n", "a\nB\n",    &["-b", "+B"]),
        ];
        for (why, listed, found, expected) in rows {
            assert_eq!(changes(listed, found), expected, "{why}");
        }
    }
}
