//! Learned lists as files: a line of JSON that says whose list it is, and a line for each entry.
//!
//! ```text
//!   {"format":"forerun-learned","version":1,"runs":3,"program":{"executable":"/usr/bin/git",...}}
//!   {"path":"/usr/lib/x.so","kind":"read","first_us":812,"ranges":[[0,4096]],"inode":7,...}
//! ```
//! A path that is no UTF-8 stands in `path_hex`, two digits a byte.
//!
//! # Invariants
//! - What is written reads as the same list; what is longer than a list may be does not read. Of
//!   the program's facts, which are there to be looked at, the first [`FACT_BYTES_MAX`] are kept.
//! - A path that does not begin at the root, or goes up (`..`), does not read.
//! - Reading takes no more memory than the largest list and one line of [`LINE_BYTES_MAX`].

use std::io::{self, BufRead, Read, Write};
use std::ops::Range;

use forerun_core::learned::{
    ENTRIES_MAX, LearnedEntry, LearnedKind, LearnedList, RANGES_ALL_MAX, RANGES_MAX, Version,
};
use forerun_core::units::Nanos;
use serde::{Deserialize, Serialize};

/// What a list was learned of: what the key of the list is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The path of the executable, with no links in it.
    #[serde(default)]
    pub executable: String,
    /// Its build id, else its size and the time of its last change.
    #[serde(default)]
    pub build: String,
    /// Of an interpreter, what it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The name that it was called by.
    #[serde(default)]
    pub called: String,
    /// The folder that it was started in.
    #[serde(default)]
    pub folder: String,
}

/// A list and what it was learned of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnedFile {
    /// The program of the last run.
    pub program: Program,
    /// What it uses.
    pub list: LearnedList,
}

/// Why a list does not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// It could not be read at all.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The first line is not that of a list.
    #[error("no learned list: line 1 does not say {FORMAT}")]
    Other,
    /// It is of a later version.
    #[error("a learned list of version {0}: this program reads version {VERSION}")]
    Version(u64),
    /// A line says something else than an entry.
    #[error("line {0}: {1}")]
    Line(usize, String),
    /// There is more than a list may have.
    #[error(
        "more than {ENTRIES_MAX} entries, {RANGES_ALL_MAX} ranges or {} MiB",
        FILE_BYTES_MAX >> 20
    )]
    TooLong,
}

/// What the first line says in every version.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u64,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u64,
    runs: u64,
    /// Which of the last runs used little of it.
    #[serde(default, skip_serializing_if = "is_zero")]
    poor: u8,
    program: Program,
}

#[derive(Serialize, Deserialize)]
struct Row {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    kind: String,
    first_us: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ranges: Vec<[u64; 2]>,
    #[serde(default)]
    inode: u64,
    #[serde(default)]
    bytes: u64,
    /// Nanoseconds since 1970.
    #[serde(default)]
    modified: i64,
    /// Bit 0: the last run used it; bits 1 and 2: those before.
    history: u8,
    /// The same of each range, where they differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    histories: Vec<u8>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(poor: &u8) -> bool {
    *poor == 0
}

impl LearnedFile {
    /// Writes the list.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (format, runs, poor) = (FORMAT.to_owned(), self.list.runs(), self.list.poor());
        let program = self.program.shortened();
        let header = Header { format, version: VERSION, runs, poor, program };
        serde_json::to_writer(&mut *to, &header)?;
        to.write_all(b"\n")?;
        for entry in self.list.entries() {
            serde_json::to_writer(&mut *to, &Row::of(entry))?;
            to.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Reads a list.
    ///
    /// # Errors
    /// See [`FormatError`].
    pub fn read(from: impl Read) -> Result<Self, FormatError> {
        let mut lines = io::BufReader::new(from.take(FILE_BYTES_MAX + 1));
        let (mut line, mut number, mut read_bytes) = (Vec::new(), 0, 0);
        let mut next = |line: &mut Vec<u8>| -> Result<bool, FormatError> {
            line.clear();
            number += 1;
            let count = (&mut lines).take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', line)?;
            read_bytes += count as u64;
            if read_bytes > FILE_BYTES_MAX {
                return Err(FormatError::TooLong);
            }
            if count > LINE_BYTES_MAX {
                let why = format!("more than {} KiB", LINE_BYTES_MAX >> 10);
                let is_head = number == 1;
                return Err(if is_head {
                    FormatError::Other
                } else {
                    FormatError::Line(number, why)
                });
            }
            Ok(count > 0)
        };
        next(&mut line)?;
        let head: Head = serde_json::from_slice(&line).map_err(|_| FormatError::Other)?;
        if head.format != FORMAT {
            return Err(FormatError::Other);
        }
        if head.version != VERSION {
            return Err(FormatError::Version(head.version));
        }
        let header: Header = serde_json::from_slice(&line).map_err(|_| FormatError::Other)?;
        let (mut entries, mut ranges) = (Vec::new(), 0);
        while next(&mut line)? {
            let row: Result<Row, _> = serde_json::from_slice(&line);
            let entry = row.map_err(|error| error.to_string()).and_then(Row::entry);
            let entry = entry.map_err(|why| FormatError::Line(entries.len() + 2, why))?;
            ranges += entry.ranges.len();
            if entries.len() == ENTRIES_MAX || ranges > RANGES_ALL_MAX {
                return Err(FormatError::TooLong);
            }
            entries.push(entry);
        }
        assert!(entries.len() <= ENTRIES_MAX, "a list has a bound");
        let list = LearnedList::new(header.runs, entries).with_poor(header.poor);
        Ok(Self { program: header.program, list })
    }
}

impl Program {
    /// As it stands in a list: words of any length may start a program.
    fn shortened(&self) -> Self {
        let short = |text: &String| {
            let end =
                (0..=text.len().min(FACT_BYTES_MAX)).rev().find(|&at| text.is_char_boundary(at));
            text[..end.expect("a text begins at a boundary")].to_owned()
        };
        Self {
            executable: short(&self.executable),
            build: short(&self.build),
            script: self.script.as_ref().map(short),
            called: short(&self.called),
            folder: short(&self.folder),
        }
    }
}

impl Row {
    fn of(entry: &LearnedEntry) -> Self {
        let text = str::from_utf8(&entry.path).ok();
        Self {
            path: text.map(str::to_owned),
            path_hex: text.is_none().then(|| hex(&entry.path)),
            kind: entry.kind.name().to_owned(),
            first_us: entry.first.0 / 1_000,
            ranges: entry.ranges.iter().map(|range| [range.start, range.end]).collect(),
            inode: entry.version.inode,
            bytes: entry.version.bytes,
            modified: entry.version.modified,
            history: entry.history,
            histories: entry.histories.clone(),
        }
    }

    fn entry(self) -> Result<LearnedEntry, String> {
        let path = match (self.path, self.path_hex) {
            (Some(path), None) => path.into_bytes(),
            (None, Some(text)) => unhex(&text).ok_or("path_hex is not hexadecimal")?,
            _ => return Err("expected path or path_hex".into()),
        };
        check_path(&path)?;
        let mut kinds = LearnedKind::NAMES.iter();
        let kind = kinds.find(|(name, _)| *name == self.kind).map(|(_, kind)| *kind);
        let kind = kind.ok_or_else(|| format!("no such kind: {}", self.kind))?;
        let ranges: Vec<Range<u64>> = self.ranges.iter().map(|[from, to]| *from..*to).collect();
        if ranges.iter().any(|range| range.start > range.end || range.end > i64::MAX as u64) {
            return Err("a range ends before it begins, or beyond any file".into());
        }
        if ranges.len() > RANGES_MAX {
            return Err(format!("more than {RANGES_MAX} ranges"));
        }
        if !self.histories.is_empty() && self.histories.len() != ranges.len() {
            return Err("histories are not as many as ranges".into());
        }
        Ok(LearnedEntry {
            path: path.into(),
            kind,
            first: Nanos(self.first_us.saturating_mul(1_000)),
            ranges,
            version: Version { inode: self.inode, bytes: self.bytes, modified: self.modified },
            history: self.history,
            histories: self.histories,
        })
    }
}

/// Whether a list may have `path`.
pub(crate) fn check_path(path: &[u8]) -> Result<(), String> {
    let is_sound = path.starts_with(b"/")
        && path.len() < PATH_BYTES_MAX
        && !path.contains(&0)
        && path.split(|&byte| byte == b'/').all(|name| name != b"..");
    let why = || format!("not a full path without `..`, below {PATH_BYTES_MAX} bytes");
    if is_sound { Ok(()) } else { Err(why()) }
}

/// Two digits a byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).expect("a half of a byte");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let pairs = digits.chunks_exact(2).map(|two| Some(digit(two[0])? << 4 | digit(two[1])?));
    if digits.len().is_multiple_of(2) { pairs.collect() } else { None }
}

const FORMAT: &str = "forerun-learned";
const VERSION: u64 = 1;
/// A file of a list, at most.
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 20;
/// A line, at most: that of a path with as many ranges and histories as it may have, of twenty and
/// three digits each.
pub const LINE_BYTES_MAX: usize = 256 << 10;
/// A fact of the program, at most.
pub const FACT_BYTES_MAX: usize = 4096;
const PATH_BYTES_MAX: usize = 4096;
/// What escapes make of a byte (`\\u0000`).
const ESCAPED: usize = 6;
const _: () = {
    assert!(RANGES_MAX * (44 + 4) + PATH_BYTES_MAX * ESCAPED + 1_024 <= LINE_BYTES_MAX);
    assert!(5 * FACT_BYTES_MAX * ESCAPED + 1_024 <= LINE_BYTES_MAX);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> LearnedFile {
        let entry = |path: &[u8], kind, ranges| LearnedEntry {
            path: path.into(),
            kind,
            first: Nanos::from_micros(7),
            ranges,
            version: Version { inode: 5, bytes: 9, modified: -3 },
            history: 0b101,
            histories: Vec::new(),
        };
        let entries = [
            entry(b"/a b\n\"c", LearnedKind::Read, vec![0..4096, 8192..9000]),
            entry(b"/\xff\x00b".split_at(2).0, LearnedKind::Absent, vec![]),
            entry(b"/d", LearnedKind::Directory, vec![]),
            LearnedEntry {
                histories: vec![1, 6],
                ..entry(b"/p", LearnedKind::Read, vec![0..7, 7..9])
            },
        ];
        let program = Program { executable: "/bin/x".into(), ..Program::default() };
        let mut list = LearnedList::new(4, entries);
        list.judge(Some(10));
        LearnedFile { program, list }
    }

    #[test]
    fn what_is_written_reads_as_the_same() {
        let mut bytes = Vec::new();
        list().write(&mut bytes).unwrap();
        assert_eq!(LearnedFile::read(&bytes[..]).unwrap(), list());
    }

    #[test]
    fn the_longest_rows_and_facts_that_are_written_read() {
        let far = |at: u64| i64::MAX as u64 - 2 * (RANGES_MAX as u64 - at);
        let entry = LearnedEntry {
            path: [b"/".as_slice(), &[1; PATH_BYTES_MAX - 2]].concat().into(),
            kind: LearnedKind::Directory,
            first: Nanos(u64::MAX),
            ranges: (0..RANGES_MAX as u64).map(|at| far(at)..far(at) + 1).collect(),
            version: Version { inode: u64::MAX, bytes: u64::MAX, modified: i64::MIN },
            history: 7,
            histories: (0..RANGES_MAX).map(|at| [1, 2, 4][at % 3]).collect(),
        };
        let long = "\u{e9}\u{1}".repeat(1 << 16);
        let program = Program {
            executable: long.clone(),
            build: long.clone(),
            script: Some(long.clone()),
            called: long.clone(),
            folder: long,
        };
        let mut bytes = Vec::new();
        let list = LearnedList::new(u64::MAX, [entry]);
        LearnedFile { program: program.clone(), list: list.clone() }.write(&mut bytes).unwrap();
        let read = LearnedFile::read(&bytes[..]).unwrap();
        let (found, expected) = (&read.list.entries()[0], &list.entries()[0]);
        assert_eq!(found.ranges, expected.ranges);
        assert_eq!((found.histories.len(), &found.histories), (RANGES_MAX, &expected.histories));
        assert_eq!(read.program, program.shortened());
        assert!(read.program.called.len() > FACT_BYTES_MAX - 4);
    }

    #[test]
    fn more_than_a_list_may_have_is_refused_before_it_takes_memory() {
        let head = r#"{"format":"forerun-learned","version":1,"runs":1,"program":{}}"#;
        let row = |at: usize, ranges: usize| {
            let pairs: Vec<String> =
                (0..ranges).map(|at| format!("[{},{}]", 2 * at, 2 * at + 1)).collect();
            let pairs = pairs.join(",");
            format!(
                r#"{{"path":"/{at}","kind":"read","first_us":0,"ranges":[{pairs}],"history":1}}"#
            )
        };
        let rows = |count: usize, ranges: usize| {
            let rows: Vec<String> = (0..count).map(|at| row(at, ranges)).collect();
            format!("{head}{NL}{}", rows.join("\n"))
        };
        let all = RANGES_ALL_MAX / RANGES_MAX;
        let long = "x".repeat(LINE_BYTES_MAX);
        #[rustfmt::skip]
        let refused = [
            (rows(ENTRIES_MAX + 1, 0),                 "more than 65536 entries"),
            (rows(1_000_000, 0),                       "more than 65536 entries"),
            (rows(1, RANGES_MAX + 1),                  "line 2: more than 4096 ranges"),
            (rows(all + 1, RANGES_MAX),                "131072 ranges"),
            (format!("{head}{NL}{{\"path\":\"/{long}"), "line 2: more than 256 KiB"),
            (format!("{long}{long}"),                  "no learned list: line 1"),
        ];
        for (text, why) in refused {
            let error = LearnedFile::read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}, not {why}");
        }
        for (entries, ranges) in [(ENTRIES_MAX, 0), (all, RANGES_MAX)] {
            let read = LearnedFile::read(rows(entries, ranges).as_bytes()).unwrap();
            assert_eq!(read.list.entries().len(), entries);
        }
        // Blank lines are no entries, and have no end of their own.
        let endless = io::repeat(b' ').chain(io::empty());
        let endless = head.as_bytes().chain(b"\n".as_slice()).chain(endless);
        assert!(LearnedFile::read(endless).is_err());
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_line() {
        let head = r#"{"format":"forerun-learned","version":1,"runs":1,"program":{}}"#;
        let row = |rest: &str| format!(r#"{head}{NL}{{{rest},"first_us":0,"history":1}}"#);
        let later = head.replace(":1,\"runs", ":9,\"runs");
        #[rustfmt::skip]
        let rows = [
            (String::new(),                                              "no learned list"),
            ("{}".into(),                                                "no learned list"),
            (head.replace("forerun-learned", "other"),                   "no learned list"),
            (later,                                                      "version 9"),
            (r#"{"format":"forerun-learned","version":2}"#.into(),        "version 2"),
            (r#"{"format":"forerun-learned","version":1}"#.into(),        "no learned list"),
            (format!("{head}{NL}\u{0}"),                                 "line 2"),
            (row(r#""path":"x","kind":"read""#),                         "full path"),
            (row(r#""path":"/a/../b","kind":"read""#),                   "full path"),
            (row(r#""path":"/a\u0000","kind":"read""#),                  "full path"),
            (row(r#""kind":"read""#),                                    "expected path"),
            (row(r#""path":"/a","path_hex":"2f","kind":"read""#),        "expected path"),
            (row(r#""path_hex":"2","kind":"read""#),                     "hexadecimal"),
            (row(r#""path_hex":"2fzz","kind":"read""#),                  "hexadecimal"),
            (row(r#""path":"/a","kind":"run""#),                         "no such kind"),
            (row(r#""path":"/a","kind":"read","ranges":[[5,4]]"#),       "a range ends"),
            (row(r#""path":"/a","kind":"read","ranges":[[0,1e19]]"#),    "line 2"),
            (row(r#""path":"/a","kind":"read","histories":[1]"#),        "histories"),
            (row(&format!(r#""path":"/a","kind":"read","ranges":[[0,{}]]"#, u64::MAX)), "a range"),
        ];
        for (text, why) in rows {
            let error = LearnedFile::read(text.as_bytes()).expect_err(&text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        let ends_early = row(r#""path":"/a","kind":"read""#);
        assert!(LearnedFile::read(&ends_early.as_bytes()[..ends_early.len() - 3]).is_err());
        assert!(LearnedFile::read(ends_early.as_bytes()).is_ok());
    }

    const NL: char = '\n';
}
