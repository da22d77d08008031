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

use super::interleave::{Handles, Interleaving, Layout, Sharing, Start, interleaved};
use super::{Entry, Workload};

interleaved! {
    /// What may be set.
    Backward, n = 1, each = Bytes(100 << 20), {} {}
}

impl Entry for Backward {
    const NAME: &'static str = "backward";
    const SUMMARY: &'static str =
        "streams read backward (n each request seed order layout readers rate handles mixed)";

    fn parts(&self) -> Result<Workload, ParamError> {
        let (sharing, each, Bytes(request)) = (self.sharing()?, self.each, self.request);
        let title = format!("{} of {} backward, {}", sharing.count(), each.show(), sharing.show());
        let down = |start: u64| {
            let mut end = start + each.0;
            std::iter::from_fn(move || {
                let bytes = (end - start).min(request);
                end -= bytes;
                let bytes = u32::try_from(bytes).expect("checked against the largest request");
                (bytes > 0).then_some((end, bytes))
            })
        };
        Ok(sharing.parts(title, each.0, down).0)
    }
}
