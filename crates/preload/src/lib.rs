//! The shim: loaded into a program by `LD_PRELOAD`, it records for forerun which files the program
//! opens, reads and maps, and changes nothing else.
//!
//! ```text
//!   program --open, read, mmap--> calls --> next: the C library
//!                                   |
//!                                 recorder   which record, if any?  (table: what is a descriptor?)
//!                                   |
//!                                 ring       shared memory; forerun reads it
//! ```
//!
//! `forerun run` makes the ring, and leaves its descriptor to the program together with the
//! environment variable that says its number. Programs that are linked statically load no shim, and
//! for set-uid programs the loader ignores it.
//!
//! # Invariants
//! - The program's calls go on as they are: same answer, same `errno`, no thread, no lock, no
//!   allocation, no wait, nothing that a signal handler or a child of `vfork` may not do.
//! - Where anything is missing, be it the ring or the constructor's run, calls pass unrecorded.
//! - Nothing panics: what would unwind into C is not written. The standard library is linked for
//!   what the compiler needs of it, and its parts that allocate are not used.
//! - The shim is empty on systems other than Linux with glibc on x86-64 and aarch64, the ones for
//!   which `next` says why passing on C's `...` is sound.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#![cfg_attr(test, expect(dead_code, reason = "a test leaves its own reads alone"))]

use libc::c_int;

mod calls;
mod next;
mod recorder;
pub mod ring;
mod sys;
mod table;

/// The shim's constructor: the loader runs it after those of the libraries that it needs.
#[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = construct;

extern "C" fn construct() {
    sys::keeping_errno(|| {
        calls::find();
        if let Some(fd) = ring_fd() {
            recorder::start(fd);
        }
    });
}

/// The shim's destructor: `exit`, which closes all that is open, runs it.
#[cfg_attr(not(test), used, unsafe(link_section = ".fini_array"))]
static DESTRUCTOR: extern "C" fn() = destruct;

extern "C" fn destruct() {
    recorder::closing_all(0, u32::MAX);
}

/// The descriptor that the environment names.
fn ring_fd() -> Option<c_int> {
    // SAFETY: the name ends with a zero. The environment does not change while the value is
    // read: constructors run before the program, on its one thread.
    let value = unsafe {
        let value = libc::getenv(ring::VARIABLE.as_ptr());
        if value.is_null() {
            return None;
        }
        core::ffi::CStr::from_ptr(value)
    };
    value.to_str().ok()?.parse().ok()
}
