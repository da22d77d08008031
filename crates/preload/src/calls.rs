//! The C library's functions that the shim takes the place of, by what they do.
//!
//! Each passes the program's call on and tells what came of it. Not seen are calls that the C
//! library makes within itself: `fopen` and `fclose` are here since the `open`, `read` and `close`
//! of a stream are such. Nor are `syscall`, rings, and the moves of bytes from file to file
//! (`sendfile`, `copy_file_range`, `splice`): of their files only the opening is seen.
//!
//! # Invariants
//! - What closes a descriptor tells it before the call: after it the number may be another file's.
//!   All else tells after the call, when it is known to have worked.

mod close;
mod map;
mod open;
mod read;
mod stream;

/// Looks up what the functions pass calls on to. In the constructor.
pub(crate) fn find() {
    close::find();
    map::find();
    open::find();
    read::find();
    stream::find();
}
