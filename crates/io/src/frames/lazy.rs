//! Memory that is there as it is touched, in huge pages where they can be had.
//!
//! A new page costs about a microsecond here, as long as reading it twice over: for bytes that
//! come once and leave, huge pages are worth more than anything else.
//!
//! # Invariants
//! - It holds what its owner wrote, and elsewhere zeros or what an earlier owner left.
//! - When it is dropped, the memory goes to the next owner or to the system: `frames/spare.rs`.

use std::{
    ops::{Deref, DerefMut},
    ptr::NonNull,
    slice,
};

use super::{
    NoMemory,
    mapping::{HUGE_BYTES, Mapping},
    spare::spare,
};

/// Bytes that take memory as they are touched.
#[derive(Debug)]
pub struct LazyMemory {
    /// None once it went to the next owner.
    mapping: Option<Mapping>,
    bytes: usize,
}

impl LazyMemory {
    /// `bytes` of memory, with whatever is in it.
    ///
    /// # Errors
    /// There is no room for so many addresses.
    pub fn new(bytes: usize) -> Result<Self, NoMemory> {
        let refused = NoMemory { count: 1, page_bytes: bytes };
        let mapped = bytes.max(1).checked_next_multiple_of(HUGE_BYTES).ok_or(refused)?;
        let spare = spare().take(mapped);
        let mapping = spare
            .map_or_else(|| Mapping::new(mapped, HUGE_BYTES).inspect(Mapping::advise_huge), Some);
        let mapping = mapping.ok_or(refused)?;
        assert!(bytes <= mapping.bytes(), "a mapping holds what was asked for");
        Ok(Self { mapping: Some(mapping), bytes })
    }

    fn base(&self) -> NonNull<u8> {
        self.mapping.as_ref().expect("there until it is dropped").base()
    }
}

impl Deref for LazyMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the first `bytes` of the mapping are initialised (`mapping.rs`), this value's
        // alone, and shared as `self` is.
        unsafe { slice::from_raw_parts(self.base().as_ptr(), self.bytes) }
    }
}

impl DerefMut for LazyMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nothing else refers to them while `self` is borrowed.
        unsafe { slice::from_raw_parts_mut(self.base().as_ptr(), self.bytes) }
    }
}

impl Drop for LazyMemory {
    fn drop(&mut self) {
        self.mapping.take().into_iter().for_each(|mapping| spare().give(mapping));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_what_is_written_and_shares_no_byte() {
        for bytes in [0, 1, 4096, (2 << 20) + 1] {
            let (mut one, mut other) =
                (LazyMemory::new(bytes).unwrap(), LazyMemory::new(bytes).unwrap());
            assert_eq!((one.len(), other.len()), (bytes, bytes));
            one.fill(7);
            other.fill(8);
            assert!(one.iter().all(|&byte| byte == 7), "{bytes}");
            drop(other);
            let mut next = LazyMemory::new(bytes).unwrap();
            next.fill(9);
            assert!(one.iter().all(|&byte| byte == 7), "{bytes}");
        }
        assert!(LazyMemory::new(usize::MAX).is_err(), "there is no room for it");
    }
}
