//! The memory of all frames: one piece, in huge pages where they can be had.
//!
//! ```text
//!        base, at a multiple of 2 MiB                        base + mapped
//!          | frame 0 | frame 1 | ...      | frame n - 1 |  rest |
//!          |<------------------ used ------------------>|
//! ```
//!
//! A device is handed fewer and larger pieces where neighbouring frames are neighbours in memory
//! too, and a processor finds their addresses with fewer look-ups.
//!
//! # Invariants
//! - All memory is there, and touched, before [`Arena::new`] returns; it goes with the arena.
//! - The bytes of a frame are reached through its [`Frame`](super::Frame) while it is checked out,
//!   or read through a pin; the headers and hazard pointers, which see to that, lie here too.

use std::{
    fmt,
    ops::Range,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU64, Ordering},
};

use forerun_core::units::FrameId;
use rustix::{
    io::Errno,
    mm::{self, Advice},
};

use super::{
    NoMemory,
    hazard::HazardPointers,
    header::FrameHeader,
    mapping::{HUGE_BYTES, Mapping, in_huge_pages},
};

/// See the module.
pub(crate) struct Arena {
    mapping: Mapping,
    used: usize,
    page_bytes: usize,
    headers: Box<[FrameHeader]>,
    hazards: HazardPointers,
    serial: u64,
}

impl Arena {
    pub(crate) fn new(count: u32, page_bytes: usize) -> Result<Self, NoMemory> {
        let refused = NoMemory { count, page_bytes };
        let used = (count as usize).checked_mul(page_bytes).ok_or(refused)?;
        let mapped = used.max(1).checked_next_multiple_of(HUGE_BYTES).ok_or(refused)?;
        let headers = in_huge_pages(count as usize, FrameHeader::new).map_err(|_| refused)?;
        let hazards = HazardPointers::new();
        let mapping = Mapping::new(mapped, page_bytes.max(HUGE_BYTES)).ok_or(refused)?;
        assert!(used <= mapping.bytes(), "all frames lie in the mapping");
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let arena = Self { mapping, used, page_bytes, headers, hazards, serial };
        arena.populate().map_err(|_| refused)?;
        Ok(arena)
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.headers.len()).expect("as many as `new` was asked for")
    }

    #[inline]
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Another number than that of any other arena of this process.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    #[inline]
    pub(crate) fn header(&self, id: FrameId) -> &FrameHeader {
        &self.headers[id.0 as usize]
    }

    #[inline]
    pub(crate) fn hazards(&self) -> &HazardPointers {
        &self.hazards
    }

    /// Where the bytes of a frame are: `page_bytes` of them, at a multiple of that.
    #[inline]
    pub(crate) fn bytes(&self, id: FrameId) -> NonNull<u8> {
        let at = id.0 as usize;
        assert!(at < self.headers.len(), "{id:?} of {} frames", self.headers.len());
        // SAFETY: a frame of the arena begins within its mapping: `new` made it long enough.
        unsafe { self.mapping.base().add(at * self.page_bytes) }
    }

    /// Where the frames are, and how many bytes they take.
    pub(crate) fn region(&self) -> (NonNull<u8>, usize) {
        (self.mapping.base(), self.used)
    }

    /// How many bytes of it the system says are in huge pages.
    pub(crate) fn huge_bytes(&self) -> u64 {
        let from = self.mapping.base().addr().get();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        huge_bytes(&smaps, from..from + self.mapping.bytes())
    }

    /// Has the system give all memory that it promised.
    fn populate(&self) -> Result<(), Errno> {
        let bytes = if self.used >= HUGE_BYTES {
            self.mapping.advise_huge();
            self.mapping.bytes()
        } else {
            self.used.next_multiple_of(SMALL_BYTES)
        };
        let base = self.mapping.base().as_ptr().cast();
        // SAFETY: the mapping is ours and longer than `bytes`; populating changes none of them.
        match unsafe { mm::madvise(base, bytes, Advice::LinuxPopulateWrite) } {
            Ok(()) => Ok(()),
            Err(errno @ (Errno::NOMEM | Errno::FAULT)) => Err(errno),
            // An old system, or one that forbids it.
            Err(_) => {
                self.touch(bytes);
                Ok(())
            }
        }
    }

    fn touch(&self, bytes: usize) {
        for at in (0..bytes).step_by(SMALL_BYTES) {
            // SAFETY: within the mapping, which only `new` knows of yet. What is written is what a
            // new mapping holds.
            unsafe { ptr::write_volatile(self.mapping.base().as_ptr().add(at), 0) };
        }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, page_bytes) = (self.count(), self.page_bytes);
        let mut arena = f.debug_struct("Arena");
        arena.field("count", &count).field("page_bytes", &page_bytes).finish_non_exhaustive()
    }
}

/// Huge pages of the mappings that reach into `region`, by the text of `/proc/self/smaps`.
fn huge_bytes(smaps: &str, region: Range<usize>) -> u64 {
    let (mut within, mut huge) = (false, 0);
    for line in smaps.lines() {
        if let Some(range) = address_range(line) {
            within = range.start < region.end && region.start < range.end;
        } else if let Some(rest) = line.strip_prefix("AnonHugePages:")
            && within
        {
            let kib = rest.trim().trim_end_matches("kB").trim_end().parse().unwrap_or(0_u64);
            huge += kib << 10;
        }
    }
    huge.min(region.len() as u64)
}

/// The addresses that the first line of a mapping begins with.
fn address_range(line: &str) -> Option<Range<usize>> {
    let (from, to) = line.split_whitespace().next()?.split_once('-')?;
    Some(usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(to, 16).ok()?)
}

/// No system has smaller pages.
const SMALL_BYTES: usize = 4 << 10;
const _: () = assert!(HUGE_BYTES.is_multiple_of(SMALL_BYTES), "huge pages are of small ones");

static SERIAL: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
00200000-00600000 rw-p 00000000 00:00 0
Rss:                4096 kB
AnonHugePages:      2048 kB
VmFlags: rd wr mr mw me ac sd hg
00600000-00700000 rw-p 00000000 00:00 0                  [heap]
AnonHugePages:         0 kB
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
AnonHugePages:      4096 kB
";

    #[test]
    fn huge_pages_are_those_of_the_mappings_that_hold_the_region() {
        #[rustfmt::skip]
        let rows = [ // why                        from                to                  bytes
            ("its mapping alone",                  0x20_0000,          0x60_0000,          2 << 20),
            ("never more than it has",             0x20_0000,          0x30_0000,          1 << 20),
            ("two mappings",                       0x20_0000,          0x7f00_0020_0000,   6 << 20),
            ("none in it",                         0x60_0000,          0x70_0000,          0),
            ("beside it",                          0x7f00_0040_0000,   0x7f00_0060_0000,   0),
        ];
        for (why, from, to, expected) in rows {
            assert_eq!(huge_bytes(SMAPS, from..to), expected, "{why}");
        }
        assert_eq!(huge_bytes("", 0..100), 0);
    }

    #[test]
    fn memory_that_is_touched_by_hand_is_zero_and_writable() {
        let arena = Arena::new(4, 4096).unwrap();
        arena.touch(4 * 4096);
        // SAFETY: only this test refers to the arena.
        let bytes =
            unsafe { std::slice::from_raw_parts(arena.mapping.base().as_ptr(), arena.used) };
        assert!(bytes.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn frames_begin_at_multiples_of_their_size() {
        for (count, page_bytes) in [(3, 64), (5, 4096), (1, 2 << 20), (2, 8 << 20)] {
            let arena = Arena::new(count, page_bytes).unwrap();
            for id in (0..count).map(FrameId) {
                assert_eq!(arena.bytes(id).addr().get() % page_bytes, 0);
            }
            assert_eq!(arena.region().0.addr().get() % (2 << 20), 0);
            assert!(arena.region().1 <= arena.mapping.bytes());
        }
    }
}
