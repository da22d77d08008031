//! Which format a trace has, from its first bytes and its name.
//!
//! ```text
//!   magic numbers, records that agree     srt lcs blktrace accesses fio vscsi oracleGeneral
//!   text that a format reads well         blkparse fiu msr spc alibaba tencent disksim lis ...
//!   the name's parts (.u32le, P3.lis)     what content cannot tell: bare words, units
//! ```
//! Text is tried out: the first format in the list below that reads nearly all of the first lines
//! is taken, else the first that reads most of them: the broken ones are then errors, one by one.
//! More particular formats stand before more general ones.
//!
//! # Invariants
//! - The same first bytes and name give the same guess.
//! - A guessed format reads the first lines; a file that no format reads is refused.

use std::fmt;

use super::fiu::has_tar_header;
use super::records::{BYTE_ORDER_MARK, is_comment, line};
use super::scan::{number, words};
use super::{FORMATS, Input, accesses, blktrace, csv, fio, lcs, make, oracle_general, srt, vscsi};

/// The reason for no guess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoGuess {
    what: String,
}

impl fmt::Display for NoGuess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = FORMATS.iter().map(|(name, _)| *name).collect();
        write!(f, "{}; there are: {} (--format NAME)", self.what, names.join(" "))
    }
}

/// The format of the trace called `name` that begins with `start`, with its parameters.
/// `is_whole`: nothing follows.
pub(super) fn guess(name: &str, start: &[u8], is_whole: bool) -> Result<String, NoGuess> {
    let start = match start.strip_prefix(BYTE_ORDER_MARK) {
        Some(text) if is_text(text) => text,
        Some(_) | None => start,
    };
    let file = name.rsplit('/').next().unwrap_or(name);
    let parts: Vec<&str> = file.split('.').skip(1).collect();
    let named = |format: &str| parts.iter().any(|part| part.eq_ignore_ascii_case(format));
    if let Some(format) = by_magic(start) {
        return Ok(format.into());
    }
    if let Some(format) = WORDS.iter().find(|format| named(format)) {
        return Ok((*format).into());
    }
    if vscsi::is_likely(start) {
        return Ok("vscsi".into());
    }
    if !is_text(start) {
        if oracle_general::is_likely(start) {
            return Ok("oracleGeneral".into());
        }
        let by_name = ["oracleGeneral", "vscsi"].into_iter().find(|format| named(format));
        return by_name.map(str::to_owned).ok_or_else(|| NoGuess {
            what: "this is not text, and no binary format that its content tells".into(),
        });
    }
    by_text(file, start, is_whole)
}

/// The guess from the first bytes alone.
fn by_magic(start: &[u8]) -> Option<&'static str> {
    if start.starts_with(srt::MAGIC) {
        Some("srt")
    } else if start.starts_with(&lcs::MAGIC.to_le_bytes()) {
        Some("lcs")
    } else if start.first_chunk().copied().is_some_and(blktrace::is_magic) {
        Some("blktrace")
    } else if accesses::is_head(start) {
        Some("accesses")
    } else if has_tar_header(start) {
        Some("fiu")
    } else if line(start, true).is_some_and(|(first, _)| fio::is_heading(first)) {
        Some("fio")
    } else {
        None
    }
}

fn by_text(file: &str, start: &[u8], is_whole: bool) -> Result<String, NoGuess> {
    // A line that is cut off tells nothing.
    let end = if is_whole { None } else { memchr::memrchr(b'\n', start) };
    let lines: Vec<&[u8]> = start[..end.map_or(start.len(), |end| end + 1)]
        .split_inclusive(|&byte| byte == b'\n')
        .filter(|line| !is_comment(line))
        .take(PROBED)
        .collect();
    let Some(first) = lines.first() else { return Ok("keys".into()) };
    let tried: Vec<(&str, Attempt)> =
        TEXTS.iter().map(|format| (*format, Attempt::new(format, &lines))).collect();
    let first_of = |is: fn(&Attempt) -> bool| {
        let found = tried.iter().find(|(_, tried)| is(tried)).map(|(format, _)| *format);
        found.map(|format| match format {
            "lis" => lis(file),
            "blkparse" => blkparse(start),
            format => format.into(),
        })
    };
    if let Some(format) = first_of(Attempt::is_nearly_all) {
        return Ok(format);
    }
    if csv::is_known_heading(first) {
        return Ok("csv".into());
    }
    // Three numbers a line: time, key and size, as traces of content networks have them.
    let is_three = |line: &&&[u8]| words(line).filter_map(number).count() == 3;
    if words(first).count() == 3 && lines.iter().filter(is_three).count() * 10 > lines.len() * 9 {
        return Ok("csv:delimiter=blanks,time=1,key=2,size=3".into());
    }
    let what = "the first lines are of no format; columns can be named: --format csv:key=2 or \
                csv:offset=1,size=2";
    first_of(Attempt::is_most).ok_or_else(|| NoGuess { what: what.into() })
}

/// The result of a format on the first lines.
struct Attempt {
    records: u64,
    broken: u64,
}

impl Attempt {
    fn new(format: &str, lines: &[&[u8]]) -> Self {
        let mut tried = Self { records: 0, broken: 0 };
        let mut reader = make(format).expect("a format of the list");
        let bytes = std::io::Cursor::new(lines.concat());
        if let Ok(mut input) = Input::new(Box::new(bytes)) {
            let mut requests = Vec::new();
            while reader.fill(&mut input, &mut requests).is_err() {
                tried.broken += 1;
            }
            tried.records = input.records();
        }
        tried
    }

    fn is_nearly_all(&self) -> bool {
        self.records > 0 && self.broken * 10 <= self.records
    }

    fn is_most(&self) -> bool {
        self.broken * 2 < self.records
    }
}

/// The unit of a list is in no file: P1 to P14 have sectors.
fn lis(file: &str) -> String {
    let sectors = file.as_bytes().windows(2).any(|two| two[0] == b'P' && two[1].is_ascii_digit());
    format!("lis:unit={}", if sectors { "512" } else { "4K" })
}

/// Queued events, or completed ones where there are none of the first.
fn blkparse(start: &[u8]) -> String {
    let has = |event: &[u8]| {
        start.split(|&byte| byte == b'\n').any(|line| words(line).nth(5) == Some(event))
    };
    let event = if !has(b"Q") && has(b"C") { "C" } else { "Q" };
    format!("blkparse:event={event}")
}

/// Whether `start` has no byte that text does not have.
fn is_text(start: &[u8]) -> bool {
    start.iter().all(|byte| !byte.is_ascii_control() || byte.is_ascii_whitespace())
}

/// Bare words, which content cannot tell apart.
const WORDS: &[&str] = &["u32le", "u32be", "i64le", "i64be"];
/// Text formats, more particular ones first.
const TEXTS: &[&str] =
    &["blkparse", "fiu", "msr", "spc", "alibaba", "tencent", "disksim", "lis", "sandrain", "keys"];
/// Lines that are tried.
const PROBED: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_tells_and_names_help() {
        let fiu = "9 4253 nfsd 508516680 8 W 6 0 b5e9\n";
        let event = "  8,16 5 2 0.1 7 Q R 8 + 8 [x]\n";
        let done = event.replace(" Q ", " C ");
        #[rustfmt::skip]
        let rows: &[(&str, &str, &str)] = &[ // name  text  guess
            ("-",              "1\n2\n",                    "keys"),
            ("-",              "",                          "keys"),
            ("-",              "# nothing\n",               "keys"),
            ("a.txt.zst",      "0\r\n1\r\n",                "keys"),
            ("-",              "1 1 0 0\n",                 "lis:unit=4K"),
            ("dir/P6.lis.zst", "1 1 0 0\n",                 "lis:unit=512"),
            ("P6/OLTP.lis",    "1 1 0 0\n",                 "lis:unit=4K"),
            ("-",              "0 0 100 8 1\n",             "disksim"),
            ("-",              "5.5 0 100 8 0\n",           "disksim"),
            ("-",              "256 4 R 0\n",               "sandrain"),
            ("-",              "0,209,8192,W,0.55\n",       "spc"),
            ("-",              "1,hm,0,Read,8192,4096,1\n", "msr"),
            ("-",              "4,W,8192,4096,15\n",        "alibaba"),
            ("-",              "15,8192,8,0,1063\n",        "tencent"),
            ("-",              fiu,                         "fiu"),
            ("-",              event,                       "blkparse:event=Q"),
            ("-",              &done,                       "blkparse:event=C"),
            ("-",              "fio version 2 iolog\n",     "fio"),
            ("-",              "{\"forerun_accesses\":2,",  "accesses"),
            ("-",              "time,key\n1,2\n",           "csv"),
            ("-",              "1 7 68\n2 8 70\n",  "csv:delimiter=blanks,time=1,key=2,size=3"),
            ("a.u32le.zst",    "1234",                      "u32le"),
            ("a.b.I64BE",      "12345678",                  "i64be"),
            ("x",              "$$TR_IOREC-1.3 (",          "srt"),
            ("x",              "\x07taemore",               "blktrace"),
        ];
        for (name, text, guessed) in rows {
            assert_eq!(guess(name, text.as_bytes(), true).as_deref(), Ok(*guessed), "{text:?}");
        }
    }

    #[test]
    fn a_few_broken_lines_do_not_mislead() {
        let mut text = "1\n".repeat(40);
        text.push_str("x\n");
        assert_eq!(guess("-", text.as_bytes(), true).as_deref(), Ok("keys"));
        assert_eq!(guess("-", b"1\nx\n2\n", true).as_deref(), Ok("keys"));
        assert_eq!(guess("-", b"1 1 0 0\n2 1 0 0\n3 1 0", false).as_deref(), Ok("lis:unit=4K"));
    }

    #[test]
    fn what_is_of_no_format_is_refused_with_the_list() {
        #[rustfmt::skip]
        let rows: &[(&str, &[u8], &str)] = &[
            ("a",     b"\x01\x00\x00\x7f", "not text"),
            ("a.txt", b"hello world\n",    "the first lines are of no format"),
            ("a",     b"1,2,3,4\n",        "columns can be named"),
        ];
        for (name, bytes, says) in rows {
            let error = guess(name, bytes, true).expect_err(name).to_string();
            assert!(error.contains(says) && error.contains("there are: keys csv lis"), "{error}");
        }
    }
}
