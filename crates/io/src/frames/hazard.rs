//! Hazard pointers: where a thread publishes which frame it reads, in a cache line of its own.
//!
//! ```text
//!   threads             0        1        2     ...
//!   hazard pointers  [ 17+1 ] [   0  ] [ 17+1 ]        0: clear
//!                        ^       ^        ^
//!                        +-------+--------+---- does any name 17?   asked by a retraction
//! ```
//!
//! Two threads that pin the same frame so write nothing that the other one reads. A retraction
//! pays for that: it reads all hazard pointers.
//!
//! # Invariants
//! - A hazard pointer names one frame at most, for one pin. A thread that finds its pointer in use
//!   (it has a pin already, or shares the pointer) counts its pin in the frame's header instead.
//! - A hazard pointer is a pin only if the header said "published" after it was set. Until its
//!   thread has loaded the header, it protects nothing.
//! # Locking
//! None. Every operation is sequentially consistent: `frames/header.rs` says why.
//! # Sources
//! Michael, Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects, 2004. We differ:
//! threads may share a pointer, and what is retracted is a number whose memory is there for good.

use forerun_core::units::FrameId;

use crate::sync::{AtomicU64, Ordering, Stripes};

/// See the module.
#[derive(Debug)]
pub(crate) struct HazardPointers(Stripes<HazardPointer>);

/// The frame that a thread reads. In cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct HazardPointer(AtomicU64);

impl HazardPointers {
    /// A few for each processor there is, all clear.
    pub(crate) fn new() -> Self {
        Self(Stripes::new(POINTERS_MAX, || HazardPointer(AtomicU64::new(CLEAR))))
    }

    /// Sets this thread's hazard pointer to `frame`, unless it is in use.
    #[inline]
    pub(crate) fn set(&self, frame: FrameId) -> Option<&HazardPointer> {
        let pointer = self.0.mine();
        let (clear, named) = (CLEAR, named(frame));
        let set = pointer.0.compare_exchange(clear, named, Ordering::SeqCst, Ordering::Relaxed);
        set.is_ok().then_some(pointer)
    }

    /// Whether any of them names `frame`.
    pub(crate) fn any(&self, frame: FrameId) -> bool {
        self.0.all().iter().any(|pointer| pointer.0.load(Ordering::SeqCst) == named(frame))
    }
}

impl HazardPointer {
    /// Clears the pointer, which names `frame`.
    #[inline]
    pub(crate) fn clear(&self, frame: FrameId) {
        let before = self.0.swap(CLEAR, Ordering::SeqCst);
        assert_eq!(before, named(frame), "a hazard pointer is in use until it is cleared");
    }
}

#[inline]
fn named(frame: FrameId) -> u64 {
    u64::from(frame.0) + 1
}

const CLEAR: u64 = 0;
/// What a retraction reads at most. Two threads of a model have one each, or share one.
const POINTERS_MAX: usize = if cfg!(feature = "shuttle") { 2 } else { 64 };

#[cfg(not(feature = "shuttle"))]
const _: () = assert!(size_of::<HazardPointer>() == 128, "a hazard pointer has its own lines");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hazard_pointer_names_one_frame_until_it_is_cleared() {
        let (pointers, first, last) = (HazardPointers::new(), FrameId(0), FrameId(u32::MAX));
        for frame in [first, last, first] {
            assert!(!pointers.any(frame));
            let pointer = pointers.set(frame).unwrap();
            assert!(pointers.any(frame) && !pointers.any(FrameId(1)));
            assert!(pointers.set(FrameId(1)).is_none());
            pointer.clear(frame);
        }
        assert!(!pointers.any(first) && !pointers.any(last));
    }

    #[test]
    fn a_hazard_pointer_lies_in_lines_of_its_own() {
        assert_eq!((size_of::<HazardPointer>(), align_of::<HazardPointer>()), (128, 128));
    }
}
