//! The known name that is nearest to an unknown one.
//!
//! ```text
//!   lur     lru      two letters are swapped: 1 edit
//!   simm    sim      one is too many:         1
//!   opt     optane   it is begun
//!   depth   rate     4 edits of 5 letters: another word
//! ```
//! # Invariants
//! - The work is bounded: of long names, the first letters count.
//! - A name is near if a letter in three is edited at most, or if the unknown one begins it.
//! # Sources
//! Optimal string alignment: Damerau's distance (CACM 1964), each letter edited once. The bound is
//! that of rustc, `rustc_span/src/edit_distance.rs`.

use alloc::vec::Vec;
use core::mem;

/// The one of `known` that the fewest edits of a letter turn `name` into, regardless of case: the
/// first of several. None where none is near.
#[must_use]
pub fn nearest<'a>(name: &str, known: &'a [impl AsRef<str>]) -> Option<&'a str> {
    let edits_max = name.chars().count().max(LETTERS_AN_EDIT) / LETTERS_AN_EDIT;
    let begins = |one: &str| {
        let head = one.get(..name.len());
        !name.is_empty() && head.is_some_and(|head| head.eq_ignore_ascii_case(name))
    };
    let near = |one: &'a str| {
        let edits = edits(name, one);
        (edits <= edits_max || begins(one)).then_some((edits, one))
    };
    let near = known.iter().map(AsRef::as_ref).filter_map(near);
    near.min_by_key(|(edits, _)| *edits).map(|(_, one)| one)
}

/// The letters that have to be inserted, removed, replaced or swapped with the next one.
fn edits(from: &str, to: &str) -> usize {
    let letters = |text: &str| -> Vec<char> {
        text.chars().take(LETTERS_MAX).map(|letter| letter.to_ascii_lowercase()).collect()
    };
    let (from, to) = (letters(from), letters(to));
    // Rows of the table of distances: two before, the one before, this one.
    let mut older: Vec<usize> = Vec::new();
    let mut before: Vec<usize> = (0..=to.len()).collect();
    for row in 0..from.len() {
        let mut now = Vec::with_capacity(to.len() + 1);
        now.push(row + 1);
        for at in 0..to.len() {
            let replaced = before[at] + usize::from(from[row] != to[at]);
            let mut least = replaced.min(before[at + 1] + 1).min(now[at] + 1);
            let is_swapped =
                row > 0 && at > 0 && from[row] == to[at - 1] && from[row - 1] == to[at];
            if is_swapped {
                least = least.min(older[at - 1] + 1);
            }
            now.push(least);
        }
        older = mem::replace(&mut before, now);
    }
    before[to.len()]
}

/// Letters of which one may be another.
const LETTERS_AN_EDIT: usize = 3;
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
            ("a third of it",         "seivve",  &["arc", "sieve"],           Some("sieve")),
            ("begun",                 "OPT",     &["hdd", "optane"],          Some("optane")),
            ("far off",               "depth",   &["rate", "max"],            None),
            ("far off, and short",    "drum",    &["hdd", "ssd"],             None),
            ("half a letter is none", "\u{e9}",  &["e", "\u{e8}\u{e8}"],      Some("e")),
            ("nothing was asked for", "",        &["sieve", "arc"],           None),
            ("nothing is known",      "lru",     &[],                         None),
        ];
        for (why, name, known, expected) in rows {
            assert_eq!(nearest(name, known), expected, "{why}");
        }
    }

    #[test]
    fn edits_are_counted_as_the_distance_has_them() {
        #[rustfmt::skip]
        let rows = [
            ("", "", 0), ("", "abc", 3), ("abc", "", 3), ("abc", "abc", 0), ("abc", "acb", 1),
            ("ca", "abc", 3), ("kitten", "sitting", 3), ("ABC", "abd", 1), ("ab", "ba", 1),
        ];
        for (from, to, count) in rows {
            assert_eq!(edits(from, to), count, "{from} to {to}");
        }
        assert_eq!(edits(&"x".repeat(1 << 20), "lru"), LETTERS_MAX, "a long name is cut");
    }
}
