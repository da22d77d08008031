//! System calls that the shim makes for itself, past the C library and all other shims.
//!
//! The C library's `read` and the like are ours here, its `fstat` may be that of another shim, and
//! of its `getpid` old versions remember the answer across `clone`. The kernel's calls are safe in
//! signal handlers and before any constructor ran.
//!
//! # Invariants
//! - Nothing here calls a function that the shim takes the place of.
//! - What the shim does on its own account leaves `errno` as it was ([`keeping_errno`]).

use core::{ffi::c_long, mem::MaybeUninit, ptr};

use libc::{c_int, c_void, syscall};

/// A regular file that has bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) bytes: u64,
}

/// Runs `act`, after which `errno` is what it was before.
pub(crate) fn keeping_errno<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: the C library gives a valid pointer to this thread's `errno`; a signal handler uses
    // the same one and, as every handler must, leaves it as it was.
    let (at, before) = unsafe {
        let at = libc::__errno_location();
        (at, *at)
    };
    let done = act();
    // SAFETY: as above.
    unsafe { *at = before };
    done
}

/// The file behind `fd`. None for what is no regular file, and for files without bytes, such as
/// those of `/proc`: there is nothing to read ahead. A server is not asked for it where the system
/// knows a call that does not.
pub(crate) fn file(fd: c_int) -> Option<File> {
    let wanted = libc::STATX_TYPE | libc::STATX_SIZE | libc::STATX_INO;
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let mut stat = MaybeUninit::<libc::statx>::uninit();
    // SAFETY: the path ends with a zero, and the kernel fills in the `statx`, which is read only
    // where the call succeeded.
    let stat = unsafe {
        if syscall(libc::SYS_statx, fd, c"".as_ptr(), flags, wanted, stat.as_mut_ptr()) != 0 {
            return file_of_old(fd);
        }
        stat.assume_init()
    };
    let is_regular = u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFREG;
    let dev = libc::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    let (ino, bytes) = (stat.stx_ino, stat.stx_size);
    (is_regular && bytes > 0).then_some(File { dev, ino, bytes })
}

/// The same, where the system does not know or not allow that call.
fn file_of_old(fd: c_int) -> Option<File> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills in the `stat`, whose layout is the kernel's on the machines that
    // this crate builds for; it is read only where the call succeeded.
    let stat = unsafe {
        if syscall(libc::SYS_fstat, fd, stat.as_mut_ptr()) != 0 {
            return None;
        }
        stat.assume_init()
    };
    let bytes = u64::try_from(stat.st_size).unwrap_or(0);
    let is_regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    (is_regular && bytes > 0).then_some(File { dev: stat.st_dev, ino: stat.st_ino, bytes })
}

/// Where the next `read` of `fd` begins. None where it has no position: it is no file any more.
pub(crate) fn position(fd: c_int) -> Option<u64> {
    // SAFETY: no memory is handed over.
    let at = unsafe { syscall(libc::SYS_lseek, fd, 0 as c_long, libc::SEEK_CUR) };
    u64::try_from(at).ok()
}

/// The word at `at`, where that is memory: the kernel looks.
pub(crate) fn word_at(at: *mut u64) -> Option<u64> {
    let mut word = 0_u64;
    let bytes = size_of::<u64>();
    let own = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: bytes };
    let there = libc::iovec { iov_base: at.cast(), iov_len: bytes };
    let (own, there) = (&raw const own, &raw const there);
    let (one, none) = (1 as c_long, 0 as c_long);
    // SAFETY: the kernel writes to `word` alone, and answers where the other address is none.
    let got = unsafe { syscall(libc::SYS_process_vm_readv, process(), own, one, there, one, none) };
    usize::try_from(got).is_ok_and(|got| got == bytes).then_some(word)
}

/// This process.
pub(crate) fn process() -> u32 {
    // SAFETY: no memory is handed over.
    number(unsafe { syscall(libc::SYS_getpid) })
}

/// Its parent.
pub(crate) fn parent() -> u32 {
    // SAFETY: no memory is handed over.
    number(unsafe { syscall(libc::SYS_getppid) })
}

fn number(pid: c_long) -> u32 {
    u32::try_from(pid).unwrap_or(0)
}

/// Whether `fd` is shared memory of `bytes` that can become no smaller.
pub(crate) fn is_sealed(fd: c_int, bytes: usize) -> bool {
    // SAFETY: no memory is handed over.
    let seals = unsafe { syscall(libc::SYS_fcntl, fd, libc::F_GET_SEALS) };
    let shrinks = seals < 0 || seals & c_long::from(libc::F_SEAL_SHRINK) == 0;
    !shrinks && file(fd).is_some_and(|file| file.bytes == bytes as u64)
}

/// Maps `bytes` of `fd`, shared, or of fresh memory for -1.
pub(crate) fn map(fd: c_int, bytes: usize) -> Option<*mut c_void> {
    let kind = if fd < 0 { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS } else { libc::MAP_SHARED };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let none = ptr::null_mut::<c_void>();
    // SAFETY: a new mapping, where the kernel likes: it changes no memory that is in use.
    let at = unsafe { syscall(libc::SYS_mmap, none, bytes, access, kind, fd, 0 as c_long) };
    // Addresses are positive.
    (at > 0).then(|| address(at))
}

/// Advises the kernel about `bytes` at `at`; whether it took the advice.
///
/// # Safety
/// What `advice` does to this memory is what its owner wants.
pub(crate) unsafe fn advise(at: *mut c_void, bytes: usize, advice: c_int) -> bool {
    // SAFETY: that of the caller.
    unsafe { syscall(libc::SYS_madvise, at, bytes, advice) == 0 }
}

/// A call's answer as the C library gives it: `int`.
pub(crate) fn int(answer: c_long) -> c_int {
    c_int::try_from(answer).unwrap_or(-1)
}

/// The same, `ssize_t` or `off_t`.
pub(crate) fn size<T: TryFrom<c_long> + From<i8>>(answer: c_long) -> T {
    T::try_from(answer).unwrap_or_else(|_| T::from(-1))
}

/// The same, an address or `MAP_FAILED`.
pub(crate) fn address(answer: c_long) -> *mut c_void {
    ptr::with_exposed_provenance_mut(size::<isize>(answer).cast_unsigned())
}

/// Ends the program, as the C library does, unless a buffer `fits` what goes into it.
pub(crate) fn check(fits: bool) {
    if !fits {
        // SAFETY: it does not come back.
        unsafe { libc::abort() }
    }
}
