//! Slots: where a thread says which frame it looks at, in a cache line of its own.
//!
//! ```text
//!   threads      0        1        2     ...
//!   slots     [ 17+1 ] [   0  ] [ 17+1 ]        0: none
//!                  ^       ^        ^
//!                  +-------+--------+---- does any name 17?   asked by a retraction
//! ```
//!
//! So two threads that pin the same frame write nothing that the other one reads. The price is
//! paid by a retraction, which reads all slots.
//!
//! # Invariants
//! - A slot names one frame at most, for one pin. A thread that finds its slot in use (it has a pin
//!   already, or shares the slot) counts its pin in the frame's label instead.
//! - A slot that names a frame is a pin only if the label said so afterwards. One that names it for
//!   a moment, until its thread has seen that, is nobody's.
//! # Locking
//! None. Every operation is sequentially consistent: `frames/label.rs` says why.
//! # Sources
//! Michael, Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects, 2004. We differ:
//! threads may share a slot, and what is retracted is a number whose memory is there for good.

use forerun_core::units::FrameId;

use crate::sync::{AtomicU64, Ordering, Stripes};

/// See the module.
#[derive(Debug)]
pub(crate) struct Slots(Stripes<Slot>);

/// The frame that a thread looks at. In cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Slot(AtomicU64);

impl Slots {
    /// A few for each processor there is, none in use.
    pub(crate) fn new() -> Self {
        Self(Stripes::new(SLOTS_MAX, || Slot(AtomicU64::new(NONE))))
    }

    /// Names `frame` in this thread's slot, unless that is in use.
    #[inline]
    pub(crate) fn name(&self, frame: FrameId) -> Option<&Slot> {
        let slot = self.0.mine();
        let named =
            slot.0.compare_exchange(NONE, named(frame), Ordering::SeqCst, Ordering::Relaxed);
        named.is_ok().then_some(slot)
    }

    /// Whether any of them names `frame`.
    pub(crate) fn any(&self, frame: FrameId) -> bool {
        self.0.all().iter().any(|slot| slot.0.load(Ordering::SeqCst) == named(frame))
    }
}

impl Slot {
    /// Names `frame` no longer.
    #[inline]
    pub(crate) fn clear(&self, frame: FrameId) {
        let before = self.0.swap(NONE, Ordering::SeqCst);
        assert_eq!(before, named(frame), "a slot is in use until it is cleared");
    }
}

#[inline]
fn named(frame: FrameId) -> u64 {
    u64::from(frame.0) + 1
}

const NONE: u64 = 0;
/// What a retraction reads at most. Two threads of a model have one each, or share one.
const SLOTS_MAX: usize = if cfg!(feature = "shuttle") { 2 } else { 64 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_names_one_frame_until_it_is_cleared() {
        let (slots, first, last) = (Slots::new(), FrameId(0), FrameId(u32::MAX));
        for frame in [first, last, first] {
            assert!(!slots.any(frame));
            let slot = slots.name(frame).unwrap();
            assert!(slots.any(frame) && slots.name(FrameId(1)).is_none() && !slots.any(FrameId(1)));
            slot.clear(frame);
        }
        assert!(!slots.any(first) && !slots.any(last));
    }

    #[test]
    fn a_slot_lies_in_lines_of_its_own() {
        assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (128, 128));
    }
}
