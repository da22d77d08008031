//! How long a file may be.
//!
//! A file that needs scrolling hides what it owns. Tests do not count: neither modules under
//! `#[cfg(test)]` nor files of tests. Above 600 lines a file is mentioned, above 1,000 it fails.

use super::finding::Finding;
use super::source::File;

/// Files that are too long.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let lines = lines_without_tests(file);
    if lines <= LINES_MAX {
        return Vec::new();
    }
    vec![Finding::new(
        file.path,
        1,
        format!("{lines} lines without tests, {LINES_MAX} at most"),
        "split it by what its parts own: foo.rs and foo/part.rs",
    )]
}

/// Files that are about to be.
pub(crate) fn report(file: &File) -> Option<String> {
    let lines = lines_without_tests(file);
    (lines > LINES_NOTED && lines <= LINES_MAX)
        .then(|| format!("{}: {lines} lines without tests; think of splitting it", file.path))
}

fn lines_without_tests(file: &File) -> usize {
    file.lines.iter().filter(|line| !line.in_test).count()
}

const LINES_NOTED: usize = 600;
const LINES_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::{check, report};
    use crate::tidy::finding::assert_rows;
    use crate::tidy::source::File;

    #[test]
    fn a_file_has_at_most_a_thousand_lines_without_its_tests() {
        let most = "//\n".repeat(1_000);
        let long = "//\n".repeat(1_001);
        let tests = format!("{most}#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert_rows(
            check,
            &[
                ("just short enough", "crates/core/src/a.rs", &most, &[]),
                ("too long", "crates/core/src/a.rs", &long, &[(1, "split it")]),
                ("its tests do not count", "crates/core/src/a.rs", &tests, &[]),
                ("tests do not count", "crates/core/tests/a.rs", &long, &[]),
                ("nor does prose", "docs/a.md", &long, &[]),
            ],
        );
    }

    #[test]
    fn files_above_600_lines_are_mentioned() {
        for (lines, noted) in [(600, false), (601, true), (1_000, true), (1_001, false)] {
            let text = "//\n".repeat(lines);
            assert_eq!(report(&File::new("a.rs", &text)).is_some(), noted, "{lines}");
        }
    }
}
