//! Licences and sources of every package that the workspace may build.
//!
//! Cargo's metadata names each package's licence; `deny.toml` lists those that we accept, so
//! that this check and `cargo deny` cannot disagree. This one needs nothing installed. Security
//! advisories are `cargo deny`'s alone.
//!
//! # Sources
//! SPDX licence expressions, annex D of the specification 2.3: `OR`, `AND`, `WITH`, brackets;
//! the slash of old manifests means `OR`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::finding::Finding;

/// Asks cargo and checks what it says.
pub(crate) fn check_workspace(root: &Path) -> Result<Vec<Finding>> {
    let metadata = Command::new(crate::cargo())
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    ensure!(
        metadata.status.success(),
        "cargo metadata --locked failed: {}",
        String::from_utf8_lossy(&metadata.stderr).trim()
    );
    let metadata = serde_json::from_slice(&metadata.stdout).context("cargo's metadata")?;
    let deny = std::fs::read_to_string(root.join("deny.toml")).context("deny.toml")?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    Ok(check(&metadata, &lock, &allowed(&deny)))
}

/// Packages with a licence that is not among `allowed`, or from elsewhere than crates.io.
fn check(metadata: &Value, lock: &str, allowed: &[String]) -> Vec<Finding> {
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or("?");
        let locked = format!("name = \"{name}\"");
        let line = 1 + lock.lines().position(|line| line == locked).unwrap_or(0);
        let licence = package["license"].as_str().unwrap_or("");
        if !accepts(licence, allowed) {
            let what = format!("{name} has the licence '{licence}'");
            let instead = "use another package, or argue for its licence in deny.toml";
            found.push(Finding::new("Cargo.lock", line, what, instead));
        }
        let source = package["source"].as_str().unwrap_or(CRATES_IO);
        if source != CRATES_IO {
            let what = format!("{name} comes from {source}");
            found.push(Finding::new("Cargo.lock", line, what, "take a release from crates.io"));
        }
    }
    found
}

/// The strings of `allow = [...]` in the section `[licenses]`.
fn allowed(deny: &str) -> Vec<String> {
    let section = deny.split_once("[licenses]").map_or("", |(_, rest)| rest);
    let list = section.split_once("\nallow = [").map_or("", |(_, rest)| rest);
    let list = list.split_once(']').map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether one of the choices that the expression `licence` offers is allowed.
fn accepts(licence: &str, allowed: &[String]) -> bool {
    let spaced = licence.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut terms = Terms { words: &words, allowed };
    terms.any_of() == Some(true) && terms.words.is_empty()
}

/// What is left of an expression. Every reader returns `None` where it is malformed.
struct Terms<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl<'a> Terms<'a> {
    fn any_of(&mut self) -> Option<bool> {
        let mut accepted = self.all_of()?;
        while self.take("OR") {
            accepted |= self.all_of()?;
        }
        Some(accepted)
    }

    fn all_of(&mut self) -> Option<bool> {
        let mut accepted = self.one()?;
        while self.take("AND") {
            accepted &= self.one()?;
        }
        Some(accepted)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let accepted = self.any_of()?;
            return self.take(")").then_some(accepted);
        }
        let name = self.next()?;
        let name = if self.take("WITH") {
            format!("{name} WITH {}", self.next()?)
        } else {
            name.to_owned()
        };
        Some(self.allowed.contains(&name))
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }
}

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[cfg(test)]
mod tests {
    use super::{accepts, allowed, check};

    #[test]
    fn an_expression_is_accepted_when_a_choice_is_allowed() {
        let list = ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        #[rustfmt::skip]
        let rows = [ // why                       expression                             accepted
            ("a listed licence",                  "MIT",                                 true),
            ("another",                           "GPL-3.0-only",                        false),
            ("a choice",                          "GPL-3.0-only OR MIT",                 true),
            ("the choice of old manifests",       "MIT/Apache-2.0",                      true),
            ("both, one is missing",              "MIT AND GPL-3.0-only",                false),
            ("both",                              "MIT AND Zlib",                        true),
            ("and binds tighter",                 "MIT OR Zlib AND GPL-3.0-only",        true),
            ("brackets bind tighter still",       "(MIT OR Zlib) AND GPL-3.0-only",      false),
            ("an exception is another licence",   "Apache-2.0",                          false),
            ("which may be listed",               "Apache-2.0 WITH LLVM-exception",      true),
            ("none stated",                       "",                                    false),
            ("an open bracket",                   "(MIT",                                false),
            ("a closing bracket",                 "MIT)",                                false),
            ("nothing to choose",                 "MIT OR",                              false),
        ];
        for (why, expression, accepted) in rows {
            assert_eq!(accepts(expression, &list), accepted, "{why}: {expression}");
        }
    }

    #[test]
    fn the_list_is_that_of_cargo_deny() {
        let deny =
            "[bans]\nallow = [\"x\"]\n[licenses]\n# why\nallow = [\n  \"A\", # b\n  \"C\",\n]\n";
        assert_eq!(allowed(deny), ["A", "C"]);
        assert!(allowed("").is_empty());
    }

    #[test]
    fn packages_are_named_with_their_line() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "ours", "license": "MIT", "source": null },
            { "name": "strict", "license": "GPL-3.0-only", "source": super::CRATES_IO },
            { "name": "fork", "license": "MIT", "source": "git+https://example.org/fork" },
        ]});
        let lock = "[[package]]\nname = \"strict\"\n[[package]]\nname = \"fork\"\n";
        let found = check(&metadata, lock, &["MIT".to_owned()]);
        let rows: Vec<(usize, &str)> =
            found.iter().map(|finding| (finding.line, finding.instead.as_str())).collect();
        assert_eq!(rows.len(), 2);
        assert!(rows[0].0 == 2 && rows[0].1.contains("deny.toml"), "{rows:?}");
        assert!(rows[1].0 == 4 && rows[1].1.contains("crates.io"), "{rows:?}");
    }
}
