//! Names of any bytes as text: JSON holds no others.
//!
//! ```text
//!   a b       a b
//!   a\b       a\\b          a backslash twice
//!   a\xffb    a\xffb        a byte that is no UTF-8, by its two digits
//! ```
//! # Invariants
//! - Every name has one text, and every text that is well formed one name.

use std::fmt::Write as _;

/// The text of a name or path.
#[must_use]
pub fn encoded(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for (at, part) in chunk.valid().split('\\').enumerate() {
            text.push_str(if at > 0 { "\\\\" } else { "" });
            text.push_str(part);
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// The name or path of a text; `None` where that is no text of one.
#[must_use]
pub fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            name.push(byte);
            continue;
        }
        rest = match rest {
            [b'\\', after @ ..] => {
                name.push(b'\\');
                after
            }
            [b'x', high, low, after @ ..] => {
                name.push(digit(*high)? << 4 | digit(*low)?);
                after
            }
            _ => return None,
        };
    }
    (encoded(&name) == text).then_some(name)
}

/// A hexadecimal digit as they are written here.
const fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_one_text() {
        #[rustfmt::skip]
        let rows: [(&[u8], &str); 6] = [
            (b"", ""),
            (b"a b.c", "a b.c"),
            ("\u{e4}\n".as_bytes(), "\u{e4}\n"),
            (b"a\\b\\", "a\\\\b\\\\"),
            (b"\xff\xc3", "\\xff\\xc3"),
            (b"\\xff", "\\\\xff"),
        ];
        for (name, text) in rows {
            assert_eq!(encoded(name), text);
            assert_eq!(decoded(text).as_deref(), Some(name), "{text}");
        }
        for byte in 0..=255_u8 {
            let name = [b'a', byte, b'\\', byte];
            assert_eq!(decoded(&encoded(&name)).as_deref(), Some(&name[..]));
        }
        for text in ["\\", "a\\n", "\\x4", "\\x41", "\\xFF", "\\xfg", "\\xc3\\xa4"] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }
}
