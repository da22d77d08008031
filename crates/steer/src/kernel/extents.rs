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
//! cache is not asked), `Documentation/filesystems/fiemap.rst`.

use std::fs::File;
use std::ops::Range;

use rustix::fs::fstatfs;
use rustix::param::page_size;

use super::sys::{self, Extent};

/// Where the first byte of `file` lies on its device, where the file system tells.
#[must_use]
pub fn place(file: &File) -> Option<u64> {
    let mut found = [Extent::default()];
    let count = sys::extents(file, &(0..u64::MAX), &mut found).ok()?;
    found[..count].first().filter(|extent| extent.has_address()).map(|extent| extent.place)
}

/// The parts of `range` that a reader may have to wait for, in order: all but the pages with blocks
/// that were never written, where the file system tells them.
pub(crate) fn written_parts(file: &File, range: &Range<u64>) -> Vec<Range<u64>> {
    let page = page_size() as u64;
    // Whole pages are fetched.
    let pages = range.start / page * page..range.end.saturating_add(page - 1) / page * page;
    let (mut parts, mut at) = (Vec::new(), range.start);
    // There a look is expensive, for blocks that files share, and unwritten ones are told as they
    // are.
    let is_btrfs = fstatfs(file).is_ok_and(|found| found.f_type == BTRFS);
    let mut asked = if is_btrfs { pages.end } else { pages.start };
    while asked < pages.end {
        let mut found = [Extent::default(); EXTENTS];
        let Ok(count) = sys::extents(file, &(asked..pages.end), &mut found) else { break };
        for extent in found[..count].iter().filter(|extent| extent.is_unwritten()) {
            let end = extent.start.saturating_add(extent.bytes + page - 1) / page * page;
            let start = (extent.start / page * page).min(range.end);
            if at < start {
                parts.push(at..start);
            }
            at = at.max(end);
        }
        let next = found[..count].last().map(|last| last.start.saturating_add(last.bytes));
        // Behind the last of them there is none.
        asked = next.filter(|&next| count == EXTENTS && next > asked).unwrap_or(pages.end);
    }
    if at < range.end {
        parts.push(at..range.end);
    }
    assert!(parts.is_sorted_by(|a, b| a.end < b.start), "parts lie in order, with gaps");
    parts
}

/// The number of btrfs in `statfs(2)`.
const BTRFS: libc::__fsword_t = 0x9123_683E;
/// What one look covers.
const EXTENTS: usize = 32;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

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
        if !written_parts(&file, &(0..bytes)).is_empty() {
            return skip(TEST, "a file system that tells extents that were never written");
        }
        let parts = |file: &File, range: Range<u64>| -> Vec<_> {
            let parts = written_parts(file, &range).into_iter();
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
        // A hole behind them is told as one.
        file.set_len(bytes + page).unwrap();
        assert_eq!(parts(&file, bytes - page..bytes + page), [(bytes, bytes + page)]);
        let whole = File::create_new(scratch.join("whole")).unwrap();
        whole.write_all_at(&vec![1; 9 * page_size()], 0).unwrap();
        assert_eq!(parts(&whole, 3..5 * page), [(3, 5 * page)]);
    }

    #[test]
    fn what_tells_no_extents_is_fetched_as_a_whole() {
        let scratch = Scratch::in_memory("unwritten");
        let path = scratch.file("data", "something");
        let all = 0..9;
        assert_eq!(written_parts(&File::open(path).unwrap(), &all), [all]);
    }
}
