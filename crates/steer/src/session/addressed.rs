//! Variables of the environment that name the process that they are for, by its number.
//!
//! ```text
//!   the caller:    LISTEN_PID=100 LISTEN_FDS=1   exec: forerun, which is 100
//!   the program:   LISTEN_PID=101 LISTEN_FDS=1   fork, [Addressed::hand_on], exec
//! ```
//! A service takes its sockets and its watchdog only if it is the process that is named. What names
//! this process is for the program.
//!
//! # Invariants
//! - [`Addressed::hand_on`] makes system calls alone, which may be made between fork and exec.
//! - The order of the environment stays, as does what names any other process.
//! # Sources
//! `sd_listen_fds(3)`, `sd_watchdog_enabled(3)`.

#![expect(unsafe_code, reason = "the environment of a process between fork and exec")]

use std::ffi::{CStr, c_char};

use rustix::process::{Pid, getpid};

/// The variables that name this process.
pub(super) struct Addressed(Vec<Variable>);

struct Variable {
    /// Which of the environment's rows it is.
    row: usize,
    /// The name, `=`, and room for any number and the zero byte.
    text: Vec<u8>,
    name_bytes: usize,
}

impl Addressed {
    /// Those of the environment that name this process.
    pub(super) fn find() -> Self {
        let me = getpid().as_raw_nonzero().to_string();
        let mut found = Vec::new();
        let rows = if environ().is_null() { 0..0 } else { 0..usize::MAX };
        for row in rows {
            // SAFETY: the rows of the environment end with null, and no other thread changes it.
            let text = unsafe { *environ().add(row) };
            if text.is_null() {
                break;
            }
            // SAFETY: each row is a text that ends with zero.
            let text = unsafe { CStr::from_ptr(text) }.to_bytes();
            let name = NAMES.into_iter().find(|name| text.starts_with(name));
            if let Some(name) = name.filter(|name| text[name.len()..] == *me.as_bytes()) {
                let mut text = name.to_vec();
                text.resize(name.len() + DIGITS_MAX + 1, 0);
                found.push(Variable { row, text, name_bytes: name.len() });
            }
        }
        Self(found)
    }

    /// They name this process, which is a copy of the one that found them.
    pub(super) fn hand_on(&mut self) {
        let me = getpid();
        for Variable { row, text, name_bytes } in &mut self.0 {
            write_number(me, &mut text[*name_bytes..]);
            // SAFETY: the row was there in the process that this one is a copy of, which has
            // changed nothing since, and the text lives until the exec.
            unsafe { *environ().add(*row) = text.as_mut_ptr().cast() };
        }
    }
}

/// The rows of the environment.
fn environ() -> *mut *mut c_char {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: a pointer that the C library has set before `main`.
    unsafe { environ }
}

/// Writes the number of `pid` and a zero byte, without an allocation.
fn write_number(pid: Pid, text: &mut [u8]) {
    let number = pid.as_raw_nonzero().get().unsigned_abs();
    let digits = number.ilog10() as usize + 1;
    assert!(digits < text.len(), "there is room for any number");
    let mut left = number;
    for at in (0..digits).rev() {
        text[at] = b'0' + u8::try_from(left % 10).expect("a digit");
        left /= 10;
    }
    text[digits] = 0;
}

const NAMES: [&[u8]; 2] = [b"LISTEN_PID=", b"WATCHDOG_PID="];
/// Of the largest number of a process.
const DIGITS_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_all_their_digits() {
        for number in [1, 9, 10, 99, 100, 4_194_304, 999_999_999, 1_000_000_000, i32::MAX] {
            let mut text = [b'x'; DIGITS_MAX + 1];
            write_number(Pid::from_raw(number).unwrap(), &mut text);
            let text = CStr::from_bytes_until_nul(&text).unwrap();
            assert_eq!(text.to_str().unwrap(), number.to_string());
        }
    }
}
