//! What a device can do, learnt from the requests that are made anyway.
//!
//! No request is made to measure. Each has a time of issue and of arrival, which are evaluated in
//! three ways:
//!
//! ```text
//!   lone   issued while nothing was in flight: latency = access + transfer
//!   run    arrivals of requests that follow each other, all of them issued before:
//!            issued k at once     a1    a2    a3  ...  ak
//!            |--------------------|-----|-----|--------|      rate = bytes after a1 / (ak - a1)
//!   span   a stretch in which something was in flight all the time: what came of how many
//! ```
//! A device that serves one request after another shows its rate in every run, of whatever
//! length. One that serves many at a time shows it only in a span in which requests had to queue,
//! that is took clearly longer than a lone one; what a shorter one delivered is less than it can.
//!
//! The kind follows from the gain of a span, its requests a second over those of lone ones: an arm
//! gains little by choosing the nearest request, a parallel device as much as there is in flight.
//! Requests that follow each other and overtake on the way show several paths. Until there is such
//! evidence the kind is assumed from the access time, as arms are known to be.
//!
//! # Invariants
//! - O(1) work and no memory beyond the struct; the same calls give the same answers.
//! - Old evidence leaves as new comes in: each figure is a quantile of the last few.
//! - Arrivals at one moment say nothing about the time between them.
//! # Sources
//! Depth and rate are tied by Little, "A proof for the queuing formula L = lambda W" (1961).

mod recent;
mod span;

use super::DeviceKind;
use crate::units::{FileId, Nanos};

use recent::Recent;
use span::Span;

/// What a device can do, as far as readahead has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceProfile {
    /// How latency and depth go together.
    pub kind: DeviceKind,
    /// The time of a lone request beyond its transfer.
    pub access: Nanos,
    /// The most that it delivers, over all requests in flight.
    pub bytes_per_second: u64,
    /// Requests of `request_bytes` in flight beyond which nothing is gained in order.
    pub depth: u32,
    /// The smallest request that reaches the rate at that depth, at most the largest there is.
    pub request_bytes: u32,
}

/// Which fields of a profile rest on evidence; the others are assumed, or from what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// [`DeviceProfile::kind`].
    pub kind: bool,
    /// [`DeviceProfile::access`].
    pub access: bool,
    /// [`DeviceProfile::bytes_per_second`], and with it the depth and the size of requests.
    pub rate: bool,
}

/// What the device can do, and which of it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Always an answer.
    pub profile: DeviceProfile,
    /// Which of it rests on evidence.
    pub known: Evidence,
}

impl Estimate {
    /// What a device is taken for while nothing is learnt.
    pub(crate) const ASSUMED: Self = Self {
        profile: DeviceProfile {
            kind: DeviceKind::SeekBound,
            access: ASSUMED_ACCESS,
            bytes_per_second: ASSUMED_RATE,
            depth: 1,
            request_bytes: SMALL_BYTES,
        },
        known: Evidence { kind: false, access: false, rate: false },
    };

    /// A `profile` that was measured before.
    pub(crate) const fn given(profile: DeviceProfile) -> Self {
        Self { profile, known: Evidence { kind: true, access: true, rate: true } }
    }
}

/// A request in flight. Its owner gives it back once, when the request arrives or fails.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    number: u64,
    issued: Nanos,
    bytes: u32,
    /// The first of the requests up to it each of which begins where the one before ends.
    chain: u64,
    /// Whether it found nothing in flight.
    lone: bool,
}

impl Ticket {
    /// Whether it begins where the request issued before it ends.
    fn follows(&self) -> bool {
        self.chain < self.number
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Estimator {
    request_bytes_max: u32,
    /// Requests issued so far.
    issued: u64,
    in_flight: u32,
    /// Where the request issued last ends.
    end: Option<(FileId, u64)>,
    /// The first request of the chain that ends there.
    chain: u64,
    /// The latency of the request that ended the last idle time: the unit of times here.
    base: Nanos,
    run: Option<Run>,
    span: Option<Span>,
    /// Latencies of small and of large lone requests that follow nothing, and bytes of the large.
    small: Recent,
    large: Recent,
    large_bytes: Recent,
    /// Bytes a second of lone requests that follow, of runs, of spans with a queue, of all spans.
    chain_rates: Recent,
    run_rates: Recent,
    span_rates: Recent,
    least_rates: Recent,
    /// Whether `least_rates` come from large requests.
    least_is_large: bool,
    /// Above 0 for a parallel device, below for an arm.
    votes: i32,
    /// Figures that were taken in so far.
    evidence: u64,
}

/// Arrivals one after another of requests that follow each other.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: Nanos,
    last: Nanos,
    number: u64,
    bytes: u64,
}

impl Estimator {
    /// Knows nothing yet; no request is larger than `request_bytes_max`.
    #[must_use]
    pub fn new(request_bytes_max: u32) -> Self {
        assert!(request_bytes_max > 0, "requests have bytes");
        Self {
            request_bytes_max,
            issued: 0,
            in_flight: 0,
            end: None,
            chain: 0,
            base: Nanos(0),
            run: None,
            span: None,
            small: Recent::default(),
            large: Recent::default(),
            large_bytes: Recent::default(),
            chain_rates: Recent::default(),
            run_rates: Recent::default(),
            span_rates: Recent::default(),
            least_rates: Recent::default(),
            least_is_large: false,
            votes: 0,
            evidence: 0,
        }
    }

    /// A request for `bytes` at `offset` of `file` goes out at `now`. It may wait in a queue of
    /// the host: that is part of what the device is seen to do.
    pub fn issued(&mut self, now: Nanos, file: FileId, offset: u64, bytes: u32) -> Ticket {
        let lone = self.in_flight == 0;
        if self.end != Some((file, offset)) {
            self.chain = self.issued;
        }
        let ticket = Ticket { number: self.issued, issued: now, bytes, chain: self.chain, lone };
        self.issued += 1;
        self.in_flight += 1;
        self.end = Some((file, offset.saturating_add(u64::from(bytes))));
        if lone {
            self.run = None;
            self.span = Some(Span::new(now, true));
        }
        ticket
    }

    /// The request of `ticket` arrived at `now`, whole.
    pub fn arrived(&mut self, now: Nanos, ticket: Ticket) {
        assert!(self.in_flight > 0, "more arrivals than requests");
        assert!(ticket.number < self.issued, "a ticket of another estimator");
        assert!(ticket.issued <= now, "a request arrives before it was issued");
        self.in_flight -= 1;
        let latency = now.since(ticket.issued);
        if ticket.lone {
            self.base = latency;
            self.note_lone(ticket, latency);
        }
        self.extend_run(now, ticket);
        self.extend_span(now, ticket, latency);
    }

    /// The request of `ticket` failed: what it took says nothing, nor what came meanwhile.
    pub fn failed(&mut self, ticket: Ticket) {
        assert!(self.in_flight > 0, "more failures than requests");
        assert!(ticket.number < self.issued, "a ticket of another estimator");
        self.in_flight -= 1;
        self.run = None;
        self.span = None;
    }

    /// What the device can do, and which of it rests on evidence.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let (kind, kind_is_known) = self.kind();
        let (rate, rate_is_known) = self.rate(kind, kind_is_known);
        let (access, access_is_known) = self.access(kind).unwrap_or((ASSUMED_ACCESS, false));
        // A rate that comes from the same requests leaves nothing: then half is taken for access.
        let is_mixed = |large: &u64| !rate_is_known && access.0 < large / 16;
        let half = self.large.median().filter(is_mixed).map_or(0, |large| large / 2);
        let access = access.max(Nanos(half));
        let (depth, request_bytes) = self.depth(kind, rate, access);
        assert!(rate > 0 && depth > 0, "a device delivers: {rate} bytes/s at depth {depth}");
        let largest = self.request_bytes_max;
        assert!((1..=largest).contains(&request_bytes), "{request_bytes} of {largest} bytes");
        Estimate {
            profile: DeviceProfile { kind, access, bytes_per_second: rate, depth, request_bytes },
            known: Evidence { kind: kind_is_known, access: access_is_known, rate: rate_is_known },
        }
    }

    /// Figures on which the estimate rests, those that newer ones have replaced included.
    #[must_use]
    pub fn evidence(&self) -> u64 {
        self.evidence
    }

    /// The profile without its evidence.
    #[must_use]
    pub fn profile(&self) -> DeviceProfile {
        self.estimate().profile
    }

    /// Which fields of the profile rest on evidence.
    #[must_use]
    pub fn known(&self) -> Evidence {
        self.estimate().known
    }

    fn note_lone(&mut self, ticket: Ticket, latency: Nanos) {
        let is_large = self.is_large(u64::from(ticket.bytes));
        self.evidence += u64::from(is_large || !ticket.follows());
        if ticket.follows() {
            if is_large {
                self.chain_rates.push(rate_of(u64::from(ticket.bytes), latency));
            }
        } else if ticket.bytes <= SMALL_BYTES {
            self.small.push(latency.0);
        } else {
            self.large.push(latency.0);
            self.large_bytes.push(u64::from(ticket.bytes));
        }
    }

    fn extend_run(&mut self, now: Nanos, ticket: Ticket) {
        let next = Run { from: now, last: now, number: ticket.number, bytes: 0 };
        let goes_on = |run: &&mut Run| {
            ticket.follows() && ticket.number == run.number + 1 && ticket.issued <= run.last
        };
        let moment = Nanos(self.base.0 / MOMENT);
        if let Some(run) = self.run.as_mut().filter(goes_on) {
            (run.number, run.last) = (ticket.number, now);
            if run.bytes == 0 && now.since(run.from) <= moment {
                run.from = now;
            } else {
                run.bytes += u64::from(ticket.bytes);
            }
        } else {
            self.end_run();
            self.run = Some(next);
        }
        let is_long = |run: &Run| run.bytes >= RUN_REQUESTS * u64::from(self.request_bytes_max);
        if self.in_flight == 0 || self.run.as_ref().is_some_and(is_long) {
            self.end_run();
            self.run = (self.in_flight > 0).then_some(next);
        }
    }

    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        if run.bytes >= u64::from(self.request_bytes_max) / 2 {
            self.run_rates.push(rate_of(run.bytes, run.last.since(run.from)));
            self.evidence += 1;
        }
    }

    fn extend_span(&mut self, now: Nanos, ticket: Ticket, latency: Nanos) {
        let Some(span) = &mut self.span else {
            // After a failure: from here on, if there is more to come.
            self.span = (self.in_flight > 0).then(|| Span::new(now, false));
            return;
        };
        span.add(now, ticket, latency, self.base);
        let lasted = now.since(span.from).0;
        let is_long = span.count >= SPAN_REQUESTS && lasted >= SPAN_BASES * self.base.0;
        if self.in_flight == 0 || is_long || span.count >= SPAN_REQUESTS_MAX {
            let span = *span;
            self.span = (self.in_flight > 0).then(|| Span::new(now, false));
            self.judge(&span);
        }
    }

    /// What a whole span says.
    fn judge(&mut self, span: &Span) {
        let lasted = span.last.since(span.from);
        if span.count == 0 || lasted == Nanos(0) {
            return;
        }
        let (least, most) = span.rates();
        assert!(least <= most, "between {least} and {most} bytes a second");
        let mean_bytes = span.bytes / span.count;
        let is_large = self.is_large(mean_bytes);
        if is_large && !self.least_is_large {
            self.least_rates = Recent::default();
            self.least_is_large = true;
        }
        if is_large == self.least_is_large {
            self.least_rates.push(least);
        }
        self.vote(span, mean_bytes, lasted);
        if is_large && span.count > 1 && self.queued(span, mean_bytes) {
            self.span_rates.push(least.midpoint(most));
            self.evidence += 1;
        }
    }

    /// Whether requests of the span waited for others: their mean latency is clearly above that
    /// of a lone one, and more clearly where just one lone one is known.
    fn queued(&self, span: &Span, mean_bytes: u64) -> bool {
        let mean = span.latencies / span.count;
        let is_like = self.large_bytes.median().is_some_and(|bytes| bytes >= mean_bytes);
        match self.lone_of(mean_bytes) {
            lone if lone > 0 && is_like => mean >= lone + lone / 4,
            _ => mean >= self.base.0 + self.base.0 / 2,
        }
    }

    /// What a span says of the kind.
    fn vote(&mut self, span: &Span, mean_bytes: u64, lasted: Nanos) {
        if span.count < VOTE_REQUESTS {
            return;
        }
        // Lone latency over the time between arrivals, in quarters: what depth has gained.
        let lone = self.lone_of(mean_bytes);
        let gain_4 = 4 * u128::from(lone) * u128::from(span.count) / u128::from(lasted.0);
        if span.following * 4 >= span.count * 3 {
            // An arm saves its access time here, and may choose what passes next.
            if span.overtaken * 8 >= span.count && gain_4 >= CHAIN_GAIN_4 {
                self.votes = (self.votes + 1).min(VOTES_MAX);
            }
            return;
        }
        let depth = span.latencies / lasted.0;
        if depth < 2 || span.following * 4 > span.count {
            return;
        }
        let needed_4 = u128::from((16 * depth).isqrt().min(16));
        let gap = Nanos(lasted.0 / span.count);
        let rate = rate_of(span.bytes, lasted);
        let by_access = mean_bytes <= u64::from(SMALL_BYTES) || 2 * rate <= self.least();
        if gap < ARM_GAP_MIN || (gain_4 >= needed_4 && gain_4 > 0) {
            self.votes = (self.votes + 1).min(VOTES_MAX);
        } else if by_access && lone > 0 {
            self.votes = (self.votes - 1).max(-VOTES_MAX);
        }
    }

    /// The latency of a lone request of about `bytes`, 0 while too few were seen.
    fn lone_of(&self, bytes: u64) -> u64 {
        let is_small = bytes <= u64::from(SMALL_BYTES);
        let lone = if is_small { &self.small } else { &self.large };
        if lone.len() < LONE_MIN { 0 } else { lone.median().unwrap_or(0) }
    }

    /// The kind, and whether it was seen.
    fn kind(&self) -> (DeviceKind, bool) {
        let many = self.small.len().max(self.large.len()) >= LONE_MIN;
        // Rates are above those of arms whichever the kind.
        let fast = self.least() > ARM_RATE_MAX;
        let arm_min = if many { ARM_MIN } else { NO_ARM };
        match self.access(DeviceKind::SeekBound) {
            _ if fast => (DeviceKind::Parallel, true),
            Some((access, true)) if access < NO_ARM => (DeviceKind::Parallel, true),
            _ if self.votes >= VOTES_MIN => (DeviceKind::Parallel, true),
            _ if self.votes <= -VOTES_MIN => (DeviceKind::SeekBound, true),
            Some((access, _)) if access > ARM_MAX => (DeviceKind::Parallel, false),
            Some((access, _)) if access < arm_min && !self.turns() => (DeviceKind::Parallel, false),
            Some(_) | None => (DeviceKind::SeekBound, false),
        }
    }

    /// Whether lone requests vary as those of a disk that turns do, a quarter of which take far
    /// longer than most, however near their places are: of a few, most may have been quick by
    /// chance. Of more their median tells.
    fn turns(&self) -> bool {
        let (median, high) = (self.small.median().unwrap_or(0), self.small.high().unwrap_or(0));
        self.small.len() < MANY && high >= ARM_MIN.0 && 2 * high >= 3 * median
    }

    /// The rate of a device of this kind, and whether it is what the device can do rather than
    /// what it was given to do. Lone requests in order show that of an arm alone.
    fn rate(&self, kind: DeviceKind, kind_is_known: bool) -> (u64, bool) {
        let (rates, is_known) = match kind {
            DeviceKind::SeekBound if self.run_rates.len() >= RATES_MIN => (&self.run_rates, true),
            DeviceKind::SeekBound => (&self.chain_rates, kind_is_known),
            DeviceKind::Parallel => (&self.span_rates, true),
        };
        let seen = rates.high().unwrap_or(0).max(self.least());
        let is_known = is_known && rates.len() >= RATES_MIN;
        if seen == 0 { (ASSUMED_RATE, false) } else { (seen, is_known) }
    }

    fn least(&self) -> u64 {
        self.least_rates.high().unwrap_or(0)
    }

    /// The time of a lone request that follows nothing, beyond its transfer, and whether it was
    /// seen. That of large requests is known apart from their transfer if it is not small beside
    /// it; what varies from one to the next is no transfer in any case.
    fn access(&self, kind: DeviceKind) -> Option<(Nanos, bool)> {
        if let Some(small) = self.small.median() {
            let many = self.small.len() >= LONE_MIN;
            // Where an arm happened to be says little of where it will be.
            let chance = !many && small >= NO_ARM.0;
            let seen = if chance { small.max(small.midpoint(ASSUMED_ACCESS.0)) } else { small };
            return Some((Nanos(seen), many));
        }
        let (large, bytes) = (self.large.median()?, self.large_bytes.median()?);
        let (rate, is_known) = self.rate(kind, false);
        let transfer = time_of(bytes, rate);
        let rest = Nanos(large).since(transfer);
        let is_seen = is_known && 2 * rest.0 >= transfer.0 && self.large.len() >= LONE_MIN;
        let varied = if self.large_bytes.spread() == 0 { self.large.spread() } else { 0 };
        Some((if is_seen { rest } else { rest.max(Nanos(varied)) }, is_seen))
    }

    /// Depth, and the size of requests, that keep the device busy.
    fn depth(&self, kind: DeviceKind, rate: u64, access: Nanos) -> (u32, u32) {
        let max = self.request_bytes_max;
        match kind {
            DeviceKind::SeekBound => (1, max),
            DeviceKind::Parallel => {
                let own = match (self.large.median(), self.large_bytes.median()) {
                    (Some(large), Some(bytes)) if self.is_large(bytes) => {
                        // The rest of the largest request takes as long as this one's.
                        let transfer = Nanos(large).since(access).0;
                        let rest = u128::from(transfer) * u128::from(max) / u128::from(bytes);
                        access + Nanos(narrow(rest))
                    }
                    _ => access + time_of(u64::from(max), rate),
                };
                let under_way = bytes_in(own, rate).div_ceil(u64::from(max));
                let depth = under_way.clamp(2, DEPTH_MAX);
                // While one is transferred, the others have their access time.
                let bytes = bytes_in(access, rate) / (depth - 1);
                let bytes = bytes.max(SMALL_BYTES.into()).min(u64::from(max) / 2 + 1);
                let bytes = u32::try_from(bytes.next_power_of_two()).unwrap_or(max).min(max);
                (u32::try_from(depth).expect("clamped"), bytes)
            }
        }
    }

    fn is_large(&self, bytes: u64) -> bool {
        bytes >= u64::from(self.request_bytes_max) / LARGE
    }
}

/// Bytes a second, if `bytes` take `time`.
fn rate_of(bytes: u64, time: Nanos) -> u64 {
    narrow(u128::from(bytes) * u128::from(SECOND) / u128::from(time.0.max(1)))
}

/// How long `bytes` take.
fn time_of(bytes: u64, rate: u64) -> Nanos {
    Nanos(narrow(u128::from(bytes) * u128::from(SECOND) / u128::from(rate.max(1))))
}

/// What passes in `time`.
fn bytes_in(time: Nanos, rate: u64) -> u64 {
    narrow(u128::from(time.0) * u128::from(rate) / u128::from(SECOND))
}

fn narrow(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

const SECOND: u64 = 1_000_000_000;
/// What a device is taken for before it was seen: a disk.
const ASSUMED_ACCESS: Nanos = Nanos::from_millis(8);
const ASSUMED_RATE: u64 = 100_000_000;
/// Up to here a transfer is nothing beside the access.
const SMALL_BYTES: u32 = 16 << 10;
/// From this part of the largest request on, a rate is one of bytes, not of operations.
const LARGE: u64 = 8;
/// Arrivals within this part of a lone latency are at one moment: their reaper was late.
const MOMENT: u64 = 16;
/// Evidence that a figure needs.
const LONE_MIN: usize = 4;
/// So many that their median is not quick by chance.
const MANY: usize = 16;
const RATES_MIN: usize = 2;
const VOTES_MIN: i32 = 2;
/// Older votes do not outweigh more than so many new ones.
const VOTES_MAX: i32 = 8;
const _: () = assert!(VOTES_MIN <= VOTES_MAX && LONE_MIN < MANY && MANY <= recent::ROOM);
const VOTE_REQUESTS: u64 = 8;
/// In quarters: more than an arm saves on large requests that follow each other.
const CHAIN_GAIN_4: u128 = 24;
/// When a span or a run has lasted long enough to be evaluated.
const SPAN_REQUESTS: u64 = 32;
const SPAN_REQUESTS_MAX: u64 = 1_024;
const _: () = assert!(VOTE_REQUESTS <= SPAN_REQUESTS && SPAN_REQUESTS <= SPAN_REQUESTS_MAX);
const SPAN_BASES: u64 = 8;
const RUN_REQUESTS: u64 = 16;
/// No arm gets anywhere in less, on average.
const NO_ARM: Nanos = Nanos::from_millis(1);
/// No arm gets to so many places a second, whichever order it chooses.
const ARM_GAP_MIN: Nanos = Nanos::from_millis(1);
/// Arms turn and seek for a time from here (the fastest, at 15,000 turns a minute) to here.
const ARM_MIN: Nanos = Nanos::from_millis(3);
pub(super) const ARM_MAX: Nanos = Nanos::from_millis(30);
const _: () = assert!(NO_ARM.0 <= ARM_MIN.0 && ARM_MIN.0 < ARM_MAX.0);
/// No arm reads so much in a second.
const ARM_RATE_MAX: u64 = 1_000_000_000;
/// More in flight is never wanted.
const DEPTH_MAX: u64 = 256;
