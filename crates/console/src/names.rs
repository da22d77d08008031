//! Unknown names: the error names the nearest known one, and the command that lists them.
//!
//! ```text
//!   --policy lur  -->  no `lur`; there are: fifo lru ...; the nearest is `lru`;
//!                      `forerun sim --list-policies` lists them
//! ```
//! # Invariants
//! - A command is named only where the build has it; the lists are the laboratory's.

use forerun_core::params::ParamError;

use crate::failure::usage;

/// Lists the policies of replacement, readahead and prefetching threads.
pub const POLICIES: &str = lab("forerun sim --list-policies");
/// Lists the device models.
pub const DEVICES: &str = lab("forerun sim --list-devices");
/// Lists the formats of traces.
pub const FORMATS: &str = lab("forerun sim --list-formats");
/// Lists the workloads.
pub const WORKLOADS: &str = lab("forerun sim --list-workloads");

/// `command` of the laboratory; nothing where the build lacks it.
pub(crate) const fn lab(command: &'static str) -> &'static str {
    if cfg!(feature = "lab") { command } else { "" }
}

/// The usage error of `what` (a flag and its value) with the name or parameter that `error`
/// refuses; the command `lister` lists the names.
#[must_use]
pub fn refused(what: &str, error: &ParamError, lister: &str) -> anyhow::Error {
    let hint = match error {
        ParamError::UnknownName { name, known } => hint(name, known, lister),
        _ => String::new(),
    };
    usage(format!("{what}: {error}{hint}"))
}

/// The addition to an error about the unknown `name`; no `lister` lists the names where that is
/// empty.
#[must_use]
pub fn hint(name: &str, known: &[impl AsRef<str>], lister: &str) -> String {
    let nearest = nearest(name, known).map(|nearest| format!("; the nearest is `{nearest}`"));
    let tail = if lister.is_empty() { String::new() } else { format!("; `{lister}` lists them") };
    nearest.unwrap_or_default() + &tail
}

/// The one of `known` that the fewest edits of a letter turn `name` into: the first of several.
/// None where there is none at all.
#[must_use]
pub fn nearest<'a>(name: &str, known: &'a [impl AsRef<str>]) -> Option<&'a str> {
    known.iter().map(AsRef::as_ref).min_by_key(|one| edits(name, one))
}

/// The optimal string alignment distance, regardless of case. Of long names, the first letters
/// count.
fn edits(from: &str, to: &str) -> usize {
    let letters = |text: &str| -> String {
        text.chars().take(LETTERS_MAX).map(|letter| letter.to_ascii_lowercase()).collect()
    };
    strsim::osa_distance(&letters(from), &letters(to))
}

/// No name is longer.
const LETTERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_takes_the_fewest_edits() {
        #[rustfmt::skip]
        let rows = [ // why           asked for  known                        nearest
            ("two swapped",           "lur",     &["fifo", "lru", "lfu"][..], Some("lru")),
            ("one too many",          "simm",    &["run", "sim", "bench"],    Some("sim")),
            ("one missing",           "explan",  &["explain", "run"],         Some("explain")),
            ("case does not count",   "T7K250",  &["hdd", "t7k250"],          Some("t7k250")),
            ("the first of equals",   "x",       &["a", "b"],                 Some("a")),
            ("nothing was asked for", "",        &["sieve", "arc"],           Some("arc")),
            ("nothing is known",      "lru",     &[],                         None),
        ];
        for (why, name, known, expected) in rows {
            assert_eq!(nearest(name, known), expected, "{why}");
        }
        assert_eq!(edits(&"x".repeat(1 << 20), "lru"), LETTERS_MAX, "a long name is cut");
    }

    #[test]
    fn only_an_unknown_name_has_a_hint() {
        let unknown = ParamError::UnknownName { name: "lur".into(), known: vec!["fifo", "lru"] };
        let says = "--policy lur: no `lur`; there are: fifo lru; the nearest is `lru`";
        for (lister, listed) in [("forerun x", "; `forerun x` lists them"), ("", "")] {
            let text = refused("--policy lur", &unknown, lister).to_string();
            assert_eq!(text, format!("{says}{listed}"));
        }
        assert_eq!(POLICIES.is_empty(), !cfg!(feature = "lab"));
        let key = ParamError::UnknownKey { key: "x".into(), known: vec![] };
        let text = refused("--policy lru:x=1", &key, POLICIES).to_string();
        assert_eq!(text, "--policy lru:x=1: no parameter `x`; there are none");
    }
}
