//! Where a file's bytes lie on its device, and which of its blocks were never written.
//!
//! ```text
//!   file      | written |   preallocated   | written |   hole   |
//!   fetched   |=========|                  |=========|==========|
//! ```
//! Blocks that `fallocate(2)` gave to a file and that were never written read as zeros, without the
//! device. ext4 and XFS tell such a block as data (`SEEK_DATA`) once a page of it is in memory: a
//! program that copies what is data, as `tar -S` does, would see what was fetched ahead of it.
//!
//! # Sources
//! Linux `fs/iomap/seek.c` (`iomap_seek_data_iter`), `fs/btrfs/file.c` (`find_desired_extent`: the
//! cache is not asked), `Documentation/filesystems/fiemap.rst`, `proc_pid_mountinfo(5)`.

use std::fs::{self, File};
use std::ops::Range;

use rustix::fs::{major, minor};
use rustix::param::page_size;

use super::DeviceFacts;
use super::sys::{self, Extent};

/// Where the first byte of `file` lies on its device, where the file system tells.
#[must_use]
pub fn place(file: &File) -> Option<u64> {
    let mut found = [Extent::default()];
    let count = sys::extents(file, &(0..u64::MAX), &mut found).ok()?;
    found[..count].first().filter(|extent| extent.has_address()).map(|extent| extent.place)
}

/// Whether the file system on `device` (`st_dev`) is queried for unwritten extents: one on a block
/// device, or an overlay. A server keeps the page cache of its clients out of its
/// answers. btrfs, which has numbers of its own, tells such extents whatever the page cache holds,
/// and searches for shared blocks at each call.
pub(super) fn are_queried(device: u64) -> bool {
    major(device) != 0
        || fs::read_to_string("/proc/self/mountinfo").is_ok_and(|text| is_overlay(&text, device))
}

/// Whether the mounts of `text` (`/proc/PID/mountinfo`) have an overlay of this number.
fn is_overlay(text: &str, device: u64) -> bool {
    let number = format!("{}:{}", major(device), minor(device));
    text.lines().any(|line| {
        let kind = line.split_once(" - ").map_or("", |(_, rest)| rest);
        kind.starts_with("overlay ") && line.split(' ').nth(2) == Some(&*number)
    })
}

/// The parts of `range` that a reader may have to wait for, in order: all but the pages with blocks
/// that were never written, where the file's `device` tells them.
pub(crate) fn written_parts(
    file: &File,
    range: &Range<u64>,
    device: DeviceFacts,
) -> Vec<Range<u64>> {
    if !device.tells_unwritten {
        return Vec::from([range.clone()]);
    }
    let page = page_size() as u64;
    // Whole pages are fetched.
    let pages = range.start / page * page..range.end.saturating_add(page - 1) / page * page;
    let (mut parts, mut at, mut asked) = (Vec::new(), range.start, pages.start);
    while asked < pages.end {
        let mut found = [Extent::default(); EXTENTS];
        let Ok(count) = sys::extents(file, &(asked..pages.end), &mut found) else { break };
        let unwritten = found[..count].iter().filter(|extent| extent.is_unwritten());
        for extent in unwritten.filter(|extent| extent.bytes > 0) {
            let start = (extent.start / page * page).min(range.end);
            let end = extent.end().saturating_add(page - 1) / page * page;
            if at < start {
                parts.push(at..start);
            }
            at = at.max(end);
        }
        // Where there is room for more extents the range has no more.
        let next = found[..count].last().map(Extent::end);
        asked = next.filter(|&next| count == EXTENTS && next > asked).unwrap_or(pages.end);
    }
    if at < range.end {
        parts.push(at..range.end);
    }
    assert!(parts.is_sorted_by(|a, b| a.end < b.start), "parts lie in order, with gaps");
    parts
}

/// What one call covers.
const EXTENTS: usize = 32;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;
    use std::slice;

    use forerun_testkit::{Scratch, skip};
    use rustix::fs::{FallocateFlags, fallocate};

    use super::*;

    #[test]
    fn blocks_that_were_never_written_are_no_part() {
        const TEST: &str = "blocks_that_were_never_written_are_no_part";
        let scratch = Scratch::on_disk("unwritten");
        let file = File::create_new(scratch.join("data")).unwrap();
        let page = page_size() as u64;
        let bytes = 400 * page;
        if fallocate(&file, FallocateFlags::empty(), 0, bytes).is_err() {
            return skip(TEST, "a file system with fallocate");
        }
        let stat = crate::kernel::stat(&file).unwrap();
        let device = crate::kernel::Devices::default().facts(stat.st_dev);
        if !written_parts(&file, &(0..bytes), device).is_empty() {
            return skip(TEST, "a file system that tells extents that were never written");
        }
        let parts = |file: &File, range: Range<u64>| -> Vec<_> {
            let parts = written_parts(file, &range, device).into_iter();
            parts.map(|part| (part.start, part.end)).collect()
        };
        assert_eq!(parts(&file, 7..7), []);
        // More extents than one look covers.
        let written: Vec<_> = (0..200).step_by(2).map(|at| (at * page, (at + 1) * page)).collect();
        for part in &written {
            file.write_all_at(&vec![1; page_size()], part.0).unwrap();
        }
        file.sync_all().unwrap();
        assert_eq!(parts(&file, 0..bytes), written);
        assert_eq!(parts(&file, page + 9..4 * page), [(2 * page, 3 * page)]);
        assert_eq!(parts(&file, 2 * page + 5..3 * page - 5), [(2 * page + 5, 3 * page - 5)]);
        assert_eq!(parts(&file, page + 5..page + 6), []);
        // The file system reports a hole behind them, which is no unwritten extent.
        file.set_len(bytes + page).unwrap();
        assert_eq!(parts(&file, bytes - page..bytes + page), [(bytes, bytes + page)]);
        let whole = File::create_new(scratch.join("whole")).unwrap();
        whole.write_all_at(&vec![1; 9 * page_size()], 0).unwrap();
        assert_eq!(parts(&whole, 3..5 * page), [(3, 5 * page)]);
    }

    #[test]
    fn overlays_are_found_by_their_number() {
        let text = "25 1 0:23 / / rw shared:1 - overlay none rw,lowerdir=/a\n\
                    26 25 0:24 / /b rw - btrfs /dev/sda rw,name=overlay\n";
        #[rustfmt::skip]
        let rows = [ // device, whether it is asked
            ((0, 23), true),
            ((0, 24), false),
            ((0, 2),  false),
            ((0, 99), false),
        ];
        for ((major, minor), expected) in rows {
            let device = rustix::fs::makedev(major, minor);
            assert_eq!(is_overlay(text, device), expected, "{major}:{minor}");
        }
        assert!(are_queried(rustix::fs::makedev(8, 1)));
    }

    #[test]
    fn what_tells_no_extents_is_fetched_as_a_whole() {
        let scratch = Scratch::in_memory("unwritten");
        let path = scratch.file("data", "something");
        let (all, file) = (0..9, File::open(path).unwrap());
        let (chunk_bytes, is_rotational) = (4_096, false);
        for tells_unwritten in [true, false] {
            let device = DeviceFacts { chunk_bytes, is_rotational, tells_unwritten };
            assert_eq!(written_parts(&file, &all, device), *slice::from_ref(&all));
        }
    }
}
