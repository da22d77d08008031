//! The text itself: width, ASCII, and white space at the end of lines.
//!
//! rustfmt leaves long strings, comments and macros alone, so width is checked here. Sources are
//! ASCII: what cannot be typed cannot be searched for, and some of it cannot be seen.

use super::finding::Finding;
use super::source::File;

/// Lines that break one of these.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    if !file.is_prose() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut add = |line, what: String, instead: &str| {
        found.push(Finding::new(file.path, line, what, instead));
    };
    for (number, line) in (1..).zip(file.text.lines()) {
        if line.ends_with([' ', '\t']) {
            add(number, "white space at the end of the line".to_owned(), "delete it");
        }
        if !file.is_rust() {
            continue;
        }
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            add(number, format!("{columns} columns, {COLUMNS_MAX} at most"), "break the line");
        }
        if let Some(c) = line.chars().find(|c| !c.is_ascii()) {
            let what = format!("'{c}' (U+{:04X}) is not ASCII", u32::from(c));
            add(number, what, "write it in ASCII, or as \\u{...} in a string");
        }
    }
    found
}

const COLUMNS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::finding::assert_rows;

    #[test]
    fn lines_are_narrow_and_plain() {
        let path = "crates/core/src/a.rs";
        let most = "x".repeat(100);
        let wide = format!("\n{}\n", "x".repeat(101));
        #[rustfmt::skip]
        assert_rows(check, &[ // why, path, text, findings
            ("just narrow enough", path,        &most,           &[]),
            ("too wide",           path,        &wide,           &[(2, "break the line")]),
            ("prose may be wide",  "README.md", &wide,           &[]),
            ("not ASCII",          path,        "// \u{2026}\n", &[(1, "ASCII")]),
            ("not ASCII in prose", "README.md", "\u{2026}\n",    &[]),
            ("a space at the end", path,        "a \n",          &[(1, "delete it")]),
            ("a tab at the end",   "Makefile",  "a:\t\n",        &[(1, "delete it")]),
            ("data",               "a.csv",     "a \n",          &[]),
        ]);
    }
}
