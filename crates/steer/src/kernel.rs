//! What the kernel's page cache offers: it prefetches a range, and tells what of it is there.
//!
//! ```text
//!   prefetch |======|======|======|===|   one call a chunk: of a longer one the rest is dropped
//!   cached    ######        ####           in the cache, or being read into it
//!   absent          |======|    |==|===   what a reader would still wait for
//! ```
//!
//! [`prefetch`] returns when the device has its requests, long before it has answered.
//! `cachestat(2)` counts pages from that moment on, and `mincore(2)` only those whose bytes have
//! come: the first says what need not be requested, the second what has arrived. A page whose read
//! failed stays in the cache without its bytes, so only the second may be called success.
//!
//! The kernel tells neither of a file that this process does not own and may not write. There
//! `cachestat` refuses, and `mincore` calls every page resident; so it does of a page past the end
//! of the file, which is how it is found out. A [`Probe`] tells, but fetches the page that it does
//! not find.
//!
//! # Invariants
//! - [`Residency::Unknown`] and none are answers, and never stand for "all" or "nothing".
//! - Nothing here waits for a page; [`prefetch`] waits where the device's queue is full.
//! # Sources
//! Linux `mm/readahead.c` (`force_page_cache_ra`: the cut), `mm/mincore.c` (`can_do_mincore`),
//! `mm/filemap.c` (`cachestat`, from 6.5 on).

mod chunk;
mod devices;
mod extents;
mod probe;
mod reading;
mod stat;
mod sys;

use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::fs::{Advice, OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::param::page_size;

pub use chunk::chunk_bytes;
pub(crate) use devices::{DeviceFacts, Devices};
pub use extents::place;
pub(crate) use extents::written_parts;
pub use probe::Probe;
pub(crate) use reading::{open_again, open_for_reading};
pub(crate) use stat::{Stat, stat};
pub(crate) use sys::{is_same_description, stand_for};

/// How much of a range is in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// So many of its pages are, or are being read.
    Pages(u64),
    /// The kernel does not tell this process.
    Unknown,
}

/// The pages that `range` touches.
#[must_use]
pub fn pages(range: &Range<u64>) -> u64 {
    let page = page_size() as u64;
    if range.is_empty() { 0 } else { range.end.div_ceil(page) - range.start / page }
}

/// Has `range` of `file` fetched in calls of `chunk_bytes`, without waiting for its bytes.
///
/// # Errors
/// Those of `posix_fadvise(2)`, which stands in where a file system has no `readahead(2)`: the
/// file is no regular one, or the descriptor is not for reading. What the device fails is not
/// told here, but is absent later.
pub fn prefetch(file: &File, range: &Range<u64>, chunk_bytes: u64) -> io::Result<()> {
    prefetch_while(file, range, chunk_bytes, || true)
}

/// As [`prefetch`], but for what was never written, where the `device` tells that: how many bytes
/// are fetched.
///
/// # Errors
/// As of [`prefetch`].
pub(crate) fn prefetch_written(
    file: &File,
    range: &Range<u64>,
    device: DeviceFacts,
) -> io::Result<u64> {
    let parts = written_parts(file, range, device);
    for part in &parts {
        prefetch(file, part, device.chunk_bytes)?;
    }
    Ok(parts.iter().map(|part| part.end - part.start).sum())
}

/// As [`prefetch`], as long as it `is_wanted`: that is asked before each call.
pub(crate) fn prefetch_while(
    file: &File,
    range: &Range<u64>,
    chunk_bytes: u64,
    is_wanted: impl Fn() -> bool,
) -> io::Result<()> {
    for piece in pieces(range, chunk_bytes).take_while(|_| is_wanted()) {
        let bytes = piece.end - piece.start;
        match sys::readahead(file, piece.start, bytes) {
            Err(Errno::INVAL) => {
                let bytes = bytes.try_into().ok();
                rustix::fs::fadvise(file, piece.start, bytes, Advice::WillNeed)?;
            }
            result => result?,
        }
    }
    Ok(())
}

/// How many pages of `range` are in the cache or in flight into it.
///
/// # Errors
/// The kernel does not count, and the file cannot be mapped, as where its file system keeps no
/// pages.
pub fn cached(file: &File, range: &Range<u64>) -> io::Result<Residency> {
    // An error may come from a filter of system calls, too: the other call has the last word.
    if let Some(count) = counted(file, range) {
        return Ok(Residency::Pages(count));
    }
    let absent = absent(file, range)?;
    Ok(absent.map_or(Residency::Unknown, |absent| Residency::Pages(present(range, &absent))))
}

/// How many pages of `range` are in the cache, where the kernel counts them in one call.
fn counted(file: &File, range: &Range<u64>) -> Option<u64> {
    if range.is_empty() { Some(0) } else { Some(sys::cachestat(file, range).ok()?.cached) }
}

/// The pages of `range` that are not `absent`.
fn present(range: &Range<u64>, absent: &[Range<u64>]) -> u64 {
    let (absent, pages) = (absent.iter().map(pages).sum::<u64>(), pages(range));
    assert!(absent <= pages, "what is absent is a part of it");
    pages - absent
}

/// As [`cached`], without an access to the file, which a mapping is: it marks the time of access
/// unless `file` was opened without marks. `None` where the kernel does not tell.
pub(crate) fn cached_untouched(file: &File, range: &Range<u64>) -> Option<u64> {
    counted(file, range).or_else(|| Some(present(range, &absent_untouched(file, range)?)))
}

/// As [`absent`], without an access to the file: see [`cached_untouched`].
pub(crate) fn absent_untouched(file: &File, range: &Range<u64>) -> Option<Vec<Range<u64>>> {
    if is_marked(file) { None } else { absent(file, range).ok()? }
}

/// Whether an access by the descriptor of `file` marks its time.
fn is_marked(file: &File) -> bool {
    !fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::NOATIME))
}

/// How many pages of `range` were written and are not on the device yet, where the kernel tells.
pub(crate) fn written(file: &File, range: &Range<u64>) -> Option<u64> {
    if range.is_empty() {
        return Some(0);
    }
    let counts = sys::cachestat(file, range).ok()?;
    Some(counts.dirty.saturating_add(counts.writeback))
}

/// Whether the kernel counts what is cached of `file` in one call.
pub(crate) fn counts_cached(file: &File) -> bool {
    sys::cachestat(file, &(0..page_size() as u64)).is_ok()
}

/// The parts of `range` whose bytes are not in memory, in order, to whole pages but for the ends
/// of `range`; none where the kernel does not tell this process.
///
/// # Errors
/// As of [`cached`]; `range` ends beyond any file.
pub fn absent(file: &File, range: &Range<u64>) -> io::Result<Option<Vec<Range<u64>>>> {
    if i64::try_from(range.end).is_err() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let page = page_size() as u64;
    let beyond = stat(file)?.st_size.next_multiple_of(page);
    let mut is_resident = Vec::new();
    sys::mincore(file, &(beyond..beyond + page), &mut is_resident)?;
    if is_resident == [true] {
        return Ok(None);
    }
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut at = range.start / page * page;
    while at < range.end && !range.is_empty() {
        let end = range.end.min(at + LOOK_BYTES);
        sys::mincore(file, &(at..end), &mut is_resident)?;
        assert_eq!(is_resident.len() as u64, pages(&(at..end)), "an answer for each page");
        for (start, _) in (at..end).step_by(page_size()).zip(&is_resident).filter(|(_, is)| !**is) {
            let missing = start.max(range.start)..range.end.min(start + page);
            match found.last_mut() {
                Some(last) if last.end == missing.start => last.end = missing.end,
                Some(_) | None => found.push(missing),
            }
        }
        at = end;
    }
    Ok(Some(found))
}

/// `range` from the start of its first page on, in pieces of `chunk_bytes`.
fn pieces(range: &Range<u64>, chunk_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let page = page_size() as u64;
    // A piece of whole pages that begins within a page would touch one page more than it has.
    let chunk = (chunk_bytes / page * page).max(page);
    let (mut at, end) = (range.start / page * page, range.end);
    let is_empty = range.is_empty();
    std::iter::from_fn(move || {
        let piece = at..end.min(at.saturating_add(chunk));
        at = piece.end;
        (!is_empty && !piece.is_empty()).then_some(piece)
    })
}

/// What one look by `mincore` covers: a multiple of any page, and a vector of 16 KiB at most.
const LOOK_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests;
