//! How many assertions the crates have that must not be wrong.
//!
//! An assertion that is on in release stops a bug before it becomes wrong bytes; `debug_assert!`
//! is not counted, as it is off there. Lines are those with code that is no test.
//!
//! # Sources
//! `TigerBeetle`, `docs/TIGER_STYLE.md`: assertions are a multiplier of tests.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::source::{File, Line, has_word};

/// Lines and assertions of the crates that are judged.
#[derive(Debug, Default)]
pub(crate) struct Density(BTreeMap<&'static str, Counts>);

#[derive(Debug, Default)]
struct Counts {
    lines: usize,
    assertions: usize,
}

impl Density {
    /// Counts `file`.
    pub(crate) fn add(&mut self, file: &File) {
        let Some(root) = ROOTS.iter().find(|root| file.path.starts_with(**root)) else { return };
        let counts = self.0.entry(root).or_default();
        let has_code = |line: &&Line| !line.in_test && !line.code.trim().is_empty();
        for line in file.lines.iter().filter(has_code) {
            counts.lines += 1;
            let asserts = MACROS.iter().any(|name| has_word(&line.code, name));
            counts.assertions += usize::from(asserts && line.code.contains('!'));
        }
    }

    /// The crates with too few.
    pub(crate) fn check(&self) -> Vec<Finding> {
        let few = self.0.iter().filter(|(_, counts)| {
            counts.assertions * 1_000 < counts.lines * ASSERTIONS_IN_1000_LINES_MIN
        });
        few.map(|(root, Counts { lines, assertions })| {
            Finding::new(
                &format!("{root}lib.rs"),
                1,
                format!(
                    "{assertions} assertions in {lines} lines of code, \
                     {ASSERTIONS_IN_1000_LINES_MIN} in 1,000 at least"
                ),
                "assert what must hold before and after, on in release",
            )
        })
        .collect()
    }
}

const ROOTS: [&str; 3] = ["crates/core/src/", "crates/io/src/", "crates/steer/src/"];
const MACROS: [&str; 3] = ["assert", "assert_eq", "assert_ne"];
const ASSERTIONS_IN_1000_LINES_MIN: usize = 12;

#[cfg(test)]
mod tests {
    use super::Density;
    use crate::tidy::source::File;

    #[test]
    fn a_thousand_lines_have_twelve_assertions() {
        let of = |count: usize, line: &str| line.repeat(count);
        let rest = |count| of(count, "f();\n");
        #[rustfmt::skip]
        let rows = [ // why, path, text, is there a finding
            ("enough",                   "crates/core/src/a.rs",
             of(12, "assert!(a);\n") + &rest(988),       false),
            ("one too few",              "crates/io/src/a.rs",
             of(11, "assert_eq!(a, b);\n") + &rest(988), true),
            ("all kinds",                "crates/io/src/a/b.rs",
             of(6, "assert_ne!(a, b);\nassert!(\n") + &rest(988), false),
            ("those of debug builds",    "crates/core/src/a.rs",
             of(12, "debug_assert!(a);\n") + &rest(988), true),
            ("in comments and strings",  "crates/core/src/a.rs",
             of(12, "f(\"assert!\"); // assert!\n") + &rest(988), true),
            ("those of tests",           "crates/core/src/a.rs",
             rest(988) + "#[cfg(test)]\nmod tests {\n" + &of(12, "assert!(a);\n") + "}\n", true),
            ("tests are not counted",    "crates/core/src/a.rs",
             of(12, "assert!(a);\n") + &rest(988) + "#[cfg(test)]\nmod t {\n" + &rest(500) + "}\n",
             false),
            ("nor are comments",         "crates/core/src/a.rs",
             of(12, "assert!(a);\n") + &rest(988) + &of(500, "\n// f\n"), false),
            ("another crate",            "crates/cli/src/a.rs",
             rest(1_000),                                false),
        ];
        for (why, path, text, expected) in rows {
            let mut density = Density::default();
            density.add(&File::new(path, &text));
            assert_eq!(!density.check().is_empty(), expected, "{why}: {density:?}");
        }
    }
}
