//! Streams that are read from their last byte to their first, on one handle.
//!
//! ```text
//!   file    |....1111|....2222|
//!   reads       <---1    <---2        the last piece first; the rest of a piece is at the front
//! ```
//! Some programs do: a log from its newest entry, a merge that takes runs from their ends.
//!
//! # Sources
//! This project's own; Linux looks for no such streams.

use forerun_core::device::Rate;
use forerun_core::params;
use forerun_core::params::{Bytes, Param, ParamError};

use super::interleave::{Handles, Layout, Order, Sharing, Start};
use super::{Named, Parts};

params! {
    /// What may be set.
    pub struct Backward {
        /// How many streams.
        n: u32 = 1,
        /// Bytes of each.
        each: Bytes = Bytes(100 << 20),
        /// Bytes of a read.
        request: Bytes = Bytes(4 << 10),
        /// Decides every random choice.
        seed: u64 = 1,
        /// Whose turn it is.
        order: Order = Order::Random,
        /// Where the streams lie in the file.
        layout: Layout = Layout::Adjacent,
        /// Threads that share the streams out.
        readers: u32 = 1,
        /// Bytes a second that each stream is read at; 0 for no bound.
        rate: Rate = Rate(0),
        /// Through what streams are read.
        handles: Handles = Handles::One,
    }
}

impl Named for Backward {
    const NAME: &'static str = "backward";
    const SUMMARY: &'static str =
        "streams read from end to start (n each request seed order layout readers rate handles)";

    fn parts(&self) -> Result<Parts, ParamError> {
        let Self { n, each, request, seed, order, layout, readers, rate, handles } = *self;
        let start = Start::Head;
        let sharing =
            Sharing { n, each, request, seed, order, start, layout, readers, rate, handles };
        sharing.check()?;
        let title = format!("{} of {} backward, {}", sharing.count(), each.show(), sharing.show());
        Ok(sharing.parts(title, each.0, |start| Down { start, end: start + each.0, request }).0)
    }
}

/// What is still to be read: it ends where the last read began.
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
