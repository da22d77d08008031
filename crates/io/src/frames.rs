//! Frames: the memory that pages lie in, by number, and who may touch it.
//!
//! A frame is in, where it is only read and only through a [`Pin`], or out: owned by the operation
//! that fills it or writes it back. Nothing can refer to a frame that is out, so a page that the
//! kernel is writing to is never read; and none leaves while it is pinned.
//!
//! ```text
//!   FrameId  0      1      2      3
//!          [page] [page] [ -- ] [page]        2 is out, inside an operation
//!            |                    |
//!           Pin                 OwnedPin          read; kept for later
//! ```
//!
//! What is published, [`crate::index`] finds and pins without a lock: a pin that was found is noted
//! in a slot of its thread, and costs no line that other threads write. Pins by number, of threads
//! that have one already, and those that are kept are counted in the frame's label.
//!
//! # Invariants
//! - All memory is taken, and touched, in [`Frames::new`]; nothing is allocated later.
//! - A frame that is out is one [`Frame`], and comes back under its own number. One that is
//!   dropped instead stays out for good.
//! - As many pins as were taken and not given back; a [`OwnedPin`] that is dropped is never given
//!   back.
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
    fmt, mem,
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
pub use spare::spare_bytes_max;

/// Memory for one page, and whoever has it has it alone: a frame of a [`Frames`] that is out, or
/// one outside of any.
pub struct Frame {
    start: NonNull<u8>,
    bytes: usize,
    origin: Origin,
}

/// Whose memory it is.
enum Origin {
    Alone(Layout),
    Arena(Arc<Arena>, FrameId),
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
            Origin::Arena(_, id) => Some(*id),
        }
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` initialised bytes at `start` are this frame's alone: its own allocation,
        // or a frame that its label says is out, which nothing else reads or writes.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the frame is borrowed to write.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        match &self.origin {
            // SAFETY: allocated by `new` with this layout, and nobody else has it.
            Origin::Alone(layout) => unsafe { alloc::dealloc(self.start.as_ptr(), *layout) },
            Origin::Arena(..) => {} // Out for good.
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, bytes) = (self.id(), self.bytes);
        f.debug_struct("Frame").field("id", &id).field("bytes", &bytes).finish_non_exhaustive()
    }
}

/// The frames cannot be had. Fewer or smaller ones may do.
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
    /// refuses more than the machine has, where it is not told to promise anything.
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

    /// `count` zeroed frames, numbered from 0, all in. The system may promise more memory than it
    /// has and say so only when it is touched, which happens here.
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

    /// How many there are, in or out.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.arena.count()
    }

    /// The size of each.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.arena.page_bytes()
    }

    /// Takes a frame out. Its memory stays for as long as the frame does, whatever becomes of
    /// `self`.
    ///
    /// # Panics
    /// It is out already, or published, or pinned; or its page was retracted while it was held, and
    /// nobody has asked since whether it still is.
    #[must_use]
    pub fn check_out(&self, id: FrameId) -> Frame {
        self.arena.header(id).check_out(id);
        let origin = Origin::Arena(Arc::clone(&self.arena), id);
        Frame { start: self.arena.bytes(id), bytes: self.arena.page_bytes(), origin }
    }

    /// Puts a frame back in.
    ///
    /// # Panics
    /// It is none of these frames.
    pub fn check_in(&self, frame: Frame) {
        let Origin::Arena(arena, id) = &frame.origin else {
            panic!("a frame of no cache: {frame:?}");
        };
        assert!(Arc::ptr_eq(arena, &self.arena), "a frame of another cache: {frame:?}");
        let id = *id;
        drop(frame); // Nobody can write through it any more when the frame is in.
        self.arena.header(id).check_in(id);
    }

    /// Pins a frame that is in, published or not, to look at it now.
    ///
    /// # Panics
    /// It is out.
    #[must_use]
    pub fn pin(&self, id: FrameId) -> Pin<'_> {
        self.resume(self.pin_owned(id))
    }

    /// Pins a frame that is in, published or not, to look at it later.
    ///
    /// # Panics
    /// It is out.
    pub fn pin_owned(&self, id: FrameId) -> OwnedPin {
        self.arena.header(id).pin(id);
        OwnedPin { serial: self.arena.serial(), frame: id }
    }

    /// Goes on with a pin that was kept.
    ///
    /// # Panics
    /// It is of other frames.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "nobody can go on with a pin twice")]
    pub fn resume(&self, held: OwnedPin) -> Pin<'_> {
        let OwnedPin { serial, frame } = held;
        assert_eq!(serial, self.arena.serial(), "{frame:?} is held in another cache");
        Pin { arena: &self.arena, frame, hazard: None }
    }

    /// Whether anybody has it pinned, or is about to find out that he has not. Who gave a pin back
    /// before and now finds a flag not yet raised can be sure that who raises it sees no pin of
    /// his.
    #[must_use]
    pub fn pinned(&self, id: FrameId) -> bool {
        // In this order, as pins move: from a slot to the count.
        self.arena.hazards().any(id) || self.arena.header(id).is_pinned()
    }

    /// Where the frames lie, in the order of their numbers, and how many bytes they take: what
    /// may be registered with the system. Reading or writing there is unsafe for anybody who has
    /// not the frame.
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

    /// Pins a frame if `page` is published in it. Who does not find it may have named the frame for
    /// a moment, which a retraction takes for a pin: that counts as letting go.
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

/// A pin that was kept: its frame stays in, with its bytes, until [`Frames::resume`] makes a
/// [`Pin`] of it again. One that is dropped keeps its frame for ever.
#[must_use = "a pin that is not given back keeps its frame for ever"]
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

/// The bytes of a frame that is in, which stay as they are until the pin is given back.
pub struct Pin<'a> {
    arena: &'a Arena,
    frame: FrameId,
    /// The slot that names the frame for this pin; else the pin is counted.
    hazard: Option<&'a HazardPointer>,
}

impl Pin<'_> {
    /// The frame.
    #[must_use]
    pub fn frame(&self) -> FrameId {
        self.frame
    }

    /// Keeps the pin beyond the borrow of its frames.
    ///
    /// # Panics
    /// More pins are kept than can be counted.
    pub fn into_owned(self) -> OwnedPin {
        if let Some(hazard) = self.hazard {
            self.arena.header(self.frame).pin(self.frame);
            hazard.clear(self.frame); // Only now: it is held at any time.
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
        // SAFETY: the bytes are within the arena, which is borrowed. The label counts this pin, or
        // says for as long as it is in its slot that the frame is published or leaving; so it lets
        // nobody take the frame, and only who has taken it writes to it. Who wrote before has put
        // it in, which happens before a pin.
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

impl fmt::Debug for Pin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pin").field(&self.frame).finish()
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
    fn the_first_pin_of_a_thread_lies_in_its_slot_and_others_are_counted() {
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
        assert!(find(1).hazard.is_some(), "the slot is free for the next");
        drop(frames.resume(held));
        assert!(!frames.pinned(FrameId(0)) && !frames.pinned(FrameId(1)));
        assert!(frames.find(pages[1], FrameId(0)).is_none() && find(0).hazard.is_some());
    }
}
