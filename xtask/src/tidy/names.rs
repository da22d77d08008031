//! Names that say nothing: of files, folders, modules and types.
//!
//! A file is named after what it decides or owns. A name such as `utils` collects whatever has
//! no place, and a doer such as `CacheManager` hides the noun it is about.

use super::finding::Finding;
use super::source::{File, has_word};

/// Files, modules and types with such a name, and `mod.rs` among sources.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    if file.path.ends_with("/mod.rs") && file.path.contains("/src/") {
        found.push(Finding::new(
            file.path,
            1,
            "a mod.rs",
            "name it foo.rs, beside its folder foo/",
        ));
    }
    if CODE.contains(&file.extension())
        && let Some(name) = file.path.split('/').find(|part| says_nothing(part))
    {
        found.push(Finding::new(file.path, 1, format!("the name '{name}'"), REMEDY));
    }
    for (number, line) in file.numbered() {
        for keyword in ["mod", "struct", "enum", "trait", "type"] {
            if let Some(name) = name_after(&line.code, keyword).filter(|name| says_nothing(name)) {
                found.push(Finding::new(file.path, number, format!("{keyword} '{name}'"), REMEDY));
            }
        }
    }
    found
}

/// Whether a word of `name` (in snake, kebab or camel case) is one of the banned.
fn says_nothing(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name);
    let mut spaced = String::new();
    for c in stem.chars() {
        if c.is_uppercase() || !c.is_alphanumeric() {
            spaced.push(' ');
        }
        spaced.extend(c.to_lowercase().filter(|c| c.is_alphanumeric()));
    }
    spaced.split_whitespace().any(|word| BANNED.contains(&word))
}

fn name_after<'a>(code: &'a str, keyword: &str) -> Option<&'a str> {
    if !has_word(code, keyword) {
        return None;
    }
    let mut words = code.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.find(|word| *word == keyword)?;
    words.find(|word| !word.is_empty())
}

const BANNED: &[&str] =
    &["util", "utils", "helper", "helpers", "manager", "managers", "prelude", "common"];
const CODE: &[&str] = &["rs", "py", "js", "sh"];
const REMEDY: &str = "name it after what it decides or owns";

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::finding::assert_rows;

    #[test]
    fn names_that_say_nothing_are_found() {
        #[rustfmt::skip]
        assert_rows(check, &[ // why, path, text, findings
            ("a fine name", "crates/core/src/queue.rs",
             "pub mod fifo;\n", &[]),
            ("a file", "crates/core/src/utils.rs",
             "", &[(1, "decides or owns")]),
            ("a part of a file's name", "crates/core/src/cache_helpers.rs",
             "", &[(1, "decides or owns")]),
            ("a folder", "crates/core/src/common/a.rs",
             "", &[(1, "decides or owns")]),
            ("a folder of tests", "crates/core/tests/common/mod.rs",
             "", &[(1, "decides or owns")]),
            ("in Python", "crates/python/forerun/util.py",
             "", &[(1, "decides or owns")]),
            ("mod.rs", "crates/core/src/cache/mod.rs",
             "", &[(1, "foo.rs")]),
            ("shared code of tests", "crates/core/tests/model/mod.rs",
             "", &[]),
            ("a module", "crates/core/src/a.rs",
             "\npub mod prelude {}\n", &[(2, "decides or owns")]),
            ("a doer", "crates/core/src/a.rs",
             "pub struct CacheManager;\n", &[(1, "decides or owns")]),
            ("a trait", "crates/core/src/a.rs",
             "trait Helper<T> {}\n", &[(1, "decides or owns")]),
            ("a longer word", "crates/core/src/a.rs",
             "struct Commonplace;\n", &[]),
            ("a variable", "crates/core/src/a.rs",
             "let common = 1;\n", &[]),
            ("prose", "docs/common-questions.md",
             "utils\n", &[]),
        ]);
    }
}
