//! What a program used of a file, where more is in memory than it read.
//!
//! ```text
//!   resident    ====================      ======    in memory at the end
//!   requested        ==========           ======    ahead of the program
//!   read        ======                              as observers told
//!   used        =========      =====                 resident, less what was requested in vain
//! ```
//! Observers miss reads, so what is in memory says more of a file than they do. What was requested
//! ahead of the program is there in any case, and says nothing: of that the reads count.
//!
//! # Invariants
//! - What was read and is resident was used; what is not resident was not.

use alloc::vec::Vec;
use core::ops::Range;

use super::joined;

/// Of the `resident` ranges of a file those that a program used, where these were `requested` ahead
/// of it, and it was seen to `read` these.
#[must_use]
pub fn used(
    resident: Vec<Range<u64>>,
    requested: &[Range<u64>],
    read: &[Range<u64>],
) -> Vec<Range<u64>> {
    without(joined(resident), &unread(requested, read))
}

/// Of the ranges that were `requested` what no `read` came to.
fn unread(requested: &[Range<u64>], read: &[Range<u64>]) -> Vec<Range<u64>> {
    without(joined(requested.to_vec()), &joined(read.to_vec()))
}

/// What of `ranges` is in none of `others`; both are in order and apart.
fn without(ranges: Vec<Range<u64>>, others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    for range in ranges {
        let mut at = range.start;
        let first = others.partition_point(|other| other.end <= range.start);
        for other in others[first..].iter().take_while(|other| other.start < range.end) {
            left.push(at..other.start.max(at));
            at = at.max(other.end.min(range.end));
        }
        left.push(at..range.end);
    }
    left.retain(|range| !range.is_empty());
    assert!(left.is_sorted_by(|a, b| a.end <= b.start), "what is left is in order");
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of `mask`, lowest bit first, as ranges.
    fn ranges(mask: u32) -> Vec<Range<u64>> {
        (0..8).filter(|bit| mask & (1 << bit) != 0).map(|bit| bit..bit + 1).collect()
    }

    fn mask(ranges: &[Range<u64>]) -> u32 {
        ranges.iter().flat_map(Clone::clone).map(|bit| 1 << bit).sum()
    }

    #[test]
    fn what_was_requested_and_not_read_was_not_used_in_every_small_file() {
        for resident in 0..64 {
            for requested in 0..64 {
                for read in 0..64 {
                    let [there, ahead, seen] = [resident, requested, read].map(ranges);
                    let found = used(there, &ahead, &seen);
                    assert_eq!(
                        mask(&found),
                        resident & !(requested & !read),
                        "{resident:b} {requested:b} {read:b}: {found:?}"
                    );
                    assert_eq!(mask(&unread(&ahead, &seen)), requested & !read);
                }
            }
        }
    }

    #[test]
    fn ranges_may_overlap_and_come_in_any_order() {
        let resident = [0..40, 60..100].to_vec();
        let requested = [70..90, 10..30, 20..50];
        assert_eq!(
            used(resident, &requested, &[25..28, 80..200]),
            [0..10, 25..28, 60..70, 80..100]
        );
    }
}
