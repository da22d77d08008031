//! `read`, `pread` and their kin, and `lseek`.
//!
//! The forms whose names end in `_chk` are what programs call that were compiled with
//! `_FORTIFY_SOURCE`: they carry the size of the buffer, which must not be exceeded.
//!
//! # Invariants
//! - `lseek` records what was read so far before the position moves. Asking for it moves nothing.
//!
//! # Sources
//! read(2), readv(2), lseek(2); glibc `posix/bits/unistd.h` for the fortified forms.

use libc::{
    SYS_lseek, SYS_pread64, SYS_preadv, SYS_preadv2, SYS_read, SYS_readv, c_int, c_void, iovec,
    off_t, size_t, ssize_t, syscall,
};

use crate::{
    next::calls,
    recorder,
    sys::{check, size},
};

calls! {
    fn [read](fd: c_int, to: *mut c_void, count: size_t) -> ssize_t {
        raw: size(syscall(SYS_read, fd, to, count)),
        after(got): recorder::read(fd, got),
    }
    fn [__read_chk](fd: c_int, to: *mut c_void, count: size_t, room: size_t) -> ssize_t {
        raw: { check(count <= room); size(syscall(SYS_read, fd, to, count)) },
        after(got): recorder::read(fd, got),
    }
    fn [pread pread64](fd: c_int, to: *mut c_void, count: size_t, offset: off_t) -> ssize_t {
        raw: size(syscall(SYS_pread64, fd, to, count, offset)),
        after(got): recorder::read_at(fd, offset, got),
    }
    fn [__pread_chk __pread64_chk](
        fd: c_int, to: *mut c_void, count: size_t, offset: off_t, room: size_t
    ) -> ssize_t {
        raw: { check(count <= room); size(syscall(SYS_pread64, fd, to, count, offset)) },
        after(got): recorder::read_at(fd, offset, got),
    }
    fn [readv](fd: c_int, to: *const iovec, count: c_int) -> ssize_t {
        raw: size(syscall(SYS_readv, fd, to, count)),
        after(got): recorder::read(fd, got),
    }
    fn [preadv preadv64](fd: c_int, to: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        raw: size(syscall(SYS_preadv, fd, to, count, offset, HIGH)),
        after(got): recorder::read_at(fd, offset, got),
    }
    // An offset of -1 means where the descriptor stands.
    fn [preadv2 preadv64v2](
        fd: c_int, to: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t {
        raw: size(syscall(SYS_preadv2, fd, to, count, offset, HIGH, flags)),
        after(got): recorder::read_at(fd, offset, got),
    }
    fn [lseek lseek64](fd: c_int, offset: off_t, whence: c_int) -> off_t {
        before: if moves(offset, whence) { recorder::flush(fd) },
        raw: size(syscall(SYS_lseek, fd, offset, whence)),
    }
}

/// The kernel's second word for an offset, of which the first holds all on 64-bit machines.
const HIGH: off_t = 0;

fn moves(offset: off_t, whence: c_int) -> bool {
    offset != 0 || whence != libc::SEEK_CUR
}
