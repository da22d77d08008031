//! What a test run said: the closing lines of libtest, summed over all its binaries, and of pytest.
//!
//! # Invariants
//! - The closing line counts tests, not steps; a step that failed without naming a failed test
//!   (it did not compile, say) counts as one, so that "0 failed" means that all is well.

/// Counts over everything that ran.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Results {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Tests that did not run, by name and reason.
    pub(crate) skipped: Vec<String>,
}

impl Results {
    /// Takes one line of a test binary's output into account.
    pub(crate) fn note(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
        } else if let Some((name, state)) =
            line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
            && state.trim_end().starts_with("ignored")
        {
            self.skipped.push(format!("{name}: ignored"));
        }
    }

    /// Takes one line of what `pytest -rs` prints into account.
    pub(crate) fn note_pytest(&mut self, line: &str) {
        if let Some(skipped) = line.strip_prefix("SKIPPED ") {
            self.skipped.push(format!("pytest: {skipped}"));
        } else if let Some((counts, time)) = line.trim_matches(['=', ' ']).rsplit_once(" in ")
            && time.starts_with(|c: char| c.is_ascii_digit())
        {
            let counts: Option<Vec<(u64, &str)>> = counts.split(", ").map(counted).collect();
            for (number, what) in counts.into_iter().flatten() {
                match what {
                    "passed" => self.passed += number,
                    "failed" | "error" | "errors" => self.failed += number,
                    _ => {}
                }
            }
        }
    }

    /// The last line of a run.
    pub(crate) fn closing_line(&self) -> String {
        let counts = format!("{} passed, {} failed", self.passed, self.failed);
        match self.skipped.len() {
            0 => counts,
            skipped => format!("{counts}, {skipped} skipped"),
        }
    }
}

/// The number before `word` in `ok. 5 passed; 0 failed; ...`.
fn count(counts: &str, word: &str) -> u64 {
    let words: Vec<&str> = counts.split([' ', ';']).collect();
    words.windows(2).find(|pair| pair[1] == word).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

/// The number and the word of `5 passed`.
fn counted(text: &str) -> Option<(u64, &str)> {
    let (number, word) = text.split_once(' ')?;
    Some((number.parse().ok()?, word))
}

#[cfg(test)]
mod tests {
    use super::Results;

    #[test]
    fn closing_lines_of_test_binaries_are_summed() {
        let mut results = Results::default();
        for line in [
            "running 3 tests",
            "test queue::tests::order ... ok",
            "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; in 0.1s",
            "test crates/core/src/lib.rs - run (line 7) ... ignored",
            "12 passed, 3 failed",
            "test result: FAILED. 10 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out",
        ] {
            results.note(line);
        }
        assert_eq!((results.passed, results.failed), (12, 4));
        assert_eq!(results.skipped, ["crates/core/src/lib.rs - run (line 7): ignored"]);
    }

    #[test]
    fn closing_lines_of_pytest_are_summed() {
        let mut results = Results::default();
        for line in [
            "....s..F                                                     [100%]",
            "E   assert '3 passed, 1 failed' == 'x'",
            "SKIPPED [2] tests/python/test_store.py:12: no aiohttp",
            "FAILED tests/python/test_store.py::test_x - it took 3 s in 5 s",
            "1 failed, 6 passed, 2 skipped, 1 deselected, 2 errors in 0.31s",
            "=============== 4 passed, 1 error in 61.20s (0:01:01) ================",
            "no tests ran in 0.01s",
        ] {
            results.note_pytest(line);
        }
        assert_eq!((results.passed, results.failed), (10, 4));
        assert_eq!(results.skipped, ["pytest: [2] tests/python/test_store.py:12: no aiohttp"]);
    }

    #[test]
    fn the_closing_line_mentions_skips_only_if_there_are_any() {
        let mut results = Results { passed: 5, failed: 0, skipped: Vec::new() };
        assert_eq!(results.closing_line(), "5 passed, 0 failed");
        results.skipped.push("a page in chromium".to_owned());
        assert_eq!(results.closing_line(), "5 passed, 0 failed, 1 skipped");
    }
}
