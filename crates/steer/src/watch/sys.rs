//! The system calls of fanotify, and of handles by which it names directories.
//!
//! # Invariants
//! - No pointer outlives its call.
//! # Sources
//! Linux `include/uapi/linux/fanotify.h`; `name_to_handle_at(2)`.

#![expect(unsafe_code, reason = "system calls that no crate wraps")]

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

/// The bytes of a file handle, at most.
const HANDLE_BYTES: usize = libc::MAX_HANDLE_SZ as usize;
/// A handle is to name a directory, and not to be opened: from 6.5 on.
const AT_HANDLE_FID: i32 = 0x200;

/// A queue whose events name a directory and a file in it.
pub(super) fn init() -> Result<OwnedFd, Errno> {
    let flags =
        libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_REPORT_DFID_NAME;
    // SAFETY: it takes two numbers.
    let number = check(unsafe { libc::fanotify_init(flags, 0) })?;
    // SAFETY: the call has returned a descriptor that is this caller's alone.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Adds or removes, by `flags`, a mark on reads of files in `directory`.
pub(super) fn mark(queue: &OwnedFd, flags: u32, directory: &OwnedFd) -> Result<(), Errno> {
    let mask = libc::FAN_ACCESS | libc::FAN_EVENT_ON_CHILD;
    let flags = flags | libc::FAN_MARK_ONLYDIR;
    let (queue, directory) = (queue.as_raw_fd(), directory.as_raw_fd());
    // SAFETY: the path is a text that lives as long as the program, and ends with a zero.
    let done = unsafe { libc::fanotify_mark(queue, flags, mask, directory, c".".as_ptr()) };
    check(done).map(|_| ())
}

/// Removes all marks.
pub(super) fn flush(queue: &OwnedFd) {
    let flags = libc::FAN_MARK_FLUSH;
    // SAFETY: of a flush neither mask nor path is looked at.
    let done = unsafe {
        libc::fanotify_mark(queue.as_raw_fd(), flags, 0, libc::AT_FDCWD, std::ptr::null())
    };
    debug_assert_eq!(done, 0, "a queue can be flushed");
}

/// The handle by which events name `directory`, with its type before it.
pub(super) fn handle(directory: &OwnedFd) -> Result<Vec<u8>, Errno> {
    /// The kernel's `struct file_handle`.
    #[repr(C)]
    struct FileHandle {
        bytes: u32,
        kind: i32,
        handle: [u8; HANDLE_BYTES],
    }
    let mut last = Errno::OPNOTSUPP;
    for flags in [libc::AT_EMPTY_PATH | AT_HANDLE_FID, libc::AT_EMPTY_PATH] {
        let room = u32::try_from(HANDLE_BYTES).expect("a handle is small");
        let mut found = FileHandle { bytes: room, kind: 0, handle: [0; HANDLE_BYTES] };
        let mut mount = 0_i32;
        // SAFETY: the kernel writes one handle of at most `bytes` bytes, and a number; both live
        // until the call returns, and the path is a text that ends with a zero.
        let done = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                directory.as_raw_fd(),
                c"".as_ptr(),
                &raw mut found,
                &raw mut mount,
                flags,
            )
        };
        if done == 0 {
            let bytes = found.handle.get(..found.bytes as usize).ok_or(Errno::OVERFLOW)?;
            return Ok([&found.kind.to_ne_bytes()[..], bytes].concat());
        }
        last = errno();
    }
    Err(last)
}

fn check(done: i32) -> Result<i32, Errno> {
    if done < 0 { Err(errno()) } else { Ok(done) }
}

fn errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
