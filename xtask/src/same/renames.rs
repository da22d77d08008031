//! What was renamed between an older commit and the working tree, and the program that prints
//! digests of either.
//!
//! A flag, a value or a JSON key that gets another name takes a row of `RENAMES`, from the old
//! word to the new one. The row stays as long as anybody compares with a commit before it.

use std::path::Path;

/// Old words and new ones: flags, values of flags (whole, or before their parameters), JSON keys.
const RENAMES: &[(&str, &str)] = &[("ours", "adaptive")];

/// `word` by its new name, if it has one.
pub(super) fn word(word: &str) -> String {
    // A list's items have names of their own, and an item's parameters come after a colon.
    let item = |item: &str| {
        let (name, rest) = item.split_at(item.find([':', '=']).unwrap_or(item.len()));
        let renamed = RENAMES.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| *new);
        format!("{renamed}{rest}")
    };
    word.split(',').map(item).collect::<Vec<_>>().join(",")
}

/// The manifest of the program that prints digests by the simulator in `folder`.
pub(super) fn probe_manifest(folder: &Path) -> String {
    format!(
        "[package]\nname = \"digests\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nforerun-sim = {{ path = {:?} }}\n",
        folder.display().to_string()
    )
}

/// Prints the digest of each seed from FIRST on.
pub(super) const PROBE: &str = r#"
fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let (first, count) = (words.next().expect("FIRST"), words.next().expect("COUNT"));
    for seed in first..first + count {
        match forerun_sim::check::check(seed) {
            Ok(outcome) => println!("{seed} {:016x} {:?}", outcome.digest, outcome.seen),
            Err(difference) => println!("{seed} {difference}"),
        }
    }
}
"#;

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn names_change_and_parameters_stay() {
        #[rustfmt::skip]
        let rows = [
            ("ours",                  "adaptive"),
            ("none,ours:limit=64M",   "none,adaptive:limit=64M"),
            ("ours=1",                "adaptive=1"),
            ("yours",                 "yours"),
            ("--device",              "--device"),
        ];
        for (old, new) in rows {
            assert_eq!(word(old), new);
        }
    }
}
