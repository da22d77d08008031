//! Dependencies between crates: none but those that the table of crates allows.
//!
//! Reads `Cargo.toml` line by line: the sections whose names end in `dependencies`, the
//! `package` and `path` of an entry. That is all of TOML that manifests here use. Tests may not
//! cross the fence either, but they may use any crate from elsewhere, and the crate for tests.

use super::crates::{self, Crate, Foreign};
use super::finding::Finding;
use super::source::File;

/// Manifests with an edge that has no place in the table.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    if !file.path.ends_with("/Cargo.toml") {
        return Vec::new();
    }
    match crates::of(file.path) {
        None => Vec::new(),
        Some(Err(name)) => vec![Finding::new(
            file.path,
            1,
            format!("crate '{name}' has no row in the table of crates"),
            "write a decision record that says why it is a crate, and its row in \
             xtask/src/tidy/crates.rs",
        )],
        Some(Ok(row)) => {
            let bad = |dependency| judge(file.path, row, &dependency);
            dependencies(file.text).into_iter().filter_map(bad).collect()
        }
    }
}

fn judge(path: &str, row: &Crate, dependency: &Dependency) -> Option<Finding> {
    let name = &dependency.name;
    if dependency.ours {
        let for_tests = dependency.for_tests && name == crates::FOR_TESTS;
        if for_tests || row.imports.contains(&name.as_str()) {
            return None;
        }
        let may = match row.imports {
            [] => "no crate of this repository".to_owned(),
            imports => format!("only {}", imports.join(", ")),
        };
        return Some(Finding::new(
            path,
            dependency.line,
            format!("{} may not import {name}", row.name),
            format!("it may import {may}: pass what it needs as an argument, or move the code"),
        ));
    }
    match row.foreign {
        Foreign::Any => None,
        Foreign::Only(_) if dependency.for_tests => None,
        Foreign::Only(names) if names.contains(&name.as_str()) => None,
        Foreign::Only(names) => Some(Finding::new(
            path,
            dependency.line,
            format!("{} may not depend on {name}", row.name),
            format!(
                "it may depend on {} alone: write it here, or put it elsewhere",
                names.join(", ")
            ),
        )),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Dependency {
    line: usize,
    name: String,
    /// A crate of this repository; `name` is then its folder.
    ours: bool,
    for_tests: bool,
}

enum Section {
    Other,
    /// `[dependencies]`: a line an entry.
    Entries {
        for_tests: bool,
    },
    /// `[dependencies.NAME]`: a line a key of that entry, the last of the list.
    Entry,
}

fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    let mut section = Section::Other;
    for (number, line) in (1..).zip(manifest.lines().map(str::trim)) {
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let for_tests = header.contains("dev-dependencies");
            section = if header.ends_with("dependencies") {
                Section::Entries { for_tests }
            } else if let Some((_, name)) = header.rsplit_once("dependencies.") {
                found.push(dependency(number, name, "", for_tests));
                Section::Entry
            } else {
                Section::Other
            };
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        match section {
            Section::Other => {}
            Section::Entries { for_tests } => {
                found.push(dependency(number, key, value, for_tests));
            }
            Section::Entry => {
                let last = found.pop().expect("the section's header pushed its entry");
                let named = dependency(last.line, &last.name, line, last.for_tests);
                found.push(Dependency { ours: named.ours || last.ours, ..named });
            }
        }
    }
    found
}

/// The dependency that `key = value` names, by its package or path rather than by its alias.
fn dependency(line: usize, key: &str, value: &str, for_tests: bool) -> Dependency {
    let key = key.trim().trim_matches('"');
    let key = key.split_once('.').map_or(key, |(name, _)| name);
    let package = quoted(value, "package").unwrap_or(key);
    let by_path =
        quoted(value, "path").and_then(|path| path.trim_end_matches('/').rsplit('/').next());
    let by_name = package.strip_prefix("forerun-").or((package == "xtask").then_some(package));
    let ours = by_path.or(by_name);
    Dependency { line, name: ours.unwrap_or(package).to_owned(), ours: ours.is_some(), for_tests }
}

/// The string that `key` is set to in an inline table or on a line of its own.
fn quoted<'a>(value: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = value.split_once(key)?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
    Some(rest.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::finding::assert_rows;

    #[test]
    fn edges_outside_the_table_are_named() {
        #[rustfmt::skip]
        assert_rows(check, &[ // why, path, manifest, findings
            ("an edge of the table", "crates/engine/Cargo.toml",
             "[dependencies]\nforerun-core.workspace = true\nforerun-io = { workspace = true }\n",
             &[]),
            ("sim does not know io", "lab/sim/Cargo.toml",
             "[dependencies]\nforerun-core.workspace = true\nforerun-io.workspace = true\n",
             &[(3, "may import only core")]),
            ("tests may not cross either", "crates/core/Cargo.toml",
             "[dev-dependencies]\nforerun-sim.workspace = true\n",
             &[(2, "no crate of this repository")]),
            ("nor build scripts", "crates/report/Cargo.toml",
             "[build-dependencies]\nforerun-engine.workspace = true\n", &[(2, "only core")]),
            ("nor by another name", "lab/sim/Cargo.toml",
             "[dependencies]\nstore = { package = \"forerun-io\", version = \"0.1\" }\n",
             &[(2, "only core")]),
            ("nor by path", "lab/sim/Cargo.toml",
             "[dependencies]\nstore = { path = \"../io\" }\n", &[(2, "only core")]),
            ("nor in a section of its own", "lab/sim/Cargo.toml",
             "[dependencies.forerun-io]\nworkspace = true\n", &[(1, "only core")]),
            ("nor so by path", "lab/sim/Cargo.toml",
             "[dependencies.store]\npath = \"../io\"\nfeatures = []\n", &[(1, "only core")]),
            ("nor for one platform", "lab/sim/Cargo.toml",
             "[target.'cfg(unix)'.dependencies]\nforerun-io.workspace = true\n",
             &[(2, "only core")]),
            ("nobody imports xtask", "crates/cli/Cargo.toml",
             "[dependencies]\nxtask = { path = \"../../xtask\" }\n",
             &[(2, "may import only core")]),
            ("xtask imports nobody", "xtask/Cargo.toml",
             "[dependencies]\nforerun-core.workspace = true\n",
             &[(2, "no crate of this repository")]),
            ("core has one dependency", "crates/core/Cargo.toml",
             "[dependencies]\nhashbrown.workspace = true\nsmallvec = \"1\"\n",
             &[(3, "hashbrown alone")]),
            ("core's tests are free", "crates/core/Cargo.toml",
             "[dev-dependencies]\nproptest = \"1\"\n", &[]),
            ("tests share a crate", "crates/core/Cargo.toml",
             "[dev-dependencies]\nforerun-testkit.workspace = true\n", &[]),
            ("which the product does not know", "crates/core/Cargo.toml",
             "[dependencies]\nforerun-testkit.workspace = true\n",
             &[(2, "no crate of this repository")]),
            ("a crate without a row", "crates/novel/Cargo.toml",
             "[package]\nname = \"forerun-novel\"\n", &[(1, "decision record")]),
            ("other sections do not count", "crates/core/Cargo.toml",
             "[features]\nforerun-io = []\n# [dependencies]\n", &[]),
            ("comments do not count", "crates/core/Cargo.toml",
             "[dependencies]\n# smallvec = \"1\"\n", &[]),
        ]);
    }
}
