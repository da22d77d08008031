//! What a file asks of operations that go past the kernel's page cache.
//!
//! ```text
//!   offset        a multiple of `offset`
//!   each frame    begins at a multiple of `memory`, holds a multiple of `offset` bytes
//!   a read        is rounded up to a multiple of `offset`: the frames have the room
//!   a write       is a multiple of `offset`, or goes through the page cache
//! ```
//!
//! # Invariants
//! - What [`Align::fits`] says fits keeps to it wherever a transfer is cut between frames.
//! # Sources
//! Linux `statx(2)`, `STATX_DIOALIGN` (6.1); where that is not said, a read is tried.

use std::fs::File;

use rustix::{
    fs::{AtFlags, StatxFlags, statx},
    io::{pread, retry_on_intr},
};

use crate::{
    frames::Frame,
    store::{Op, OpKind},
};

/// Alignments in bytes, powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Align {
    memory: usize,
    pub(super) offset: usize,
}

impl Align {
    /// Anything goes.
    pub(super) const NONE: Self = Self { memory: 1, offset: 1 };

    /// What `direct`, which is open with `O_DIRECT`, asks for; none if it does not work there.
    pub(super) fn of(direct: &File) -> Option<Self> {
        match statx(direct, "", AtFlags::EMPTY_PATH, DIOALIGN) {
            Ok(found) if found.stx_mask & DIOALIGN.bits() != 0 => {
                let (memory, offset) = (found.stx_dio_mem_align, found.stx_dio_offset_align);
                let works = memory.is_power_of_two() && offset.is_power_of_two();
                works.then_some(Self { memory: memory as usize, offset: offset as usize })
            }
            Ok(_) | Err(_) => Self::try_read(direct),
        }
    }

    /// A page at a time is what every device takes that takes direct reads at all.
    fn try_read(direct: &File) -> Option<Self> {
        let mut room = Frame::new(2 * TRIED_BYTES).ok()?;
        let skip = room.as_ptr().align_offset(TRIED_BYTES);
        let page = room.get_mut(skip..skip + TRIED_BYTES)?;
        retry_on_intr(|| pread(direct, &mut *page, 0)).ok()?;
        Some(Self { memory: TRIED_BYTES, offset: TRIED_BYTES })
    }

    /// Whether all of `op` keeps to it.
    pub(super) fn fits(&self, op: &Op) -> bool {
        let Ok(offset) = i64::try_from(op.offset) else { return false };
        let end = op.bytes.checked_next_multiple_of(self.offset).map(i64::try_from);
        let Some(Ok(end)) = end else { return false };
        let whole = match op.kind {
            OpKind::Read => op.bytes > 0,
            OpKind::Write => op.bytes > 0 && op.bytes.is_multiple_of(self.offset),
            OpKind::Sync => false,
        };
        let frame_fits = |frame: &Frame| {
            frame.as_ptr().addr().is_multiple_of(self.memory)
                && frame.len().is_multiple_of(self.offset)
        };
        whole
            && offset.checked_add(end).is_some()
            && op.offset.is_multiple_of(self.offset as u64)
            && op.frames.iter().all(frame_fits)
    }
}

/// Asks how direct operations are to be aligned.
const DIOALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2000);

/// What is tried where the system does not say.
const TRIED_BYTES: usize = 4096;
const _: () = assert!(TRIED_BYTES.is_power_of_two(), "an alignment is a power of two");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_aligned_does_not_fit() {
        const PAGE: usize = 1024;
        let align = Align { memory: 1, offset: 512 };
        #[rustfmt::skip]
        let rows = [ // why                        kind            offset  bytes  frame   fits
            ("aligned",                            OpKind::Read,     512,   1024,  PAGE,  true),
            ("a tail is rounded up",               OpKind::Read,       0,   1025,  PAGE,  true),
            ("nothing to read",                    OpKind::Read,       0,      0,  PAGE,  false),
            ("an odd offset",                      OpKind::Read,     100,   1024,  PAGE,  false),
            ("small frames",                       OpKind::Read,       0,    512,   256,  false),
            ("past what files can be",             OpKind::Read, 1 << 63,    512,  PAGE,  false),
            ("across what files can be",     OpKind::Read, (1 << 63) - 512,  512,  PAGE,  false),
            ("a whole write",                      OpKind::Write,      0,   1024,  PAGE,  true),
            ("a write in part",                    OpKind::Write,      0,   1000,  PAGE,  false),
            ("a sync",                             OpKind::Sync,       0,      0,  PAGE,  false),
        ];
        for (why, kind, offset, bytes, frame, fits) in rows {
            let frames = (0..2048_usize.div_ceil(frame)).map(|_| Frame::new(frame).unwrap());
            let op = Op { token: 0, kind, offset, bytes, frames: frames.collect() };
            assert_eq!(align.fits(&op), fits, "{why}");
        }
    }

    #[test]
    fn memory_is_asked_for_its_place() {
        let frame = Frame::new(1024).unwrap();
        let memory = 1 << (frame.as_ptr().addr().trailing_zeros() + 1);
        let op = Op { token: 0, kind: OpKind::Read, offset: 0, bytes: 1, frames: vec![frame] };
        assert!(!Align { memory, offset: 1 }.fits(&op));
        assert!(Align { memory: memory / 2, offset: 1 }.fits(&op));
    }
}
