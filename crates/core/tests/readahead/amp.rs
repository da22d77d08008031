//! `amp`: decisions worked out by hand, and a twin that restates the paper plainly: a record a
//! stream, never forgotten, and the pages in a map that says whose they are.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::vec::Vec;

use forerun_core::prng::Prng;

use crate::contract::sequence;
use crate::tables::{Expected, FAR, check, pages};
use crate::walk::{AHEAD_PAGES_MAX, Op, PAGE_BYTES, Row, Walk};

#[test]
fn a_stream_is_found_by_the_page_before_it_and_grows_by_a_read_a_set() {
    #[rustfmt::skip]
    check("by misses up to 4 pages, then by markers", "amp", FAR, &pages(10..=39), &[
        (0, "random", 10, 10, 1, 0), (1, "sync", 11, 11, 2, 0), (3, "sync", 13, 13, 3, 0),
        (6, "sync", 16, 16, 4, 0), (10, "sync", 20, 20, 5, 0), (15, "sync", 25, 25, 6, 3),
        (18, "async", 28, 31, 5, 3), (23, "async", 33, 36, 6, 3), (29, "async", 39, 42, 7, 3),
    ]);
}

#[test]
fn larger_reads_begin_with_markers_and_grow_by_their_size() {
    let reads = |late: [bool; 7]| {
        let read = |(at, late)| if late { Op::Late(0, at, 8) } else { Op::Read(0, at, 8) };
        (1..).map(|at| 8 * at).zip(late).map(read).collect::<Vec<_>>()
    };
    let begun: [Expected; 4] = [
        (0, "random", 8, 8, 8, 0),
        (1, "sync", 16, 16, 16, 3),
        (2, "async", 29, 32, 8, 3),
        (3, "async", 37, 40, 16, 3),
    ];
    let (no, yes) = (false, true);
    #[rustfmt::skip]
    let rows: [(&str, [bool; 7], Expected); 3] = [
        ("in time",                   [no, no, no, no, no, no, no],  (5, "async", 53, 56, 24, 3)),
        ("late on a set's first page", [no, no, no, no, yes, no, no], (5, "async", 53, 56, 24, 11)),
        ("late on another page",      [no, no, no, no, no, yes, no], (5, "async", 53, 56, 24, 3)),
    ];
    for (why, late, next) in rows {
        let expected: Vec<_> = begun.into_iter().chain([next]).collect();
        check(why, "amp", FAR, &reads(late), &expected);
    }
}

#[test]
fn what_leaves_unused_makes_sets_smaller_and_markers_later() {
    let begun: [Expected; 2] = [(0, "random", 8, 8, 8, 0), (1, "sync", 16, 16, 16, 3)];
    let after = |ops: &[Op]| {
        let begun = [Op::Read(0, 8, 8), Op::Read(0, 16, 8)];
        begun.iter().chain(ops).copied().collect::<Vec<_>>()
    };
    #[rustfmt::skip]
    let rows: [(&str, Vec<Op>, &[Expected]); 4] = [
        ("4 pages: no marker, until a set is used",
            after(&[Op::Drop(28, 31), Op::Read(0, 24, 8), Op::Read(0, 32, 8)]),
            &[(3, "sync", 28, 28, 8, 0), (4, "sync", 36, 36, 16, 3)]),
        ("1 page, and an older set's marker is nobody's",
            after(&[Op::Drop(24, 24), Op::Read(0, 24, 1), Op::Read(0, 25, 7)]),
            &[(3, "sync", 24, 24, 8, 2), (4, "async", 29, 32, 7, 2)]),
        ("all pages: one is left, and used at once",
            after(&[Op::Drop(24, 31), Op::Read(0, 24, 1), Op::Read(0, 25, 1), Op::Read(0, 26, 1)]),
            &[(3, "sync", 24, 24, 2, 0), (5, "sync", 26, 26, 3, 0)]),
        ("used pages: nothing", after(&[Op::Drop(8, 20), Op::Read(0, 24, 8)]),
            &[(3, "async", 29, 32, 8, 3)]),
    ];
    for (why, ops, more) in rows {
        let expected: Vec<_> = begun.iter().chain(more).copied().collect();
        check(why, "amp", FAR, &ops, &expected);
    }
}

/// Why, policy, pages of the file, what is read, what is decided.
type Case<'a> = (&'a str, &'a str, u64, &'a [Op], &'a [Expected]);

#[test]
fn sets_end_with_the_file_and_with_what_may_be_asked() {
    #[rustfmt::skip]
    let rows: [Case; 4] = [
        ("nothing is left", "amp", 14, &pages(10..14), &[
            (0, "random", 10, 10, 1, 0), (1, "sync", 11, 11, 2, 0), (3, "sync", 13, 13, 1, 0)]),
        ("nothing is left at the marker", "amp", 32,
            &[Op::Read(0, 8, 8), Op::Read(0, 16, 8), Op::Read(0, 24, 8)], &[
            (0, "random", 8, 8, 8, 0), (1, "sync", 16, 16, 16, 3)]),
        ("the largest set", "amp:max=8K", FAR, &pages(10..=14), &[
            (0, "random", 10, 10, 1, 0), (1, "sync", 11, 11, 2, 0), (3, "sync", 13, 13, 2, 0)]),
        ("requests beyond it", "amp:max=8K", FAR, &[Op::Read(0, 10, 3), Op::Read(0, 13, 3)],
            &[(0, "random", 10, 10, 3, 0), (1, "sync", 13, 13, 3, 0)]),
    ];
    for (why, spec, file_pages, ops, expected) in rows {
        check(why, spec, file_pages, ops, expected);
    }
}

#[test]
fn the_head_of_a_file_is_read_as_asked() {
    #[rustfmt::skip]
    check("no page is before it", "amp", FAR, &pages(0..=2), &[
        (0, "random", 0, 0, 1, 0), (1, "sync", 1, 1, 2, 0),
    ]);
}

#[test]
fn a_stream_that_is_forgotten_begins_again() {
    let ops = pages([10, 11, 50, 51, 12, 13]);
    for (streams, size) in [(0, 2), (1, 2), (2, 3)] {
        #[rustfmt::skip]
        check("as many as are remembered", &format!("amp:streams={streams}"), FAR, &ops, &[
            (0, "random", 10, 10, 1, 0), (1, "sync", 11, 11, 2, 0), (2, "random", 50, 50, 1, 0),
            (3, "sync", 51, 51, 2, 0), (5, "sync", 13, 13, size, 0),
        ]);
    }
}

#[test]
fn who_was_met_of_late_is_remembered() {
    // The third stream takes the place of the first, and the fourth that of the third: the second
    // was met in between.
    let ops = pages([10, 11, 20, 21, 30, 31, 22, 40, 41, 23]);
    let walk = Walk::run("amp:streams=2", FAR, &ops);
    let last = walk.rows.last().map(|row| (row.op, row.cause, row.start, row.size));
    assert_eq!(last, Some((9, "sync", 23, 3)));
}

struct Record {
    p: i64,
    g: i64,
    readsize: i64,
    /// First page, first page ahead, last page.
    set: (i64, i64, i64),
    last_before: i64,
}

/// A page that a stream's set brought.
struct Page {
    stream: Option<usize>,
    unused: bool,
    tag: bool,
}

#[derive(Default)]
struct Controller {
    max: i64,
    file: i64,
    records: Vec<Record>,
    cache: BTreeMap<i64, Page>,
    rows: Vec<Row>,
}

const APT: i64 = 4;

impl Controller {
    fn bring(
        &mut self,
        op: usize,
        cause: &'static str,
        page: i64,
        asked: i64,
        (start, end): (i64, i64),
        (stream, tag): (Option<usize>, Option<i64>),
    ) {
        let mut fresh = Vec::new();
        for one in start..end {
            if let Entry::Vacant(place) = self.cache.entry(one) {
                let unused = !(page <= one && one < asked);
                place.insert(Page { stream, unused, tag: false });
                fresh.push(u64::try_from(one).unwrap());
            }
        }
        if let Some(tag) = tag {
            let tagged = self.cache.get_mut(&tag).expect("of the set, or there before");
            tagged.tag = true;
            tagged.stream = stream;
        }
        self.rows.push(Row {
            op,
            cause,
            page: u64::try_from(page).unwrap(),
            start: u64::try_from(start).unwrap(),
            size: u32::try_from(end - start).unwrap(),
            async_size: u32::try_from(tag.map_or(0, |tag| end - tag)).unwrap(),
            fresh,
        });
    }

    fn ahead(&self, stream: usize, from: i64) -> i64 {
        let unused = self.cache.values().filter(|page| page.unused).count();
        let room = i64::from(AHEAD_PAGES_MAX) - i64::try_from(unused).unwrap();
        self.records[stream].p.min(room).min(self.file - from).max(0)
    }

    /// The page of the tag in a set that ends before `end`, `ahead` pages of it unasked.
    fn tag(&self, stream: usize, ahead: i64, end: i64) -> Option<i64> {
        let record = &self.records[stream];
        (record.p > APT && ahead > 0).then(|| end - 1 - record.g.min(ahead - 1))
    }

    fn miss(&mut self, op: usize, page: i64, end: i64, opens: bool) {
        let before = self.cache.get(&(page - 1));
        let Some(before) = before else {
            return self.bring(op, "random", page, end, (page, end), (None, None));
        };
        let r = end - page;
        let stream = before.stream.unwrap_or_else(|| {
            let p = r.min(self.max);
            let g = if p > APT { APT / 2 } else { 0 };
            self.records.push(Record { p, g, readsize: p, set: (0, 0, 0), last_before: 0 });
            self.records.len() - 1
        });
        if opens {
            self.records[stream].readsize = r;
        }
        let ahead = self.ahead(stream, end).min((self.max - r).max(0));
        self.records[stream].last_before = self.records[stream].set.2;
        self.records[stream].set = (page, end, end + ahead - 1);
        let tag = self.tag(stream, ahead, end + ahead);
        self.bring(op, "sync", page, end, (page, end + ahead), (Some(stream), tag));
    }

    fn hit(&mut self, op: usize, page: i64, end: i64, opens: bool, (busy, late): (bool, bool)) {
        let there = self.cache.get_mut(&page).expect("it was just brought");
        let (unused, tag) = (there.unused, there.tag);
        (there.unused, there.tag) = (false, false);
        let Some(stream) = there.stream else { return };
        let record = &mut self.records[stream];
        if unused {
            let before = record.p;
            if late && before > APT && page == record.set.1 {
                record.g = (record.g + record.readsize).min(self.max - 1);
                record.p = record.p.max(record.g + 1);
            }
            if page == record.set.2 || page == record.last_before {
                record.p = (record.p + record.readsize).min(self.max);
            }
            if before <= APT && record.p > APT {
                record.g = APT / 2;
            }
        }
        if !tag || busy || page < record.set.0 || record.set.2 < page {
            return;
        }
        if opens {
            record.readsize = end - page;
        }
        let start = record.set.2 + 1;
        let ahead = self.ahead(stream, start);
        if ahead > 0 {
            self.records[stream].last_before = start - 1;
            self.records[stream].set = (start, start, start + ahead - 1);
            let tag = self.tag(stream, ahead, start + ahead);
            self.bring(op, "async", page, end, (start, start + ahead), (Some(stream), tag));
        }
    }

    fn evict(&mut self, first: u64, last: u64) {
        let range = i64::try_from(first).unwrap()..=i64::try_from(last).unwrap();
        let pages: BTreeSet<i64> = self.cache.range(range).map(|(&page, _)| page).collect();
        for page in pages {
            let left = self.cache.remove(&page).expect("it is there");
            if let (Some(stream), true) = (left.stream, left.unused) {
                let record = &mut self.records[stream];
                record.p = (record.p - 1).max(1);
                record.g = (record.g - 1).min(record.p - 1).max(0);
            }
        }
    }

    fn run(&mut self, ops: &[Op]) {
        for (op, &what) in ops.iter().enumerate() {
            match what {
                Op::Read(_, first, count)
                | Op::Busy(_, first, count)
                | Op::Late(_, first, count) => {
                    let first = i64::try_from(first).unwrap();
                    let end = self.file.min(first + i64::from(count));
                    let how = (matches!(what, Op::Busy(..)), matches!(what, Op::Late(..)));
                    for page in first..end {
                        if !self.cache.contains_key(&page) {
                            self.miss(op, page, end, page == first);
                        }
                        self.hit(op, page, end, page == first, how);
                    }
                }
                Op::Drop(first, last) => self.evict(first, last),
                Op::Wait(_) | Op::Reopen(_) => {}
            }
        }
    }
}

#[test]
fn amp_decides_as_its_paper() {
    let mut markers = 0;
    for seed in 0..3_000 {
        let mut prng = Prng::new(seed);
        let max = [1, 3, 8, 30, 1_000][usize::try_from(prng.below(5)).unwrap()];
        let file = 1 + prng.below(400);
        let ops = sequence(&mut prng, file);
        let spec = format!("amp:max={}", max * PAGE_BYTES);
        let mut twin = Controller {
            max: i64::from(max),
            file: i64::try_from(file).unwrap(),
            ..Controller::default()
        };
        twin.run(&ops);
        let walk = Walk::run(&spec, file, &ops);
        for (ours, theirs) in walk.rows.iter().zip(&twin.rows) {
            assert_eq!(ours, theirs, "seed {seed}, {spec}, {file} pages: {ops:?}");
        }
        assert_eq!(walk.rows.len(), twin.rows.len(), "seed {seed}, {spec}: {ops:?}");
        markers += walk.rows.iter().filter(|row| row.cause == "async").count();
    }
    assert!(markers > 1_000, "{markers} sets at a marker");
}
