//! A mapping: memory of whole huge pages with one owner, which unmaps it when it is dropped.
//!
//! # Invariants
//! - A mapping covers what no other mapping of the process covers, and goes with its value.
//! - It is initialised: zeros, or what an earlier owner wrote.

use std::{
    mem,
    ptr::{self, NonNull},
};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

/// See the module.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to no thread. Its bytes are reached through `base` alone, in unsafe
// code that says why nothing else writes to them.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`: a shared mapping tells where it is, no more.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `bytes` of zeros at a multiple of `align`; both are multiples of the system's pages. More
    /// is mapped, and what lies before and behind is given back.
    pub(super) fn new(bytes: usize, align: usize) -> Option<Self> {
        assert!(bytes > 0 && align.is_power_of_two(), "{bytes} bytes at multiples of {align}");
        let all = bytes.checked_add(align)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, where the system likes: it touches nothing that is there.
        let start = unsafe { mm::mmap_anonymous(ptr::null_mut(), all, protection, flags) }.ok()?;
        let mut mapping = Self { base: NonNull::new(start.cast())?, bytes: all };
        let before = mapping.base.addr().get().next_multiple_of(align) - mapping.base.addr().get();
        if before > 0 {
            drop(mapping.split_off_front(before));
        }
        drop(mapping.split_off(bytes));
        Some(mapping)
    }

    /// Where it begins.
    #[inline]
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How long it is.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Asks for huge pages. Where the system has none, pages are small.
    pub(super) fn advise_huge(&self) {
        let base = self.base.as_ptr().cast();
        // SAFETY: the mapping is ours, and the advice changes no byte of it.
        let _ = unsafe { mm::madvise(base, self.bytes, Advice::LinuxHugepage) };
    }

    /// Keeps the first `bytes`; returns the rest.
    pub(super) fn split_off(&mut self, bytes: usize) -> Self {
        assert!(bytes <= self.bytes, "a part of {} bytes, of {}", bytes, self.bytes);
        // SAFETY: within the mapping, or its end.
        let rest = Self { base: unsafe { self.base.add(bytes) }, bytes: self.bytes - bytes };
        self.bytes = bytes;
        rest
    }

    /// Keeps all but the first `bytes`, which it returns.
    pub(super) fn split_off_front(&mut self, bytes: usize) -> Self {
        let rest = self.split_off(bytes);
        mem::replace(self, rest)
    }

    /// Appends `next` if it lies just behind; else gives it back.
    pub(super) fn join(&mut self, next: Self) -> Result<(), Self> {
        if self.base.addr().get() + self.bytes != next.base.addr().get() {
            return Err(next);
        }
        self.bytes += next.bytes;
        mem::forget(next); // Its bytes go with `self` now.
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        // SAFETY: these bytes are this mapping's alone, and a value that refers to them keeps it.
        let gone = unsafe { mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        assert!(gone.is_ok(), "a mapping of our own can be given back: {gone:?}");
    }
}

/// The huge pages of `x86_64`, and of others with pages of 4 KiB.
pub(super) const HUGE_BYTES: usize = 2 << 20;
