//! Text from elsewhere (paths, names of programs), as a terminal and a page can show it.
//!
//! # Invariants
//! - No character of a text controls a terminal or turns the direction of writing.
//! # Sources
//! Unicode Standard Annex #9, "Unicode Bidirectional Algorithm": its formatting characters.

/// `text` for a terminal, with a question mark for each character that would mislead.
#[must_use]
pub fn text(text: &str) -> String {
    text.chars().map(|c| if misleads(c) { '?' } else { c }).collect()
}

/// The words of a command as a shell takes them; not for a terminal as they are.
#[must_use]
pub fn command(words: &[impl AsRef<str>]) -> String {
    let quoter = shlex::Quoter::new().allow_nul(true);
    quoter.join(words.iter().map(AsRef::as_ref)).expect("nothing but NUL cannot be quoted")
}

/// Whether `c` is to be shown, and not obeyed.
pub(crate) fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_given_to_a_shell_again() {
        let rows: &[(&[&str], &str)] = &[
            (&["sh", "-c", "cat a b"], "sh -c 'cat a b'"),
            (&["dd", "if=a", "./b-c.d"], "dd 'if=a' ./b-c.d"),
            (&["echo", "", "it's", "$x"], "echo '' \"it's\" '$x'"),
            (&["echo", "a\0b"], "echo 'a\0b'"),
            (&[], ""),
        ];
        for (words, line) in rows {
            assert_eq!(command(words), *line);
        }
    }
}
