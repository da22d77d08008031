//! Sequential streams that share one handle.
//!
//! ```text
//!   file    |1111|2222|3333|          places and order of reads: `interleave`
//!   reads   1 2 2 3 1 3 1 2 3 ...     4 KB each
//! ```
//!
//! # Sources
//! Wu, Xi, Xu, "File Prefetching Algorithm for Concurrent Streams" (2010), section 4.3:
//! ten streams of 100 MB, stream i from (i - 1) x 100 MB, 4 KB reads, the first n of them
//! interleaved.

use forerun_core::device::Rate;
use forerun_core::params::{Bytes, Param, ParamError};

use super::interleave::{Handles, Interleaving, Layout, Sharing, Start, interleaved};
use super::span::Span;
use super::{Entry, Stream, Workload};

interleaved! {
    /// What may be set.
    Streams, n = 10, each = Bytes(100 << 20),
    {}
    {
        /// Where the first stream begins.
        start: Start = Start::Head,
    }
}

impl Entry for Streams {
    const NAME: &'static str = "streams";
    const SUMMARY: &'static str = "sequential streams interleaved on one handle \
                                   (n each request seed order start layout readers rate handles \
                                   mixed)";

    fn parts(&self) -> Result<Workload, ParamError> {
        let (sharing, each, request) = (self.sharing()?, self.each, self.request);
        let title = format!("{} of {}, {}", sharing.count(), each.show(), sharing.show());
        let (mut parts, starts) =
            sharing.parts(title, each.0, |start| Span::new(start, each.0, request.0));
        let stream = |&start: &u64| Stream::whole(0, start, each.0);
        parts.streams = starts.iter().map(stream).collect();
        Ok(parts)
    }
}
