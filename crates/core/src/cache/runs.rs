//! Runs of pages that were read: where readahead of one reader comes to what another has read.
//!
//! ```text
//!   |=====read=====> - - ahead - - |=====read=====>
//!    one reader                    another one began here: the first one's part ends
//! ```
//! Readers that share a file by parts each stop where the next one began. What is read ahead beyond
//! was used there before, has left, and would be fetched again in vain. So a window ends where a
//! run begins. A reader that does go on waits once there; then it is within the run, and nothing
//! holds it any more.
//!
//! # Invariants
//! - Runs of a file do not touch; there are at most [`RUNS_MAX`], over all files.
//! - Runs that are shorter than [`RUN_PAGES_MIN`] end no window: to fetch through them costs less
//!   than to wait.

use alloc::collections::BTreeMap;

use crate::units::{FileId, PageIndex};

/// See the module. The end of each run, by its first page.
#[derive(Debug, Default)]
pub(super) struct ReadRuns(BTreeMap<(FileId, PageIndex), PageIndex>);

impl ReadRuns {
    /// Pages `first..end` of `file` were read.
    pub(super) fn add(&mut self, file: FileId, first: PageIndex, end: PageIndex) {
        assert!(first < end, "{first}..{end} has pages");
        let (mut first, mut end) = (first, end);
        let before = self.0.range(..=(file, first)).next_back();
        if let Some((&(_, start), last)) = before.filter(|row| row.0.0 == file && *row.1 >= first) {
            if *last >= end {
                return;
            }
            first = start;
        }
        while let Some((&key, &last)) = self.0.range((file, first)..=(file, end)).next() {
            end = end.max(last);
            self.0.remove(&key);
        }
        if self.0.len() >= RUNS_MAX {
            self.forget();
        }
        self.0.insert((file, first), end);
    }

    /// The first page at or after `from` with which a run begins that ends a window.
    pub(super) fn next(&self, file: FileId, from: PageIndex) -> Option<PageIndex> {
        let rows = self.0.range((file, from)..=(file, PageIndex::MAX));
        let long = rows.take(LOOK_MAX).find(|&(key, &end)| end - key.1 >= RUN_PAGES_MIN);
        long.map(|(key, _)| key.1)
    }

    /// Makes room: short runs go, or all where that is not enough.
    fn forget(&mut self) {
        self.0.retain(|key, end| *end - key.1 >= RUN_PAGES_MIN);
        if self.0.len() > RUNS_MAX / 2 {
            self.0.clear();
        }
    }
}

/// Runs that are kept, over all files.
const RUNS_MAX: usize = 4_096;
/// Runs that are looked at for one window.
const LOOK_MAX: usize = 64;
/// As many pages as a window's history looks back over half of: a few reads.
const RUN_PAGES_MIN: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    type Spans = &'static [(u64, u64)];

    const FILE: FileId = FileId(1);

    #[test]
    fn reads_that_touch_are_one_run_in_any_order() {
        #[rustfmt::skip]
        let rows: [(&str, Spans, Spans); 6] = [
            ("on",               &[(0, 2), (2, 4)],                 &[(0, 4)]),
            ("back",             &[(2, 4), (0, 2)],                 &[(0, 4)]),
            ("within",           &[(0, 9), (2, 4)],                 &[(0, 9)]),
            ("over all",         &[(2, 4), (6, 7), (0, 9)],         &[(0, 9)]),
            ("a bridge",         &[(0, 2), (4, 6), (2, 4)],         &[(0, 6)]),
            ("apart",            &[(0, 2), (4, 6)],                 &[(0, 2), (4, 6)]),
        ];
        for (why, reads, runs) in rows {
            let mut made = ReadRuns::default();
            made.add(FileId(0), 0, 100);
            made.add(FileId(2), 0, 100);
            for &(first, end) in reads {
                made.add(FILE, first, end);
            }
            let found: alloc::vec::Vec<_> = made
                .0
                .iter()
                .filter_map(|(key, &end)| (key.0 == FILE).then_some((key.1, end)))
                .collect();
            assert_eq!(found, runs, "{why}");
        }
    }

    #[test]
    fn a_window_ends_where_the_next_long_run_begins() {
        let mut runs = ReadRuns::default();
        runs.add(FILE, 100, 100 + RUN_PAGES_MIN);
        runs.add(FILE, 50, 50 + RUN_PAGES_MIN - 1);
        runs.add(FileId(2), 0, 100);
        for (from, next) in [(0, Some(100)), (100, Some(100)), (101, None)] {
            assert_eq!(runs.next(FILE, from), next, "{from}");
        }
    }

    #[test]
    fn runs_are_bounded_and_short_ones_go_first() {
        let mut runs = ReadRuns::default();
        runs.add(FILE, 1 << 40, (1 << 40) + RUN_PAGES_MIN);
        for nth in 0..2 * RUNS_MAX as u64 {
            runs.add(FILE, 3 * nth, 3 * nth + 1);
            assert!(runs.0.len() <= RUNS_MAX);
        }
        assert_eq!(runs.next(FILE, 1 << 39), Some(1 << 40));
    }
}
