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
use forerun_core::params::{Bytes, Param, ParamError, check};
use forerun_core::prng::Prng;

use super::span::Span;
use super::{Access, BYTES_MAX, Entry, REQUEST_MAX, Reader, Stream, Workload};

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

    fn parts(&self) -> Result<Workload, ParamError> {
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
        let (mut stream, mut prng) = (Span::new(0, sequential, request), Prng::new(seed));
        // Reads that are left, and the places of random ones: requests behind those in order.
        let (mut left_in_order, mut left_random) = (sequential.div_ceil(request), random);
        let (first, places) = (left_in_order, (2 * sequential) / request - left_in_order);
        let reads = std::iter::from_fn(move || {
            let left = left_in_order + left_random;
            if left == 0 {
                return None;
            }
            if prng.below(left) < left_random {
                left_random -= 1;
                let bytes = u32::try_from(request).expect("checked against the largest request");
                return Some(Access::read((first + prng.below(places)) * request, bytes));
            }
            left_in_order -= 1;
            stream.next().map(|(offset, bytes)| Access::read(offset, bytes))
        });
        Ok(Workload {
            title: format!(
                "{} in order and {percent} % of it at random, {} reads, one handle",
                self.sequential.show(),
                self.request.show()
            ),
            files: vec![2 * sequential],
            handles: vec![0],
            readers: vec![Reader::new(reads)],
            streams: vec![Stream::whole(0, 0, sequential)],
            bytes_wanted: sequential + random * request,
            ..Workload::default()
        })
    }
}
