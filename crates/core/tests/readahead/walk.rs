//! A cache reduced to what a readahead policy can see: the pages that are there, and their marks.
//!
//! It walks a request as the cache does, page by page, and writes down what was decided.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use forerun_core::readahead::{self, Decision, Demand, Made, Trigger};
use forerun_core::units::{FileId, HandleId, PageIndex};

pub(crate) const PAGE_BYTES: u32 = 4096;

/// What a program does to the file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Reads so many pages from one on.
    Read(u32, PageIndex, u32),
    /// The same on a busy device.
    Busy(u32, PageIndex, u32),
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
    made: Made,
    file_pages: u64,
    pub(crate) cached: BTreeSet<PageIndex>,
    marked: BTreeSet<PageIndex>,
    previous_end: BTreeMap<u32, u64>,
    pub(crate) rows: Vec<Row>,
}

impl Walk {
    pub(crate) fn new(spec: &str, file_pages: u64) -> Self {
        let mut made = readahead::make(spec, PAGE_BYTES).expect("a good spec");
        for handle in 0..4 {
            made.policy.open(HandleId(handle), FileId(0));
        }
        Self {
            made,
            file_pages,
            cached: BTreeSet::new(),
            marked: BTreeSet::new(),
            previous_end: BTreeMap::new(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn run(spec: &str, file_pages: u64, ops: &[Op]) -> Self {
        let mut walk = Self::new(spec, file_pages);
        for (op, &what) in ops.iter().enumerate() {
            walk.step(op, what);
        }
        walk
    }

    fn step(&mut self, op: usize, what: Op) {
        match what {
            Op::Read(handle, first, count) => self.read(op, handle, first, count, false),
            Op::Busy(handle, first, count) => self.read(op, handle, first, count, true),
            Op::Reopen(handle) => {
                self.made.policy.close(HandleId(handle));
                self.made.policy.open(HandleId(handle), FileId(0));
                self.previous_end.remove(&handle);
            }
            Op::Drop(first, last) => {
                self.cached.retain(|page| !(first..=last).contains(page));
                self.marked.retain(|page| !(first..=last).contains(page));
            }
        }
    }

    fn read(&mut self, op: usize, handle: u32, first: PageIndex, count: u32, congested: bool) {
        let end = (first + u64::from(count)).min(self.file_pages);
        for page in first..end {
            let ask = |trigger| Demand {
                handle: HandleId(handle),
                file: FileId(0),
                trigger,
                first: page,
                count: u32::try_from(end - page).unwrap(),
                opens_request: page == first,
                previous_end: self.previous_end.get(&handle).copied(),
                cached_before: 0,
                cached_after: 0,
                file_pages: self.file_pages,
                congested,
            };
            let (request, miss, marker) =
                (ask(Trigger::Request), ask(Trigger::Miss), ask(Trigger::Marker));
            if self.made.policy.sees_requests() {
                self.decide(op, request);
            }
            if !self.cached.contains(&page) {
                self.decide(op, miss);
                self.cached.insert(page);
            }
            if self.marked.remove(&page) && !congested {
                self.decide(op, marker);
            }
        }
        if first < end {
            self.previous_end.insert(handle, end * u64::from(PAGE_BYTES));
        }
    }

    fn decide(&mut self, op: usize, mut demand: Demand) {
        let probes = self.made.policy.probes();
        match demand.trigger {
            Trigger::Request => {}
            Trigger::Miss => {
                let before = (0..demand.first).rev().take(probes.before as usize);
                demand.cached_before = self.run_length(before);
            }
            Trigger::Marker => {
                let after = (demand.first + 1..).take(probes.after as usize);
                demand.cached_after = self.run_length(after);
            }
        }
        let mut decided = self.made.policy.decide(&demand);
        while let Some(decision) = decided {
            let fresh = self.carry_out(op, &demand, decision);
            decided = self.made.policy.submitted(&demand, decision, fresh);
        }
    }

    fn run_length(&self, pages: impl Iterator<Item = PageIndex>) -> u32 {
        u32::try_from(pages.take_while(|page| self.cached.contains(page)).count()).unwrap()
    }

    fn carry_out(&mut self, op: usize, demand: &Demand, decision: Decision) -> u32 {
        let window = decision.window;
        assert!(window.size > 0 && window.async_size <= window.size, "{window:?}");
        assert!(window.size <= self.made.policy.window_pages_max(), "{window:?}");
        let fresh: Vec<PageIndex> = (window.start..window.end().min(self.file_pages))
            .filter(|&page| self.cached.insert(page))
            .collect();
        let marker = self.made.policy.marker(window, self.file_pages);
        assert!(marker.is_none_or(|page| page < self.file_pages));
        self.marked.extend(marker.filter(|page| fresh.contains(page)));
        let read = u32::try_from(fresh.len()).unwrap();
        self.rows.push(Row {
            op,
            cause: decision.cause.name(),
            page: demand.first,
            start: window.start,
            size: window.size,
            async_size: window.async_size,
            fresh,
        });
        read
    }
}
