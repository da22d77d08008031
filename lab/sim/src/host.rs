//! The host's queue in front of a device: it holds, joins and orders requests.
//!
//! ```text
//!   fetch --> join a waiting request that it continues, or wait --> next(): one to the device
//! ```
//!
//! Reads go before writes, for which no reader waits, but not for ever: while both wait, two
//! batches of reads are followed by one of writes.
//!
//! # Sources
//! Batches: Linux' deadline scheduler (`block/deadline-iosched.c`, 2002), `fifo_batch` and
//! `writes_starved`.
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
    reads: BTreeMap<u64, Waiting>,
    writes: BTreeMap<u64, Waiting>,
    arrivals: u64,
    /// Where the last request to the device ended.
    head: u64,
    batch: Batch,
}

/// Requests of one direction, one after the other.
#[derive(Default)]
struct Batch {
    write: bool,
    /// How many more of it may go.
    left: u32,
    /// Batches of reads since one of writes, while writes waited.
    starved: u32,
}

impl HostQueue {
    /// An empty queue that joins requests up to `request_bytes_max`.
    #[must_use]
    pub fn new(order: RequestOrder, request_bytes_max: u64) -> Self {
        let [reads, writes] = [BTreeMap::new(), BTreeMap::new()];
        Self {
            order,
            request_bytes_max,
            reads,
            writes,
            arrivals: 0,
            head: 0,
            batch: Batch::default(),
        }
    }

    /// Requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.reads.len() + self.writes.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
        let before = self.waiting(write).range(..offset).next_back();
        let before =
            before.filter(|&(&at, before)| at + before.bytes == offset && self.joins(before, &new));
        if let Some(at) = before.map(|(&at, _)| at) {
            let before = self.waiting_mut(write).remove(&at).expect("just found");
            new = join(before, new);
        }
        let end = new.offset + new.bytes;
        let after = self.waiting(write).get(&end).is_some_and(|after| self.joins(after, &new));
        if after {
            let after = self.waiting_mut(write).remove(&end).expect("just found");
            new = join(new, after);
        }
        self.waiting_mut(write).insert(new.offset, new);
    }

    fn waiting(&self, write: bool) -> &BTreeMap<u64, Waiting> {
        if write { &self.writes } else { &self.reads }
    }

    fn waiting_mut(&mut self, write: bool) -> &mut BTreeMap<u64, Waiting> {
        if write { &mut self.writes } else { &mut self.reads }
    }

    fn joins(&self, one: &Waiting, other: &Waiting) -> bool {
        let fits = one.bytes + other.bytes <= self.request_bytes_max;
        // A demand must not wait for readahead behind it in one request, on an own device.
        let is_alike = self.order == RequestOrder::Elevator || one.kind == other.kind;
        fits && is_alike
    }

    /// Removes and returns the next request.
    pub fn pop(&mut self) -> Option<Waiting> {
        let write = self.direction()?;
        let waiting = self.waiting(write);
        let at = match self.order {
            RequestOrder::Elevator => {
                let onward = waiting.range(self.head..).next();
                *onward.or_else(|| waiting.first_key_value())?.0
            }
            RequestOrder::DemandFirst => {
                let rank = |w: &Waiting| (w.kind == FetchKind::Readahead, w.arrival);
                *waiting.iter().min_by_key(|(_, waiting)| rank(waiting))?.0
            }
        };
        let next = self.waiting_mut(write).remove(&at)?;
        self.head = next.offset + next.bytes;
        Some(next)
    }

    /// Whether the next request writes; none where none waits.
    fn direction(&mut self) -> Option<bool> {
        let (reads, writes) = (!self.reads.is_empty(), !self.writes.is_empty());
        if !(reads && writes) {
            // A read that comes while writes alone wait is next.
            self.batch = Batch::default();
            return (reads || writes).then_some(writes);
        }
        if self.batch.left == 0 {
            let write = self.batch.starved == STARVED_BATCHES;
            let starved = if write { 0 } else { self.batch.starved + 1 };
            self.batch = Batch { write, left: BATCH_REQUESTS, starved };
        }
        self.batch.left -= 1;
        Some(self.batch.write)
    }
}

/// Requests of a batch, and batches of reads that go before one of writes.
const BATCH_REQUESTS: u32 = 16;
const STARVED_BATCHES: u32 = 2;

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
    fn reads_go_before_writes_which_are_not_starved() {
        let mut queue = HostQueue::new(RequestOrder::Elevator, 10);
        for number in 0..100 {
            queue.push(number, Demand, u64::from(number) * 20, 10);
            queue.push_write(100 + number, 10_000 + u64::from(number) * 20, 10);
        }
        let went: Vec<bool> = std::iter::from_fn(|| queue.pop()).map(|next| next.write).collect();
        assert_eq!(went.len(), 200);
        let first_write = went.iter().position(|&write| write).unwrap();
        assert_eq!(first_write, 32, "two batches of reads");
        let writes = went[..96].iter().filter(|&&write| write).count();
        assert_eq!(writes, 32, "of three batches one writes");
        assert!(queue.is_empty());
    }

    #[test]
    fn a_write_does_not_join_a_read() {
        let mut queue = HostQueue::new(RequestOrder::Elevator, 100);
        queue.push(0, Demand, 0, 10);
        queue.push_write(1, 10, 10);
        queue.push_write(2, 20, 10);
        let next = queue.pop().unwrap();
        assert_eq!((next.write, next.bytes), (false, 10));
        let next = queue.pop().unwrap();
        assert_eq!((next.write, next.bytes, next.fetches), (true, 20, vec![1, 2]));
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
