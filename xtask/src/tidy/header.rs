//! Every Rust file opens by saying what it decides or owns.
//!
//! The header is the first thing in the file, as `//!` lines. Sources need three at least: a
//! title alone says what the name has already said. Tests, benches, examples, fuzz targets and
//! build scripts need one.

use super::finding::Finding;
use super::source::File;

/// Files without a header, or with too short a one.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    if !file.is_rust() {
        return Vec::new();
    }
    let lines = file.text.lines().take_while(|line| line.starts_with("//!")).count();
    let is_source = file.path.contains("/src/") && !file.is_test();
    let wanted = if is_source { SOURCE_LINES_MIN } else { 1 };
    if lines >= wanted {
        return Vec::new();
    }
    vec![Finding::new(
        file.path,
        1,
        format!("the header has {lines} lines, {wanted} at least"),
        "open the file with //! lines: what it decides or owns, its invariants, its sources",
    )]
}

const SOURCE_LINES_MIN: usize = 3;

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::finding::assert_rows;

    #[test]
    fn files_open_with_a_header() {
        #[rustfmt::skip]
        assert_rows(check, &[ // why, path, text, findings
            ("three lines", "crates/core/src/a.rs",
             "//! A.\n//!\n//! B.\n\nuse b;\n", &[]),
            ("two lines", "crates/core/src/a.rs",
             "//! A.\n//! B.\n", &[(1, "//! lines")]),
            ("not at the top", "crates/core/src/a.rs",
             "\n//! A.\n//!\n//! B.\n", &[(1, "//! lines")]),
            ("plain comments", "crates/core/src/a.rs",
             "// A.\n// B.\n// C.\n", &[(1, "//! lines")]),
            ("tests need one", "crates/core/tests/a.rs",
             "//! A.\nuse b;\n", &[]),
            ("tests need one, though", "crates/core/tests/a.rs",
             "use b;\n", &[(1, "//! lines")]),
            ("a module file of tests", "crates/core/src/tests.rs",
             "//! A.\nuse b;\n", &[]),
            ("other files are free", "Makefile",
             "all:\n", &[]),
        ]);
    }
}
