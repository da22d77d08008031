//! One sequential stream, disturbed by random reads through the same handle.
//!
//! ```text
//!   0            sequential                2 x sequential
//!   |=============>                |   x     x  x      x |
//!     4 KB reads from the head        random 4 KB reads
//! ```
//! Each next read is a random one with the share that random reads still have of what is left,
//! so all orders of the two kinds are equally likely and their numbers are exact. Positions are
//! multiples of the request size, drawn with replacement.
//!
//! # Sources
//! Wu, Xi, Xu, "File Prefetching Algorithm for Concurrent Streams" (2010), section 4.2:
//! a file of 200 MB, 100 MB read in order, mixed with 1 to 10 MB of random reads in its second
//! half.

use forerun_core::params;
use forerun_core::params::{Bytes, Param, ParamError};
use forerun_core::prng::Prng;

use super::span::Span;
use super::{Access, BYTES_MAX, Entry, Parts, REQUEST_MAX, Reader, Stream, check};

params! {
    /// What may be set.
    pub struct Disturb {
        /// Random bytes for 100 sequential ones; the paper's 1 to 10.
        percent: u32 = 1,
        /// Bytes of the stream; the file is twice as long.
        sequential: Bytes = Bytes(100 << 20),
        /// Bytes of a read.
        request: Bytes = Bytes(4 << 10),
        /// Decides every random choice.
        seed: u64 = 1,
    }
}

impl Entry for Disturb {
    const NAME: &'static str = "disturb";
    const SUMMARY: &'static str =
        "a sequential stream mixed with random reads (percent sequential request seed)";

    fn parts(&self) -> Result<Parts, ParamError> {
        let Self { percent, sequential: Bytes(sequential), request: Bytes(request), seed } = *self;
        check(percent <= 10_000, "percent", &self.percent, "0 to 10000")?;
        let key = "sequential";
        check((1..=BYTES_MAX).contains(&sequential), key, &self.sequential, super::BYTES_FORM)?;
        check(
            (1..=REQUEST_MAX.min(sequential)).contains(&request),
            "request",
            &self.request,
            "a size from 1 to 1G and to `sequential`",
        )?;
        let random = sequential * u64::from(percent) / 100 / request;
        Ok(Parts {
            title: format!(
                "{} in order and {percent} % of it at random, {} reads, one handle",
                self.sequential.show(),
                self.request.show()
            ),
            files: vec![2 * sequential],
            handles: vec![0],
            readers: vec![Reader::new(Mix {
                stream: Span::new(0, sequential, request),
                in_order: sequential.div_ceil(request),
                random,
                first: sequential.div_ceil(request),
                places: (2 * sequential) / request - sequential.div_ceil(request),
                request,
                prng: Prng::new(seed),
            })],
            streams: vec![Stream::whole(0, 0, sequential)],
            bytes_wanted: sequential + random * request,
        })
    }
}

struct Mix {
    stream: Span,
    /// Reads in order that are left.
    in_order: u64,
    /// Random reads that are left.
    random: u64,
    /// The first place of a random read, in requests from the head of the file.
    first: u64,
    /// How many places there are.
    places: u64,
    request: u64,
    prng: Prng,
}

impl Iterator for Mix {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let left = self.in_order + self.random;
        if left == 0 {
            return None;
        }
        let (offset, bytes) = if self.prng.below(left) < self.random {
            self.random -= 1;
            let place = self.first + self.prng.below(self.places);
            let bytes = u32::try_from(self.request).expect("checked against the largest request");
            (place * self.request, bytes)
        } else {
            self.in_order -= 1;
            self.stream.next().expect("as many reads are left as were counted")
        };
        Some(Access::read(offset, bytes))
    }
}
