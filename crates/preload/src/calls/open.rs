//! `open` and its kin.
//!
//! The forms whose names end in `_2` are what programs call that were compiled with
//! `_FORTIFY_SOURCE` and pass no mode; the C library ends a program that would have needed one.
//!
//! # Invariants
//! - A descriptor that can only be written is marked as one that is not recorded, so its writer
//!   pays nothing more.
//!
//! # Sources
//! open(2), creat(2); glibc `io/fcntl2.h` for the fortified forms.

use libc::{AT_FDCWD, SYS_openat, c_char, c_int, mode_t, syscall};

use crate::{
    next::calls,
    recorder::{is_read, opened},
    sys::{check, int},
};

calls! {
    fn [open open64](path: *const c_char, flags: c_int; ... mode: mode_t) -> c_int {
        raw: int(syscall(SYS_openat, AT_FDCWD, path, flags, mode)),
        after(fd): opened(fd, is_read(flags)),
    }
    fn [openat openat64](dir: c_int, path: *const c_char, flags: c_int; ... mode: mode_t) -> c_int {
        raw: int(syscall(SYS_openat, dir, path, flags, mode)),
        after(fd): opened(fd, is_read(flags)),
    }
    fn [creat creat64](path: *const c_char, mode: mode_t) -> c_int {
        raw: int(syscall(SYS_openat, AT_FDCWD, path, CREAT, mode)),
        after(fd): opened(fd, false),
    }
    fn [__open_2 __open64_2](path: *const c_char, flags: c_int) -> c_int {
        raw: { check(!needs_mode(flags)); int(syscall(SYS_openat, AT_FDCWD, path, flags)) },
        after(fd): opened(fd, is_read(flags)),
    }
    fn [__openat_2 __openat64_2](dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        raw: { check(!needs_mode(flags)); int(syscall(SYS_openat, dir, path, flags)) },
        after(fd): opened(fd, is_read(flags)),
    }
}

const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

fn needs_mode(flags: c_int) -> bool {
    flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE
}
