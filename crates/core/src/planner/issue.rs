//! Issues what is pending, as far as the pace and the budget allow, and learns what has come.
//!
//! ```text
//!   cursor: pending --pace--> request --Cached---------------> arrived
//!                                \-----submitted --Arrived---> arrived
//!                                            \-----Failed, or lost after a time --> failed
//! ```
//! # Invariants
//! - A request stays in flight until the driver, or a read of its pages, answers it.
//! - A request that is not answered in time counts as failed: the kernel drops what it cannot do.

use alloc::vec::Vec;
use core::ops::Range;

use super::device::{DeviceEstimate, DeviceKnowledge, FULL, LatencyTracker};
use super::pace::{PaceInput, PaceStep};
use super::runs::PageRun;
use super::{
    AHEAD_ONE_IN, CursorId, FILES_MAX, InFlight, PAGE_BYTES, Planner, PrefetchId, PrefetchRequest,
    RequestState, pages,
};
use crate::device::estimate::Ticket;
use crate::units::Nanos;

impl Planner {
    /// Appends requests for what is pending to `out`, at most `room`. The driver has looked at what
    /// is in flight, and answers each request by [`Planner::complete`] or [`Planner::submitted`]
    /// before any other call.
    pub fn issue(&mut self, now: Nanos, room: usize, out: &mut Vec<PrefetchRequest>) {
        let device = |row: &InFlight| self.files.get(&row.file).map(|file| file.device);
        for (&key, latency) in &mut self.latencies {
            latency.is_idle = !self.in_flight.iter().any(|row| device(row) == Some(key));
        }
        let before = out.len();
        for at in 0..self.cursors.len() {
            let cursor = CursorId(u32::try_from(at).expect("at most CURSORS_MAX"));
            while out.len() - before < room {
                let Some(request) = self.issue_for(now, cursor) else { break };
                out.push(request);
            }
        }
        self.drop_fetched(now);
        assert!(out.len() - before <= room, "{} requests, room for {room}", out.len() - before);
    }

    /// The next request for `cursor`, if its pace and the budget allow one.
    fn issue_for(&mut self, now: Nanos, cursor: CursorId) -> Option<PrefetchRequest> {
        let file_end = self.files[&self.file(cursor)?].bytes;
        self.drop_pending(now, cursor, &(pages(file_end)..u64::MAX));
        let ahead_bytes = self.ahead_bytes();
        let row = self.cursors[cursor.index()].as_mut()?;
        let file = row.file;
        let device = self.files[&file].device;
        let latency = self.latencies.get(&device);
        let first_distance = self.devices.get(&device).map_or(0, DeviceKnowledge::first_distance);
        let (Range { start, end }, reach) = row.next(&self.openings, first_distance)?;
        // The pace sees a stream that goes backward in a mirror.
        let goes_back = end * PAGE_BYTES <= row.position;
        let mirrored = |at: u64| file_end.saturating_sub(at);
        let (position, ahead, run_from) = if goes_back {
            (mirrored(row.position), mirrored(end * PAGE_BYTES), mirrored(row.run_from))
        } else {
            (row.position, start * PAGE_BYTES, row.run_from)
        };
        let run_end = reach.map_or(u64::MAX, |reach| run_from.saturating_add(reach));
        if reach.is_none() && latency.is_some_and(|latency| latency.slowdown() >= FULL) {
            // A piece that waits in the queue keeps the run waiting, and is no earlier for it.
            return None;
        }
        let step = row.pace.decide(&PaceInput {
            position,
            ahead,
            end: file_end.min(run_end),
            request_bytes: self.files[&file].request_bytes,
            free_bytes: self.memory_bytes,
            bytes_per_second: row.rate.bytes_per_second,
            // The shortest latency has the transfer in it.
            device: latency.map(|latency| DeviceEstimate {
                latency: latency.min,
                bytes_per_second: u64::MAX,
                ..self.settings.device
            }),
            is_late: core::mem::take(&mut row.is_late),
            slowdown: latency.map_or(0, LatencyTracker::slowdown),
            first_distance,
        });
        let PaceStep::Read { bytes, .. } = step else { return None };
        let count = bytes.div_ceil(PAGE_BYTES).min(end - start);
        let bytes = count * PAGE_BYTES;
        let budget = self.settings.budget_bytes.min(self.memory_bytes / AHEAD_ONE_IN);
        if ahead_bytes + bytes > budget {
            return None;
        }
        let run = row.take_nearest(count, goes_back)?;
        let pages = run.pages();
        if reach.is_some() && !goes_back {
            row.requested = pages.end * PAGE_BYTES;
        }
        let distance = if goes_back {
            // There is nothing to read between the end of the file and a position beyond it.
            row.position.min(file_end) - pages.start * PAGE_BYTES
        } else {
            (pages.end * PAGE_BYTES).saturating_sub(row.position)
        };
        assert!(count <= self.pending_pages, "{count} of {} pages", self.pending_pages);
        self.pending_pages -= count;
        assert_eq!(pages.end - pages.start, count, "the nearest pages of the run");
        let id = self.next_prefetch_id();
        let range = pages.start * PAGE_BYTES..pages.end * PAGE_BYTES;
        let (since, absent, is_cold, used, ticket) = (now, now, false, 0..0, None);
        let row = InFlight { id, file, since, run, used, distance, is_cold, absent, ticket };
        self.in_flight.push_back(row);
        Some(PrefetchRequest { id, cursor, file, range })
    }

    /// The driver has submitted the request; `is_cold`: none of it was cached, so its latency is
    /// the device's.
    ///
    /// # Panics
    /// No such request is in flight.
    pub fn submitted(&mut self, id: PrefetchId, is_cold: bool) {
        let row = self.in_flight.iter_mut().rev().find(|row| row.id == id);
        let row = row.expect("a request is submitted as it is issued");
        row.is_cold = is_cold;
        let device = self.files.get(&row.file).map(|file| file.device).filter(|_| is_cold);
        row.ticket = device.and_then(|device| {
            let known = self.devices.get_mut(&device)?;
            Some((device, known.issued(row.since, row.file, &row.range())))
        });
        self.requested = Some(row.since);
        self.counts.requests += 1;
        self.counts.bytes_requested += u64::from(row.run.count()) * PAGE_BYTES;
        self.counts.distance_bytes_max = self.counts.distance_bytes_max.max(row.distance);
    }

    /// The requests in flight, the oldest first: the `nth`.
    #[must_use]
    pub fn in_flight(&self, nth: usize) -> Option<&InFlight> {
        self.in_flight.get(nth)
    }

    /// The driver has looked at the request `id`. Returns whether it has left flight.
    pub fn complete(&mut self, now: Nanos, id: PrefetchId, state: RequestState) -> bool {
        let Some(at) = self.in_flight.iter().position(|row| row.id == id) else { return true };
        let waited = now.since(self.in_flight[at].since);
        if state == RequestState::Absent && waited < LOST_AFTER {
            self.in_flight[at].absent = now;
            return false;
        }
        let Some(row) = self.in_flight.remove(at) else { return true };
        match state {
            RequestState::Cached => {
                self.forget_ticket(&row);
                self.counts.bytes_cached += u64::from(row.run.count()) * PAGE_BYTES;
                self.came(now, row);
            }
            RequestState::Shortened { bytes } => {
                self.forget_ticket(&row);
                let all = u64::from(row.run.count()) * PAGE_BYTES;
                assert!(bytes < all, "what is shortened had more");
                self.counts.bytes_requested -= all - bytes;
                self.counts.requests -= u64::from(bytes == 0);
                self.came(now, row);
            }
            RequestState::Arrived => {
                self.learn(now, &row, waited);
                self.came(now, row);
            }
            RequestState::Absent => {
                self.forget_ticket(&row);
                self.failed(now, &row.run);
            }
        }
        self.drop_fetched(now);
        true
    }

    /// The request leaves flight, and when it arrived is not known.
    pub(super) fn forget_ticket(&mut self, row: &InFlight) {
        if let Some((known, ticket)) = self.known_of(row) {
            known.lost(ticket);
        }
    }

    fn known_of(&mut self, row: &InFlight) -> Option<(&mut DeviceKnowledge, Ticket)> {
        let (device, ticket) = row.ticket?;
        Some((self.devices.get_mut(&device)?, ticket))
    }

    /// Short requests, and those that were cached in part, arrive sooner than others: their
    /// latency is not the device's.
    pub(super) fn learn(&mut self, now: Nanos, row: &InFlight, waited: Nanos) {
        if let Some((known, ticket)) = self.known_of(row) {
            known.arrived(now, ticket, row.since, row.absent);
        }
        let Some(file) = self.files.get(&row.file) else { return };
        let is_long = u64::from(row.run.count()) * PAGE_BYTES >= file.request_bytes / 2;
        if is_long && row.is_cold && self.latencies.len() < FILES_MAX {
            let latency = self.latencies.entry(file.device);
            latency.or_insert(LatencyTracker::new(waited)).learn(waited);
        }
    }
}

impl super::StreamCursor {
    /// Takes `count` pages of the first pending run out, those nearest to the position.
    fn take_nearest(&mut self, count: u64, goes_back: bool) -> Option<PageRun> {
        let run = self.pending.pop_front()?;
        let Range { start, end } = run.pages();
        let near = if goes_back { end - count..end } else { start..start + count };
        let split = run.split(&near);
        if let Some(rest) = split.before.or(split.behind) {
            self.pending.push_front(rest);
        }
        split.within
    }
}

/// A request that has not come by then is lost.
const LOST_AFTER: Nanos = Nanos::from_millis(10_000);
