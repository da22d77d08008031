//! The table of pages: from a page to a number, of its frame or of its name.
//!
//! ```text
//!   bucket, a cache line:  [ e0 | e1 | e2 | e3 | e4 | e5 | e6 | overflow ]
//!   entry:                 tag (32 bits) | number + 1 (32 bits)      0: none
//!
//!   home(page) --> bucket --full, overflow += 1--> next bucket --> ...
//! ```
//!
//! An entry lies in the first bucket from its home on that had room when it was inserted. Each
//! bucket counts the entries that overflowed it; a search goes on only where there is any. So what
//! is removed leaves nothing behind, however often pages come and go, and neighbours in a file may
//! share a bucket ([`page_hash`]): what is read in order finds the next pages in a cache
//! line that it has. The index that hits use (`forerun-io`) is of this shape, in atomic words.
//!
//! The caller knows the page of each number: a tag that is equal is no page that is equal.
//!
//! # Invariants
//! - A page has one entry at most.
//! - Entries never move but when the table grows, and there is room for twice as many as are held:
//!   an insertion always ends, and most end at home.
//! - `overflow` of a bucket is the number of entries that were probed there on their way from
//!   their home to where they lie.
//! - Memory is touched as it is used: a new table is zeros that the system gives.

use alloc::vec;
use alloc::vec::Vec;

use crate::hash::{entry, has_tag, home, number_of, page_hash, tag};
use crate::units::PageId;

/// See the module.
pub(crate) struct PageTable {
    /// The buckets, from the first cache line on.
    words: Vec<u64>,
    /// Words before that.
    skipped: usize,
    buckets: usize,
    len: u32,
    room: u32,
}

type Bucket = [u64; BUCKET_WORDS];

/// Where an entry lies.
#[derive(Clone, Copy)]
struct Place {
    home: usize,
    bucket: usize,
    nth: usize,
}

impl PageTable {
    /// An empty table, with room for `room` entries; it grows beyond.
    pub(crate) fn new(room: u32) -> Self {
        let buckets = (2 * u64::from(room)).div_ceil(BUCKET_ENTRIES as u64).max(1);
        let buckets = usize::try_from(buckets).expect("no more than there are entries");
        let words = vec![0; buckets * BUCKET_WORDS + BUCKET_WORDS - 1];
        // Where the first line cannot be told, entries are found all the same.
        let skipped = words.as_ptr().align_offset(size_of::<Bucket>()).min(BUCKET_WORDS - 1);
        Self { words, skipped, buckets, len: 0, room }
    }

    /// Entries.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Buckets.
    #[cfg(test)]
    pub(crate) fn buckets(&self) -> usize {
        self.buckets
    }

    /// The number of `page`; `page_of` tells the page of a number.
    #[inline]
    pub(crate) fn find(&self, page: PageId, page_of: impl Fn(u32) -> PageId) -> Option<u32> {
        self.locate(page, page_of).map(|found| found.1)
    }

    /// Gives `page`, which has no entry, the number `number`.
    pub(crate) fn insert(&mut self, page: PageId, number: u32, page_of: impl Fn(u32) -> PageId) {
        assert!(self.find(page, &page_of).is_none(), "{page:?} has a number already");
        if self.len == self.room {
            self.grow(page_of);
        }
        self.place(page_hash(page), number);
        self.len += 1;
    }

    /// Removes the entry of `page`, and gives the number that it had.
    pub(crate) fn remove(&mut self, page: PageId, page_of: impl Fn(u32) -> PageId) -> Option<u32> {
        let (place, number) = self.locate(page, page_of)?;
        self.clear(place);
        Some(number)
    }

    fn locate(&self, page: PageId, page_of: impl Fn(u32) -> PageId) -> Option<(Place, u32)> {
        if self.len == 0 {
            return None; // Memory that was never written is not read either.
        }
        let hash = page_hash(page);
        let (home, tag) = (home(hash, self.buckets), tag(hash));
        let all = self.lines();
        for bucket in probe(home, self.buckets) {
            let entries = &all[bucket];
            let mut matches = matching(entries, tag);
            while matches != 0 {
                let nth = matches.trailing_zeros() as usize;
                matches &= matches - 1;
                if let Some(number) = number_of(entries[nth])
                    && page_of(number) == page
                {
                    return Some((Place { home, bucket, nth }, number));
                }
            }
            if entries[OVERFLOW] == 0 {
                return None;
            }
        }
        None
    }

    fn place(&mut self, hash: u64, number: u32) {
        let (home, entry) = (home(hash, self.buckets), entry(hash, number));
        for at in probe(home, self.buckets) {
            let bucket = self.line_mut(at);
            if let Some(free) = bucket[..BUCKET_ENTRIES].iter_mut().find(|entry| **entry == 0) {
                *free = entry;
                return;
            }
            bucket[OVERFLOW] += 1;
        }
        unreachable!("{number} is one of more entries than there is room for");
    }

    fn clear(&mut self, Place { home, bucket, nth }: Place) {
        self.line_mut(bucket)[nth] = 0;
        for at in probe(home, self.buckets).take_while(|at| *at != bucket) {
            let overflow = &mut self.line_mut(at)[OVERFLOW];
            assert!(*overflow > 0, "as many leave as came");
            *overflow -= 1;
        }
        self.len -= 1;
    }

    #[cold]
    fn grow(&mut self, page_of: impl Fn(u32) -> PageId) {
        let mut larger = Self::new(self.room.saturating_mul(2).max(ROOM_MIN));
        for bucket in self.lines() {
            for number in bucket[..BUCKET_ENTRIES].iter().copied().filter_map(number_of) {
                larger.place(page_hash(page_of(number)), number);
            }
        }
        larger.len = self.len;
        *self = larger;
    }

    #[inline]
    fn lines(&self) -> &[Bucket] {
        &self.words[self.skipped..].as_chunks().0[..self.buckets]
    }

    #[inline]
    fn line_mut(&mut self, at: usize) -> &mut Bucket {
        &mut self.words[self.skipped..].as_chunks_mut().0[at]
    }
}

/// All buckets, from `home` on.
#[inline]
fn probe(home: usize, buckets: usize) -> impl Iterator<Item = usize> {
    (home..buckets).chain(0..home)
}

/// Which entries have this tag, a bit each. All are compared, since where among them a page stands
/// cannot be predicted.
#[inline]
fn matching(bucket: &Bucket, tag: u32) -> u32 {
    let entries = bucket[..BUCKET_ENTRIES].iter().enumerate();
    let bits = entries.map(|(at, entry)| u32::from(has_tag(*entry, tag)) << at);
    bits.fold(0, |all, bit| all | bit)
}

/// With the count they fill a cache line.
const BUCKET_ENTRIES: usize = 7;
const BUCKET_WORDS: usize = 8;
/// Behind the entries.
const OVERFLOW: usize = BUCKET_ENTRIES;
/// Of a table that grew.
const ROOM_MIN: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;
    use crate::units::FileId;
    use std::collections::BTreeSet;

    fn page(number: u64) -> PageId {
        // Neighbours, and pages far apart, of three files.
        let file = FileId(u32::try_from(number % 3).unwrap());
        PageId { file, index: number / 3 * (1 + number % 2 * 1_000_000_007) }
    }

    fn overflow(table: &PageTable) -> u64 {
        table.lines().iter().map(|bucket| bucket[OVERFLOW]).sum()
    }

    #[test]
    fn it_does_what_a_map_does_while_it_fills_grows_and_empties() {
        for (room, names) in [(0, 12), (1, 5), (7, 40), (64, 100), (64, 3_000)] {
            let mut prng = Prng::new(names);
            let mut table = PageTable::new(room);
            let mut twin = BTreeSet::new();
            let page_of = |number: u32| page(u64::from(number));
            for _ in 0..20_000 {
                let name = prng.below(names);
                let number = u32::try_from(name).unwrap();
                let known = twin.contains(&name).then_some(number);
                assert_eq!(table.find(page(name), page_of), known, "{name} of {names}");
                if known.is_none() && prng.chance(60) {
                    table.insert(page(name), number, page_of);
                    twin.insert(name);
                } else {
                    assert_eq!(table.remove(page(name), page_of), known);
                    twin.remove(&name);
                }
                assert_eq!(table.len() as usize, twin.len());
            }
            for name in twin {
                assert_eq!(table.remove(page(name), page_of).map(u64::from), Some(name));
            }
            assert_eq!(overflow(&table), 0, "nothing stays behind what is removed");
            assert!(table.lines().iter().flatten().all(|word| *word == 0));
        }
    }

    #[test]
    fn entries_of_a_full_bucket_go_on_around_the_end() {
        let mut table = PageTable::new(12); // 4 buckets
        let hash = u64::MAX;
        for number in 0..12 {
            table.place(hash, number);
        }
        table.len = 12;
        assert_eq!(table.lines().iter().map(|b| b[OVERFLOW]).collect::<Vec<_>>(), [0, 0, 0, 5]);
        let last = Place { home: 3, bucket: 0, nth: 4 };
        assert_eq!(number_of(table.lines()[last.bucket][last.nth]), Some(11));
        table.clear(last);
        assert_eq!(overflow(&table), 4);
        table.clear(Place { home: 3, bucket: 3, nth: 0 });
        assert_eq!(overflow(&table), 4, "it lay at home");
        table.place(hash, 11);
        assert_eq!((overflow(&table), number_of(table.lines()[3][0])), (4, Some(11)));
    }

    #[test]
    fn pages_of_one_tag_and_bucket_are_told_apart() {
        let pages = [506_704, 607_513].map(|index| PageId { file: FileId(0), index });
        assert_eq!(tag(page_hash(pages[0])), tag(page_hash(pages[1])));
        let page_of = |number: u32| pages[number as usize];
        let mut table = PageTable::new(3); // 1 bucket
        table.insert(pages[0], 0, page_of);
        assert_eq!(table.find(pages[1], page_of), None);
        table.insert(pages[1], 1, page_of);
        assert_eq!(pages.map(|page| table.find(page, page_of)), [Some(0), Some(1)]);
        assert_eq!(table.remove(pages[1], page_of), Some(1));
        assert_eq!(pages.map(|page| table.find(page, page_of)), [Some(0), None]);
    }

    #[test]
    fn pages_of_one_file_lie_at_home_whatever_the_room() {
        for room in [16, 100, 360, 4_096, 1 << 16] {
            for stride in [1, 2, 3, 4, 64] {
                let mut table = PageTable::new(room);
                let page_of =
                    |number: u32| PageId { file: FileId(7), index: u64::from(number) * stride };
                for number in 0..room {
                    table.insert(page_of(number), number, page_of);
                }
                let away = overflow(&table);
                assert!(away * 8 <= u64::from(room), "{away} of {room}, stride {stride}");
            }
        }
    }
}
