//! The options of a bench, and of other chores: switches, and `--name value` pairs.
//!
//! ```text
//!   --quick --rounds 3 --device hdd,cloud   -->  ("--quick", "") ("--rounds", "3") ...
//! ```
//!
//! # Invariants
//! - A word that nobody knows is an error, as is a name whose value is missing.

use std::str::FromStr;

use anyhow::{Context as _, Result, bail, ensure};

/// Hands each option in `words` to `take`, a switch with an empty value. `take` says whether it
/// knows the name.
pub(crate) fn each(
    words: &[String],
    switches: &[&str],
    mut take: impl FnMut(&str, &str) -> Result<bool>,
) -> Result<()> {
    let mut words = words.iter();
    while let Some(name) = words.next() {
        let value = if switches.contains(&name.as_str()) {
            ""
        } else {
            words.next().with_context(|| format!("{name} without a value"))?
        };
        ensure!(take(name, value)?, "unknown option {name}");
    }
    Ok(())
}

/// A number that is not 0.
pub(super) fn count(name: &str, value: &str) -> Result<u32> {
    let count = value.parse().with_context(|| format!("{name} {value}: no number"))?;
    ensure!(count > 0, "{name} 0 measures nothing");
    Ok(count)
}

/// The items of a list with commas.
pub(super) fn list<T: FromStr>(name: &str, value: &str) -> Result<Vec<T>> {
    let items = value.split(',').map(|item| item.parse().ok());
    items.collect::<Option<_>>().with_context(|| format!("{name} {value}: expected numbers"))
}

/// The names of a list with commas, all of which are in `all`.
pub(super) fn known(value: &str, all: &[&str]) -> Result<Vec<String>> {
    let chosen: Vec<String> = value.split(',').map(str::to_owned).collect();
    if let Some(stranger) = chosen.iter().find(|name| !all.contains(&name.as_str())) {
        bail!("no {stranger}; there are: {}", all.join(" "));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_handed_over_in_order_and_nonsense_is_refused() {
        let parsed = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let mut taken = Vec::new();
            let done = each(&words, &["--quick"], |name, value| {
                taken.push(format!("{name}={value}"));
                Ok(name != "--strange")
            });
            done.ok().map(|()| taken.join(" "))
        };
        #[rustfmt::skip]
        let rows = [
            ("",                     Some("")),
            ("--out o --quick",      Some("--out=o --quick=")),
            ("--quick --out o",      Some("--quick= --out=o")),
            ("--out",                None),
            ("--strange 1",          None),
        ];
        for (line, expected) in rows {
            assert_eq!(parsed(line).as_deref(), expected, "{line}");
        }
        assert_eq!(count("--rounds", "3").ok(), Some(3));
        assert!(count("--rounds", "0").is_err() && count("--rounds", "x").is_err());
        assert_eq!(list::<u32>("--ra", "128,0").ok(), Some(vec![128, 0]));
        assert!(list::<u32>("--ra", "128,").is_err());
        assert_eq!(known("b,a", &["a", "b"]).unwrap(), ["b", "a"]);
        assert!(known("c", &["a", "b"]).is_err());
    }
}
