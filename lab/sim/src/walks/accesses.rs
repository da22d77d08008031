//! Traces of accesses with paths: the calls of a program on a tree, with their times.
//!
//! ```text
//!   {"forerun_accesses":2,"program":"tar cf - tree"}
//!   {"directory":"","entries":[["a","d",12,4096],["x","f",13,700]]}       a line a directory
//!   {"t":0,"thread":71,"call":"open","path":"x","took":10000}             a line a call
//! ```
//! Times are in nanoseconds since the first call. Names and paths are text as `names` has it; in
//! version 1, which is read as well, a backslash is one. A file may be packed by zstd, gzip or xz.
//!
//! # Invariants
//! - What is read is bounded: lines, entries, calls, times and sizes.
//! - A line is a directory of the tree as it was, or a call; directories come before the calls.
//! - Calls are in the order of their begin.

use std::io::{self, BufRead, BufReader, Read, Write};

use forerun_core::units::Nanos;
use serde::{Deserialize, Serialize};

use super::names;
use super::tree::{DirectoryLine, Tree};
use crate::trace::unpack::unpack;

/// See the module.
#[derive(Clone, Debug)]
pub struct AccessTrace {
    /// The program's command line.
    pub program: String,
    /// The tree.
    pub tree: Tree,
    /// The calls on it.
    pub calls: Vec<Call>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// When it began.
    #[serde(rename = "t")]
    pub begin: u64,
    /// The thread that made it.
    pub thread: u32,
    /// What it was.
    pub call: CallKind,
    /// What it was about, below the top, as `names` writes it.
    pub path: String,
    /// The first byte.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: u64,
    /// Bytes that were read or mapped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// The error's name, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it took.
    pub took: u64,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallKind {
    /// Asks for facts of an inode by its path, or follows a link.
    Stat,
    /// Opens by a path.
    Open,
    /// Reads entries of a directory.
    List,
    /// Reads bytes of a file, into memory or into another file.
    Read,
    /// Maps a part of a file.
    Map,
    /// Starts a program.
    Exec,
}

/// The reason why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The system, or the decompressor, refused.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// A line is not what the format says.
    #[error("line {line}: {what}")]
    Broken {
        /// The line, counted from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Header {
    forerun_accesses: u32,
    program: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Directory(DirectoryLine),
    Call(Call),
}

impl Call {
    /// When it ended.
    #[must_use]
    pub fn end(&self) -> Nanos {
        Nanos(self.begin.saturating_add(self.took))
    }

    /// Refuses what no program does.
    fn check(&self) -> Result<(), String> {
        if self.begin > TIME_MAX || self.took > TIME_MAX {
            return Err("a call of longer than a month".into());
        }
        Ok(())
    }
}

impl AccessTrace {
    /// The trace in `bytes`.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub fn read(bytes: impl Read + Send + 'static) -> Result<Self, AccessError> {
        let broken = |line, what: String| AccessError::Broken { line, what };
        let mut bytes = BufReader::new(unpack(Box::new(bytes))?);
        let first = next_line(&mut bytes, 1)?.unwrap_or_default();
        let header: Header = serde_json::from_slice(&first)
            .map_err(|error| broken(1, format!("no head of a trace of accesses: {error}")))?;
        if !(1..=VERSION).contains(&header.forerun_accesses) {
            let what = format!("version {} is not known", header.forerun_accesses);
            return Err(broken(1, what));
        }
        let is_plain = header.forerun_accesses == 1;
        let (mut tree, mut calls) = (Tree::new(), Vec::new());
        let mut last = 0;
        for number in 2.. {
            let Some(text) = next_line(&mut bytes, number)? else { break };
            let line = serde_json::from_slice(&text)
                .map_err(|error| broken(number, format!("no directory and no call: {error}")))?;
            match line {
                Line::Directory(_) if !calls.is_empty() => {
                    return Err(broken(number, "a directory behind a call".into()));
                }
                Line::Directory(mut line) => {
                    line.rename(|text| name(text, is_plain))
                        .map_err(|what| broken(number, what))?;
                    tree.add_line(line).map_err(|what| broken(number, what))?;
                }
                Line::Call(call) if call.begin < last => {
                    return Err(broken(number, "a call before the one above".into()));
                }
                Line::Call(mut call) => {
                    call.path = name(call.path, is_plain).map_err(|what| broken(number, what))?;
                    call.check().map_err(|what| broken(number, what))?;
                    if calls.len() == CALLS_MAX {
                        return Err(broken(number, format!("more than {CALLS_MAX} calls")));
                    }
                    last = call.begin;
                    calls.push(call);
                }
            }
        }
        Ok(Self { program: header.program, tree, calls })
    }

    /// Writes the trace, unpacked.
    ///
    /// # Errors
    /// The system refused.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        let mut line = |value: String| writeln!(to, "{value}");
        let header = Header { forerun_accesses: VERSION, program: self.program.clone() };
        line(serde_json::to_string(&header)?)?;
        for directory in self.tree.lines() {
            line(serde_json::to_string(&directory)?)?;
        }
        self.calls.iter().try_for_each(|call| line(serde_json::to_string(call)?))
    }
}

/// The next line, if there is one.
fn next_line(bytes: &mut impl BufRead, number: u64) -> Result<Option<Vec<u8>>, AccessError> {
    let mut line = Vec::new();
    bytes.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.len() as u64 == LINE_BYTES_MAX {
        let what = format!("it is longer than {LINE_BYTES_MAX} bytes");
        return Err(AccessError::Broken { line: number, what });
    }
    Ok((!line.is_empty()).then_some(line))
}

/// `text`, which is a name or path as such where it `is_plain`.
fn name(text: String, is_plain: bool) -> Result<String, String> {
    if is_plain {
        return Ok(names::encoded(text.as_bytes()));
    }
    match names::decoded(&text) {
        Some(_) => Ok(text),
        None => Err(format!("no name as they are written: `{text}`")),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The version that is written; earlier ones are read.
const VERSION: u32 = 2;
/// The listing of a directory with a hundred thousand entries fits.
const LINE_BYTES_MAX: u64 = 64 << 20;
const CALLS_MAX: usize = 8 << 20;
/// Nanoseconds.
const TIME_MAX: u64 = 31 * 86_400 * 1_000_000_000;
