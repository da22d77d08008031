//! Plain lists: a key a line, in decimal.
//!
//! Blank lines and lines that begin with `*` or `#` are passed over.
//!
//! # Sources
//! The form of the traces that come with LIRS (Jiang and Zhang 2002): block numbers, `*` lines.

use super::records::{Format, Step, is_comment, line};
use super::scan::{digits, number, shown};
use super::{Facts, Request};

/// See the module.
pub(super) struct Keys;

impl Format for Keys {
    fn parse(&mut self, bytes: &[u8], is_last: bool) -> Step {
        // Most lines are digits and a line end, so the parser does not search for the end first.
        if let Some((key, length)) = digits(bytes)
            && bytes.get(length) == Some(&b'\n')
        {
            return Step::Request(length + 1, Request::key(key, 0));
        }
        let Some((line, used)) = line(bytes, is_last) else { return Step::More };
        if is_comment(line) {
            return Step::Other(used);
        }
        let word = line.trim_ascii();
        match number(word) {
            Some(key) => Step::Request(used, Request::key(key, 0)),
            None => Step::Broken(used, format!("{} is not a key below 2^64", shown(word))),
        }
    }

    fn facts(&self) -> Facts {
        Facts::KEYS
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::tests::{broken, keys};

    #[test]
    fn a_line_is_a_key() {
        #[rustfmt::skip]
        let rows: &[(&str, &str, &[u64])] = &[
            ("a key a line",          "7\n7\n0\n",                 &[7, 7, 0]),
            ("no newline at the end", "7\n8",                      &[7, 8]),
            ("comments, blanks",      "# x\n\n*\n 7 \n* 9\r\n8\r\n", &[7, 8]),
            ("the largest key",       "18446744073709551615",      &[u64::MAX]),
            ("nothing",               "",                          &[]),
            ("nothing but comments",  "# a\n",                     &[]),
        ];
        for (why, text, expected) in rows {
            assert_eq!(keys("keys", text), *expected, "{why}");
        }
    }

    #[test]
    fn what_is_no_key_is_broken() {
        #[rustfmt::skip]
        let rows = [ // text  the record, its byte, what
            ("1\nx\n",                          2, 2, "`x` is not a key"),
            ("# a\n\n1\n18446744073709551616\n", 2, 7, "below 2^64"),
            ("-1\n",                            1, 0, "`-1`"),
            ("+1\n",                            1, 0, "`+1`"),
            ("1 2\n",                           1, 0, "`1 2`"),
        ];
        for (text, record, offset, what) in rows {
            broken("keys", text, record, offset, what);
        }
    }
}
