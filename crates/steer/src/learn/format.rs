//! Learned lists as files: a line of JSON that says whose list it is, and a line for each entry.
//!
//! ```text
//!   {"format":"forerun-learned","version":1,"runs":3,"program":{"executable":"/usr/bin/git",...}}
//!   {"path":"/usr/lib/x.so","kind":"read","first_us":812,"ranges":[[0,4096]],"inode":7,...}
//! ```
//! A path that is no UTF-8 stands in `path_hex`, two digits a byte.
//!
//! # Invariants
//! - What is written reads as the same list; what is longer than a list may be does not read.
//! - A path that does not begin at the root, or goes up (`..`), does not read.

use std::io::{self, BufRead, Read, Write};
use std::ops::Range;

use forerun_core::learned::{ENTRIES_MAX, LearnedEntry, LearnedKind, LearnedList, Version};
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
    #[error("more than {ENTRIES_MAX} entries or {} MiB", FILE_BYTES_MAX >> 20)]
    TooLong,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u64,
    runs: u64,
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
}

impl LearnedFile {
    /// Writes the list.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (format, runs) = (FORMAT.to_owned(), self.list.runs());
        let header = Header { format, version: VERSION, runs, program: self.program.clone() };
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
        let (mut line, mut read_bytes) = (Vec::new(), 0);
        let mut next = |line: &mut Vec<u8>| -> Result<bool, FormatError> {
            line.clear();
            let count = lines.read_until(b'\n', line)? as u64;
            read_bytes += count;
            if read_bytes > FILE_BYTES_MAX { Err(FormatError::TooLong) } else { Ok(count > 0) }
        };
        next(&mut line)?;
        let header: Header = serde_json::from_slice(&line).map_err(|_| FormatError::Other)?;
        if header.format != FORMAT {
            return Err(FormatError::Other);
        }
        if header.version != VERSION {
            return Err(FormatError::Version(header.version));
        }
        let mut entries = Vec::new();
        while next(&mut line)? {
            if entries.len() == ENTRIES_MAX {
                return Err(FormatError::TooLong);
            }
            let row: Result<Row, _> = serde_json::from_slice(&line);
            let entry = row.map_err(|error| error.to_string()).and_then(Row::entry);
            entries.push(entry.map_err(|why| FormatError::Line(entries.len() + 2, why))?);
        }
        assert!(entries.len() <= ENTRIES_MAX, "a list has a bound");
        Ok(Self { program: header.program, list: LearnedList::new(header.runs, entries) })
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
        Ok(LearnedEntry {
            path: path.into(),
            kind,
            first: Nanos(self.first_us.saturating_mul(1_000)),
            ranges,
            version: Version { inode: self.inode, bytes: self.bytes, modified: self.modified },
            history: self.history,
        })
    }
}

/// Whether a list may have `path`.
pub(crate) fn check_path(path: &[u8]) -> Result<(), String> {
    let is_sound = path.starts_with(b"/")
        && path.len() < PATH_BYTES_MAX
        && !path.contains(&0)
        && path.split(|&byte| byte == b'/').all(|name| name != b"..");
    if is_sound { Ok(()) } else { Err("not a full path without `..`".into()) }
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
const PATH_BYTES_MAX: usize = 4096;

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
        };
        let entries = [
            entry(b"/a b\n\"c", LearnedKind::Read, vec![0..4096, 8192..9000]),
            entry(b"/\xff\x00b".split_at(2).0, LearnedKind::Absent, vec![]),
            entry(b"/d", LearnedKind::Directory, vec![]),
        ];
        let program = Program { executable: "/bin/x".into(), ..Program::default() };
        LearnedFile { program, list: LearnedList::new(4, entries) }
    }

    #[test]
    fn what_is_written_reads_as_the_same() {
        let mut bytes = Vec::new();
        list().write(&mut bytes).unwrap();
        assert_eq!(LearnedFile::read(&bytes[..]).unwrap(), list());
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
