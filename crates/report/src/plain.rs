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

/// Whether `c` is to be shown, and not obeyed.
pub(crate) fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
