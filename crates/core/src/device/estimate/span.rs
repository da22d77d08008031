//! Spans: what arrived while something was in flight all the time, in sums.
//!
//! # Invariants
//! - What arrives at the moment with which a span begins is not of it, unless the device was idle.

use super::{MOMENT, Ticket, rate_of};
use crate::units::Nanos;

/// A stretch in which something was in flight all the time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) from: Nanos,
    /// Whether nothing was in flight before, so that it begins with a latency.
    from_idle: bool,
    /// When the first of it came, and what came at that moment.
    first: Option<Nanos>,
    first_bytes: u64,
    pub(super) last: Nanos,
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) latencies: u64,
    pub(super) following: u64,
    pub(super) overtaken: u64,
    /// The chain of the request that arrived last, and the highest number of it so far.
    chain: u64,
    number_max: u64,
}

impl Span {
    pub(super) fn new(from: Nanos, from_idle: bool) -> Self {
        Self { from, from_idle, last: from, chain: u64::MAX, ..Self::default() }
    }

    pub(super) fn add(&mut self, now: Nanos, ticket: Ticket, latency: Nanos, base: Nanos) {
        let moment = Nanos(base.0 / MOMENT);
        if !self.from_idle && self.count == 0 && now.since(self.from) <= moment {
            // Still the arrival that it begins with.
            self.from = now;
            return;
        }
        let bytes = u64::from(ticket.bytes);
        let first = *self.first.get_or_insert(now);
        if now.since(first) <= moment {
            self.first = Some(now);
            self.first_bytes += bytes;
        }
        if ticket.follows() {
            self.following += 1;
            if ticket.chain == self.chain
                && ticket.number < self.number_max
                && now.since(self.last) > moment
            {
                self.overtaken += 1;
            }
        }
        let same = ticket.chain == self.chain;
        self.number_max = if same { self.number_max.max(ticket.number) } else { ticket.number };
        self.chain = ticket.chain;
        self.last = now;
        self.count += 1;
        self.bytes += bytes;
        self.latencies = self.latencies.saturating_add(latency.0);
    }

    /// Between which rates that of the device lies, if it was busy all the time: the lower one if
    /// it took many requests up at once, the upper one if the first had to come alone.
    pub(super) fn rates(&self) -> (u64, u64) {
        let least = rate_of(self.bytes, self.last.since(self.from));
        let after = self.last.since(self.first.unwrap_or(self.last));
        if !self.from_idle || after == Nanos(0) {
            return (least, least);
        }
        (least, rate_of(self.bytes - self.first_bytes, after).max(least))
    }
}
