//! The reader of journals: runs and whole blocks, or the place and reason of a failure.
//!
//! ```text
//!   run  block  block  blo|          End: the bytes after the last whole block were cut off
//!   run  block  b?ock  block         Corrupt, at the byte where the block begins
//! ```
//!
//! # Invariants
//! - No input makes the reader panic, or allocate more than one block and its share of the input.
//! - The reader returns a block only after checking its checksum.

use std::io::{self, Read};

use forerun_core::{cache::Settings, event::codec};

use super::format::{self, FORMAT, HEAD_BYTES, Head, LINE_BYTES, Line, MAGIC, MARK};
use super::settings;

/// Why a journal cannot be used; one line each. Event numbers count from 1 in their run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The file cannot be read.
    #[error("cannot read the journal at byte {at}: {source}")]
    Read {
        /// The offset.
        at: u64,
        /// The reason.
        source: io::Error,
    },
    /// The file is not a journal.
    #[error("it is no journal of forerun")]
    Foreign,
    /// Another version wrote the journal. Use that version.
    #[error("it is a journal of format {found}, and this program reads format {FORMAT}")]
    Format {
        /// Its format.
        found: u32,
    },
    /// The events are of another version. Use that version.
    #[error("its events are of version {found}, and this program's of {}", codec::VERSION)]
    Events {
        /// Their version.
        found: u32,
    },
    /// A checksum does not match.
    #[error("it is corrupt from byte {at} on: a checksum does not match")]
    Corrupt {
        /// Where the block or the head begins.
        at: u64,
    },
    /// The checksums match, but the contents are not a journal.
    #[error("it is malformed at byte {at}: {why}")]
    Malformed {
        /// Where the block or the head begins.
        at: u64,
        /// The fault.
        why: String,
    },
    /// The core cannot be built, or refuses an event.
    #[error("the journal is not of this core: {why}")]
    NotOfThisCore {
        /// The event, if any, and the core's reason.
        why: String,
    },
}

/// The next part of a journal.
#[derive(Debug)]
pub enum Part {
    /// A run of a core with these settings begins.
    Run(Box<Settings>),
    /// A block of the run's events.
    Block(Block),
    /// No whole block follows.
    End {
        /// Bytes of a block that was cut off.
        cut_bytes: u64,
    },
}

/// A block with a matching checksum.
#[derive(Debug)]
pub struct Block {
    /// The block's offset in the file.
    pub at: u64,
    /// Events of the block.
    pub events: u32,
    /// The groups of events and actions.
    pub payload: Vec<u8>,
}

/// Reads a journal from its start to its end.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    at: u64,
    /// Whether a run has begun.
    begun: bool,
    /// The checksum of the previous block or text.
    before: u64,
}

/// The requested bytes, or how many there were before the end.
type Whole<T> = Result<T, u64>;

impl<R: Read> Reader<R> {
    /// A reader of `input`. Small blocks cause small reads: pass a buffered input.
    pub fn new(input: R) -> Self {
        Self { input, at: 0, begun: false, before: 0 }
    }

    /// Bytes read so far.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Reads the next part. After the end, returns the end again.
    ///
    /// # Errors
    /// The input cannot be read, or is not a journal that this version can use.
    pub fn part(&mut self) -> Result<Part, JournalError> {
        let at = self.at;
        let mut mark = [0; MARK.len()];
        let magic = &MAGIC.as_bytes()[..MARK.len()];
        let part = match self.fill(&mut mark)? {
            Ok(()) if mark == magic => self.run(at)?.map(|run| Part::Run(Box::new(run))),
            Ok(()) if mark == MARK && self.begun => self.block(at)?.map(Part::Block),
            Ok(()) => return Err(self.unknown(at)),
            Err(got) => {
                let begin = &mark[..usize::try_from(got).expect("less than a mark")];
                if !(magic.starts_with(begin) || self.begun && MARK.starts_with(begin)) {
                    return Err(self.unknown(at));
                }
                Err(got)
            }
        };
        Ok(part.unwrap_or_else(|_| Part::End { cut_bytes: self.at - at }))
    }

    fn unknown(&self, at: u64) -> JournalError {
        if self.begun { JournalError::Corrupt { at } } else { JournalError::Foreign }
    }

    /// The settings of a run whose first line begins at `at`; its mark is read already.
    fn run(&mut self, at: u64) -> Result<Whole<Settings>, JournalError> {
        let mut line = [0; LINE_BYTES];
        let (mark, rest) = line.split_at_mut(MARK.len());
        mark.copy_from_slice(&MAGIC.as_bytes()[..MARK.len()]);
        if let Err(got) = self.fill(rest)? {
            let magic = &MAGIC.as_bytes()[MARK.len()..];
            let count = magic.len().min(usize::try_from(got).expect("less than a line"));
            return if rest[..count] == magic[..count] {
                Ok(Err(got))
            } else {
                Err(self.unknown(at))
            };
        }
        if !line.starts_with(MAGIC.as_bytes()) {
            return Err(self.unknown(at));
        }
        let (bytes, sum) = match format::parse_line(&line) {
            Line::Text { bytes, sum } => (bytes, sum),
            Line::Format(found) => return Err(JournalError::Format { found }),
            Line::Broken => return Err(JournalError::Corrupt { at }),
        };
        let mut text = vec![0; bytes];
        if let Err(got) = self.fill(&mut text)? {
            return Ok(Err(got));
        }
        if format::checksum(&text) != sum {
            return Err(JournalError::Corrupt { at });
        }
        (self.begun, self.before) = (true, sum);
        let malformed = |why| JournalError::Malformed { at, why };
        let text = String::from_utf8(text).map_err(|error| malformed(error.to_string()))?;
        let (found, settings) = settings::decode(&text).map_err(malformed)?;
        settings.ok_or(JournalError::Events { found }).map(Ok)
    }

    /// The block that begins at `at`; its mark is read already.
    fn block(&mut self, at: u64) -> Result<Whole<Block>, JournalError> {
        let mut head = [0; HEAD_BYTES];
        head[..MARK.len()].copy_from_slice(&MARK);
        if let Err(got) = self.fill(&mut head[MARK.len()..])? {
            return Ok(Err(got));
        }
        let Some(head) = Head::decode(&head, self.before) else {
            return Err(JournalError::Corrupt { at });
        };
        // Grows with the bytes read, so that a length alone takes no memory.
        let (mut payload, wanted) = (Vec::new(), u64::from(head.bytes));
        let input = self.input.by_ref();
        let got = input.take(wanted).read_to_end(&mut payload);
        let got = got.map_err(|source| JournalError::Read { at: self.at, source })? as u64;
        self.at += got;
        if got < wanted {
            return Ok(Err(got));
        }
        if format::checksum(&payload) != head.sum {
            return Err(JournalError::Corrupt { at });
        }
        self.before = head.sum;
        Ok(Ok(Block { at, events: head.events, payload }))
    }

    /// Fills `buf`, or returns how many bytes there were.
    fn fill(&mut self, buf: &mut [u8]) -> Result<Whole<()>, JournalError> {
        let mut got = 0;
        while got < buf.len() {
            match self.input.read(&mut buf[got..]) {
                Ok(0) => return Ok(Err(got as u64)),
                Ok(count) => {
                    got += count;
                    self.at += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(JournalError::Read { at: self.at, source }),
            }
        }
        Ok(Ok(()))
    }
}
