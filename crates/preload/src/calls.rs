//! The C library's functions that the shim takes the place of, by what they do.
//!
//! Each passes the program's call on and records its result. Calls that the C library makes within
//! itself are not recorded: `fopen` and `fclose` are here since the `open`, `read` and `close` of a
//! stream are such. Nor are `syscall` and rings.
//!
//! # Invariants
//! - What closes a descriptor is recorded before the call: after it the number may be another
//!   file's. All else is recorded after the call, when it is known to have worked; a long move of
//!   bytes is announced before.

mod close;
mod copy;
mod map;
mod open;
mod read;
mod stream;

/// Finds the functions that calls are passed on to. For the constructor.
pub(crate) fn find() {
    close::find();
    copy::find();
    map::find();
    open::find();
    read::find();
    stream::find();
}
