//! Which format a trace has, from its name and its first line.
//!
//! ```text
//!   NAME.lis[.zst]                 lis; unit=512 where the name has P and a digit, else 4K
//!   first record one number        keys
//!   first record four numbers      lis
//! ```
//! The name goes first: content cannot tell the units of a list.

use std::fmt;

use super::FORMATS;
use super::input::number;

/// Why there is no guess.
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
pub(super) fn guess(name: &str, start: &[u8]) -> Result<String, NoGuess> {
    let file = name.rsplit('/').next().unwrap_or(name);
    let parts: Vec<&str> = file.split('.').collect();
    if parts.contains(&"lis") {
        return Ok(lis(file));
    }
    if let Some(part) = parts.iter().skip(1).find(|part| LATER.contains(part)) {
        return Err(NoGuess { what: format!("the format {part} is not yet read") });
    }
    if start.contains(&0) {
        return Err(NoGuess { what: "this is not text".into() });
    }
    let mut lines = start.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.find(|line| !matches!(line, [] | [b'*' | b'#', ..])).unwrap_or(b"");
    let words = first.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let numbers: Option<Vec<u64>> = words.map(number).collect();
    match numbers.map(|numbers| numbers.len()) {
        Some(0 | 1) => Ok("keys".into()),
        Some(4) => Ok(lis(file)),
        Some(_) | None => Err(NoGuess { what: "the first line is of no format".into() }),
    }
}

fn lis(file: &str) -> String {
    let sectors = file.as_bytes().windows(2).any(|two| two[0] == b'P' && two[1].is_ascii_digit());
    format!("lis:unit={}", if sectors { "512" } else { "4K" })
}

/// Names of formats that are known to exist.
const LATER: &[&str] =
    &["vscsi", "disksim", "blkparse", "srt", "u32le", "u32be", "i64be", "i64le", "csv"];
