//! Memory that is there as it is touched, in huge pages where they can be had.
//!
//! A new page costs about a microsecond here, as long as reading it twice over: for bytes that
//! come once and leave, huge pages are worth more than anything else.
//!
//! # Invariants
//! - It holds what its owner wrote, and elsewhere zeros or what an earlier owner left.
//! - It goes with its owner, to the next one or to the system: `frames/spare.rs`.

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
    spare::spare,
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
    /// `bytes` of memory, with whatever is in it.
    ///
    /// # Errors
    /// There is no room for so many addresses.
    pub fn new(bytes: usize) -> Result<Self, NoMemory> {
        let refused = NoMemory { count: 1, page_bytes: bytes };
        let mapped = bytes.max(1).checked_next_multiple_of(HUGE_BYTES).ok_or(refused)?;
        if let Some(base) = spare().take(mapped) {
            return Ok(Self { base, bytes, mapped });
        }
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
        // SAFETY: of `map` or of an earlier owner, with this length; slices of it borrow `self`.
        unsafe { spare().give(self.base, self.mapped) };
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
    fn it_keeps_what_is_written_and_is_nobody_elses() {
        for bytes in [0, 1, 4096, (2 << 20) + 1] {
            let (mut one, mut other) = (Lazy::new(bytes).unwrap(), Lazy::new(bytes).unwrap());
            assert_eq!((one.len(), other.len()), (bytes, bytes));
            one.fill(7);
            other.fill(8);
            assert!(one.iter().all(|&byte| byte == 7), "{bytes}");
            drop(other);
            let mut next = Lazy::new(bytes).unwrap();
            next.fill(9);
            assert!(one.iter().all(|&byte| byte == 7), "{bytes}");
        }
        assert!(Lazy::new(usize::MAX).is_err(), "there is no room for it");
    }
}
