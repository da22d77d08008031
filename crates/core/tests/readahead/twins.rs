//! Each historic policy against the read path of its kernel, restated plainly: a file's pages as
//! sets, positions as signed numbers with -1 for none, and the cache looked up where the kernel
//! looks it up. Same requests, same decisions, same pages left.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use forerun_core::prng::Prng;

use crate::walk::{Op, PAGE_BYTES, Row, Walk};

/// A file's pages, and what was read of them.
struct Pages {
    file: i64,
    there: BTreeSet<i64>,
    marked: BTreeSet<i64>,
    op: usize,
    busy: bool,
    rows: Vec<Row>,
}

impl Pages {
    /// Reads a window; `tail` places the mark from the window's end, wherever the file ends.
    fn fetch(&mut self, cause: &'static str, page: i64, window: (i64, i64, i64)) -> i64 {
        let (start, size, tail) = window;
        self.fetch_marked(cause, page, window, start + size - tail)
    }

    fn fetch_marked(
        &mut self,
        cause: &'static str,
        page: i64,
        (start, size, tail): (i64, i64, i64),
        mark: i64,
    ) -> i64 {
        let mut fresh = Vec::new();
        for one in start..start + size {
            if one < self.file && self.there.insert(one) {
                fresh.push(u64::try_from(one).unwrap());
                if one == mark {
                    self.marked.insert(one);
                }
            }
        }
        let read = i64::try_from(fresh.len()).unwrap();
        self.rows.push(Row {
            op: self.op,
            cause,
            page: u64::try_from(page).unwrap(),
            start: u64::try_from(start).unwrap(),
            size: u32::try_from(size).unwrap(),
            async_size: u32::try_from(tail).unwrap(),
            fresh,
        });
        read
    }
}

/// What one kernel does for a handle; `state` is what it remembers of that handle.
trait Kernel {
    type State: Clone;
    fn fresh_state(&self) -> Self::State;
    fn read(&self, state: &mut Self::State, pages: &mut Pages, first: i64, end: i64);
}

fn first_size(asked: i64, max: i64) -> i64 {
    let mut power = 1;
    while power < asked {
        power *= 2;
    }
    match () {
        () if power <= max / 32 => power * 4,
        () if power <= max / 4 => power * 2,
        () => max,
    }
}

fn larger(size: i64, max: i64) -> i64 {
    let grown = if size < max / 16 { size * 4 } else { size * 2 };
    grown.min(max)
}

/// The two kernels before context readahead; `recovers` tells 2.6.24 from the patch.
struct Ondemand {
    max: i64,
    recovers: bool,
}

#[derive(Clone)]
struct OneWindow {
    start: i64,
    size: i64,
    tail: i64,
    previous: i64,
}

const NO_WINDOW: OneWindow = OneWindow { start: 0, size: 0, tail: 0, previous: -1 };

impl Ondemand {
    fn demand(&self, ra: &mut OneWindow, pages: &mut Pages, marker: bool, page: i64, asked: i64) {
        let max = self.max;
        let mut cause = if marker { "async" } else { "sync" };
        let end = ra.start + ra.size;
        let distance = page - ra.previous;
        if page != 0 && (page == end - ra.tail || page == end) {
            ra.start = end;
            ra.size = larger(ra.size, max);
            ra.tail = ra.size;
        } else if !marker && asked <= max && distance != 0 && distance != 1 {
            pages.fetch("random", page, (page, asked, 0));
            return;
        } else if marker && self.recovers {
            let mut hole = page;
            while hole - page <= max && pages.there.contains(&hole) {
                hole += 1;
            }
            if hole - page > max {
                return;
            }
            cause = "async-recovered";
            ra.start = hole;
            ra.size = larger(hole - page, max);
            ra.tail = ra.size;
        } else {
            ra.start = page;
            ra.size = first_size(asked, max);
            ra.tail = if ra.size > asked { ra.size - asked } else { ra.size };
            if marker {
                ra.start += 1;
                ra.size = max.min(4 * ra.size);
            }
        }
        pages.fetch(cause, page, (ra.start, ra.size, ra.tail));
    }
}

impl Kernel for Ondemand {
    type State = OneWindow;

    fn fresh_state(&self) -> OneWindow {
        NO_WINDOW
    }

    fn read(&self, ra: &mut OneWindow, pages: &mut Pages, first: i64, end: i64) {
        for page in first..end {
            if !pages.there.contains(&page) {
                self.demand(ra, pages, false, page, end - page);
                pages.there.insert(page);
            }
            if pages.marked.remove(&page) && !pages.busy {
                self.demand(ra, pages, true, page, end - page);
            }
        }
        ra.previous = end - 1;
    }
}

/// 6.18 without large folios. `previous` is the page of the byte after the last read.
struct Context {
    max: i64,
    io: i64,
}

impl Context {
    fn bound(&self, asked: i64) -> i64 {
        if asked > self.max && self.io > self.max { asked.min(self.io) } else { self.max }
    }

    /// Reads the handle's window; the file's end shortens it before the mark is counted back.
    fn submit(ra: &OneWindow, pages: &mut Pages, cause: &'static str, page: i64) {
        let readable = ra.size.min(pages.file - ra.start);
        let mark = if ra.tail <= readable { ra.start + readable - ra.tail } else { -1 };
        pages.fetch_marked(cause, page, (ra.start, ra.size, ra.tail), mark);
    }

    fn miss(&self, ra: &mut OneWindow, pages: &mut Pages, page: i64, asked: i64) {
        let max = self.bound(asked);
        let near = ra.previous >= 0 && (page == ra.previous || page == ra.previous + 1);
        if page == 0 || asked > max || near {
            ra.size = first_size(asked, max);
            ra.tail = if ra.size > asked { ra.size - asked } else { ra.size / 2 };
        } else {
            // At most `max` pages are looked at; the last one looked at counts as missing.
            let (mut hole, mut looks) = (page - 1, 1);
            while looks < max && hole >= 0 && pages.there.contains(&hole) {
                hole -= 1;
                looks += 1;
            }
            let mut history = page - hole - 1;
            if history <= asked {
                pages.fetch("random", page, (page, asked, 0));
                return;
            }
            if hole < 0 {
                history *= 2;
            }
            ra.size = max.min(history + asked);
            ra.tail = 1;
        }
        ra.start = page;
        Self::submit(ra, pages, "sync", page);
    }

    fn marker(&self, ra: &mut OneWindow, pages: &mut Pages, page: i64, asked: i64) {
        let max = self.bound(asked);
        if page == ra.start + ra.size - ra.tail {
            ra.start += ra.size;
            ra.size = ra.size.max(larger(ra.size, max));
        } else {
            let mut hole = page + 1;
            while hole <= page + max && pages.there.contains(&hole) {
                hole += 1;
            }
            if hole > page + max {
                return;
            }
            ra.start = hole;
            ra.size = larger(hole - page + asked, max);
        }
        let align = [4, 2, 1].into_iter().find(|align| max % align == 0).unwrap();
        let end = (ra.start + ra.size) / align * align;
        if end > ra.start {
            ra.size = end - ra.start;
        }
        ra.tail = ra.size;
        Self::submit(ra, pages, "async", page);
    }
}

impl Kernel for Context {
    type State = OneWindow;

    fn fresh_state(&self) -> OneWindow {
        NO_WINDOW
    }

    fn read(&self, ra: &mut OneWindow, pages: &mut Pages, first: i64, end: i64) {
        for page in first..end {
            if !pages.there.contains(&page) {
                self.miss(ra, pages, page, end - page);
                pages.there.insert(page);
            }
            if pages.marked.remove(&page) && !pages.busy {
                self.marker(ra, pages, page, end - page);
            }
        }
        ra.previous = end;
    }
}

/// 2.6.22.
struct TwoWindows {
    max: i64,
}

#[derive(Clone)]
struct Legacy {
    start: i64,
    size: i64,
    ahead_start: i64,
    ahead_size: i64,
    previous: i64,
    cache_hit: i64,
    miss: bool,
    in_cache: bool,
}

impl Legacy {
    /// The ahead window's end is kept in `ahead_size`, for the clamp of `previous`.
    fn drop_ahead(&mut self) {
        self.ahead_size += self.ahead_start;
        self.ahead_start = 0;
    }

    fn off(&mut self) {
        self.start = 0;
        self.size = 0;
        self.miss = false;
        self.in_cache = false;
        self.drop_ahead();
    }

    fn submit(&mut self, pages: &mut Pages, cause: &'static str, page: i64, w: (i64, i64)) -> bool {
        if pages.fetch(cause, page, (w.0, w.1, 0)) > 0 {
            self.cache_hit = 0;
            return true;
        }
        self.cache_hit += w.1;
        if self.cache_hit < 256 {
            return true;
        }
        self.off();
        self.in_cache = true;
        false
    }

    fn make_ahead(&mut self, pages: &mut Pages, page: i64, max: i64, force: bool) -> bool {
        self.ahead_size =
            if self.miss { (self.size - 2).max(4).min(max) } else { larger(self.size, max) };
        self.miss = false;
        self.ahead_start = self.start + self.size;
        let block = force || self.previous >= self.ahead_start;
        let window = (self.ahead_start, self.ahead_size);
        let done = (block || !pages.busy) && self.submit(pages, "ahead", page, window);
        if !done && !force {
            self.drop_ahead();
        }
        done
    }

    /// What the kernel does when a request reaches `page`; returns where it wants to be asked next.
    fn request(&mut self, pages: &mut Pages, page: i64, mut asked: i64, max: i64) -> i64 {
        let mut first = page;
        if first == self.previous {
            asked -= 1;
            if asked > 0 {
                first += 1;
            }
        }
        let sequential = first == self.previous + 1;
        self.previous = first;
        let now = asked.min(max);
        if now == 0 || self.in_cache {
            return self.previous + 1;
        }
        self.previous += now - 1;
        if !sequential {
            self.off();
            self.submit(pages, "random", page, (first, now));
        } else if self.size == 0 {
            self.start = first;
            self.size = first_size(now, max);
            let window = (self.start, self.size);
            if self.submit(pages, "initial", page, window) && asked >= max {
                self.make_ahead(pages, page, max, true);
            }
        } else {
            let mut clamp = false;
            if self.ahead_start == 0 {
                clamp = !self.make_ahead(pages, page, max, false);
            }
            if !clamp && self.previous >= self.ahead_start {
                self.start = self.ahead_start;
                self.size = self.ahead_size;
                self.make_ahead(pages, page, max, false);
                clamp = true;
            }
            if clamp {
                self.previous = self.previous.min(self.ahead_start + self.ahead_size - 1);
            }
        }
        self.previous + 1
    }
}

impl Kernel for TwoWindows {
    type State = Legacy;

    fn fresh_state(&self) -> Legacy {
        Legacy {
            start: 0,
            size: 0,
            ahead_start: 0,
            ahead_size: 0,
            previous: -1,
            cache_hit: 0,
            miss: false,
            in_cache: false,
        }
    }

    fn read(&self, ra: &mut Legacy, pages: &mut Pages, first: i64, end: i64) {
        let mut next = first;
        for page in first..end {
            if page == next {
                next = ra.request(pages, page, end - page, self.max);
            }
            if !pages.there.contains(&page) {
                ra.miss = true;
                ra.in_cache = false;
                ra.cache_hit = 0;
                pages.fetch("readpage", page, (page, 1, 0));
            }
        }
    }
}

fn run<K: Kernel>(kernel: &K, file: i64, ops: &[Op]) -> Pages {
    let (there, marked) = (BTreeSet::new(), BTreeSet::new());
    let mut pages = Pages { file, there, marked, op: 0, busy: false, rows: Vec::new() };
    let mut states: BTreeMap<u32, K::State> = BTreeMap::new();
    for (op, &what) in ops.iter().enumerate() {
        pages.op = op;
        pages.busy = matches!(what, Op::Busy(..));
        match what {
            Op::Read(handle, first, count) | Op::Busy(handle, first, count) => {
                let first = i64::try_from(first).unwrap();
                let end = file.min(first + i64::from(count));
                if first < end {
                    let state = states.entry(handle).or_insert_with(|| kernel.fresh_state());
                    kernel.read(state, &mut pages, first, end);
                }
            }
            Op::Reopen(handle) => {
                states.remove(&handle);
            }
            Op::Drop(first, last) => {
                let dropped = i64::try_from(first).unwrap()..=i64::try_from(last).unwrap();
                pages.there.retain(|page| !dropped.contains(page));
                pages.marked.retain(|page| !dropped.contains(page));
            }
            Op::Late(..) | Op::Wait(_) => unreachable!("not drawn"),
        }
    }
    pages
}

/// Reads that mostly go on where an earlier one ended, on a few handles of a small file.
fn sequence(prng: &mut Prng, file: u64) -> Vec<Op> {
    let mut cursors: Vec<u64> = (0..4).map(|_| prng.below(file)).collect();
    cursors[0] = 0;
    let largest = [1, 4, 9, 70][usize::try_from(prng.below(4)).unwrap()];
    let mut ops = Vec::new();
    while ops.len() < 40 {
        let handle = u32::try_from(prng.below(2)).unwrap();
        let cursor = usize::try_from(prng.below(4)).unwrap();
        match prng.below(40) {
            0 => ops.push(Op::Reopen(handle)),
            1..=3 => {
                let first = prng.below(file);
                ops.push(Op::Drop(first, first + prng.below(40)));
            }
            4..=6 => cursors[cursor] = prng.below(file),
            7 => cursors[cursor] = 0,
            8 => cursors[cursor] = cursors[cursor].saturating_sub(prng.below(3)),
            9 => cursors[cursor] += 1,
            drawn => {
                // One cursor's reads come in runs, so that windows grow.
                for _ in 0..=prng.below(4) {
                    let count = 1 + prng.below(largest);
                    let read = if drawn < 13 { Op::Busy } else { Op::Read };
                    ops.push(read(handle, cursors[cursor], u32::try_from(count).unwrap()));
                    cursors[cursor] += count;
                }
            }
        }
    }
    ops
}

fn agree<K: Kernel>(seed: u64, spec: &str, kernel: &K, file: u64, ops: &[Op]) {
    let twin = run(kernel, i64::try_from(file).unwrap(), ops);
    let walk = Walk::run(spec, file, ops);
    for (ours, theirs) in walk.rows.iter().zip(&twin.rows) {
        assert_eq!(ours, theirs, "seed {seed}, {spec}, {file} pages: {ops:?}");
    }
    assert_eq!(walk.rows.len(), twin.rows.len(), "seed {seed}, {spec}, {file} pages: {ops:?}");
    let left = walk.cached.iter().map(|&page| i64::try_from(page).unwrap());
    assert!(left.eq(twin.there), "seed {seed}, {spec}: pages left");
}

/// Runs `check` with a seed, a largest window, a file's size and a sequence for it.
fn seeds(check: impl Fn(u64, u64, u64, &[Op])) {
    for seed in 0..3_000 {
        let mut prng = Prng::new(seed);
        let max = [1, 2, 3, 4, 7, 16, 30, 32, 64][usize::try_from(prng.below(9)).unwrap()];
        let scale = usize::try_from(prng.below(3)).unwrap();
        let file = 1 + prng.below([9, 60, 300][scale]);
        let ops = sequence(&mut prng, file);
        check(seed, max, file, &ops);
    }
}

#[test]
fn linux_2_6_22_decides_as_its_kernel() {
    seeds(|seed, max, file, ops| {
        let kernel = TwoWindows { max: i64::try_from(max).unwrap() };
        let spec = format!("linux-2.6.22:max={}", max * u64::from(PAGE_BYTES));
        agree(seed, &spec, &kernel, file, ops);
    });
}

#[test]
fn ondemand_2007_decides_as_its_patch() {
    seeds(|seed, max, file, ops| {
        let kernel = Ondemand { max: i64::try_from(max).unwrap(), recovers: false };
        let spec = format!("ondemand-2007:max={}", max * u64::from(PAGE_BYTES));
        agree(seed, &spec, &kernel, file, ops);
    });
}

#[test]
fn linux_2_6_24_decides_as_its_kernel() {
    seeds(|seed, max, file, ops| {
        let kernel = Ondemand { max: i64::try_from(max).unwrap(), recovers: true };
        let spec = format!("linux-2.6.24:max={}", max * u64::from(PAGE_BYTES));
        agree(seed, &spec, &kernel, file, ops);
    });
}

#[test]
fn linux_6_decides_as_its_kernel() {
    for io in [1, 40, 320] {
        seeds(|seed, max, file, ops| {
            if seed % 3 != io % 3 {
                return;
            }
            let kernel =
                Context { max: i64::try_from(max).unwrap(), io: i64::try_from(io).unwrap() };
            let page = u64::from(PAGE_BYTES);
            let spec = format!("linux-6:max={},io={}", max * page, io * page);
            agree(seed, &spec, &kernel, file, ops);
        });
    }
}
