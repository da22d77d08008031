//! A reader of some columns of a columnar file: the footer, then a chunk of each column in turn,
//! row group by row group.
//!
//! ```text
//!   |c1..............|c2..............|c1..............|c2..............|footer|
//!   |<--- apart ---->|                |     second row group            |
//!   reads: footer, c1, c2, c1, c2: each chunk from its first byte to its last
//! ```
//! Between a column's chunk and the next one's lie the columns that the query does not read.
//!
//! # Sources
//! The layout of Apache Parquet files (Apache Software Foundation, format 2.10): row groups of
//! column chunks, the metadata at the end.

use forerun_core::params;
use forerun_core::params::{Bytes, Param, ParamError, check};

use super::span::Span;
use super::{
    Access, BYTES_FORM, BYTES_MAX, Entry, REQUEST_FORM, REQUEST_MAX, Reader, STREAMS_FORM,
    STREAMS_MAX, Stream, Workload,
};

params! {
    /// What may be set.
    pub struct Parquet {
        /// Columns that are read.
        columns: u32 = 8,
        /// Row groups.
        groups: u32 = 1,
        /// Bytes of a column's chunk.
        chunk: Bytes = Bytes(1 << 20),
        /// Bytes from the start of a chunk to the start of the next one that is read.
        apart: Bytes = Bytes(32 << 20),
        /// Bytes of the footer.
        footer: Bytes = Bytes(64 << 10),
        /// Bytes of a read.
        request: Bytes = Bytes(4 << 10),
    }
}

impl Entry for Parquet {
    const NAME: &'static str = "parquet";
    const SUMMARY: &'static str = "a footer, then column chunks far apart \
                                   (columns groups chunk apart footer request)";

    fn parts(&self) -> Result<Workload, ParamError> {
        let Self { columns, groups, chunk, apart, footer, request } = *self;
        check((1..=STREAMS_MAX).contains(&columns), "columns", &columns, STREAMS_FORM)?;
        let chunks = u64::from(columns) * u64::from(groups);
        let form = "at least 1, and at most 65536 chunks in all";
        check((1..=u64::from(STREAMS_MAX)).contains(&chunks), "groups", &groups, form)?;
        check((1..=BYTES_MAX).contains(&chunk.0), "chunk", &chunk, BYTES_FORM)?;
        check((chunk.0..=BYTES_MAX).contains(&apart.0), "apart", &apart, "`chunk` to 4T")?;
        check((1..=BYTES_MAX).contains(&footer.0), "footer", &footer, BYTES_FORM)?;
        check((1..=REQUEST_MAX).contains(&request.0), "request", &request, REQUEST_FORM)?;
        let end = chunks * apart.0;
        let chunk_at = move |number| (number * apart.0, chunk.0);
        let order = std::iter::once((end, footer.0)).chain((0..chunks).map(chunk_at));
        let reads = order.flat_map(move |(start, bytes)| Span::new(start, bytes, request.0));
        let (bytes, piece, every) = (chunks * chunk.0, chunk.0, apart.0);
        let columns_read = Stream { file: 0, start: 0, bytes, piece, every };
        let access = |(offset, bytes)| Access::read(offset, bytes);
        Ok(Workload {
            title: format!(
                "a footer of {}, then {groups} x {columns} chunks of {}, {} apart, {} reads",
                footer.show(),
                chunk.show(),
                apart.show(),
                request.show()
            ),
            files: vec![end + footer.0],
            handles: vec![0],
            streams: vec![Stream::whole(0, end, footer.0), columns_read],
            readers: vec![Reader::new(reads.map(access))],
            bytes_wanted: footer.0 + chunks * chunk.0,
            ..Workload::default()
        })
    }
}
