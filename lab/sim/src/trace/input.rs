//! The plain bytes of a trace, through a window that moves over them.
//!
//! ```text
//!   |<-------- taken -------->|<---- window ---->|<------ not read yet ------>
//!                             start              end
//! ```
//! A format parses the window and says how many bytes it consumes off its front; when the rest is
//! no whole record, more is read behind it.
//!
//! # Invariants
//! - The window is never larger than [`WINDOW_BYTES`], whatever a trace holds.
//! - Offsets count plain bytes; the record count includes the current record.

use std::io::{self, Read};

use super::unpack::unpack;

/// See the module.
pub(super) struct Input {
    plain: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Nothing follows the window.
    is_last: bool,
    /// Bytes before the window.
    offset: u64,
    records: u64,
}

impl Input {
    /// `bytes`, unpacked; the window holds enough for a guess at the format.
    pub(super) fn new(bytes: Box<dyn Read + Send>) -> io::Result<Self> {
        let buffer = vec![0; WINDOW_BYTES].into_boxed_slice();
        let plain = unpack(bytes)?;
        let mut input =
            Self { plain, buffer, start: 0, end: 0, is_last: false, offset: 0, records: 0 };
        while !input.is_last && input.end < START_BYTES {
            input.extend()?;
        }
        Ok(input)
    }

    /// The bytes of the window, and whether they are the last.
    pub(super) fn window(&self) -> (&[u8], bool) {
        (&self.buffer[self.start..self.end], self.is_last)
    }

    /// Takes `bytes` off the front, in which `records` began.
    pub(super) fn consume(&mut self, bytes: usize, records: u64) {
        assert!(bytes <= self.end - self.start, "only what was seen can be taken");
        self.start += bytes;
        self.offset += bytes as u64;
        self.records += records;
    }

    /// Reads more behind the window, or learns that there is none.
    pub(super) fn extend(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        assert!(self.end < WINDOW_BYTES, "a record as long as the window is refused before");
        loop {
            match self.plain.read(&mut self.buffer[self.end..]) {
                Ok(read) => {
                    self.end += read;
                    self.is_last = read == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Bytes taken.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Records begun in them.
    pub(super) fn records(&self) -> u64 {
        self.records
    }
}

/// Room for many records of every format.
pub(super) const WINDOW_BYTES: usize = 1 << 18;
/// The first bytes, which a guess is made from.
const START_BYTES: usize = 1 << 16;
