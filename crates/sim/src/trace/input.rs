//! The bytes of a trace, decompressed, with a count of records and of bytes.
//!
//! # Invariants
//! - A line is never longer than [`LINE_BYTES_MAX`]: a file without line ends is not read whole.
//! - Offsets count what was decompressed.

use std::io::{self, BufRead, BufReader, Read};

use super::Fault;

/// See the module.
pub(super) struct Input {
    bytes: BufReader<Box<dyn Read + Send>>,
    /// The first bytes, kept for a guess at the format.
    start: Vec<u8>,
    line: Vec<u8>,
    offset: u64,
    record: u64,
    record_offset: u64,
}

impl Input {
    /// `bytes`, decompressed if they are zstd.
    pub(super) fn new(mut bytes: Box<dyn Read + Send>) -> io::Result<Self> {
        let magic = read_up_to(&mut bytes, 6)?;
        let rest = io::Cursor::new(magic.clone()).chain(bytes);
        let mut plain: Box<dyn Read + Send> = match magic.as_slice() {
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(zstd::Decoder::new(rest)?),
            [0x1f, 0x8b, ..] => return Err(packed("gzip", "zcat FILE")),
            [0xfd, b'7', b'z', b'X', b'Z', 0] => return Err(packed("xz", "xzcat FILE")),
            _ => Box::new(rest),
        };
        let start = read_up_to(&mut plain, START_BYTES)?;
        let whole = io::Cursor::new(start.clone()).chain(plain);
        Ok(Self {
            bytes: BufReader::with_capacity(1 << 17, Box::new(whole)),
            start,
            line: Vec::new(),
            offset: 0,
            record: 0,
            record_offset: 0,
        })
    }

    /// The first bytes, at most [`START_BYTES`].
    pub(super) fn start(&self) -> &[u8] {
        &self.start
    }

    /// Bytes read.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Records begun.
    pub(super) fn record(&self) -> u64 {
        self.record
    }

    /// Where the last one began.
    pub(super) fn record_offset(&self) -> u64 {
        self.record_offset
    }

    /// The next line that is a record: without blanks around it, not empty, no comment (`*`, `#`).
    pub(super) fn record_line(&mut self) -> Result<Option<&[u8]>, Fault> {
        loop {
            let begins = self.offset;
            self.line.clear();
            let limit = LINE_BYTES_MAX + 1;
            let read = (&mut self.bytes).take(limit).read_until(b'\n', &mut self.line)? as u64;
            self.offset += read;
            if read == 0 {
                return Ok(None);
            }
            let is_record = !matches!(self.line.trim_ascii(), [] | [b'*' | b'#', ..]);
            if is_record || read == limit {
                self.record += 1;
                self.record_offset = begins;
            }
            if read == limit {
                let what = format!("a line longer than {LINE_BYTES_MAX} bytes");
                return Err(Fault::Record(what));
            }
            if is_record {
                return Ok(Some(self.line.trim_ascii()));
            }
        }
    }
}

/// The number that `word` writes in digits alone.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    let digits = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(word).ok()?.parse().ok())?
}

/// A record for an error message: short, and nothing in it that moves a cursor.
pub(super) fn shown(record: &[u8]) -> String {
    let mut text: String =
        record.iter().take(40).flat_map(|b| b.escape_ascii()).map(char::from).collect();
    if record.len() > 40 {
        text.push_str("...");
    }
    format!("`{text}`")
}

fn read_up_to(bytes: &mut impl Read, count: u64) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    bytes.take(count).read_to_end(&mut read)?;
    Ok(read)
}

fn packed(by: &str, command: &str) -> io::Error {
    io::Error::other(format!(
        "packed by {by}, which is not read yet: try `{command} | forerun sim -`"
    ))
}

/// No record of a text format is longer.
const LINE_BYTES_MAX: u64 = 1 << 16;
/// What a guess may look at.
const START_BYTES: u64 = 4096;
