//! Ranges that the caller will read, as it said: columns of a table, members of an archive.
//!
//! # Invariants
//! - They are given out in the order in which they were said, each byte once.
//! - At most 65,536 ranges; adjacent ones are one.

use alloc::collections::VecDeque;

use super::RANGE_PAGE_BYTES;

/// See the module.
#[derive(Default)]
pub(super) struct KnownRanges {
    rows: VecDeque<(u64, u64)>,
}

impl KnownRanges {
    /// Adds `start..end`; whether there was room for it.
    pub(super) fn add(&mut self, start: u64, end: u64) -> bool {
        assert!(start < end, "{start}..{end} is a range");
        if let Some(last) = self.rows.back_mut().filter(|last| last.1 == start) {
            last.1 = end;
            return true;
        }
        let has_room = self.rows.len() < RANGES_MAX;
        if has_room {
            self.rows.push_back((start, end));
        }
        has_room
    }

    /// The next bytes to be fetched, of at most `room` bytes of pages; none where the room is less
    /// than a page.
    pub(super) fn next(&mut self, room: u64) -> Option<(u64, u64)> {
        let page = u64::from(RANGE_PAGE_BYTES);
        let first = self.rows.front_mut()?;
        let start = first.0;
        let most = (start / page + room / page) * page;
        let end = first.1.min(most);
        if end <= start {
            return None;
        }
        first.0 = end;
        if end == first.1 {
            self.rows.pop_front();
        }
        Some((start, end))
    }
}

const RANGES_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_given_out_once_in_order_and_within_the_room() {
        let page = u64::from(RANGE_PAGE_BYTES);
        let mut known = KnownRanges::default();
        assert!(known.add(10, 100) && known.add(100, 3 * page) && known.add(7, 8));
        #[rustfmt::skip]
        let rows = [ // room       next
            (page - 1,             None),
            (page,                 Some((10, page))),
            (5 * page,             Some((page, 3 * page))),
            (0,                    None),
            (page,                 Some((7, 8))),
            (page,                 None),
        ];
        for (room, next) in rows {
            assert_eq!(known.next(room), next, "{room}");
        }
    }

    #[test]
    fn ranges_are_bounded() {
        let mut known = KnownRanges::default();
        for at in 0..RANGES_MAX as u64 {
            assert!(known.add(at * 10, at * 10 + 1));
        }
        assert!(!known.add(1 << 40, 1 << 41));
        assert!(known.add(RANGES_MAX as u64 * 10 - 9, 1 << 40), "it goes on from the last one");
    }
}
