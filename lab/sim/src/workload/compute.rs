//! A program that reads a file from its head and computes on each piece before it reads the
//! next, as a compressor does.
//!
//! ```text
//!   read  compute  read  compute  ...       time alone = I/O + computing
//!   ====..........====..........            hidden     = the longer of the two
//! ```
//! # Sources
//! Fukayama, Sugita, Hiruta, Yamana, "Disk Access Speed up Using Prefetching Thread": a
//! compressor that computes at least as long as it reads; gzip reads 32 KB at a time.

use forerun_core::device::Rate;
use forerun_core::params;
use forerun_core::params::{Bytes, Param, ParamError, check};

use super::span::Span;
use super::{
    Access, BYTES_FORM, BYTES_MAX, Entry, RATE_FORM, RATE_MIN, REQUEST_FORM, REQUEST_MAX, Reader,
    Stream, Workload, time_of,
};

params! {
    /// What may be set.
    pub struct Compute {
        /// Bytes of the file.
        file: Bytes = Bytes(1 << 30),
        /// Bytes a second that the program computes on.
        rate: Rate = Rate(60 << 20),
        /// Bytes of a read.
        request: Bytes = Bytes(32 << 10),
    }
}

impl Entry for Compute {
    const NAME: &'static str = "compute";
    const SUMMARY: &'static str =
        "a sequential reader that computes between its reads (file rate request)";

    fn parts(&self) -> Result<Workload, ParamError> {
        let Self { file: Bytes(file), rate: Rate(rate), request: Bytes(request) } = *self;
        check((1..=BYTES_MAX).contains(&file), "file", &self.file, BYTES_FORM)?;
        check(rate >= RATE_MIN, "rate", &self.rate, RATE_FORM)?;
        check((1..=REQUEST_MAX).contains(&request), "request", &self.request, REQUEST_FORM)?;
        let reads = Span::new(0, file, request).map(move |(offset, bytes)| {
            let end = time_of(offset + u64::from(bytes), rate);
            Access { think: end.since(time_of(offset, rate)), ..Access::read(offset, bytes) }
        });
        Ok(Workload {
            title: format!(
                "a reader of {} that computes at {} a second, {} reads",
                self.file.show(),
                self.rate.show(),
                self.request.show()
            ),
            files: vec![file],
            handles: vec![0],
            readers: vec![Reader::new(reads)],
            streams: vec![Stream::whole(0, 0, file)],
            bytes_wanted: file,
            ..Workload::default()
        })
    }
}
