//! Registered memory: the kernel keeps it pinned for a ring, so that reads into it need not pin it.
//!
//! ```text
//!   region    |-----------------------------------------|
//!   chunks    |--- 0 ---|--- 1 ---|--- 2 ---|              as much as the system lets us pin
//! ```
//!
//! # Invariants
//! - A region is kept alive as long as the ring that has it: its addresses mean nothing else.

use std::{any::Any, sync::Arc};

/// A region of memory that stays where it is as long as this value lives.
#[derive(Clone)]
pub(crate) struct Region {
    /// Where it begins.
    pub(super) addr: usize,
    /// How long it is.
    pub(super) bytes: usize,
    _keep: Arc<dyn Any + Send + Sync>,
}

impl Region {
    /// `bytes` bytes at the address `addr`, which `keep` keeps there.
    pub(crate) fn new(addr: usize, bytes: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { addr, bytes, _keep: keep }
    }
}

/// The part of a region that is registered with one ring.
#[derive(Clone, Default)]
pub(super) struct Registered {
    region: Option<Region>,
    chunk_bytes: usize,
    chunks: usize,
}

impl Registered {
    /// `chunks` pieces of `chunk_bytes` each, the last one perhaps shorter.
    pub(super) fn new(region: Region, chunk_bytes: usize, chunks: usize) -> Self {
        assert!(chunk_bytes > 0 && chunks > 0, "nothing is registered");
        assert!(chunk_bytes * (chunks - 1) < region.bytes, "the last chunk lies in the region");
        Self { region: Some(region), chunk_bytes, chunks }
    }

    /// How much it is.
    pub(super) fn bytes(&self) -> usize {
        self.region.as_ref().map_or(0, |region| region.bytes.min(self.chunk_bytes * self.chunks))
    }

    /// The chunk that holds all of `bytes` bytes at `addr`.
    pub(super) fn find(&self, addr: usize, bytes: usize) -> Option<u16> {
        let region = self.region.as_ref()?;
        let first = addr.checked_sub(region.addr)?;
        let last = first.checked_add(bytes)?.checked_sub(1)?;
        let chunk = first / self.chunk_bytes;
        let whole = last < self.bytes() && last / self.chunk_bytes == chunk;
        whole.then(|| u16::try_from(chunk).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_one_chunk_is_found() {
        assert_eq!(Registered::default().find(0, 10), None);
        let region = Region::new(1_000, 250, Arc::new(()));
        let registered = Registered::new(region, 100, 3);
        assert_eq!(registered.bytes(), 250);
        #[rustfmt::skip]
        let rows = [ // why           addr  bytes  chunk
            ("before",                 999,    10, None),
            ("the first byte",       1_000,     1, Some(0)),
            ("a whole chunk",        1_100,   100, Some(1)),
            ("across two",           1_099,     2, None),
            ("the last byte",        1_249,     1, Some(2)),
            ("past the end",         1_249,     2, None),
            ("far behind",           9_000,     2, None),
            ("nothing",              1_000,     0, None),
        ];
        for (why, addr, bytes, chunk) in rows {
            assert_eq!(registered.find(addr, bytes), chunk, "{why}");
        }
    }
}
