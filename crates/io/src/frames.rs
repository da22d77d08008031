//! Frames: the memory that pages lie in, by number.
//!
//! A frame is in the table, where anybody may read it, or out: owned by the operation that fills
//! it or writes it back. Nothing can refer to a frame that is out, so a page that the kernel
//! is writing to is never read.
//!
//! ```text
//!   FrameId  0      1      2      3
//!          [page] [page] [ -- ] [page]        2 is out, inside an operation
//! ```
//!
//! # Invariants
//! - All memory is taken, and touched, in [`Frames::new`]; nothing is allocated later.
//! - A frame comes back by the number it left by or by another; all are of one size.
//! # Locking
//! One lock a frame, held as long as a guard lives. Nobody holds two guards to write.

use std::ops::{Deref, DerefMut};

use forerun_core::units::FrameId;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::io::Errno;

/// Memory for one page, zeroed when new.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame(Box<[u8]>);

impl Frame {
    /// A frame of `page_bytes`, outside of any table.
    ///
    /// # Errors
    /// The memory cannot be had.
    pub fn new(page_bytes: usize) -> Result<Self, NoMemory> {
        let mut page = Vec::new();
        page.try_reserve_exact(page_bytes).map_err(|_| NoMemory { count: 1, page_bytes })?;
        page.resize(page_bytes, 0);
        Ok(Self(page.into_boxed_slice()))
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
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
    slots: Box<[RwLock<Option<Frame>>]>,
    page_bytes: usize,
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

    /// `count` zeroed frames, numbered from 0. The system may promise more memory than it has and
    /// say so only when it is touched, which happens here.
    ///
    /// # Errors
    /// The memory cannot be had; none is kept then.
    pub fn new(count: u32, page_bytes: usize) -> Result<Self, NoMemory> {
        assert!(page_bytes.is_power_of_two(), "a page of {page_bytes} bytes");
        Self::check(count, page_bytes)?;
        let refused = NoMemory { count, page_bytes };
        let mut slots = Vec::new();
        slots.try_reserve_exact(count as usize).map_err(|_| refused)?;
        for _ in 0..count {
            let frame = Frame::new(page_bytes).map_err(|_| refused)?;
            slots.push(RwLock::new(Some(frame)));
        }
        Ok(Self { slots: slots.into_boxed_slice(), page_bytes })
    }

    /// How many there are, in or out.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("as many as `new` was asked for")
    }

    /// The size of each.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Takes a frame out, once those who read it have let go of it.
    ///
    /// # Panics
    /// It is out already.
    #[must_use]
    pub fn take(&self, id: FrameId) -> Frame {
        let taken = self.slot(id).write().take();
        taken.unwrap_or_else(|| panic!("{id:?} is out already"))
    }

    /// Puts a frame in where one is out.
    ///
    /// # Panics
    /// None is out there, or `frame` is of another size.
    pub fn put(&self, id: FrameId, frame: Frame) {
        assert_eq!(frame.len(), self.page_bytes, "{id:?}: a frame of another size");
        let before = self.slot(id).write().replace(frame);
        assert!(before.is_none(), "{id:?} was not out");
    }

    /// The bytes of a frame.
    ///
    /// # Panics
    /// It is out.
    #[must_use]
    pub fn read(&self, id: FrameId) -> impl Deref<Target = [u8]> {
        RwLockReadGuard::map(self.slot(id).read(), |slot| match slot {
            Some(frame) => &frame.0[..],
            None => panic!("{id:?} is out"),
        })
    }

    /// The bytes of a frame, to change.
    ///
    /// # Panics
    /// It is out.
    #[must_use]
    pub fn write(&self, id: FrameId) -> impl DerefMut<Target = [u8]> {
        RwLockWriteGuard::map(self.slot(id).write(), |slot| match slot {
            Some(frame) => &mut frame.0[..],
            None => panic!("{id:?} is out"),
        })
    }

    fn slot(&self, id: FrameId) -> &RwLock<Option<Frame>> {
        &self.slots[id.0 as usize]
    }
}
