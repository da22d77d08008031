//! Dependencies between crates: none but those that the table of crates allows.
//!
//! `cargo metadata` says what each manifest depends on. Tests may not cross the fence either, but
//! they may use any crate from elsewhere, and the crate for tests.
//!
//! # Invariants
//! - The product does not know the laboratory: below `crates/`, only the two fronts that mount its
//!   commands import what lies below `lab/`, whatever the table says.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::crates::{self, Crate, Foreign};
use super::finding::Finding;

/// Asks cargo, and judges each dependency of each crate.
pub(crate) fn check_workspace(root: &Path) -> Result<Vec<Finding>> {
    let metadata = super::metadata(root)?;
    let line = |manifest: &str, name: &str| {
        let text = std::fs::read_to_string(root.join(manifest)).unwrap_or_default();
        1 + text.lines().position(|line| line.starts_with(name)).unwrap_or(0)
    };
    check(&metadata, root, &line)
}

/// The edges of `metadata` that have no place in the table; `line` finds one in its manifest.
fn check(
    metadata: &Value,
    root: &Path,
    line: &dyn Fn(&str, &str) -> usize,
) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let manifest = package["manifest_path"].as_str().context("a package without a manifest")?;
        let Ok(manifest) = Path::new(manifest).strip_prefix(root) else { continue };
        let manifest = manifest.to_str().context("a path that is not UTF-8")?;
        let row = match crates::of(manifest) {
            None => continue,
            Some(Ok(row)) => row,
            Some(Err(name)) => {
                let what = format!("crate '{name}' has no row in the table of crates");
                let instead = "write a decision record that says why it is a crate, and its row in \
                               xtask/src/tidy/crates.rs";
                found.push(Finding::new(manifest, 1, what, instead));
                continue;
            }
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if let Some((what, instead)) = judge(manifest, row, dependency) {
                let name = dependency["name"].as_str().unwrap_or_default();
                let name = dependency["rename"].as_str().unwrap_or(name);
                found.push(Finding::new(manifest, line(manifest, name), what, instead));
            }
        }
    }
    Ok(found)
}

/// What is wrong with a dependency, and what to do instead.
fn judge(manifest: &str, row: &Crate, dependency: &Value) -> Option<(String, String)> {
    let name = dependency["name"].as_str()?;
    let for_tests = dependency["kind"] == "dev";
    if let Some(place) = dependency["path"].as_str() {
        let name = name.strip_prefix("forerun-").unwrap_or(name);
        let is_lab = Path::new(place).parent().is_some_and(|folder| folder.ends_with("lab"));
        if is_lab && manifest.starts_with("crates/") && !FRONTS.contains(&row.name) {
            let instead = "the product does not know the laboratory: move what it needs to crates/";
            return Some((format!("{} may not import lab/{name}", row.name), instead.to_owned()));
        }
        if for_tests && name == crates::FOR_TESTS || row.imports.contains(&name) {
            return None;
        }
        let may = match row.imports {
            [] => "no crate of this repository".to_owned(),
            imports => format!("only {}", imports.join(", ")),
        };
        return Some((
            format!("{} may not import {name}", row.name),
            format!("it may import {may}: pass what it needs as an argument, or move the code"),
        ));
    }
    match row.foreign {
        Foreign::Only(names) if !for_tests && !names.contains(&name) => Some((
            format!("{} may not depend on {name}", row.name),
            format!(
                "it may depend on {} alone: write it here, or put it elsewhere",
                names.join(", ")
            ),
        )),
        Foreign::Any | Foreign::Only(_) => None,
    }
}

/// The crates of the product that mount the lab's commands.
const FRONTS: &[&str] = &["cli", "python"];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::check;

    #[test]
    fn edges_outside_the_table_are_named() {
        let (core, io, sim) = ("crates/core", "crates/io", "lab/sim");
        #[rustfmt::skip]
        let rows = [ // why, crate, kind, dependency, its place, finding
            ("an edge of the table", "crates/engine", None, "forerun-io", Some(io), ""),
            ("sim does not know io", "lab/sim", None, "forerun-io", Some(io),
             "may import only core"),
            ("tests may not cross either", core, Some("dev"), "forerun-io", Some(io),
             "no crate of this repository"),
            ("nor build scripts", "crates/report", Some("build"), "forerun-io", Some(io),
             "only core"),
            ("nobody imports xtask", "crates/cli", None, "xtask", Some("xtask"),
             "may import only core"),
            ("xtask imports nobody", "xtask", None, "forerun-core", Some(core),
             "no crate of this repository"),
            ("the product does not know the lab", "crates/io", None, "forerun-sim", Some(sim),
             "the laboratory"),
            ("in tests neither", "crates/steer", Some("dev"), "forerun-sim", Some(sim),
             "the laboratory"),
            ("but a front mounts it", "crates/cli", None, "forerun-lab", Some("lab/commands"), ""),
            ("core has one dependency", core, None, "smallvec", None, "hashbrown alone"),
            ("which is this", core, None, "hashbrown", None, ""),
            ("core's tests are free", core, Some("dev"), "proptest", None, ""),
            ("tests share a crate", core, Some("dev"), "forerun-testkit", Some("crates/testkit"),
             ""),
            ("which the product does not know", core, None, "forerun-testkit",
             Some("crates/testkit"), "no crate of this repository"),
            ("a crate without a row", "crates/novel", None, "smallvec", None, "decision record"),
        ];
        for (why, folder, kind, name, place, instead) in rows {
            let place = place.map(|place| format!("/r/{place}"));
            let dependency = json!({ "name": name, "kind": kind, "path": place, "rename": null });
            let package = json!({ "manifest_path": format!("/r/{folder}/Cargo.toml"),
                "dependencies": [dependency] });
            let metadata = json!({ "packages": [package] });
            let found = check(&metadata, Path::new("/r"), &|_, _| 7).expect("it is whole");
            assert_eq!(found.len(), usize::from(!instead.is_empty()), "{why}: {found:?}");
            for finding in found {
                assert!(finding.instead.contains(instead), "{why}: {finding}");
                assert!(finding.line == 7 || folder == "crates/novel", "{why}: {finding}");
            }
        }
    }
}
