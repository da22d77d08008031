//! `copy_file_range`, `sendfile` and `splice`: the kernel moves bytes of a file elsewhere, and the
//! program never has them.
//!
//! One call may move a whole file, and the position of its descriptor moves when it returns. So a
//! long one is announced before the call, with where the bytes go: how far it is shows there.
//!
//! # Invariants
//! - The program's offsets are looked at before the call only by the kernel, which answers where
//!   a program has passed a wrong address, and after it only where bytes were moved: the kernel has
//!   written to them then.
//!
//! # Sources
//! `copy_file_range(2)`, sendfile(2), splice(2).

use libc::{
    SYS_copy_file_range, SYS_sendfile, SYS_splice, c_int, c_uint, off_t, size_t, ssize_t, syscall,
};

use crate::{
    next::calls,
    recorder::{self, Place},
    sys::{self, size},
};

calls! {
    fn [copy_file_range](
        from: c_int, at: Offset, to: c_int, to_at: Offset, count: size_t, flags: c_uint
    ) -> ssize_t {
        before: recorder::moving(place(from, at), place(to, to_at), count),
        raw: size(syscall(SYS_copy_file_range, from, at, to, to_at, count, flags)),
        after(got): { recorder::moved(from, count); read(from, at, got) },
    }
    fn [sendfile sendfile64](to: c_int, from: c_int, at: Offset, count: size_t) -> ssize_t {
        before: recorder::moving(place(from, at), place(to, NOWHERE), count),
        raw: size(syscall(SYS_sendfile, to, from, at, count)),
        after(got): { recorder::moved(from, count); read(from, at, got) },
    }
    // No more than a pipe holds.
    fn [splice](
        from: c_int, at: Offset, to: c_int, to_at: Offset, count: size_t, flags: c_uint
    ) -> ssize_t {
        raw: size(syscall(SYS_splice, from, at, to, to_at, count, flags)),
        after(got): read(from, at, got),
    }
}

/// Where a program keeps an offset: null for the position of the descriptor.
type Offset = *mut off_t;

const NOWHERE: Offset = core::ptr::null_mut();

/// What is moved, or where to: looked up by system calls alone.
fn place(fd: c_int, at: Offset) -> Place<impl FnOnce() -> Option<u64>> {
    Place {
        fd,
        offset: move || if at.is_null() { sys::position(fd) } else { sys::word_at(at.cast()) },
    }
}

/// Records that `got` bytes of `fd` were moved from the offset at `at`, which is behind them now.
fn read(fd: c_int, at: Offset, got: ssize_t) {
    if got <= 0 {
        return;
    }
    if at.is_null() {
        return recorder::read(fd, got);
    }
    // SAFETY: the kernel has just written there, so it is the program's memory; it may have any
    // alignment.
    let end = unsafe { at.read_unaligned() };
    if let Some(start) = end.checked_sub(got as off_t).filter(|start| *start >= 0) {
        recorder::read_at(fd, start, got);
    }
}
