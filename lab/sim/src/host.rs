//! The host's queue in front of a device: it holds, joins and orders requests.
//!
//! ```text
//!   fetch --> join a waiting request that it continues, or wait --> next(): one to the device
//! ```
//!
//! # Sources
//! [`RequestOrder::Elevator`] is what a disk has had in front of it on Linux 2.6: requests of one
//! process are served in one direction over the disk, and a request that continues a waiting one is
//! merged with it (`block/elevator.c`). [`RequestOrder::DemandFirst`] is this project's own rule:
//! demand requests precede readahead, each in order of arrival.

use std::collections::BTreeMap;

use forerun_core::event::FetchKind;

/// The order in which waiting requests go to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrder {
    /// Demands before readahead, each in order of arrival.
    DemandFirst,
    /// Upwards over the device, then from its start again.
    Elevator,
}

/// A request that waits: one fetch, or several that continue each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Where it begins on the device.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// Whether it writes.
    pub write: bool,
    /// Whether a reader waits for any of it.
    pub kind: FetchKind,
    /// The fetches or writes, by the driver's numbers.
    pub fetches: Vec<u32>,
    arrival: u64,
}

/// The queue.
pub struct HostQueue {
    order: RequestOrder,
    request_bytes_max: u64,
    waiting: BTreeMap<u64, Waiting>,
    arrivals: u64,
    /// Where the last request to the device ended.
    head: u64,
}

impl HostQueue {
    /// An empty queue that joins requests up to `request_bytes_max`.
    #[must_use]
    pub fn new(order: RequestOrder, request_bytes_max: u64) -> Self {
        Self { order, request_bytes_max, waiting: BTreeMap::new(), arrivals: 0, head: 0 }
    }

    /// Requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A fetch of `bytes` at `offset` comes; nothing else of them is waiting.
    pub fn push(&mut self, number: u32, kind: FetchKind, offset: u64, bytes: u64) {
        self.add(number, (kind, false), offset, bytes);
    }

    /// A write of `bytes` at `offset` comes; nothing else of them is waiting, and nothing waits for
    /// it.
    pub fn push_write(&mut self, number: u32, offset: u64, bytes: u64) {
        self.add(number, (FetchKind::Readahead, true), offset, bytes);
    }

    fn add(&mut self, number: u32, (kind, write): (FetchKind, bool), offset: u64, bytes: u64) {
        self.arrivals += 1;
        let arrival = self.arrivals;
        let mut new = Waiting { offset, bytes, write, kind, fetches: vec![number], arrival };
        if let Some((&at, before)) = self.waiting.range(..offset).next_back()
            && at + before.bytes == offset
            && self.joins(before, &new)
        {
            let before = self.waiting.remove(&at).expect("just found");
            new = join(before, new);
        }
        let end = new.offset + new.bytes;
        if let Some(after) = self.waiting.get(&end)
            && self.joins(after, &new)
        {
            let after = self.waiting.remove(&end).expect("just found");
            new = join(new, after);
        }
        self.waiting.insert(new.offset, new);
    }

    fn joins(&self, one: &Waiting, other: &Waiting) -> bool {
        let fits = one.bytes + other.bytes <= self.request_bytes_max;
        // A demand must not wait for readahead behind it in one request, on an own device.
        let is_alike = self.order == RequestOrder::Elevator || one.kind == other.kind;
        fits && is_alike && one.write == other.write
    }

    /// Removes and returns the next request.
    pub fn pop(&mut self) -> Option<Waiting> {
        let at = match self.order {
            RequestOrder::Elevator => {
                let onward = self.waiting.range(self.head..).next();
                *onward.or_else(|| self.waiting.first_key_value())?.0
            }
            RequestOrder::DemandFirst => {
                let rank = |w: &Waiting| (w.kind == FetchKind::Readahead, w.arrival);
                *self.waiting.iter().min_by_key(|(_, waiting)| rank(waiting))?.0
            }
        };
        let next = self.waiting.remove(&at)?;
        self.head = next.offset + next.bytes;
        Some(next)
    }
}

/// One request of two, of which `after` begins where `before` ends.
fn join(before: Waiting, after: Waiting) -> Waiting {
    let demand = before.kind == FetchKind::Demand || after.kind == FetchKind::Demand;
    let mut fetches = before.fetches;
    fetches.extend(after.fetches);
    Waiting {
        offset: before.offset,
        bytes: before.bytes + after.bytes,
        write: before.write,
        kind: if demand { FetchKind::Demand } else { FetchKind::Readahead },
        fetches,
        arrival: before.arrival.min(after.arrival),
    }
}

#[cfg(test)]
mod tests {
    use super::{HostQueue, RequestOrder};
    use FetchKind::{Demand, Readahead};
    use forerun_core::event::FetchKind;

    /// Why, in which order, what comes, what goes: offset, bytes, fetches.
    type Row = (
        &'static str,
        RequestOrder,
        &'static [(FetchKind, u64, u64)],
        &'static [(u64, u64, usize)],
    );

    fn drained(order: RequestOrder, pushes: &[(FetchKind, u64, u64)]) -> Vec<(u64, u64, usize)> {
        let mut queue = HostQueue::new(order, 100);
        for (number, &(kind, offset, bytes)) in (0..).zip(pushes) {
            queue.push(number, kind, offset, bytes);
        }
        let mut out = Vec::new();
        while let Some(next) = queue.pop() {
            out.push((next.offset, next.bytes, next.fetches.len()));
        }
        assert!(queue.is_empty());
        out
    }

    #[test]
    #[rustfmt::skip] // A table: one row a behaviour.
    fn requests_are_joined_and_ordered() {
        let rows: &[Row] = &[
            ("upwards, then from the start", RequestOrder::Elevator,
             &[(Demand, 500, 10), (Readahead, 100, 10), (Demand, 300, 10)],
             &[(100, 10, 1), (300, 10, 1), (500, 10, 1)]),
            ("a continuation joins behind", RequestOrder::Elevator,
             &[(Readahead, 0, 40), (Readahead, 40, 40)], &[(0, 80, 2)]),
            ("and before", RequestOrder::Elevator,
             &[(Readahead, 40, 40), (Readahead, 0, 40)], &[(0, 80, 2)]),
            ("and between", RequestOrder::Elevator,
             &[(Readahead, 0, 30), (Readahead, 60, 30), (Demand, 30, 30)], &[(0, 90, 3)]),
            ("not beyond the largest request", RequestOrder::Elevator,
             &[(Readahead, 0, 60), (Readahead, 60, 60)], &[(0, 60, 1), (60, 60, 1)]),
            ("not over a gap", RequestOrder::Elevator,
             &[(Readahead, 0, 30), (Readahead, 31, 30)], &[(0, 30, 1), (31, 30, 1)]),
            ("demands first, by arrival", RequestOrder::DemandFirst,
             &[(Readahead, 0, 9), (Demand, 500, 9), (Demand, 100, 9)],
             &[(500, 9, 1), (100, 9, 1), (0, 9, 1)]),
            ("readahead does not ride with a demand", RequestOrder::DemandFirst,
             &[(Demand, 0, 9), (Readahead, 9, 9), (Readahead, 18, 9)],
             &[(0, 9, 1), (9, 18, 2)]),
        ];
        for (why, order, pushes, expected) in rows {
            assert_eq!(drained(*order, pushes), *expected, "{why}");
        }
    }

    #[test]
    fn the_elevator_goes_on_from_where_it_is() {
        let mut queue = HostQueue::new(RequestOrder::Elevator, 100);
        queue.push(0, Demand, 200, 10);
        assert_eq!(queue.pop().unwrap().offset, 200);
        queue.push(1, Demand, 100, 10);
        queue.push(2, Demand, 210, 10);
        assert_eq!(queue.pop().unwrap().offset, 210);
        assert_eq!(queue.pop().unwrap().offset, 100);
        assert!(queue.pop().is_none());
    }
}
