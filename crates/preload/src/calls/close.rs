//! `close` and its kin, and `dup`: what makes a number another file's.
//!
//! # Invariants
//! - The ring stays mapped when its descriptor is closed, so a program that closes all it has is
//!   recorded until it calls `exec`.
//!
//! # Sources
//! close(2), `close_range(2)`, dup(2).

use libc::{
    F_GETFD, SYS_close, SYS_close_range, SYS_dup, SYS_dup3, SYS_fcntl, c_int, c_uint, syscall,
};

use crate::{next::calls, recorder, sys::int};

calls! {
    fn [close](fd: c_int) -> c_int {
        before: recorder::closing(fd),
        raw: int(syscall(SYS_close, fd)),
    }
    fn [close_range](first: c_uint, last: c_uint, flags: c_int) -> c_int {
        before: if flags & CLOSE_RANGE_CLOEXEC == 0 { recorder::closing_all(first, last) },
        raw: int(syscall(SYS_close_range, first, last, flags)),
    }
    fn [closefrom](first: c_int) -> () {
        before: recorder::closing_all(from(first), c_uint::MAX),
        raw: { syscall(SYS_close_range, from(first), c_uint::MAX, 0); },
    }
    fn [dup](fd: c_int) -> c_int {
        before: recorder::flush(fd),
        raw: int(syscall(SYS_dup, fd)),
        after(copy): recorder::copied(copy),
    }
    fn [dup2](fd: c_int, copy: c_int) -> c_int {
        before: replacing(fd, copy),
        // The kernel's newer call refuses what this one allows, a copy to itself.
        raw: match syscall(SYS_dup3, fd, copy, 0) {
            -1 if fd == copy && syscall(SYS_fcntl, fd, F_GETFD) >= 0 => fd,
            answer => int(answer),
        },
    }
    fn [dup3](fd: c_int, copy: c_int, flags: c_int) -> c_int {
        before: replacing(fd, copy),
        raw: int(syscall(SYS_dup3, fd, copy, flags)),
    }
}

/// As `linux/close_range.h` has it.
const CLOSE_RANGE_CLOEXEC: c_int = 1 << 2;

/// The C library takes a negative number for 0.
fn from(first: c_int) -> c_uint {
    c_uint::try_from(first).unwrap_or(0)
}

fn replacing(fd: c_int, copy: c_int) {
    if fd != copy {
        recorder::flush(fd);
        recorder::closing(copy);
    }
}
