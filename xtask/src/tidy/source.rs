//! A file as the checks see it: its lines, and for Rust each line taken apart.
//!
//! The compiler's own lexer tells code from comments and literals, so that a rule about code is
//! not triggered by prose or by a test's snippet. Nothing is parsed.
//!
//! ```text
//!   let a = "x // y"; // why
//!   |<-- code ----->||<- comment
//!            ^ blanked
//! ```
//!
//! # Invariants
//! - A line's `code` has the text's columns: what is blanked becomes spaces.
//! - Every line of the text is there once, in order.

use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};

/// A file: its path relative to the root, its text, and its Rust lines if it is Rust.
pub(crate) struct File<'a> {
    pub(crate) path: &'a str,
    pub(crate) text: &'a str,
    /// Empty for a file that is not Rust.
    pub(crate) lines: Vec<Line>,
}

/// One line of Rust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// Without comments, with literals blanked.
    pub(crate) code: String,
    /// The text of its comments, with their slashes.
    pub(crate) comment: String,
    /// Inside a `#[cfg(test)]` module, or in a file of tests.
    pub(crate) in_test: bool,
}

impl<'a> File<'a> {
    pub(crate) fn new(path: &'a str, text: &'a str) -> Self {
        let mut file = Self { path, text, lines: Vec::new() };
        if file.is_rust() {
            file.lines = lines(text);
            mark_tests(&mut file.lines);
            if file.is_test() {
                file.lines.iter_mut().for_each(|line| line.in_test = true);
            }
        }
        file
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }

    /// What follows the last dot of the file's name, or nothing.
    pub(crate) fn extension(&self) -> &'a str {
        let name = self.path.rsplit('/').next().unwrap_or(self.path);
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// A file that holds tests only.
    pub(crate) fn is_test(&self) -> bool {
        self.is_rust()
            && (self.path.split('/').any(|folder| folder == "tests")
                || self.path.ends_with("/tests.rs"))
    }

    /// Text that people write, as opposed to data: what the checks of prose look at.
    pub(crate) fn is_prose(&self) -> bool {
        ["rs", "md", "toml", "sh", "py", "pyi", "yml", "yaml"].contains(&self.extension())
            || ["Makefile", ".ci/run"].contains(&self.path)
    }

    /// Rust lines with their numbers, counted from 1.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (usize, &Line)> {
        (1..).zip(&self.lines)
    }

    /// What people wrote, a line at a time: comments and code of Rust, all of other prose.
    pub(crate) fn written(&self) -> Vec<(usize, String)> {
        if !self.is_rust() {
            return (1..).zip(self.text.lines().map(str::to_owned)).collect();
        }
        self.numbered()
            .map(|(number, line)| (number, format!("{} {}", line.code, line.comment)))
            .collect()
    }
}

/// Whether `word` stands in `code` as a whole identifier.
pub(crate) fn has_word(code: &str, word: &str) -> bool {
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    code.match_indices(word).any(|(at, _)| {
        !inside(code[..at].chars().next_back()) && !inside(code[at + word.len()..].chars().next())
    })
}

/// The lines of `text`, taken apart by the compiler's lexer.
fn lines(text: &str) -> Vec<Line> {
    let mut lines = vec![Line::default()];
    let mut at = 0;
    for token in tokenize(text, FrontmatterAllowed::No) {
        let source = &text[at..at + token.len as usize];
        at += source.len();
        let is_comment =
            matches!(token.kind, TokenKind::LineComment { .. } | TokenKind::BlockComment { .. });
        let blanked = match token.kind {
            TokenKind::Literal {
                kind: LiteralKind::Int { .. } | LiteralKind::Float { .. },
                ..
            } => 0..0,
            TokenKind::Literal { .. } => quoted(source),
            _ => 0..0,
        };
        for (offset, c) in source.char_indices() {
            let line = lines.last_mut().expect("there is one from the start");
            if c == '\n' {
                lines.push(Line::default());
                continue;
            }
            if is_comment {
                line.comment.push(c);
            }
            line.code.push(if is_comment || blanked.contains(&offset) { ' ' } else { c });
        }
    }
    if text.is_empty() || text.ends_with('\n') {
        lines.pop();
    }
    lines
}

/// What stands between the quotes of a literal.
fn quoted(literal: &str) -> std::ops::Range<usize> {
    let is_quote = |c| c == '"' || c == '\'';
    let start = literal.find(is_quote).map_or(literal.len(), |at| at + 1);
    let quote = &literal[start.saturating_sub(1)..start];
    start..literal.rfind(quote).unwrap_or(start).max(start)
}

/// Marks the lines of modules that are compiled for tests only.
fn mark_tests(lines: &mut [Line]) {
    let mut at = 0;
    while at < lines.len() {
        let start = at;
        at += 1;
        let code = lines[start].code.trim();
        if !(code.starts_with("#[cfg(test)]") || code.starts_with("#[cfg(all(test,")) {
            continue;
        }
        let item = (start..lines.len()).find(|&item| {
            let code = lines[item].code.trim();
            !code.is_empty() && !code.ends_with(']')
        });
        let Some(item) = item.filter(|&item| has_word(&lines[item].code, "mod")) else { continue };
        let end = block_end(lines, item);
        lines[start..=end].iter_mut().for_each(|line| line.in_test = true);
        at = end + 1;
    }
}

/// The line where the block that opens on line `start` closes; `start` if none opens there.
fn block_end(lines: &[Line], start: usize) -> usize {
    if !lines[start].code.contains('{') {
        return start;
    }
    let mut depth = 0_usize;
    for (at, line) in lines.iter().enumerate().skip(start) {
        for c in line.code.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if depth == 0 {
            return at;
        }
    }
    lines.len() - 1
}

#[cfg(test)]
mod tests {
    use super::{File, has_word};

    #[test]
    fn literals_are_blanked_and_comments_are_apart() {
        #[rustfmt::skip]
        let rows = [ // why, text, code, comment
            ("plain code", "let a = 1;",
             "let a = 1;", ""),
            ("a comment at the end", "a; // why",
             "a;       ", "// why"),
            ("slashes in a string", r#"f("//");"#,
             r#"f("  ");"#, ""),
            ("an escaped quote", r#"f("\"x");"#,
             r#"f("   ");"#, ""),
            ("a raw string", "f(r#\"a\"b\"#);",
             "f(r#\"   \"#);", ""),
            ("a raw byte string", "f(br\"x\");",
             "f(br\" \");", ""),
            ("a raw identifier", "r#type(1)",
             "r#type(1)", ""),
            ("a quote as a character", "f('\"', 1)",
             "f(' ', 1)", ""),
            ("an escaped character", r"f('\'', 1)",
             "f('  ', 1)", ""),
            ("a lifetime", "fn f<'a>(x: &'a u8) {}",
             "fn f<'a>(x: &'a u8) {}", ""),
            ("a block comment within one", "a /* b /* c */ d */ e",
             "a                   e", "/* b /* c */ d */"),
        ];
        for (why, text, code, comment) in rows {
            let file = File::new("a.rs", text);
            assert_eq!(file.lines.len(), 1, "{why}");
            assert_eq!(file.lines[0].code, code, "{why}");
            assert_eq!(file.lines[0].comment, comment, "{why}");
        }
    }

    #[test]
    fn literals_and_comments_go_on_over_lines() {
        let file = File::new("a.rs", "let a = \"x\ny\";\n/* b\nc */ d\n");
        let code: Vec<&str> = file.lines.iter().map(|line| line.code.as_str()).collect();
        assert_eq!(code, ["let a = \" ", " \";", "    ", "     d"]);
    }

    #[test]
    fn lines_of_test_modules_are_marked() {
        #[rustfmt::skip]
        let rows = [ // why, path, text, marks
            ("a test module", "crates/a/src/b.rs",
             "a\n#[cfg(test)]\nmod tests {\n}\nb\n", "-###-"),
            ("an attribute in between", "crates/a/src/b.rs",
             "#[cfg(test)]\n#[expect(x)]\nmod t {\nf {} }\nb", "####-"),
            ("a test module elsewhere", "crates/a/src/b.rs",
             "#[cfg(test)]\nmod tests;\nb\n", "##-"),
            ("not a module", "crates/a/src/b.rs",
             "#[cfg(test)]\nuse a;\nb\n", "---"),
            ("a brace in a string", "crates/a/src/b.rs",
             "#[cfg(test)]\nmod t {\n\"}\"\n}\nb\n", "####-"),
            ("a file of tests", "crates/a/tests/b.rs",
             "a\nb\n", "##"),
            ("a module file of tests", "crates/a/src/tests.rs",
             "a\n", "#"),
        ];
        for (why, path, text, marks) in rows {
            let file = File::new(path, text);
            let got: String =
                file.lines.iter().map(|line| if line.in_test { '#' } else { '-' }).collect();
            assert_eq!(got, marks, "{why}");
        }
    }

    #[test]
    fn a_word_is_a_whole_identifier() {
        assert!(has_word("use a::Instant;", "Instant"));
        assert!(!has_word("use a::Instants;", "Instant"));
        assert!(!has_word("use a::MyInstant;", "Instant"));
        assert!(has_word("MyInstant, Instant", "Instant"));
    }
}
