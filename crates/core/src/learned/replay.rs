//! What to fetch of a learned list, and how far ahead of the program.
//!
//! ```text
//!   entries by first use   U U P U U D D I I I . . . . . . . .
//!                                  ^ position          used, passed by, done, in flight, waiting
//!                                  |<-- ahead --->|    32 to 256 entries, within the budget
//! ```
//! A program that starts as it did before uses entry after entry; the position is the last one that
//! it was seen to use. How far ahead is twice what it comes to while one entry is fetched, as fast
//! as it is; where it comes to what is in flight, twice as far as before.
//!
//! # Invariants
//! - Each entry is requested at most once.
//! - Until the list has proved right, what is requested and not used is bounded by what was
//!   used, eight times that where the program is seen to do what the list says (`proof`); an
//!   entry that is larger by itself waits until the program uses it.
//! - On a device that seeks an entry without bytes counts there as one with.
//! - No more than [`AHEAD_MAX`] entries, or one batch and a half of a list that proved right, and
//!   no more bytes than the budget are ahead of the position; entries that the program has passed
//!   by count for their bytes until the list is used up. An entry in flight counts for all that it
//!   may fetch, one that was fetched for what that was.
//! - A list whose program goes by the places of its files is left to it on a device that seeks; one
//!   entry at a time finds out whether it does.
//! - Of entries that can be judged, fewer than [`PRECISION_HALF`] percent used halves the distance;
//!   fewer than [`PRECISION_STOP`] percent ends the replay.
//! - The same calls give the same requests; the time is an argument.

mod issue;
mod proof;

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::units::Nanos;
use crate::walk::order::ascends;
use proof::{Cost, Proof, Recent, Sightings};

/// An entry of the list, as far as its replay needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayEntry {
    /// When it was first seen to be used.
    pub first: Nanos,
    /// The bytes that are fetched of the version that was used.
    pub bytes: u64,
    /// Those that are fetched of any version, at most; no less.
    pub bytes_max: u64,
    /// The ranges that these are in.
    pub ranges: u64,
    /// Where it lies on a seek-bound device: its inode; 0 where that is not known.
    pub place: u64,
    /// Whether a use of it can be seen once it is there.
    pub is_judged: bool,
}

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayStats {
    /// Entries of the list.
    pub entries: u64,
    /// Entries that were requested.
    pub requested: u64,
    /// Entries of the list that the program was seen to use.
    pub used: u64,
    /// Of these, those that were requested.
    pub used_requested: u64,
    /// Requested entries of which a use would have been seen, and was not.
    pub unused: u64,
    /// Their bytes.
    pub unused_bytes: u64,
}

impl ReplayStats {
    /// Of the requested entries that could be judged those that were used, in percent; none while
    /// there are too few.
    #[must_use]
    pub fn precision(&self) -> Option<u32> {
        let judged = self.used_requested + self.unused;
        let percent = (self.used_requested * 100).checked_div(judged)?;
        let is_enough = judged >= u64::from(JUDGED_MIN);
        is_enough.then(|| u32::try_from(percent).expect("a part is no more than all"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    InFlight,
    Done,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    entry: ReplayEntry,
    state: State,
    is_used: bool,
    /// It was judged, and counts as unused.
    is_unused: bool,
    /// The bytes that its request may fetch.
    allowed: u64,
    /// What of it counts as ahead of the program.
    charged: u64,
    /// What of it counts as unproven.
    bet: Option<Cost>,
    /// It was requested of a device that may seek.
    seeks: bool,
    /// How long its fetch took.
    took: Nanos,
    /// The number of uses after which it is.
    deadline: u64,
}

impl Row {
    /// What its request takes of the device; one without bytes takes a request as well.
    fn cost(&self) -> Cost {
        Cost { requests: self.entry.ranges.max(1), bytes: self.entry.bytes }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Replay {
    rows: Vec<Row>,
    /// One past the last entry that was used, of those that were used about in turn.
    position: usize,
    /// The last entries that were used far ahead of the position.
    far: VecDeque<usize>,
    /// All before it are requested, but for those in `skipped`.
    front: usize,
    /// Entries before the front that the program passed before they were requested.
    skipped: VecDeque<u32>,
    /// Entries before the front that are requested next, by place.
    batch: VecDeque<u32>,
    /// Entries before the front that are too large for a list that has not proved right.
    held: BTreeSet<u32>,
    /// Of these, those that are requested next, as the program uses them.
    released: VecDeque<u32>,
    /// Entries that wait to be used, by deadline.
    awaited: BTreeSet<(u64, u32)>,
    recent: Recent,
    /// Of the paths that the program was seen to use: those of the list.
    sightings: Sightings,
    proof: Proof,
    /// What the program was saved by entries that were there when it used them.
    gained: Nanos,
    /// What is charged of requested entries that were not used.
    ahead_bytes: u64,
    in_flight: BTreeSet<u32>,
    /// Times of the last uses.
    uses: VecDeque<Nanos>,
    /// A mean of how long fetches take.
    latency: Nanos,
    /// Entries that may be ahead at least: more where the program came to what was in flight.
    reach: usize,
    /// When that grew.
    grown: Nanos,
    is_stopped: bool,
    /// The entries lie on a device in the order of their uses.
    is_by_place: bool,
    stats: ReplayStats,
}

impl Replay {
    /// A replay of `entries`, by first use.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = ReplayEntry>) -> Self {
        let row = |entry| Row {
            entry,
            state: State::Waiting,
            is_used: false,
            is_unused: false,
            allowed: 0,
            charged: 0,
            bet: None,
            seeks: false,
            took: Nanos(0),
            deadline: 0,
        };
        let rows: Vec<Row> = entries.into_iter().take(super::ENTRIES_MAX).map(row).collect();
        let is_by_place = is_by_place(&rows);
        let stats = ReplayStats { entries: rows.len() as u64, ..ReplayStats::default() };
        Self {
            rows,
            position: 0,
            far: VecDeque::new(),
            front: 0,
            skipped: VecDeque::new(),
            batch: VecDeque::new(),
            held: BTreeSet::new(),
            released: VecDeque::new(),
            awaited: BTreeSet::new(),
            recent: Recent::default(),
            sightings: Sightings::default(),
            proof: Proof::default(),
            gained: Nanos(0),
            ahead_bytes: 0,
            in_flight: BTreeSet::new(),
            uses: VecDeque::new(),
            latency: Nanos(0),
            reach: AHEAD_MIN,
            grown: Nanos(0),
            is_stopped: false,
            is_by_place,
            stats,
        }
    }

    /// What was done so far. Entries that were not judged yet count as neither used nor unused.
    #[must_use]
    pub fn stats(&self) -> ReplayStats {
        self.stats
    }

    /// Whether the list proved to be that of something else.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        self.recent.precision().is_some_and(|it| it < PRECISION_STOP)
    }

    /// Whether nothing more is requested, but for large entries once the program uses these.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let releases = self.is_right() && !self.held.is_empty();
        let is_all = self.front == self.rows.len() && self.released.is_empty() && !releases;
        self.is_stopped || (is_all && self.skipped.is_empty() && self.batch.is_empty())
    }

    /// The time that the program was saved since the last call: for each entry that was there when
    /// it was used, that of its fetch, the mean of all at most.
    pub fn take_gained(&mut self) -> Nanos {
        core::mem::take(&mut self.gained)
    }

    /// Whether a request that takes `cost` of a processor pays for itself: the list has proved
    /// right, and a fetch takes ten times as long.
    #[must_use]
    pub fn pays(&self, cost: Nanos) -> bool {
        self.is_right() && cost.0.saturating_mul(PAYS_FACTOR) <= self.latency.0
    }

    fn is_right(&self) -> bool {
        self.recent.precision().is_some_and(|it| it >= PRECISION_HALF)
    }

    /// Whether the program does what the list says, as far as nothing else is known: enough of
    /// what it was last seen to use is listed, and too little was judged to tell more.
    fn is_followed(&self) -> bool {
        self.recent.precision().is_none() && self.sightings.are_listed()
    }

    /// The program uses a path that is not of the list.
    pub fn missed(&mut self) {
        self.sightings.note(false);
    }

    /// When the program was last seen to use an entry.
    #[must_use]
    pub fn used_at(&self) -> Option<Nanos> {
        self.uses.back().copied()
    }

    /// Requests that were not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Bytes that were requested and not used.
    #[must_use]
    pub fn ahead_bytes(&self) -> u64 {
        self.ahead_bytes
    }

    /// The bytes that the request for the entry at `index` may fetch, as the budget was when it was
    /// issued.
    #[must_use]
    pub fn allowed_bytes(&self, index: u32) -> u64 {
        self.rows.get(index as usize).map_or(0, |row| row.allowed)
    }

    /// Whether the entry at `index` was requested.
    #[must_use]
    pub fn is_requested(&self, index: u32) -> bool {
        self.rows.get(index as usize).is_some_and(|row| row.state != State::Waiting)
    }

    /// The program uses the entry at `index`.
    pub fn used(&mut self, now: Nanos, index: u32) {
        let at = index as usize;
        let Some(row) = self.rows.get_mut(at).filter(|row| !row.is_used) else { return };
        row.is_used = true;
        self.stats.used += 1;
        if let Some(bet) = row.bet.take() {
            self.proof.forget(bet);
        }
        self.proof.used(row.cost());
        self.sightings.note(true);
        if self.held.remove(&index) {
            self.released.push_back(index);
        }
        let is_late = row.state == State::InFlight;
        if row.state != State::Waiting {
            self.stats.used_requested += 1;
            if row.state == State::Done && row.entry.is_judged {
                self.gained += row.took.min(self.latency);
            }
            self.ahead_bytes -= core::mem::take(&mut row.charged);
            if core::mem::take(&mut row.is_unused) {
                // It came late, after others had passed it by.
                self.stats.unused -= 1;
                self.stats.unused_bytes -= row.entry.bytes;
            } else if row.entry.is_judged {
                self.awaited.remove(&(row.deadline, index));
                self.recent.note(true);
            }
        }
        self.uses.push_back(now);
        if self.uses.len() > USES_KEPT {
            self.uses.pop_front();
        }
        self.advance(at);
        self.judge();
        if is_late {
            self.grow(now);
        }
    }

    /// The program waits for what was requested: with the distance of before it would do so again.
    /// What is requested by it has the time of a fetch to show.
    fn grow(&mut self, now: Nanos) {
        let is_due = now.since(self.grown) >= self.latency && self.latency > Nanos(0);
        if is_due && (self.is_right() || self.is_followed()) {
            (self.reach, self.grown) = ((self.reach * 2).min(AHEAD_MAX), now);
        }
    }

    /// Moves the position behind an entry that was used. Two runs differ in order: one that is far
    /// ahead tells nothing, but two near each other do, and several where it was not requested.
    fn advance(&mut self, at: usize) {
        if at < self.position {
            return;
        }
        let mut to = at + 1;
        if at >= self.position + AHEAD_MIN {
            let is_beyond = at >= self.front + self.distance().max(AHEAD_MIN);
            let needed = if is_beyond { FAR_KEPT } else { FAR_KEPT_NEAR };
            self.far.push_back(at);
            if self.far.len() > FAR_KEPT {
                self.far.pop_front();
            }
            let last = self.far.iter().rev().take(needed);
            let (Some(first), Some(last)) = (last.clone().min(), last.max()) else { return };
            if self.far.len() < needed || last - first > FAR_SPREAD {
                return;
            }
            to = last + 1;
        }
        self.far.clear();
        self.position = to;
        // What the program came to before it was requested: what lies before may follow yet.
        let skipped = (self.front..self.position).filter(|&index| !self.rows[index].is_used);
        self.skipped.extend(skipped.map(number));
        self.front = self.front.max(self.position);
        assert!(self.position <= self.front, "the front is not behind the program");
    }

    /// Judges the entries that the program has passed by.
    fn judge(&mut self) {
        while let Some(&(deadline, index)) = self.awaited.first()
            && deadline <= self.stats.used
        {
            self.awaited.pop_first();
            self.recent.note(false);
            self.is_unused(index);
        }
        self.is_stopped |= self.is_wrong();
    }

    fn is_unused(&mut self, index: u32) {
        let row = &mut self.rows[index as usize];
        assert!(!row.is_used && !row.is_unused, "an entry is judged once");
        row.is_unused = true;
        self.stats.unused += 1;
        self.stats.unused_bytes += row.entry.bytes;
    }

    /// Nothing more is used: what is left is judged.
    pub fn finish(&mut self) {
        while let Some((_, index)) = self.awaited.pop_first() {
            self.is_unused(index);
        }
        self.is_stopped = true;
    }

    /// How many entries may be ahead of the program now.
    #[must_use]
    pub fn distance(&self) -> usize {
        if self.is_stopped {
            return 0;
        }
        let comes_to = match (self.uses.front(), self.uses.back()) {
            (Some(first), Some(last)) if last > first => {
                let uses = (self.uses.len() - 1) as u64;
                // What it comes to in twice the time of a fetch.
                2 * self.latency.0.saturating_mul(uses) / last.since(*first).0
            }
            _ => 0,
        };
        let ahead = usize::try_from(comes_to).unwrap_or(AHEAD_MAX).clamp(self.reach, AHEAD_MAX);
        let halves = self.recent.precision().is_some_and(|it| it < PRECISION_HALF);
        if halves { ahead / 2 } else { ahead }
    }

    /// The request for the entry at `index` has ended and fetched `bytes`, after `took` if the
    /// device was waited for. A use of what was there already may have come before. Where none
    /// `is_seen`, nothing is judged by it.
    pub fn complete(&mut self, index: u32, took: Option<Nanos>, bytes: u64, is_seen: bool) {
        if !self.in_flight.remove(&index) {
            return;
        }
        self.charge(index, bytes);
        let row = &mut self.rows[index as usize];
        row.state = State::Done;
        let judged = took.filter(|_| is_seen);
        row.entry.is_judged &= judged.is_some();
        row.took = judged.unwrap_or_default();
        // On a device that seeks the program has waited for it, whether a use can be seen or not.
        let is_paid = row.entry.is_judged || took.is_some() && row.seeks;
        if let Some(bet) = row.bet.take_if(|_| !is_paid) {
            self.proof.forget(bet);
        }
        if row.entry.is_judged && !row.is_used {
            // Those before it are used first, as far as the order is that of the list.
            let before = (index as usize).saturating_sub(self.position) as u64;
            row.deadline = self.stats.used + before + ORDER_SLACK;
            self.awaited.insert((row.deadline, index));
        }
        if let Some(took) = judged {
            let before = if self.latency == Nanos(0) { took } else { self.latency };
            self.latency = Nanos((before.0 * (LATENCY_OF - 1) + took.0) / LATENCY_OF);
        }
    }

    /// The entry at `index` has fetched `bytes`: that is charged in place of what was allowed.
    fn charge(&mut self, index: u32, bytes: u64) {
        let row = &mut self.rows[index as usize];
        assert!(bytes <= row.allowed, "no more is fetched than is charged");
        row.entry.bytes = bytes;
        if !row.is_used {
            self.ahead_bytes -= row.charged - bytes;
            row.charged = bytes;
        }
        let cost = row.cost();
        if let Some(bet) = &mut row.bet {
            self.proof.forget(core::mem::replace(bet, cost));
            self.proof.request(cost);
        }
    }
}

/// Whether a program that uses `rows` in their order goes by their places. What was first seen at
/// the same time has no order.
fn is_by_place(rows: &[Row]) -> bool {
    let known: Vec<ReplayEntry> =
        rows.iter().map(|row| row.entry).filter(|entry| entry.place > 0).collect();
    let steps = known.windows(2).filter(|step| step[0].first < step[1].first);
    ascends(steps.map(|step| [step[0].place, step[1].place])).unwrap_or(false)
}

/// The number of the row at `index`.
fn number(index: usize) -> u32 {
    u32::try_from(index).expect("a list has a bound")
}

/// Entries ahead of the program, at least and at most.
pub const AHEAD_MIN: usize = 32;
/// See [`AHEAD_MIN`].
pub const AHEAD_MAX: usize = 256;
/// See the module.
pub const PRECISION_HALF: u32 = 80;
/// See the module.
pub const PRECISION_STOP: u32 = 50;
/// Entries by which two runs differ in order.
const ORDER_SLACK: u64 = 32;
/// So many uses far ahead, no further from each other than the spread, are where the program is.
const FAR_KEPT: usize = 4;
const FAR_KEPT_NEAR: usize = 2;
const FAR_SPREAD: usize = 128;
/// Fewer judged entries tell nothing.
const JUDGED_MIN: u32 = 16;
const USES_KEPT: usize = 32;
/// What a program is saved pays for a tenth of a processor.
const PAYS_FACTOR: u64 = 10;
/// A fetch moves the mean by one part in so many.
const LATENCY_OF: u64 = 8;

#[cfg(test)]
mod tests;
