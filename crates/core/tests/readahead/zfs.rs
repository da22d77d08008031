//! `zfs`: decisions worked out by hand, and a twin that restates `OpenZFS` in its own words: a list
//! of streams, newest first, with times as signed numbers and the last block's number for an end.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use forerun_core::prng::Prng;
use forerun_core::readahead::{self, Demand, Trigger};
use forerun_core::units::{FileId, HandleId};

use crate::contract::sequence;
use crate::tables::{FAR, check, demand, pages};
use crate::walk::{Op, PAGE_BYTES, Row, Walk};

/// Operation, start and size of what was read ahead.
type Ahead = (usize, u64, u32);

fn ahead(spec: &str, file_pages: u64, ops: &[Op]) -> Vec<Ahead> {
    let walk = Walk::run(spec, file_pages, ops);
    let rows = walk.rows.iter().filter(|row| row.cause == "ahead");
    rows.map(|row| (row.op, row.start, row.size)).collect()
}

#[test]
fn a_distance_doubles_to_its_least_and_grows_by_an_eighth_when_late() {
    let mut ops = pages(0..=8);
    ops[6] = Op::Late(0, 6, 1);
    #[rustfmt::skip]
    check("doubled, kept, and more after a late page", "zfs:min=32K,max=64K", FAR, &ops, &[
        (0, "random", 0, 0, 1, 0),
        (1, "random", 1, 1, 1, 0), (1, "ahead", 1, 2, 1, 0),
        (2, "random", 2, 2, 1, 0), (2, "ahead", 2, 3, 2, 0),
        (3, "random", 3, 3, 1, 0), (3, "ahead", 3, 5, 3, 0),
        (4, "random", 4, 4, 1, 0), (4, "ahead", 4, 8, 5, 0),
        (5, "random", 5, 5, 1, 0), (5, "ahead", 5, 13, 1, 0),
        (6, "random", 6, 6, 1, 0), (6, "ahead", 6, 14, 1, 0),
        (7, "random", 7, 7, 1, 0), (7, "ahead", 7, 15, 2, 0),
        (8, "random", 8, 8, 1, 0), (8, "ahead", 8, 17, 1, 0),
    ]);
}

#[test]
fn a_distance_is_no_less_than_an_access_and_no_more_than_the_largest() {
    #[rustfmt::skip]
    let rows: [(&str, &str, &[Op], &[Ahead]); 3] = [
        ("begins with the access", "zfs:min=32K,max=256K",
            &[Op::Read(0, 10, 3), Op::Read(0, 13, 5), Op::Read(0, 18, 5)],
            &[(1, 18, 5), (2, 23, 10)]),
        ("a larger access", "zfs:min=32K,max=256K",
            &[Op::Read(0, 10, 1), Op::Read(0, 11, 1), Op::Read(0, 12, 20)],
            &[(1, 12, 1), (2, 32, 20)]),
        ("the largest", "zfs:min=32K,max=40K",
            &[Op::Read(0, 10, 6), Op::Read(0, 16, 6), Op::Read(0, 22, 6)],
            &[(1, 22, 6), (2, 28, 10)]),
    ];
    for (why, spec, ops, expected) in rows {
        assert_eq!(ahead(spec, FAR, ops), expected, "{why}");
    }
}

#[test]
fn reads_that_share_a_page_are_one_stream() {
    #[rustfmt::skip]
    check("its last page once more", "zfs:max=64K", FAR,
        &[Op::Read(0, 10, 2), Op::Read(1, 11, 2), Op::Read(0, 12, 1), Op::Read(0, 11, 1)], &[
        (0, "random", 10, 10, 2, 0), (1, "random", 11, 11, 2, 0), (1, "ahead", 11, 13, 1, 0),
    ]);
}

#[test]
fn streams_that_alternate_are_told_apart() {
    let ops = pages([100, 500, 101, 501, 102, 502]);
    let expected = [(2, 102, 1), (3, 502, 1), (4, 103, 2), (5, 503, 2)];
    assert_eq!(ahead("zfs:max=64K", FAR, &ops), expected);
}

#[test]
fn a_stream_ends_before_the_last_page_of_its_file() {
    let walk = Walk::run("zfs:min=32K,max=64K", 10, &pages(0..=9));
    let rows: Vec<_> =
        walk.rows.iter().map(|row| (row.op, row.cause, row.start, row.size)).collect();
    #[rustfmt::skip]
    assert_eq!(rows, [
        (0, "random", 0, 1), (1, "random", 1, 1), (1, "ahead", 2, 1), (2, "random", 2, 1),
        (2, "ahead", 3, 2), (3, "random", 3, 1), (3, "ahead", 5, 3), (4, "random", 4, 1),
        (4, "ahead", 8, 2), (5, "random", 5, 1), (6, "random", 6, 1), (7, "random", 7, 1),
    ]);
}

#[test]
fn nothing_is_read_ahead_of_a_stream_that_never_missed() {
    let mut ops = Vec::from([Op::Read(1, 0, 50)]);
    ops.extend(pages(0..=50));
    assert_eq!(ahead("zfs:min=32K,max=64K", FAR, &ops), [(51, 51, 8)]);
}

#[test]
fn old_streams_give_way_and_met_ones_stay_a_second() {
    let after = |wait: &[Op], next: &[u64]| {
        let mut ops = pages([100, 101, 200, 201]);
        ops.extend(wait);
        ops.extend(pages(next.iter().copied()));
        ops
    };
    let second = [Op::Wait(1_000)];
    #[rustfmt::skip]
    let rows: [(&str, &str, Vec<Op>, &[Ahead]); 8] = [
        ("never met: the latest of them gives way", "zfs:max=64K,streams=2",
            pages([100, 200, 300, 201, 101]), &[(4, 102, 1)]),
        ("both are young: no third", "zfs:max=64K,streams=2", after(&[], &[300, 301]),
            &[(1, 102, 1), (3, 202, 1)]),
        ("almost a second", "zfs:max=64K,streams=2", after(&[Op::Wait(999)], &[300, 301]),
            &[(1, 102, 1), (3, 202, 1)]),
        ("one of a second gives way", "zfs:max=64K,streams=2", after(&second, &[300, 301, 202]),
            &[(1, 102, 1), (3, 202, 1), (6, 302, 1)]),
        ("the other one stays", "zfs:max=64K,streams=2", after(&second, &[300, 301, 102]),
            &[(1, 102, 1), (3, 202, 1), (6, 302, 1), (7, 103, 2)]),
        ("no streams count as one", "zfs:max=64K,streams=0", pages([100, 101, 200, 201, 102]),
            &[(1, 102, 1), (4, 103, 2)]),
        ("kept for two seconds", "zfs:max=64K", after(&[Op::Wait(1_999)], &[300, 102]),
            &[(1, 102, 1), (3, 202, 1), (6, 103, 2)]),
        ("and no longer", "zfs:max=64K", after(&[Op::Wait(2_000)], &[300, 102]),
            &[(1, 102, 1), (3, 202, 1)]),
    ];
    for (why, spec, ops, expected) in rows {
        assert_eq!(ahead(spec, FAR, &ops), expected, "{why}");
    }
}

#[test]
fn a_small_file_has_as_many_streams_as_largest_distances() {
    let ops = pages([3, 4, 13, 14, 23, 24]);
    for (file_pages, expected) in [(48, 2), (49, 3)] {
        assert_eq!(ahead("zfs:max=64K", file_pages, &ops).len(), expected, "{file_pages} pages");
    }
}

#[test]
fn a_busy_device_puts_it_off_to_the_next_access() {
    let ops = [Op::Read(0, 0, 1), Op::Busy(0, 1, 1), Op::Read(0, 2, 1)];
    assert_eq!(ahead("zfs:max=64K", FAR, &ops), [(2, 3, 2)]);
}

#[test]
fn what_there_is_no_room_for_is_read_with_a_later_access() {
    let mut policy = readahead::make("zfs", PAGE_BYTES).expect("a good spec").policy;
    let mut ask = |first, count, ahead_room| {
        let demand = Demand { ahead_room, ..demand(Trigger::Request, first, count) };
        let asked = policy.decide(&demand)?;
        let ahead = policy.submitted(&demand, asked, count)?;
        assert_eq!(policy.submitted(&demand, ahead, ahead.window.size), None);
        Some((ahead.window.start, ahead.window.size))
    };
    assert_eq!(ask(0, 8, 100), None);
    assert_eq!(ask(8, 8, 3), Some((16, 3)));
    assert_eq!(ask(16, 1, 0), None);
    assert_eq!(ask(17, 1, 100), Some((19, 31)));
}

#[test]
fn streams_outlive_a_handle_but_not_the_last_one() {
    let ask = |others: u32| {
        let mut policy = readahead::make("zfs", PAGE_BYTES).expect("a good spec").policy;
        for handle in 0..=others {
            policy.open(HandleId(handle), FileId(0));
        }
        assert_eq!(policy.decide(&demand(Trigger::Request, 0, 1)), None);
        policy.close(HandleId(0));
        policy.open(HandleId(0), FileId(0));
        policy.decide(&demand(Trigger::Request, 1, 1)).is_some()
    };
    assert_eq!((ask(0), ask(1)), (false, true));
}

#[derive(Clone)]
struct Zstream {
    id: usize,
    blkid: i64,
    pf_start: i64,
    pf_end: i64,
    dist: i64,
    atime: i64,
    missed: bool,
    more: bool,
}

/// The file system's side: the cache, the streams of one file, and a clock in milliseconds.
#[derive(Default)]
struct Fetcher {
    min: i64,
    max: i64,
    streams_max: usize,
    file: i64,
    now: i64,
    made: usize,
    /// The newest first.
    streams: Vec<Zstream>,
    there: BTreeSet<i64>,
    /// What was prefetched and not used, and for which stream.
    unused: BTreeMap<i64, usize>,
    rows: Vec<Row>,
}

impl Fetcher {
    fn prepare(&mut self, mut blkid: i64, mut nblks: i64) -> Option<usize> {
        let last = self.file - 1;
        let found = self.streams.iter().position(|s| s.blkid == blkid || s.blkid == blkid + 1);
        if found.is_some_and(|at| self.streams[at].blkid != blkid) {
            blkid += 1;
            nblks -= 1;
        }
        if blkid + nblks >= last {
            found.map(|at| self.streams.remove(at));
            return None;
        }
        if nblks == 0 {
            return None;
        }
        let Some(at) = found else {
            self.create(blkid + nblks);
            return None;
        };
        let stream = &mut self.streams[at];
        let bytes = nblks * i64::from(PAGE_BYTES);
        if stream.dist < bytes {
            stream.dist = bytes;
        } else if stream.dist < self.min {
            stream.dist *= 2;
        } else if stream.more {
            stream.dist += stream.dist / 8;
        }
        stream.more = false;
        stream.dist = stream.dist.min(self.max);
        let end = blkid + nblks;
        stream.pf_start = stream.pf_start.max(end);
        stream.pf_end = stream.pf_end.max(end + stream.dist / i64::from(PAGE_BYTES));
        stream.blkid = end;
        stream.atime = self.now;
        Some(at)
    }

    fn create(&mut self, blkid: i64) {
        let expired = self.now - 2_000;
        self.streams.retain(|stream| stream.atime > expired);
        let bytes = (self.file - 1) * i64::from(PAGE_BYTES);
        let fits = usize::try_from(bytes / self.max).unwrap();
        if self.streams.len() >= self.streams_max.min(fits).max(1) {
            let mut old: Option<usize> = None;
            for (at, stream) in self.streams.iter().enumerate() {
                let older = old.is_none_or(|old| stream.atime < self.streams[old].atime);
                if stream.atime <= self.now - 1_000 && older {
                    old = Some(at);
                }
            }
            let Some(at) = old else { return };
            self.streams.remove(at);
        }
        let id = self.made;
        self.made += 1;
        let (atime, dist) = (self.now - 1_000, 0);
        let (pf_start, pf_end) = (blkid, blkid);
        let stream =
            Zstream { id, blkid, pf_start, pf_end, dist, atime, missed: false, more: false };
        self.streams.insert(0, stream);
    }

    fn fetch(&mut self, op: usize, cause: &'static str, page: i64, first: i64, end: i64) -> usize {
        let fresh: Vec<i64> = (first..end).filter(|&one| self.there.insert(one)).collect();
        self.rows.push(Row {
            op,
            cause,
            page: u64::try_from(page).unwrap(),
            start: u64::try_from(first).unwrap(),
            size: u32::try_from(end - first).unwrap(),
            async_size: 0,
            fresh: fresh.iter().map(|&one| u64::try_from(one).unwrap()).collect(),
        });
        if cause == "ahead" {
            let id = self.streams.iter().find(|s| s.pf_start == end).unwrap().id;
            self.unused.extend(fresh.iter().map(|&one| (one, id)));
        }
        fresh.len()
    }

    fn read(&mut self, op: usize, first: i64, end: i64, busy: bool, late: bool) {
        if let Some(at) = self.prepare(first, end - first) {
            let fresh = self.fetch(op, "random", first, first, end);
            let file = self.file;
            let stream = &mut self.streams[at];
            stream.missed |= fresh > 0;
            let (from, to) = (stream.pf_start, stream.pf_end.min(file));
            if stream.missed && !busy && from < to {
                stream.pf_start = to;
                self.fetch(op, "ahead", first, from, to);
            }
        }
        for page in first..end {
            if !self.there.contains(&page) {
                self.fetch(op, "random", page, page, end);
            }
            let owner = self.unused.remove(&page).filter(|_| late);
            if let Some(stream) = self.streams.iter_mut().find(|s| Some(s.id) == owner) {
                stream.more = true;
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
                    let (busy, late) = (matches!(what, Op::Busy(..)), matches!(what, Op::Late(..)));
                    if first < end {
                        self.read(op, first, end, busy, late);
                    }
                }
                Op::Wait(millis) => self.now += i64::try_from(millis).unwrap(),
                Op::Reopen(_) => {}
                Op::Drop(first, last) => {
                    let dropped = i64::try_from(first).unwrap()..=i64::try_from(last).unwrap();
                    self.there.retain(|page| !dropped.contains(page));
                    self.unused.retain(|page, _| !dropped.contains(page));
                }
            }
        }
    }
}

#[test]
fn zfs_decides_as_its_file_system() {
    let mut ahead = 0;
    for seed in 0..3_000 {
        let mut prng = Prng::new(seed);
        let pages = [1, 4, 10, 64][usize::try_from(prng.below(4)).unwrap()];
        let (min, max) = (1 + prng.below(pages), pages);
        let streams = 1 + prng.below(4);
        let large = prng.chance(50);
        let file = 1 + prng.below(if large { 400 } else { 20 });
        let ops = sequence(&mut prng, file);
        let page = u64::from(PAGE_BYTES);
        let spec = format!("zfs:min={},max={},streams={streams}", min * page, max * page);
        let mut twin = Fetcher {
            min: i64::try_from(min * page).unwrap(),
            max: i64::try_from(max * page).unwrap(),
            streams_max: usize::try_from(streams).unwrap(),
            file: i64::try_from(file).unwrap(),
            ..Fetcher::default()
        };
        twin.run(&ops);
        let walk = Walk::run(&spec, file, &ops);
        for (ours, theirs) in walk.rows.iter().zip(&twin.rows) {
            assert_eq!(ours, theirs, "seed {seed}, {spec}, {file} pages: {ops:?}");
        }
        assert_eq!(walk.rows.len(), twin.rows.len(), "seed {seed}, {spec}: {ops:?}");
        ahead += walk.rows.iter().filter(|row| row.cause == "ahead").count();
    }
    assert!(ahead > 10_000, "{ahead} windows compared");
}
