//! What a handle changes without moving bytes: the length of its file, zeros, discards.
//!
//! ```text
//!   zero      start              end
//!     |..====|========|========|===.....|    the edges are written as bytes, whole pages are
//!      bytes    in the store     bytes         changed in the store, if there are enough
//! ```
//!
//! # Invariants
//! - A range never extends the file: what lies beyond its end is left out.
//! - Where the store cannot zero a range, zeros are written; where it cannot discard one, nothing
//!   happens.

use std::ops::Range;

use forerun_io::store::Change;

use super::{FILE_BYTES_MAX, Handle, at};
use crate::{
    alter::{Alter, AlterError},
    error::WriteError,
};

/// How [`Handle::zero`] zeroes a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zeroing {
    /// The room on the device stays allocated.
    pub allocated: bool,
    /// Fails with [`WriteError::Unsupported`], before anything has changed, where many zeros would
    /// have to be written.
    pub fast: bool,
    /// Durable at the return, with all that was written before.
    pub durable: bool,
}

impl Handle {
    /// Sets the length of the file: cuts it, or extends it by zeros. Durable at the return, with
    /// all that was written before. Waits for writes in progress.
    ///
    /// # Errors
    /// See [`WriteError`]; the length is then what it was.
    pub fn set_len(&self, bytes: u64) -> Result<(), WriteError> {
        self.require_writable()?;
        if bytes > FILE_BYTES_MAX {
            return Err(WriteError::TooLong);
        }
        self.require_room(bytes)?;
        match self.alter(Change::Length(bytes), true) {
            Err(AlterError::Write(error)) => Err(error),
            Err(AlterError::Extended) => unreachable!("a length has no last page"),
            Ok(()) => Ok(()),
        }
    }

    /// Zeroes `range`, as far as it lies within the file; large ones by the store, without writing
    /// zeros, where it can. Reads through any handle see the zeros from the return on.
    ///
    /// # Errors
    /// See [`WriteError`]. A call that fails may have zeroed a part.
    pub fn zero(&self, range: Range<u64>, how: Zeroing) -> Result<(), WriteError> {
        self.require_writable()?;
        let Range { start, end } = self.within(range);
        // No more than one request is as fast to write.
        let bytes_min = u64::from(self.shared().settings.request_bytes_max);
        let change = |offset, bytes| Change::Zero { offset, bytes, allocated: how.allocated };
        let pages = match self.alter_pages(start..end, bytes_min, change) {
            Err(WriteError::Unsupported) if !how.fast => end..end,
            pages => pages?,
        };
        self.write_zeros(start..pages.start)?;
        self.write_zeros(pages.end..end)?;
        if how.durable || self.shared().settings.write_through { self.flush() } else { Ok(()) }
    }

    /// Tells that the bytes of `range` are not needed until they are written again. Whole pages of
    /// it leave the cache unwritten and read as zeros, where the store can discard them; else
    /// nothing happens.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn discard(&self, range: Range<u64>) -> Result<(), WriteError> {
        self.require_writable()?;
        let Range { start, end } = self.within(range);
        match self.alter_pages(start..end, 1, |offset, bytes| Change::Discard { offset, bytes }) {
            Ok(_) | Err(WriteError::Unsupported) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Has the store make `change` of the whole pages of `range`, if these are `bytes_min` bytes
    /// and more: which it changed.
    fn alter_pages(
        &self,
        range: Range<u64>,
        bytes_min: u64,
        change: impl Fn(u64, u64) -> Change,
    ) -> Result<Range<u64>, WriteError> {
        loop {
            let pages = self.whole_pages(range.start, range.end);
            let bytes = pages.end - pages.start;
            if bytes < bytes_min {
                return Ok(range.end..range.end);
            }
            match self.alter(change(pages.start, bytes), false) {
                Ok(()) => return Ok(pages),
                Err(AlterError::Extended) => {}
                Err(AlterError::Write(error)) => return Err(error),
            }
        }
    }

    fn alter(&self, change: Change, durable: bool) -> Result<(), AlterError> {
        self.file.require_current().map_err(WriteError::from)?;
        Alter { carrier: self.carrier(), handle: self.id, change, durable }.run()
    }

    fn within(&self, range: Range<u64>) -> Range<u64> {
        let end = range.end.min(self.file.bytes());
        range.start.min(end)..end
    }

    /// The whole pages between `start` and `end`; the last page of the file is whole, however few
    /// bytes it has, unless a write has begun to extend it.
    fn whole_pages(&self, start: u64, end: u64) -> Range<u64> {
        let page_bytes = u64::from(self.file.page_bytes);
        let first = start.next_multiple_of(page_bytes).min(end);
        let last =
            if end >= self.file.length.extent() { end } else { end / page_bytes * page_bytes };
        first..last.max(first)
    }

    fn write_zeros(&self, range: Range<u64>) -> Result<(), WriteError> {
        let piece = (range.end - range.start).min(ZEROS_BYTES);
        let zeros = vec![0; at(piece)];
        let mut from = range.start;
        while from < range.end {
            let bytes = piece.min(range.end - from);
            self.write_pieces(&zeros[..at(bytes)], from, false)?;
            from += bytes;
        }
        Ok(())
    }
}

/// The zeros that are written at once.
const ZEROS_BYTES: u64 = 256 << 10;
