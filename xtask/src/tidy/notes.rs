//! Notes to self: a known fault is mended before it is merged, a known task has an issue.
//!
//! A note without an address is forgotten. Strings are not judged; comments, code and all other
//! prose are.

use super::finding::Finding;
use super::source::{File, has_word};

/// Fix-me notes, and to-do notes that name no issue.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    if !file.is_prose() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in file.written() {
        if has_word(&line, FAULT) {
            let instead = "mend it, or state the fault in the header with the test that pins it";
            found.push(Finding::new(file.path, number, format!("a {FAULT}"), instead));
        }
        if has_word(&line, TASK) && !names_issue(&line) {
            let what = format!("a {TASK} without an issue");
            found.push(Finding::new(file.path, number, what, format!("write {TASK}(#12): what")));
        }
    }
    found
}

/// Whether a `#` and a number follow the note.
fn names_issue(line: &str) -> bool {
    let after = line.split_once(TASK).map_or("", |(_, after)| after);
    after.split('#').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

const FAULT: &str = "FIXME";
const TASK: &str = "TODO";

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::finding::assert_rows;

    #[test]
    fn notes_have_an_address() {
        #[rustfmt::skip]
        assert_rows(check, &[ // why, path, text, findings
            ("a fault", "crates/core/src/a.rs",
             "\n// FIXME: wrong\n", &[(2, "mend it")]),
            ("a fault in prose", "docs/a.md",
             "FIXME\n", &[(1, "mend it")]),
            ("a task without an issue", "crates/core/src/a.rs",
             "a; // TODO: later\n", &[(1, "(#12)")]),
            ("a task with an issue", "crates/core/src/a.rs",
             "// TODO(#7): later\n", &[]),
            ("an issue before it", "Makefile",
             "# see #7 TODO: later\n", &[(1, "(#12)")]),
            ("a number sign alone", "Makefile",
             "# TODO: # later\n", &[(1, "(#12)")]),
            ("a macro call", "crates/core/src/a.rs",
             "todo!()\n", &[]),
            ("a longer word", "docs/a.md",
             "TODOS and FIXMES\n", &[]),
            ("in a string", "crates/core/src/a.rs",
             "f(\"FIXME\");\n", &[]),
            ("data", "bench/runs/a.csv",
             "FIXME\n", &[]),
        ]);
    }
}
