//! Memory that is there as it is touched, in huge pages where they can be had.
//!
//! A new page costs about a microsecond here, as long as reading it twice over: for bytes that
//! come once and leave, huge pages are worth more than anything else.
//!
//! # Invariants
//! - It is zero where nobody wrote, and goes with its owner.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    slice,
};

use rustix::mm::{self, Advice};

use super::{
    NoMemory,
    arena::{HUGE_BYTES, map},
};

/// Bytes that take memory as they are touched.
pub struct Lazy {
    base: NonNull<u8>,
    bytes: usize,
    mapped: usize,
}

// SAFETY: the mapping belongs to this value, as a vector's memory does to it.
unsafe impl Send for Lazy {}
// SAFETY: as for `Send`; who shares it may only read.
unsafe impl Sync for Lazy {}

impl Lazy {
    /// `bytes` zeros.
    ///
    /// # Errors
    /// There is no room for so many addresses.
    pub fn new(bytes: usize) -> Result<Self, NoMemory> {
        let refused = NoMemory { count: 1, page_bytes: bytes };
        let mapped = bytes.max(1).checked_next_multiple_of(HUGE_BYTES).ok_or(refused)?;
        let base = map(mapped, HUGE_BYTES).ok_or(refused)?;
        // SAFETY: the mapping is ours, and the advice changes no byte of it. Where it is not
        // taken, pages are small.
        let _ = unsafe { mm::madvise(base.as_ptr().cast(), mapped, Advice::LinuxHugepage) };
        Ok(Self { base, bytes, mapped })
    }
}

impl Deref for Lazy {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` of the mapping are ours, always initialized, and shared as `self` is.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Lazy {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has them while `self` is borrowed.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for Lazy {
    fn drop(&mut self) {
        // SAFETY: made by `map` with this length; slices of it borrow `self`.
        let gone = unsafe { mm::munmap(self.base.as_ptr().cast(), self.mapped) };
        assert!(gone.is_ok(), "a mapping of our own can be given back: {gone:?}");
    }
}

impl fmt::Debug for Lazy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lazy").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_zero_and_keeps_what_is_written() {
        for bytes in [0, 1, 4096, (2 << 20) + 1] {
            let mut lazy = Lazy::new(bytes).unwrap();
            assert_eq!(lazy.len(), bytes);
            assert!(lazy.iter().all(|&byte| byte == 0));
            lazy.fill(7);
            assert!(lazy.iter().all(|&byte| byte == 7), "{bytes}");
        }
        assert!(Lazy::new(usize::MAX).is_err(), "there is no room for it");
    }
}
