//! `cargo xtask tidy`: the rules of this repository that neither rustc nor clippy knows.
//!
//! A check is a pure function of one file; it names the line, what is wrong, and what to do
//! instead. Some look further: `links` asks which files exist, `edges` reads cargo's metadata,
//! `circles` and `assertions` judge what all files of a crate have together.
//! To add a check: write `tidy/NAME.rs` with its table test, and add it to `CHECKS`.
//!
//! # Invariants
//! - Only files that git would commit are read; generated and ignored ones are not judged.
//! - Contents of string literals are never judged, except for width and ASCII.

mod assertions;
mod attributes;
mod circles;
mod crates;
mod edges;
mod finding;
mod header;
mod links;
mod names;
mod notes;
mod size;
mod source;
mod std_types;
mod text;
mod unsafety;
mod words;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use finding::Finding;
use source::File;

/// Every check that needs one file alone.
const CHECKS: &[fn(&File) -> Vec<Finding>] = &[
    unsafety::forbidden,
    unsafety::explained,
    size::check,
    header::check,
    names::check,
    notes::check,
    std_types::check,
    attributes::check,
    text::check,
    words::check,
];

/// Runs every check, prints what was found; whether nothing was.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let paths = committed(root)?;
    let (mut findings, mut long, mut read) = (Vec::new(), Vec::new(), 0);
    let mut imports = Vec::new();
    let mut density = assertions::Density::default();
    for path in &paths {
        // Binary files are data, and a tracked file may just have been deleted.
        let Ok(text) = std::fs::read_to_string(root.join(path)) else { continue };
        read += 1;
        let file = File::new(path, &text);
        imports.extend(circles::imports(&file));
        density.add(&file);
        findings.extend(CHECKS.iter().flat_map(|check| check(&file)));
        let there = |target: &str| exists(root, &paths, target);
        let read_page = |page: &str| std::fs::read_to_string(root.join(page)).ok();
        findings.extend(links::check(&file, &there, &read_page));
        long.extend(size::report(&file));
    }
    findings.extend(circles::check(&imports, &paths));
    findings.extend(density.check());
    findings.extend(edges::check_workspace(root)?);
    findings.sort();
    for note in &long {
        println!("note: {note}");
    }
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {read} files, {} findings", findings.len());
    Ok(findings.is_empty())
}

/// Paths that git tracks or would track, relative to the root.
fn committed(root: &Path) -> Result<BTreeSet<String>> {
    let listing = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .args(["--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("tidy lists files with git: install git")?;
    ensure!(
        listing.status.success(),
        "git ls-files failed, tidy needs a clone: {}",
        String::from_utf8_lossy(&listing.stderr).trim()
    );
    let listing = String::from_utf8(listing.stdout).context("a path that is not UTF-8")?;
    Ok(listing.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// What cargo knows of the packages of the workspace.
fn metadata(root: &Path) -> Result<Value> {
    let metadata = Command::new(crate::cargo())
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    let said = String::from_utf8_lossy(&metadata.stderr);
    ensure!(metadata.status.success(), "cargo metadata failed: {}", said.trim());
    serde_json::from_slice(&metadata.stdout).context("cargo's metadata")
}

/// Whether `target` will be there in a fresh clone: a committed file, or a folder of some.
fn exists(root: &Path, paths: &BTreeSet<String>, target: &str) -> bool {
    let folder = format!("{}/", target.trim_end_matches('/'));
    let committed = target.is_empty()
        || paths.contains(target)
        || paths.range(folder.clone()..).next().is_some_and(|path| path.starts_with(&folder));
    committed && root.join(target).exists()
}
