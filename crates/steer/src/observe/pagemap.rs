//! The pages of a process that are present: what it has touched of a mapped file.
//!
//! # Invariants
//! - The kernel writes only to memory of this module, within its bounds.
//! # Sources
//! Linux `Documentation/admin-guide/mm/pagemap.rst`: `PAGEMAP_SCAN` (from 6.7 on), and the file
//! itself, eight bytes a page, whose highest bit says that the page is present.

#![expect(unsafe_code, reason = "an ioctl without a safe wrapper")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;

use rustix::io::pread;
use rustix::param::page_size;

/// The first parts of the addresses `range` that are present, in order, at most `max` of them.
/// `pagemap` is the file of that name of the process.
pub(crate) fn present(
    pagemap: &File,
    range: Range<u64>,
    max: usize,
) -> io::Result<Vec<Range<u64>>> {
    assert!(max > 0, "there is room for what is present");
    match scan(pagemap, range.clone(), max) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
            read(pagemap, range, max)
        }
        found => found,
    }
}

/// A part of the memory: `struct page_region` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// The argument of `PAGEMAP_SCAN`: `struct pm_scan_arg` of the kernel.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_max: u64,
    pages_max: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    returned: u64,
}

/// Whether the kernel scans a process's pages, whose `pagemap` this is.
pub(crate) fn scans_pages(pagemap: &File) -> bool {
    scan(pagemap, 0..page_size() as u64, 1).is_ok()
}

fn scan(pagemap: &File, range: Range<u64>, max: usize) -> io::Result<Vec<Range<u64>>> {
    let mut regions = vec![Region::default(); max];
    let mut argument = ScanArgument {
        size: size_of::<ScanArgument>() as u64,
        start: range.start,
        end: range.end,
        regions: regions.as_mut_ptr().expose_provenance() as u64,
        regions_max: max as u64,
        all_of: PAGE_IS_PRESENT,
        returned: PAGE_IS_PRESENT,
        ..ScanArgument::default()
    };
    // SAFETY: the argument has the size that it names, and its `regions` point to `regions_max` of
    // them, which live and are not borrowed until the call is over.
    let count = unsafe {
        libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, std::ptr::from_mut(&mut argument))
    };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    assert!(count <= regions.len(), "no more regions than there is room for");
    let regions = &regions[..count];
    assert!(regions.is_sorted_by_key(|region| region.start), "the kernel walks upward");
    Ok(regions.iter().map(|region| region.start..region.end).collect())
}

/// The same, for a kernel without `PAGEMAP_SCAN`.
fn read(pagemap: &File, range: Range<u64>, max: usize) -> io::Result<Vec<Range<u64>>> {
    let page = page_size() as u64;
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut entries = vec![0; ENTRIES * 8];
    let mut at = range.start;
    while at < range.end {
        let wanted = ((range.end - at) / page).min(ENTRIES as u64);
        let wanted = usize::try_from(wanted).expect("at most ENTRIES") * 8;
        let count = pread(pagemap, &mut entries[..wanted], at / page * 8)?;
        for entry in entries[..count].chunks_exact(8) {
            // Little endian or not, this is the byte with the highest bit.
            let highest = if cfg!(target_endian = "little") { entry[7] } else { entry[0] };
            if highest & PRESENT != 0 {
                let is_full = found.len() == max;
                match found.last_mut() {
                    Some(last) if last.end == at => last.end += page,
                    Some(_) if is_full => return Ok(found),
                    Some(_) | None => found.push(at..at + page),
                }
            }
            at += page;
        }
        if count < 8 {
            break;
        }
    }
    assert!(found.len() <= max, "no more parts than there is room for");
    Ok(found)
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PRESENT: u8 = 1 << 7;
/// Entries that are read at a time.
const ENTRIES: usize = 16 << 10;

const _: () = assert!(size_of::<ScanArgument>() == 0x60, "the size is a part of the call's number");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_were_touched_are_present_by_both_ways() {
        let page = page_size();
        let memory = vec![0_u8; 64 * page];
        let first = memory.as_ptr().addr().next_multiple_of(page);
        let offset = first - memory.as_ptr().addr();
        for touched in [3, 4, 5, 40] {
            // A page of zeros that was only read is present too.
            assert_eq!(std::hint::black_box(&memory)[offset + touched * page], 0);
        }
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let range = first as u64..(first + 63 * page) as u64;
        let by_reading = read(&pagemap, range.clone(), 100).unwrap();
        let at = |index: usize| (first + index * page) as u64;
        assert!(by_reading.iter().any(|run| run.start <= at(3) && at(6) <= run.end));
        assert!(by_reading.iter().any(|run| run.start <= at(40) && at(41) <= run.end));
        assert_eq!(read(&pagemap, range.clone(), 1).unwrap(), by_reading[..1]);
        match scan(&pagemap, range.clone(), 100) {
            Ok(scanned) => assert_eq!(scanned, by_reading),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOTTY), "{error}"),
        }
    }
}
