//! Types of std that make a run differ from the next: clocks and randomly seeded maps.
//!
//! Time is an argument and order is kept, so that a journal replays byte for byte. A few files
//! read the clock because that is their job; they are listed here, and clippy makes each of
//! their uses give a reason.

use super::finding::Finding;
use super::source::{File, has_word};

/// Uses of such types outside the files that may.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    if MAY.iter().any(|path| file.path.starts_with(path)) {
        return Vec::new();
    }
    let code: Vec<&str> = file.lines.iter().map(|line| line.code.as_str()).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for (module, types, instead) in BANNED {
        for (at, _) in code.match_indices(module) {
            let line = 1 + code[..at].matches('\n').count();
            let used = used(&code[at + module.len()..]);
            found.extend(
                types
                    .iter()
                    .filter(|name| has_word(used, name))
                    .map(|name| Finding::new(file.path, line, format!("{module}{name}"), *instead)),
            );
        }
    }
    found.sort();
    found
}

/// What a path that goes on with `rest` names: one identifier, or all within its braces.
fn used(rest: &str) -> &str {
    let end = if rest.starts_with('{') {
        rest.find(';')
    } else {
        rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))
    };
    &rest[..end.unwrap_or(rest.len())]
}

const MAY: &[&str] = &[
    "crates/engine/src/clock.rs",
    "crates/io/src/wrap/latency.rs",
    "crates/io/src/reaper.rs",
    "crates/cli/",
    "crates/console/src/machine.rs",
    "crates/steer/",
    "lab/compare/",
    "xtask/",
];

const BANNED: &[(&str, &[&str], &str)] = &[
    (
        "std::time::",
        &["Instant", "SystemTime"],
        "take `now: Nanos` as an argument; engine's clock.rs reads it",
    ),
    (
        "std::collections::",
        &["HashMap", "HashSet"],
        "use BTreeMap, Vec, or hashbrown with a fixed hasher: its order is the same in every run",
    ),
];

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::finding::assert_rows;

    #[test]
    fn clocks_and_random_maps_stay_where_they_may_be() {
        let path = "lab/sim/src/driver.rs";
        #[rustfmt::skip]
        assert_rows(check, &[ // why, path, text, findings
            ("a clock", path,
             "\nuse std::time::Instant;\n", &[(2, "now: Nanos")]),
            ("the other clock, in place", path,
             "let a = std::time::SystemTime::now();\n", &[(1, "now: Nanos")]),
            ("among others", path,
             "use std::time::{Duration, Instant};\n", &[(1, "now: Nanos")]),
            ("over lines", path,
             "use std::collections::{\n    BTreeMap,\n    HashMap,\n};\n", &[(1, "BTreeMap")]),
            ("a set", path,
             "a: std::collections::HashSet<u8>,\n", &[(1, "BTreeMap")]),
            ("a duration is a value", path,
             "use std::time::Duration;\n", &[]),
            ("a map with a fixed order", path,
             "use std::collections::BTreeMap;\nuse hashbrown::HashMap;\n", &[]),
            ("another statement's", path,
             "use std::collections::BTreeMap; struct HashMap;\n", &[]),
            ("a comment", path,
             "// std::time::Instant\n", &[]),
            ("the engine's clock may", "crates/engine/src/clock.rs",
             "use std::time::Instant;\n", &[]),
            ("the engine's rest may not", "crates/engine/src/read.rs",
             "use std::time::Instant;\n", &[(1, "now: Nanos")]),
            ("the command line may", "crates/cli/src/main.rs",
             "use std::time::Instant;\n", &[]),
        ]);
    }
}
