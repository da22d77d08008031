//! Streams that are read from their last byte to their first, on one handle.
//!
//! ```text
//!   file    |....1111|....2222|
//!   reads       <---1    <---2        the last piece first; the rest of a piece is at the front
//! ```
//! Some programs do: a log from its newest entry, a merge that takes runs from their ends.
//!
//! # Sources
//! This project's own; Linux does not detect such streams.

use forerun_core::device::Rate;
use forerun_core::params::{Bytes, Param, ParamError};

use super::interleave::{Handles, Layout, Order, Sharing, Start, interleaved};
use super::{Entry, Parts};

interleaved! {
    /// What may be set.
    Backward, n = 1, each = Bytes(100 << 20), {} {}
}

impl Entry for Backward {
    const NAME: &'static str = "backward";
    const SUMMARY: &'static str =
        "streams read from end to start (n each request seed order layout readers rate handles)";

    fn parts(&self) -> Result<Parts, ParamError> {
        let (sharing, each, request) = (self.sharing()?, self.each, self.request);
        let title = format!("{} of {} backward, {}", sharing.count(), each.show(), sharing.show());
        Ok(sharing.parts(title, each.0, |start| Down { start, end: start + each.0, request }).0)
    }
}

/// The unread part: it ends at the start of the last read.
struct Down {
    start: u64,
    end: u64,
    request: Bytes,
}

impl Iterator for Down {
    type Item = (u64, u32);

    fn next(&mut self) -> Option<(u64, u32)> {
        let bytes = (self.end - self.start).min(self.request.0);
        self.end -= bytes;
        let bytes = u32::try_from(bytes).expect("checked against the largest request");
        (bytes > 0).then_some((self.end, bytes))
    }
}
