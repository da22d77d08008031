//! Frames: the memory that pages lie in, by number, and what may touch it.
//!
//! A frame is cached, where it is only read and only through a [`Pin`], or checked out: owned by
//! the operation or the writer that fills it. Nothing refers to a frame that is checked out, so
//! a page that the kernel writes to is never read; and no frame is checked out while it is pinned.
//! A frame that is written back is shared: pinned, and read by the operation and by readers alike.
//!
//! ```text
//!   FrameId  0      1      2      3
//!          [page] [page] [ -- ] [page]        2 is checked out, inside an operation
//!            |                    |
//!           Pin                OwnedPin       read now; kept for later
//! ```
//!
//! [`crate::index`] finds and pins published pages without a lock: such a pin lies in the hazard
//! pointer of its thread, and writes no cache line that other threads write. Pins by number,
//! further pins of one thread and owned pins are counted in the header of the frame.
//!
//! # Invariants
//! - All memory is taken, and touched, in [`Frames::new`]; nothing is allocated later.
//! - A frame that is checked out is one [`Frame`], and is checked in under its own number when that
//!   is dropped: also where a store panics. One that is leaked stays checked out for good.
//! - Pins taken less pins released are the pins there are; an [`OwnedPin`] that is dropped is never
//!   released.
//! # Locking
//! None: `frames/header.rs` says in which order things are seen.

mod arena;
mod hazard;
mod header;
mod lazy;
mod mapping;
mod spare;

use std::{
    alloc::{self, Layout},
    any::Any,
    mem,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    slice,
    sync::Arc,
};

use forerun_core::units::{FrameId, PageId};
use rustix::io::Errno;

use arena::Arena;
use hazard::HazardPointer;
pub(crate) use header::{Publication, PublishOutcome, RetractOutcome};
pub use lazy::LazyMemory;
pub(crate) use mapping::in_huge_pages;
pub use spare::spare_bytes_max;

/// The memory of one page, owned alone: a frame of a [`Frames`] that is checked out, or one
/// outside of any.
#[derive(Debug)]
pub struct Frame {
    start: NonNull<u8>,
    bytes: usize,
    origin: Origin,
}

/// What the memory is a part of.
#[derive(Debug)]
enum Origin {
    Alone(Layout),
    Arena(Arc<Arena>, FrameId),
    /// A pinned frame, which is only read.
    Shared(Arc<Arena>, FrameId),
}

// SAFETY: a frame owns its bytes, which belong to no thread.
unsafe impl Send for Frame {}
// SAFETY: what can be done through a shared frame is to read its bytes.
unsafe impl Sync for Frame {}

impl Frame {
    /// A frame of `page_bytes` zeros, outside of any cache, at a multiple of its size.
    ///
    /// # Errors
    /// The memory cannot be had.
    ///
    /// # Panics
    /// `page_bytes` is no power of two.
    pub fn new(page_bytes: usize) -> Result<Self, NoMemory> {
        assert!(page_bytes.is_power_of_two(), "a page of {page_bytes} bytes");
        let refused = NoMemory { count: 1, page_bytes };
        let layout = Layout::from_size_align(page_bytes, page_bytes).map_err(|_| refused)?;
        // SAFETY: a power of two is not 0.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or(refused)?;
        Ok(Self { start, bytes: page_bytes, origin: Origin::Alone(layout) })
    }

    /// Its number, if it is of a [`Frames`].
    #[must_use]
    pub fn id(&self) -> Option<FrameId> {
        match &self.origin {
            Origin::Alone(_) => None,
            Origin::Arena(_, id) | Origin::Shared(_, id) => Some(*id),
        }
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` initialised bytes at `start` are this frame's alone: its own allocation,
        // or a frame whose header says checked out, which nothing else reads or writes. Those of a
        // shared frame are pinned: nothing writes to them until this frame is dropped.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        let shared = matches!(self.origin, Origin::Shared(..));
        assert!(!shared, "a shared frame is only read: {self:?}");
        // SAFETY: as in `deref`, and the frame, which is not shared, is borrowed to write.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        match &self.origin {
            // SAFETY: allocated by `new` with this layout, and owned by this frame alone.
            Origin::Alone(layout) => unsafe { alloc::dealloc(self.start.as_ptr(), *layout) },
            // Nothing can write through it any more.
            Origin::Arena(arena, id) => arena.header(*id).check_in(*id),
            Origin::Shared(arena, id) => arena.header(*id).unpin(),
        }
    }
}

/// The system has no memory for the frames. Fewer or smaller ones may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory for {count} frames of {page_bytes} bytes")]
pub struct NoMemory {
    /// Frames wanted.
    pub count: u32,
    /// The size of each.
    pub page_bytes: usize,
}

impl NoMemory {
    /// The errno that says the same.
    #[must_use]
    pub fn errno(&self) -> i32 {
        Errno::NOMEM.raw_os_error()
    }
}

/// All frames of a cache.
#[derive(Debug)]
pub struct Frames {
    arena: Arc<Arena>,
}

impl Frames {
    /// Whether the system would promise the memory of `count` frames at once; none is kept. It
    /// refuses more than the machine has, unless it is set to promise anything.
    ///
    /// # Errors
    /// It would not.
    pub fn check(count: u32, page_bytes: usize) -> Result<(), NoMemory> {
        let refused = NoMemory { count, page_bytes };
        let bytes = (count as usize).checked_mul(page_bytes).ok_or(refused)?;
        let mut all = Vec::<u8>::new();
        all.try_reserve_exact(bytes).map_err(|_| refused)?;
        std::hint::black_box(&all); // Or the compiler does not ask the system at all.
        Ok(())
    }

    /// `count` zeroed frames, numbered from 0, all cached. The system may promise more memory than
    /// it has and refuse only when the memory is touched, which happens here.
    ///
    /// # Errors
    /// The memory cannot be had; none is kept then.
    ///
    /// # Panics
    /// `page_bytes` is no power of two.
    pub fn new(count: u32, page_bytes: usize) -> Result<Self, NoMemory> {
        assert!(page_bytes.is_power_of_two(), "a page of {page_bytes} bytes");
        Self::check(count, page_bytes)?;
        Ok(Self { arena: Arc::new(Arena::new(count, page_bytes)?) })
    }

    /// How many there are, cached or checked out.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.arena.count()
    }

    /// The size of each.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.arena.page_bytes()
    }

    /// Checks a frame out. Its memory stays for as long as the frame does, also after `self` is
    /// dropped.
    ///
    /// # Panics
    /// It is checked out already, or published, or pinned; or its page was retracted while it was
    /// pinned, and no retraction has found it unpinned since.
    #[must_use]
    pub fn check_out(&self, id: FrameId) -> Frame {
        self.arena.header(id).check_out(id);
        let origin = Origin::Arena(Arc::clone(&self.arena), id);
        Frame { start: self.arena.bytes(id), bytes: self.arena.page_bytes(), origin }
    }

    /// Shares a cached frame with an operation that only reads it, a write to a store: the frame is
    /// pinned until the result is dropped, and others may read it meanwhile.
    ///
    /// # Panics
    /// It is checked out. To write through a shared frame panics too.
    #[must_use]
    pub fn share(&self, id: FrameId) -> Frame {
        self.arena.header(id).pin(id);
        let origin = Origin::Shared(Arc::clone(&self.arena), id);
        Frame { start: self.arena.bytes(id), bytes: self.arena.page_bytes(), origin }
    }

    /// Checks a frame in.
    ///
    /// # Panics
    /// It is none of these frames, or is shared.
    #[expect(clippy::needless_pass_by_value, reason = "it is checked in as it is dropped")]
    pub fn check_in(&self, frame: Frame) {
        let Origin::Arena(arena, id) = &frame.origin else {
            panic!("a frame of no cache: {frame:?}");
        };
        assert!(Arc::ptr_eq(arena, &self.arena), "{id:?} is a frame of another cache");
    }

    /// Whether the frame is checked out.
    #[must_use]
    pub fn is_checked_out(&self, id: FrameId) -> bool {
        self.arena.header(id).is_checked_out()
    }

    /// Pins a cached frame, published or not, to read it now.
    ///
    /// # Panics
    /// It is checked out.
    #[must_use]
    pub fn pin(&self, id: FrameId) -> Pin<'_> {
        self.resume(self.pin_owned(id))
    }

    /// Pins a cached frame, published or not, to read it later.
    ///
    /// # Panics
    /// It is checked out.
    pub fn pin_owned(&self, id: FrameId) -> OwnedPin {
        self.arena.header(id).pin(id);
        OwnedPin { serial: self.arena.serial(), frame: id }
    }

    /// The pin of an owned one.
    ///
    /// # Panics
    /// It is of other frames.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "a pin is resumed once")]
    pub fn resume(&self, pin: OwnedPin) -> Pin<'_> {
        let OwnedPin { serial, frame } = pin;
        assert_eq!(serial, self.arena.serial(), "{frame:?} is pinned in another cache");
        Pin { arena: &self.arena, frame, hazard: None }
    }

    /// Whether the frame is pinned, or its hazard pointer is set by a finder that backs out in a
    /// moment. A thread that released its pin and then finds a flag not yet raised can be sure that
    /// the thread that raises it does not see that pin.
    #[must_use]
    pub fn pinned(&self, id: FrameId) -> bool {
        // In this order, as pins move: from a hazard pointer to the count.
        self.arena.hazards().any(id) || self.arena.header(id).is_pinned()
    }

    /// Where the frames lie, in the order of their numbers, and how many bytes they take: what
    /// may be registered with the system. Only the owner of a frame that is checked out may read
    /// or write there.
    #[must_use]
    pub fn region(&self) -> (*const u8, usize) {
        let (base, bytes) = self.arena.region();
        (base.as_ptr(), bytes)
    }

    /// What keeps the memory where it is after this has gone, for a kernel that has it pinned.
    pub(crate) fn keep(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.arena) as Arc<dyn Any + Send + Sync>
    }

    /// How many of those bytes are in huge pages, as the system says; 0 if it does not.
    #[must_use]
    pub fn huge_bytes(&self) -> u64 {
        self.arena.huge_bytes()
    }

    /// Pins a frame if `page` is published in it. A caller that does not find the page may have set
    /// its hazard pointer for a moment, which a retraction takes for a pin: it then counts as a
    /// release.
    #[inline]
    pub(crate) fn find(&self, page: PageId, frame: FrameId) -> Option<(Pin<'_>, Publication)> {
        let (arena, header) = (&*self.arena, self.arena.header(frame));
        expect_read(arena.bytes(frame));
        let seen = header.peek(page)?;
        let Some(hazard) = arena.hazards().set(frame) else {
            let publication = header.pin_page(page)?;
            return Some((Pin { arena, frame, hazard: None }, publication));
        };
        // A pin from here on if it is still published; else it is dropped unread.
        let pin = Pin { arena, frame, hazard: Some(hazard) };
        let publication = header.peek(page)?;
        (publication.generation == seen.generation).then_some((pin, publication))
    }

    /// The page that is published in a frame, for the publisher.
    pub(crate) fn published(&self, frame: FrameId) -> Option<(PageId, Publication)> {
        self.arena.header(frame).published()
    }

    /// Whether the page of a frame was retracted while it was pinned, for the publisher.
    pub(crate) fn is_retracting(&self, frame: FrameId) -> bool {
        self.arena.header(frame).is_retracting()
    }

    /// Lets `page` be found in a frame, or changes its marker.
    pub(crate) fn publish(
        &self,
        page: PageId,
        frame: FrameId,
        generation: u32,
        marker: bool,
    ) -> PublishOutcome {
        self.arena.header(frame).publish(page, generation, marker)
    }

    /// Lets what is published in a frame be found no longer, if it is unpinned or `gone`.
    pub(crate) fn retract(&self, frame: FrameId, gone: bool) -> RetractOutcome {
        self.arena.header(frame).retract(gone, || self.arena.hazards().any(frame))
    }
}

/// A pin without a borrow: its frame stays cached, with its bytes, until [`Frames::resume`] makes
/// a [`Pin`] of it again. One that is dropped pins its frame for ever.
#[must_use = "a pin that is not released keeps its frame for ever"]
#[derive(Debug, PartialEq, Eq)]
pub struct OwnedPin {
    serial: u64,
    frame: FrameId,
}

impl OwnedPin {
    /// The frame.
    #[must_use]
    pub fn frame(&self) -> FrameId {
        self.frame
    }
}

/// The bytes of a cached frame, which stay as they are until the pin is released.
#[derive(Debug)]
pub struct Pin<'a> {
    arena: &'a Arena,
    frame: FrameId,
    /// The hazard pointer that names the frame for this pin; else the pin is counted.
    hazard: Option<&'a HazardPointer>,
}

impl Pin<'_> {
    /// The frame.
    #[must_use]
    pub fn frame(&self) -> FrameId {
        self.frame
    }

    /// Releases the pin; returns whether the page was retracted meanwhile: its frame may wait for
    /// this release. Either the retraction sees the release, or the release the retraction.
    #[inline]
    #[must_use = "a frame may wait to be retracted again"]
    pub fn release(self) -> bool {
        let (arena, frame) = (self.arena, self.frame);
        drop(self);
        arena.header(frame).is_retracting()
    }

    /// The pin beyond the borrow of its frames.
    ///
    /// # Panics
    /// More pins are kept than can be counted.
    pub fn into_owned(self) -> OwnedPin {
        if let Some(hazard) = self.hazard {
            self.arena.header(self.frame).pin(self.frame);
            hazard.clear(self.frame); // Only now: it is pinned at any time.
        }
        let held = OwnedPin { serial: self.arena.serial(), frame: self.frame };
        mem::forget(self); // The pin is in `held` now.
        held
    }
}

impl Deref for Pin<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let start = self.arena.bytes(self.frame);
        // SAFETY: the bytes are within the arena, which is borrowed. The header counts this pin, or
        // says for as long as a hazard pointer names the frame that it is published or retracting:
        // so the frame cannot be checked out, and only its owner then writes to it. The owner
        // before has checked it in, which happens before a pin.
        unsafe { slice::from_raw_parts(start.as_ptr(), self.arena.page_bytes()) }
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.hazard {
            Some(hazard) => hazard.clear(self.frame),
            None => self.arena.header(self.frame).unpin(),
        }
    }
}

/// Has the processor fetch what will be read soon.
#[inline]
fn expect_read(at: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which changes nothing and faults nowhere.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use forerun_core::units::FileId;

    use super::*;

    #[test]
    fn the_first_pin_of_a_thread_is_its_hazard_pointer_and_others_are_counted() {
        let frames = Frames::new(2, 64).unwrap();
        let pages = [0, 1].map(|index| PageId { file: FileId(1), index });
        for (at, page) in (0..).zip(pages) {
            frames.publish(page, FrameId(at), 0, false);
        }
        let find = |at: u32| frames.find(pages[at as usize], FrameId(at)).unwrap().0;
        let counted = |at| frames.arena.header(FrameId(at)).is_pinned();
        let first = find(0);
        assert!(first.hazard.is_some() && !counted(0));
        let (again, other) = (find(0), find(1));
        assert!(again.hazard.is_none() && other.hazard.is_none());
        assert!(counted(0) && counted(1));
        drop((again, other));
        assert!(!counted(0) && !counted(1) && frames.pinned(FrameId(0)));
        let held = first.into_owned();
        assert!(counted(0) && !frames.arena.hazards().any(FrameId(0)), "kept ones are counted");
        assert!(find(1).hazard.is_some(), "the hazard pointer is free for the next");
        drop(frames.resume(held));
        assert!(!frames.pinned(FrameId(0)) && !frames.pinned(FrameId(1)));
        assert!(frames.find(pages[1], FrameId(0)).is_none() && find(0).hazard.is_some());
    }
}
