//! Sequential streams that share one handle.
//!
//! ```text
//!   file    |1111|2222|3333|          where they lie, whose turn it is: `interleave`
//!   reads   1 2 2 3 1 3 1 2 3 ...     4 KB each
//! ```
//!
//! # Sources
//! Wu, Xi, Xu, "File Prefetching Algorithm for Concurrent Streams" (2010), section 4.3:
//! ten streams of 100 MB, stream i from (i - 1) x 100 MB, 4 KB reads, the first n of them
//! interleaved.

use forerun_core::device::Rate;
use forerun_core::params;
use forerun_core::params::{Bytes, Param, ParamError};

use super::interleave::{Handles, Layout, Order, Sharing, Start};
use super::span::Span;
use super::{Named, Parts, Stream};

params! {
    /// What may be set.
    pub struct Streams {
        /// How many; the paper's 1 to 10.
        n: u32 = 10,
        /// Bytes of each.
        each: Bytes = Bytes(100 << 20),
        /// Bytes of a read.
        request: Bytes = Bytes(4 << 10),
        /// Decides every random choice.
        seed: u64 = 1,
        /// Whose turn it is.
        order: Order = Order::Random,
        /// Where the first stream begins.
        start: Start = Start::Head,
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

impl Named for Streams {
    const NAME: &'static str = "streams";
    const SUMMARY: &'static str = "sequential streams interleaved on one handle \
                                   (n each request seed order start layout readers rate handles)";

    fn parts(&self) -> Result<Parts, ParamError> {
        let Self { n, each, request, seed, order, start, layout, readers, rate, handles } = *self;
        let sharing =
            Sharing { n, each, request, seed, order, start, layout, readers, rate, handles };
        sharing.check()?;
        let title = format!("{} of {}, {}", sharing.count(), each.show(), sharing.show());
        let (mut parts, starts) =
            sharing.parts(title, each.0, |start| Span::new(start, each.0, request.0));
        let stream = |&start: &u64| Stream::whole(0, start, each.0);
        parts.streams = starts.iter().map(stream).collect();
        Ok(parts)
    }
}
