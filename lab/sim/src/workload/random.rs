//! Reads at places of a file that are drawn uniformly, and independently of each other.
//!
//! ```text
//!   file    |.....x.....x..x...........x.|     x one of `request` bytes
//! ```
//! Positions are multiples of the request size, drawn with replacement: a place may be read twice.
//! The last read is the remainder. An index probe or a key lookup reads so; prefetched pages are
//! used by chance only.
//!
//! # Sources
//! This project's own; what benches call a random read, such as fio's `randread` with
//! `norandommap`.

use forerun_core::params;
use forerun_core::params::{Bytes, Param, ParamError, check};
use forerun_core::prng::Prng;

use super::span::Span;
use super::{Access, BYTES_FORM, BYTES_MAX, Entry, REQUEST_MAX, Reader, Workload};

params! {
    /// What may be set.
    pub struct Random {
        /// Bytes of the file.
        file: Bytes = Bytes(1 << 30),
        /// Bytes that are read, those read twice counted twice.
        bytes: Bytes = Bytes(32 << 20),
        /// Bytes of a read.
        request: Bytes = Bytes(4 << 10),
        /// Decides every random choice.
        seed: u64 = 1,
    }
}

impl Entry for Random {
    const NAME: &'static str = "random";
    const SUMMARY: &'static str = "reads at random places of a file (file bytes request seed)";

    fn parts(&self) -> Result<Workload, ParamError> {
        let Self { file, bytes, request, seed } = *self;
        check((1..=BYTES_MAX).contains(&file.0), "file", &file, BYTES_FORM)?;
        check((1..=BYTES_MAX).contains(&bytes.0), "bytes", &bytes, BYTES_FORM)?;
        let form = "a size from 1 to 1G and to `file`";
        check((1..=REQUEST_MAX.min(file.0)).contains(&request.0), "request", &request, form)?;
        let places = file.0 / request.0;
        let mut prng = Prng::new(seed);
        let accesses = Span::new(0, bytes.0, request.0)
            .map(move |(_, bytes)| Access::read(prng.below(places) * request.0, bytes));
        Ok(Workload {
            title: format!(
                "{} at random places of {}, {} reads, one handle",
                bytes.show(),
                file.show(),
                request.show()
            ),
            files: vec![file.0],
            handles: vec![0],
            readers: vec![Reader::new(accesses)],
            bytes_wanted: bytes.0,
            ..Workload::default()
        })
    }
}
