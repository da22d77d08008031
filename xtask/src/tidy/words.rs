//! The words of the field, and sentences whose subject is a component.
//!
//! `docs/glossary.md` has the words that a storage engineer knows from kernels and papers; those
//! that stand here were our own, and each has one of the field in its place. A subject that is no
//! component hides what acts, and is replaced by the component.
//!
//! # Invariants
//! - Words are judged in comments, in prose, and as parts of identifiers; strings never are.
//! - A word stands here only if it is never right in this code.

use super::finding::Finding;
use super::source::File;

/// Lines with such a word.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    if !file.is_prose() || MAY.iter().any(|path| file.path.starts_with(path)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, text) in file.written() {
        let comment = file.lines.get(number - 1).map(|line| words(&line.comment));
        let text = words(&text);
        let in_comment = comment.as_ref().unwrap_or(&text);
        let own = OWN.iter().filter(|(word, _)| holds(&text, word));
        let nobody = NOBODY.iter().filter(|(word, _)| holds(in_comment, word));
        let who = WHO.iter().filter(|(word, _)| comment.as_ref().is_some_and(|it| holds(it, word)));
        for (word, instead) in own.chain(nobody).chain(who) {
            let what = format!("the word '{word}'");
            found.push(Finding::new(file.path, number, what, format!("write {instead}")));
        }
    }
    found
}

/// The words of `text` in lower case, without what it quotes; an identifier is taken apart.
fn words(text: &str) -> Vec<String> {
    let text: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let mut spaced = String::with_capacity(text.len());
    let mut before = ' ';
    for c in text.chars() {
        if c.is_uppercase() && !before.is_uppercase() {
            spaced.push(' ');
        }
        spaced.push(if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
        before = c;
    }
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// Whether the words of `phrase` stand in `words`, one after the other.
fn holds(words: &[String], phrase: &str) -> bool {
    let phrase: Vec<&str> = phrase.split(' ').collect();
    words.windows(phrase.len()).any(|part| part.iter().zip(&phrase).all(|(a, b)| a == b))
}

/// Files that quote what others wrote, or what was written before.
const MAY: &[&str] = &["CHANGELOG.md", "bench/runs/", "docs/decisions/", "docs/glossary.md"];

/// Words of our own, in any text: the word of the field for each.
#[rustfmt::skip]
const OWN: &[(&str, &str)] = &[
    ("clockwork",   "event loop"),
    ("crew",        "workers"),
    ("crews",       "workers"),
    ("dear",        "expensive"),
    ("debt",        "pending scan"),
    ("desk",        "scheduler"),
    ("desks",       "schedulers"),
    ("fate",        "outcome, or reason"),
    ("fates",       "outcomes, or reasons"),
    ("foresee",     "prefetch, or predict"),
    ("foreseen",    "prefetched, or predicted"),
    ("foresees",    "prefetches, or predicts"),
    ("lane",        "submission queue, or stream"),
    ("lanes",       "submission queues, or streams"),
    ("ledger",      "scheduler"),
    ("ledgers",     "schedulers"),
    ("lend",        "lease, or check out"),
    ("lending",     "leasing, or checking out"),
    ("lends",       "leases, or checks out"),
    ("lent",        "leased, or checked out"),
    ("let go of",   "released, or unpinned"),
    ("lets go of",  "releases, or unpins"),
    ("letting go of", "releasing, or unpinning"),
    ("owed",        "pending"),
    ("taken back",  "reclaimed"),
    ("takes back",  "reclaims"),
    ("taking back", "reclaiming"),
    ("vanish",      "invalidate, or truncate"),
];

/// Subjects that are no component, in comments and prose.
const NOBODY: &[(&str, &str)] = &[
    ("he", COMPONENT),
    ("nobody", COMPONENT),
    ("somebody", COMPONENT),
    ("whoever", COMPONENT),
    ("whom", COMPONENT),
];

/// In comments; users that a page of the docs speaks of may be people.
const WHO: &[(&str, &str)] = &[("who", COMPONENT)];

const COMPONENT: &str = "the component that acts: the reader thread, the core, the caller";

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::finding::assert_rows;

    #[test]
    fn words_of_our_own_have_one_of_the_field() {
        let path = "crates/core/src/a.rs";
        #[rustfmt::skip]
        assert_rows(check, &[ // why, path, text, findings
            ("in a comment", path,
             "\n// A lane of it.\n", &[(2, "submission queue")]),
            ("a type", path,
             "struct RingLanes;\n", &[(1, "submission queues")]),
            ("a function", path,
             "fn give_lane() {}\n", &[(1, "submission queue")]),
            ("within a word", path,
             "let plane = airplane;\n", &[]),
            ("a string", path,
             "f(\"lane\");\n", &[]),
            ("several words", path,
             "// A page is let go of here.\n", &[(1, "unpinned")]),
            ("in another order", path,
             "// Let it go.\n", &[]),
            ("in prose", "docs/a.md",
             "A Lane.\n", &[(1, "submission queue")]),
            ("in Python", "python/a.py",
             "lanes = 1\n", &[(1, "submission queues")]),
            ("a decision of old", "docs/decisions/0001-a.md",
             "A lane.\n", &[]),
            ("data", "bench/a.csv",
             "lane\n", &[]),
        ]);
    }

    #[test]
    fn a_component_is_the_subject() {
        let path = "crates/core/src/a.rs";
        #[rustfmt::skip]
        assert_rows(check, &[ // why, path, text, findings
            ("a subject", path,
             "/// Who waits is woken.\n", &[(1, "the component")]),
            ("for all", path,
             "/// Nobody holds it.\n", &[(1, "the component")]),
            ("with an apostrophe", path,
             "// It is nobody's.\n", &[(1, "the component")]),
            ("an identifier", path,
             "let who = 1;\n", &[]),
            ("the user of that name", path,
             "// Run by `nobody`.\n", &[]),
            ("people in prose", "README.md",
             "For those who wait.\n", &[]),
            ("none of them in prose", "README.md",
             "Nobody waits.\n", &[(1, "the component")]),
            ("the, when, whole", path,
             "// The whole, when here.\n", &[]),
        ]);
    }
}
