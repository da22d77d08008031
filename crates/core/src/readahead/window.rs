//! The geometry that Linux's readahead policies of all ages share: how large a stream's first
//! window is, how windows grow, and what counts as sequential.
//!
//! ```text
//!   pages asked    1  2  3..4  5..8  9..16  17..32  33..64  65..     max = 256
//!   first window   4  8   16    32     32      64     128    256
//!   then           x4 while below max/16, x2 after that, at most max
//! ```
//!
//! # Invariants
//! - For `max > 0` and `count > 0`, `0 < size <= max`; growing never shrinks a window.
//! - `async_size <= size` in every window made here.
//! # Sources
//! Linux `mm/readahead.c`: `get_init_ra_size` and `get_next_ra_size`, the same from 2.6.16 to
//! 6.18 (the latter writes the cap in another way). Wu, Xi and Xu, "File prefetching algorithm for
//! concurrent streams" (Journal of Software, 2010), has windows double only; the code holds, and
//! the two differ below `max / 16`.

use super::{Cause, Decision, Demand, Window};
use crate::params::Bytes;
use crate::units::PageIndex;

crate::params! {
    /// What may be set of a historic policy.
    pub struct Limit {
        /// The largest window. The papers' test bed had 1 MiB; a kernel's default is 128 KiB.
        /// Less than a page counts as one page.
        max: Bytes = Bytes(1 << 20),
    }
}

/// Whole pages in `size`, at least one.
#[must_use]
pub fn pages(size: Bytes, page_bytes: u32) -> u32 {
    size.pages(page_bytes).max(1)
}

/// Pages in the first window of a stream whose reader asks for `count` pages.
#[must_use]
pub fn opening_size(count: u32, max: u32) -> u32 {
    assert!(count > 0 && max > 0);
    let Some(rounded) = count.checked_next_power_of_two() else { return max };
    if rounded <= max / 32 {
        rounded * 4
    } else if rounded <= max / 4 {
        rounded * 2
    } else {
        max
    }
}

/// Pages in the window after one of `size` pages.
#[must_use]
pub fn next_size(size: u32, max: u32) -> u32 {
    let factor = if size < max / 16 { 4 } else { 2 };
    size.saturating_mul(factor).min(max)
}

/// The first window of a stream, as up to 2.6.24: when the reader takes all of it at once, the
/// marker is on its first page.
#[must_use]
pub fn opening(first: PageIndex, count: u32, max: u32) -> Window {
    let size = opening_size(count, max);
    let async_size = if size > count { size - count } else { size };
    Window { start: first, size, async_size }
}

/// A window of which every page is ahead of need.
#[must_use]
pub fn ahead(start: PageIndex, size: u32) -> Window {
    assert!(size > 0);
    Window { start, size, async_size: size }
}

/// Just the demanded pages.
#[must_use]
pub fn as_asked(demand: &Demand) -> Decision {
    assert!(demand.count > 0);
    let window = Window { start: demand.first, size: demand.count, async_size: 0 };
    Decision::new(Cause::Random, window)
}

/// The page where a stream whose last window is `last` takes up the next one; where no page of
/// `last` is ahead of need, that is its end.
#[must_use]
pub fn turn(last: Window) -> PageIndex {
    last.end() - u64::from(last.async_size)
}

/// The window after `last` if `first` is where `last` says that the reader will be: at its marker,
/// or just past its end. The head of a file is nowhere's continuation.
#[must_use]
pub fn following(last: Option<Window>, first: PageIndex, max: u32) -> Option<Window> {
    let last = last?;
    let expected = first > 0 && (first == turn(last) || first == last.end());
    expected.then(|| ahead(last.end(), next_size(last.size, max)))
}

/// Whether a miss belongs to a stream, as up to 2.6.24: it follows the previous read, or it asks
/// for more than any window holds.
#[must_use]
pub fn is_sequential(demand: &Demand, max: u32, page_bytes: u32) -> bool {
    follows(demand.first, previous_page(demand, page_bytes)) || demand.count > max
}

/// Whether `first` is the same page as `previous` or the one after it. Before the first read
/// (`None`) the head of the file is what follows.
#[must_use]
pub fn follows(first: PageIndex, previous: Option<PageIndex>) -> bool {
    previous.map_or(first == 0, |page| first == page || page.checked_add(1) == Some(first))
}

/// The last page that the previous read touched.
#[must_use]
pub fn previous_page(demand: &Demand, page_bytes: u32) -> Option<PageIndex> {
    let last_byte = demand.previous_end?.checked_sub(1)?;
    Some(last_byte / u64::from(page_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_windows_are_the_kernels() {
        #[rustfmt::skip] // A table test: add a row, not a function.
        let rows: [(u32, &[(u32, u32)]); 4] = [ // max, (asked, size)
            (32,   &[(1, 4), (2, 4), (3, 8), (4, 8), (5, 16), (8, 16), (9, 32), (32, 32),
                     (33, 32)]),
            (256,  &[(1, 4), (2, 8), (3, 16), (8, 32), (9, 32), (16, 32), (17, 64), (33, 128),
                     (64, 128), (65, 256), (256, 256), (u32::MAX, 256)]),
            (1024, &[(1, 4), (16, 64), (32, 128), (33, 128), (256, 512), (257, 1024)]),
            (1,    &[(1, 1), (2, 1), (9, 1)]),
        ];
        for (max, sizes) in rows {
            for &(count, size) in sizes {
                assert_eq!(opening_size(count, max), size, "{count} pages, max {max}");
            }
        }
    }

    #[test]
    fn windows_grow_as_the_kernels() {
        #[rustfmt::skip] // A table test: add a row, not a function.
        let rows: [(u32, &[(u32, u32)]); 4] = [ // max, (size, next)
            (32,  &[(1, 4), (2, 4), (3, 6), (4, 8), (16, 32), (17, 32), (32, 32)]),
            (256, &[(1, 4), (4, 16), (15, 60), (16, 32), (128, 256), (129, 256), (200, 256)]),
            (33,  &[(1, 4), (2, 4), (16, 32), (17, 33)]),
            (u32::MAX, &[(1 << 27, 1 << 29), (1 << 31, u32::MAX)]),
        ];
        for (max, sizes) in rows {
            for &(size, next) in sizes {
                assert_eq!(next_size(size, max), next, "{size} pages, max {max}");
            }
        }
    }

    #[test]
    fn every_small_window_keeps_its_bounds() {
        for max in 1..=130 {
            for count in 1..=140 {
                let window = opening(7, count, max);
                assert!(0 < window.size && window.size <= max, "{count} of {max}: {window:?}");
                assert!(0 < window.async_size && window.async_size <= window.size);
                assert!(window.size == max || window.size >= 2 * count);
                assert_eq!(turn(window), window.marker().expect("a tail"));
                let asked_end = window.start + u64::from(count);
                assert!(turn(window) == asked_end || turn(window) == window.start);
            }
            for size in 1..=max {
                let next = next_size(size, max);
                assert!(size <= next && next <= max && (next > size || size == max));
                assert_eq!(turn(ahead(9, size)), 9);
            }
        }
    }

    #[test]
    fn a_read_follows_the_same_page_and_the_next_one_only() {
        for first in 0..6 {
            assert_eq!(follows(first, None), first == 0);
            for previous in 0..6 {
                let near = first == previous || first == previous + 1;
                assert_eq!(follows(first, Some(previous)), near, "{first} after {previous}");
            }
        }
        assert!(!follows(0, Some(u64::MAX)));
    }

    #[test]
    fn less_than_a_page_counts_as_one() {
        #[rustfmt::skip]
        let rows = [(0, 1), (1, 1), (4095, 1), (4096, 1), (8191, 1), (8192, 2), (1 << 20, 256)];
        for (bytes, expected) in rows {
            assert_eq!(pages(Bytes(bytes), 4096), expected, "{bytes} bytes");
        }
    }
}
