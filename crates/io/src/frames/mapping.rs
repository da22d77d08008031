//! A mapping: memory of whole huge pages with one owner, which unmaps it when it is dropped; and
//! tables in huge pages.
//!
//! # Invariants
//! - A mapping covers what no other mapping of the process covers, and goes with its value.
//! - It is initialised: zeros, or what an earlier owner wrote.
//! - Its pointer is that of the call of the system that mapped it: parts of one call may be joined
//!   again, neighbours from two calls never.

use std::{
    collections::TryReserveError,
    iter, mem,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

/// See the module.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// The number of the call that mapped it.
    call: u64,
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
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let mut mapping = Self { base: NonNull::new(start.cast())?, bytes: all, call };
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
        let base = unsafe { self.base.add(bytes) };
        let rest = Self { base, bytes: self.bytes - bytes, call: self.call };
        self.bytes = bytes;
        rest
    }

    /// Keeps all but the first `bytes`, which it returns.
    pub(super) fn split_off_front(&mut self, bytes: usize) -> Self {
        let rest = self.split_off(bytes);
        mem::replace(self, rest)
    }

    /// Appends `next` if it lies just behind and was mapped with it; else gives it back.
    pub(super) fn join(&mut self, next: Self) -> Result<(), Self> {
        let end = self.base.addr().get() + self.bytes;
        if (end, self.call) != (next.base.addr().get(), next.call) {
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
        if gone.is_err() {
            // The system counts mappings, and a hole would make one more: the addresses stay, their
            // memory goes. Where that fails too the memory stays until the process ends.
            // SAFETY: as above; no reader is left that could find these bytes zeroed.
            let _ = unsafe {
                mm::madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxDontNeed)
            };
        }
    }
}

/// `count` values that `make` makes in order: in huge pages, but for the first and the last bytes,
/// where they fill any and the system has them. A hit goes to one value at random in each table on
/// its way; of small pages the processor would know the address of few.
///
/// # Errors
/// The memory cannot be had.
pub(crate) fn in_huge_pages<T>(
    count: usize,
    make: impl FnMut() -> T,
) -> Result<Box<[T]>, TryReserveError> {
    let mut values = Vec::<T>::new();
    values.try_reserve_exact(count)?;
    let start = values.as_ptr().addr();
    let end = (start + count * size_of::<T>()) / HUGE_BYTES * HUGE_BYTES;
    let from = start.next_multiple_of(HUGE_BYTES);
    if from < end {
        let at = values.as_mut_ptr().cast::<u8>().wrapping_add(from - start);
        // SAFETY: within the room of the values, and the advice changes no byte of it.
        let _ = unsafe { mm::madvise(at.cast(), end - from, Advice::LinuxHugepage) };
    }
    values.extend(iter::repeat_with(make).take(count));
    Ok(values.into_boxed_slice())
}

/// Calls that mapped memory so far.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// The huge pages of `x86_64`, and of others with pages of 4 KiB.
pub(super) const HUGE_BYTES: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn neighbours_of_two_calls_are_not_joined() {
        let mut first = Mapping::new(2 * HUGE_BYTES, HUGE_BYTES).unwrap();
        let second = first.split_off(HUGE_BYTES);
        // As the next call would leave it, where the system maps it just there.
        let other = Mapping { call: second.call + 1, ..second };
        mem::forget(second);
        let mut other = first.join(other).unwrap_err();
        other.call = first.call;
        assert!(first.join(other).is_ok(), "parts of one call are");
        assert_eq!(first.bytes(), 2 * HUGE_BYTES);
    }

    #[test]
    fn a_table_has_its_values_in_order_wherever_they_lie() {
        for count in [0, 1, 512, HUGE_BYTES / 8, HUGE_BYTES / 2 + 1] {
            let mut next = 0_u64;
            let make = || {
                next += 1;
                next
            };
            let table = in_huge_pages(count, make).unwrap();
            assert_eq!(table.len(), count);
            assert!((1..).zip(&table).all(|(due, &value)| due == value), "{count}");
        }
        assert!(in_huge_pages(usize::MAX / 8, || 0_u64).is_err(), "more than there is");
    }

    /// The test runs itself: the process that has no mapping left to make does nothing else.
    #[test]
    fn memory_goes_back_where_no_more_mappings_may_be_made() {
        const TEST: &str =
            "frames::mapping::tests::memory_goes_back_where_no_more_mappings_may_be_made";
        const FULL: &str = "FORERUN_TEST_FULL";
        if std::env::var_os(FULL).is_some() {
            return fill();
        }
        let mut command = Command::new("/proc/self/exe");
        let ended = command.args(["--exact", TEST, "--nocapture"]).env(FULL, "1").output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && said.contains("1 passed"), "{ended:?}");
    }

    fn fill() {
        let mut last = Mapping::new(3 * HUGE_BYTES, HUGE_BYTES).unwrap();
        let first = last.split_off_front(HUGE_BYTES);
        let middle = last.split_off_front(HUGE_BYTES);
        for page in (0..HUGE_BYTES).step_by(4096) {
            // SAFETY: within the mapping, which is this test's alone.
            unsafe { middle.base().add(page).write(7) };
        }
        let resident = || -> usize {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse().unwrap()
        };
        let before = resident();
        let kinds = [ProtFlags::READ, ProtFlags::READ | ProtFlags::WRITE];
        // Two of a kind would be one. Some systems allow any number.
        let is_full = (0..MAPPINGS_MAX).any(|nth| {
            let flags = MapFlags::PRIVATE;
            // SAFETY: a new mapping, where the system likes, that nothing refers to.
            unsafe { mm::mmap_anonymous(ptr::null_mut(), 4096, kinds[nth % 2], flags) }.is_err()
        });
        drop(middle);
        assert!(!is_full || resident() + HUGE_BYTES / 4096 / 2 < before, "the memory is kept");
        drop((first, last));
    }

    const MAPPINGS_MAX: usize = 1 << 18;
}
