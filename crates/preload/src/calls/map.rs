//! `mmap`, and `prctl`.
//!
//! Allocators call `mmap` too, for memory without a file: that passes straight through. A page
//! fault leaves no trace within the program, so a mapping is recorded as a whole.
//!
//! `prctl` is here because a program that limits its own system calls (seccomp) asks for
//! `PR_SET_NO_NEW_PRIVS` before, unless it is privileged. The shim's own calls might then end the
//! program, so from there on the shim makes none and records nothing.
//!
//! # Sources
//! mmap(2), prctl(2), seccomp(2).

use libc::{
    MAP_ANONYMOUS, MAP_FAILED, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SYS_mmap, SYS_prctl, c_int,
    c_ulong, c_void, off_t, size_t, syscall,
};

use crate::{
    next::calls,
    recorder,
    sys::{address, int},
};

calls! {
    fn [mmap mmap64](
        at: *mut c_void, length: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> Address {
        raw: address(syscall(SYS_mmap, at, length, access, flags, fd, offset)),
        after(made): if made != MAP_FAILED && flags & MAP_ANONYMOUS == 0 {
            recorder::mapped(fd, offset, length);
        },
    }
    fn [prctl](option: c_int; ... a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
        before: if matches!(option, PR_SET_NO_NEW_PRIVS | PR_SET_SECCOMP) { recorder::stop() },
        raw: int(syscall(SYS_prctl, option, a, b, c, d)),
    }
}

type Address = *mut c_void;
