//! `unsafe` only where the table of crates has it, and never without a reason.
//!
//! Crates without `unsafe` say so to the compiler. In the others each block has a `// SAFETY:`
//! comment with the invariant and what keeps it, right above the statement or on its line.
//! Clippy asks for the comment too; this check still holds where a lint is expected away.

use super::crates::{self, Unsafety};
use super::finding::Finding;
use super::source::{File, has_word};

/// Crate roots that do not forbid `unsafe` although they should, and `unsafe` without leave.
pub(crate) fn forbidden(file: &File) -> Vec<Finding> {
    let Some(Ok(row)) = crates::of(file.path).filter(|_| file.is_rust()) else {
        return Vec::new();
    };
    if row.unsafety == Unsafety::Explained {
        return Vec::new();
    }
    let mut found = Vec::new();
    let is_root = file.path.ends_with("/src/lib.rs") || file.path.ends_with("/src/main.rs");
    let says_so = file.lines.iter().any(|line| line.code.trim() == "#![forbid(unsafe_code)]");
    if is_root && row.unsafety == Unsafety::Forbidden && !says_so {
        found.push(Finding::new(
            file.path,
            1,
            format!("{} does not forbid unsafe code", row.name),
            "write #![forbid(unsafe_code)] below the header",
        ));
    }
    let written = file.numbered().filter(|(_, line)| has_word(&line.code, "unsafe"));
    found.extend(written.map(|(number, _)| {
        Finding::new(
            file.path,
            number,
            format!("unsafe in {}", row.name),
            "put it behind a safe interface in io, steer or preload",
        )
    }));
    found
}

/// Blocks and impls without an explanation of their soundness.
pub(crate) fn explained(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in file.numbered() {
        let code = &line.code;
        let block = code.contains("unsafe {") || code.contains("unsafe impl");
        if block && !has_reason(file, number - 1) {
            found.push(Finding::new(
                file.path,
                number,
                "unsafe without a reason",
                "write // SAFETY: above it, with the invariant and what keeps it",
            ));
        }
    }
    found
}

/// Whether a `SAFETY:` comment stands on line `at` (from 0), or above the statement it is in.
fn has_reason(file: &File, at: usize) -> bool {
    let says = |line: usize| file.lines[line].comment.contains("SAFETY:");
    if says(at) {
        return true;
    }
    for above in (0..at).rev() {
        let code = file.lines[above].code.trim();
        if says(above) {
            return true;
        }
        let blank = code.is_empty() && file.lines[above].comment.is_empty();
        if blank || code.ends_with([';', '{', '}']) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{explained, forbidden};
    use crate::tidy::finding::assert_rows;

    #[test]
    fn unsafe_stays_in_its_crates() {
        #[rustfmt::skip]
        assert_rows(forbidden, &[ // why, path, text, findings
            ("a root that says so", "crates/core/src/lib.rs",
             "//! x\n#![forbid(unsafe_code)]\n", &[]),
            ("a root that does not", "crates/core/src/lib.rs",
             "//! x\n", &[(1, "#![forbid(unsafe_code)]")]),
            ("only in a comment", "crates/cli/src/main.rs",
             "// #![forbid(unsafe_code)]\n", &[(1, "#![forbid(unsafe_code)]")]),
            ("not a root", "crates/core/src/units.rs",
             "//! x\n", &[]),
            ("io may", "crates/io/src/lib.rs",
             "unsafe fn f() {}\n", &[]),
            ("unsafe in engine", "crates/engine/src/a.rs",
             "\nunsafe { f() }\n", &[(2, "io, steer or preload")]),
            ("by hand in python", "crates/python/src/lib.rs",
             "unsafe { f() }\n", &[(1, "io, steer or preload")]),
            ("the word alone", "crates/engine/src/a.rs",
             "// unsafe\nlet not_unsafe = 1;\n", &[]),
        ]);
    }

    #[test]
    fn every_block_has_its_reason() {
        let path = "crates/io/src/frames.rs";
        #[rustfmt::skip]
        assert_rows(explained, &[ // why, path, text, findings
            ("right above", path,
             "// SAFETY: ours alone.\nunsafe { f() }\n", &[]),
            ("above in several lines", path,
             "// SAFETY: ours\n// alone.\nunsafe { f() }\n", &[]),
            ("above the statement", path,
             "// SAFETY: ours.\nlet a =\n    unsafe { f() };\n", &[]),
            ("above an attribute", path,
             "// SAFETY: ours.\n#[inline]\nunsafe impl Send for A {}\n", &[]),
            ("on the line", path,
             "unsafe { f() } // SAFETY: ours.\n", &[]),
            ("none", path,
             "let a = unsafe { f() };\n", &[(1, "// SAFETY:")]),
            ("another comment", path,
             "// Fast.\nunsafe { f() }\n", &[(2, "// SAFETY:")]),
            ("that of another statement", path,
             "// SAFETY: a.\nunsafe { f() };\nunsafe { g() };\n", &[(3, "// SAFETY:")]),
            ("an impl without", path,
             "unsafe impl Sync for A {}\n", &[(1, "// SAFETY:")]),
            ("a declaration is no block", path,
             "pub unsafe fn f() {}\n", &[]),
            ("in a string", path,
             "f(\"unsafe {\");\n", &[]),
        ]);
    }
}
