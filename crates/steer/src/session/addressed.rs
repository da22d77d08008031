//! Variables of the environment that say by number for which process they are.
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
//! `sd_listen_fds(3)`, `sd_watchdog_enabled(3)`, `systemd.exec(5)`; systemd
//! `src/libsystemd/sd-daemon/sd-daemon.c` (`LISTEN_PIDFDID`: the inode of a descriptor of the
//! process).

#![expect(unsafe_code, reason = "the environment of a process between fork and exec")]

use std::ffi::{CStr, c_char};

use rustix::fs::fstat;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// The variables that name this process.
pub(super) struct Addressed(Vec<Variable>);

struct Variable {
    /// Its row of the environment.
    row: *mut *mut c_char,
    /// The name, `=`, and room for any number and the zero byte.
    text: Vec<u8>,
    name_bytes: usize,
    number: Number,
}

/// The number that a variable has of its process.
#[derive(Clone, Copy)]
enum Number {
    Process,
    /// The inode of its descriptors, which no other process ever has.
    Descriptor,
}

impl Number {
    /// That of this process, if the system has one.
    fn own(self) -> Option<u64> {
        match self {
            Self::Process => Some(getpid().as_raw_nonzero().get().unsigned_abs().into()),
            Self::Descriptor => {
                let own = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
                Some(fstat(&own).ok()?.st_ino)
            }
        }
    }
}

impl Addressed {
    /// Those of the environment that name this process.
    pub(super) fn find() -> Self {
        let (mut found, mut row) = (Vec::new(), environ());
        // SAFETY: the rows of the environment end with null, each before is a text that ends with
        // zero, and no other thread changes them.
        while let Some(text) = unsafe { text_of(row) } {
            let named = NAMES.iter().find(|(name, _)| text.starts_with(name));
            if let Some(&(name, number)) = named
                && number.own().is_some_and(|own| own.to_string().as_bytes() == &text[name.len()..])
            {
                let mut text = name.to_vec();
                text.resize(name.len() + DIGITS_MAX + 1, 0);
                found.push(Variable { row, text, name_bytes: name.len(), number });
            }
            // SAFETY: there is a row behind each that is not null.
            row = unsafe { row.add(1) };
        }
        Self(found)
    }

    /// They name this process, which is a copy of the one that found them.
    pub(super) fn hand_on(&mut self) {
        for Variable { row, text, name_bytes, number } in &mut self.0 {
            assert!(*name_bytes < text.len(), "there is room behind the name");
            let Some(own) = number.own() else { continue };
            write_number(own, &mut text[*name_bytes..]);
            // SAFETY: the row was there in the process that this one is a copy of, which has
            // changed nothing since, and the text lives until the exec.
            unsafe { **row = text.as_mut_ptr().cast() };
        }
    }
}

/// The first row of the environment.
fn environ() -> *mut *mut c_char {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: a pointer that the C library has set before `main`.
    unsafe { environ }
}

/// The text of a row; `None` behind the last.
///
/// # Safety
/// `row` is null, or points at null or at a text that ends with zero and stays as it is.
unsafe fn text_of<'a>(row: *mut *mut c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller's.
    let text = unsafe { row.as_ref() }.filter(|text| !text.is_null())?;
    // SAFETY: the caller's.
    Some(unsafe { CStr::from_ptr(*text) }.to_bytes())
}

/// Writes `number` and a zero byte, without an allocation.
fn write_number(number: u64, text: &mut [u8]) {
    let digits = number.checked_ilog10().map_or(1, |log| log as usize + 1);
    assert!(digits < text.len(), "there is room for any number");
    let mut left = number;
    for at in (0..digits).rev() {
        text[at] = b'0' + u8::try_from(left % 10).expect("a digit");
        left /= 10;
    }
    text[digits] = 0;
}

const NAMES: [(&[u8], Number); 4] = [
    (b"LISTEN_PID=", Number::Process),
    (b"LISTEN_PIDFDID=", Number::Descriptor),
    (b"WATCHDOG_PID=", Number::Process),
    (b"SYSTEMD_EXEC_PID=", Number::Process),
];
/// Of the largest number.
const DIGITS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_all_their_digits() {
        for number in [0, 1, 9, 10, 99, 100, 4_194_304, 999_999_999, 1_000_000_000, u64::MAX] {
            let mut text = [b'x'; DIGITS_MAX + 1];
            write_number(number, &mut text);
            let text = CStr::from_bytes_until_nul(&text).unwrap();
            assert_eq!(text.to_str().unwrap(), number.to_string());
        }
    }
}
