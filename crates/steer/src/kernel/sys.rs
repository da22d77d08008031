//! The system calls on the page cache that no crate wraps.
//!
//! # Invariants
//! - A mapping is made to be asked about, lives for one call, and is never read or written.
//! # Sources
//! Linux `include/uapi/linux/{mman,fiemap}.h`, for the layouts.

#![expect(unsafe_code, reason = "system calls that no crate wraps")]

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

/// The kernel's `struct cachestat`: pages by their state.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// In the cache, with their bytes or waiting for them.
    pub(super) cached: u64,
    pub(super) dirty: u64,
    pub(super) writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Counts the pages that `range` touches; it must not be empty, which would mean "to the end".
pub(super) fn cachestat(file: &File, range: &Range<u64>) -> Result<Counts, Errno> {
    /// The kernel's `struct cachestat_range`.
    #[repr(C)]
    struct CachestatRange {
        offset: u64,
        bytes: u64,
    }
    assert!(!range.is_empty());
    let asked = CachestatRange { offset: range.start, bytes: range.end - range.start };
    let mut counts = Counts::default();
    // SAFETY: the kernel reads `asked` and writes `counts`; both have the layout that it expects
    // and live until the call returns.
    check(unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const asked, &raw mut counts, 0)
    })?;
    Ok(counts)
}

/// Which pages of `range`, which begins on a page, are in memory with their bytes; one entry a
/// page. The range may go past the end of the file.
pub(super) fn mincore(
    file: &File,
    range: &Range<u64>,
    is_resident: &mut Vec<bool>,
) -> Result<(), Errno> {
    assert!(range.start.is_multiple_of(page_size() as u64) && !range.is_empty());
    let bytes = usize::try_from(range.end - range.start).map_err(|_| Errno::NOMEM)?;
    let mut pages = vec![0_u8; bytes.div_ceil(page_size())];
    let (protection, flags) = (ProtFlags::empty(), MapFlags::PRIVATE);
    // SAFETY: the kernel chooses the address, so nothing of this process is mapped over. No
    // access goes through the mapping, and its protection forbids any.
    let start = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, file, range.start)? };
    // SAFETY: the mapping covers `bytes` from `start` on, and `pages` has a byte for each page of
    // it; the kernel writes to these alone.
    let looked = check(i64::from(unsafe { libc::mincore(start, bytes, pages.as_mut_ptr()) }));
    // SAFETY: the mapping was made above, with this length, and nothing refers to it.
    unsafe { munmap(start, bytes)? };
    looked?;
    is_resident.clear();
    is_resident.extend(pages.iter().map(|page| page & 1 == 1));
    Ok(())
}

/// Has the descriptor of `file` stand for what `other` does: what it stood for is closed as soon as
/// no call has it.
pub(crate) fn stand_for(file: &File, other: &OwnedFd) -> Result<(), Errno> {
    let (from, to) = (other.as_raw_fd(), file.as_raw_fd());
    assert_ne!(from, to, "two owners have two numbers");
    // SAFETY: both descriptors are open, and the number stays that of `file`, its owner.
    check(i64::from(unsafe { libc::dup3(from, to, libc::O_CLOEXEC) })).map(|_| ())
}

/// Asks for a range of `file`.
pub(super) fn readahead(file: &File, offset: u64, bytes: u64) -> Result<(), Errno> {
    let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?;
    let bytes = usize::try_from(bytes).map_err(|_| Errno::INVAL)?;
    loop {
        // SAFETY: a call on a descriptor that is open; no memory of this process is touched.
        let answer = check(unsafe { libc::readahead(file.as_raw_fd(), offset, bytes) } as i64);
        if answer != Err(Errno::INTR) {
            return answer.map(|_| ());
        }
    }
}

/// An extent of a file: the kernel's `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    pub(super) start: u64,
    /// Where it lies on its device, if it `has_address`.
    pub(super) place: u64,
    pub(super) bytes: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

impl Extent {
    /// One past its last byte.
    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes)
    }

    /// Whether it lies in blocks of its own on the device.
    pub(super) fn has_address(&self) -> bool {
        self.flags & NO_ADDRESS == 0
    }

    /// Whether the file has its blocks, and they were never written: it reads as zeros.
    pub(super) fn is_unwritten(&self) -> bool {
        self.flags & UNWRITTEN != 0
    }
}

/// The first extents of `file` that have bytes of `range`, as many as `found` has room for: how
/// many.
pub(super) fn extents<const ROOM: usize>(
    file: &File,
    range: &Range<u64>,
    found: &mut [Extent; ROOM],
) -> Result<usize, Errno> {
    /// The kernel's `struct fiemap`, with its extents.
    #[repr(C)]
    struct Fiemap<const ROOM: usize> {
        start: u64,
        bytes: u64,
        flags: u32,
        mapped: u32,
        room: u32,
        reserved: u32,
        extents: [Extent; ROOM],
    }
    assert!(range.start < range.end, "a range has bytes");
    let mut asked = Fiemap {
        start: range.start,
        bytes: range.end - range.start,
        flags: 0,
        mapped: 0,
        room: u32::try_from(ROOM).map_err(|_| Errno::INVAL)?,
        reserved: 0,
        extents: *found,
    };
    // SAFETY: the kernel reads and writes `asked`, which has the layout that the call expects with
    // `room` extents, and lives until the call returns.
    check(i64::from(unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP, &raw mut asked) }))?;
    *found = asked.extents;
    let count = asked.mapped as usize;
    assert!(count <= ROOM, "no more extents than there is room for");
    Ok(count)
}

/// Whether two descriptors of a process are copies of each other: one description, one position.
pub(crate) fn is_same_description(process: i32, one: i32, other: i32) -> Result<bool, Errno> {
    // SAFETY: the call takes numbers alone.
    let order = check(unsafe { libc::syscall(libc::SYS_kcmp, process, process, 0, one, other) })?;
    Ok(order == 0)
}

/// The answer of a system call, or the error that it left.
fn check(answer: i64) -> Result<i64, Errno> {
    if answer >= 0 {
        return Ok(answer);
    }
    let code = std::io::Error::last_os_error().raw_os_error();
    Err(Errno::from_raw_os_error(code.expect("it comes from the system")))
}

/// The call's number, the same on every architecture.
const CACHESTAT: libc::c_long = 451;
/// `_IOWR('f', 11, struct fiemap)`.
const FIEMAP: libc::Ioctl = libc::_IOWR::<[u64; 4]>(b'f' as u32, 11);
/// Extents that are not written yet, or lie within the file system's own blocks.
const NO_ADDRESS: u32 = 0x2 | 0x4 | 0x200;
const UNWRITTEN: u32 = 0x800;
