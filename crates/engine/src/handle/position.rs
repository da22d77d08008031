//! `Read` and `Seek` of handles: a position that threads may share.
//!
//! ```text
//!   read:  position --- claim: min(buf, rest of the file) ---> read_at of what was claimed
//! ```
//!
//! # Invariants
//! - Reads at once through one handle get parts that do not overlap, as of a `std::fs::File`.
//! - A read that failed gives its part back, unless the position has moved since.

use std::{
    io::{self, Read, Seek, SeekFrom},
    sync::atomic::Ordering,
};

use super::Handle;

impl Read for &Handle {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let end_after = |from: u64| from + (buf.len() as u64).min(self.len().saturating_sub(from));
        let claim = self.position.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |from| {
            Some(end_after(from)) //
        });
        let from = claim.expect("a claim is never refused");
        let end = end_after(from);
        self.read_at(buf, from).map_err(|error| {
            let relaxed = Ordering::Relaxed;
            let _moved = self.position.compare_exchange(end, from, relaxed, relaxed);
            error.into()
        })
    }
}

impl Seek for &Handle {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = |position: u64| match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => position.checked_add_signed(by),
            SeekFrom::End(by) => self.len().checked_add_signed(by),
        };
        let before = self.position.fetch_update(Ordering::Relaxed, Ordering::Relaxed, target);
        let invalid =
            |_| io::Error::new(io::ErrorKind::InvalidInput, "a position before the start");
        Ok(before.map(target).map_err(invalid)?.expect("the position was set to it"))
    }
}

impl Read for Handle {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Seek for Handle {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
