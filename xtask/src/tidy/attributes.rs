//! Attributes and calls that hide something: a lint, a test, a race, a panic.
//!
//! An `expect` fails when its reason has gone; an `allow` stays. A test that is ignored, waits
//! for a while, or passes on any panic proves nothing. A panic outside tests says why it cannot
//! happen.

use super::finding::Finding;
use super::source::{File, Line, has_word};

/// Lines with one of them.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in file.numbered() {
        for (what, instead, holds) in RULES {
            if holds(line) {
                found.push(Finding::new(file.path, number, *what, *instead));
            }
        }
    }
    found
}

type Rule = (&'static str, &'static str, fn(&Line) -> bool);

const RULES: &[Rule] = &[
    ("an allow", "write #[expect(lint, reason = \"why\")]", |line| {
        let code = &line.code;
        let in_condition = code.contains("cfg_attr(") && has_word(code, "allow");
        code.contains("#[allow(") || code.contains("#![allow(") || in_condition
    }),
    (
        "an ignored test",
        "let it run; what a machine may lack is skipped by name in $FORERUN_SKIPPED",
        |line| line.code.contains("#[ignore"),
    ),
    (
        "should_panic",
        "return an error and compare it, or catch_unwind and compare the message",
        |line| has_word(&line.code, "should_panic"),
    ),
    (
        "thread::sleep in a test",
        "wait for the event itself: a channel, a condition variable, virtual time",
        |line| line.in_test && line.code.contains("thread::sleep"),
    ),
    ("unwrap outside tests", "write expect(\"why it holds\"), or return the error", |line| {
        !line.in_test && line.code.contains(".unwrap()")
    }),
];

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::finding::assert_rows;

    #[test]
    fn nothing_is_hidden() {
        let (path, test) = ("crates/io/src/a.rs", "crates/io/tests/a.rs");
        #[rustfmt::skip]
        assert_rows(check, &[ // why, path, text, findings
            ("an allow", path,
             "\n#[allow(dead_code)]\n", &[(2, "#[expect(")]),
            ("for the crate", path,
             "#![allow(dead_code)]\n", &[(1, "#[expect(")]),
            ("under a condition", path,
             "#[cfg_attr(test, allow(dead_code))]\n", &[(1, "#[expect(")]),
            ("an expect", path,
             "#[expect(dead_code, reason = \"x\")]\n", &[]),
            ("an ignored test", test,
             "#[ignore]\n", &[(1, "FORERUN_SKIPPED")]),
            ("ignored with a reason", test,
             "#[ignore = \"slow\"]\n", &[(1, "FORERUN_SKIPPED")]),
            ("any panic will do", test,
             "#[should_panic]\n", &[(1, "return an error")]),
            ("a test that waits", test,
             "std::thread::sleep(a);\n", &[(1, "the event itself")]),
            ("a store that waits", path,
             "std::thread::sleep(a);\n", &[]),
            ("a test module that waits", path,
             "#[cfg(test)]\nmod tests {\nthread::sleep(a);\n}\n", &[(3, "the event itself")]),
            ("unwrap", path,
             "a.unwrap();\n", &[(1, "expect(")]),
            ("unwrap in a test", test,
             "a.unwrap();\n", &[]),
            ("unwrap in a doc test", path,
             "/// a.unwrap();\n", &[]),
            ("unwrap_or is another", path,
             "a.unwrap_or(1);\n", &[]),
        ]);
    }
}
