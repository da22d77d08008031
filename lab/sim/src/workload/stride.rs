//! Streams that read a piece, leave out a piece, at a constant distance, on one handle.
//!
//! ```text
//!   file    |==....|==....|==....|==....|      == piece
//!           |<------>| every                   ==.... every
//! ```
//! So a program reads a column of a row-wise table, a plane of a volume, the headers of records.
//!
//! # Sources
//! This project's own. Linux 6 takes a gap of one page for a stream, others for random reads.

use forerun_core::device::Rate;
use forerun_core::params::{Bytes, Param, ParamError, check};

use super::interleave::{Handles, Interleaving, Layout, Sharing, Start, interleaved};
use super::span::Span;
use super::{BYTES_FORM, BYTES_MAX, Entry, Stream, Workload};

interleaved! {
    /// What may be set.
    Stride, n = 1, each = Bytes(10 << 20),
    {
        /// Bytes of a piece.
        piece: Bytes = Bytes(64 << 10),
        /// Bytes from the start of a piece to the start of the next.
        every: Bytes = Bytes(256 << 10),
    }
    {}
}

impl Entry for Stride {
    const NAME: &'static str = "stride";
    const SUMMARY: &'static str = "streams that read a piece of every so many bytes (n each piece \
                                   every request seed order layout readers rate handles mixed)";

    fn parts(&self) -> Result<Workload, ParamError> {
        let Self { each, piece, every, request, .. } = *self;
        let sharing = self.sharing()?;
        check((1..=BYTES_MAX).contains(&piece.0), "piece", &piece, BYTES_FORM)?;
        check((piece.0..=BYTES_MAX).contains(&every.0), "every", &every, "`piece` to 4T")?;
        let pieces = each.0.div_ceil(piece.0);
        let extent = pieces.checked_mul(every.0).filter(|&extent| extent <= BYTES_MAX);
        let form = "a size whose pieces spread over at most 4T";
        check(extent.is_some(), "each", &each, form)?;
        let title = format!(
            "{} of {}, {} of every {}, {}",
            sharing.count(),
            each.show(),
            piece.show(),
            every.show(),
            sharing.show()
        );
        let walk = |start| {
            (0..pieces).flat_map(move |number| {
                let bytes = piece.0.min(each.0 - number * piece.0);
                Span::new(start + number * every.0, bytes, request.0)
            })
        };
        let (mut parts, starts) = sharing.parts(title, extent.expect("just checked"), walk);
        let (bytes, piece, every) = (each.0, piece.0.min(each.0), every.0);
        let stream = |&start: &u64| Stream { file: 0, start, bytes, piece, every };
        parts.streams = starts.iter().map(stream).collect();
        Ok(parts)
    }
}
