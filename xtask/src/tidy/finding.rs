//! What a check reports: where, what, and what to do instead.
//!
//! One line a finding, `path:line: what; instead`, which editors turn into a link. The order of
//! findings is the order of the files and lines, so that a run is the same on every machine.

use std::fmt;

/// One violation of one rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the root.
    pub(crate) path: String,
    /// Counts from 1.
    pub(crate) line: usize,
    /// What is there.
    pub(crate) what: String,
    /// What should be there.
    pub(crate) instead: String,
}

impl Finding {
    pub(crate) fn new(
        path: &str,
        line: usize,
        what: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        assert!(line > 0, "lines count from 1");
        Self { path: path.to_owned(), line, what: what.into(), instead: instead.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.path, self.line, self.what, self.instead)
    }
}

/// A row of a check's table test: why, the path, the text, and for each finding its line and a
/// part of the replacement that it names.
#[cfg(test)]
pub(crate) type Row<'a> = (&'a str, &'a str, &'a str, &'a [(usize, &'a str)]);

/// Runs `check` on every row and compares lines and replacements.
#[cfg(test)]
pub(crate) fn assert_rows(check: impl Fn(&super::source::File) -> Vec<Finding>, rows: &[Row]) {
    for (why, path, text, expected) in rows {
        let found = check(&super::source::File::new(path, text));
        let lines: Vec<usize> = found.iter().map(|finding| finding.line).collect();
        let wanted: Vec<usize> = expected.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, wanted, "{why}: {found:?}");
        for (finding, (_, instead)) in found.iter().zip(*expected) {
            assert!(finding.instead.contains(instead), "{why}: {finding} lacks '{instead}'");
            assert_eq!(finding.path, *path, "{why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Finding;

    #[test]
    fn a_finding_reads_as_a_link_with_its_remedy() {
        let finding = Finding::new("crates/io/src/a.rs", 7, "a tab", "use four spaces");
        assert_eq!(finding.to_string(), "crates/io/src/a.rs:7: a tab; use four spaces");
    }
}
