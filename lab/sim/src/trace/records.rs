//! The loop that all formats share: one record after the other off the front of the window.
//!
//! ```text
//!   window   [record][record][record][rec          parse() classifies the bytes at the front
//!             ------>                               then the next; at a cut-off one, more is read
//! ```
//! The loop is compiled for each format: nothing is allocated or called through a pointer for a
//! record.
//!
//! # Invariants
//! - A record longer than [`RECORD_BYTES_MAX`] is broken: a file without ends of lines is not read
//!   whole.
//! - A step takes at least one byte, so that every trace ends.
//! - A byte order mark before text is no part of its first record.

use std::io;

use super::input::{Input, WINDOW_BYTES};
use super::scan::shown;
use super::{BATCH_REQUESTS, Facts, Reader, Request};

/// The item at the front of the bytes, and its length.
pub(super) enum Step {
    /// A record that requests pages.
    Request(usize, Request),
    /// A record that requests no page.
    Idle(usize),
    /// No record: a comment, a heading, a blank line.
    Other(usize),
    /// A record that violates the format, and how.
    Broken(usize, String),
    /// A record that continues behind the window.
    More,
}

impl Step {
    /// The step over a record of `bytes`, from its request or the reason why it is broken.
    pub(super) fn of(bytes: usize, request: Result<Option<Request>, String>) -> Self {
        match request {
            Ok(Some(request)) => Self::Request(bytes, request),
            Ok(None) => Self::Idle(bytes),
            Err(what) => Self::Broken(bytes, what),
        }
    }

    /// As [`Step::of`] for the line of text `line`, which a message shows.
    pub(super) fn of_line(
        bytes: usize,
        line: &[u8],
        request: Result<Option<Request>, String>,
    ) -> Self {
        let told = |what| format!("{} {what}", shown(line.trim_ascii()));
        Self::of(bytes, request.map_err(told))
    }
}

/// How records become requests.
pub(super) trait Format: Send {
    /// Whether its records are lines of text.
    const IS_TEXT: bool = true;

    /// The item at the front of `bytes`, which is not empty. `is_last`: nothing follows them.
    fn parse(&mut self, bytes: &[u8], is_last: bool) -> Step;

    /// See [`Reader::facts`].
    fn facts(&self) -> Facts {
        Facts::BLOCKS
    }

    /// See [`Reader::device_name`].
    fn device_name(&self, _device: u32) -> Option<&str> {
        None
    }
}

/// The reason for no request.
pub(super) enum Fault {
    /// The input failed.
    Read(io::Error),
    /// A record is broken; the next one can be tried.
    Record { record: u64, offset: u64, what: String },
}

impl<F: Format> Reader for F {
    fn fill(&mut self, input: &mut Input, out: &mut Vec<Request>) -> Result<(), Fault> {
        if Self::IS_TEXT && input.offset() == 0 && input.window().0.starts_with(BYTE_ORDER_MARK) {
            input.consume(BYTE_ORDER_MARK.len(), 0);
        }
        loop {
            let (window, is_last) = input.window();
            let (mut at, mut records) = (0, 0);
            let mut broken = None;
            while out.len() < BATCH_REQUESTS && at < window.len() {
                let rest = &window[at..];
                let used = match self.parse(rest, is_last) {
                    Step::Request(used, request) => {
                        records += 1;
                        out.push(request);
                        used
                    }
                    Step::Idle(used) => {
                        records += 1;
                        used
                    }
                    Step::Other(used) => used,
                    Step::Broken(used, what) => {
                        broken = Some((used, what));
                        break;
                    }
                    Step::More if is_last => {
                        let what = "the trace ends within it".to_owned();
                        broken = Some((rest.len(), what));
                        break;
                    }
                    Step::More if rest.len() >= RECORD_BYTES_MAX => {
                        let what = format!("it is longer than {RECORD_BYTES_MAX} bytes");
                        broken = Some((rest.len(), what));
                        break;
                    }
                    Step::More => break,
                };
                assert!(used > 0, "a step takes at least one byte");
                at += used;
            }
            let is_whole = is_last && at == window.len();
            input.consume(at, records);
            if let Some((used, what)) = broken {
                let (record, offset) = (input.records() + 1, input.offset());
                input.consume(used, 1);
                return Err(Fault::Record { record, offset, what });
            }
            if is_whole || out.len() >= BATCH_REQUESTS {
                return Ok(());
            }
            input.extend().map_err(Fault::Read)?;
        }
    }

    fn facts(&self) -> Facts {
        Format::facts(self)
    }

    fn device_name(&self, device: u32) -> Option<&str> {
        Format::device_name(self, device)
    }
}

/// The line that `bytes` begins with, without its end, and its length with it.
pub(super) fn line(bytes: &[u8], is_last: bool) -> Option<(&[u8], usize)> {
    match memchr::memchr(b'\n', bytes) {
        Some(end) => Some((&bytes[..end], end + 1)),
        None => is_last.then_some((bytes, bytes.len())),
    }
}

/// Whether a line of text is no record: empty, or a comment (`*`, `#`).
pub(super) fn is_comment(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start(), [] | [b'*' | b'#', ..])
}

/// The byte order mark of UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// No record is longer.
pub(super) const RECORD_BYTES_MAX: usize = 1 << 17;

const _: () = assert!(RECORD_BYTES_MAX < WINDOW_BYTES);
