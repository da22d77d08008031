//! A part of a store as a store: a device of a trace on its range of the target.
//!
//! ```text
//!   store   |....[base .......... base + bytes)....|
//!   part         [0 ................... bytes)
//! ```
//! # Invariants
//! - No operation reaches outside the part, as the part has neither more bytes nor room to grow.
//! - A part of a store that is written by way of other parts too has no versions: it would take
//!   their writes for those of another program.

use std::sync::Arc;

use forerun_io::store::{
    Change, Completion, EOPNOTSUPP, Op, Queue, QueueKind, Store, StoreError, Version, Wait,
};

/// See the module.
pub struct Part {
    inner: Arc<dyn Store>,
    base: u64,
    bytes: u64,
    /// Whether its versions are those of `inner`.
    versions: bool,
}

impl Part {
    /// `bytes` of `inner` from `base` on, with the versions of `inner` or with none.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, base: u64, bytes: u64, versions: bool) -> Self {
        Self { inner, base, bytes, versions }
    }

    fn own(&self, version: Result<Version, StoreError>) -> Result<Version, StoreError> {
        version.map(|version| Version { bytes: self.bytes, ..version })
    }
}

impl Store for Part {
    fn bytes(&self) -> Result<u64, StoreError> {
        Ok(self.bytes)
    }

    fn bytes_max(&self) -> Option<u64> {
        Some(self.bytes)
    }

    fn change(&self, _: Change) -> Result<(), i32> {
        Err(EOPNOTSUPP)
    }

    fn queue(&self, kind: QueueKind) -> Arc<dyn Queue> {
        let (inner, base, bytes) = (self.inner.queue(kind), self.base, self.bytes);
        Arc::new(PartQueue { inner, base, bytes })
    }

    fn version(&self) -> Result<Version, StoreError> {
        if self.versions { self.own(self.inner.version()) } else { Ok(Version::default()) }
    }

    fn version_tells_all(&self) -> bool {
        !self.versions || self.inner.version_tells_all()
    }

    fn settled_version(&self) -> Result<Version, StoreError> {
        if self.versions { self.own(self.inner.settled_version()) } else { Ok(Version::default()) }
    }
}

struct PartQueue {
    inner: Arc<dyn Queue>,
    base: u64,
    bytes: u64,
}

impl Queue for PartQueue {
    fn submit(&self, mut op: Op) {
        let end = op.offset.checked_add(op.bytes as u64);
        assert!(end.is_some_and(|end| end <= self.bytes), "{op:?} ends after {}", self.bytes);
        op.offset += self.base;
        self.inner.submit(op);
    }

    fn reap(&self, wait: Wait, out: &mut Vec<Completion>) {
        let before = out.len();
        self.inner.reap(wait, out);
        out[before..].iter_mut().for_each(|done| done.op.offset -= self.base);
    }

    fn set_depth(&self, depth: u32) {
        self.inner.set_depth(depth);
    }

    fn start(&self) {
        self.inner.start();
    }

    fn close(&self) {
        self.inner.close();
    }
}

#[cfg(test)]
mod tests {
    use forerun_core::units::FrameId;
    use forerun_io::frames::Frames;
    use forerun_io::store::OpKind;
    use forerun_io::store::pattern::{self, Pattern};

    use super::*;

    #[test]
    fn a_part_has_the_bytes_of_its_range() {
        let part = Part::new(Arc::new(Pattern::new(1 << 20)), 40_960, 8_192, true);
        assert_eq!((part.bytes(), part.bytes_max()), (Ok(8_192), Some(8_192)));
        let (frames, queue) = (Frames::new(1, 4_096).unwrap(), part.queue(QueueKind::Caller));
        let frame = frames.check_out(FrameId(0));
        let op =
            Op { token: 7, kind: OpKind::Read, offset: 4_096, bytes: 4_096, frames: vec![frame] };
        queue.submit(op);
        let mut out = Vec::new();
        queue.reap(Wait::One, &mut out);
        let done = out.pop().expect("one is done");
        assert_eq!((done.op.token, done.op.offset, done.result), (7, 4_096, Ok(4_096)));
        assert_eq!(pattern::verify(40_960 + 4_096, &done.op.frames[0]), Ok(()));
    }
}
