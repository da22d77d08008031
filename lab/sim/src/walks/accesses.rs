//! Traces of accesses with paths: the calls of a program on a tree, with their times.
//!
//! ```text
//!   {"forerun_accesses":1,"program":"tar cf - tree"}
//!   {"directory":"","entries":[["a","d",12,4096],["x","f",13,700]]}       a line a directory
//!   {"t":0,"thread":71,"call":"open","path":"x","took":10000}             a line a call
//! ```
//! Times are in nanoseconds since the first call. A file may be packed by zstd, gzip or xz.
//!
//! # Invariants
//! - A line is a directory of the tree as it was, or a call; directories come before the calls.
//! - Calls are in the order of their begin.

use std::io::{self, BufRead as _, BufReader, Read, Write};

use forerun_core::units::Nanos;
use serde::{Deserialize, Serialize};

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
    /// What it was about, below the top.
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
}

impl AccessTrace {
    /// The trace in `bytes`.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub fn read(bytes: impl Read + Send + 'static) -> Result<Self, AccessError> {
        let broken = |line, what: String| AccessError::Broken { line, what };
        let mut lines = BufReader::new(unpack(Box::new(bytes))?).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        let header: Header = serde_json::from_str(&first)
            .map_err(|error| broken(1, format!("no head of a trace of accesses: {error}")))?;
        if header.forerun_accesses != VERSION {
            let what = format!("version {} is not known", header.forerun_accesses);
            return Err(broken(1, what));
        }
        let (mut tree, mut calls) = (Tree::new(), Vec::new());
        let mut last = 0;
        for (number, text) in (2..).zip(lines) {
            let line = serde_json::from_str(&text?)
                .map_err(|error| broken(number, format!("no directory and no call: {error}")))?;
            match line {
                Line::Directory(_) if !calls.is_empty() => {
                    return Err(broken(number, "a directory behind a call".into()));
                }
                Line::Directory(line) => {
                    tree.add_line(line).map_err(|what| broken(number, what))?;
                }
                Line::Call(call) if call.begin < last => {
                    return Err(broken(number, "a call before the one above".into()));
                }
                Line::Call(call) => {
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

const VERSION: u32 = 1;
