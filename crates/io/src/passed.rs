//! Descriptors that a service manager has opened for this process.
//!
//! ```text
//!   LISTEN_PID=<this process>   LISTEN_FDS=2   -->   3, 4
//! ```
//!
//! # Invariants
//! - The descriptors that come back are copies, closed on exec; those that were passed stay open.
//! - Variables for another process, or of another form, pass nothing.
//! # Sources
//! `sd_listen_fds(3)`.

#![expect(unsafe_code, reason = "a number from outside becomes a descriptor")]

use std::{
    env, io,
    os::fd::{BorrowedFd, OwnedFd},
    process,
};

/// What was passed to this process.
///
/// # Errors
/// A descriptor that the variables name is not open.
pub fn descriptors() -> io::Result<Vec<OwnedFd>> {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let [pid, count] = ["LISTEN_PID", "LISTEN_FDS"].map(number);
    if pid != Some(process::id()) {
        return Ok(Vec::new());
    }
    let count = count.unwrap_or(0).min(DESCRIPTORS_MAX);
    (FIRST..).take(count as usize).map(copied).collect()
}

/// A copy of the descriptor `number`.
fn copied(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is used for this call alone, which fails where it is not open, and no
    // part of this process closes what was passed to it.
    unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()
}

const FIRST: i32 = 3;
/// More sockets than a server has.
const DESCRIPTORS_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _, os::fd::AsRawFd as _};

    use super::*;

    #[test]
    fn a_copy_is_of_the_same_file_and_a_number_that_is_not_open_is_an_error() {
        let (reader, writer) = io::pipe().unwrap();
        let mut copy = File::from(copied(writer.as_raw_fd()).unwrap());
        drop(writer);
        copy.write_all(b"x").unwrap();
        drop(copy);
        assert_eq!(io::read_to_string(reader).unwrap(), "x");
        assert_eq!(copied(i32::MAX).unwrap_err().raw_os_error(), Some(9));
    }

    #[test]
    fn nothing_is_passed_to_the_tests() {
        assert!(descriptors().unwrap().is_empty());
    }
}
