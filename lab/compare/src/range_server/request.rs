//! A client's request: its head, and the bytes of its `Range`.
//!
//! # Invariants
//! - A head is bounded; a longer or malformed head is `InvalidData`.
//! - A `Range` that is not understood is as if it were absent: more than one range, another unit,
//!   or nonsense.
//! # Sources
//! RFC 9112, sections 2 to 6; RFC 9110, section 14.1.2 (`bytes` ranges) and 15.5.17 (416).

use std::io::{self, BufRead, Read as _};
use std::ops::Range;

use forerun_report::quantity::read as whole;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// As sent, without a query.
    pub(super) path: String,
    pub(super) range: Option<String>,
    /// Whether the client keeps the connection open.
    pub(super) keep_alive: bool,
    /// Of its own body.
    body_bytes: u64,
}

/// The next request, its body skipped; nothing at the end of the connection.
pub(super) fn read(from: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut head = Vec::new();
    let mut bounded = from.by_ref().take(HEAD_BYTES_MAX);
    while bounded.read_until(b'\n', &mut head)? > 0 {
        if head.ends_with(b"\r\n\r\n") || head.ends_with(b"\n\n") {
            let request = parse(&head).ok_or(io::ErrorKind::InvalidData)?;
            io::copy(&mut from.take(request.body_bytes), &mut io::sink())?;
            return Ok(Some(request));
        }
    }
    if head.is_empty() { Ok(None) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn parse(head: &[u8]) -> Option<Request> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    parsed.parse(head).ok().filter(httparse::Status::is_complete)?;
    let method = parsed.method?.to_owned();
    let path = parsed.path?.split('?').next().filter(|path| path.starts_with('/'))?.to_owned();
    let keep_alive = parsed.version? == 1;
    let mut request = Request { method, path, range: None, keep_alive, body_bytes: 0 };
    for field in parsed.headers {
        let value = str::from_utf8(field.value).ok()?.trim();
        match field.name.to_ascii_lowercase().as_str() {
            "range" => request.range = Some(value.to_owned()),
            "content-length" => request.body_bytes = whole(value).ok()?,
            // No client in the tests sends a body in chunks.
            "transfer-encoding" => return None,
            "connection" if value.eq_ignore_ascii_case("close") => request.keep_alive = false,
            "connection" if value.eq_ignore_ascii_case("keep-alive") => request.keep_alive = true,
            _ => {}
        }
    }
    Some(request)
}

/// The bytes of a file that a `Range` selects.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Selection {
    Whole,
    /// Bytes that the file has; not empty.
    Part(Range<u64>),
    /// No byte of the file.
    Outside,
}

/// The bytes that `range`, the value of a `Range`, selects in a file of `bytes`.
pub(super) fn asked(range: Option<&str>, bytes: u64) -> Selection {
    let ends = range.and_then(|value| value.strip_prefix("bytes=")?.split_once('-'));
    let Some((first, last)) = ends else { return Selection::Whole };
    let span = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(bytes),
        (Some(first), None) if last.is_empty() => first..bytes,
        (None, Some(count)) if first.is_empty() => bytes.saturating_sub(count)..bytes,
        _ => return Selection::Whole,
    };
    if span.is_empty() { Selection::Outside } else { Selection::Part(span) }
}

/// A position; what is beyond 64 bits is beyond any file.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

const HEAD_BYTES_MAX: u64 = 16 << 10;
const FIELDS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_of_the_file_or_are_refused() {
        let part = Selection::Part;
        let huge = "bytes=99999999999999999999999-";
        #[rustfmt::skip]
        let rows = [ // why                     range                      bytes  expected
            ("no range",                        None,                      100, Selection::Whole),
            ("from to, both included",          Some("bytes=10-19"),       100, part(10..20)),
            ("one byte",                        Some("bytes=0-0"),         100, part(0..1)),
            ("the last byte",                   Some("bytes=99-99"),       100, part(99..100)),
            ("past the end is clipped",         Some("bytes=90-500"),      100, part(90..100)),
            ("to the largest position",         Some("bytes=0-18446744073709551615"),
                                                                           100, part(0..100)),
            ("an end beyond 64 bits",           Some("bytes=0-99999999999999999999"),
                                                                           100, part(0..100)),
            ("an open end",                     Some("bytes=10-"),         100, part(10..100)),
            ("the last so many",                Some("bytes=-10"),         100, part(90..100)),
            ("more than there are",             Some("bytes=-500"),        100, part(0..100)),
            ("begins at the end",               Some("bytes=100-"),        100, Selection::Outside),
            ("begins and ends past the end",    Some("bytes=100-200"),     100, Selection::Outside),
            ("a beginning beyond 64 bits",      Some(huge),                100, Selection::Outside),
            ("the last none",                   Some("bytes=-0"),          100, Selection::Outside),
            ("of an empty file",                Some("bytes=0-"),            0, Selection::Outside),
            ("the last of an empty file",       Some("bytes=-1"),            0, Selection::Outside),
            ("backwards is no range",           Some("bytes=5-2"),         100, Selection::Whole),
            ("two ranges are not understood",   Some("bytes=0-1,4-5"),     100, Selection::Whole),
            ("nor is another unit",             Some("pages=0-1"),         100, Selection::Whole),
            ("nor no end at all",               Some("bytes=-"),           100, Selection::Whole),
            ("nor a word",                      Some("bytes=a-b"),         100, Selection::Whole),
            ("nor a sign",                      Some("bytes=+1-2"),        100, Selection::Whole),
            ("nor a second dash",               Some("bytes=1--2"),        100, Selection::Whole),
        ];
        for (why, range, bytes, expected) in rows {
            assert_eq!(asked(range, bytes), expected, "{why}");
        }
    }

    #[test]
    fn heads_are_read_one_after_the_other() {
        let text = "GET /a?b HTTP/1.1\r\nHost: x\r\nRANGE:  bytes=0-1 \r\n\r\n\
                    POST /-/reset HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc\
                    HEAD / HTTP/1.1\r\nConnection: Close\r\n\r\n\
                    PUT / HTTP/1.0\n\n";
        let get = Request {
            method: "GET".to_owned(),
            path: "/a".to_owned(),
            range: Some("bytes=0-1".to_owned()),
            keep_alive: true,
            body_bytes: 0,
        };
        let mut from = text.as_bytes();
        let mut next = || read(&mut from).unwrap();
        assert_eq!(next(), Some(get));
        for brief in [("POST", true, 3), ("HEAD", false, 0), ("PUT", false, 0)] {
            let request = next().expect("one more");
            assert_eq!((&*request.method, request.keep_alive, request.body_bytes), brief);
        }
        assert_eq!(next(), None);
    }

    #[test]
    fn heads_that_make_no_sense_are_refused() {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(20_000));
        #[rustfmt::skip]
        let rows = [ // why              text
            ("it ends too soon",         "GET / HTTP/1.1\r\nHost: x\r\n"),
            ("two words",                "GET /\r\n\r\n"),
            ("another protocol",         "GET / HTTP/2\r\n\r\n"),
            ("no path",                  "GET * HTTP/1.1\r\n\r\n"),
            ("a field without a colon",  "GET / HTTP/1.1\r\nHost\r\n\r\n"),
            ("no length",                "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
            ("a body in chunks",         "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"),
            ("a head without an end",    &long),
        ];
        for (why, text) in rows {
            let error = read(&mut text.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{why}");
        }
    }
}
