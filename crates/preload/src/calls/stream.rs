//! `fopen` and its kin: of a stream the opening and the end are recorded, and no read.
//!
//! The C library reads streams by calls within itself. That a file was opened for reading is still
//! worth a record: the observer of open files can follow its position from outside.
//!
//! # Invariants
//! - None of these may be called in a signal handler, so the next one may be found here when the
//!   constructor did not run yet; there is no kernel call to make instead.
//!
//! # Sources
//! fopen(3), fclose(3), fileno(3).

use core::ptr;

use libc::{FILE, c_char, c_int};

use crate::{
    next::calls,
    recorder::{self, is_read_stream, opened},
    sys::keeping_errno,
};

calls! {
    fn [fopen fopen64](path: *const c_char, mode: *const c_char) -> Stream {
        before: find_early(),
        raw: ptr::null_mut(),
        after(stream): tell(stream, mode),
    }
    fn [freopen freopen64](path: *const c_char, mode: *const c_char, old: *mut FILE) -> Stream {
        before: { find_early(); recorder::closing(number(old)) },
        raw: ptr::null_mut(),
        after(stream): tell(stream, mode),
    }
    fn [fclose](stream: *mut FILE) -> c_int {
        before: { find_early(); recorder::closing(number(stream)) },
        raw: libc::EOF,
    }
}

type Stream = *mut FILE;

fn find_early() {
    if next::fclose.get().is_none() {
        find();
    }
}

/// The descriptor of `stream`, -1 for none.
fn number(stream: *mut FILE) -> c_int {
    if stream.is_null() {
        return -1;
    }
    // SAFETY: a stream of the program's, which it has just been given or is about to hand over.
    keeping_errno(|| unsafe { libc::fileno(stream) })
}

/// Tells that `stream` was opened.
fn tell(stream: *mut FILE, mode: *const c_char) {
    if !stream.is_null() {
        // SAFETY: the C library has made a stream by this mode, so it is a string.
        opened(number(stream), unsafe { is_read_stream(mode) });
    }
}
