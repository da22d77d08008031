//! A cache reduced to what a readahead policy can see: the pages that are there, their marks, and
//! whose they are.
//!
//! It walks a request as the cache does, page by page, tells the policy what became of the pages
//! of its streams, and writes down what was decided. All pages arrive at once, but for those that a
//! `Late` read meets.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use forerun_core::device::DeviceKind;
use forerun_core::device::estimate::DeviceProfile;
use forerun_core::readahead::{
    self, Bounds, Decision, Demand, NamedReadahead, StreamFeedback, StreamId, Trigger,
};
use forerun_core::units::{FileId, HandleId, Nanos, PageIndex};

pub(crate) const PAGE_BYTES: u32 = 4096;

/// What a program does to the file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Reads so many pages from one on.
    Read(u32, PageIndex, u32),
    /// The same on a busy device.
    Busy(u32, PageIndex, u32),
    /// The same, where the pages that were read ahead are still in flight.
    Late(u32, PageIndex, u32),
    /// So many milliseconds pass.
    Wait(u64),
    /// Closes a handle and opens it again.
    Reopen(u32),
    /// Evicts the pages from the first to the second.
    Drop(PageIndex, PageIndex),
}

/// One decision as it was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) op: usize,
    pub(crate) cause: &'static str,
    /// The page that triggered.
    pub(crate) page: PageIndex,
    pub(crate) start: PageIndex,
    pub(crate) size: u32,
    pub(crate) async_size: u32,
    /// The pages that were not there.
    pub(crate) fresh: Vec<PageIndex>,
}

pub(crate) struct Walk {
    made: NamedReadahead,
    file_pages: u64,
    pub(crate) cached: BTreeSet<PageIndex>,
    marked: BTreeSet<PageIndex>,
    /// Pages that a stream's window brought.
    streams: BTreeMap<PageIndex, StreamId>,
    /// Pages without a use so far.
    unused: BTreeSet<PageIndex>,
    previous_end: BTreeMap<u32, u64>,
    now: Nanos,
    device: Surroundings,
    pub(crate) rows: Vec<Row>,
}

/// What a policy is told of the device, and how much it may ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    pub(crate) facts: DeviceProfile,
    pub(crate) bounds: Bounds,
}

/// A request as it is walked.
#[derive(Clone, Copy)]
struct Read {
    op: usize,
    handle: u32,
    first: PageIndex,
    end: PageIndex,
    congested: bool,
    late: bool,
}

/// What is known of a device here: nothing that any table depends on.
pub(crate) const FACTS: DeviceProfile = DeviceProfile {
    kind: DeviceKind::SeekBound,
    access: Nanos::from_millis(10),
    bytes_per_second: 100 << 20,
    depth: 1,
    request_bytes: 1 << 20,
};

impl Walk {
    pub(crate) fn new(spec: &str, file_pages: u64) -> Self {
        let bounds = Bounds {
            ahead_pages_max: AHEAD_PAGES_MAX,
            request_pages_max: 256,
            cache_pages: AHEAD_PAGES_MAX,
        };
        Self::on(Surroundings { facts: FACTS, bounds }, spec, file_pages)
    }

    pub(crate) fn on(device: Surroundings, spec: &str, file_pages: u64) -> Self {
        let mut made = readahead::make(spec, PAGE_BYTES).expect("a good spec");
        made.policy.bounds(device.bounds);
        for handle in 0..4 {
            made.policy.open(HandleId(handle), FileId(0));
        }
        Self {
            made,
            file_pages,
            cached: BTreeSet::new(),
            marked: BTreeSet::new(),
            streams: BTreeMap::new(),
            unused: BTreeSet::new(),
            previous_end: BTreeMap::new(),
            now: Nanos(0),
            device,
            rows: Vec::new(),
        }
    }

    pub(crate) fn run(spec: &str, file_pages: u64, ops: &[Op]) -> Self {
        let mut walk = Self::new(spec, file_pages);
        walk.steps(ops);
        walk
    }

    pub(crate) fn steps(&mut self, ops: &[Op]) {
        for (op, &what) in ops.iter().enumerate() {
            self.step(op, what);
        }
    }

    pub(crate) fn step(&mut self, op: usize, what: Op) {
        let file_pages = self.file_pages;
        let read = |handle, first: PageIndex, count: u32| {
            let end = (first + u64::from(count)).min(file_pages);
            Read { op, handle, first, end, congested: false, late: false }
        };
        match what {
            Op::Read(handle, first, count) => self.read(read(handle, first, count)),
            Op::Busy(handle, first, count) => {
                self.read(Read { congested: true, ..read(handle, first, count) });
            }
            Op::Late(handle, first, count) => {
                self.read(Read { late: true, ..read(handle, first, count) });
            }
            Op::Wait(millis) => self.now += Nanos::from_millis(millis),
            Op::Reopen(handle) => {
                self.made.policy.close(HandleId(handle));
                self.made.policy.open(HandleId(handle), FileId(0));
                self.previous_end.remove(&handle);
            }
            Op::Drop(first, last) => {
                let left: Vec<_> = self.cached.range(first..=last).copied().collect();
                for page in left {
                    self.leave(page);
                }
            }
        }
    }

    /// `page` is evicted.
    fn leave(&mut self, page: PageIndex) {
        self.cached.remove(&page);
        let (unused, marked) = (self.unused.remove(&page), self.marked.remove(&page));
        let Some(stream) = self.streams.remove(&page) else { return };
        for (happened, feedback) in
            [(unused, StreamFeedback::Wasted), (marked, StreamFeedback::MarkerLost)]
        {
            if happened {
                self.made.policy.note(stream, page, feedback);
            }
        }
    }

    fn read(&mut self, read: Read) {
        for page in read.first..read.end {
            if self.made.policy.sees_requests() {
                self.decide(read, page, Trigger::Request);
            }
            if !self.cached.contains(&page) {
                self.decide(read, page, Trigger::Miss);
                self.cached.insert(page);
            }
            let stream = self.streams.get(&page).copied();
            if let (true, Some(stream)) = (self.unused.remove(&page), stream) {
                self.made.policy.note(stream, page, StreamFeedback::Used { late: read.late });
            }
            let heeded = !read.congested || self.made.policy.sees_congestion();
            if self.marked.remove(&page) && heeded {
                self.decide(read, page, Trigger::Marker);
            }
        }
        if read.first < read.end {
            self.previous_end.insert(read.handle, read.end * u64::from(PAGE_BYTES));
        }
    }

    fn decide(&mut self, read: Read, page: PageIndex, trigger: Trigger) {
        let probes = self.made.policy.probes();
        let (mut cached_before, mut cached_after, mut neighbour) = (0, 0, None);
        match trigger {
            Trigger::Request => {}
            Trigger::Miss => {
                cached_before = self.run_length((0..page).rev().take(probes.before as usize));
                neighbour = page.checked_sub(1);
            }
            Trigger::Marker => {
                cached_after = self.run_length((page + 1..).take(probes.after as usize));
                neighbour = Some(page);
            }
        }
        let unused = u32::try_from(self.unused.len()).unwrap();
        let demand = Demand {
            handle: HandleId(read.handle),
            file: FileId(0),
            trigger,
            first: page,
            count: u32::try_from(read.end - page).unwrap(),
            opens_request: page == read.first,
            previous_end: self.previous_end.get(&read.handle).copied(),
            cached_before,
            cached_after,
            file_pages: self.file_pages,
            all_pages: self.file_pages,
            congested: read.congested,
            stream: neighbour.and_then(|page| self.streams.get(&page).copied()),
            follows_cached: trigger == Trigger::Miss && self.cached.contains(&read.end),
            in_flight: 0,
            ahead_room: self.device.bounds.ahead_pages_max.saturating_sub(unused),
            device: self.device.facts,
            rate_known: true,
            now: self.now,
        };
        let mut decided = self.made.policy.decide(&demand);
        while let Some(decision) = decided {
            let fresh = self.carry_out(read, &demand, decision);
            decided = self.made.policy.submitted(&demand, decision, fresh);
        }
    }

    fn run_length(&self, pages: impl Iterator<Item = PageIndex>) -> u32 {
        u32::try_from(pages.take_while(|page| self.cached.contains(page)).count()).unwrap()
    }

    fn carry_out(&mut self, read: Read, demand: &Demand, decision: Decision) -> u32 {
        let window = decision.window;
        assert!(window.size > 0 && window.async_size <= window.size, "{window:?}");
        let largest = self.made.policy.window_pages_max();
        assert!(window.size <= largest || window.size == demand.count, "{window:?}");
        let fresh: Vec<PageIndex> = (window.start..window.end().min(self.file_pages))
            .filter(|&page| self.cached.insert(page))
            .collect();
        let asked = demand.first..read.end;
        self.unused.extend(fresh.iter().filter(|page| !asked.contains(page)));
        let marker = self.made.policy.marker(decision, self.file_pages);
        assert!(marker.is_none_or(|page| page < self.file_pages));
        self.marked.extend(marker.filter(|page| fresh.contains(page)));
        if let Some(stream) = decision.stream {
            self.streams.extend(fresh.iter().map(|&page| (page, stream)));
            if let Some(marker) = marker {
                self.place_marker(marker, stream, window.start);
            }
        }
        let count = u32::try_from(fresh.len()).unwrap();
        self.rows.push(Row {
            op: read.op,
            cause: decision.cause.name(),
            page: demand.first,
            start: window.start,
            size: window.size,
            async_size: window.async_size,
            fresh,
        });
        count
    }

    /// A stream's marker is on the last page of its window up to `marker` that is there.
    fn place_marker(&mut self, marker: PageIndex, stream: StreamId, start: PageIndex) {
        let found = (start <= marker).then(|| self.cached.range(start..=marker).next_back());
        let Some(page) = found.flatten().copied() else {
            return self.made.policy.note(stream, marker, StreamFeedback::MarkerLost);
        };
        if page != marker {
            self.made.policy.note(stream, page, StreamFeedback::Marked);
        }
        let before = self.streams.insert(page, stream);
        if !self.marked.insert(page)
            && let Some(other) = before.filter(|&other| other != stream)
        {
            self.made.policy.note(other, page, StreamFeedback::MarkerLost);
        }
    }
}

/// So much may be read ahead and unused: more than most tables need.
pub(crate) const AHEAD_PAGES_MAX: u32 = 1 << 16;
