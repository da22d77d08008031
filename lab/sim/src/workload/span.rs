//! A stream's part of a file, read from its first byte to its last in pieces of one size; the
//! last piece is what is left.
//!
//! Every workload that reads in order is made of these.

/// The unread part.
#[derive(Clone, Debug)]
pub(super) struct Span {
    next: u64,
    end: u64,
    request: u32,
}

impl Span {
    /// `bytes` from `start` on.
    pub(super) fn new(start: u64, bytes: u64, request: u64) -> Self {
        let request = u32::try_from(request).expect("checked against the largest request");
        assert!(request > 0);
        Self { next: start, end: start + bytes, request }
    }
}

impl Iterator for Span {
    type Item = (u64, u32);

    /// Offset and bytes of the next read.
    fn next(&mut self) -> Option<(u64, u32)> {
        let left = self.end - self.next;
        let bytes = u32::try_from(left).map_or(self.request, |left| left.min(self.request));
        let offset = self.next;
        self.next += u64::from(bytes);
        (bytes > 0).then_some((offset, bytes))
    }
}
