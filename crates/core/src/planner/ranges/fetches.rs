//! Fetches that were decided and have not ended: those that wait for a thread, and those in flight.
//!
//! ```text
//!   demand     [fetch][fetch]         a reader waits          first
//!   readahead  [fetch][fetch][fetch]  no reader waits yet     then these, oldest first
//!      \------ claim ----> in flight ------ end
//! ```
//! A window is cut into fetches of half of the largest request. What an idle store is asked first
//! is wanted soonest, and goes out as it is. Once half of the connections are busy, two fetches
//! that follow each other are claimed as one: half as many requests, and requests of two lengths
//! do not all end at one time, after which the link would be idle for a latency.
//!
//! # Invariants
//! - A fetch is claimed once and ends once.
//! - No fetch has more bytes than the largest request.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::units::FrameId;

/// The name of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FetchId(pub u64);

/// A fetch to be made: the bytes `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeFetch {
    /// Its name.
    pub id: FetchId,
    /// The first byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
    /// Whether a reader waits for it.
    pub demand: bool,
}

/// A fetch that has not ended.
#[derive(Debug)]
pub struct FetchRow {
    /// The first byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
    /// Whether a reader waits for it.
    pub demand: bool,
    /// The frames of its pages, in their order; at least one.
    pub frames: Vec<FrameId>,
    /// How many of these each of the fetches has that are claimed as this one; at least one.
    parts: Vec<u32>,
}

/// See the module.
pub struct FetchQueue {
    connections: u32,
    request_bytes_max: u32,
    rows: BTreeMap<FetchId, FetchRow>,
    demand: VecDeque<FetchId>,
    readahead: VecDeque<FetchId>,
    named: u64,
}

impl FetchRow {
    pub(super) fn new((start, end): (u64, u64), demand: bool, frames: &[FrameId]) -> Self {
        assert!(start < end && !frames.is_empty(), "{start}..{end} has bytes");
        let count = u32::try_from(frames.len()).expect("no more than there are frames");
        Self { start, end, demand, frames: frames.into(), parts: [count].into() }
    }

    /// The first frame and the number of frames of each fetch that was claimed as this one.
    pub(super) fn runs(&self) -> impl Iterator<Item = (FrameId, u32)> {
        self.parts.iter().scan(0, |at, &count| {
            let first = self.frames[*at as usize];
            *at += count;
            Some((first, count))
        })
    }

    /// Appends `next`, which begins where this one ends.
    fn join(&mut self, next: FetchRow) {
        assert!(self.end == next.start && !self.demand && !next.demand, "{self:?}, {next:?}");
        self.parts.extend(next.parts);
        self.frames.extend(next.frames);
        self.end = next.end;
    }
}

impl FetchQueue {
    /// A queue for so many fetches at a time, of at most `request_bytes_max` each.
    pub(super) fn new(connections: u32, request_bytes_max: u32) -> Self {
        Self {
            connections,
            request_bytes_max,
            rows: BTreeMap::new(),
            demand: VecDeque::new(),
            readahead: VecDeque::new(),
            named: 0,
        }
    }

    pub(super) fn add(&mut self, row: FetchRow) {
        self.named += 1;
        let id = FetchId(self.named);
        let queue = if row.demand { &mut self.demand } else { &mut self.readahead };
        queue.push_back(id);
        self.rows.insert(id, row);
    }

    /// How many wait for a thread.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        u32::try_from(self.demand.len() + self.readahead.len()).unwrap_or(u32::MAX)
    }

    /// The next fetch for a thread: demands first.
    pub fn claim(&mut self) -> Option<RangeFetch> {
        if let Some(id) = self.demand.pop_front() {
            return Some(self.fetch(id));
        }
        let in_flight = self.rows.len() - self.readahead.len();
        let id = self.readahead.pop_front()?;
        if in_flight * 2 >= self.connections as usize {
            self.join_next(id);
        }
        Some(self.fetch(id))
    }

    /// Claims the next readahead with `id`, if it follows and both are no longer than a request.
    fn join_next(&mut self, id: FetchId) {
        let Some(&next) = self.readahead.front() else { return };
        let (row, following) = (&self.rows[&id], &self.rows[&next]);
        if row.end != following.start
            || following.end - row.start > u64::from(self.request_bytes_max)
        {
            return;
        }
        self.readahead.pop_front();
        let following = self.rows.remove(&next).expect("a fetch that waits has a row");
        self.rows.get_mut(&id).expect("it waits, too").join(following);
    }

    /// The first fetch that waits for a thread and has bytes of `start..end`.
    pub fn claim_within(&mut self, start: u64, end: u64) -> Option<RangeFetch> {
        let Self { rows, demand, readahead, .. } = self;
        let meets =
            |id: &FetchId| rows.get(id).is_some_and(|row| row.start < end && start < row.end);
        let id = [demand, readahead].into_iter().find_map(|queue| {
            let at = queue.iter().position(meets)?;
            queue.remove(at)
        })?;
        Some(self.fetch(id))
    }

    /// How many bytes of `start..end` are in flight, or wait for a thread.
    #[must_use]
    pub fn bytes_within(&self, start: u64, end: u64) -> u64 {
        let within = |row: &FetchRow| row.end.min(end).saturating_sub(row.start.max(start));
        self.rows.values().map(within).sum()
    }

    pub(super) fn end(&mut self, id: FetchId) -> Option<FetchRow> {
        self.rows.remove(&id)
    }

    fn fetch(&self, id: FetchId) -> RangeFetch {
        let &FetchRow { start, end, demand, .. } = &self.rows[&id];
        RangeFetch { id, start, end, demand }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Spans = &'static [(u64, u64)];

    /// Adds readahead of a page each at `places`, and returns what so many claims give.
    fn claimed(queue: &mut FetchQueue, places: &[u64], claims: usize) -> Vec<(u64, u64)> {
        for &at in places {
            let frame = FrameId(u32::try_from(at).unwrap());
            queue.add(FetchRow::new((at, at + 1), false, &[frame]));
        }
        let claims = (0..claims).map_while(|_| queue.claim());
        claims.map(|fetch| (fetch.start, fetch.end)).collect()
    }

    #[test]
    fn fetches_that_follow_are_one_once_half_of_the_connections_are_busy() {
        #[rustfmt::skip]
        let rows: [(&str, u32, &[u64], Spans); 5] = [
            ("the first ones are short", 2, &[0, 1, 2, 3, 4, 5], &[(0, 1), (1, 2), (2, 4), (4, 6)]),
            ("no longer than a request", 1, &[0, 1, 2],          &[(0, 1), (1, 2), (2, 3)]),
            ("others lie between",       2, &[0, 1, 3, 5],       &[(0, 1), (1, 2), (3, 4), (5, 6)]),
            ("the other way round",      2, &[3, 2, 1, 0],       &[(3, 4), (2, 3), (1, 2), (0, 1)]),
            ("two at most",              2, &[0, 1, 2, 3, 4],    &[(0, 1), (1, 2), (2, 4), (4, 5)]),
        ];
        for (why, request, places, claims) in rows {
            let mut queue = FetchQueue::new(4, request);
            assert_eq!(claimed(&mut queue, places, 9), claims, "{why}");
            assert_eq!(queue.waiting(), 0, "{why}");
        }
    }

    #[test]
    fn what_readers_wait_for_goes_first_and_alone() {
        let mut queue = FetchQueue::new(1, 9);
        queue.add(FetchRow::new((0, 1), false, &[FrameId(0)]));
        queue.add(FetchRow::new((1, 2), true, &[FrameId(1)]));
        queue.add(FetchRow::new((2, 3), true, &[FrameId(2)]));
        let claims = claimed(&mut queue, &[], 9);
        assert_eq!(claims, [(1, 2), (2, 3), (0, 1)]);
    }

    #[test]
    fn a_fetch_of_several_ends_as_the_runs_that_it_was_made_of() {
        let mut queue = FetchQueue::new(1, 9);
        let id = queue.named + 2;
        assert_eq!(claimed(&mut queue, &[0, 4, 5], 2), [(0, 1), (4, 6)]);
        let row = queue.end(FetchId(id)).unwrap();
        let runs: Vec<_> = row.runs().collect();
        assert_eq!(runs, [(FrameId(4), 1), (FrameId(5), 1)]);
        assert!(queue.end(FetchId(id)).is_none() && queue.end(FetchId(id + 1)).is_none());
    }
}
